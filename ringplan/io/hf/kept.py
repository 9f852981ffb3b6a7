"""Which tensors a quantisation leaves in 16 bits, by the patterns that a config lists."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from ringplan.errors import SpecError

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields

#: How long an expression may take on one name.
SECONDS: Final = 0.2
#: Where methods list what they leave alone.
KEYS: Final = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
)
#: How checkpoints name a layer; expressions are tried on each.
_PREFIXES: Final = (
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "backbone.layers.",
    "transformer.h.",
)
#: A layer of the language model, and what is in it.
_NUMBERED: Final = re.compile(
    r"(?:(?:model|language_model|text_model|thinker|backbone|transformer|decoder|encoder)\.)*"
    r"(?:layers|h|blocks)\.(\d+|\*)(?:\.(.*))?"
)
_PARAMETER: Final = re.compile(r"\.(?:weight|bias)$")


@dataclass(frozen=True)
class Kept:
    """
    Patterns of module names.

    Attributes
    ----------
    ignored
        What is not quantised.
    targets
        What alone is; empty for all that is not ignored.
    """

    ignored: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def keeps(self, index: int, tensor: str) -> bool:
        """Whether a tensor of a layer stays in 16 bits."""
        module = _PARAMETER.sub("", tensor)
        if any(_matches(pattern, index, module) for pattern in self._of_layer(index)):
            return True
        return bool(self.targets) and not any(
            _matches(pattern, index, module) for pattern in self.targets
        )

    def _of_layer(self, index: int) -> list[str]:
        """Patterns that do not name another layer."""
        return self._by_layer.get(str(index), []) + self._by_layer.get("*", [])

    @cached_property
    def _by_layer(self) -> dict[str, list[str]]:
        """Patterns by the number of the layer that they name, ``*`` for any."""
        found: dict[str, list[str]] = {}
        for pattern in self.ignored:
            numbered = _NUMBERED.fullmatch(pattern)
            found.setdefault(numbered[1] if numbered else "*", []).append(pattern)
        return found


def read_kept(fields: Fields) -> Kept:
    """Read what a quantisation leaves alone, under any method's name for it."""
    listed = [(key, pattern) for key in KEYS for pattern in fields.words(key) or ()]
    for key, pattern in listed:
        check(fields, key, pattern)
    return Kept(tuple(pattern for _, pattern in listed))


def check(fields: Fields, key: str, pattern: str) -> None:
    """Note a pattern that is no expression although it says so."""
    expression = _expression(pattern)
    if expression is None:
        return
    import regex  # noqa: PLC0415 - few configs have expressions

    try:
        _compiled(expression)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        fields.note(f"{fields.place(key)}: {key} has '{pattern[:60]}', no expression: {error}")


def _expression(pattern: str) -> str | None:
    return pattern.removeprefix("re:") if pattern.startswith("re:") else None


def _matches(pattern: str, index: int, module: str) -> bool:
    """
    Whether a pattern is of a module of one layer.

    Patterns are expressions after ``re:``, names with ``*``, or names of modules or what is in
    them.

    >>> _matches("model.layers.*.self_attn", 3, "self_attn.q_proj")
    True
    >>> _matches("re:.*gate$", 3, "mlp.gate"), _matches("re:.*gate$", 3, "mlp.gate_proj")
    (True, False)
    """
    expression = _expression(pattern)
    if expression is not None:
        return any(_found(expression, f"{prefix}{index}.{module}") for prefix in _PREFIXES)
    numbered = _NUMBERED.fullmatch(pattern)
    if numbered:
        number, inside = numbered.groups()
        return number in ("*", str(index)) and (not inside or _within(inside, module))
    if "*" in pattern:
        return any(_within(pattern, f"{prefix}{index}.{module}") for prefix in _PREFIXES)
    return f".{pattern.strip('.')}." in f".{module}."


def _within(pattern: str, name: str) -> bool:
    """Whether a name, or a module that it is in, has the pattern."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern.rstrip('.')}.*")


def _found(expression: str, name: str) -> bool:
    """Whether a name begins with what an expression describes; some would search for hours."""
    try:
        return _compiled(expression).match(name, timeout=SECONDS) is not None
    except TimeoutError as error:
        raise SpecError(
            f"the quantisation's pattern '{expression[:60]}' takes too long to match",
            hint="name the modules, or give --weights-dtype",
        ) from error


@cache
def _compiled(expression: str) -> Any:
    import regex  # noqa: PLC0415 - few configs have expressions

    return regex.compile(expression)
