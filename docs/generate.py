"""
Write the reference pages from what the program itself knows.

``python docs/generate.py`` rewrites them; a test fails when one is not current.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import ringplan.estimation.core  # noqa: F401 - registers every formula
from ringplan.catalogue import listing
from ringplan.cli.app import COMMANDS
from ringplan.costs.formula import REGISTRY, Formula
from ringplan.costs.symbols import SYMBOLS

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).parent
HEAD = "<!-- written by docs/generate.py; edit what it reads instead -->\n"


def row(*cells: str) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def notation() -> str:
    """Every argument of the formulas, with letter, unit and meaning."""
    lines = [
        f"{HEAD}\n# Notation\n",
        "Each name is defined here and nowhere else.",
        "Formulas, `--explain` and the JSON Schema use these names.\n",
        row("argument", "letter", "unit", "meaning"),
        "|---|---|---|---|",
        *(row(f"`{name}`", s.letter, s.unit, s.meaning) for name, s in sorted(SYMBOLS.items())),
    ]
    return "\n".join(lines) + "\n"


def formulas() -> str:
    """Every formula by module, with equation, unit, scope and source."""
    modules: dict[str, list[Formula[...]]] = {}
    for formula in REGISTRY.values():
        modules.setdefault(formula.__module__, []).append(formula)
    lines = [
        f"{HEAD}\n# Formulas\n",
        "One function a quantity, on a number or on a column of numbers.",
        "`ringplan show NAME` prints one with its arguments; `--explain METRIC` puts numbers in.",
    ]
    for module, known in sorted(modules.items()):
        about = (sys.modules[module].__doc__ or "").strip().partition("\n")[0]
        lines += [f"\n## {module.rpartition('.')[2]}\n", f"{about}\n"]
        lines += [
            row("formula", "what", "equation", "unit", "of", "source"),
            "|---|---|---|---|---|---|",
        ]
        lines += [
            row(f"`{f.name}`", f.summary, f"`{f.equation}`", f.unit, f.scope, f.source)
            for f in known
        ]
    return "\n".join(lines) + "\n"


def checks() -> str:
    """Every check by its code."""
    lines = [
        f"{HEAD}\n# Checks\n",
        "RP1xx: the layout cannot work, exit code 1.",
        "RP2xx: it works, and this is what it costs or what would be better.\n",
        row("code", "what"),
        "|---|---|",
        *(row(*cells) for cells in listing("checks").rows),
    ]
    return "\n".join(lines) + "\n"


def cli() -> str:
    """The help of every command."""
    lines = [f"{HEAD}\n# Command line\n"]
    for command in ("", *COMMANDS):
        words = ["ringplan", command] if command else ["ringplan"]
        lines += [f"## {' '.join(words)}\n", "```text", help_of(command), "```\n"]
    return "\n".join(lines)


def help_of(command: str) -> str:
    """What ``--help`` prints at 80 columns."""
    words = [sys.executable, "-m", "ringplan", *([command] if command else []), "--help"]
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(  # noqa: S603 - our own program
        words, env=environment, capture_output=True, text=True, check=True
    ).stdout.rstrip()


PAGES: dict[str, Callable[[], str]] = {
    "notation.md": notation,
    "formulas.md": formulas,
    "checks.md": checks,
    "cli.md": cli,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
