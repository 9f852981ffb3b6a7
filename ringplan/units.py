"""
Quantities at the border: text with a unit in, base units inside, text again for people.

Base units are byte, second, FLOP, FLOP/s, byte/s, token and USD. Nothing else in ringplan
knows a prefix.
"""

from __future__ import annotations

import math
import re
from typing import Final

from quantiphy import Quantity

from ringplan.errors import UnitError, quote

#: Dimension -> unit as written -> factor to the base unit.
DIMENSIONS: Final = {
    "B": {"B": 1.0},
    "B/s": {"B/s": 1.0, "b/s": 1 / 8, "bps": 1 / 8},
    "FLOP/s": {"FLOP/s": 1.0, "FLOPS": 1.0},
    "s": {"s": 1.0},
}
EXAMPLES: Final = {
    "B": "80 GB or 80 GiB",
    "B/s": "450 GB/s or 400 Gb/s",
    "FLOP/s": "989 TFLOP/s",
    "s": "5 us",
}


class _Shown(Quantity):
    """A quantity with the prefixes that people read."""


_Shown.set_prefs(output_sf="EPTGMkmunpfa")
_QUANTITY: Final = re.compile(
    r"\s*(?P<number>[+-]?(\d+(_\d+)*\.?\d*|\.\d+)(e[+-]?\d+)?)\s*(?P<unit>\S.*?)?\s*",
    re.IGNORECASE | re.ASCII,
)
_TOKENS: Final = re.compile(
    r"(?P<number>\d{1,3}(,\d{3})+|\d+(_\d+)*(\.\d+)?)\s*(?P<suffix>[KMG]?)",
    re.IGNORECASE | re.ASCII,
)
_TOKEN_FACTORS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
MAX_TOKENS: Final = 2**40
#: Counts, which people read without a prefix.
_PLAIN: Final = ("token", "1", "rank", "hop", "layer", "pair")


def parse(text: str, dimension: str) -> float:
    """
    Read a quantity such as ``450 GB/s`` as base units of the dimension.

    Parameters
    ----------
    text
        Number and unit. GB is 1e9 bytes, GiB is 2**30; b is a bit, B is a byte.
    dimension
        One of B, B/s, FLOP/s, s.

    Raises
    ------
    UnitError
        No number, no unit, a unit of another dimension, a prefix below one where none makes
        sense, or a number that is negative or not finite.

    Examples
    --------
    >>> parse("400 Gb/s", "B/s") == parse("50 GB/s", "B/s") == 50e9
    True
    >>> parse("80 GiB", "B")
    85899345920.0
    """
    example, given = f"write it like {EXAMPLES[dimension]}", quote(text)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{given} is not a number with a unit", hint=example)
    if match["unit"] is None:
        raise UnitError(f"{given} has no unit", hint=example)
    try:
        one = Quantity(f"1 {match['unit']}", binary=True)
    except ValueError as error:
        raise UnitError(f"{given} is not in {dimension}", hint=example) from error
    factor = DIMENSIONS[dimension].get(one.units)
    if factor is None:
        raise UnitError(f"{given} is not in {dimension}", hint=example)
    value = float(match["number"].replace("_", "")) * one.real * factor
    if not math.isfinite(value) or value < 0:
        raise UnitError(f"{given} is negative or not finite", hint=example)
    if dimension != "s" and one.real < 1:
        raise UnitError(f"{given} has a prefix below one (m is milli, M is mega)", hint=example)
    return value


def parse_tokens(text: str) -> int:
    """
    Read a token count: ``128K`` is 131,072, ``1M`` 1,048,576, ``1_000_000`` what it says.

    Raises
    ------
    UnitError
        Not a whole number of tokens, a negative one, or more than 2**40.

    Examples
    --------
    >>> parse_tokens("128K"), parse_tokens("1.5M"), parse_tokens("1_000_000")
    (131072, 1572864, 1000000)
    """
    match = _TOKENS.fullmatch(text.strip())
    if text.strip().startswith("-"):
        raise UnitError(f"{quote(text)} is negative", hint="write a positive number of tokens")
    if match is None:
        raise UnitError(
            f"{quote(text)} is not a token count",
            hint="write 131072, 1_000_000, 128K (131,072) or 1M (1,048,576)",
        )
    digits, factor = (
        match["number"].replace("_", "").replace(",", ""),
        _TOKEN_FACTORS[match["suffix"].upper()],
    )
    value = float(digits) * factor if "." in digits else int(digits) * factor
    if value != int(value):
        raise UnitError(f"{quote(text)} is not a whole number of tokens", hint="write an integer")
    if value > MAX_TOKENS:
        raise UnitError(
            f"{quote(text)} is more than {MAX_TOKENS:,} tokens",
            hint="is the suffix what you meant?",
        )
    return int(value)


def show(value: float, unit: str) -> str:  # noqa: PLR0911 - one answer a unit
    """
    Print a number for people: three significant digits, a decimal prefix, the unit.

    Examples
    --------
    >>> show(17_179_869_184, "B"), show(0.01099511627776, "s"), show(16384, "token")
    ('17.2 GB', '11.0 ms', '16,384')
    >>> show(2.048, "x"), show(0.5039, "%"), show(5400, "s")
    ('2.05x', '50.4 %', '1.50 h')
    """
    if value == 0 and unit not in _PLAIN:
        return f"0 {unit}".replace("0 x", "0x")
    match unit:
        case _ if unit in _PLAIN:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        case "x":
            return f"{value:,.0f}x" if value >= 100 else f"{value:#.3g}x"
        case "%":
            return f"{100 * value:.1f} %"
        case "s" if value >= 3600:
            return f"{value / 3600:,.2f} h"
        case "s" if value >= 100:
            return f"{value:,.0f} s"
        case _:
            return _Shown(value, units=unit).render(prec=2, strip_zeros=False)
