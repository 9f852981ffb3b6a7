"""Formulas of single schedules, counted by hand: small enough to walk through step by step."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import attention, buffers, collectives, decode, layout, masks, ring

ranks = st.integers(2, 8)
seconds = st.floats(0, 100)


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


# Documents


def owner(position: int, length: int, size: int) -> int:
    """Rank of a token of a document that is dealt in zigzag chunks."""
    chunk = position * 2 * size // length
    return min(chunk, 2 * size - 1 - chunk)


@given(size=st.integers(2, 4), lengths=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_pairs_of_packed_documents_token_by_token(size: int, lengths: list[int]) -> None:
    """Every document on its own, every rank alike: all of its blocks, and the visiting ones."""
    tokens = [2 * size * length for length in lengths]
    for rank in range(size):
        seen = [0] * size
        for length in tokens:
            for query, key in product(range(length), repeat=2):
                if key <= query and owner(query, length, size) == rank:
                    seen[(rank - owner(key, length, size)) % size] += 1
        common: dict[str, Any] = {
            "lengths": tokens,
            "counts": [1] * len(tokens),
            "ring_size": size,
            "multiple": 2 * size,
        }
        assert seen[0] == masks.document_first_pairs(**common)
        assert set(seen[1:]) == {masks.document_later_pairs(**common)}


def test_documents_are_padded_each_and_counted_as_often_as_they_are() -> None:
    """512 documents of 100 tokens on 8 zigzag ranks: 112 tokens each, 12 of them padding."""
    whole: dict[str, Any] = {"lengths": (100, 48), "counts": (512, 1), "multiple": 16}
    assert layout.padded_documents(**whole) == 512 * 112 + 48
    first = masks.document_first_pairs(**whole, ring_size=8)
    assert first == 512 * (14 * 15 // 2) + 6 * 7 // 2


@given(length=st.integers(1, 100), count=st.integers(1, 50))
def test_share_of_equal_documents_is_one_over_how_many(length: int, count: int) -> None:
    """What hides a hop is sum l^2 / sum l: of equal documents their length."""
    made = masks.document_share(mask_share=0.5, lengths=(length,), counts=(count,))
    assert made == close(0.5 / count)


def test_no_token_sees_beyond_its_document_or_its_window() -> None:
    assert masks.longest_document(lengths=(3, 9, 4)) == 9
    assert masks.shorter_reach(window=5, longest=9) == 5
    assert masks.shorter_reach(window=50, longest=9) == 9


# Gathers and exchanges


@given(size=st.integers(2, 6))
def test_chunks_that_zigzag_queries_see_of_others(size: int) -> None:
    """A rank needs every chunk up to its late one; 18 of 24 at P = 4 (MagiAttention)."""
    needed = 0
    for rank in range(size):
        own = {rank, 2 * size - 1 - rank}
        needed += len([chunk for chunk in range(2 * size - rank) if chunk not in own])
    sent = 2 * size * (size - 1)

    assert collectives.needed_bytes(sent=sent, share=0.75) == needed


@given(size=st.integers(2, 6))
def test_blocks_that_contiguous_queries_see_of_others(size: int) -> None:
    needed = sum(range(size))
    assert collectives.needed_bytes(sent=size * (size - 1), share=0.5) == needed


@given(gather=seconds, busy=seconds, slices=st.integers(1, 8))
def test_slices_of_a_gather_one_by_one(gather: float, busy: float, slices: int) -> None:
    """The first slice is waited for; each later one travels while one before it computes."""
    now = arrived = gather / slices
    for number in range(slices):
        now = max(now, arrived) + busy / slices
        if number < slices - 1:
            arrived = max(arrived, now - busy / slices) + gather / slices
    exposed = collectives.beside_heads(gather_time=gather, busy_time=busy, slices=slices)

    assert busy + exposed == close(now)


@given(gather=seconds, first=seconds)
def test_own_block_hides_its_time_of_a_gather(gather: float, first: float) -> None:
    exposed = collectives.beside_own_block(gather_time=gather, first_step_time=first)
    assert first + exposed == close(max(first, gather))


@given(heads=st.integers(1, 40), degree=st.integers(1, 8))
def test_uneven_heads_are_dealt_one_by_one(heads: int, degree: int) -> None:
    """DeepSpeed's shares: 20 heads on 8 ranks are 3, 3, 3, 3, 2, 2, 2, 2."""
    dealt = [len(range(rank, heads, degree)) for rank in range(degree)]
    assert layout.uneven_query_heads(num_heads=heads, ulysses_size=degree) == max(dealt)
    assert layout.uneven_query_heads(num_heads=20, ulysses_size=8) == 3


def test_replicated_heads_are_one_a_rank_at_least() -> None:
    assert layout.replicated_kv_heads(num_kv_heads=2, ulysses_size=8) == 8
    assert layout.replicated_kv_heads(num_kv_heads=8, ulysses_size=2) == 8


# Rings


@given(size=ranks, inner=st.sampled_from([1, 2, 4]), first=st.integers(1, 4), later=st.just(1))
def test_gradients_of_a_double_ring_window_by_window(
    size: int, inner: int, first: int, later: int
) -> None:
    """A window has w hops inside, the first in a wider format, and one to the next window."""
    size *= inner
    sent = 0
    for window in range(size // inner):
        sent += inner * (first if window == 0 else later) + later
    made = ring.double_ring_gradient_bytes(
        ring_size=size, inner_ring_size=inner, first_gradient_bytes=first, gradient_bytes=later
    )
    assert made == sent


@given(
    size=st.integers(1, 4), inner=st.integers(1, 4), first=seconds, step=seconds,
    near=seconds, far=seconds,
)  # fmt: skip
def test_a_double_ring_step_by_step(  # noqa: PLR0917 - drawn
    size: int, inner: int, first: float, step: float, near: float, far: float
) -> None:
    """All ranks alike; step 0 no shorter than a step, so that a window is hidden as any other."""
    first = max(first, step)
    now = 0.0
    for window in range(size):
        begun, last = now, window == size - 1
        for turn in range(inner):
            took = first if window == turn == 0 else step
            now += max(took, near) if turn < inner - 1 else took
        own = first if window == 0 else step
        plain = max(own, near) + (inner - 2) * max(step, near) + step if inner > 1 else own
        assert now - begun == close(plain)
        if not last:
            inside = (inner - 1) * max(step, near) + step
            now += max(far - inside, 0)
    shape = {"inner_ring_size": inner, "ring_size": size * inner}
    exposed = ring.double_ring_exposure(
        first_step_time=first, step_time=step, inner_transfer=near, outer_transfer=far, **shape
    )
    busy = first + (size * inner - 1) * step

    assert busy + exposed == close(now)
    wire = ring.double_ring_time(inner_transfer=near, outer_transfer=far, **shape)
    assert wire == close(size * (inner - 1) * near + (size - 1) * far)


@given(size=ranks, block=st.integers(1, 9), window=st.integers(1, 60))
def test_a_ring_ends_where_no_query_sees_a_block_any_more(
    size: int, block: int, window: int
) -> None:
    """The first query of the last rank sees window - 1 tokens before it."""
    query = (size - 1) * block
    met = {key // block for key in range(max(query - window + 1, 0), query)}
    made = ring.window_hops(ring_size=size, window=window, block_tokens=block)
    assert made == len(met)
    assert ring.with_home_hop(hops=made) == made + 1


@given(size=st.integers(2, 8), batch=st.integers(1, 3), tokens=st.integers(1, 5))
def test_partials_of_all_steps_rank_by_rank(size: int, batch: int, tokens: int) -> None:
    """All queries see an earlier rank's block, the later half of them a later rank's."""
    queries = 2 * tokens
    for rank in range(size):
        rows = sum(
            queries if (rank - step) % size <= rank else queries // 2 for step in range(size)
        )
        slots = buffers.partial_slots(ring_size=size, rank=rank, later_share=0.5)
        assert slots == rows / queries
        held = np.zeros((batch, 4, rows, 16), "f2").nbytes + np.zeros((batch, 4, rows), "f4").nbytes
        assert held == buffers.partials_bytes(
            slots=slots,
            batch_size=batch,
            query_tokens=queries,
            num_heads=4,
            v_head_dim=16,
            element_bytes=2,
            statistic_bytes=4,
        )


@given(size=ranks, layers=st.integers(0, 3), shard=st.integers(1, 99))
def test_gathered_blocks_that_are_kept_are_those_of_others(
    size: int, layers: int, shard: int
) -> None:
    kept = buffers.kept_gathered_bytes(layers=layers, cp_size=size, shard_bytes=shard)
    whole = buffers.gathered_buffer_bytes(cp_size=size, shard_bytes=shard, copies=1)
    assert kept == layers * (whole - shard)


# Decode


@given(size=st.integers(2, 6), batch=st.integers(1, 3), heads=st.integers(1, 4))
def test_a_decode_exchange_rank_by_rank(size: int, batch: int, heads: int) -> None:
    """Queries to all, statistics of all heads to all, partial outputs to their owners."""
    whole = int(decode.dcp_heads(dcp_size=size, num_heads=heads))
    common = {"dcp_size": size, "batch_size": batch, "new_tokens": 1}
    query, partial = np.zeros((batch, heads, 16), "f2"), np.zeros((batch, heads, 12), "f2")
    statistic = np.zeros((batch, whole), "f4")
    others = size - 1

    assert whole == size * heads
    assert others * query.nbytes == decode.dcp_query_bytes(
        num_heads=heads, elements=16, element_bytes=2, **common
    )
    assert others * statistic.nbytes == decode.dcp_statistic_bytes(
        num_heads=whole, num_statistics=1, statistic_bytes=4, **common
    )
    scattered = decode.dcp_partial_bytes(
        num_heads=heads, elements=12, partial_bytes=2, rounds=1, **common
    )
    assert others * partial.nbytes == scattered
    assert 2 * scattered == decode.dcp_partial_bytes(
        num_heads=heads, elements=12, partial_bytes=2, rounds=2, **common
    )


def test_decode_of_deepseek_v3_on_eight_ranks() -> None:
    """vLLM's all-gather and reduce-scatter: 16 heads a rank, 64 sequences (facts by hand)."""
    common = {"dcp_size": 8, "batch_size": 64, "new_tokens": 1}
    queries = decode.dcp_query_bytes(num_heads=16, elements=576, element_bytes=2, **common)
    softmax = decode.dcp_statistic_bytes(
        num_heads=128, num_statistics=1, statistic_bytes=4, **common
    )
    partials = decode.dcp_partial_bytes(
        num_heads=16, elements=512, partial_bytes=2, rounds=1, **common
    )
    assert [round(each / 1e6, 2) for each in (queries, softmax, partials)] == [8.26, 0.23, 7.34]


def test_merges_of_ring_flash_attention() -> None:
    """8,192 queries of 32 heads of 128: 335 MB of traffic a step, 0.11 ms at 3 TB/s."""
    made = attention.merge_bytes(
        batch_size=1, query_tokens=8192, num_heads=32, elements=128, bytes_per_element=10
    )
    assert round(made / 1e6) == 336
    assert decode.memory_read_time(read_bytes=made, bandwidth=3e12, efficiency=1) == close(
        0.000111848106
    )
