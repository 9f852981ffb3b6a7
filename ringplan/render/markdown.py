"""An assessment as a Markdown page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from ringplan.render.sections import Page, Section, given

if TYPE_CHECKING:
    from collections.abc import Iterable


def page(answer: Page, inputs: list[dict[str, Any]], *, work: str = "") -> str:
    """Write the sections, the scenario's values and, if there are any, the derivations."""
    head = [f"# {answer.verdict}", *(text for line in answer.lines for text in ("", line))]
    text = to_markdown([*answer.sections, given(inputs)], head)
    return text + f"\n## Derivations\n\n```text\n{work}```\n" if work else text


def to_markdown(made: Iterable[Section], head: list[str]) -> str:
    r"""
    Write sections as Markdown tables.

    >>> print(to_markdown([Section("A", ["x", "y"], [["1", "a|b"]])], ["Fits."]))
    Fits.
    <BLANKLINE>
    ## A
    <BLANKLINE>
    | x | y |
    |---|---|
    | 1 | a\|b |
    <BLANKLINE>
    """
    lines = [html.escape(line, quote=False) for line in head]
    for title, columns, rows, note in made:
        lines += ["", f"## {title}", "", _row(columns), "|" + "---|" * len(columns)]
        lines += [_row(row) for row in rows]
        lines += ["", note] if note else []
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    safe = (html.escape(cell, quote=False) for cell in cells)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in safe) + " |"
