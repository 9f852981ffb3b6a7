"""Timelines of schedules, held against the closed forms of the estimate."""

from __future__ import annotations

from typing import Any

import pytest

from ringplan.api import load
from ringplan.estimation.core import estimate
from ringplan.io import library
from ringplan.io.policies import schedule_from
from ringplan.timeline.run import timelines, with_timeline

DEVICES = {"gpu": "h100-sxm-80gb", "tpu": "tpu-v5p"}
TRAINED = [
    name
    for name in library.names("schedules")
    if "train" in schedule_from(library.find("schedules", name)).phases
]


def asked(name: str, tokens: int) -> dict[str, Any]:
    schedule = schedule_from(library.find("schedules", name))
    given: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "hardware": next(DEVICES[kind] for kind in schedule.devices if kind in DEVICES),
        "seq_len": tokens,
        "phase": "train",
        "cp_size": 8,
        "schedule": name,
    }
    if schedule.comm_types[:1] == ("a2a+p2p",):
        given["ulysses_size"] = 2
    return given


@pytest.mark.parametrize("tokens", [8192, 65536])
@pytest.mark.parametrize("name", TRAINED)
def test_ranks_take_the_time_of_the_closed_form_where_they_are_alike(
    name: str, tokens: int
) -> None:
    """Zigzag ranks differ in their merges alone, and the last one has all of them."""
    scenario = load(**asked(name, tokens)).scenario
    of = estimate(scenario).ring
    if scenario.schedule.double_ring:
        missing = with_timeline(scenario, estimate(scenario)).not_counted
        assert "double" in missing["timeline_ranks"]
        return

    forward, backward = (each.timeline for each in timelines(scenario))

    for made, closed in ((forward, of.time_forward), (backward, of.time_backward)):
        assert made.total <= closed * (1 + 1e-9)
        if scenario.mesh.partition == "zigzag" or scenario.mesh.ring_size == 1:
            assert made.total == pytest.approx(closed, rel=1e-9)
        if scenario.mesh.partition == "contiguous" and scenario.mesh.ring_size > 1:
            assert made.busy.min() < made.busy.max()


def test_a_merge_of_half_the_queries_takes_half_the_time() -> None:
    """The first rank merges half of its queries at each later step, the last one all of them."""
    scenario = load(**asked("ring-flash-attention-zigzag", 65536)).scenario
    merge = estimate(scenario).ring.merge_time

    busy = timelines(scenario)[0].timeline.busy

    assert busy[-1] - busy[0] == pytest.approx(7 * merge / 2, rel=1e-9)
