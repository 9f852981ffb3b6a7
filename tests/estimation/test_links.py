"""Which link an axis crosses, what shares a card, and what a message of a size gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringplan.estimation.device import device
from ringplan.estimation.numbers import numbers
from ringplan.estimation.placement import box
from tests.estimation.scenarios import H100, MI300X, Given, made, row, scenario

LLAMA: Given = {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "128K"}
#: A node of eight A800s with one HDR200 card: 25 GB/s for all (NVIDIA/nccl issue 412).
ONE_CARD = {
    "hardware.scale_out.bandwidth_per_direction": "3.125 GB/s",
    "hardware.scale_out.cards_per_node": 1,
}
TABLE = {"64 KiB": 0.1, "1 MiB": 0.3, "64 MiB": 0.7}


def share(size: float) -> float:
    sizes = [2**16, 2**20, 2**26]
    return float(np.interp(np.log2(size), np.log2(sizes), [0.1, 0.3, 0.7]))


def hop(**given: Any) -> tuple[float, float]:
    """Bytes of a hop, and bytes a second without latency, at the nominal rate."""
    read = scenario(**given)
    of = made(**given).ring
    up = read.hardware.scale_up if of.link == "scale_up" else read.hardware.scale_out
    return of.hop_bytes, of.hop_bytes / (of.hop_time - (up.latency or 0))


@pytest.mark.parametrize(
    ("tp_size", "crossing", "cards", "rate"), [(1, 2, 1, 50e9), (8, 16, 8, 50e9)]
)
def test_a_ring_of_sixteen_uses_a_card_for_each_of_its_kind(
    tp_size: int, crossing: int, cards: int, rate: float
) -> None:
    """
    One ring: 2 of 16 hops leave the box, 1 of 8 cards works. Eight: every hop, and every card.

    The hop is paced by 50 GB/s both times, and eight times as long for one ring: its heads are not
    shared by tensor parallelism.
    """
    given = {**LLAMA, "cp_size": 16, "tp_size": tp_size}
    given["set"] = {"hardware.efficiency.scale_out": 1.0}
    found = row(made(**given), "ring")
    size, reached = hop(**given)

    assert (found.ranks, found.crossing_hops) == (16, crossing)
    assert (found.flows_per_node, found.cards_busy) == (cards, cards)
    assert reached == pytest.approx(rate, rel=1e-9)
    assert size == 2**17 // 16 * 8 // tp_size * 256 * 2


@pytest.mark.parametrize(("tp_size", "rate"), [(1, 25e9), (2, 12.5e9), (8, 3.125e9)])
def test_rings_of_a_node_share_its_only_card(tp_size: int, rate: float) -> None:
    given = {**LLAMA, "cp_size": 16, "tp_size": tp_size}
    given["set"] = {**ONE_CARD, "hardware.efficiency.scale_out": 1.0}

    assert hop(**given)[1] == pytest.approx(rate, rel=1e-9)
    assert row(made(**given), "ring").cards_busy == 1


@pytest.mark.parametrize("cards", [8, 16, 32])
def test_a_card_or_more_for_each_device_changes_nothing(cards: int) -> None:
    """AWS p5 has 32 cards of 100 Gb/s for 8 GPUs: four work as one of 400."""
    given = {**LLAMA, "cp_size": 16}
    with_cards = {**given, "set": {"hardware.scale_out.cards_per_node": cards}}

    assert made(**with_cards).ring == made(**given).ring


def test_a_blocks_search_knows_the_card_that_the_ring_shares() -> None:
    """At the smallest block the hop just fits, on the shared card too."""
    given = {**LLAMA, "cp_size": 16, "tp_size": 8, "set": ONE_CARD}
    block = made(**given).ring.min_block_tokens
    at = made(**{**given, "seq_len": 16 * block}).ring
    below = made(**{**given, "seq_len": 16 * (block - 2)}).ring

    assert at.overlap_margin >= 1 > below.overlap_margin


@pytest.mark.parametrize("tp_size", [1, 4])
def test_hops_of_a_ring_are_told_one_by_one(tp_size: int) -> None:
    read = scenario(**LLAMA, cp_size=16, tp_size=tp_size)
    x = numbers(read, None)
    edges = device(read, x).crossings(x, "ring")

    assert len(edges) == 16
    assert sum(edges) == row(made(**LLAMA, cp_size=16, tp_size=tp_size), "ring").crossing_hops
    assert [i for i, out in enumerate(edges) if out] == list(
        range(8 // tp_size - 1, 16, 8 // tp_size)
    )


# A message and its size


@pytest.mark.parametrize("seq_len", ["2K", "8K", "32K", "128K", "1M"])
def test_a_hop_moves_at_the_rate_of_its_message(seq_len: str) -> None:
    given = {**LLAMA, "seq_len": seq_len, "cp_size": 8}
    given["set"] = {"hardware.efficiency.scale_up": TABLE}
    size, rate = hop(**given)

    assert rate == pytest.approx(450e9 * share(size), rel=1e-9)


@pytest.mark.parametrize("wanted", [1, 1.25])
def test_the_smallest_block_is_that_of_its_own_message(wanted: float) -> None:
    given = {**LLAMA, "cp_size": 8, "set": {"hardware.efficiency.scale_up": TABLE}}
    field = "min_block_tokens" if wanted == 1 else "min_block_tokens_hidden"
    block = getattr(made(**given).ring, field)

    assert made(**{**given, "seq_len": 8 * block}).ring.overlap_margin >= wanted
    assert made(**{**given, "seq_len": 8 * (block - 2)}).ring.overlap_margin < wanted


def test_collectives_move_at_the_rate_of_what_goes_to_one_peer() -> None:
    """A ring hands on a share of the group; an exchange has a message for each other rank."""
    given = {**LLAMA, "phase": "train", "cp_size": 2, "ulysses_size": 2, "tp_size": 4}
    given["recompute"] = "none"
    given["set"] = {"hardware.efficiency.scale_up": TABLE}
    of = made(**given, zero_stage=3)
    latency = scenario(**given).hardware.scale_up.latency or 0
    payload = 2**17 // 2 * 4096 * 2
    layer = row(of, "fsdp").bytes / row(of, "fsdp").latencies
    exchanged = row(of, "ulysses").bytes / (2 * 32 * 4)

    for axis, message in [("tp", payload / 4), ("fsdp", layer), ("ulysses", exchanged)]:
        found = row(of, axis)
        each = found.latencies * latency
        assert found.time == pytest.approx(each + found.bytes / (450e9 * share(message)), rel=1e-9)


# Meshes and tori


def exchanged(hardware: str, ranks: int, **fields: Any) -> float:
    """Bytes a second of an exchange of heads, latency apart, at the nominal rate."""
    given: Given = {"model": "article-mha", "hardware": hardware, "seq_len": "128K"}
    given |= {"cp_size": ranks, "ulysses_size": ranks}
    given["set"] = {
        "hardware.efficiency.scale_up": 1.0,
        **{f"hardware.scale_up.{name}": value for name, value in fields.items()},
    }
    latency = scenario(**given).hardware.scale_up.latency
    found = row(made(**given), "ulysses")
    return float(found.bytes / (found.time - found.latencies * (latency or 0)))


@pytest.mark.parametrize(
    ("hardware", "ranks", "rate"), [(H100, 8, 450e9), (MI300X, 4, 3 * 64e9), (MI300X, 8, 448e9)]
)
def test_an_exchange_uses_every_link_of_a_switch_or_a_mesh(
    hardware: str, ranks: int, rate: float
) -> None:
    assert exchanged(hardware, ranks) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(
    ("ranks", "wrap", "time"),
    [(2, 4, 2 / 4), (4, 4, 2 / 4), (8, 4, 2 / 4), (8, 2, 2 / 8), (32, 4, 4 / 4), (32, 3, 4 / 4)],
)
def test_an_exchange_on_a_torus_is_bound_by_its_bisection(
    ranks: int, wrap: int, time: float
) -> None:
    """V of each rank takes d V / (4 W), half of it where the slowest side d closes."""
    rate = exchanged("tpu-v5p", ranks, wrap_multiple=wrap)

    assert (ranks - 1) / ranks / rate == pytest.approx(time / 100e9, rel=1e-9)


def test_a_ring_both_ways_gains_on_a_torus_and_not_on_a_switch() -> None:
    for hardware, gain in [("tpu-v5p", 2), (H100, 1), (MI300X, 2)]:
        read = scenario(**{**LLAMA, "hardware": hardware}, cp_size=8)
        x = numbers(read, None)
        found = device(read, x)
        assert found.link(x, "ring", both_ways=True).nominal == gain * found.link(x, "ring").nominal


BOXES = [
    (2, 3, 4, (2, 1, 1), 2, False),
    (32, 3, 4, (4, 4, 2), 4, False),  # less than a cube: no wraparound (TPU v5p)
    (64, 3, 4, (4, 4, 4), 4, True),
    (128, 3, 4, (8, 4, 4), 8, True),
    (192, 3, 4, (12, 4, 4), 12, True),
    (64, 2, 16, (8, 8), 8, False),
    (128, 2, 16, (16, 8), 16, True),  # the full axis of 16 closes alone (TPU v5e)
    (192, 2, 16, (16, 12), 12, False),  # and the other one is slower
    (12, 1, 12, (12,), 12, True),
]


@pytest.mark.parametrize(("devices", "dimensions", "wrap", "sides", "slowest", "closes"), BOXES)
def test_a_box_is_the_one_in_which_an_exchange_is_fastest(
    devices: int, dimensions: int, wrap: int, sides: tuple[int, ...], slowest: int, *, closes: bool
) -> None:
    assert box(devices, dimensions, wrap) == (sides, slowest, closes)


def test_a_torus_of_one_axis_is_a_ring() -> None:
    """Two links a device: twelve chips exchange over a ring that closes, 12 V / (8 W)."""
    rate = exchanged("tpu-v5p", 12, bandwidth_per_direction="200 GB/s", wrap_multiple=12)

    assert 11 / 12 / rate == pytest.approx(12 / 8 / 100e9, rel=1e-9)
