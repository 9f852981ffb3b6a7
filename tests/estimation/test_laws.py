"""
Laws of the wiring: what must hold between the numbers of an estimate, by arithmetic or brute force.

The formulas have tests of their own. These find a formula that is given the wrong number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ringplan
from ringplan.estimation.metrics import metrics
from ringplan.units import MAX_TOKENS
from tests.estimation.scenarios import (
    B200,
    ETHERNET,
    FLAT,
    H100,
    MI300X,
    SCENARIOS,
    SLOW_FORWARD,
    Given,
    chosen,
    having,
    made,
    named,
    row,
    scenario,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringplan.estimation.results import Estimate
    from ringplan.specs.model import Tensor
    from ringplan.specs.scenario import Scenario

ALL = pytest.mark.parametrize("name", SCENARIOS)
RINGS = [
    name
    for name, given in SCENARIOS.items()
    if given.get("cp_size", 1) > given.get("ulysses_size", 1)
]
BEFORE_DECODE = [name for name in RINGS if SCENARIOS[name].get("phase") != "decode"]

WEIGHT_BYTES = {"bf16": Fraction(2), "fp8": Fraction(1), "mxfp4": Fraction(17, 32)}


# Memory


@ALL
def test_the_parts_of_a_rank_add_up(name: str) -> None:
    _, of = named(name)
    rank = of.memory.rank._asdict()
    answers = ("total_bytes", "capacity_bytes", "headroom_bytes", "kv_budget_bytes")
    parts = [v for key, v in rank.items() if key.endswith("_bytes") and key not in answers]
    assert sum(parts) == pytest.approx(rank["total_bytes"])
    assert rank["headroom_bytes"] == rank["capacity_bytes"] - rank["total_bytes"]
    assert all(part >= 0 for part in parts)


@ALL
def test_it_fits_if_and_only_if_the_total_is_within_the_capacity(name: str) -> None:
    read, of = named(name)
    rank = of.memory.rank
    memory = read.hardware.memory
    assert rank.capacity_bytes == pytest.approx(memory.capacity * memory.utilization)
    assert of.memory.fits == (rank.total_bytes <= rank.capacity_bytes)


def stage_layers(read: Scenario, stage: int) -> range:
    """Layers of a stage: dealt in order, the first stages one more where it does not come out."""
    layers, stages = read.model.num_hidden_layers, read.mesh.pp_size
    owner = [s for s in range(stages) for _ in range(layers // stages + (s < layers % stages))]
    return range(owner.index(stage), owner.index(stage) + owner.count(stage))


def stage_tensors(read: Scenario, stage: int) -> Iterator[tuple[Tensor, int]]:
    """Tensors of a stage, and how many of each."""
    last = read.mesh.pp_size - 1
    layers = [read.model.pattern[i] for i in stage_layers(read, stage)]
    for tensor in read.model.tensors:
        if tensor.kind is not None:
            yield tensor, layers.count(tensor.kind)
        elif tensor.stage == "tied":
            yield tensor, int(stage == last > 0)
        elif tensor.stage != "draft" and stage == (0 if tensor.stage == "first" else last):
            yield tensor, 1


def on_rank(read: Scenario, tensor: Tensor, *, zero: bool) -> Fraction:
    """Elements of one tensor on one rank."""
    mesh, heads = read.mesh, 1
    if tensor.kind is not None:
        heads = read.model.kinds[tensor.kind].num_key_value_heads
    share = {
        "none": Fraction(1),
        "tensor": Fraction(1, mesh.tp_size),
        "heads": Fraction(1, mesh.tp_size),
        "kv": Fraction(-(-heads // mesh.tp_size), heads),
        "expert": Fraction(1, mesh.tp_size * mesh.ep_size),
    }[tensor.split]
    replicas = mesh.dp_size * mesh.cp_size
    if zero:
        share /= replicas // mesh.ep_size if tensor.split == "expert" else replicas
    return tensor.parameters * share


def element_bytes(read: Scenario, tensor: Tensor) -> Fraction:
    each = WEIGHT_BYTES[read.workload.weights_dtype or read.model.weights_dtype]
    scaled = each + Fraction(read.model.scale_bytes)
    return scaled if tensor.quantized else max(scaled, Fraction(2))


def rank_weights(read: Scenario, stage: int) -> Fraction:
    zero = read.mesh.zero_stage >= 3
    return sum(
        (
            on_rank(read, tensor, zero=zero) * element_bytes(read, tensor) * copies
            for tensor, copies in stage_tensors(read, stage)
        ),
        Fraction(0),
    )


@ALL
def test_weights_of_a_rank_are_its_share_of_each_tensor_of_its_stage(name: str) -> None:
    read, of = named(name)
    rank = of.memory.rank
    assert rank.weights_bytes == pytest.approx(float(rank_weights(read, rank.stage or 0)), abs=8)


@ALL
def test_sharding_loses_no_weight(name: str) -> None:
    read, of = named(name)
    mesh, stage = read.mesh, of.memory.rank.stage or 0
    ranks = mesh.world_size // mesh.pp_size
    whole = sum(t.parameters * element_bytes(read, t) * n for t, n in stage_tensors(read, stage))
    assert ranks * of.memory.rank.weights_bytes >= float(whole) * (1 - 1e-12)


@pytest.mark.parametrize("name", having(phase="train"))
def test_sharding_loses_no_gradient_and_no_moment(name: str) -> None:
    read, of = named(name)
    mesh, rank = read.mesh, of.memory.rank
    stage = rank.stage or 0
    ranks = mesh.world_size // mesh.pp_size
    whole = sum(tensor.parameters * copies for tensor, copies in stage_tensors(read, stage))
    for state, each, from_stage in (
        (rank.gradient_bytes, 4, 2),
        (rank.optimizer_bytes, 12, 1),
    ):
        assert ranks * state >= each * whole * (1 - 1e-12)
        share = sum(
            on_rank(read, tensor, zero=mesh.zero_stage >= from_stage) * copies
            for tensor, copies in stage_tensors(read, stage)
        )
        assert state == pytest.approx(float(each * share), rel=1e-9)


def test_experts_are_not_sharded_twice_by_zero_and_expert_parallelism() -> None:
    _, of = named("qwen experts train")
    assert of.memory.rank.weights_bytes >= 235_093_634_560 * 2 / 64
    assert of.memory.rank.gradient_bytes >= 235_093_634_560 * 4 / 64
    assert of.memory.rank.optimizer_bytes >= 235_093_634_560 * 12 / 64


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
@pytest.mark.parametrize("mesh", [(1, 1, 8, 1), (8, 8, 1, 8), (4, 2, 8, 4), (2, 4, 4, 16)])
def test_no_stage_of_zero_loses_a_parameter(mesh: tuple[int, ...], zero_stage: int) -> None:
    tp_size, cp_size, dp_size, ep_size = mesh
    rank = made(
        model="qwen3-235b-a22b",
        hardware=H100,
        seq_len="32K",
        phase="train",
        tp_size=tp_size,
        cp_size=cp_size,
        dp_size=dp_size,
        ep_size=ep_size,
        zero_stage=zero_stage,
    ).memory.rank
    ranks = tp_size * cp_size * dp_size
    for state, each in (
        (rank.weights_bytes, 2),
        (rank.gradient_bytes, 4),
        (rank.optimizer_bytes, 12),
    ):
        assert ranks * state >= each * 235_093_634_560


def test_embeddings_are_on_the_first_stage_and_the_head_on_the_last() -> None:
    """Of llama-3.1-8b in 32 stages: a layer is 218,112,000 weights, the tables 525,336,576 each."""
    given: Given = {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "8K"}
    whole = made(**given).memory.rank.weights_bytes
    assert whole == 2 * (32 * 218_112_000 + 2 * 525_336_576 + 4096)
    last = made(**given, pp_size=32).memory.rank
    assert (last.stage, last.weights_bytes) == (31, 2 * (218_112_000 + 525_336_576 + 4096))
    # in 31 stages the first has two layers, and is the fullest
    first = made(**given, pp_size=31).memory.rank
    assert (first.stage, first.weights_bytes) == (0, 2 * (2 * 218_112_000 + 525_336_576))
    assert first.logits_bytes == 0
    assert last.logits_bytes == 128_256 * 4


@pytest.mark.parametrize("name", having(phase="train"))
def test_training_scores_every_token_at_ten_bytes_a_logit(name: str) -> None:
    read, of = named(name)
    mesh, rank = read.mesh, of.memory.rank
    tokens = read.workload.seq_len // mesh.cp_size * read.workload.batch_size
    assert read.model.vocab_size is not None
    last = rank.stage == mesh.pp_size - 1
    scored = tokens * -(-read.model.vocab_size // mesh.tp_size) * 10
    assert rank.logits_bytes == (scored if last else 0)


@pytest.mark.parametrize("new_tokens", [1, 4])
def test_decode_scores_every_new_token(new_tokens: int) -> None:
    of = made(**SCENARIOS["llama decode"], new_tokens=new_tokens)
    assert of.memory.rank.logits_bytes == 2 * new_tokens * (128_256 // 8) * 4


def held_tokens(read: Scenario, window: int | None) -> int:
    """Tokens of one sequence that the fullest rank holds, token by token."""
    mesh, seq_len = read.mesh, read.workload.seq_len
    ranks = mesh.cp_size
    block = -(-seq_len // ranks)
    if window is None:
        return block

    def owner(token: int) -> int:
        if mesh.partition == "striped":
            return token % ranks
        if mesh.partition == "zigzag" and mesh.ring_size > 1:
            chunk = token * 2 * ranks // seq_len
            return min(chunk, 2 * ranks - 1 - chunk)
        return token // block

    held = [0] * ranks
    for token in range(max(seq_len - window, 0), seq_len):
        held[owner(token)] += 1
    return max(held)


@pytest.mark.parametrize("name", ["llama decode", "gemma decode", "gpt-oss decode"])
def test_cache_of_the_fullest_rank_is_the_tokens_it_owns(name: str) -> None:
    read, of = named(name)
    work, tp_size = read.workload, read.mesh.tp_size
    expected = 0
    for index, kind in enumerate(read.model.kinds):
        elements = -(-kind.num_key_value_heads // tp_size) * (kind.head_dim + kind.v_head_dim)
        layers = read.model.pattern.count(index)
        expected += work.batch_size * layers * held_tokens(read, kind.window) * elements * 2
    assert of.memory.rank.kv_bytes == expected


# What fits


def with_seq_len(name: str, seq_len: int) -> Estimate:
    return made(**{**SCENARIOS[name], "seq_len": seq_len})


def legal_step(read: Scenario) -> int:
    mesh = read.mesh
    if read.workload.phase == "decode" or mesh.cp_size == 1:
        return 1
    return mesh.cp_size * (2 if mesh.partition == "zigzag" and mesh.ring_size > 1 else 1)


@ALL
def test_the_longest_context_fits_and_one_legal_step_more_does_not(name: str) -> None:
    read, of = named(name)
    longest, step = of.memory.max_seq_len, legal_step(read)
    if longest is None:  # memory does not bound it
        assert with_seq_len(name, MAX_TOKENS).memory.fits
    elif longest:
        assert with_seq_len(name, longest).memory.fits
        assert not with_seq_len(name, longest + step).memory.fits
    else:
        cached = read.workload.split[0]
        shortest = 2 if read.workload.phase == "decode" else cached + step
        assert not with_seq_len(name, shortest).memory.fits


def test_some_of_the_longest_contexts_are_there() -> None:
    assert sum(bool(named(name)[1].memory.max_seq_len) for name in SCENARIOS) >= 12


def with_ranks(name: str, cp_size: int) -> Estimate:
    return made(**{**SCENARIOS[name], "cp_size": cp_size})


@pytest.mark.parametrize("name", having(ep_size=1))
def test_the_smallest_mesh_fits_and_no_smaller_one_does(name: str) -> None:
    read, of = named(name)
    least, exchange = of.memory.min_cp_size, read.mesh.ulysses_size
    if least is None:
        assert not with_ranks(name, 1024 * exchange).memory.fits
        return
    assert least % exchange == 0
    assert with_ranks(name, least).memory.fits
    smaller = range(exchange, least, exchange)
    for ranks in {*smaller[-3:], *smaller[:3]}:
        assert not with_ranks(name, ranks).memory.fits, ranks


@pytest.mark.parametrize("seq_len", ["16M", "64M"])
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("ulysses_size", [1, 4])
def test_the_smallest_mesh_is_found_from_one_that_does_not_fit(
    phase: str, seq_len: str, ulysses_size: int
) -> None:
    given: Given = {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": seq_len,
        "phase": phase,
        "ulysses_size": ulysses_size,
        "tp_size": 2,
        "pp_size": 3,
        "zero_stage": 3,
    }
    least = made(**given, cp_size=ulysses_size).memory.min_cp_size
    assert least is not None
    assert least > ulysses_size
    assert made(**given, cp_size=least).memory.fits
    assert not made(**given, cp_size=least - ulysses_size).memory.fits


def stage_kv_bytes(read: Scenario, stage: int) -> int:
    """Cache of a rank of a stage."""
    work, mesh = read.workload, read.mesh
    each = {"fp8": 1, "bf16": 2}[work.kv_dtype or "bf16"]
    total = 0
    for layer in stage_layers(read, stage):
        kind = read.model.kinds[read.model.pattern[layer]]
        elements = kind.latent_dim or -(-kind.num_key_value_heads // mesh.tp_size) * (
            kind.head_dim + kind.v_head_dim
        )
        total += work.batch_size * held_tokens(read, kind.window) * elements * each
    return total


def kv_tokens(read: Scenario, of: Estimate, stage: int) -> int:
    """Tokens that the free memory of a rank of a stage holds; buffers are alike on all stages."""
    rank, work = of.memory.rank, read.workload
    logits = rank.logits_bytes if stage == rank.stage else 0
    working = rank.activation_bytes + logits
    grows = work.phase == "decode"  # each sequence has tokens in flight
    beside = rank.ring_buffer_bytes + rank.overhead_bytes + (0 if grows else working)
    free = rank.capacity_bytes - float(rank_weights(read, stage)) - beside
    held = stage_kv_bytes(read, stage) + (working if grows else 0)
    replica = math.floor(Fraction(max(free, 0)) * work.batch_size * work.seq_len / held)
    return read.mesh.dp_size * replica


@pytest.mark.parametrize(
    "name", [name for name in SCENARIOS if SCENARIOS[name].get("phase") != "train"]
)
def test_tokens_of_cache_are_what_the_stage_with_the_least_room_holds(name: str) -> None:
    read, of = named(name)
    least = min(kv_tokens(read, of, stage) for stage in range(read.mesh.pp_size))
    assert of.memory.kv_tokens == pytest.approx(least, abs=read.mesh.dp_size)
    assert math.floor(of.memory.max_concurrency) == of.memory.max_sequences


def test_tokens_of_cache_are_those_of_the_first_stage_where_it_has_a_layer_more() -> None:
    """The last stage, the fullest, would hold 57,057,646."""
    _, of = named("r1 stages")
    assert of.memory.rank.stage == 3
    assert of.memory.kv_tokens == 54_642_734


@pytest.mark.parametrize(
    "given",
    [
        SCENARIOS["llama decode"],
        {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "32K", "phase": "decode"},
        {
            "model": "qwen3-8b",
            "hardware": "l40s",
            "seq_len": "128K",
            "phase": "decode",
            "cp_size": 4,
            "pp_size": 5,
            "set": ETHERNET,
        },
        SCENARIOS["gemma decode"],
        SCENARIOS["r1 decode"],
        {
            "model": "llama-3.1-8b",
            "hardware": H100,
            "seq_len": "4K",
            "phase": "decode",
            "pp_size": 3,
            "batch_size": 3,
        },
        {
            "model": "llama-3.1-70b",
            "hardware": B200,
            "seq_len": "8K",
            "phase": "decode",
            "cp_size": 8,
            "tp_size": 2,
        },
        {
            "model": "llama-3.1-8b",
            "hardware": H100,
            "seq_len": "64K",
            "phase": "decode",
            "cp_size": 2,
            "batch_size": 5,
            "kv_dtype": "fp8",
        },
    ],
    ids=lambda given: f"{given['model']} {given['seq_len']} {given.get('pp_size', 1)} stages",
)
def test_as_many_sequences_as_are_said_to_fit_do_and_one_more_does_not(given: Given) -> None:
    most = math.floor(made(**given).memory.max_concurrency)
    assert most >= 1
    assert made(**{**given, "batch_size": most}).memory.fits
    assert not made(**{**given, "batch_size": most + 1}).memory.fits


def test_training_keeps_no_cache() -> None:
    for name in having(phase="train"):
        _, of = named(name)
        assert (of.memory.rank.kv_bytes, of.memory.kv_tokens, of.memory.max_concurrency) == (
            0,
            None,
            None,
        )


# The ring's steps


def positions(seq_len: int, ranks: int, partition: str) -> list[list[int]]:
    """Tokens of each rank."""
    block, half = seq_len // ranks, seq_len // ranks // 2
    if partition == "striped":
        return [list(range(r, seq_len, ranks)) for r in range(ranks)]
    if partition == "contiguous":
        return [list(range(r * block, (r + 1) * block)) for r in range(ranks)]
    late = [2 * ranks - 1 - r for r in range(ranks)]
    return [
        [*range(r * half, (r + 1) * half), *range(z * half, (z + 1) * half)]
        for r, z in enumerate(late)
    ]


def pairs(queries: Iterable[int], keys: Iterable[int]) -> int:
    keys = list(keys)
    return sum(k <= q for q in queries for k in keys)


@pytest.mark.parametrize("partition", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize(("seq_len", "ranks"), [(32, 2), (48, 4), (64, 8)])
def test_a_step_has_the_pairs_of_the_busiest_rank_counted_one_by_one(
    partition: str, seq_len: int, ranks: int
) -> None:
    of = made(
        model="article-mha",
        hardware=H100,
        seq_len=seq_len,
        cp_size=ranks,
        partition=partition,
        set=FLAT,
    )
    held = positions(seq_len, ranks, partition)
    steps = [
        max(pairs(held[r], held[(r - step) % ranks]) for r in range(ranks)) for step in range(ranks)
    ]
    assert of.ring.step_flops == 2 * 32 * (128 + 128) * max(steps[1:])
    work = sum(pairs(queries, keys) for queries in held for keys in held)
    assert work == seq_len * (seq_len + 1) // 2
    exact = getattr(of.utilization, partition).exact
    assert exact == pytest.approx(work / (ranks * (steps[0] + sum(steps[1:]))), rel=1e-12)
    first, rate = of.timeline[0].compute_time, of.timeline[-1].compute_time / max(steps[1:])
    assert first == pytest.approx(steps[0] * rate, rel=1e-12)


@pytest.mark.parametrize("cached_len", [0, 3000])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-r1"])
def test_one_rank_alone_does_all_visible_pairs_in_its_step(model: str, cached_len: int) -> None:
    given: Given = {"model": model, "hardware": H100, "seq_len": 8192, "batch_size": 3}
    of = made(**given, cached_len=cached_len)
    heads, dims = {"llama-3.1-8b": (32, 256), "deepseek-r1": (128, 320)}[model]
    new = 8192 - cached_len
    visible = new * cached_len + new * (new + 1) // 2
    assert of.ring.step_flops == 3 * 2 * heads * dims * visible


@pytest.mark.parametrize("name", BEFORE_DECODE)
def test_a_pass_is_its_steps_and_what_they_expose(name: str) -> None:
    read, of = named(name)
    ring, ranks = of.ring, read.mesh.ring_size
    assert sum(step.num_steps for step in of.timeline) == ranks
    steps = [step for step in of.timeline for _ in range(step.num_steps)]
    busy = sum(step.compute_time for step in steps)
    exposed = ring.exposed_time
    if read.workload.phase == "train":  # that of the whole step, of which this is the forward part
        exposed = ring.time_forward - busy
        assert exposed <= ring.exposed_time + 1e-12
    assert ring.time_forward == pytest.approx(busy + exposed, rel=1e-12)
    assert {step.compute_time for step in steps[1:]} == {ring.step_attention_time}
    if read.mesh.ulysses_size == 1:
        late = sum(max(ring.hop_time - step.compute_time, 0) for step in steps[:-1])
        assert exposed == pytest.approx(late, rel=1e-9, abs=1e-12)


@ALL
def test_a_pass_is_no_shorter_than_a_step(name: str) -> None:
    ring = named(name)[1].ring
    assert ring.time_forward >= ring.step_attention_time


def link_of(read: Scenario, name: str, message: float) -> tuple[float, float, float]:
    """Nominal bandwidth of a neighbour pair, that of a message of this size, and latency."""
    hardware = read.hardware
    table = getattr(hardware.efficiency, name)
    share = np.interp(np.log2(message), np.log2([size for size, _ in table]), [s for _, s in table])
    if name == "scale_up":
        nominal = hardware.scale_up.pair_bandwidth_per_direction
        latency = hardware.scale_up.latency
    else:
        nominal = hardware.scale_out.bandwidth_per_direction
        latency = hardware.scale_out.latency
    assert nominal is not None
    assert latency is not None
    return nominal, nominal * float(share), latency


@pytest.mark.parametrize("name", RINGS)
def test_a_margin_is_the_step_over_the_hop_at_achieved_and_at_nominal_rates(name: str) -> None:
    read, of = named(name)
    ring, work = of.ring, read.workload
    nominal, achieved, latency = link_of(read, ring.link or "", ring.hop_bytes)
    assert ring.hop_time == pytest.approx(latency + ring.hop_bytes / achieved, rel=1e-12)
    assert ring.overlap_margin == pytest.approx(ring.step_attention_time / ring.hop_time)
    step = ring.step_flops / getattr(read.hardware.peak, work.activation_dtype)
    if work.phase == "decode":
        step = max(step, ring.hop_bytes / read.hardware.memory.bandwidth)
    assert ring.overlap_margin_nominal == pytest.approx(step / (ring.hop_bytes / nominal))


@pytest.mark.parametrize("name", RINGS)
def test_a_ring_crosses_domains_exactly_if_it_does_not_lie_inside_one(name: str) -> None:
    read, of = named(name)
    mesh, domain = read.mesh, read.hardware.scale_up.domain_size
    span = mesh.tp_size * mesh.cp_size
    groups = [range(start, start + span) for start in range(0, mesh.world_size, span)]
    inside = all(group[0] // domain == group[-1] // domain for group in groups)
    assert of.ring.link == ("scale_up" if inside else "scale_out")


@pytest.mark.parametrize("model", ["llama-3.1-8b", "article-mha"])
@pytest.mark.parametrize("ranks", [4, 8])
def test_a_striped_step_is_one_token_in_n_longer_than_a_zigzag_one(model: str, ranks: int) -> None:
    given: Given = {
        "model": model,
        "hardware": H100,
        "seq_len": "32K",
        "cp_size": ranks,
        "set": FLAT,
    }
    block = 32_768 // ranks
    striped = made(**given, partition="striped").ring
    zigzag = made(**given, partition="zigzag").ring
    assert striped.step_flops * block == zigzag.step_flops * (block + 1)
    assert striped.overlap_margin == pytest.approx(zigzag.overlap_margin * (block + 1) / block)


# Verdict and the smallest blocks


def judged(read: Scenario, of: Estimate) -> float:
    margins = [of.ring.overlap_margin]
    if read.workload.phase == "train":
        margins.append(of.ring.overlap_margin_backward)
    return float(min(margins))


@pytest.mark.parametrize("name", RINGS)
def test_a_verdict_goes_by_the_worse_of_the_passes(name: str) -> None:
    read, of = named(name)
    worst = judged(read, of)
    expected = "hidden" if worst >= 1.25 else "marginal" if worst >= 1 else "stalled"
    assert of.ring.verdict == expected


def test_a_backward_pass_that_stalls_makes_training_stall_and_nothing_else() -> None:
    given: Given = {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "128K",
        "cp_size": 16,
        "set": SLOW_FORWARD,
    }
    training, prefill = made(**given, phase="train").ring, made(**given).ring
    assert training.overlap_margin == prefill.overlap_margin
    assert training.overlap_margin > 1.25
    assert training.overlap_margin_backward < 1
    assert (training.verdict, prefill.verdict) == ("stalled", "hidden")


@pytest.mark.parametrize("name", having(phase="train"))
def test_a_backward_step_is_three_and_two_products_over_two_blocks(name: str) -> None:
    """Five products of matrices backward, two forward; K, V, dK and dV on the wire."""
    given = {**SCENARIOS[name], "set": FLAT}
    read, of = scenario(**given), made(**given)
    ring, kind = of.ring, read.model.kinds[-1]
    forward = ring.step_flops
    backward = forward * (3 * kind.head_dim + 2 * kind.v_head_dim)
    backward /= kind.head_dim + kind.v_head_dim
    _, achieved, latency = link_of(read, ring.link or "", 2 * ring.hop_bytes)
    hop = latency + 2 * ring.hop_bytes / achieved
    rate = read.hardware.peak.bf16 * 0.5  # type: ignore[operator]
    assert ring.overlap_margin_backward == pytest.approx(backward / rate / hop, rel=1e-9)


def scaled(name: str, block: int) -> tuple[Scenario, Estimate]:
    given = {**SCENARIOS[name], "seq_len": block * SCENARIOS[name]["cp_size"]}
    read = scenario(**given)
    return read, made(**given)


@pytest.mark.parametrize("name", [n for n in BEFORE_DECODE if "cached_len" not in SCENARIOS[n]])
@pytest.mark.parametrize(
    ("field", "wanted"), [("min_block_tokens", 1.0), ("min_block_tokens_hidden", 1.25)]
)
def test_the_smallest_block_hides_its_hop_and_the_next_smaller_does_not(
    name: str, field: str, wanted: float
) -> None:
    read, of = named(name)
    block = getattr(of.ring, field)
    granule = 2 if read.mesh.partition == "zigzag" else 1
    assert block % granule == 0
    for larger in (block, 2 * block):
        assert judged(*scaled(name, larger)) >= wanted
    assert judged(*scaled(name, block - granule)) < wanted


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-r1"])
@pytest.mark.parametrize("partition", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_the_smallest_block_over_a_prefix_hides_what_travels_in_its_own_format(
    model: str, partition: str, dtype: str
) -> None:
    """A quarter of each block is new."""
    given: Given = {
        "model": model,
        "hardware": H100,
        "cp_size": 8,
        "tp_size": 8,
        "kv_dtype": dtype,
        "partition": partition,
    }

    def margin(block: int) -> float:
        return float(made(**given, seq_len=8 * block, cached_len=6 * block).ring.overlap_margin)

    ring = made(**given, seq_len="128K", cached_len="96K").ring
    block = ring.min_block_tokens
    assert margin(-(-block // 8) * 8) >= 1
    assert margin(block // 8 * 8 - 8) < 1


@pytest.mark.parametrize("partition", ["contiguous", "zigzag", "striped"])
def test_the_smallest_block_is_exact_to_the_token(partition: str) -> None:
    """Where a block is a few tokens, half a diagonal more or less is a token."""
    for peak in range(1, 42, 2):
        given: Given = {
            "model": "llama-3.1-8b",
            "hardware": H100,
            "cp_size": 8,
            "partition": partition,
            "set": {
                "hardware.peak.bf16": f"{peak} TFLOP/s",
                "hardware.scale_up.latency": "0 us",
                "hardware.efficiency.attention_forward": 0.5,
            },
        }
        granule = 2 if partition == "zigzag" else 1
        block = made(**given, seq_len=1024).ring.min_block_tokens
        assert made(**given, seq_len=8 * block).ring.overlap_margin >= 1
        if block > granule:
            assert made(**given, seq_len=8 * (block - granule)).ring.overlap_margin < 1


RING_LIMITS: dict[str, Given] = {
    "llama cp 8": {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "32K", "cp_size": 8},
    "llama cp 16": {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "32K", "cp_size": 16},
    "llama striped": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "256K",
        "cp_size": 8,
        "partition": "striped",
    },
    "llama long": {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "1M", "cp_size": 64},
    "llama train": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "512K",
        "cp_size": 16,
        "phase": "train",
        "zero_stage": 3,
    },
    "backward worse": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "512K",
        "cp_size": 16,
        "phase": "train",
        "zero_stage": 3,
        "set": SLOW_FORWARD,
    },
    "tensor parallel": {
        "model": "llama-3.1-70b",
        "hardware": H100,
        "seq_len": "512K",
        "cp_size": 4,
        "tp_size": 8,
    },
    "gpt-oss": {"model": "gpt-oss-120b", "hardware": B200, "seq_len": "512K", "cp_size": 8},
    "hybrid": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "1M",
        "cp_size": 16,
        "ulysses_size": 8,
    },
    "l40s": {
        "model": "qwen3-8b",
        "hardware": "l40s",
        "seq_len": "256K",
        "cp_size": 16,
        "set": ETHERNET,
    },
    "quantised prefix": {
        "model": "llama-3.1-70b",
        "hardware": H100,
        "seq_len": "512K",
        "cached_len": "384K",
        "cp_size": 16,
        "tp_size": 8,
        "kv_dtype": "fp8",
    },
    "pair of mi300x": {
        "model": "llama-3.1-8b",
        "hardware": MI300X,
        "seq_len": "128K",
        "cp_size": 8,
    },
}


@pytest.mark.parametrize("name", RING_LIMITS)
def test_the_largest_ring_hides_and_the_next_power_of_two_does_not(name: str) -> None:
    given = RING_LIMITS[name]
    most, exchange = made(**given).ring.max_cp_size, given.get("ulysses_size", 1)
    assert most % exchange == 0
    floor = exchange * 2 ** int(math.log2(most // exchange))
    for ranks in {most, floor}:
        ring = made(**{**given, "cp_size": ranks}).ring
        assert ring.verdict in ("hidden", "none"), (ranks, ring.overlap_margin)
    ring = made(**{**given, "cp_size": 2 * floor}).ring
    assert ring.verdict in ("marginal", "stalled"), (2 * floor, ring.overlap_margin)


@pytest.mark.parametrize("name", RING_LIMITS)
def test_both_ends_of_the_window_fit_and_hide(name: str) -> None:
    given = RING_LIMITS[name]
    window = ringplan.estimate(**given).summary.cp_sizes
    if window is None:
        of = made(**given)
        assert of.memory.min_cp_size is None or of.memory.min_cp_size > of.ring.max_cp_size
        return
    assert window[0] <= window[1]
    for ranks in window:
        of = made(**{**given, "cp_size": ranks})
        assert of.memory.fits
        assert of.ring.verdict in ("hidden", "none")


#: Domains that the ranks of a ring do not fill evenly: 72 devices, and 8,960.
UNEVEN: dict[str, Given] = {
    "64 of 72": {
        "model": "deepseek-r1",
        "hardware": "gb200-nvl72",
        "seq_len": "64K",
        "cached_len": "48K",
        "cp_size": 4,
        "ulysses_size": 2,
        "tp_size": 8,
        "pp_size": 5,
        "dp_size": 2,
    },
    "72 of 72": {
        "model": "qwen3-8b",
        "hardware": "gb200-nvl72",
        "seq_len": "512K",
        "cp_size": 2,
        "dp_size": 2,
    },
    "pod": {
        "model": "llama-3.1-70b",
        "hardware": "tpu-v5p",
        "seq_len": "256K",
        "cp_size": 8,
        "tp_size": 8,
        "pp_size": 8,
        "dp_size": 2,
    },
}


@pytest.mark.parametrize("name", UNEVEN)
def test_the_largest_ring_hides_where_its_ranks_would_straddle_domains(name: str) -> None:
    given = UNEVEN[name]
    most = made(**given).ring.max_cp_size
    ring = made(**{**given, "cp_size": most}).ring
    assert ring.verdict in ("hidden", "none"), (most, ring.overlap_margin, ring.link)


@pytest.mark.parametrize("name", UNEVEN)
def test_the_window_hides_where_its_ranks_would_straddle_domains(name: str) -> None:
    given = UNEVEN[name]
    for ranks in ringplan.estimate(**given).summary.cp_sizes or ():
        ring = made(**{**given, "cp_size": ranks}).ring
        assert ring.verdict in ("hidden", "none"), (ranks, ring.overlap_margin, ring.link)


# The same ranks, used another way


PREFILLED = [name for name in BEFORE_DECODE if SCENARIOS[name]["cp_size"] > 1]


@pytest.mark.parametrize("name", PREFILLED)
def test_one_alternative_is_the_best_and_it_is_the_fastest_that_runs_and_fits(name: str) -> None:
    """One of the implementations, and one of the ways that mathematics has."""
    _, of = named(name)
    for real in (True, False):
        rows = [each for each in of.alternatives if each.implementation is real]
        able = [each for each in rows if each.feasible and each.fits]
        best = [each for each in rows if each.best]
        assert len(best) == bool(able)
        if best:
            assert best[0] in able
            assert best[0].time == min(each.time for each in able)


def test_the_best_alternative_is_not_always_the_same() -> None:
    best = {
        each.comm_type for name in PREFILLED for each in named(name)[1].alternatives if each.best
    }
    assert len(best) >= 2


@pytest.mark.parametrize("name", PREFILLED)
def test_the_layout_itself_is_among_the_alternatives_with_its_own_numbers(name: str) -> None:
    read, of = named(name)
    own, ring = chosen(read, of), of.ring
    assert own.ring_size == read.mesh.ring_size
    assert own.bytes_sent_forward == ring.bytes_sent_forward
    assert own.bytes_sent_backward == ring.bytes_sent_backward
    assert own.memory_bytes == pytest.approx(of.memory.rank.total_bytes, rel=1e-12)
    assert own.fits == of.memory.fits
    if own.feasible:
        assert own.time_forward == pytest.approx(ring.time_forward, rel=1e-12)
        assert own.exposed_time == pytest.approx(ring.exposed_time, rel=1e-12)


@pytest.mark.parametrize("name", PREFILLED)
def test_an_alternative_is_what_the_same_question_says_when_asked(name: str) -> None:
    _, of = named(name)
    for each in of.alternatives:
        gathered = each.comm_type == "all_gather" and not each.implementation
        if gathered or not each.feasible:
            continue
        layout = {
            "ulysses_size": each.ulysses_size,
            "partition": each.partition,
            "schedule": each.schedule,
        }
        there = made(**{**SCENARIOS[name], **layout})
        assert each.bytes_sent_forward == there.ring.bytes_sent_forward
        assert each.bytes_sent_backward == there.ring.bytes_sent_backward
        assert each.time_forward == pytest.approx(there.ring.time_forward, rel=1e-12)
        assert each.memory_bytes == pytest.approx(there.memory.rank.total_bytes, rel=1e-9)


# Communication by axis


@pytest.mark.parametrize("name", having(phase="train"))
def test_training_sends_three_times_the_ring_bytes_of_a_prefill(name: str) -> None:
    """K and V, K and V again, dK and dV: the schedule `ideal`; recomputed, K and V once more."""
    prefill = made(**{**SCENARIOS[name], "phase": "prefill"})
    for recompute, times in (("none", 3), ("selective", 3), ("full", 4)):
        training = made(**{**SCENARIOS[name], "recompute": recompute})
        assert row(training, "ring").bytes == times * row(prefill, "ring").bytes
        assert training.ring.bytes_sent_backward == 2 * training.ring.bytes_sent_forward
        assert training.ring.bytes_sent_step == times * training.ring.bytes_sent_forward
        assert training.ring.bytes_sent_all_layers == times * prefill.ring.bytes_sent_all_layers


@pytest.mark.parametrize(("axis", "size"), [("tp", "tp_size"), ("pp", "pp_size")])
def test_training_sends_the_activations_forward_and_their_gradients_back(
    axis: str, size: str
) -> None:
    """A stage keeps its inputs; all-reduces are done again where a layer is recomputed."""
    given: Given = {"model": "llama-3.1-8b", "hardware": H100, "seq_len": "32K", size: 8}
    prefill = row(made(**given), axis)
    for recompute, times in (("none", 2), ("full", 3 if axis == "tp" else 2)):
        training = row(made(**given, phase="train", recompute=recompute), axis)
        assert training.bytes == times * prefill.bytes
        assert training.latencies == times * prefill.latencies
    once = 32_768 * 4096 * 2
    assert prefill.bytes == (2 * 32 * 2 * 7 * once // 8 if axis == "tp" else once)


def test_training_exchanges_experts_twice_as_often() -> None:
    given = {**SCENARIOS["qwen experts train"], "recompute": "none"}
    training, prefill = made(**given), made(**{**given, "phase": "prefill"})
    once = 2 * 94 * 7 * (8192 * 8 * 4096 * 2) // 8
    assert (row(prefill, "ep").bytes, row(training, "ep").bytes) == (once, 2 * once)
    assert row(made(**{**given, "recompute": "full"}), "ep").bytes == 3 * once


@pytest.mark.parametrize(("ep_size", "link"), [(8, "scale_up"), (16, "scale_out")])
def test_experts_spread_over_a_box_are_reached_inside_it(ep_size: int, link: str) -> None:
    of = made(model="qwen3-235b-a22b", hardware=H100, seq_len="8K", dp_size=64, ep_size=ep_size)
    assert row(of, "ep").link == link


def test_a_stage_hands_over_to_one_neighbour_at_the_bandwidth_of_one_pair() -> None:
    given: Given = {"model": "llama-3.1-8b", "hardware": MI300X, "seq_len": "32K", "pp_size": 8}
    handed = row(made(**given), "pp")
    assert (handed.link, handed.bytes) == ("scale_up", 32_768 * 4096 * 2)
    assert handed.time == pytest.approx(handed.bytes / (64e9 * 0.75) + 10e-6, rel=1e-12)


@pytest.mark.parametrize(("phase", "ways"), [("prefill", 1), ("train", 2)])
def test_sharded_parameters_are_gathered_layer_by_layer(phase: str, ways: int) -> None:
    of = made(
        model="llama-3.1-8b",
        hardware=H100,
        seq_len="32K",
        phase=phase,
        cp_size=4,
        dp_size=2,
        zero_stage=3,
    )
    gathered = row(of, "fsdp")
    assert gathered.latencies >= ways * 32 * 7
    assert gathered.bytes == pytest.approx(ways * 7 / 8 * 2 * 8_030_261_248, rel=1e-9)


def test_a_box_gathers_over_all_its_links_and_a_ring_hops_over_one() -> None:
    given: Given = {"model": "llama-3.1-8b", "hardware": MI300X, "seq_len": "64K"}
    ring = made(**given, cp_size=8).ring
    assert ring.hop_time == pytest.approx(ring.hop_bytes / (64e9 * 0.75) + 10e-6)
    reduced = row(made(**given, tp_size=8), "tp")
    assert reduced.time == pytest.approx(reduced.bytes / (448e9 * 0.75) + reduced.latencies * 10e-6)


# Decode and cached prefixes


@pytest.mark.parametrize(
    ("name", "heads", "query", "output"),
    [
        ("llama decode", 64 // 8, 128, 128),
        ("gpt-oss decode", 64, 64, 64),
        ("gemma decode", 32, 128, 128),
        ("r1 decode", 128 // 8, 576, 512),
    ],
)
def test_a_cache_that_stays_exchanges_queries_and_partial_outputs(
    name: str, heads: int, query: int, output: int
) -> None:
    """A query of 16 bits out; an output, a maximum and a denominator of 32 bits back."""
    batch = SCENARIOS[name].get("batch_size", 1)
    sent = batch * heads * (query * 2 + output * 4 + 8)
    assert named(name)[1].decode.stationary_kv.bytes_sent == sent
    several = made(**SCENARIOS[name], new_tokens=3)
    assert several.decode.stationary_kv.bytes_sent == 3 * sent


@pytest.mark.parametrize("name", having(phase="decode"))
def test_a_cache_is_read_once_from_memory(name: str) -> None:
    read, of = named(name)
    work, mesh = read.workload, read.mesh
    kind = read.model.kinds[-1]
    elements = kind.latent_dim or -(-kind.num_key_value_heads // mesh.tp_size) * (
        kind.head_dim + kind.v_head_dim
    )
    shard = work.batch_size * (work.seq_len // mesh.cp_size) * elements * 2
    rate = read.hardware.memory.bandwidth * read.hardware.efficiency.memory
    assert of.decode.kv_read_time == pytest.approx(shard / rate, rel=1e-12)
    assert of.decode.rotate_kv.bytes_sent == (mesh.cp_size - 1) * shard


@pytest.mark.parametrize("name", having(phase="decode"))
def test_a_step_of_decode_is_bound_by_arithmetic_or_by_memory(name: str) -> None:
    """One query token runs at the efficiency of the smallest size measured."""
    read, of = named(name)
    hardware = read.hardware
    peak = getattr(hardware.peak, read.workload.activation_dtype)
    compute = of.ring.step_flops / (peak * hardware.efficiency.attention_forward[0][1])
    expected = max(compute, of.decode.kv_read_time)
    assert of.ring.step_attention_time == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt-oss decode", "gemma decode", "llama decode"])
def test_a_rank_moves_no_more_cache_than_it_holds_times_the_hops(name: str) -> None:
    read, of = named(name)
    hops = read.mesh.cp_size - 1
    assert of.ring.bytes_sent_all_layers <= of.memory.rank.kv_bytes * hops


def test_expanded_heads_of_a_latent_cache_travel_as_activations_whatever_the_cache_is() -> None:
    """16,384 tokens x 16 heads x (192 + 128) x 2 bytes."""
    given: Given = {
        "model": "deepseek-r1",
        "hardware": B200,
        "seq_len": "128K",
        "cached_len": "120K",
        "tp_size": 8,
        "cp_size": 8,
    }
    for dtype in ("fp8", "bf16"):
        assert made(**given, kv_dtype=dtype).ring.hop_bytes == 167_772_160


@pytest.mark.parametrize(("dtype", "each"), [("fp8", 1), ("bf16", 2)])
def test_cached_heads_travel_in_the_format_of_the_cache(dtype: str, each: int) -> None:
    given: Given = {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "128K",
        "cp_size": 8,
        "kv_dtype": dtype,
    }
    assert made(**given, cached_len="120K").ring.hop_bytes == 16_384 * 8 * 256 * each
    assert made(**given).ring.hop_bytes == 16_384 * 8 * 256 * 2


# Findings, explanations, repetition


def test_idle_ranks_of_a_hybrid_are_those_of_its_ring() -> None:
    """Two ranks in the ring: (S + 1) / (2 S - S/2 + 1), two thirds."""
    found = ringplan.estimate(**SCENARIOS["llama hybrid"]).findings
    message = next(each.message for each in found if each.code == "RP203")
    assert "66.7 %" in message


@ALL
def test_the_same_question_has_the_same_answer(name: str) -> None:
    assert made(**SCENARIOS[name]) == named(name)[1]


@ALL
def test_explained_numbers_are_the_estimated_ones(name: str) -> None:
    known = ringplan.explain(**SCENARIOS[name])
    plain = {m.name: m.value for m in metrics(named(name)[1])}
    assert {metric: known[metric].value for metric in known} == {
        metric: plain[metric] for metric in known
    }


@pytest.mark.parametrize("name", ["llama prefill", "r1 prefill", "gpt-oss decode"])
def test_more_context_never_takes_less_memory(name: str) -> None:
    totals = [with_seq_len(name, 2**k).memory.rank.total_bytes for k in range(12, 22)]
    assert all(shorter <= longer for shorter, longer in pairwise(totals))


def test_the_scenarios_are_as_diverse_as_they_should_be() -> None:
    def values(field: str, default: Any) -> set[Any]:
        return {given.get(field, default) for given in SCENARIOS.values()}

    assert values("phase", "prefill") == {"prefill", "decode", "train"}
    assert values("partition", "zigzag") == {"contiguous", "zigzag", "striped"}
    assert values("zero_stage", 0) == {0, 1, 2, 3}
    assert len(values("hardware", None)) >= 5
    assert len(values("model", None)) >= 7
