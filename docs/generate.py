"""
Write the reference pages from what the program itself knows.

``python docs/generate.py`` rewrites them; a test fails when one is not current.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import ringplan.estimation.core  # noqa: F401 - registers every formula
from ringplan.cli.app import COMMANDS
from ringplan.costs.formula import REGISTRY, Formula
from ringplan.costs.symbols import SYMBOLS
from ringplan.io.library import find
from ringplan.io.policies import schedule_from
from ringplan.listings import listing
from tests.cases.numbers import UNITS, back_solved, collected
from tests.cases.score import scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.cases.score import Score

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
        *(row(*cells) for cells in listing("checks")[0].rows),
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


def schedules() -> str:
    """Every schedule: what it moves, whose it is, what is left out."""
    (made,) = listing("schedules")
    lines = [
        f"{HEAD}\n# Schedules\n",
        "A schedule is one implementation's dataflow as data, a file in `ringplan/data/schedules`.",
        "Every total is computed from its fields, and equals what NumPy ranks really pass round.",
        "`--schedule NAME` plans with one; `ringplan show NAME` says what its fields mean.",
        "An estimate compares all that run on the same mesh.\n",
        f"{made.note}.\n",
        row(*made.columns),
        "|" + "---|" * len(made.columns),
        *(row(*cells) for cells in made.rows),
    ]
    for name, *_ in made.rows:
        schedule = schedule_from(find("schedules", name))
        source = schedule.source
        whose = source.title if source.url is None else f"[{source.title}]({source.url})"
        lines += [f"\n## {name}\n", f"{schedule.title}.", f"Source: {whose}."]
        lines += [f"Note: {source.note}."] if source.note else []
        if schedule.left_out:
            lines += ["\nLeft out:\n", *(f"- {each}" for each in schedule.left_out)]
    return "\n".join(lines) + "\n"


def cases() -> str:
    """Public logs and questions: what was seen, what ringplan says, the naive formula."""
    made, rows = scores(), collected()
    tested = dict.fromkeys(each.number.row for each in made)
    missed = [each for each in made if not each.passed]
    whole = len(tested) - len({each.number.row for each in missed})
    lines = [
        f"{HEAD}\n# Public logs and questions\n",
        f"{len(rows)} published logs and questions about memory and speed were collected.",
        f"{len(tested)} of them have {len(made)} numbers that ringplan answers; each is a test.",
        f"{len(made) - len(missed)} agree within what their row allows, {len(missed)} do not;",
        f"{whole} rows agree in every number.",
        "[validation.md](validation.md) says why the other rows are no tests.\n",
        "The naive formula is what many calculators have: every layer keeps every token, a head is",
        "hidden_size / num_attention_heads wide, formats have no scales, tp divides the cache.",
        "Where a row does not give those sizes it has no answer, and the number is not compared.\n",
        *_summary([each for each in made if each.naive is not None]),
        "\nA number agrees if it is within its row's tolerance, or half a unit of its last digit.",
        "*Italic* is what the row has by hand, or as a formula, and nobody observed.",
        "Back-solved are sizes of models that were found from the log itself.",
        "Rows print the sizes of a cache at most; hidden size and heads, which the naive formula",
        "takes, and what weights need are from general knowledge where no config was at hand.",
        "`ringplan/data/engines` takes pages and window slack of llama.cpp from L07, L10, L14 and",
        "L16, and the runtime of vLLM from V07: these rows show that it is read right.",
        "\n## KV caches\n",
        row("row", "what", "seen", "ringplan", "error", "naive", "error", "allowed"),
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(row(*_asked(s), *_naive(s), _allowed(s)) for s in made if s.cache),
        "\n## Weights, activations, budgets, answers\n",
        row("row", "what", "seen", "ringplan", "error", "allowed"),
        "|---|---|---:|---:|---:|---:|",
        *(row(*_asked(s), _allowed(s)) for s in made if not s.cache),
        "\n## Outside of what the row allows\n",
        *(f"- {s.number.row}, {s.number.what}: {s.number.miss}." for s in missed),
        "\n## Notes\n",
        *_notes(made),
        "\n## Sources\n",
        row("row", "source", "sizes of the model"),
        "|---|---|---|",
        *(row(name, rows[name]["source"], rows[name].get("dims_source", "")) for name in tested),
    ]
    return "\n".join(lines) + "\n"


def _summary(made: Sequence[Score]) -> list[str]:
    """Score of ringplan and of the naive formula on the KV caches that both answer."""
    seen = [each for each in made if each.number.kind == "observed"]
    sized = [each for each in seen if not back_solved(each.number)]
    groups = {"all": made, "observed": seen, "observed, sizes not back-solved": sized}
    return [
        row("KV caches", "numbers", "formula", "agree", "median error", "worst error"),
        "|---|---:|---|---:|---:|---:|",
        *(line for name, group in groups.items() for line in _compared(name, group)),
    ]


def _compared(name: str, made: Sequence[Score]) -> list[str]:
    ours, theirs = [s.error for s in made], [s.naive_error for s in made]
    passed, naive = sum(s.passed for s in made), sum(s.naive_passed for s in made)
    count = str(len(made))
    return [
        row(name, count, "ringplan", str(passed), _percent(median(ours)), _percent(max(ours))),
        row(name, count, "naive", str(naive), _percent(median(theirs)), _percent(max(theirs))),
    ]


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.1 else f"{share:,.0%}"


def _asked(made: Score) -> tuple[str, str, str, str, str]:
    """Row, question, what was seen, what ringplan says, its error."""
    number = made.number
    seen = _flag(number.seen) if number.flag else number.observed
    seen = seen if number.kind == "observed" else f"*{seen}*"
    error = "" if number.flag or number.bound else _percent(made.error)
    return number.row, number.what, seen, _value(made, made.value), error


def _naive(made: Score) -> tuple[str, str]:
    if made.naive is None:
        return "", ""
    return _value(made, made.naive), _percent(made.naive_error)


def _flag(value: float) -> str:
    return "yes" if value else "no"


def _value(made: Score, value: float) -> str:
    """Write a value in the unit of what was seen."""
    if made.number.flag:
        return _flag(value)
    size = value / UNITS[made.number.unit]
    text = f"{size:,.4g}" if size < 1e4 else f"{size:,.0f}"
    return f"{text} {made.number.unit}".rstrip()


def _allowed(made: Score) -> str:
    number = made.number
    if number.flag or number.bound:
        return ""
    return number.tolerance if number.tolerance != "0" else "rounding"


def _notes(made: Iterable[Score]) -> list[str]:
    """List what a reader should know, once for each row."""
    notes = dict.fromkeys((s.number.row, s.number.note) for s in made if s.number.note)
    return [f"- {name}: {note}." for name, note in notes]


PAGES: dict[str, Callable[[], str]] = {
    "notation.md": notation,
    "formulas.md": formulas,
    "checks.md": checks,
    "cli.md": cli,
    "cases.md": cases,
    "schedules.md": schedules,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
