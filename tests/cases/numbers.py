"""What is tested of the public logs and questions: tests/data/cases/numbers.yaml, read."""

from __future__ import annotations

import json
from functools import cache
from operator import add, sub, truediv
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = Path(__file__).parents[1] / "data/cases"
HARDWARE = "h100-sxm-80gb"  # where a row asks about caches only, the device changes nothing
UNITS = {"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "GB": 1e9}
BOUNDS = ("below", "above")
SIGNS: dict[str, Callable[[float, float], float]] = {"+": add, "-": sub, "/": truediv}


class Question(NamedTuple):
    """
    One estimate: arguments of `ringplan.estimate`, and what to read off its answer.

    Attributes
    ----------
    model, hardware, given, changes
        The arguments; `changes` is ``set``.
    metric
        Path of the number in the answer.
    term
        Name of a formula inside of that number's derivation, which is the number then.
    """

    model: str
    hardware: str
    given: dict[str, Any]
    changes: dict[str, Any]
    metric: str
    term: str | None


class Number(NamedTuple):
    """
    One number of a row.

    Attributes
    ----------
    row, what
        The row's id, and which of its numbers.
    question
        The estimate that answers it.
    relation, other
        A second estimate that the first is ``over`` or ``less``; an empty word and None without.
    observed
        The number as the row has it, with its unit.
    tolerance
        As the row has it: a share ``0.1%`` or an amount ``0.1 GiB``.
    kind
        ``observed``; ``computed`` where the row has it by hand only, ``formula`` where the row has
        a formula, into which sizes were put here.
    miss
        Why ringplan is outside of the tolerance; empty where it is not.
    note
        What a reader should know.
    """

    row: str
    what: str
    question: Question
    relation: str
    other: Question | None
    observed: str
    tolerance: str
    kind: str
    miss: str
    note: str

    @property
    def seen(self) -> float:
        """The observed number in base units; true is 1."""
        first, sign, second = self._parts
        value = SIGNS[sign](_digits(first), _digits(second)) if sign else _digits(first)
        return value * UNITS[self.unit]

    @property
    def unit(self) -> str:
        """Unit of the observed number."""
        last = self.observed.split()[-1]
        return last if last in UNITS else ""

    @property
    def bound(self) -> str:
        """``below`` or ``above`` where the row has no more than that."""
        first = self.observed.split()[0]
        return first if first in BOUNDS else ""

    @property
    def flag(self) -> bool:
        """Whether it is a yes or a no."""
        return self.observed in _FLAGS

    @property
    def allowed(self) -> float:
        """How far off a value may be: the tolerance, or half a unit of the last digit printed."""
        return max(_amount(self.tolerance, self.seen), self._half_digit)

    @property
    def printed(self) -> tuple[str, ...]:
        """The digits as the row has them."""
        first, _, second = self._parts
        return (first, second) if second else (first,)

    @property
    def _parts(self) -> tuple[str, str, str]:
        words = [w for w in self.observed.split() if w not in BOUNDS and w not in UNITS]
        first, sign, second = (*words, "", "")[:3]
        return first, sign, second

    @property
    def _half_digit(self) -> float:
        if self.flag or "/" in self._parts:
            return 0.0
        half = sum(0.5 * 10.0 ** -len(part.partition(".")[2]) for part in self.printed)
        return half * UNITS[self.unit] * (1 + 1e-9)


@cache
def numbers() -> tuple[Number, ...]:
    """Read every number, what its row says for all of them filled in."""
    rows = yaml.safe_load((CASES / "numbers.yaml").read_text(encoding="utf-8"))
    return tuple(_number(row, item) for row in rows for item in row["numbers"])


@cache
def collected() -> dict[str, dict[str, Any]]:
    """Read the rows as they were collected, by id."""
    lines = (CASES / "serving_and_training.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    table = (CASES / "context_parallel.md").read_text(encoding="utf-8").partition("## B.")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit():
            rows.append({"id": f"A{cells[0]}", "source": cells[1], "computed": cells[3]})
    return {row["id"]: row for row in rows}


def back_solved(number: Number) -> bool:
    """Whether the sizes of the model were found from the log itself."""
    return "back-solved" in collected()[number.row].get("dims_source", "")


_FLAGS = {"true": 1.0, "false": 0.0}


def _digits(text: str) -> float:
    return _FLAGS[text] if text in _FLAGS else float(text)


def _amount(text: str, of: float) -> float:
    if text.endswith("%"):
        return of * float(text[:-1]) / 100
    size, _, unit = text.partition(" ")
    return float(size) * UNITS[unit]


def _number(row: dict[str, Any], item: dict[str, Any]) -> Number:
    relation = next((word for word in ("over", "less") if word in item), "")
    observed = item["observed"]
    return Number(
        row=row["row"],
        what=item["what"],
        question=_question(row, item),
        relation=relation,
        other=_question(row, item, item[relation]) if relation else None,
        observed=str(observed).lower() if isinstance(observed, bool) else str(observed),
        tolerance=str(item.get("tolerance", row.get("tolerance", "0"))),
        kind=item.get("kind", "observed"),
        miss=item.get("miss", ""),
        note=item.get("note", row.get("note", "")),
    )


def _question(*blocks: dict[str, Any]) -> Question:
    """Merge what a row, a number and a second estimate say; the last word counts."""

    def last(key: str) -> Any:
        return next((block[key] for block in reversed(blocks) if key in block), None)

    def merged(key: str) -> dict[str, Any]:
        return {name: value for block in blocks for name, value in block.get(key, {}).items()}

    model = str(last("model"))
    return Question(
        model=str(CASES.parent / model) if "/" in model else model,
        hardware=last("hardware") or HARDWARE,
        given=merged("given"),
        changes=merged("set"),
        metric=last("metric"),
        term=last("term"),
    )
