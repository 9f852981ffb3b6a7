"""Each rule speaks of the scenario that it is about, and is silent once that is mended."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

import ringplan
from ringplan.checks import RULES
from ringplan.feasibility import CODES

Given = dict[str, Any]

LLAMA: Given = {"model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "seq_len": "128K"}
QWEN: Given = {**LLAMA, "model": "qwen3-235b-a22b"}
GEMMA: Given = {**LLAMA, "model": "gemma-2-27b"}
DECODE: Given = {**LLAMA, "phase": "decode"}
TRAIN: Given = {**LLAMA, "phase": "train", "zero_stage": 3, "cp_size": 16}
SIX_GROUPS = {
    "model.num_attention_heads": 24,
    "model.num_key_value_heads": 6,
    "model.head_dim": 128,
}
RING_FIRST = {"mesh.order": ["ring", "ulysses", "tp", "dp", "pp"]}
DATA_FIRST = {"mesh.order": ["dp", "tp", "ulysses", "ring", "pp"]}
ONE_CARD = {"hardware.scale_out.cards_per_node": 1}
SLOW_FORWARD = {
    "hardware.efficiency.attention_forward": 0.3,
    "hardware.efficiency.attention_backward": 1.0,
}

#: Code, what it speaks of, what it does not speak of.
R1 = {"model": "deepseek-r1", "hardware": "h200-sxm-141gb", "seq_len": "128K"}
#: A config that gives what a cache depends on, and nothing else.
PARTIAL = {
    **LLAMA,
    "model": None,
    "set": {
        "model.model_type": "llama",
        "model.num_hidden_layers": 32,
        "model.num_key_value_heads": 8,
        "model.head_dim": 128,
    },
}
SHARED: Given = {**LLAMA, "cp_size": 8}
MEGATRON: Given = {**SHARED, "schedule": "megatron-p2p"}
ZIGZAG: Given = {**SHARED, "schedule": "ring-flash-attention-zigzag"}


def documents(lengths: dict[int, int]) -> Given:
    """Pack documents: length to how many."""
    tokens = sum(length * count for length, count in lengths.items())
    return {"seq_len": tokens, "document_lengths": lengths}


CASES: list[tuple[str, Given, Given]] = [
    (
        "RP101",
        {**LLAMA, "seq_len": 100_001, "cp_size": 8},
        {**LLAMA, "seq_len": 100_016, "cp_size": 8},
    ),
    (
        "RP101",
        {**LLAMA, "seq_len": 100_008, "cp_size": 8},
        {**LLAMA, "seq_len": 100_008, "cp_size": 8, "partition": "striped"},
    ),
    (
        "RP101",
        {**LLAMA, "seq_len": 100_008, "cp_size": 8},
        {**LLAMA, "seq_len": 100_008, "cp_size": 8, "ulysses_size": 8},
    ),
    (
        "RP101",
        {**LLAMA, "cached_len": 50_001, "cp_size": 8},
        {**LLAMA, "cached_len": 50_000, "cp_size": 8},
    ),
    (
        "RP101",
        {**LLAMA, "seq_len": 100_001, "cp_size": 8},
        {**DECODE, "seq_len": 100_001, "cp_size": 8},
    ),
    ("RP102", {**LLAMA, "tp_size": 3}, {**LLAMA, "tp_size": 4}),
    (
        "RP103",
        {**LLAMA, "tp_size": 4, "set": SIX_GROUPS},
        {**LLAMA, "tp_size": 2, "set": SIX_GROUPS},
    ),
    (
        "RP103",
        {**LLAMA, "tp_size": 4, "set": SIX_GROUPS},
        {**LLAMA, "tp_size": 12, "set": SIX_GROUPS},
    ),
    (
        "RP104",
        {**LLAMA, "cp_size": 64, "ulysses_size": 64},
        {**LLAMA, "cp_size": 64, "ulysses_size": 8},
    ),
    (
        "RP105",
        {**LLAMA, "cp_size": 16, "ulysses_size": 16},
        {**LLAMA, "cp_size": 16, "ulysses_size": 8},
    ),
    (
        "RP105",
        {**LLAMA, "cp_size": 8, "ulysses_size": 8, "tp_size": 2},
        {**LLAMA, "cp_size": 8, "ulysses_size": 4, "tp_size": 2},
    ),
    ("RP106", {**LLAMA, "pp_size": 33}, {**LLAMA, "pp_size": 32}),
    ("RP107", {**QWEN, "dp_size": 3, "ep_size": 3}, {**QWEN, "dp_size": 4, "ep_size": 4}),
    ("RP107", {**LLAMA, "dp_size": 2, "ep_size": 2}, {**LLAMA, "dp_size": 2}),
    (
        "RP108",
        {**LLAMA, "pp_size": 2, "pp_layers": [20, 20]},
        {**LLAMA, "pp_size": 2, "pp_layers": [20, 12]},
    ),
    (
        "RP109",
        {**DECODE, "tp_size": 16, "dcp_size": 4},
        {**DECODE, "tp_size": 16, "dcp_size": 2},
    ),
    ("RP109", {**DECODE, "tp_size": 8, "dcp_size": 2}, {**R1, "tp_size": 8, "dcp_size": 8}),
    ("RP111", {**LLAMA, "draft_layers": 1}, {**R1, "tp_size": 8, "draft_layers": 1}),
    ("RP112", {**LLAMA, "kv_dtype": "fp8_ds_mla"}, {**R1, "kv_dtype": "fp8_ds_mla"}),
    ("RP113", {**TRAIN, "tp_size": 8, "attention_dp_size": 8}, {**TRAIN, "tp_size": 8}),
    ("RP101", {**SHARED, "schedule": "torch-flex", "seq_len": 100_000}, SHARED),
    (
        "RP101",
        {**SHARED, "schedule": "te-jax-ring", "seq_len": 100_008},
        {**SHARED, "schedule": "te-jax-ring", "seq_len": 100_000},
    ),
    ("RP101", {**ZIGZAG, **documents({1000: 100})}, {**ZIGZAG, **documents({1024: 100})}),
    (
        "RP101",
        {**ZIGZAG, **documents({1000: 100})},
        {**SHARED, "schedule": "ring-flash-attention-llama3", **documents({1000: 100})},
    ),
    (
        "RP105",
        {**SHARED, "schedule": "megatron-a2a", "cp_size": 16},
        {**SHARED, "schedule": "hf-ulysses", "cp_size": 16},
    ),
    (
        "RP104",
        {**SHARED, "schedule": "hf-ulysses", "cp_size": 6, "seq_len": 60_000},
        {**SHARED, "schedule": "deepspeed-ulysses", "cp_size": 6, "seq_len": 60_000},
    ),
    (
        "RP115",
        {**SHARED, "schedule": "megatron-p2p", "phase": "decode"},
        {**SHARED, "schedule": "megatron-p2p"},
    ),
    (
        "RP115",
        {**SHARED, "schedule": "maxtext-ring"},
        {**SHARED, "schedule": "maxtext-ring", "hardware": "tpu-v5p"},
    ),
    ("RP116", {**MEGATRON, "ulysses_size": 2}, MEGATRON),
    ("RP116", {**SHARED, "schedule": "megatron-a2a-p2p"}, {**SHARED, "schedule": "megatron-a2a"}),
    ("RP116", {**SHARED, "schedule": "hf-ulysses", "ulysses_size": 4}, SHARED),
    (
        "RP116",
        {**SHARED, "schedule": "vllm-dcp", "phase": "decode"},
        {**DECODE, "schedule": "vllm-dcp", "tp_size": 16, "dcp_size": 2},
    ),
    ("RP117", {**MEGATRON, "partition": "striped"}, {**MEGATRON, "partition": "zigzag"}),
    ("RP118", {**MEGATRON, "model": "gemma-2-27b"}, {**SHARED, "model": "gemma-2-27b"}),
    (
        "RP118",
        {**SHARED, "model": "gpt-oss-120b", "schedule": "megatron-all-gather"},
        {**SHARED, "model": "gpt-oss-120b", "schedule": "megatron-a2a"},
    ),
    ("RP118", {**ZIGZAG, "causal": False}, {**MEGATRON, "causal": False}),
    (
        "RP119",
        {**SHARED, "schedule": "ring-flash-attention-llama3", "batch_size": 2},
        {**SHARED, "schedule": "ring-flash-attention-llama3"},
    ),
    (
        "RP119",
        {**SHARED, "schedule": "torch-sdpa-all-gather", **documents({4096: 8})},
        {**ZIGZAG, **documents({4096: 8})},
    ),
    (
        "RP119",
        {**SHARED, "schedule": "sglang-prefill-cp", "pp_size": 2},
        {**SHARED, "schedule": "vllm-pcp", "pp_size": 2},
    ),
    (
        "RP218",
        {**SHARED, "schedule": "deepspeed-ulysses", "cp_size": 6, "seq_len": 60_000},
        {**SHARED, "schedule": "deepspeed-ulysses"},
    ),
    (
        "RP219",
        {**R1, "tp_size": 8, "cp_size": 8},
        {**R1, "tp_size": 8, "cp_size": 8, "schedule": "vllm-pcp"},
    ),
    (
        "RP220",
        {**SHARED, **documents({512: 256})},
        {**SHARED, **documents({131072: 1})},
    ),
    ("RP212", PARTIAL, LLAMA),
    (
        "RP114",
        {**LLAMA, "engine": "vllm", "set": {"engine.kv_cache": "100 GiB"}},
        {**LLAMA, "engine": "vllm", "set": {"engine.kv_cache": "20 GiB"}},
    ),
    ("RP214", {**LLAMA, "seq_len": "2M"}, {**LLAMA, "seq_len": "2M", "cp_size": 2}),
    ("RP214", {**LLAMA, "seq_len": "2M"}, LLAMA),
    ("RP213", {**LLAMA, "loss": "fused"}, {**TRAIN, "loss": "fused"}),
    ("RP213", {**TRAIN, "kv_dtype": "fp8"}, {**LLAMA, "kv_dtype": "fp8"}),
    ("RP110", {**LLAMA, "seq_len": "16M", "cp_size": 8}, {**LLAMA, "cp_size": 8}),
    ("RP110", {**TRAIN, "zero_stage": 0}, {**TRAIN, "cp_size": 32}),
    ("RP201", {**LLAMA, "seq_len": "32K", "cp_size": 16}, {**LLAMA, "cp_size": 8}),
    ("RP201", {**TRAIN, "set": SLOW_FORWARD}, {**TRAIN, "seq_len": "1M", "set": SLOW_FORWARD}),
    (
        "RP201",
        {**TRAIN, "set": SLOW_FORWARD},
        {**LLAMA, "cp_size": 16, "set": SLOW_FORWARD},
    ),
    ("RP202", {**LLAMA, "cp_size": 16}, {**LLAMA, "seq_len": "256K", "cp_size": 16}),
    ("RP202", {**LLAMA, "cp_size": 16}, {**LLAMA, "seq_len": "32K", "cp_size": 16}),
    (
        "RP203",
        {**LLAMA, "cp_size": 8, "partition": "contiguous"},
        {**LLAMA, "cp_size": 8, "partition": "zigzag"},
    ),
    (
        "RP203",
        {**LLAMA, "cp_size": 8, "partition": "contiguous"},
        {**LLAMA, "cp_size": 8, "partition": "contiguous", "causal": False},
    ),
    (
        "RP203",
        {**LLAMA, "cp_size": 8, "partition": "contiguous"},
        {**LLAMA, "cp_size": 8, "partition": "contiguous", "ulysses_size": 8},
    ),
    ("RP204", {**LLAMA, "cp_size": 8}, {**LLAMA, "seq_len": "1M", "cp_size": 16}),
    ("RP204", {**LLAMA, "cp_size": 8}, LLAMA),
    ("RP205", {**LLAMA, "hardware": "cpu-25gbe"}, LLAMA),
    ("RP206", {**DECODE, "cp_size": 8}, DECODE),
    ("RP206", {**DECODE, "cp_size": 8}, {**LLAMA, "cp_size": 8}),
    (
        "RP207",
        {**LLAMA, "seq_len": "8K", "cp_size": 8, "ulysses_size": 8},
        {**LLAMA, "cp_size": 8, "ulysses_size": 8},
    ),
    ("RP207", {**LLAMA, "cp_size": 8, "schedule": "usp"}, {**LLAMA, "cp_size": 8}),
    ("RP208", {**LLAMA, "tp_size": 16}, {**LLAMA, "tp_size": 8}),
    (
        "RP208",
        {**LLAMA, "tp_size": 8, "cp_size": 8, "set": RING_FIRST},
        {**LLAMA, "tp_size": 8, "cp_size": 8},
    ),
    (
        "RP208",
        {**LLAMA, "tp_size": 8, "dp_size": 2, "set": DATA_FIRST},
        {**LLAMA, "tp_size": 4, "dp_size": 2, "set": DATA_FIRST},
    ),
    ("RP208", {**LLAMA, "tp_size": 16, "set": SIX_GROUPS}, {**LLAMA, "tp_size": 2}),
    ("RP209", {**LLAMA, "seq_len": 131_073}, LLAMA),
    ("RP210", {**GEMMA, "cp_size": 16}, {**GEMMA, "cp_size": 32}),
    ("RP210", {**GEMMA, "cp_size": 16}, {**LLAMA, "cp_size": 16}),
    (
        "RP211",
        {**LLAMA, "cached_len": "120K", "cp_size": 16},
        {**LLAMA, "cached_len": "64K", "cp_size": 16},
    ),
]
CASES += [
    ("RP215", {**LLAMA, "cp_size": 16}, {**LLAMA, "cp_size": 16, "ulysses_size": 8}),
    ("RP215", {**LLAMA, "cp_size": 16}, {**LLAMA, "cp_size": 8}),
    ("RP215", {**LLAMA, "cp_size": 16}, {**LLAMA, "cp_size": 16, "tp_size": 8}),
    ("RP215", {**LLAMA, "cp_size": 16}, {**LLAMA, "cp_size": 16, "set": ONE_CARD}),
    ("RP216", TRAIN, {**TRAIN, "cp_size": 8}),
    ("RP216", TRAIN, {**TRAIN, "phase": "prefill", "zero_stage": 0}),
    (
        "RP216",
        {**QWEN, "cp_size": 16, "ep_size": 16},
        {**QWEN, "cp_size": 16, "ep_size": 8},
    ),
    (
        "RP217",
        {**LLAMA, "cp_size": 16, "ulysses_size": 8, "set": RING_FIRST},
        {**LLAMA, "cp_size": 16, "ulysses_size": 8},
    ),
    (
        "RP217",
        {**LLAMA, "cp_size": 16, "ulysses_size": 8, "set": RING_FIRST},
        {**LLAMA, "model": "article-mha", "cp_size": 16, "ulysses_size": 16, "set": RING_FIRST},
    ),
]
SEVERITY = {"RP1": {"error"}, "RP2": {"warning", "info"}}


def names(case: object) -> str:
    return case if isinstance(case, str) else ""


def codes(given: Given) -> list[str]:
    return [finding.code for finding in ringplan.estimate(**given).findings]


@pytest.mark.parametrize(("code", "broken", "mended"), CASES, ids=names)
def test_a_rule_speaks_of_its_scenario_and_not_of_the_mended_one(
    code: str, broken: Given, mended: Given
) -> None:
    assert code in codes(broken)
    assert code not in codes(mended)


def test_every_rule_has_a_case() -> None:
    rules = {*CODES, *(rule.__name__.upper() for rule in RULES)}
    assert {code for code, _, _ in CASES} == rules


@pytest.mark.parametrize(("code", "broken", "mended"), CASES, ids=names)
def test_an_error_makes_it_not_work_and_comes_first(
    code: str, broken: Given, mended: Given
) -> None:
    del mended
    made = ringplan.estimate(**broken)
    found = made.findings
    assert next(f for f in found if f.code == code).severity in SEVERITY[code[:3]]
    assert all(f.severity in SEVERITY[f.code[:3]] for f in found)
    order = [("error", "warning", "info").index(f.severity) for f in found]
    assert order == sorted(order)
    assert made.works == made.summary.works == (0 not in order)
    assert all(f.message and f.hint for f in found)


def test_a_memory_error_is_there_if_and_only_if_it_does_not_fit() -> None:
    for _, broken, mended in CASES:
        for given in (broken, mended):
            made = ringplan.estimate(**given)
            assert made.summary.fits == made.estimate.memory.fits
            assert made.summary.fits != ("RP110" in [f.code for f in made.findings])


def test_the_hint_of_a_padding_is_a_length_that_is_not_padded() -> None:
    broken: Given = {**LLAMA, "seq_len": 100_001, "cp_size": 8}
    hint = next(f.hint for f in ringplan.estimate(**broken).findings if f.code == "RP101")
    assert "RP101" not in codes({**broken, "seq_len": int(hint.split()[-1])})


def test_a_ring_that_a_hint_names_hides_its_hops() -> None:
    stalled = ringplan.estimate(**LLAMA, cp_size=64)
    hint = next(f.hint for f in stalled.findings if f.code == "RP201")
    ranks = int(hint.rpartition("--cp ")[2].partition(",")[0])
    assert ringplan.estimate(**LLAMA, cp_size=ranks).summary.verdict in ("hidden", "none")


def hint_of(code: str, given: Given) -> str:
    return next(f.hint for f in ringplan.estimate(**given).findings if f.code == code)


def order_of(hint: str) -> dict[str, list[str]]:
    return {"mesh.order": hint.partition("[")[2].partition("]")[0].split(", ")}


@pytest.mark.parametrize("order", list(permutations(["tp", "ulysses", "ring", "dp"])), ids="-".join)
def test_an_order_that_a_hint_names_keeps_tensor_parallelism_and_exchange_inside(
    order: tuple[str, ...],
) -> None:
    """Every order of the axes: what speaks is mended by what it says, one after the other."""
    given: Given = {**LLAMA, "tp_size": 2, "cp_size": 8, "ulysses_size": 4, "dp_size": 2}
    given["set"] = {"mesh.order": [*order, "pp"]}
    for code in ("RP208", "RP217"):
        if code in codes(given):
            given["set"] = order_of(hint_of(code, given))
    made = ringplan.estimate(**given)
    crossing = {row.axis: row.crossing_hops for row in made.estimate.communication}

    assert (crossing["tp"], crossing["ulysses"]) == (0, 0)
    assert not {"RP208", "RP217"} & {f.code for f in made.findings}


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b"])
@pytest.mark.parametrize("tp_size", [16, 32])
def test_a_tensor_parallel_size_that_a_hint_names_is_legal_and_stays_inside(
    model: str, tp_size: int
) -> None:
    given: Given = {**LLAMA, "model": model, "tp_size": tp_size}
    fewer = int(hint_of("RP208", given).removeprefix("--tp "))

    assert not {"RP102", "RP103", "RP208"} & {*codes({**given, "tp_size": fewer})}


def test_an_exchange_that_a_hint_names_uses_every_card() -> None:
    """One hop between two nodes, in place of fifteen that wait for one; eight cards for one."""
    given: Given = {**LLAMA, "seq_len": "32K", "cp_size": 16}
    hint = hint_of("RP215", given)
    degree = int(hint.removeprefix("--ulysses ").partition(" ")[0])
    flat = ringplan.estimate(**given).estimate
    mended = ringplan.estimate(**given, ulysses_size=degree).estimate

    assert "(1 gated hop in place of 15; " in hint
    assert [row.cards_busy for row in flat.communication] == [1]
    assert next(row.cards_busy for row in mended.communication if row.axis == "ring") == 8
    assert mended.ring.time_forward < flat.ring.time_forward
    assert "a double ring: 1 hop between domains" in hint
