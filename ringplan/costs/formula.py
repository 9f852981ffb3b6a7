"""
A formula is a function that knows its equation, unit, scope and source, and can show its work.

Called with numbers, it is the function. Called with `Known` numbers it unwraps them, computes,
and returns a `Known` that remembers the formula and what was put in; so the derivation of any
result can be read off the result. `Known` has no operators: arithmetic outside a formula fails
the moment a number is explained.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number

P = ParamSpec("P")

#: Every formula by name; the reference in the docs and the JSON Schema are made from it.
REGISTRY: dict[str, Formula[Any]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """
    A number that remembers where it came from.

    Attributes
    ----------
    value
        The number itself.
    name
        What it is: a path such as ``workload.seq_len``, or the name of the formula.
    origin
        For a number that was given: who gave it, in words.
    formula, inputs
        For a number that was computed: by which formula, from which numbers.
    """

    value: Any
    name: str
    origin: str = ""
    formula: Formula[Any] | None = None
    inputs: tuple[tuple[str, Known], ...] = ()


class Formula(Generic[P]):
    """A pure function with its equation, unit, scope and source; call it with keywords."""

    def __init__(
        self, function: Callable[P, Number], *, equation: str, unit: str, scope: str, source: str
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.equation = equation
        self.unit = unit
        self.scope = scope
        self.source = source

    def __call__(self, *args: P.args, **inputs: P.kwargs) -> Number:
        """Compute; from `Known` numbers, return one that shows the work."""
        first: Any = None
        for first in inputs.values():  # noqa: B007 - read below
            break  # the first tells: all numbers of an estimate are Known, or none is
        if type(first) is Known or (type(first) is tuple and type(first[0]) is Known):
            return self._known(inputs)  # type: ignore[no-any-return]
        return self.function(*args, **inputs)

    def _known(self, inputs: dict[str, Any]) -> Any:
        shown: list[tuple[str, Known]] = []
        values: dict[str, Any] = {}
        for name, given in inputs.items():
            parts = given if type(given) is tuple else (given,)
            if not all(type(part) is Known for part in parts):
                raise TypeError(f"{self.name} was given {name} without an origin")
            labels = [f"{name}[{i}]" for i in range(len(parts))] if parts is given else [name]
            shown += zip(labels, parts, strict=True)
            values[name] = tuple(p.value for p in parts) if parts is given else given.value
        result = self.function(**values)  # type: ignore[call-arg]
        return Known(result, self.name, formula=self, inputs=tuple(shown))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""
        return tuple(inspect.signature(self.function).parameters)

    @property
    def summary(self) -> str:
        """First line of the docstring: what the number is."""
        return (self.__doc__ or "").strip().partition("\n")[0].rstrip(".")

    def __repr__(self) -> str:
        return f"<formula {self.name}: {self.equation}>"


def formula(
    *, equation: str, unit: str, scope: str, source: str
) -> Callable[[Callable[P, Number]], Formula[P]]:
    """
    Register a function as a formula.

    Parameters
    ----------
    equation
        The equation in the letters of `ringplan.costs.symbols`.
    unit
        Unit of the result: B, s, FLOP, FLOP/s, B/s, token, 1, ...
    scope
        What the number is of: ``job``, ``rank``, ``rank, layer``, ``rank, layer, step``.
    source
        Where it comes from: a paper, a project's source, or ``counted``.
    """

    def register(function: Callable[P, Number]) -> Formula[P]:
        made = Formula(function, equation=equation, unit=unit, scope=scope, source=source)
        if made.name in REGISTRY:
            raise ValueError(f"two formulas are called {made.name}")
        REGISTRY[made.name] = made
        return made

    return register
