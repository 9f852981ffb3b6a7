"""``ringplan estimate --timeline``."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ringplan.render.timeline import bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K", "--cp")


def test_ranks_are_walked_through_only_where_somebody_asks(ringplan: Callable[..., Ran]) -> None:
    plain, asked = (
        json.loads(ringplan("estimate", *FLAGS, "4", "--format", "json", *more).out)["estimate"]
        for more in ((), ("--timeline",))
    )

    assert plain["timeline_ranks"] is None
    assert "--timeline" in plain["not_counted"]["timeline_ranks"]
    assert "timeline_ranks" not in asked["not_counted"]
    assert [row["rank"] for row in asked["timeline_ranks"]] == [0, 1, 2, 3]
    assert {row["direction"] for row in asked["timeline_ranks"]} == {"forward"}


def test_a_table_without_timeline_imports_no_numpy() -> None:
    code = (
        f"import sys; sys.argv = {['ringplan', 'estimate', *FLAGS, '8']}\n"
        "from ringplan.__main__ import main\n"
        "try: main()\n"
        "finally: print('numpy' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ran.stderr == "False\n"


def table(ran: Ran, title: str) -> list[str]:
    """Lines of a section, without its title and the rule."""
    lines = ran.out.splitlines()
    (at,) = (i for i, line in enumerate(lines) if line.startswith(title))
    return lines[at + 1 : at + 1 + lines[at:].index("") - 1]


def test_few_ranks_are_all_shown(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan("estimate", *FLAGS, "8", "--partition", "contiguous", "--timeline")
    head, _, *rows, legend = table(ran, "Ranks of the ring, forward")

    assert head.split() == ["rank", "busy", "exposed", "idle"]
    assert [row.split()[0] for row in rows] == [str(rank) for rank in range(8)]
    assert rows[0].endswith("##=...........................")
    assert rows[-1].endswith(30 * "#")
    assert legend.startswith("#")


def test_ranks_that_are_alike_are_one_line(ringplan: Callable[..., Ran]) -> None:
    rows = table(ringplan("estimate", *FLAGS, "8", "--timeline"), "Ranks of the ring, forward")

    assert [row.split()[:2] for row in rows[2:-1]] == [["all", "8"]]


def test_many_ranks_are_summed_up_and_the_busiest_shown(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan("estimate", *FLAGS, "64", "--partition", "contiguous", "--timeline")
    rows = table(ran, "Ranks of the ring, forward")[2:-1]

    assert [row.split()[0] for row in rows] == ["least", "median", "most", "61", "62", "63"]
    assert max(map(len, ran.out.splitlines())) <= 80


def test_training_shows_both_directions(ringplan: Callable[..., Ran]) -> None:
    out = ringplan("estimate", *FLAGS, "8", "--phase", "train", "--timeline").out

    assert "Ranks of the ring, forward" in out
    assert "Ranks of the ring, backward" in out


@pytest.mark.parametrize("times", [(1, 1, 1), (1, 0, 0), (0, 1, 1e-9), (1e-9, 1, 5), (7, 1, 3)])
def test_bars_are_all_as_long(times: tuple[float, float, float]) -> None:
    assert len(bar(*times)) == 30


def test_a_pass_of_no_time_has_no_bar() -> None:
    assert bar(0, 0, 0) == ""
