"""Rows of a validation as a table or as JSON."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ringplan import __version__
from ringplan.render.documents import FORMAT_VERSION, finite
from ringplan.units import show
from ringplan.validation.counts import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ringplan.validation.selection import Plan, Row


def passed(plan: Plan, rows: Sequence[Row]) -> bool:
    """Whether what was asked for ran, and all that ran is right."""
    return bool(rows) and not plan.blocked and all(row.passed for row in rows)


def verdict(plan: Plan, rows: Sequence[Row]) -> str:
    """Return the first line: how many agree, and what was compared."""
    good = sum(row.passed for row in rows)
    parts = ["the mesh cannot run"] if plan.blocked else []
    parts.append(f"{good} of {len(rows)} runs agree" if rows else "nothing was run")
    if good == len(rows) and rows:
        worst = max(rows, key=lambda row: row.error / row.tolerance)
        counted = sum(row.named("flops") is not None for row in rows)
        parts.append(f"errors within {worst.error / worst.tolerance:.0%} of what is allowed")
        parts.append(
            "every byte and FLOP as estimated"
            if counted == len(rows)
            else f"every byte as estimated, and FLOPs in {counted} of them"
        )
    return "; ".join(parts)


def report(plan: Plan, rows: Sequence[Row], *, brief: bool = False) -> Group:
    """
    Return the verdict, then the runs of each scenario, then what differs or was left out.

    ``brief`` leaves out the scenarios of which all runs agree.
    """
    colour = "green" if passed(plan, rows) else "red"
    parts: list[RenderableType] = [Text(verdict(plan, rows), style=f"bold {colour}")]
    groups = [(title, list(group)) for title, group in groupby(rows, key=_title)]
    shown = [each for each in groups if not brief or not all(row.passed for row in each[1])]
    if shown:
        parts += ["", Text(_LEGEND), "", _table([], header=True)]
    for title, group in shown:
        parts += [Text(title, style="bold"), _table(group), ""]
    if brief:
        parts += ["", _summary(rows)]
    notes = [*plan.blocked, *plan.notes]
    for row in rows:
        notes += [
            f"{_title(row)}: {row.what}: {count.name} {count.predicted:,} estimated,"
            f" {count.counted:,} counted"
            for count in row.counts
            if not count.agrees
        ]
    return Group(*parts, *(Text(note) for note in notes))


_LEGEND = (
    "Error: distance from dense attention in fp64, relative to its norm. Bytes that a rank sends"
    " (that it exchanges, where one query is broadcast) and FLOPs of all ranks: estimated, then"
    " counted. --format json has every digit, and hops, steps and buffers."
)


def _title(row: Row) -> str:
    """Name the scenario of a row in one line."""
    mesh, work, kind = row.scenario.mesh, row.scenario.workload, row.scenario.model.kinds[0]
    cached, new = work.split
    tokens = f"{new:,} new over {cached:,}" if cached else f"{new:,}"
    sizes = "+".join(str(size) for size in dict.fromkeys((kind.head_dim, kind.v_head_dim)))
    ranks = "1 rank" if mesh.cp_size == 1 else f"{mesh.cp_size} ranks"
    window = f", window {kind.window}" if kind.window else ""
    mask = "causal" if work.causal else "no mask"
    heads = f"{kind.query_heads}/{kind.num_key_value_heads} heads of {sizes}"
    return (
        f"{ranks}, {mesh.partition}, {mask}{window}; {heads};"
        f" {work.batch_size} x {tokens} tokens; {row.dtype}"
    )


def _table(rows: Sequence[Row], *, header: bool = False) -> Table:
    """Return some rows as a table; all such tables are alike, so that they stand in line."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=header)
    made.add_column("", width=29)
    for name in ("error", "bytes", "counted", "FLOPs", "counted"):
        made.add_column(name, width=7, justify="right")
    made.add_column("", width=4)
    for row in rows:
        numbers = [*_pair(row.named("bytes_sent"), "B"), *_pair(row.named("flops"), "FLOP")]
        made.add_row(
            row.what,
            f"{row.error:.1e}",
            *(number.removesuffix("FLOP") for number in numbers),
            Text("ok", style="green") if row.passed else Text("FAIL", style="bold red"),
        )
    return made


def _summary(rows: Sequence[Row]) -> Table:
    """Return one line for each kind of run: how many, how many agree, the largest error."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    made.add_column("", width=34)
    for name in ("runs", "agree", "error"):
        made.add_column(name, width=8, justify="right")
    for what in dict.fromkeys(row.what for row in rows):
        these = [row for row in rows if row.what == what]
        good = sum(row.passed for row in these)
        error = max(row.error for row in these)
        made.add_row(what, f"{len(these):,}", f"{good:,}", f"{error:.1e}")
    return made


def _pair(count: Count | None, unit: str) -> tuple[str, str]:
    if count is None:
        return "-", "-"
    return show(count.predicted, unit), show(count.counted, unit)


class Document(NamedTuple):
    """What ``ringplan validate --format json`` prints."""

    format_version: int
    ringplan_version: str
    passed: bool
    blocked: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[Line, ...]


class Line(NamedTuple):
    """One pass of one scaled scenario: what was run, its error, predictions and counts."""

    what: str
    ranks: int
    ring_size: int
    ulysses_size: int
    partition: str
    causal: bool
    seq_len: int
    cached_len: int
    batch_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None
    dtype: str
    error: float | None
    tolerance: float
    bytes_predicted: float | None
    bytes_counted: float | None
    flops_predicted: float | None
    flops_counted: float | None
    counts: tuple[Count, ...]
    passed: bool


def document(plan: Plan, rows: Sequence[Row]) -> Document:
    """Assemble the JSON document."""
    return Document(
        FORMAT_VERSION,
        __version__,
        passed(plan, rows),
        plan.blocked,
        plan.notes,
        tuple(_line(row) for row in rows),
    )


def _line(row: Row) -> Line:
    mesh, work, kind = row.scenario.mesh, row.scenario.workload, row.scenario.model.kinds[0]
    sent, flops = row.named("bytes_sent"), row.named("flops")
    return Line(
        what=row.what,
        ranks=mesh.cp_size,
        ring_size=mesh.ring_size,
        ulysses_size=mesh.ulysses_size,
        partition=mesh.partition,
        causal=work.causal,
        seq_len=work.seq_len,
        cached_len=work.split[0],
        batch_size=work.batch_size,
        num_heads=kind.query_heads,
        num_kv_heads=kind.num_key_value_heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
        window=kind.window,
        dtype=row.dtype,
        error=finite(row.error),
        tolerance=row.tolerance,
        bytes_predicted=sent and sent.predicted,
        bytes_counted=sent and sent.counted,
        flops_predicted=flops and flops.predicted,
        flops_counted=flops and flops.counted,
        counts=row.counts,
        passed=row.passed,
    )
