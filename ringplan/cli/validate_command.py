"""``ringplan validate``."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ringplan.api import planned
from ringplan.cli.app import EXIT_DOES_NOT_WORK
from ringplan.cli.terminal import Terminal
from ringplan.estimation.metrics import nested
from ringplan.render import documents, validation

if TYPE_CHECKING:
    from ringplan.validation.selection import Plan, Row


class Format(StrEnum):
    """How to print the result."""

    TABLE = "table"
    JSON = "json"


class Dtype(StrEnum):
    """Format of all arrays."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


def run(
    scenario: Annotated[
        Path | None,
        typer.Argument(help="Scenario to scale down and run; none: a selection of ours."),
    ] = None,
    *,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Every partition, mask, head layout and degree; half a minute."
        ),
    ] = False,
    seq_len: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Context of each run: 128 or 1K.")
    ] = None,
    dtype: Annotated[
        Dtype, typer.Option(help="Format of the arrays; ours end with some in bf16.")
    ] = Dtype.FP32,
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """
    Run small rings on this machine and compare them with what estimate predicts.

    Simulated ranks pass real blocks of K and V. Their answer is held against dense attention in
    fp64, and the bytes, FLOPs, hops and buffers that they counted against the estimate's. A
    scenario of yours keeps its ranks, partition, heads and ratios, and gets fewer tokens. Exit
    code 0: all agree; 1: something does not, or the mesh cannot run; 2: not a scenario.

    \b
      ringplan validate
      ringplan validate --full --dtype bf16
      ringplan validate scenario.yaml --format json
    """  # noqa: D301 - \b keeps click from wrapping the example
    plan = planned(scenario, full=full, seq_len=seq_len, dtype=dtype.value)
    rows = _run(plan)
    if format_ is Format.JSON:
        typer.echo(documents.to_json(nested(validation.document(plan, rows))), nl=False)
    else:
        Terminal().print(validation.report(plan, rows, brief=full))
    if not validation.passed(plan, rows):
        raise typer.Exit(EXIT_DOES_NOT_WORK)


def _run(plan: Plan) -> list[Row]:
    """Run the plan; on a terminal, show how far it is."""
    rows: list[Row] = []
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=sys.stderr is None or not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("running", total=plan.num_runs)
        for done in plan.rows():
            rows += done
            progress.advance(task)
    return rows
