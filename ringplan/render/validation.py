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
from ringplan.validation.dataflows import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from ringplan.validation.selection import Plan, Row


def passed(plan: Plan, rows: Sequence[Row]) -> bool:
    """Whether everything that was asked for ran and is right."""
    return not plan.blocked and all(row.passed for row in rows)


def verdict(plan: Plan, rows: Sequence[Row]) -> str:
    """Return the first line: how many pass, and how near to dense attention."""
    good = sum(row.passed for row in rows)
    parts = [f"{good} of {len(rows)} passes agree"]
    if rows:
        worst = max(rows, key=lambda row: row.error / row.tolerance)
        parts.append(f"error at most {worst.error:.1e} of {worst.tolerance:.1e} allowed")
        parts.append("every byte and FLOP as predicted" if good == len(rows) else "see below")
    if plan.blocked:
        parts.insert(0, "the mesh cannot be run")
    return "; ".join(parts)


def report(plan: Plan, rows: Sequence[Row]) -> Group:
    """Return the verdict, then the passes of each scenario, then what differs or was left out."""
    colour = "green" if passed(plan, rows) else "red"
    parts: list[RenderableType] = [Text(verdict(plan, rows), style=f"bold {colour}")]
    if rows:
        parts += ["", Text(_LEGEND), "", _table([], header=True)]
    for title, group in groupby(rows, key=_title):
        parts += [Text(title, style="bold"), _table(list(group)), ""]
    notes = [*plan.blocked, *plan.notes]
    for row in rows:
        notes += [
            f"{_title(row)}: {row.what}: {count.name} {count.predicted:,} predicted,"
            f" {count.counted:,} counted"
            for count in row.counts
            if not count.agrees
        ]
    return Group(*parts, *(Text(note) for note in notes))


_LEGEND = (
    "Error against dense attention in fp64; bytes that a rank sends and FLOPs of all ranks,"
    " predicted and counted; a dash where a sliding window has no closed form. The JSON has every"
    " digit, and hops, steps and buffers."
)


def _title(row: Row) -> str:
    """Name the scenario of a row in one line."""
    mesh, work, kind = row.scenario.mesh, row.scenario.workload, row.scenario.model.kinds[0]
    cached, new = work.split
    tokens = f"{new:,} new tokens over {cached:,}" if cached else f"{new:,} tokens"
    sizes = f"{kind.num_attention_heads}/{kind.num_key_value_heads} heads"
    window = f", window {kind.window}" if kind.window else ""
    mask = "causal" if work.causal else "no mask"
    ranks = "1 rank" if mesh.cp_size == 1 else f"{mesh.cp_size} ranks"
    return f"{ranks}, {mesh.partition}, {mask}{window}; {sizes}, {tokens}, {row.dtype}"


def _table(rows: Sequence[Row], *, header: bool = False) -> Table:
    """Return some rows as a table; all such tables are alike, so that they stand in line."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=header)
    made.add_column("what", width=29)
    for name in ("error", "bytes", "counted", "FLOPs", "counted"):
        made.add_column(name, width=7, justify="right")
    made.add_column("", width=4)
    for row in rows:
        numbers = [*_pair(row.named("bytes_sent"), "B"), *_pair(row.named("flops"), "FLOP")]
        made.add_row(
            row.what,
            f"{row.error:.1e}",
            *(number.removesuffix("FLOP") for number in numbers),
            Text("pass", style="green") if row.passed else Text("FAIL", style="bold red"),
        )
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
        num_heads=kind.num_attention_heads,
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
