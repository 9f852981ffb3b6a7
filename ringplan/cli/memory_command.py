"""``ringplan memory``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ringplan.assess import Assessment, assess
from ringplan.cli.app import EXIT_DOES_NOT_WORK
from ringplan.cli.explanations import ExplainOption, Work, work
from ringplan.cli.options import Format, FormatOption, OutputOption, chosen, takes_scenario
from ringplan.cli.output import deliver, deliver_tables
from ringplan.estimation.growth import memory_report
from ringplan.estimation.tensors import tensor_list
from ringplan.io.scenarios import Loaded
from ringplan.remedies import smallest_mesh
from ringplan.render.bill import Bill


@takes_scenario
def run(
    loaded: Loaded,
    *,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="List the tensors that every count is the sum of.")
    ] = False,
    format_: FormatOption = None,
    output: OutputOption = None,
    explain: ExplainOption = None,
) -> None:
    """
    Show the memory bill alone: what a rank holds, what grows with the context, what else fits.

    Options are those of estimate; --explain knows the metrics of memory. Exit code 0: it works,
    or the config says too little to tell; 1: it does not fit, or the layout cannot work (the
    result is printed all the same); 2: not a scenario.

    \b
      ringplan memory --model llama-3.1-70b --hardware h100-sxm-80gb \\
                      --seq-len 128K --tp 4 --engine vllm
      ringplan memory --model path/to/config.json --hardware h200-sxm-141gb \\
                      --seq-len 256K --tensors
      ringplan memory scenario.yaml --explain memory.rank.kv_bytes
    """  # noqa: D301 - \b keeps click from wrapping the example
    format_ = chosen(format_, output, loaded)
    assessment = assess(loaded.scenario)
    shown = work(loaded, assessment, explain, format_, block="memory")
    if format_ is Format.TABLE:
        whole = explain in (None, "all")
        _tables(_bill(assessment, tensors) if whole else None, output, shown)
    else:
        deliver(_text(_bill(assessment, tensors), loaded.inputs(), format_, shown), output)
    if not assessment.works:
        raise typer.Exit(EXIT_DOES_NOT_WORK)


def _bill(assessment: Assessment, tensors: bool) -> Bill:
    scenario = assessment.scenario
    return Bill(
        assessment,
        memory_report(scenario),
        smallest_mesh(scenario),
        tensor_list(scenario) if tensors else None,
    )


def _tables(bill: Bill | None, output: Path | None, shown: Work | None) -> None:
    from ringplan.render.memory import page  # noqa: PLC0415 - JSON needs no tables

    made = page(bill, end=shown is None) if bill else None
    deliver_tables(made, output, work=shown.text() if shown else "")


def _text(bill: Bill, inputs: list[dict[str, Any]], format_: Format, shown: Work | None) -> str:
    from ringplan.render import documents, markdown  # noqa: PLC0415
    from ringplan.render.memory import page  # noqa: PLC0415

    match format_:
        case Format.JSON:
            trees = shown.trees() if shown else None
            return documents.to_json(documents.memory_document(bill, inputs, trees))
        case Format.CSV:
            return documents.memory_csv(bill)
        case _:
            return markdown.page(page(bill), inputs, work=shown.text() if shown else "")
