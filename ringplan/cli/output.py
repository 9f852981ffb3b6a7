"""Print a result, or write it beside and rename."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ringplan.io.writing import write_text

if TYPE_CHECKING:
    from pathlib import Path


def deliver(text: str, output: Path | None) -> None:
    """Print to standard output, or to a file that is whole or not there."""
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_text(output, text if text.endswith("\n") else f"{text}\n")
        typer.echo(f"wrote {output}", err=True)
