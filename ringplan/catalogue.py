"""What ringplan knows by name, as tables: models, hardware, schedules, checks, formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.checks import RULES
from ringplan.costs.formula import REGISTRY
from ringplan.costs.symbols import symbol
from ringplan.errors import SpecError, nearest
from ringplan.estimation.core import estimate  # noqa: F401 - registers every formula
from ringplan.feasibility import CODES
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.hf import read_config
from ringplan.io.origins import leaves
from ringplan.io.scenarios import read_model, read_profile
from ringplan.specs.dtypes import ELEMENT_BYTES
from ringplan.units import parse, show

if TYPE_CHECKING:
    from pathlib import Path

    from ringplan.io.origins import Origin
    from ringplan.specs.model import LayerKind, ModelSpec


class Table(NamedTuple):
    """A titled table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def listing(shelf: str) -> Table:
    """List a shelf: models, hardware, schedules or checks."""
    if shelf == "checks":
        return Table("checks", ["code", "what"], [[code, what] for code, what in _checks().items()])
    rows = [_ROWS[shelf](library.find(shelf, name)) for name in library.names(shelf)]
    return Table(shelf, _COLUMNS[shelf], rows)


_COLUMNS = {
    "models": ["name", "parameters", "layers", "K/V a token", "context"],
    "hardware": ["name", "memory", "bf16 peak", "pair", "scale-out", "domain"],
    "schedules": ["name", "what"],
}


def _model_row(path: Path) -> list[str]:
    model = model_of(path)
    context = model.max_position_embeddings
    return [
        model.name,
        f"{model.num_parameters / 1e9:,.1f} B",
        str(model.num_hidden_layers),
        show(kv_bytes_per_token(model), "B"),
        f"{context:,}" if context else "-",
    ]


def model_of(path: Path) -> ModelSpec:
    """Read a model's file."""
    name, config = read_model(path)
    return read_config(config, name=name).spec


def kv_bytes_per_token(model: ModelSpec) -> float:
    """Bytes that a token leaves in the bf16 cache of the layers that see the whole context."""

    def elements(kind: LayerKind) -> int:
        return kind.latent_dim or kind.num_key_value_heads * (kind.head_dim + kind.v_head_dim)

    layers = (model.kinds[index] for index in model.pattern)
    return ELEMENT_BYTES["bf16"] * sum(elements(kind) for kind in layers if kind.window is None)


def _hardware_row(path: Path) -> list[str]:
    given = read_document(path).values

    def value(block: str, key: str, unit: str) -> str:
        text = given.get(block, {}).get(key)
        return "-" if text is None else show(parse(text, unit), unit)

    return [
        str(given["name"]),
        value("memory", "capacity", "B"),
        value("peak", "bf16", "FLOP/s"),
        value("scale_up", "pair_bandwidth_per_direction", "B/s"),
        value("scale_out", "bandwidth_per_direction", "B/s"),
        str(given["scale_up"]["domain_size"]),
    ]


def _schedule_row(path: Path) -> list[str]:
    given = read_document(path).values
    return [str(given["name"]), str(given["title"])]


_ROWS = {"models": _model_row, "hardware": _hardware_row, "schedules": _schedule_row}


def _checks() -> dict[str, str]:
    rules = {rule.__name__.upper(): (rule.__doc__ or "").strip() for rule in RULES}
    return {**CODES, **rules}


def entry(name: str) -> list[Table]:
    """
    Describe a name: a model, a profile, a schedule, a check or a formula.

    Raises
    ------
    SpecError
        Nothing has that name; says which come near.
    """
    for shelf, describe in (("models", _model), ("hardware", _hardware), ("schedules", _schedule)):
        if name in library.names(shelf):
            return describe(library.find(shelf, name))
    checks = _checks()
    if name.upper() in checks:
        return [Table(f"{name.upper()}: {checks[name.upper()]}", [], [])]
    if name in REGISTRY:
        return _formula(name)
    known = [*(n for s in _COLUMNS for n in library.names(s)), *checks, *REGISTRY]
    raise SpecError(f"nothing is called '{name}'", hint=nearest(name, known, noun="names"))


def _model(path: Path) -> list[Table]:
    name, config = read_model(path)
    model = read_config(config, name=name).spec
    title = str(read_document(path).values.get("title", name))
    facts = [
        ["parameters", f"{model.num_parameters:,}"],
        ["K/V a token, bf16", f"{kv_bytes_per_token(model):,} B"],
        ["weights as published", model.weights_dtype],
    ]
    return [
        Table(title, ["counted", "value"], facts),
        *_sourced("config", leaves(config.values), config.origins),
    ]


def _hardware(path: Path) -> list[Table]:
    profile = read_profile(path)
    fields = [
        (key, value)
        for key, value in leaves(profile.values)
        if key.partition(".")[0] not in ("sources", "name", "title")
    ]
    return _sourced(str(profile.values.get("title", path.stem)), fields, profile.origins)


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
    values = read_document(path).values
    rows = [[key, _text(value)] for key, value in leaves(values) if key not in ("name", "title")]
    return [Table(f"{values['name']}: {values['title']}", ["field", "value"], rows)]


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
