"""``ringplan show``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ringplan import catalogue
from ringplan.cli.terminal import Terminal
from ringplan.render.sections import Section
from ringplan.render.terminal import table


def run(
    name: Annotated[str, typer.Argument(help="A name from ringplan list, or a formula.")],
) -> None:
    """Show a model, hardware, a schedule, an engine, a check or a formula, with sources."""
    console = Terminal()
    for part in catalogue.entry(name):
        console.print(Text(part.title, style="bold"))
        if part.rows:
            console.print(table(Section(*part)))
        console.print()
