"""JSON Schemas of what ringplan reads and writes, made from the specs and the registry."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

from ringplan.assess import Summary
from ringplan.estimation.growth import Growth
from ringplan.estimation.metrics import Field, block_of, fields_of
from ringplan.estimation.results import Estimate, Memory, RankMemory
from ringplan.estimation.tensors import Listed
from ringplan.findings import Finding
from ringplan.remedies import Remedy
from ringplan.specs.engine import Engine
from ringplan.specs.hardware import HardwareProfile
from ringplan.specs.mesh import Mesh
from ringplan.specs.workload import Workload

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_WORDS = {str: "string", bool: "boolean", int: "integer", float: "number"}


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a scenario file."""
    blocks = {
        "model": _based("A model: a name, a path, or a base and Hugging Face's own fields.", {}),
        "hardware": _based(
            "A device: a name, a path, or a base and what differs.", _partial(HardwareProfile)
        ),
        "mesh": Mesh.model_json_schema(),
        "workload": Workload.model_json_schema(),
        "engine": {
            "description": "What differs from the memory policy that workload.engine names.",
            **_partial(Engine),
        },
    }
    defs: dict[str, Any] = {}
    for block in blocks.values():
        defs |= block.pop("$defs", {})
    return {
        "$schema": _DRAFT,
        "title": "ringplan scenario",
        "type": "object",
        "additionalProperties": False,
        "properties": blocks,
        "$defs": defs,
    }


def _based(description: str, block: dict[str, Any]) -> dict[str, Any]:
    """A name, or a block that builds on one."""
    properties = {"base": {"type": "string", "description": "Shipped name, or path of a file."}}
    made = {"type": "object", **block, "properties": {**properties, **block.get("properties", {})}}
    defs = made.pop("$defs", {})
    return {"description": description, "anyOf": [{"type": "string"}, made], "$defs": defs}


def _partial(spec: type[HardwareProfile | Engine]) -> dict[str, Any]:
    """Schema of a spec of which any part may be left to the base."""
    made = spec.model_json_schema()
    for block in (made, *made.get("$defs", {}).values()):
        if block.get("title") != "Source":
            block.pop("required", None)
    return made


_EXPLAINED = {"type": "object", "description": "With --explain: derivation by metric."}


def estimate_schema() -> dict[str, Any]:
    """Return the schema of ``ringplan estimate --format json``, unit and scope of every number."""
    made = _head("ringplan estimate", "estimate", "findings")
    made["properties"] |= {
        "estimate": _block(Estimate),
        "findings": {"type": "array", "items": _record(Finding)},
        "explain": _EXPLAINED,
    }
    return made


def memory_schema() -> dict[str, Any]:
    """Return the schema of ``ringplan memory --format json``."""
    reasons = {"type": "object", "additionalProperties": {"type": "string"}}
    made = _head("ringplan memory", "estimate", "growth", "lengths", "smallest_mesh", "findings")
    made["properties"] |= {
        "estimate": _whole({"memory": _block(Memory), "not_counted": reasons}),
        "growth": {"type": "array", "items": _measured(_record(Growth), "rank")},
        "lengths": {"type": "array", "items": _length()},
        "smallest_mesh": {
            "description": "The fewest devices, a power of two, that fit; null if none do.",
            "anyOf": [_measured(_record(Remedy), "rank"), {"type": "null"}],
        },
        "findings": {"type": "array", "items": _record(Finding)},
        "tensors": {
            "description": "With --tensors: what every count of parameters is the sum of.",
            "type": "array",
            "items": _measured(_record(Listed), "rank"),
        },
        "explain": _EXPLAINED,
    }
    return made


def _length() -> dict[str, Any]:
    """Schema of the bill at another context."""
    return _whole(
        {
            "seq_len": {"type": "integer", "unit": "token", "scope": "sequence"},
            "rank": _block(RankMemory),
            "max_concurrency": {"type": ["number", "null"], "unit": "1", "scope": "job"},
        }
    )


def _measured(record: dict[str, Any], scope: str) -> dict[str, Any]:
    """Give the fields of a record that are bytes their unit and scope."""
    for name, field in record["properties"].items():
        if "bytes" in name:
            field |= {"unit": "B", "scope": scope}
    return record


def _head(title: str, *own: str) -> dict[str, Any]:
    """What the documents of an assessment have in common; ``own`` are keys of this one."""
    return {
        "$schema": _DRAFT,
        "title": title,
        "type": "object",
        "required": [
            *("format_version", "ringplan_version", "summary", "scenario", "inputs"),
            *own,
        ],
        "properties": {
            "format_version": {"const": 1},
            "ringplan_version": {"type": "string"},
            "summary": _record(Summary),
            "scenario": {"type": "object", "description": "The scenario as understood."},
            "inputs": {
                "type": "array",
                "description": "Every value of the scenario, with who gave it.",
                "items": {
                    "type": "object",
                    "required": ["path", "value", "unit", "origin", "source"],
                    "properties": {
                        "path": {"type": "string"},
                        "value": {},
                        "unit": {"type": "string"},
                        "origin": {"type": "string"},
                        "source": {"type": ["string", "null"]},
                    },
                },
            },
        },
    }


def validation_schema() -> dict[str, Any]:
    """Return the schema of ``ringplan validate --format json``."""
    from ringplan.render.validation import Document  # noqa: PLC0415 - it needs NumPy

    return {"$schema": _DRAFT, "title": "ringplan validate", **_record(Document)}


def _record(kind: type[Any]) -> dict[str, Any]:
    """Schema of a named tuple of plain values, and of such tuples."""
    about = (kind.__doc__ or "").strip().partition("\n\n")[0]
    properties = {name: _value(hint) for name, hint in get_type_hints(kind).items()}
    return {"description": about, **_whole(properties)}


def _whole(properties: dict[str, Any]) -> dict[str, Any]:
    """Schema of an object that has these properties and no other."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _value(kind: Any) -> dict[str, Any]:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(parts)}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _value(parts[0])}
    if hasattr(kind, "_fields"):
        return _record(kind)
    if parts:
        return {"anyOf": [_value(part) for part in parts]}
    return {"type": _WORDS.get(kind, "null")}


def _block(block: type[Any]) -> dict[str, Any]:
    return _whole({field.name: _field(field) for field in fields_of(block)})


def _field(field: Field) -> dict[str, Any]:
    about, unit, scope, formulas = field.declared
    inner = block_of(field.type)
    if inner is not None:
        made, parts = _block(inner), get_args(field.type)
        if tuple in (get_origin(field.type), *map(get_origin, parts)):
            made = {"type": "array", "items": made}
        if type(None) in parts:
            made = {"anyOf": [made, {"type": "null"}]}
        return {"description": about, **made}
    made = {"description": about, **_type(field.type, unit)}
    if unit and unit != "bool":
        made["unit"] = unit
    if unit:
        made["scope"] = scope
    if formulas:
        made["formulas"] = [formula.name for formula in formulas]
        made["equation"] = formulas[0].equation
    return made


def _type(kind: Any, unit: str) -> dict[str, Any]:
    if kind is Any:
        return {"type": ["boolean" if unit == "bool" else "number", "null"]}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": {"type": "string"}}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if get_args(kind):
        return {"type": [_WORDS.get(part, "null") for part in get_args(kind)]}
    return {"type": _WORDS[kind]}
