"""The base of all specs, and the kinds of number they hold."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ringplan import units
from ringplan.errors import UnitError


class Spec(BaseModel):
    """
    Frozen, and a misspelt key is an error rather than a default.

    A spec builds its validator when it first validates: most are only ever parts of another.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _quantity(dimension: str, given: object) -> float:
    if isinstance(given, str):
        return units.parse(given, dimension)
    raise UnitError(f"{given} has no unit", hint=f"write it like {units.EXAMPLES[dimension]}")


def _tokens(given: object) -> object:
    if isinstance(given, str) or type(given) is int:
        return units.parse_tokens(str(given))
    return given


def quantity(dimension: str) -> Any:
    """Accept ``"450 GB/s"`` and keep 450e9; refuse a bare number, whose unit is a guess."""
    return BeforeValidator(lambda given: _quantity(dimension, given), json_schema_input_type=str)


def unit(symbol: str) -> dict[str, Any]:
    """Note a field's unit where the JSON Schema shows it."""
    return {"unit": symbol}


Bytes = Annotated[float, quantity("B"), Field(ge=1, lt=1e18, json_schema_extra=unit("B"))]
BytesOrNone = Annotated[float, quantity("B"), Field(ge=0, lt=1e18, json_schema_extra=unit("B"))]
BytesPerSecond = Annotated[
    float, quantity("B/s"), Field(ge=1, lt=1e18, json_schema_extra=unit("B/s"))
]
FlopsPerSecond = Annotated[
    float, quantity("FLOP/s"), Field(ge=1, lt=1e21, json_schema_extra=unit("FLOP/s"))
]
Seconds = Annotated[float, quantity("s"), Field(ge=0, lt=3600, json_schema_extra=unit("s"))]
_TOKENS = BeforeValidator(_tokens, json_schema_input_type=int | str)
Tokens = Annotated[int, _TOKENS, Field(strict=True, gt=0, json_schema_extra=unit("token"))]
TokensOrNone = Annotated[int, _TOKENS, Field(strict=True, ge=0, json_schema_extra=unit("token"))]
GroupSize = Annotated[int, Field(strict=True, ge=1, le=2**20, json_schema_extra=unit("rank"))]
