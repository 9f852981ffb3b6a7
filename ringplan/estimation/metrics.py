"""The dotted names of an estimate's numbers: ``ring.hop_bytes``, ``alternatives[a2a].fits``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.estimation.results import Declared, Estimate


class Field(NamedTuple):
    """A field of a result block: its name, its type, and what it is declared as."""

    name: str
    type: Any
    declared: Declared


class Metric(NamedTuple):
    """A number, word or flag of an estimate: its dotted name, its value, and what it is."""

    name: str
    value: Any
    declared: Declared


def fields_of(block: type) -> list[Field]:
    """List the fields of a result block with what they are declared as."""
    found = []
    for name, hint in get_type_hints(block, include_extras=True).items():
        kind, declared = get_args(hint)
        found.append(Field(name, kind, declared))
    return found


def block_of(kind: Any) -> type | None:
    """Return the result block that a field holds, alone or as the rows of a tuple."""
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return kind
    return next((block for part in get_args(kind) if (block := block_of(part))), None)


def metrics(estimate: Estimate) -> Iterator[Metric]:
    """
    List every number, word and flag of an estimate; blocks that are None yield nothing.

    Rows of a list are named by their label, as in ``communication[tp].bytes``.
    """
    yield from _walk(estimate, "")


def _walk(block: Any, prefix: str) -> Iterator[Metric]:
    for field in fields_of(type(block)):
        value, name = getattr(block, field.name), f"{prefix}{field.name}"
        if name == "not_counted":
            continue
        if block_of(field.type) is None:
            yield Metric(name, value, field.declared)
        elif hasattr(value, "_fields"):
            yield from _walk(value, f"{name}.")
        else:
            for row in value or ():
                yield from _walk(row, f"{name}[{row.label}].")


def nested(block: Any) -> Any:
    """Return a result as nested dictionaries and lists."""
    if hasattr(block, "_fields"):
        return {name: nested(value) for name, value in zip(block._fields, block, strict=True)}
    if isinstance(block, tuple):
        return [nested(each) for each in block]
    return block
