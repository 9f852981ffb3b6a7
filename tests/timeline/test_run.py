"""Timelines of scenarios, held against their estimates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ringplan as library
from ringplan.estimation.attention import layer
from ringplan.estimation.device import device
from ringplan.estimation.numbers import numbers
from ringplan.timeline.run import MAX_RANKS, timelines
from tests.estimation.scenarios import FLAT, H100, SCENARIOS, Given, having, named, scenario

if TYPE_CHECKING:
    from ringplan.specs.scenario import Scenario
    from ringplan.timeline.events import Timeline

EVERY = pytest.mark.parametrize("name", list(SCENARIOS))
CONFIGS = Path(__file__).parents[1] / "data/hf_configs"


def walked(name: str) -> dict[str, Timeline]:
    return {each.name: each.timeline for each in timelines(named(name)[0])}


def exposed_forward(read: Scenario) -> float:
    """What the closed form exposes of the forward pass; the estimate says it of the whole step."""
    x = numbers(read)
    return layer(x, x.kinds[x.widest], device(read, x)).forward.exposed_time


@EVERY
def test_forward_is_no_slower_than_in_lock_step_and_as_fast_where_ranks_are_alike(
    name: str,
) -> None:
    read, of = named(name)

    made = walked(name)["forward"]

    assert made.total <= of.ring.time_forward * (1 + 1e-12)
    exposed = exposed_forward(read)
    busiest = made.busy.max()
    assert busiest == pytest.approx(of.ring.time_forward - exposed, rel=1e-12)
    alike = read.mesh.partition == "zigzag" or read.workload.phase == "decode"
    if alike or not read.workload.causal or read.mesh.ring_size == 1:
        assert made.total == pytest.approx(of.ring.time_forward, rel=1e-12)
        waited = np.full(read.mesh.ring_size, exposed)
        assert made.exposed + made.idle == pytest.approx(waited, rel=1e-9, abs=1e-12)
        x = numbers(read)
        if len({*device(read, x).crossings(x, "ring")}) == 1:  # else some hops are faster
            assert made.exposed == pytest.approx(waited, rel=1e-9, abs=1e-12)


@EVERY
def test_each_rank_has_the_whole_pass(name: str) -> None:
    for made in walked(name).values():
        whole = made.busy + made.exposed + made.idle
        assert whole == pytest.approx(np.full(whole.size, made.total), rel=1e-12)
        assert min(made.busy.min(), made.exposed.min(), made.idle.min()) >= -1e-12 * made.total


@pytest.mark.parametrize("name", having(phase="train", cp_size=8))
def test_a_reversed_ring_hides_all_gradients(name: str) -> None:
    """K and V alone, then both together, at last gradients behind the rank's own block."""
    read, of = named(name)
    size, cut = read.mesh.ring_size, walked(name)
    assert read.schedule.reverses
    assert read.mesh.partition == "zigzag"
    (forward, backward), steps = cut.values(), of.timeline
    slower = backward.busy[0] / forward.busy[0]
    own, later = slower * steps[0].compute_time, slower * steps[-1].compute_time
    bandwidth, latency = pace(read, of.ring.link)
    kv = latency + of.ring.hop_bytes / bandwidth
    both = latency + 2 * of.ring.hop_bytes / bandwidth

    wanted = max(later, kv) + (size - 2) * max(later, both) + max(own, kv)

    assert backward.total == pytest.approx(wanted, rel=1e-9)
    assert not backward.idle.round(12).any()


def pace(read: Scenario, link: str | None) -> tuple[float, float]:
    """Achieved bandwidth and latency of the link that paces the ring."""
    hardware = read.hardware
    if link == "scale_up":
        nominal, latency = hardware.scale_up.pair_bandwidth_per_direction, hardware.scale_up.latency
        share = hardware.efficiency.scale_up[-1][1]
    else:
        nominal, latency = hardware.scale_out.bandwidth_per_direction, hardware.scale_out.latency
        share = hardware.efficiency.scale_out[-1][1]
    assert nominal is not None
    assert latency is not None
    return nominal * share, latency


def test_a_step_that_is_too_short_exposes_the_hop_where_it_leaves_the_node() -> None:
    """Ranks between the borders have a faster hop, and wait for those that have not."""
    read, of = named("l40s over Ethernet")
    made = walked("l40s over Ethernet")["forward"]

    assert of.ring.verdict == "stalled"
    assert made.exposed.max() == pytest.approx(of.ring.exposed_time, rel=1e-9)
    assert made.exposed.min() < made.exposed.max()
    assert (made.exposed + made.idle).min() == pytest.approx(of.ring.exposed_time, rel=1e-9)
    assert read.mesh.ring_size == made.exposed.size


def test_a_contiguous_prefill_idles_half_of_its_ranks_time() -> None:
    """As utilization says: of P ranks' time a causal mask leaves (S + 1) / (2 S - n + 1)."""
    given: Given = {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "128K", "cp_size": 8}
    made = library.estimate(**given, partition="contiguous", timeline=True, set=FLAT).estimate
    rows = made.timeline_ranks or ()

    busy = sum(row.busy_time for row in rows)
    total = sum(row.busy_time + row.exposed_time + row.idle_time for row in rows)
    assert busy / total == pytest.approx(made.utilization.contiguous.exact, rel=1e-9)


def test_steps_are_kept_where_they_are_asked_for() -> None:
    read = named("llama train")[0]
    forward, backward = (each.timeline for each in timelines(read, keep=True))

    assert forward.steps is not None
    assert backward.steps is not None
    assert forward.steps.begins.shape == (8, 8)
    assert len(forward.steps.hops) == 7
    assert len(backward.steps.hops) == 8
    assert timelines(read)[0].timeline.steps is None


def test_a_config_that_says_too_little_has_no_timeline(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text(encoding="utf-8"))
    del config["vocab_size"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")

    made = library.estimate(model=path, hardware=H100, seq_len="1K", timeline=True).estimate

    assert made.timeline_ranks is None
    assert made.not_counted["timeline_ranks"] == made.not_counted["ring.verdict"]


def test_a_ring_that_would_take_minutes_is_left_out() -> None:
    given: Given = {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "128M"}
    made = library.estimate(**given, cp_size=2 * MAX_RANKS, timeline=True).estimate

    assert made.timeline_ranks is None
    assert made.not_counted["timeline_ranks"] == "the ring has more than 16,384 ranks"


def test_a_window_and_a_prefix_are_counted_with_the_positions_they_have() -> None:
    """A query of a full layer sees the whole prefix, wherever it lies."""
    read = scenario(model="llama-3.1-8b", hardware=H100, seq_len="64K", cached_len="32K", cp_size=4)
    (forward,) = timelines(read)

    assert forward.timeline.idle == pytest.approx(np.zeros(4), abs=1e-12)
