"""``ringplan list``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from ringplan import listings
from ringplan.cli.terminal import Terminal
from ringplan.render.sections import Section
from ringplan.render.terminal import table


class Shelf(StrEnum):
    """What can be listed."""

    MODELS = "models"
    HARDWARE = "hardware"
    SCHEDULES = "schedules"
    ENGINES = "engines"
    CHECKS = "checks"


def run(
    shelf: Annotated[Shelf, typer.Argument(help="What to list.")],
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Sort by name, or by a number, largest first. hardware: memory, bandwidth, bf16,"
            " pair, scale-out; models: parameters, layers, kv, context; engines: share, page,"
            " chunk.",
        ),
    ] = None,
    contains: Annotated[
        str,
        typer.Option("--filter", metavar="TEXT", help="Keep what has these words, like 'h100'."),
    ] = "",
) -> None:
    """List the models, hardware, schedules, engines or checks that ringplan knows."""
    console = Terminal()
    found = listings.listing(shelf.value, sort=sort, contains=contains)
    for place, part in enumerate(found):
        if place:
            console.print()
        if shelf is Shelf.HARDWARE:
            console.print(Text(part.title, style="bold"))
        console.print(table(Section(*part), tight=shelf is Shelf.HARDWARE))
        if part.note:
            console.print(Text(part.note))
