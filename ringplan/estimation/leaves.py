"""A scenario's numbers, plain or each with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ringplan.costs.formula import Known

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number


class Leaves:
    """
    Hands out a scenario's numbers, plain or with their origin.

    Parameters
    ----------
    origin
        Path to origin in words; None for plain numbers.
    """

    def __init__(self, origin: Callable[[str], str] | None = None) -> None:
        self._origin = origin

    def __call__(self, path: str, value: Any) -> Number:
        """Give the value at a path of the scenario."""
        if self._origin is None:
            return cast("Number", value)
        return cast("Number", Known(value, path, self._origin(path)))

    def derived(self, name: str, value: Any, why: str) -> Number:
        """Give a value that a rule derived from the scenario, and the rule."""
        if self._origin is None:
            return cast("Number", value)
        return cast("Number", Known(value, name, why))

    def table(self, path: str, pairs: tuple[tuple[Any, ...], ...]) -> Table:
        """Give an efficiency table as sizes and shares."""
        sizes, shares = zip(*pairs, strict=True)
        return Table(self(path, sizes), self(path, shares))


class Table(NamedTuple):
    """An efficiency by size of the work."""

    sizes: Any
    shares: Any


def plain(value: Any) -> Any:
    """Return the number itself, for a decision that no formula takes."""
    return value.value if isinstance(value, Known) else value
