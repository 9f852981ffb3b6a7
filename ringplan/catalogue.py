"""What a name means, as tables: of a model, hardware, an engine, a check, a formula, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.checks import RULES
from ringplan.costs.formula import REGISTRY
from ringplan.costs.symbols import symbol
from ringplan.errors import SpecError, nearest
from ringplan.estimation.core import estimate
from ringplan.feasibility import CODES, reasons
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.origins import Tree, leaves
from ringplan.io.policies import schedule_from
from ringplan.io.profiles import read_profile, read_profiled
from ringplan.io.scenarios import load, read_model
from ringplan.specs.schedule import Schedule

if TYPE_CHECKING:
    from pathlib import Path

    from ringplan.io.origins import Origin
    from ringplan.specs.scenario import Scenario


class Table(NamedTuple):
    """A titled table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def usual(path: Path) -> Scenario:
    """A scenario whose caches tell what a model keeps: one long sequence in bf16 on any device."""
    given = {
        "model": str(path),
        "hardware": "h100-sxm-80gb",
        "workload.seq_len": 2**20,
        "workload.kv_dtype": "bf16",
    }
    return load(flags={key: (value, "listed") for key, value in given.items()}).scenario


def _example(path: Path, ranks: int) -> Scenario:
    """Share 8K tokens a rank of a model with 32 query and 8 KV heads, as a schedule does."""
    schedule = schedule_from(path)
    given: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "hardware": next(_DEVICES[kind] for kind in schedule.devices if kind in _DEVICES),
        "workload.seq_len": 8192 * ranks,
        "workload.phase": "train" if "train" in schedule.phases else schedule.phases[0],
        "mesh.cp_size": ranks,
        "mesh.schedule": str(path),
    }
    if schedule.comm_types[:1] == ("a2a+p2p",):
        given["mesh.ulysses_size"] = 2
    return load(flags={key: (value, "listed") for key, value in given.items()}).scenario


#: A device of each kind with a network; what is sent does not depend on it.
_DEVICES = {"gpu": "h100-sxm-80gb", "tpu": "tpu-v5p"}


def sent(path: Path, ranks: int) -> list[str] | None:
    """What a rank sends forward and backward, and holds besides, in units of its K and V."""
    scenario = _example(path, ranks)
    if scenario.workload.phase == "decode" or reasons(scenario)[:1]:
        return None
    made, unit = estimate(scenario), 2 * 8192 * 8 * (128 + 128)
    back = made.ring.bytes_sent_backward if scenario.workload.phase == "train" else None
    buffers = made.memory.rank.ring_buffer_bytes
    sizes = (made.ring.bytes_sent_forward, back, buffers)
    return ["-" if size is None else f"{size / unit:.2f} U" for size in sizes]


def engine_of(path: Path) -> Tree:
    """Read an engine's policy; the origin of each field names its source."""
    policy = read_profiled(read_document(path))
    policy.values.pop("sources", None)
    return policy


def checks() -> dict[str, str]:
    """Give every check by its code."""
    rules = {rule.__name__.upper(): (rule.__doc__ or "").strip() for rule in RULES}
    return {**CODES, **rules}


def entry(name: str) -> list[Table]:
    """
    Describe a name: a model, a profile, a schedule, an engine, a check or a formula.

    Raises
    ------
    SpecError
        Nothing has that name; says which come near.
    """
    for shelf, describe in _DESCRIPTIONS.items():
        if name in library.names(shelf):
            return describe(library.find(shelf, name))
    known_checks = checks()
    if name.upper() in known_checks:
        return [Table(f"{name.upper()}: {known_checks[name.upper()]}", [], [])]
    if name in REGISTRY:
        return _formula(name)
    known = [*(n for s in _DESCRIPTIONS for n in library.names(s)), *known_checks, *REGISTRY]
    raise SpecError(f"nothing is called '{name}'", hint=nearest(name, known, noun="names"))


def _model(path: Path) -> list[Table]:
    name, config = read_model(path)
    title = str(read_document(path).values.get("title", name))
    return [
        Table(title, ["counted", "value"], _counted(usual(path))),
        *_sourced("config", leaves(config.values), config.origins),
    ]


def _counted(scenario: Scenario) -> list[list[str]]:
    """List what is counted of a model: parameters, and each cache that it has."""
    memory, model = estimate(scenario).memory, scenario.model
    rows = [["not known", each] for each in model.unknown]
    if memory.num_parameters is not None:
        rows = [["parameters", f"{memory.num_parameters:,}"]]
        if memory.num_active_parameters != memory.num_parameters:
            rows.append(["of them, a token meets", f"{memory.num_active_parameters:,}"])
    caches = {
        "K/V a token, bf16": memory.kv_bytes_per_token,
        "windows of a sequence, bf16": memory.kv_constant_bytes,
        "indexers' keys a token": memory.indexer_bytes_per_token,
        "states of a sequence": memory.state_bytes,
    }
    rows += [[name, f"{value:,} B"] for name, value in caches.items() if value]
    drafts = len(model.draft_pattern)
    rows += [["draft layers, left out by default", str(drafts)]] if drafts else []
    rows.append(["weights as published", model.weights_dtype])
    return rows + [["not counted", each] for each in model.not_counted]


def _hardware(path: Path) -> list[Table]:
    profile = read_profile(path)
    fields = [
        (key, value)
        for key, value in leaves(profile.values)
        if key.partition(".")[0] not in ("sources", "name", "title")
    ]
    title = str(profile.values.get("title", path.stem))
    shown, sources = _sourced(title, fields, profile.origins)
    base = read_document(path).values.get("base")
    if base is not None:
        shown.rows.insert(0, ["base", str(base), ""])
    notes = _notes(path)
    for row in sources.rows:
        row[1] += notes.get(row[1], "")
    return [shown, sources]


def _notes(path: Path) -> dict[str, str]:
    """Give the note of each source of a profile and of those it builds on."""
    values = read_document(path).values
    base = values.get("base")
    notes = _notes(library.find("hardware", str(base), beside=path.parent)) if base else {}
    for source in values.get("sources", {}).values():
        if source.get("note"):
            notes[f"{source['kind']}, {source['title']}"] = f" ({source['note']})"
    return notes


def _sourced(title: str, fields: list[tuple[str, Any]], origins: dict[str, Origin]) -> list[Table]:
    """Fields with the number of their source, and the sources by number."""
    numbers: dict[str, int] = {}
    rows = []
    for key, value in fields:
        source = origins[key].source
        number = str(numbers.setdefault(source, len(numbers) + 1)) if source else ""
        rows.append([key, _text(value), number])
    sources = [[str(number), source] for source, number in numbers.items()]
    return [
        Table(title, ["field", "value", "source"], rows),
        Table("sources", ["", "title"], sources),
    ]


def _schedule(path: Path) -> list[Table]:
    values, schedule = read_document(path).values, schedule_from(path)
    about = {name: field.description or "" for name, field in Schedule.model_fields.items()}
    plain = ("name", "title", "source", "left_out")
    rows = [[key, _word(value), about[key]] for key, value in values.items() if key not in plain]
    source = [[key, _text(value)] for key, value in leaves(values["source"])]
    tables = [
        Table(f"{schedule.name}: {schedule.title}", ["field", "value", "what"], rows),
        Table("source", ["", ""], [*source, *(["left out", each] for each in schedule.left_out)]),
    ]
    rows = [[f"{ranks}", *sizes] for ranks in (2, 4, 8, 16) if (sizes := sent(path, ranks))]
    if rows:
        title = "what a rank sends and holds; U is its K and V; 32 query and 8 KV heads"
        tables.append(Table(title, ["ranks", "forward", "backward", "buffers"], rows))
    return tables


def _word(value: Any) -> str:
    """Say yes and no, and what a field without a value means."""
    known = {True: "yes", False: "no", None: "as activations"}
    return known[value] if isinstance(value, bool) or value is None else _text(value)


def _engine(path: Path) -> list[Table]:
    policy = engine_of(path)
    fields = [(key, value) for key, value in leaves(policy.values) if key not in ("name", "title")]
    return _sourced(str(policy.values["title"]), fields, policy.origins)


_DESCRIPTIONS = {
    "models": _model,
    "hardware": _hardware,
    "schedules": _schedule,
    "engines": _engine,
}


def _formula(name: str) -> list[Table]:
    formula = REGISTRY[name]
    facts = [
        ["equation", formula.equation],
        ["unit", formula.unit],
        ["scope", formula.scope],
        ["source", formula.source],
    ]
    arguments = [
        [argument, symbol(argument).letter, symbol(argument).unit, symbol(argument).meaning]
        for argument in formula.parameters
    ]
    return [
        Table(f"{name}: {formula.summary}", ["", "value"], facts),
        Table("arguments", ["argument", "letter", "unit", "meaning"], arguments),
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, list):
        return f"{value[0]}, ... ({len(value)})" if len(value) > 8 else ", ".join(map(str, value))
    return str(value)
