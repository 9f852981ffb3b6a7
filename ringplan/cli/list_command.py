"""``ringplan list``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ringplan import catalogue
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


def run(shelf: Annotated[Shelf, typer.Argument(help="What to list.")]) -> None:
    """List the models, hardware, schedules, engines or checks that ringplan knows."""
    Terminal().print(table(Section(*catalogue.listing(shelf.value))))
