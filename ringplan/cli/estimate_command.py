"""``ringplan estimate``."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringplan.assess import assess
from ringplan.cli.app import EXIT_DOES_NOT_WORK
from ringplan.cli.output import deliver
from ringplan.errors import SpecError, nearest
from ringplan.io.scenarios import Loaded, load

if TYPE_CHECKING:
    from ringplan.assess import Assessment
    from ringplan.costs.formula import Known


class Format(StrEnum):
    """How to print the result."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    CSV = "csv"


_SUFFIXES = {".json": Format.JSON, ".md": Format.MARKDOWN, ".csv": Format.CSV}


def run(
    scenario: Annotated[
        Path | None,
        typer.Argument(help="Scenario file; flags alone do as well.", show_default=False),
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="Shipped model, or a config.json.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME|PATH", help="Shipped hardware profile, or a file.")
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Whole context: 131072, 128K or 1M.")
    ] = None,
    cached_len: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Of it, tokens already cached.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Sequences per data-parallel replica in one pass.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option(metavar="PHASE", help="prefill, decode or train.")
    ] = None,
    cp: Annotated[int | None, typer.Option(help="Context-parallel ranks.")] = None,
    ulysses: Annotated[
        int | None, typer.Option(help="Of those, ranks that exchange heads; the rest is a ring.")
    ] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel ranks.")] = None,
    pp: Annotated[int | None, typer.Option(help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option(help="Data-parallel replicas.")] = None,
    ep: Annotated[int | None, typer.Option(help="Expert-parallel ranks, of dp x cp.")] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="contiguous, zigzag or striped.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose ring: ringplan list schedules.")
    ] = None,
    weights_dtype: Annotated[
        str | None,
        typer.Option(metavar="DTYPE", help="bf16, fp8, int4, ...: instead of the model's."),
    ] = None,
    kv_dtype: Annotated[
        str | None, typer.Option(metavar="DTYPE", help="Format of the KV cache.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Any value by its path; repeat it."),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="How to print; table, or what --output's name ends in."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write there instead of printing.")
    ] = None,
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
    flags = {
        "model": (model, f"--model {model}"),
        "hardware": (hardware, f"--hardware {hardware}"),
        "workload.seq_len": (seq_len, f"--seq-len {seq_len}"),
        "workload.cached_len": (cached_len, f"--cached-len {cached_len}"),
        "workload.batch_size": (batch_size, f"--batch-size {batch_size}"),
        "workload.phase": (phase, f"--phase {phase}"),
        "workload.weights_dtype": (weights_dtype, f"--weights-dtype {weights_dtype}"),
        "workload.kv_dtype": (kv_dtype, f"--kv-dtype {kv_dtype}"),
        "mesh.cp_size": (cp, f"--cp {cp}"),
        "mesh.ulysses_size": (ulysses, f"--ulysses {ulysses}"),
        "mesh.tp_size": (tp, f"--tp {tp}"),
        "mesh.pp_size": (pp, f"--pp {pp}"),
        "mesh.dp_size": (dp, f"--dp {dp}"),
        "mesh.ep_size": (ep, f"--ep {ep}"),
        "mesh.partition": (partition, f"--partition {partition}"),
        "mesh.schedule": (schedule, f"--schedule {schedule}"),
    }
    loaded = load(scenario, sets=set_ or (), flags=flags)
    assessment = assess(loaded.scenario)
    if output is not None and os.path.realpath(output) in map(os.path.realpath, loaded.files):
        raise SpecError(f"--output {output} is what was just read", hint="name another file")
    if format_ is None:
        format_ = _SUFFIXES.get(output.suffix if output else "", Format.TABLE)
    if explain is not None and format_ is Format.CSV:
        raise SpecError("--explain has no CSV form", hint="--format table, json or markdown")
    derivations = None if explain is None else _derivations(loaded, assessment, explain)
    if format_ is Format.TABLE:
        _tables(assessment, derivations, explain, output, timeline=timeline)
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
    chosen = {
        name: value
        for name, value in known.items()
        if name == wanted or name.startswith((f"{wanted}.", f"{wanted}["))
    }
    if not chosen:
        raise SpecError(
            f"there is no metric '{wanted}' to explain",
            hint=nearest(wanted, list(known), noun="metrics"),
        )
    return chosen


def _explanation(derivations: dict[str, Known | str] | None, assessment: Assessment) -> str:
    if derivations is None:
        return ""
    from ringplan.estimation.metrics import metrics  # noqa: PLC0415
    from ringplan.render.explain import explanation  # noqa: PLC0415

    units = {metric.name: metric.declared.unit for metric in metrics(assessment.estimate)}
    return explanation(derivations, units)


def _tables(
    assessment: Assessment,
    derivations: Any,
    explain: str | None,
    output: Path | None,
    *,
    timeline: bool,
) -> None:
    """Print tables, or write what a pipe would get."""
    from ringplan.cli.terminal import Terminal, as_text  # noqa: PLC0415 - JSON needs no tables
    from ringplan.render.terminal import report  # noqa: PLC0415

    tables = report(assessment, timeline=timeline) if explain in (None, "all") else None
    work = _explanation(derivations, assessment)
    if output is not None:
        deliver((as_text(tables) if tables else "") + work, output)
        return
    if tables:
        Terminal().print(tables)
    if work:
        typer.echo(work, nl=False)


def _text(
    assessment: Assessment, loaded: Loaded, format_: Format, derivations: Any, *, timeline: bool
) -> str:
    from ringplan.render import documents, explain, markdown  # noqa: PLC0415

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
            return markdown.page(assessment, loaded.inputs(), work=work, timeline=timeline)
