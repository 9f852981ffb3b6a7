"""What ringplan knows by name, as tables: models, hardware, engines, checks, formulas, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.checks import RULES
from ringplan.costs.formula import REGISTRY
from ringplan.costs.symbols import symbol
from ringplan.errors import SpecError, nearest, quote
from ringplan.estimation.core import estimate
from ringplan.feasibility import CODES
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.origins import Tree, leaves
from ringplan.io.profiles import read_profile, read_profiled
from ringplan.io.scenarios import load, read_model
from ringplan.specs.engine import Engine
from ringplan.units import parse, show

if TYPE_CHECKING:
    from pathlib import Path

    from ringplan.io.origins import Origin
    from ringplan.specs.scenario import Scenario


class Table(NamedTuple):
    """A titled table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Row(NamedTuple):
    """One name of a shelf: its cells, the numbers it is sorted by, the words a filter looks in."""

    cells: list[str]
    numbers: dict[str, float | None] = {}
    words: str = ""


def listing(shelf: str, *, sort: str | None = None, contains: str = "") -> list[Table]:
    """
    List a shelf: models, hardware, schedules, engines or checks.

    Parameters
    ----------
    shelf
        What to list; hardware is two tables, devices and node types.
    sort
        ``name``, or a number of the shelf, largest first; in the order of the shelf if None.
    contains
        Words that a row must hold in its name, title or cells; upper case does not matter.

    Raises
    ------
    SpecError
        The shelf has no such number, or no such row.

    Examples
    --------
    >>> [table.rows[0][0] for table in listing("hardware", sort="memory", contains="h100")]
    ['h100-nvl-94gb', 'aws-p5-48xlarge']
    """
    keys = ["name", *_SORTED_BY.get(shelf, [])]
    if sort is not None and sort not in keys:
        raise SpecError(f"{shelf} cannot be sorted by {quote(sort)}", hint=f"by {', '.join(keys)}")
    tables = []
    for title, columns, rows in _tables(shelf):
        found = [row for row in rows if _holds(row, contains)]
        if found:
            cells = [row.cells for row in _in_order(found, sort)]
            tables.append(Table(title, columns, cells))
    if not tables:
        raise SpecError(
            f"no {shelf} with {quote(contains)}", hint=f"ringplan list {shelf} shows all"
        )
    return tables


def _holds(row: Row, contains: str) -> bool:
    text = " ".join([row.words, *row.cells]).lower()
    return all(word in text for word in contains.lower().split())


def _in_order(rows: list[Row], sort: str | None) -> list[Row]:
    """Sort by name upwards or by a number downwards; what lacks the number stands last."""
    if sort is None:
        return rows
    if sort == "name":
        return sorted(rows, key=lambda row: row.cells[0])
    return sorted(rows, key=lambda row: -(row.numbers[sort] or 0))


def _tables(shelf: str) -> list[tuple[str, list[str], list[Row]]]:
    if shelf == "checks":
        rows = [Row([code, what]) for code, what in _checks().items()]
        return [("checks", ["code", "what"], rows)]
    paths = [library.find(shelf, name) for name in library.names(shelf)]
    if shelf != "hardware":
        return [(shelf, _COLUMNS[shelf], [_ROWS[shelf](path) for path in paths])]
    nodes = [path for path in paths if path.parent.name == "nodes"]
    devices = [path for path in paths if path not in nodes]
    return [
        ("devices", _COLUMNS["hardware"], [_device_row(path) for path in devices]),
        ("node types", _NODE_COLUMNS, [_node_row(path) for path in nodes]),
    ]


_COLUMNS = {
    "models": ["name", "parameters", "layers", "K/V a token", "context"],
    "hardware": ["name", "memory", "bandwidth", "bf16 peak", "pair", "scale-out", "domain"],
    "schedules": ["name", "what"],
    "engines": ["name", "budget", "share", "page", "chunk", "windows"],
}
_NODE_COLUMNS = ["name", "device", "devices", "cards", "scale-out", "whole node"]
_SORTED_BY = {
    "models": ["parameters", "layers", "kv", "context"],
    "hardware": ["memory", "bandwidth", "bf16", "pair", "scale-out"],
    "engines": ["share", "page", "chunk"],
}


def _model_row(path: Path) -> Row:
    scenario = _usual(path)
    memory, model = estimate(scenario).memory, scenario.model
    context, parameters = model.max_position_embeddings, memory.num_parameters
    cells = [
        model.name,
        "-" if parameters is None else f"{parameters / 1e9:,.1f} B",
        str(model.num_hidden_layers),
        show(memory.kv_bytes_per_token, "B"),
        f"{context:,}" if context else "-",
    ]
    numbers = {
        "parameters": parameters,
        "layers": model.num_hidden_layers,
        "kv": memory.kv_bytes_per_token,
        "context": context,
    }
    return Row(cells, numbers, str(read_document(path).values.get("title", "")))


def _usual(path: Path) -> Scenario:
    """A scenario whose caches tell what a model keeps: one long sequence in bf16 on any device."""
    given = {
        "model": str(path),
        "hardware": "h100-sxm-80gb",
        "workload.seq_len": 2**20,
        "workload.kv_dtype": "bf16",
    }
    return load(flags={key: (value, "listed") for key, value in given.items()}).scenario


def _device_row(path: Path) -> Row:
    given = read_profile(path).values
    numbers = _rates(given)
    cells = [str(given["name"]), *(_shown(numbers[key], unit) for key, unit in _UNITS.items())]
    return Row([*cells, str(given["scale_up"]["domain_size"])], numbers, str(given["title"]))


def _node_row(path: Path) -> Row:
    given = read_profile(path).values
    numbers, network = _rates(given), given["scale_out"]
    rate, devices = numbers["scale-out"], network["devices_per_node"]
    cells = [
        str(given["name"]),
        str(read_document(path).values["base"]),
        str(devices),
        str(network.get("cards_per_node", "-")),
        _shown(rate, "B/s"),
        _shown(None if rate is None else rate * devices, "B/s"),
    ]
    return Row(cells, numbers, str(given["title"]))


#: Numbers of a device, in the order of their columns.
_UNITS = {"memory": "B", "bandwidth": "B/s", "bf16": "FLOP/s", "pair": "B/s", "scale-out": "B/s"}


def _rates(given: dict[str, Any]) -> dict[str, float | None]:
    """Numbers of a device, None where it lacks them."""
    paths = {
        "memory": ("memory", "capacity"),
        "bandwidth": ("memory", "bandwidth"),
        "bf16": ("peak", "bf16"),
        "pair": ("scale_up", "pair_bandwidth_per_direction"),
        "scale-out": ("scale_out", "bandwidth_per_direction"),
    }
    texts = {key: given.get(block, {}).get(field) for key, (block, field) in paths.items()}
    return {key: None if text is None else parse(text, _UNITS[key]) for key, text in texts.items()}


def _shown(value: float | None, unit: str) -> str:
    return "-" if value is None else show(value, unit)


def _schedule_row(path: Path) -> Row:
    given = read_document(path).values
    return Row([str(given["name"]), str(given["title"])])


def _engine_row(path: Path) -> Row:
    engine = Engine.model_validate(_engine_of(path).values)
    cells = [
        engine.name,
        engine.budget,
        "-" if engine.utilization is None else f"{100 * engine.utilization:g} %",
        f"{engine.page_tokens:,}",
        f"{engine.chunk_tokens:,}" if engine.chunk_tokens else "-",
        f"{engine.window_share:g} of full"
        if engine.window_cache == "share"
        else engine.window_cache,
    ]
    numbers = {
        "share": engine.utilization,
        "page": engine.page_tokens,
        "chunk": engine.chunk_tokens,
    }
    return Row(cells, numbers, engine.title)


def _engine_of(path: Path) -> Tree:
    """Read an engine's policy; the origin of each field names its source."""
    policy = read_profiled(read_document(path))
    policy.values.pop("sources", None)
    return policy


_ROWS = {
    "models": _model_row,
    "schedules": _schedule_row,
    "engines": _engine_row,
}


def _checks() -> dict[str, str]:
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
    checks = _checks()
    if name.upper() in checks:
        return [Table(f"{name.upper()}: {checks[name.upper()]}", [], [])]
    if name in REGISTRY:
        return _formula(name)
    known = [*(n for s in _COLUMNS for n in library.names(s)), *checks, *REGISTRY]
    raise SpecError(f"nothing is called '{name}'", hint=nearest(name, known, noun="names"))


def _model(path: Path) -> list[Table]:
    name, config = read_model(path)
    title = str(read_document(path).values.get("title", name))
    return [
        Table(title, ["counted", "value"], _counted(_usual(path))),
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


def _engine(path: Path) -> list[Table]:
    policy = _engine_of(path)
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
