"""The memory bill: caches, engines, stages and training, against arithmetic by hand."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringplan.api import explain, load
from ringplan.assess import assess
from ringplan.errors import SpecError
from ringplan.estimation.core import estimate
from ringplan.estimation.growth import memory_report
from ringplan.estimation.stages import stage_slices
from ringplan.remedies import remedies, smallest_mesh

if TYPE_CHECKING:
    from ringplan.estimation.results import Memory

GIB = 2**30
LLAMA: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "seq_len": "128K"}
LLAMA_70B = {**LLAMA, "model": "llama-3.1-70b"}
R1: dict[str, Any] = {**LLAMA, "model": "deepseek-r1", "hardware": "h200-sxm-141gb"}
GPT_OSS = {**LLAMA, "model": "gpt-oss-120b"}
TRAIN = {**LLAMA, "phase": "train", "cp_size": 8, "zero_stage": 3}


def bill(asked: dict[str, Any], *, set: dict[str, Any] | None = None, **more: Any) -> Memory:  # noqa: A002
    """Ask for the memory of a scenario with some fields changed."""
    both = {**asked.get("set", {}), **(set or {})}
    return estimate(load(**{**asked, **more, "set": both}).scenario).memory


# Caches


@pytest.mark.parametrize(
    ("dtype", "block"),
    [
        ("bf16", 64),
        ("fp8", 32),
        ("int4", 16),
        ("q8_0", 34),
        ("q5_1", 24),
        ("q5_0", 22),
        ("q4_1", 20),
        ("q4_0", 18),
        ("iq4_nl", 18),
    ],
)
def test_a_block_of_32_elements_has_its_bytes_and_its_scales(dtype: str, block: int) -> None:
    assert bill(LLAMA, kv_dtype=dtype).kv_bytes_per_token == 32 * 8 * 256 / 32 * block


def test_keys_and_values_may_differ() -> None:
    both = bill(LLAMA, k_dtype="q8_0", v_dtype="q4_0").kv_bytes_per_token
    assert both == 32 * 8 * 128 * (34 + 18) / 32


def test_a_latent_with_scales_and_a_wide_rotary_key_has_656_bytes() -> None:
    """512 in fp8, an fp32 scale for each 128, 64 in bf16 (vLLM and FlashMLA, fp8_ds_mla)."""
    assert bill(R1, tp_size=8, kv_dtype="fp8_ds_mla").kv_bytes_per_token == 61 * 656


def test_rows_are_padded() -> None:
    """1,152 bytes of a latent to a multiple of 256."""
    padded = bill(R1, tp_size=8, set={"engine.row_alignment": 256})
    assert padded.kv_bytes_per_token == 61 * 1280


@pytest.mark.parametrize("tp_size", [1, 2, 8, 32])
def test_a_latent_is_whole_on_every_rank(tp_size: int) -> None:
    rank = bill(R1, tp_size=tp_size).rank
    assert rank.kv_bytes == 131_072 * 61 * 576 * 2


@pytest.mark.parametrize(("tp_size", "heads"), [(1, 8), (4, 2), (8, 1), (16, 1), (64, 1)])
def test_a_head_is_copied_where_there_are_fewer_than_ranks(tp_size: int, heads: int) -> None:
    rank = bill(LLAMA_70B, tp_size=tp_size, pp_size=8).rank
    assert rank.kv_bytes == 10 * heads * 256 * 2 * 131_072


def test_copies_of_a_head_share_its_tokens_under_decode_context_parallelism() -> None:
    alone = bill(LLAMA_70B, tp_size=32).rank.kv_bytes
    assert bill(LLAMA_70B, tp_size=32, dcp_size=4).rank.kv_bytes * 4 == alone
    latent = bill(R1, tp_size=8).rank.kv_bytes
    assert bill(R1, tp_size=8, dcp_size=8).rank.kv_bytes * 8 == latent


def test_data_parallel_attention_deals_sequences_and_copies_attention() -> None:
    """Latents of 16 sequences on 8 ranks: two each instead of all."""
    asked = {**R1, "tp_size": 8, "batch_size": 16, "phase": "decode"}
    cut, dealt = bill(asked), bill(asked, attention_dp_size=8)
    assert dealt.rank.kv_bytes * 8 == cut.rank.kv_bytes
    # q_b, kv_b and o, in 8 bits with their scales, of 61 layers are whole
    attention = 128 * 192 * 1536 + 128 * 256 * 512 + 7168 * 128 * 128
    more = dealt.rank.weights_bytes - cut.rank.weights_bytes
    assert more == pytest.approx(61 * attention * 7 / 8 * (1 + 4 / 128**2), rel=1e-12)
    assert dealt.kv_tokens is not None
    assert dealt.kv_tokens > 6 * cut.kv_tokens


@given(seq_len=st.integers(1, 10**6), page=st.sampled_from([1, 16, 64, 256]))
@settings(max_examples=25, deadline=None)
def test_a_sequence_fills_whole_pages(seq_len: int, page: int) -> None:
    rank = bill(LLAMA, seq_len=seq_len, batch_size=3, set={"engine.page_tokens": page}).rank
    assert rank.kv_bytes == 3 * math.ceil(seq_len / page) * page * 131_072


def test_llama_cpp_pads_cells_once_and_windows_lie_beside_a_micro_batch() -> None:
    """gpt-oss: 18 layers in full, 18 of 128 tokens; 4 sequences: 4 x 128 + 512 is 1,024 cells."""
    rank = bill(GPT_OSS, engine="llama.cpp", seq_len=1000, batch_size=4).rank
    assert rank.kv_bytes == 18 * (4096 + 1024) * 8 * 128 * 2


def test_a_window_is_never_more_than_the_context() -> None:
    rank = bill(GPT_OSS, engine="llama.cpp", seq_len=200).rank
    assert rank.kv_bytes == 18 * (256 + 256) * 8 * 128 * 2


def test_an_engine_without_windows_charges_every_layer_in_full() -> None:
    """gpt-oss-20b, 32 sequences of 8K: 6.09 against 12.00 GiB (24 layers, half with a window)."""
    half: dict[str, Any] = {"model.num_hidden_layers": 24}
    work: dict[str, Any] = {**GPT_OSS, "seq_len": "8K", "batch_size": 32}
    capped = bill(work, set=half).rank.kv_bytes
    full = bill(work, set={**half, "engine.window_cache": "full"}).rank.kv_bytes
    assert capped == 6.09375 * GIB
    assert full == 12 * GIB


def test_a_shared_prefix_is_stored_once() -> None:
    """Two sequences of 10,000 tokens of which 8,000 are the same: 12,000 are stored."""
    made = bill(LLAMA, seq_len=10_000, cached_len=8000, batch_size=2, shared_len=8000)
    assert made.kv_bytes == 12_000 * 131_072
    assert made.rank.kv_bytes == 12_000 * 131_072


# Engines


def test_vllm_budgets_a_share_of_the_whole_device() -> None:
    """Llama-3-8B on one H100: 0.9 x 79.22 - 14.96 - 1.79 - 1.26 = 53.29 GiB (a log)."""
    made = bill(
        LLAMA,
        engine="vllm",
        set={
            "hardware.memory.capacity": "79.22 GiB",
            "engine.utilization": 0.9,
            "engine.outside_budget": ["graphs"],
            "workload.chunk_tokens": 1,
            "engine.logit_rows": 1,
        },
    )
    rest = made.rank.activation_bytes + made.rank.logits_bytes
    budget = made.rank.kv_budget_bytes + rest - 1.26 * GIB
    assert budget == pytest.approx(53.29 * GIB, abs=0.005 * GIB)


def test_communicators_are_counted_where_there_is_somebody_to_talk_to() -> None:
    alone, two = (bill(LLAMA, engine="vllm", tp_size=t).rank.overhead_bytes for t in (1, 2))
    assert two - alone == pytest.approx(1.79 * GIB)


@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_what_the_budget_holds_fits_and_one_sequence_more_does_not(engine: str) -> None:
    asked = {**LLAMA, "engine": engine, "phase": "decode", "seq_len": "32K"}
    most = math.floor(bill(asked, batch_size=1).max_concurrency)
    most = math.floor(bill(asked, batch_size=most).max_concurrency)
    assert bill(asked, batch_size=most).fits
    assert not bill(asked, batch_size=most + 1).fits


@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("asked", [LLAMA, {**R1, "tp_size": 8}, {**GPT_OSS, "tp_size": 4}])
def test_the_longest_context_fits_and_one_token_more_does_not(
    asked: dict[str, Any], engine: str
) -> None:
    longest = bill(asked, engine=engine).max_seq_len
    assert bill(asked, engine=engine, seq_len=longest).fits
    assert not bill(asked, engine=engine, seq_len=longest + 1).fits


def test_budgets_are_shares_of_different_things() -> None:
    """Of the device; of what was free at start, for weights too; of what is free beside all."""
    ranks = {name: bill(LLAMA, engine=name).rank for name in ("vllm", "sglang", "tensorrt-llm")}
    device = load(**LLAMA).scenario.hardware.memory.capacity
    runtime = 1.79 * GIB

    rank = ranks["vllm"]
    inside = rank.total_bytes - rank.kv_bytes - runtime
    assert rank.kv_budget_bytes == pytest.approx(0.92 * device - inside)
    rank = ranks["sglang"]
    assert rank.kv_budget_bytes == pytest.approx(0.83 * (device - runtime) - rank.weights_bytes)
    rank = ranks["tensorrt-llm"]
    free = device - (rank.total_bytes - rank.kv_bytes)
    assert rank.kv_budget_bytes == pytest.approx(0.9 * free)


def test_a_pool_of_windows_may_be_a_share_of_the_others() -> None:
    """SGLang: window layers get 0.8 of the tokens of full ones."""
    rank = bill(GPT_OSS, engine="sglang", seq_len=100_000).rank
    assert rank.kv_bytes == 18 * (100_000 + 80_000) * 8 * 128 * 2


def test_scores_are_stored_only_without_flash_attention() -> None:
    """512 queries over 131,072 keys, 32 heads, fp32: 8,192 MiB (a log of llama.cpp)."""
    stored: dict[str, Any] = {"engine": "llama.cpp", "flash_attention": False}
    assert bill(LLAMA, **stored).rank.score_bytes == 8192 * 2**20
    assert bill(LLAMA, engine="llama.cpp").rank.score_bytes == 0


# Stages


def test_every_stage_must_fit_its_own_card() -> None:
    uneven = {**LLAMA, "pp_size": 2, "pp_layers": [24, 8]}
    cards = ["80 GiB", "16 GiB"]
    assert bill(uneven, seq_len="32K", pp_memory=cards).fits
    swapped = bill(uneven, seq_len="32K", pp_memory=cards[::-1])
    assert not swapped.fits
    assert swapped.rank.stage == 0
    assert swapped.rank.capacity_bytes == 16 * GIB


@given(layers=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_stages_are_cut_as_given(layers: list[int]) -> None:
    cut = stage_slices(sum(layers), len(layers), tuple(layers))
    assert [part.stop - part.start for part in cut] == layers


# Draft layers


def test_a_draft_layer_is_loaded_and_cached_where_it_is_asked_for() -> None:
    without, drafted = (bill(R1, tp_size=8, draft_layers=n) for n in (0, 1))
    assert drafted.kv_bytes_per_token - without.kv_bytes_per_token == 576 * 2
    assert drafted.num_parameters is not None
    assert without.num_parameters is not None
    assert drafted.num_parameters > without.num_parameters
    assert drafted.rank.weights_bytes > without.rank.weights_bytes


# Training


def test_an_unfused_loss_holds_ten_bytes_a_logit_and_a_chunked_one_a_chunk() -> None:
    tokens, words = 131_072 // 8, 128_256
    assert bill(TRAIN).rank.logits_bytes == tokens * words * 10
    assert bill(TRAIN, loss="in_place").rank.logits_bytes == tokens * words * 6
    assert bill(TRAIN, loss="chunked").rank.logits_bytes == 1024 * words * 10
    assert bill(TRAIN, loss="fused").rank.logits_bytes == 0


def test_recipes_keep_what_they_say() -> None:
    """16 bytes a parameter over 8 ranks: 2 of weights, 2 of gradients, 12 of AdamW."""
    rank = bill(TRAIN, gradient_dtype="bf16").rank
    states = rank.weights_bytes + rank.gradient_bytes + rank.optimizer_bytes
    assert states == 16 * 8_030_261_248 / 8
    eight = bill(TRAIN, optimizer="adamw_8bit").rank.optimizer_bytes
    assert eight == (4 + 2 + 2 * 4 / 256) * 8_030_261_248 / 8
    assert bill(TRAIN, optimizer="adamw_bf16").rank.optimizer_bytes == 4 * 8_030_261_248 / 8


def test_offload_leaves_two_layer_inputs_and_no_optimizer() -> None:
    here = bill(TRAIN).rank
    away = bill(TRAIN, offload=["activations", "optimizer"]).rank
    assert here.activation_bytes - away.activation_bytes == 30 * 16_384 * 4096 * 2
    assert away.optimizer_bytes == 0


def test_what_is_sharded_is_whole_while_it_runs() -> None:
    """Two layers' weights and one's gradient; or an embedding's, which is larger in Llama 8B."""
    layer, embedding = 218_112_000, 128_256 * 4096
    assert bill(TRAIN).rank.gathered_bytes == embedding * (2 + 4)
    assert bill(TRAIN, zero_stage=2).rank.gathered_bytes == embedding * 4
    assert bill(TRAIN, zero_stage=1).rank.gathered_bytes == 0
    middle = bill({**TRAIN, "pp_size": 4}).stages[1]
    assert middle.gathered_bytes == layer * (2 * 2 + 4)
    assert bill({**LLAMA, "dp_size": 8, "zero_stage": 3}).rank.gathered_bytes == embedding * 2


def test_the_first_stage_has_begun_as_many_micro_batches_as_there_are_stages() -> None:
    staged = {**TRAIN, "pp_size": 4, "zero_stage": 0}
    one, many = (bill(staged, num_micro_batches=n).stages[0].activation_bytes for n in (1, 8))
    assert many - one == 3 * 8 * 16_384 * 4096 * 2


# Answers


@pytest.mark.parametrize(
    "asked",
    [
        {**LLAMA_70B, "tp_size": 8, "seq_len": "1M"},
        {**TRAIN, "zero_stage": 0},
        {**TRAIN, "seq_len": "1M"},
        {**R1, "tp_size": 8, "seq_len": "1M", "batch_size": 2, "phase": "decode"},
    ],
)
def test_every_remedy_fits_with_the_total_it_names(asked: dict[str, Any]) -> None:
    read = load(**asked).scenario
    made = estimate(read).memory
    assert made.fits is False
    found = remedies(read, made)
    assert found
    for remedy in found:
        assert remedy.total_bytes <= read.hardware.memory.capacity


def test_a_remedy_does_what_its_flags_do() -> None:
    asked = {**LLAMA_70B, "tp_size": 8, "seq_len": "1M"}
    read = load(**asked).scenario
    totals = {r.flags: r.total_bytes for r in remedies(read, estimate(read).memory)}
    assert totals["--cp 2"] == bill(asked, cp_size=2).rank.total_bytes
    chunked = bill(asked, chunk_tokens=8192).rank.total_bytes
    assert totals["--set workload.chunk_tokens=8192"] == chunked


def test_layers_move_to_the_card_with_room() -> None:
    """Llama 3.1 70B in 8 bits over 80 and 48 GiB: half each is too much for the second."""
    asked = {
        **LLAMA_70B,
        "seq_len": "32K",
        "weights_dtype": "int8",
        "pp_size": 2,
        "pp_memory": ["80 GiB", "48 GiB"],
    }
    read = load(**asked).scenario
    made = estimate(read).memory
    assert made.fits is False
    flags = [remedy.flags for remedy in remedies(read, made)]
    moved = next(flag for flag in flags if "pp_layers" in flag)
    first, second = map(int, moved.partition("[")[2].rstrip("]'").split(","))
    assert first + second == 80
    assert bill(asked, pp_layers=[first, second]).fits
    assert not bill(asked, pp_layers=[first - 1, second + 1]).fits


def test_copies_of_a_latent_may_share_its_tokens() -> None:
    asked = {**R1, "tp_size": 8, "seq_len": "1M", "phase": "decode", "batch_size": 2}
    read = load(**asked).scenario
    flags = [remedy.flags for remedy in remedies(read, estimate(read).memory)]
    assert "--set mesh.dcp_size=8" in flags


@pytest.mark.parametrize("mesh", [{"attention_dp_size": 8}, {"dp_size": 2}, {"pp_size": 2}])
@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_whole_sequences_fit_on_every_replica_and_one_more_on_one_does_not(
    mesh: dict[str, int], engine: str
) -> None:
    asked = {**R1, "tp_size": 8, "phase": "decode", "engine": engine, **mesh}
    most = bill(asked).max_sequences
    each = most // mesh.get("dp_size", 1)
    assert each * mesh.get("dp_size", 1) == most
    assert bill(asked, batch_size=each).fits
    assert not bill(asked, batch_size=each + 1).fits
    assert bill(asked, batch_size=each).max_sequences == most


def test_no_smaller_mesh_of_powers_of_two_fits() -> None:
    read = load(**{**LLAMA_70B, "seq_len": "1M"}).scenario
    found = smallest_mesh(read)
    assert found is not None
    half = found.num_devices // 2
    sizes = [2**k for k in range(14) if half % 2**k == 0]
    for tp_size in (s for s in sizes if s <= 8):
        for pp_size in (s for s in sizes if half % (s * tp_size) == 0):
            tried = {"tp_size": tp_size, "pp_size": pp_size}
            cp_size = half // (tp_size * pp_size)
            assert not bill({**LLAMA_70B, "seq_len": "1M"}, cp_size=cp_size, **tried).fits


def test_growing_and_constant_parts_are_the_bill() -> None:
    engined = {**R1, "engine": "vllm", "tp_size": 8}
    for asked in (LLAMA, TRAIN, {**GPT_OSS, "tp_size": 4}, engined):
        read = load(**asked).scenario
        for part in memory_report(read).growth:
            grown = part.constant_bytes + 131_072 * part.bytes_per_token
            assert grown == pytest.approx(part.bytes), part.part


def test_a_report_over_lengths_is_the_bill_at_each() -> None:
    asked = {**LLAMA_70B, "tp_size": 8, "engine": "vllm"}
    for row in memory_report(load(**asked).scenario).lengths:
        there = bill(asked, seq_len=row.seq_len)
        assert row.rank == there.rank
        assert row.max_concurrency == there.max_concurrency


# What a slip would change


NEMOTRON = {**LLAMA, "model": "tests/data/hf_configs/nemotron-h-56b.json", "seq_len": "8K"}
V32 = {**R1, "model": "tests/data/hf_configs/deepseek-v3.2.json"}
V4 = {**R1, "model": "tests/data/hf_configs/deepseek-v4-pro.json"}


@pytest.mark.parametrize("tp_size", [1, 8])
def test_states_are_cut_by_heads_and_constant(tp_size: int) -> None:
    """54 Mamba layers: 256 heads of 64 x 256 in fp32, and 3 steps of 20,480 channels in bf16."""
    state = 54 * (256 * 64 * 256 * 4 + 3 * 20_480 * 2)
    for seq_len in ("8K", "64K"):
        made = bill(NEMOTRON, tp_size=tp_size, seq_len=seq_len, batch_size=2)
        assert made.state_bytes == state
        assert made.rank.state_bytes == 2 * state / tp_size


def test_every_context_rank_has_the_states() -> None:
    assert bill(NEMOTRON, cp_size=4).rank.state_bytes == bill(NEMOTRON).rank.state_bytes


def test_a_state_layer_mixes_what_its_ranks_share() -> None:
    """In-projections of 37,120 and an output of 16,384, beside two residuals of 8,192."""
    one, eight = (bill(NEMOTRON, tp_size=t).rank.activation_bytes for t in (1, 8))
    mlp = 3 * 32_768
    assert one == 8192 * 2 * (2 * 8192 + max(mlp, 37_120 + 16_384))
    assert eight == 8192 * 2 * (2 * 8192 + max(mlp, 37_120 + 16_384) / 8)


def test_an_indexer_caches_a_key_and_a_scale_a_token() -> None:
    made = bill(V32, tp_size=8)
    assert made.indexer_bytes_per_token == 61 * (128 + 4)
    assert made.rank.kv_bytes == 131_072 * 61 * (576 * 2 + 128 + 4)


def test_compressed_caches_and_their_indexers_have_an_entry_for_several_tokens() -> None:
    """DeepSeek V4 Pro: 30 layers of ratio 4 with an indexer, 31 of 128; a window in all 61."""
    made = bill(V4, tp_size=8)
    entries = 131_072 * (30 / 4 + 31 / 128)
    assert made.kv_bytes_per_token == 1024 * (30 / 4 + 31 / 128)
    assert made.indexer_bytes_per_token == 132 * 30 / 4
    assert made.rank.kv_bytes == 1024 * (entries + 61 * 128) + 131_072 / 4 * 30 * 132


def test_draft_layers_are_on_the_last_stage() -> None:
    asked = {**R1, "tp_size": 8, "pp_size": 2}
    without, drafted = (bill(asked, draft_layers=n).stages for n in (0, 1))
    assert without[0].weights_bytes == drafted[0].weights_bytes
    assert without[0].kv_bytes == drafted[0].kv_bytes
    assert drafted[1].kv_bytes - without[1].kv_bytes == 131_072 * 576 * 2


def test_a_tied_head_is_copied_to_a_last_stage_that_has_no_embeddings() -> None:
    """Gemma 2 27B: 256,000 words of 4,608 in bf16 on the first stage, and again on the last."""
    asked = {**LLAMA, "model": "gemma-2-27b", "seq_len": "8K"}
    tied = bill(asked, pp_size=2).stages
    untied = bill(asked, pp_size=2, set={"model.tie_word_embeddings": False}).stages
    assert [s.weights_bytes for s in tied] == [s.weights_bytes for s in untied]
    alone = bill(asked).rank.weights_bytes
    assert sum(s.weights_bytes for s in tied) - alone == 256_000 * 4608 * 2


def test_a_stage_is_held_against_its_own_card() -> None:
    """The second stage has fewer bytes, and a card that is smaller still."""
    asked = {**LLAMA, "pp_size": 2, "pp_layers": [20, 12], "seq_len": "32K"}
    made = bill(asked, pp_memory=["80 GiB", "10 GiB"])
    first, second = made.stages
    assert (first.capacity_bytes, second.capacity_bytes) == (80 * GIB, 10 * GIB)
    assert first.total_bytes > second.total_bytes
    assert made.rank == second
    assert not made.fits


def test_a_shared_prefix_is_dealt_over_the_ranks_and_whole_pages_of_it_are_saved() -> None:
    asked = {**LLAMA_70B, "tp_size": 32, "dcp_size": 4, "batch_size": 3, "seq_len": "64K"}
    rank = bill(asked, shared_len=40_000, set={"engine.page_tokens": 64}).rank
    mine, common = 65_536 // 4, 40_000 // 4
    pages = 3 * (mine // 64) - 2 * (common // 64)
    assert rank.kv_bytes == pages * 64 * 80 * 2 * 128 * 2
    over_cp = bill({**LLAMA, "cp_size": 4, "batch_size": 3}, shared_len=40_000).rank
    assert over_cp.kv_bytes == (3 * 32_768 - 2 * 10_000) * 131_072


def test_sequence_parallel_ranks_share_layer_inputs() -> None:
    asked = {**TRAIN, "tp_size": 8, "cp_size": 1}
    whole, shared = (
        bill(asked, sequence_parallel=flag).rank.activation_bytes for flag in (False, True)
    )
    residuals = 131_072 * 4096 * 2 * (32 + 4 + 2)
    assert whole - shared == residuals * 7 / 8


def test_a_chunk_is_dealt_over_the_context_ranks() -> None:
    one, four = (bill(LLAMA, engine="vllm", cp_size=cp).rank.activation_bytes for cp in (1, 4))
    assert one == 4 * four


def test_buffers_of_a_chunked_ring_are_of_its_queries() -> None:
    """Two visiting blocks of the context; an output, a maximum and a sum of 1,024 queries."""
    rank = bill(LLAMA, engine="vllm", cp_size=8, seq_len="1M").rank
    assert rank.ring_buffer_bytes == 2 * 131_072 * 4096 + 1024 * 32 * (128 + 2) * 4


def test_data_parallel_attention_shares_the_work_of_attention_only() -> None:
    """DeepSeek-R1: one sequence of eight in attention, all of them in the MLP."""
    asked = {**R1, "tp_size": 8, "batch_size": 8, "seq_len": "8K"}
    dealt = bill(asked, attention_dp_size=8).rank.activation_bytes
    attention = 8192 * 2 * (2 * 7168 + 256 * (192 + 128))
    mlp = 8 * 8192 * 2 * (2 * 7168 + 3 * 18_432 // 8)
    assert dealt == max(attention, mlp)


def test_training_runs_in_sixteen_bits_whatever_is_published() -> None:
    asked = {**GPT_OSS, "phase": "train", "seq_len": "8K"}
    made = bill(asked)
    assert made.rank.weights_bytes == 2 * 116_829_156_672
    assert bill(asked, weights_dtype="mxfp4").rank.weights_bytes < made.rank.weights_bytes / 2


@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_fewest_context_ranks_fit_and_one_less_does_not(engine: str, phase: str) -> None:
    """Asked from one rank, whose communicators nobody needs."""
    asked = {**LLAMA, "engine": engine, "phase": phase, "seq_len": "8M", "partition": "contiguous"}
    least = bill(asked).min_cp_size
    assert least is not None
    assert bill(asked, cp_size=least).fits
    assert not bill(asked, cp_size=least - 1).fits
    assert bill(asked, cp_size=least).min_cp_size == least


@pytest.mark.parametrize("engine", ["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_as_many_sequences_as_are_said_fit_in_every_phase(
    engine: str, phase: str, batch_size: int
) -> None:
    asked = {**LLAMA, "engine": engine, "phase": phase, "seq_len": "12345", "shared_len": 1000}
    made = bill(asked, batch_size=batch_size)
    assert math.floor(made.max_concurrency or 0) == made.max_sequences
    assert bill(asked, batch_size=made.max_sequences).fits
    assert not bill(asked, batch_size=(made.max_sequences or 0) + 1).fits


def test_growth_is_that_of_one_stage() -> None:
    """The stage with the least left changes with the context here."""
    asked = {**TRAIN, "cp_size": 1, "pp_size": 2, "pp_layers": [20, 12], "seq_len": "16K"}
    for part in memory_report(load(**asked).scenario).growth:
        assert part.bytes_per_token >= 0, part.part


def test_a_cache_of_given_bytes_is_all_that_sequences_share() -> None:
    """V39: 112,064 tokens of Qwen3-32B are 27.36 GiB, 2.74 contexts of 40,960."""
    given = {"engine.kv_cache": "27.36 GiB"}
    made = bill({**R1, "model": "qwen3-32b", "seq_len": 40_960, "engine": "vllm"}, set=given)
    assert made.rank.kv_budget_bytes == pytest.approx(27.36 * GIB)
    assert made.kv_tokens == pytest.approx(112_064, rel=1e-3)
    assert made.max_concurrency == pytest.approx(2.74, abs=0.005)


@pytest.mark.parametrize(
    ("engine", "runtime", "graphs"),
    [
        ("vllm", 1.79, 0.72),
        ("sglang", 1.79, 0.93),
        ("tensorrt-llm", 1.79, 0.72),
        ("llama.cpp", 0.5, 0),
    ],
)
def test_overheads_are_binary_gigabytes_of_logs(engine: str, runtime: float, graphs: float) -> None:
    assert bill(LLAMA, engine=engine).rank.overhead_bytes == pytest.approx((runtime + graphs) * GIB)


# What a second round found


def test_an_explained_bill_is_the_plain_one_with_chunks_and_data_parallel_attention() -> None:
    asked = {**LLAMA, "tp_size": 8, "engine": "vllm", "attention_dp_size": 8, "seq_len": "32K"}
    known = explain(**asked, flash_attention=False)
    rank = bill(asked, flash_attention=False).rank
    assert rank.score_bytes == 32 * 1024 * 32_768 * 4
    for name in ("score_bytes", "total_bytes", "capacity_bytes"):
        assert known[f"memory.rank.{name}"].value == getattr(rank, name)


def test_more_new_tokens_than_the_context_are_refused() -> None:
    with pytest.raises(SpecError, match="new_tokens=8 is more than seq_len=7"):
        bill(LLAMA, seq_len=7, new_tokens=8)


def test_remedies_keep_expert_parallelism_whole() -> None:
    asked = {
        **LLAMA, "model": "mixtral-8x7b", "phase": "decode", "cp_size": 16, "dp_size": 3,
        "ulysses_size": 2, "ep_size": 4, "seq_len": "16M", "engine": "vllm",
    }  # fmt: skip
    read = load(**asked).scenario
    for remedy in remedies(read, estimate(read).memory):
        ranks = re.search(r"--cp (\d+)", remedy.flags)
        assert ranks is None or int(ranks[1]) * 3 % 4 == 0


def test_cells_that_all_share_have_a_common_prefix_once() -> None:
    asked = {**LLAMA, "engine": "llama.cpp", "seq_len": "32K", "batch_size": 100}
    once = bill(asked, shared_len="32K").rank.kv_bytes
    assert once == 32_768 * 131_072


@pytest.mark.parametrize("given", [{"engine.base": "vllm"}, {"engine.kv_cache": "10 GiB"}])
def test_engines_do_not_train(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="an engine serves"):
        bill(TRAIN, set=given)


def test_an_engine_of_a_block_is_the_workloads() -> None:
    assert load(**LLAMA, set={"engine": "vllm"}).scenario.workload.engine == "vllm"


def test_a_tied_head_is_a_unit_of_the_last_stage_too() -> None:
    """Gemma 2 27B under ZeRO 3: a copy of 256,000 x 4,608 and its fp32 gradient there."""
    asked = {**TRAIN, "model": "gemma-2-27b", "pp_size": 2, "seq_len": "8K"}
    first, last = bill(asked).stages
    assert first.gathered_bytes == last.gathered_bytes


def test_tokens_of_a_decoding_cache_leave_room_for_a_chunk_of_the_workload() -> None:
    given = {**LLAMA, "phase": "decode", "seq_len": "8K"}
    one, many = (bill(given, chunk_tokens=4096, batch_size=b) for b in (1, 64))
    assert many.kv_tokens == pytest.approx(one.kv_tokens, rel=2e-3)


def test_a_given_cache_is_held_against_the_card_of_its_stage() -> None:
    asked = {**LLAMA, "pp_size": 2, "engine": "vllm", "pp_memory": ["80 GiB", "24 GiB"]}
    made = assess(load(**asked, set={"engine.kv_cache": "20 GiB"}).scenario)
    assert "RP114" in {finding.code for finding in made.findings}
