"""Print a result, or write it beside and rename."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ringplan.io.writing import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from ringplan.render.sections import Page


def deliver(text: str, output: Path | None) -> None:
    """Print to standard output, or to a file that is whole or not there."""
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_text(output, text if text.endswith("\n") else f"{text}\n")
        typer.echo(f"wrote {output}", err=True)


def deliver_tables(page: Page | None, output: Path | None, *, work: str = "") -> None:
    """Print a page as tables and the derivations below, or write what a pipe would get."""
    from ringplan.cli.terminal import Terminal, as_text  # noqa: PLC0415 - JSON needs no tables
    from ringplan.render.terminal import report  # noqa: PLC0415

    if output is not None:
        deliver((as_text(report(page)) if page else "") + work, output)
        return
    if page:
        Terminal().print(report(page))
    if work:
        typer.echo(work, nl=False)
