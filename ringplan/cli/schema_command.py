"""``ringplan schema``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ringplan.render import schema
from ringplan.render.documents import to_json


class What(StrEnum):
    """What the schema describes."""

    SCENARIO = "scenario"
    ESTIMATE = "estimate"


def run(what: Annotated[What, typer.Argument(help="What the schema describes.")]) -> None:
    """Print the JSON Schema of a scenario file or of the estimate's JSON."""
    made = schema.scenario_schema() if what is What.SCENARIO else schema.estimate_schema()
    typer.echo(to_json(made), nl=False)
