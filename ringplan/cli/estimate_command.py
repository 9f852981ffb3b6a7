"""``ringplan estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ringplan.assess import assess
from ringplan.cli.app import EXIT_DOES_NOT_WORK
from ringplan.cli.explanations import ExplainOption, Work, work
from ringplan.cli.options import Format, FormatOption, OutputOption, chosen, takes_scenario
from ringplan.cli.output import deliver, deliver_tables
from ringplan.io.scenarios import Loaded

if TYPE_CHECKING:
    from ringplan.assess import Assessment


@takes_scenario
def run(
    loaded: Loaded,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    explain: ExplainOption = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Show the steps of the ring, and how its ranks wait.")
    ] = False,
) -> None:
    """
    Estimate one scenario: does it fit, is the ring hidden, what to change.

    Give a scenario file, or flags, or both: flags win over --set, --set over the file. Exit code
    0: it works; 1: the layout cannot work (the result is printed all the same); 2: not a scenario.

    \b
      ringplan estimate --model llama-3.1-70b --hardware h100-sxm-80gb \\
                        --seq-len 1M --cp 16 --tp 8
      ringplan estimate scenario.yaml --set workload.causal=false --format json
      ringplan estimate scenario.yaml --explain ring.overlap_margin
    """  # noqa: D301 - \b keeps click from wrapping the example
    format_ = chosen(format_, output, loaded)
    assessment = assess(loaded.scenario, timeline=timeline)
    shown = work(loaded, assessment, explain, format_)
    if format_ is Format.TABLE:
        from ringplan.render import sections  # noqa: PLC0415 - JSON needs no tables

        whole = explain in (None, "all")
        page = sections.page(assessment, timeline=timeline) if whole else None
        deliver_tables(page, output, work=shown.text() if shown else "")
    else:
        deliver(_text(assessment, loaded, format_, shown, timeline=timeline), output)
    if not assessment.works:
        raise typer.Exit(EXIT_DOES_NOT_WORK)


def _text(
    assessment: Assessment, loaded: Loaded, format_: Format, shown: Work | None, *, timeline: bool
) -> str:
    from ringplan.render import documents, markdown, sections  # noqa: PLC0415

    match format_:
        case Format.JSON:
            trees = shown.trees() if shown else None
            return documents.to_json(documents.document(assessment, loaded.inputs(), trees))
        case Format.CSV:
            return documents.to_csv(assessment)
        case _:
            page = sections.page(assessment, timeline=timeline)
            return markdown.page(page, loaded.inputs(), work=shown.text() if shown else "")
