"""
Witnesses: each runs something, and returns the arguments of its formula with what was counted.

The formula is called elsewhere, so that a witness cannot answer for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from ringplan.reference.clock import Rates

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.formula import Formula


class Claim(NamedTuple):
    """Arguments of a formula, and what a run counted; for a bound also the most it may be."""

    inputs: dict[str, Any]
    counted: float
    most: float | None = None


WITNESSES: dict[str, Callable[[st.DataObject], Claim]] = {}


def witness(made: Formula[Any]) -> Callable[[Any], Any]:
    """Let a function answer for a formula."""

    def register(function: Callable[[st.DataObject], Claim]) -> Callable[[st.DataObject], Claim]:
        assert made.name not in WITNESSES
        WITNESSES[made.name] = function
        return function

    return register


#: Margins nearer than this may fall on either side of one another.
TIE = 1e-9
rings = st.integers(2, 6)
rates = st.builds(
    Rates,
    flops_per_second=st.floats(1e3, 1e6),
    bandwidth=st.floats(1e3, 1e6),
    latency=st.floats(0, 1e-2),
    read_bandwidth=st.just(float("inf")),
)
