"""``--timeline``: the steps of the ring, and where the time of its ranks goes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ringplan.render.documents import cell
from ringplan.render.sections import Section
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.estimation.results import Estimate, RankTime

#: Rings of more ranks are summed up.
_FEW = 16
#: Ranks of a larger ring that are shown on their own.
_BUSIEST = 3
_WIDTH = 30


def timeline(estimate: Estimate) -> list[Section]:
    """Return the steps of the busiest rank, and the ranks in each direction."""
    ranks = estimate.timeline_ranks or ()
    directions = dict.fromkeys(row.direction for row in ranks)
    return [
        _steps(estimate),
        *(_ranks(name, [row for row in ranks if row.direction == name]) for name in directions),
    ]


def _steps(estimate: Estimate) -> Section:
    rows = [
        [
            row.steps,
            show(row.compute_time, "s"),
            cell(row.transfer_time, "s"),
            "transfer" if row.waits else "compute",
        ]
        for row in estimate.timeline
    ]
    return Section(
        "Timeline of the layer, busiest rank", ["steps", "compute", "transfer", "bound by"], rows
    )


def _ranks(direction: str, ranks: list[RankTime]) -> Section:
    """Show each rank, or what the ranks of a large ring have in common and the busiest of them."""
    title = f"Ranks of the ring, {direction}: {show(sum(_times(ranks[0])), 's')}"
    columns = ["rank", "busy", "exposed", "idle", ""]
    lines = [_line(str(row.rank), row) for row in ranks]
    if len(ranks) > 1 and len({tuple(line[1:]) for line in lines}) == 1:
        lines = [[f"all {len(ranks):,}", *lines[0][1:]]]
    elif len(ranks) > _FEW:
        busiest = sorted(ranks, key=lambda row: (-row.busy_time, row.rank))[:_BUSIEST]
        lines = [
            *_summary(map(_times, ranks)),
            *(_line(f"{row.rank:,}", row) for row in sorted(busiest, key=lambda row: row.rank)),
        ]
    return Section(title, columns, lines, "# computes, = waits for a transfer, . for another rank")


def _summary(ranks: Iterable[tuple[float, ...]]) -> list[list[str]]:
    columns = list(zip(*ranks, strict=True))
    found = {
        "least": [min(column) for column in columns],
        "median": [median(column) for column in columns],
        "most": [max(column) for column in columns],
    }
    return [[word, *(show(each, "s") for each in times), ""] for word, times in found.items()]


def _line(name: str, row: RankTime) -> list[str]:
    return [name, *(show(each, "s") for each in _times(row)), bar(*_times(row))]


def _times(row: RankTime) -> tuple[float, float, float]:
    return row.busy_time, row.exposed_time, row.idle_time


def bar(busy: float, exposed: float, idle: float) -> str:
    """
    Draw where the time of a rank goes.

    >>> bar(1, 1, 1)
    '##########==========..........'
    """
    total = busy + exposed + idle
    if not total:
        return ""
    works, waits = (round(_WIDTH * part / total) for part in (busy, busy + exposed))
    return "#" * works + "=" * (waits - works) + "." * (_WIDTH - waits)
