"""``ringplan estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringplan.assess import assess
from ringplan.cli.app import EXIT_DOES_NOT_WORK
from ringplan.cli.options import Format, FormatOption, OutputOption, chosen, takes_scenario
from ringplan.cli.output import deliver, deliver_tables
from ringplan.errors import SpecError, nearest
from ringplan.io.scenarios import Loaded

if TYPE_CHECKING:
    from ringplan.assess import Assessment
    from ringplan.costs.formula import Known


@takes_scenario
def run(
    loaded: Loaded,
    *,
    format_: FormatOption = None,
    output: OutputOption = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="all|METRIC", help="Show the work: equation, inputs, sources."),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Show the steps of the ring.")
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
    assessment = assess(loaded.scenario)
    if explain is not None and format_ is Format.CSV:
        raise SpecError("--explain has no CSV form", hint="--format table, json or markdown")
    derivations = None if explain is None else _derivations(loaded, assessment, explain)
    if format_ is Format.TABLE:
        from ringplan.render import sections  # noqa: PLC0415 - JSON needs no tables

        whole = explain in (None, "all")
        page = sections.page(assessment, timeline=timeline) if whole else None
        deliver_tables(page, output, work=_explanation(derivations, assessment))
    else:
        deliver(_text(assessment, loaded, format_, derivations, timeline=timeline), output)
    if not assessment.works:
        raise typer.Exit(EXIT_DOES_NOT_WORK)


def _derivations(loaded: Loaded, assessment: Assessment, wanted: str) -> dict[str, Known | str]:
    """Derivations of a metric or of all below a name; for a null, why it is one."""
    from ringplan.api import explained  # noqa: PLC0415 - only --explain derives

    known: dict[str, Known | str] = {**explained(loaded), **assessment.estimate.not_counted}
    if wanted == "all":
        return known
    found = {
        name: value
        for name, value in known.items()
        if name == wanted or name.startswith((f"{wanted}.", f"{wanted}["))
    }
    if not found:
        raise SpecError(
            f"there is no metric '{wanted}' to explain",
            hint=nearest(wanted, list(known), noun="metrics"),
        )
    return found


def _explanation(derivations: dict[str, Known | str] | None, assessment: Assessment) -> str:
    if derivations is None:
        return ""
    from ringplan.estimation.metrics import metrics  # noqa: PLC0415
    from ringplan.render.explain import explanation  # noqa: PLC0415

    units = {metric.name: metric.declared.unit for metric in metrics(assessment.estimate)}
    return explanation(derivations, units)


def _text(
    assessment: Assessment, loaded: Loaded, format_: Format, derivations: Any, *, timeline: bool
) -> str:
    from ringplan.render import documents, explain, markdown, sections  # noqa: PLC0415

    match format_:
        case Format.JSON:
            trees = derivations and {
                name: known if isinstance(known, str) else explain.tree(known)
                for name, known in derivations.items()
            }
            return documents.to_json(documents.document(assessment, loaded.inputs(), trees))
        case Format.CSV:
            return documents.to_csv(assessment)
        case _:
            work = _explanation(derivations, assessment)
            page = sections.page(assessment, timeline=timeline)
            return markdown.page(page, loaded.inputs(), work=work)
