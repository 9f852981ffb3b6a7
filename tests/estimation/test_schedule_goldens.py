"""Shapes whose bytes are known from the implementations' own sources, through the public API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ringplan
from ringplan.api import load
from ringplan.costs import buffers, collectives
from ringplan.estimation.core import estimate
from ringplan.io import library
from tests.estimation.scenarios import FLAT

MIB, GIB = 2**20, 2**30
#: One rank's K and V of a layer: 8,192 tokens, 8 heads of 128 and 128, 16 bits.
U = 32 * MIB
PACKAGE = Path(ringplan.__file__).parent


def asked(schedule: str, ranks: int = 8, tokens: int = 8192, **given: Any) -> Any:
    tpu = schedule == "maxtext-ring"
    base = {
        "model": "llama-3.1-8b",
        "hardware": "tpu-v5p" if tpu else "h100-sxm-80gb",
        "phase": "train",
        "seq_len": ranks * tokens,
        "cp_size": ranks,
        "schedule": schedule,
    }
    return ringplan.estimate(**{**base, **given}).estimate


@pytest.mark.parametrize(
    ("schedule", "forward", "backward"),
    [
        ("ring-flash-attention", 224, 736),
        ("ring-flash-attention-zigzag", 224, 736),
        ("ring-flash-attention-stripe", 224, 736),
        ("ring-flash-attention-llama3", 224, 448),
        ("megatron-p2p", 224, 448),
        ("megatron-all-gather", 224, 448),
        ("te-jax-ring", 224, 544),
        ("maxtext-ring", 256, 768),
        ("torch-sdpa-all-gather", 224, 736),
        ("torch-sdpa-all-to-all", 224, 736),
        ("torch-flex", 224, 224),
        ("lucidrains-ring", 224, 480),
        ("hf-ulysses", 140, 140),
        ("megatron-a2a", 140, 140),
        ("magi-attention", 168, 336),
        ("jax-ringattention", 8 * 6 * 32, 8 * 14 * 32),
    ],
)
def test_bytes_of_a_layer_in_mib(schedule: str, forward: int, backward: int) -> None:
    """32 heads, 8 KV heads of 128, n = 8,192, P = 8; JAX sends P 6 n H D and P 14 n H D."""
    ring = asked(schedule).ring

    assert ring.bytes_sent_forward == forward * MIB
    assert ring.bytes_sent_backward == backward * MIB


@pytest.mark.parametrize(
    ("schedule", "units"),
    [
        ("torch-flex", 14),
        ("megatron-p2p", 21),
        ("megatron-all-gather", 21),
        ("ring-flash-attention-llama3", 21),
        ("lucidrains-ring", 22),
        ("te-jax-ring", 24),
        ("ring-flash-attention-zigzag", 30),
        ("torch-sdpa-all-gather", 30),
        ("torch-sdpa-all-to-all", 30),
        ("maxtext-ring", 32),
    ],
)
def test_units_of_a_training_step(schedule: str, units: int) -> None:
    """Without recompute; with it, the forward bytes once more (torch-flex gathers again: 21)."""
    kept, again = asked(schedule, recompute="none").ring, asked(schedule).ring

    assert kept.bytes_sent_step == units * U
    assert kept.bytes_sent_recompute == 0
    assert again.bytes_sent_recompute == again.bytes_sent_forward
    assert again.bytes_sent_step == units * U + kept.bytes_sent_forward


def test_a_double_ring_has_wider_gradients_in_its_first_window() -> None:
    """(P - 1) + 2 w + (P - w) + P / w units backward (InternEvo)."""
    for window in (1, 2, 4, 8):
        ring = asked("internevo-double-ring", inner_ring_size=window).ring
        units = 7 + 2 * window + (8 - window) + 8 // window
        assert ring.bytes_sent_forward == 7 * U
        assert ring.bytes_sent_backward == units * U


def test_two_ranks_of_transformer_engine() -> None:
    """5 U in JAX, whose gradients have an empty hop before and one home after; 2 U in torch."""
    assert asked("te-jax-ring", ranks=2).ring.bytes_sent_backward == 5 * U
    assert asked("megatron-p2p", ranks=2).ring.bytes_sent_backward == 2 * U


def test_chunks_that_four_zigzag_ranks_need() -> None:
    """18 of the 24 that a ring moves."""
    ring, needed = asked("megatron-p2p", ranks=4).ring, asked("magi-attention", ranks=4).ring
    assert needed.bytes_sent_forward * 24 == ring.bytes_sent_forward * 18


def test_zigzag_work_of_a_gpu_and_layer() -> None:
    """4.398 TFLOP in 8 steps, of which the first sees its own diagonal."""
    of = asked("ring-flash-attention-zigzag", set=FLAT)
    steps = [step for step in of.timeline for _ in range(step.num_steps)]
    share = sum(step.compute_time for step in steps) / steps[-1].compute_time
    assert round(of.ring.step_flops * share / 1e12, 3) == 4.398


def test_forward_peak_of_transformer_engine() -> None:
    """PR #2916, n = 65,536: 8 blocks of 0.25 GiB, 8 outputs of 0.5 GiB and 2^-7 GiB on rank 7."""
    of = asked("megatron-p2p", tokens=65536, phase="prefill")
    block, output, statistics = GIB // 4, GIB // 2, GIB // 128

    assert of.ring.hop_bytes == block
    held = of.memory.rank.ring_buffer_bytes
    assert held == 8 * block + 8 * (output + statistics)
    partials = [
        buffers.partials_bytes(
            slots=buffers.partial_slots(ring_size=8, rank=rank, later_share=0.5),
            batch_size=1,
            query_tokens=65536,
            num_heads=32,
            v_head_dim=128,
            element_bytes=2,
            statistic_bytes=4,
        )
        / GIB
        for rank in range(8)
    ]
    assert partials[0] == 4.5 * (0.5 + 2**-7) == 2.28515625
    assert partials[-1] == 4.0625


def test_gathered_cache_of_a_million_tokens() -> None:
    """TransformerEngine #3411: 1,048,576 x 8 x (256 + 256) x 2 = 8.0 GiB a layer."""
    fields = {"model.head_dim": 256}
    of = asked("torch-flex", tokens=131072, phase="prefill", set=fields)
    assert of.memory.rank.ring_buffer_bytes == 8 * GIB


def test_gathered_blocks_are_kept_in_every_layer() -> None:
    """torch-flex at 128K tokens without recompute: 0.5 GiB a layer, 16 GiB of 32, less its own."""
    kept = asked("torch-flex", tokens=16384, recompute="none").memory.rank.activation_bytes
    plain = asked("megatron-all-gather", tokens=16384, recompute="none").memory.rank
    assert kept - plain.activation_bytes == 32 * (GIB // 2) * 7 / 8


# Fields

#: Field, another value, what changes; everything else of these stays.
WATCHED = ("forward", "backward", "buffers", "time_forward", "time_backward")
FIELDS: list[tuple[str, str, Any, set[str]]] = [
    ("megatron-p2p", "kv_extra_hops_forward", 0, {"forward"}),
    ("megatron-p2p", "kv_extra_hops_backward", 0, {"backward"}),
    ("megatron-p2p", "gradient_extra_hops", 0, {"backward", "time_backward"}),
    ("megatron-p2p", "heads_on_wire", "query", {"forward", "backward", "buffers"}),
    ("megatron-p2p", "k_wire_dtype", "fp32", {"forward", "backward", "buffers"}),
    ("megatron-p2p", "v_wire_dtype", "fp8", {"forward", "backward", "buffers"}),
    ("megatron-p2p", "gradient_wire_dtype", "fp32", {"backward"}),
    ("megatron-p2p", "kv_buffers", 2, {"buffers"}),
    ("megatron-p2p", "keeps_partials", False, {"buffers"}),
    ("megatron-p2p", "merge_bytes_per_element", 0, {"time_forward", "time_backward"}),
    ("megatron-p2p", "overlaps", False, {"time_forward", "time_backward"}),
    ("megatron-p2p", "uses_compute_units", False, {"time_forward", "time_backward"}),
    ("ring-flash-attention-zigzag", "gradient_buffers", 3, {"buffers"}),
    ("ring-flash-attention-zigzag", "kv_buffers_backward", 3, {"buffers"}),
    ("ring-flash-attention-zigzag", "accumulator_dtype", None, {"buffers"}),
    ("ring-flash-attention-zigzag", "holds_block_output", False, {"buffers"}),
    ("megatron-all-gather", "gathered_copies", 1, {"buffers"}),
    ("megatron-all-gather", "gather_overlap", "own_block", {"time_forward", "time_backward"}),
    ("megatron-all-gather", "messages_per_hop", 2, {"time_forward", "time_backward"}),
    ("megatron-all-gather", "gradient_exchange", "ring", {"buffers", "time_backward"}),
    ("megatron-all-gather", "sends_needed_only", True, set(WATCHED) - {"buffers"}),
    ("torch-flex", "keeps_gathered", False, {"backward", "buffers", "time_backward"}),
    ("hf-ulysses", "all_to_alls", 3, {"time_forward", "time_backward"}),
]


def watched(scenario: Any) -> dict[str, Any]:
    of = estimate(scenario)
    return {
        "forward": of.ring.bytes_sent_forward,
        "backward": of.ring.bytes_sent_backward,
        "buffers": of.memory.rank.ring_buffer_bytes,
        "time_forward": of.ring.time_forward,
        "time_backward": of.ring.time_backward,
    }


@pytest.mark.parametrize(("schedule", "field", "value", "changed"), FIELDS)
def test_a_field_changes_its_own_totals(
    schedule: str, field: str, value: Any, changed: set[str]
) -> None:
    scenario = load(
        model="llama-3.1-8b",
        hardware="h100-sxm-80gb",
        phase="train",
        seq_len="64K",
        cp_size=8,
        schedule=schedule,
    ).scenario
    other = scenario.schedule.model_copy(update={field: value})
    before = watched(scenario)

    after = watched(scenario.model_copy(update={"schedule": other}))

    assert {name for name in WATCHED if before[name] != after[name]} == changed


def test_serial_hops_pay_two_latencies_and_short_ones_show_it() -> None:
    """One communicator: K/V and gradients wait in line; on two they share a wire and a latency."""
    scenario = load(
        model="llama-3.1-8b",
        hardware="h100-sxm-80gb",
        phase="train",
        seq_len=4096,
        cp_size=8,
        schedule="ring-flash-attention-zigzag",
    ).scenario
    two = scenario.schedule.model_copy(update={"streams": 2})
    slower, faster = (
        estimate(each).ring.overlap_margin_backward
        for each in (scenario, scenario.model_copy(update={"schedule": two}))
    )
    assert slower < faster


def test_both_ways_round_is_twice_as_fast_on_a_torus_and_no_faster_on_a_switch() -> None:
    for hardware, gain in (("tpu-v5p", True), ("h100-sxm-80gb", False)):
        scenario = load(
            model="llama-3.1-8b", hardware=hardware, phase="prefill", seq_len="64K", cp_size=8
        ).scenario
        schedule = scenario.schedule.model_copy(update={"bidirectional": True})
        one, both = (
            estimate(each).ring.hop_time
            for each in (scenario, scenario.model_copy(update={"schedule": schedule}))
        )
        assert (both < 0.6 * one) is gain


def test_replicated_caches_gain_no_room() -> None:
    """SGLang and vLLM gather K and V in prefill, and every rank keeps them."""
    shared = asked("megatron-all-gather", phase="prefill").memory.rank.kv_bytes
    for schedule in ("sglang-prefill-cp", "vllm-pcp"):
        assert asked(schedule, phase="prefill").memory.rank.kv_bytes == 8 * shared


def test_latents_travel_where_the_schedule_says_so() -> None:
    """DeepSeek: 128 (192 + 128) elements a token over 8 tensor-parallel ranks, or 576 on each."""
    given: dict[str, Any] = {
        "model": "deepseek-r1",
        "hardware": "h200-sxm-141gb",
        "tp_size": 8,
    }
    wide = asked("megatron-all-gather", phase="prefill", **given).ring.bytes_sent_forward
    latent = asked("vllm-pcp", phase="prefill", **given).ring.bytes_sent_forward
    assert wide * 576 == latent * 16 * 320


def test_a_ring_that_looks_back_ends_early() -> None:
    """lucidrains: ceil((w - 1) / n) hops, and one that brings gradients home."""
    scenario = load(
        model="gemma-2-27b",
        hardware="h100-sxm-80gb",
        phase="train",
        seq_len="16K",
        cp_size=8,
        schedule="lucidrains-ring",
    ).scenario
    row = next(row for row in estimate(scenario).communication if row.axis == "ring")
    whole = scenario.schedule.model_copy(update={"window_hops": "all"})
    more = estimate(scenario.model_copy(update={"schedule": whole})).communication
    full = next(each for each in more if each.axis == "ring")

    # 23 layers of each kind; two hops forward, two again, and three of gradients, of 7, 7, 7 and 8
    assert row.latencies * (2 * (7 + 7) + 2 * 8) > full.latencies
    assert row.bytes < full.bytes


def test_no_schedule_is_known_by_its_name() -> None:
    """Totals come from fields; a name in the code would be a rule that no file shows."""
    names = set(library.names("schedules"))
    known = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    found = [
        f"{path.name}: {match}"
        for path in PACKAGE.rglob("*.py")
        for match in known.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_file_names_project_function_and_commit() -> None:
    for name in library.names("schedules"):
        schedule = load(
            model="llama-3.1-8b", hardware="h100-sxm-80gb", seq_len="64K", schedule=name
        ).scenario.schedule
        if not schedule.implementation:
            continue
        title = schedule.source.title
        assert re.match(r"[\w-]+/[\w-]+ \S+", title), name
        assert re.search(r"@[0-9a-f]{7,}|v\d+\.\d+|no commit", title + str(schedule.source.note))
        assert str(schedule.source.url).startswith("https://github.com/"), name


def test_collective_of_needed_chunks_is_never_more() -> None:
    assert collectives.needed_bytes(sent=24, share=0.75) == 18
