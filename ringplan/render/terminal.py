"""Sections as Rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ringplan.render.sections import headline, sections, subtitle

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ringplan.assess import Assessment
    from ringplan.render.sections import Section

_COLOURS = {
    "hidden": "green",
    "none": "green",
    "marginal": "yellow",
    "exposed": "yellow",
    "stalled": "red",
}


#: Columns of words; the others hold numbers and stand to the right.
_WORDS = {
    "",
    "bound by",
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


def report(assessment: Assessment, *, timeline: bool = False) -> Group:
    """Return the whole answer: one verdict line, the scenario, the sections."""
    colour = _COLOURS[assessment.summary.verdict] if assessment.works else "red"
    parts: list[RenderableType] = [
        Text(headline(assessment), style=f"bold {colour}"),
        Text(subtitle(assessment), style="dim"),
    ]
    for section in sections(assessment, timeline=timeline):
        parts += ["", Text(section.title, style="bold"), table(section)]
        if section.note:
            parts.append(Text(section.note))
    return Group(*parts)


def table(section: Section) -> Table:
    """Return a section as a table, numbers to the right."""
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
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
