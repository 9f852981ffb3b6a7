"""How a number came about, down to leaves that name file, line, flag or source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.costs.symbols import symbol
from ringplan.render.documents import finite
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.costs.formula import Known

Key = tuple[Any, ...]


def explanation(derivations: dict[str, Known | str], units: dict[str, str]) -> str:
    """Write the derivations of metrics; of one that is null, why."""
    explainer = Explainer()
    lines: list[str] = []
    for metric, known in derivations.items():
        if isinstance(known, str):
            lines += [f"{metric}: not counted, {known}", ""]
        else:
            lines += [*explainer.lines(metric, known, units[metric]), ""]
    return "\n".join(lines)


class Explainer:
    """
    Writes derivations; a step that was shown once is referred to later.

    Steps are the same when formula and inputs are, wherever in the estimate they occur.
    """

    def __init__(self) -> None:
        self._shown: dict[Key, str] = {}
        self._keys: dict[int, Key] = {}

    def lines(self, metric: str, known: Known, unit: str) -> Iterator[str]:
        """Write the derivation of a metric, one step a line."""
        yield from self._step(metric, known, unit, depth=0, metric=metric)

    def _step(
        self, label: str, known: Known, unit: str, *, depth: int, metric: str
    ) -> Iterator[str]:
        indent, formula = "  " * depth, known.formula
        value = number(known.value, unit)
        if formula is None:
            yield f"{indent}{label} = {value}  <- {known.name}: {known.origin}"
            return
        key = self._key(known)
        if key in self._shown and depth:
            where = self._shown[key].replace(f" in {metric}", " above")
            yield f"{indent}{label} = {value}  see {where}"
            return
        self._shown.setdefault(key, metric if depth == 0 else f"{formula.name} in {metric}")
        about = f"[{formula.scope}; {formula.source}]" if depth == 0 else f"[{formula.source}]"
        yield f"{indent}{label} = {value}  {formula.name}: {formula.equation}  {about}"
        for name, given in known.inputs:
            letter, own, _ = symbol(name)
            inner = unit if own == "*" else own  # `*`: whatever the result is in
            shown = name if letter == "-" else f"{name} ({letter})"
            yield from self._step(shown, given, inner, depth=depth + 1, metric=metric)

    def _key(self, known: Known) -> Key:
        if id(known) not in self._keys:
            parts = tuple((name, self._key(value)) for name, value in known.inputs)
            name = known.formula.name if known.formula else known.name
            self._keys[id(known)] = (name, str(known.value), parts)
        return self._keys[id(known)]


def number(value: Any, unit: str) -> str:
    """
    Show a number for people and, where that rounds it, exactly.

    >>> number(268435456, "B"), number((1024, 4096), "token")
    ('268 MB (268,435,456)', '1,024, 4,096')
    """
    if isinstance(value, tuple):
        return ", ".join(number(each, unit) for each in value)
    if isinstance(value, bool) or unit in ("bool", ""):
        return str(value)
    if value == float("inf"):
        return "without limit"
    text = show(value, unit)
    exact = f"{value:,}" if isinstance(value, int) else f"{value:.12g}"
    return text if exact == text or unit in ("1", "token") else f"{text} ({exact})"


def exact(size: float) -> str:
    """
    Show bytes for people and exactly.

    >>> exact(81920.0)
    '81.9 kB (81,920)'
    """
    return number(int(size) if size == int(size) else size, "B")


def tree(known: Known) -> dict[str, Any]:
    """Return a derivation as nested dictionaries."""
    node: dict[str, Any] = {"value": _plain(known.value), "name": known.name}
    if known.formula is None:
        node["origin"] = known.origin
        return node
    formula = known.formula
    node |= {
        "equation": formula.equation,
        "unit": formula.unit,
        "scope": formula.scope,
        "source": formula.source,
        "inputs": {name: tree(value) for name, value in known.inputs},
    }
    return node


def _plain(value: Any) -> Any:
    return [finite(each) for each in value] if isinstance(value, tuple) else finite(value)
