"""The dotted names of an estimate's numbers: ``ring.hop_bytes``, ``alternatives[a2a].fits``."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from ringplan.estimation import results

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field

    from ringplan.costs.formula import Formula
    from ringplan.estimation.results import Estimate


class Metric(NamedTuple):
    """A number of an estimate: its dotted name, its value, and what computes it."""

    name: str
    value: Any
    about: str
    unit: str
    scope: str
    formulas: tuple[Formula[Any], ...]


def describe(field: Field[Any]) -> tuple[str, str, str, tuple[Formula[Any], ...]]:
    """About, unit, scope and formulas of a result's field."""
    formulas = field.metadata.get("formulas", ())
    if not formulas:
        return field.metadata["about"], field.metadata["unit"], field.metadata["scope"], ()
    note = field.metadata["about"]
    about = f"{formulas[0].summary}. {note}".strip()
    unit = "s" if field.name.endswith("time") else formulas[0].unit
    return about, unit, formulas[0].scope, formulas


def metrics(estimate: Estimate) -> Iterator[Metric]:
    """
    List every number, word and flag of an estimate; blocks that are None yield nothing.

    Rows of a list are named by their label, as in ``communication[tp].bytes``.
    """
    yield from _walk(estimate, "")


def _walk(block: Any, prefix: str) -> Iterator[Metric]:
    for field in fields(block):
        value = getattr(block, field.name)
        name = f"{prefix}{field.name}"
        if is_dataclass(value) and hasattr(value, "__dataclass_fields__") and _is_block(value):
            yield from _walk(value, f"{name}.")
        elif isinstance(value, tuple) and value and _is_block(value[0]):
            for row in value:
                yield from _walk(row, f"{name}[{row.label}].")
        elif name != "not_counted":
            yield Metric(name, value, *describe(field))


def _is_block(value: Any) -> bool:
    return type(value).__module__ == results.__name__


def block_of(hint: Any) -> type | None:
    """Dataclass that a field's type holds, alone or as rows of a tuple."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and is_dataclass(candidate):
            return candidate
    return None


def hints(block: type) -> dict[str, Any]:
    """Types of a result's fields."""
    return get_type_hints(block)
