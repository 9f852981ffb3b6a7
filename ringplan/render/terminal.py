"""Sections as Rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ringplan.render.sections import Page, Section

_COLOURS = {"good": "green", "fair": "yellow", "bad": "red"}


#: Columns of words; the others hold numbers and stand to the right.
_WORDS = {
    "",
    "bound by",
    "device",
    "kind",
    "letter",
    "link",
    "meaning",
    "source",
    "title",
    "unit",
    "value",
    "what",
    "what, and the cure",
}


def report(page: Page) -> Group:
    """Return the whole answer: one verdict line, the scenario, the sections."""
    parts: list[RenderableType] = [
        Text(page.verdict, style=f"bold {_COLOURS[page.mood]}"),
        *(Text(line, style="dim") for line in page.lines),
    ]
    for section in page.sections:
        parts += ["", Text(section.title, style="bold"), table(section)]
        if section.note:
            parts.append(Text(section.note))
    if page.end:
        parts += ["", Text(page.end, style="dim")]
    return Group(*parts)


def table(section: Section, *, tight: bool = False) -> Table:
    """Return a section as a table, numbers to the right; columns stand closer if ``tight``."""
    if section.columns[0] == "tensor":
        section = _folded(section)
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=tight,
    )
    for index, column in enumerate(section.columns):
        words = index == 0 or column in _WORDS
        made.add_column(
            column,
            justify="left" if words else "right",
            no_wrap=index == 0 or not words,
            overflow="fold",
        )
    for row in section.rows:
        made.add_row(*(Text(text) for text in row))
    return made


def _folded(section: Section) -> Section:
    """Break long names after a dot or a word, so that the other columns fit 80 columns."""
    columns = zip(section.columns, *section.rows, strict=True)
    room = 80 - sum(max(map(len, column)) + 3 for column in list(columns)[1:])

    rows = [[_broken(name, room), *rest] for name, *rest in section.rows]
    return section._replace(rows=rows)


def _broken(name: str, room: int) -> str:
    r"""
    Break a name into lines no longer than the room for them.

    >>> _broken("mlp.gate.e_score_correction_bias", 23)
    'mlp.gate.\n  e_score_correction_\n  bias'
    """
    if len(name) <= room:
        return name
    cut = name.rfind(".", 0, room) + 1 or name.rfind("_", 0, room) + 1
    return f"{name[:cut]}\n  {_broken(name[cut:], room - 2)}" if cut else name
