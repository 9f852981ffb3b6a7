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
    MEMORY = "memory"
    VALIDATION = "validation"


def run(what: Annotated[What, typer.Argument(help="What the schema describes.")]) -> None:
    """Print the JSON Schema of a scenario file, or of what another command prints as JSON."""
    schemas = {
        What.SCENARIO: schema.scenario_schema,
        What.ESTIMATE: schema.estimate_schema,
        What.MEMORY: schema.memory_schema,
        What.VALIDATION: schema.validation_schema,
    }
    typer.echo(to_json(schemas[what]()), nl=False)
