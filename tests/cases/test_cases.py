"""Public logs and questions, each number that ringplan can derive, with its row's tolerance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases.numbers import Number, collected, numbers
from tests.cases.score import score

VALIDATION = Path(__file__).parents[2] / "docs/validation.md"
ROWS = collected()
NUMBERS = numbers()


def listed() -> set[str]:
    """Rows that docs/validation.md lists as not tested."""
    page = VALIDATION.read_text(encoding="utf-8")
    section = page.partition("## Public logs")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| ([A-Z]\d+) \|", section, re.MULTILINE))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: f"{n.row}-{n.what}")
def test_number_of_a_public_log(number: Number) -> None:
    made = score(number)

    shown = f"{number.row}, {number.what}: {number.observed}, but ringplan says {made.value:,.6g}"
    assert made.passed is not bool(number.miss), f"{shown} ({ROWS[number.row]['source']})"


@pytest.mark.parametrize(
    "number", [n for n in NUMBERS if n.kind != "formula"], ids=lambda n: f"{n.row}-{n.what}"
)
def test_digits_are_those_of_the_row(number: Number) -> None:
    row = ROWS[number.row]
    fields = ("seq", "observed", "formula", "computed")
    text = " ".join(str(row.get(field, "")) for field in fields).replace(",", "")

    assert number.flag or all(digits in text for digits in number.printed)


def test_every_row_is_tested_or_listed_with_its_reason() -> None:
    tested = {number.row for number in NUMBERS}

    assert tested | listed() == set(ROWS)
    assert tested & listed() == set()


def test_a_wrong_number_fails() -> None:
    """A latent divided by the ranks is 8 times too small, and is told apart."""
    right = next(number for number in NUMBERS if number.row == "S01")
    wrong = right._replace(observed="20.08 GiB")

    assert score(right).passed
    assert not score(wrong).passed
