"""The options that several commands share: those that make up a scenario, and how to print."""

from __future__ import annotations

import inspect
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args

import typer

from ringplan.errors import SpecError
from ringplan.io.scenarios import Loaded, load
from ringplan.specs.dtypes import Dtype, KvDtype

if TYPE_CHECKING:
    from collections.abc import Callable


class Format(StrEnum):
    """How to print the result."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    CSV = "csv"


_SUFFIXES: Final = {".json": Format.JSON, ".md": Format.MARKDOWN, ".csv": Format.CSV}

FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="How to print; table, or what --output's name ends in."),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write there instead of printing.")
]


class _Option(NamedTuple):
    """An option that gives one value of a scenario: its path, its help; a number has no metavar."""

    path: str
    help: str
    metavar: str | None = None


_OPTIONS: Final = {
    "model": _Option("model", "Shipped model, or a config.json.", "NAME|PATH"),
    "hardware": _Option("hardware", "Shipped hardware profile, or a file.", "NAME|PATH"),
    "seq_len": _Option("workload.seq_len", "Whole context: 131072, 128K or 1M.", "TOKENS"),
    "cached_len": _Option("workload.cached_len", "Of it, tokens already cached.", "TOKENS"),
    "batch_size": _Option(
        "workload.batch_size", "Sequences per data-parallel replica in one pass."
    ),
    "phase": _Option("workload.phase", "prefill, decode or train.", "PHASE"),
    "cp": _Option("mesh.cp_size", "Context-parallel ranks."),
    "ulysses": _Option(
        "mesh.ulysses_size", "Of those, ranks that exchange heads; the rest is a ring."
    ),
    "tp": _Option("mesh.tp_size", "Tensor-parallel ranks."),
    "pp": _Option("mesh.pp_size", "Pipeline stages."),
    "dp": _Option("mesh.dp_size", "Data-parallel replicas."),
    "ep": _Option("mesh.ep_size", "Expert-parallel ranks, of dp x cp."),
    "partition": _Option("mesh.partition", "contiguous, zigzag or striped.", "NAME"),
    "schedule": _Option("mesh.schedule", "Whose ring: ringplan list schedules.", "NAME"),
    "engine": _Option("workload.engine", "Whose memory policy: ringplan list engines.", "NAME"),
    "weights_dtype": _Option(
        "workload.weights_dtype",
        f"Of the weights, instead of the model's: {', '.join(get_args(Dtype))}.",
        "DTYPE",
    ),
    "kv_dtype": _Option(
        "workload.kv_dtype", f"Of the KV cache: {', '.join(get_args(KvDtype))}.", "DTYPE"
    ),
}


def takes_scenario(command: Callable[..., None]) -> Callable[..., None]:
    """
    Give a command the argument and the options of a scenario.

    The command's first parameter gets what they load; its others stay options of its own.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = list(_parameters())

    def run(**given: Any) -> None:
        file, sets = given.pop("scenario"), given.pop("set_")
        values = {name: given.pop(name) for name in _OPTIONS}
        command(load(file, sets=sets or (), flags=_flags(values)), **given)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*shared, *own)}
    return run


def _parameters() -> list[inspect.Parameter]:
    """List the parameters that Typer makes an argument and options of."""
    file = typer.Argument(help="Scenario file; flags alone do as well.", show_default=False)
    sets = typer.Option("--set", metavar="PATH=VALUE", help="Any value by its path; repeat it.")
    kinds: dict[str, Any] = {"scenario": Annotated[Path | None, file]}
    for name, (_, about, metavar) in _OPTIONS.items():
        kind: Any = int if metavar is None else str
        kinds[name] = Annotated[kind | None, typer.Option(metavar=metavar, help=about)]
    kinds["set_"] = Annotated[list[str] | None, sets]
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in kinds.items()
    ]


def _flags(values: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """Path to the value of each option, and the option as typed."""
    return {
        _OPTIONS[name].path: (value, f"--{name.replace('_', '-')} {value}")
        for name, value in values.items()
    }


def chosen(format_: Format | None, output: Path | None, loaded: Loaded) -> Format:
    """Return the format that was asked for, or that the name of the output ends in."""
    if output is not None and os.path.realpath(output) in map(os.path.realpath, loaded.files):
        raise SpecError(f"--output {output} is what was just read", hint="name another file")
    if format_ is not None:
        return format_
    return _SUFFIXES.get(output.suffix if output else "", Format.TABLE)
