"""What ringplan ships, shelf by shelf, as tables to sort and to look through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.catalogue import Table, checks, engine_of, sent, usual
from ringplan.errors import SpecError, quote
from ringplan.estimation.core import estimate
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.policies import schedule_from
from ringplan.io.profiles import read_profile
from ringplan.specs.engine import Engine
from ringplan.units import parse, show

if TYPE_CHECKING:
    from pathlib import Path


class Row(NamedTuple):
    """One name of a shelf: its cells, the numbers it is sorted by, the words a filter looks in."""

    cells: list[str]
    numbers: dict[str, float | None]
    words: str


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
        Words that a row must hold in its cells or title, or in that of a node's device; upper
        case does not matter.

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
            tables.append(Table(title, columns, cells, _NOTES.get(title, "")))
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
        rows = [Row([code, what], {}, "") for code, what in checks().items()]
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
    "schedules": ["name", "runs", "way", "forward", "backward"],
    "engines": ["name", "budget", "share", "page", "chunk", "windows"],
}
_NOTES = {"schedules": "U is one rank's K and V of a layer; over 8 ranks, 32 query and 8 KV heads"}
_NODE_COLUMNS = ["name", "device", "devices", "cards", "scale-out", "whole node"]
_SORTED_BY = {
    "models": ["parameters", "layers", "kv", "context"],
    "hardware": ["memory", "bandwidth", "bf16", "pair", "scale-out"],
    "engines": ["share", "page", "chunk"],
}


def _model_row(path: Path) -> Row:
    scenario = usual(path)
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


def _device_row(path: Path) -> Row:
    given = read_profile(path).values
    numbers = _rates(given)
    cells = [str(given["name"]), *(_shown(numbers[key], unit) for key, unit in _UNITS.items())]
    return Row([*cells, str(given["scale_up"]["domain_size"])], numbers, str(given["title"]))


def _node_row(path: Path) -> Row:
    given = read_profile(path).values
    numbers, network = _rates(given), given["scale_out"]
    rate, devices = numbers["scale-out"], network["devices_per_node"]
    base = str(read_document(path).values["base"])
    below = read_document(library.find("hardware", base)).values["title"]
    cells = [
        str(given["name"]),
        base,
        str(devices),
        str(network.get("cards_per_node", "-")),
        _shown(rate, "B/s"),
        _shown(None if rate is None else rate * devices, "B/s"),
    ]
    return Row(cells, numbers, f"{given['title']} {below}")


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
    schedule, moved = schedule_from(path), sent(path, 8) or ["-", "-"]
    ways = schedule.comm_types if schedule.implementation else ("any",)
    runs = "any" if len(schedule.phases) == 3 else "+".join(schedule.phases)
    cells = [schedule.name, runs, ways[0] if ways else "dcp", *moved[:2]]
    return Row(cells, {}, schedule.title)


def _engine_row(path: Path) -> Row:
    engine = Engine.model_validate(engine_of(path).values)
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


_ROWS = {
    "models": _model_row,
    "schedules": _schedule_row,
    "engines": _engine_row,
}
