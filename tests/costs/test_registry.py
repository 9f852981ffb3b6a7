"""Every formula says what it is, in the words of one table."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest

import ringplan.estimation.core  # noqa: F401 - registers every formula
from ringplan.costs.formula import REGISTRY, Formula, formula
from ringplan.costs.symbols import SYMBOLS

UNITS = {
    "B",
    "B/s",
    "FLOP",
    "FLOP/s",
    "s",
    "token",
    "pair",
    "hop",
    "rank",
    "layer",
    "bool",
    "1",
    "*",
}
PLACES = {"job", "replica", "group", "rank"}
PARTS = {"sequence", "layer", "step", "token", "pass", "micro-batch", "last stage"}

every_formula = pytest.mark.parametrize("made", REGISTRY.values(), ids=lambda made: made.name)


@every_formula
def test_arguments_are_keywords_without_defaults(made: Formula[Any]) -> None:
    """Two counts cannot be swapped by position, and no assumption hides in a default."""
    for parameter in inspect.signature(made.function).parameters.values():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, parameter.name
        assert parameter.default is inspect.Parameter.empty, parameter.name


@every_formula
def test_arguments_are_symbols(made: Formula[Any]) -> None:
    """Each has a letter, a unit and a meaning."""
    assert set(made.parameters) <= set(SYMBOLS)


@every_formula
def test_formula_says_what_it_is(made: Formula[Any]) -> None:
    """Equation, unit, scope and source; a summary of one line; an example of one call."""
    assert made.equation.strip() == made.equation != ""
    assert made.unit in UNITS
    assert made.source.strip() == made.source != ""
    assert 0 < len(made.summary) <= 100
    assert f">>> {made.name}(" in (made.__doc__ or "")


@every_formula
def test_scope_is_a_place_and_its_parts(made: Formula[Any]) -> None:
    """`rank, layer, step`: of whom, and of how much of the pass."""
    first, *rest = made.scope.split(", ")

    assert first in PLACES | {"sequence"}
    assert set(rest) <= PARTS


@every_formula
def test_example_is_run_with_the_doctests(made: Formula[Any]) -> None:
    """The finder of doctests sees through the wrapper."""
    found = doctest.DocTestFinder().find(made, made.name)

    assert sum(len(each.examples) for each in found) >= 1


@every_formula
def test_formula_is_registered_under_the_name_it_has_in_its_module(made: Formula[Any]) -> None:
    """So `ringplan show NAME`, the docs and the code mean the same thing."""
    assert REGISTRY[made.name] is made
    assert made.function.__globals__[made.name] is made


def test_names_are_unique() -> None:
    """A second formula of one name is refused."""

    def attention_flops(*, pairs: float) -> float:
        return pairs

    with pytest.raises(ValueError, match="two formulas are called attention_flops"):
        formula(equation="pairs", unit="FLOP", scope="job", source="none")(attention_flops)


def test_symbols_are_all_used_and_complete() -> None:
    """The glossary lists no argument that no formula takes."""
    used = {name for made in REGISTRY.values() for name in made.parameters}

    assert set(SYMBOLS) - used == set()
    assert {name for name, symbol in SYMBOLS.items() if not all(symbol)} == set()
    assert {symbol.unit for symbol in SYMBOLS.values()} <= UNITS
