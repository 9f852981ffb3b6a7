"""Visible pairs, counted one by one on small rings."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import masks

if TYPE_CHECKING:
    from collections.abc import Callable

    Blocks = list[list[int]]

rings = st.integers(1, 6)
halves = st.integers(1, 5)


def contiguous(cp_size: int, block: int) -> Blocks:
    """Each rank holds the next block."""
    return [list(range(rank * block, (rank + 1) * block)) for rank in range(cp_size)]


def zigzag(cp_size: int, block: int) -> Blocks:
    """Each rank holds a chunk from the front and its mirror from the back."""
    chunks = contiguous(2 * cp_size, block // 2)
    return [chunks[rank] + chunks[-1 - rank] for rank in range(cp_size)]


def striped(cp_size: int, block: int) -> Blocks:
    """Token i sits on rank i mod P."""
    return [list(range(rank, cp_size * block, cp_size)) for rank in range(cp_size)]


PARTITIONS = {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}

LATER = {
    "contiguous": masks.full_pairs,
    "zigzag": masks.zigzag_pairs,
    "striped": masks.diagonal_pairs,
}

each_partition = pytest.mark.parametrize("partition", PARTITIONS)


def visible(queries: list[int], keys: list[int], window: int | None = None) -> int:
    """Pairs in which the query comes no earlier than the key, nor too late for the window."""
    return sum(
        key <= query and (window is None or query - key < window)
        for query, key in product(queries, keys)
    )


def steps(blocks: Blocks, count: Callable[[int, int], int]) -> list[list[int]]:
    """Pairs by step and rank; at step s a rank works on the block of the s-th before it."""
    ranks = range(len(blocks))
    return [[count(rank, (rank - step) % len(blocks)) for rank in ranks] for step in ranks]


def causal_steps(blocks: Blocks, window: int | None = None) -> list[list[int]]:
    return steps(blocks, lambda rank, other: visible(blocks[rank], blocks[other], window))


@each_partition
@given(cp_size=rings, half=halves)
def test_busiest_rank_of_each_step_does_what_the_formula_says(
    partition: str, cp_size: int, half: int
) -> None:
    """Step 0 is the own triangle under any partition; what later steps see differs."""
    block = 2 * half
    first, *later = causal_steps(PARTITIONS[partition](cp_size, block))

    assert max(first) == masks.diagonal_pairs(query_tokens=block, block_tokens=block)
    for ranks in later:
        assert max(ranks) == LATER[partition](query_tokens=block, block_tokens=block)


@given(cp_size=rings, half=halves)
def test_zigzag_gives_every_rank_the_same_work_at_every_step(cp_size: int, half: int) -> None:
    """The busiest rank is also the idlest."""
    for ranks in causal_steps(zigzag(cp_size, 2 * half)):
        assert len(set(ranks)) == 1


@each_partition
@given(cp_size=rings, half=halves, cached=st.integers(0, 4))
def test_cached_prefix_is_seen_by_every_new_token(
    partition: str, cp_size: int, half: int, cached: int
) -> None:
    """New tokens are dealt by the partition, the cache evenly; every query meets all of it."""
    new = 2 * half
    blocks = PARTITIONS[partition](cp_size, new)
    first, *later = steps(
        blocks, lambda rank, other: new * cached + visible(blocks[rank], blocks[other])
    )
    tokens = {"query_tokens": new, "block_tokens": new + cached}

    assert max(first) == masks.diagonal_pairs(**tokens)
    for ranks in later:
        assert max(ranks) == LATER[partition](**tokens)
    assert sum(map(sum, [first, *later])) == masks.visible_pairs(
        new_tokens=new * cp_size, cached_tokens=cached * cp_size
    )


@given(new=st.integers(1, 20), cached=st.integers(0, 20))
def test_visible_pairs_are_those_not_in_the_future(new: int, cached: int) -> None:
    """Counted without any ring."""
    queries, keys = range(cached, cached + new), range(cached + new)

    assert visible(list(queries), list(keys)) == masks.visible_pairs(
        new_tokens=new, cached_tokens=cached
    )


@given(queries=st.integers(1, 20), block=st.integers(1, 20))
def test_without_a_mask_every_query_meets_every_key(queries: int, block: int) -> None:
    pairs = list(product(range(queries), range(block)))

    assert len(pairs) == masks.full_pairs(query_tokens=queries, block_tokens=block)


def utilization(partition: str, cp_size: int, block: int) -> float:
    size = {"seq_len": cp_size * block, "block_tokens": block}
    if partition == "contiguous":
        return masks.contiguous_utilization(**size)
    if partition == "striped":
        return masks.striped_utilization(**size, cp_size=cp_size)
    return masks.zigzag_utilization(**size, cp_size=cp_size)


@each_partition
@given(cp_size=rings, half=halves)
def test_utilization_is_useful_pairs_over_the_slots_of_the_busiest_rank(
    partition: str, cp_size: int, half: int
) -> None:
    """All ranks wait at every step for the one with most to do."""
    counts = causal_steps(PARTITIONS[partition](cp_size, 2 * half))
    exact = Fraction(sum(map(sum, counts)), cp_size * sum(map(max, counts)))
    formula = utilization(partition, cp_size, 2 * half)

    assert formula == pytest.approx(float(exact), rel=1e-14)
    assert 0 < formula <= 1


@each_partition
@given(cp_size=rings)
def test_block_utilization_counts_a_touched_chunk_as_whole(partition: str, cp_size: int) -> None:
    """Zigzag's chunks are half blocks; the others' are blocks."""
    block = 4
    size = block // 2 if partition == "zigzag" else block
    blocks = PARTITIONS[partition](cp_size, block)

    def chunks(rank: int) -> list[list[int]]:
        return [blocks[rank][i : i + size] for i in range(0, block, size)]

    counts = steps(
        blocks,
        lambda rank, other: sum(
            visible(mine, theirs) > 0 for mine, theirs in product(chunks(rank), chunks(other))
        ),
    )
    exact = Fraction(sum(map(sum, counts)), cp_size * sum(map(max, counts)))
    formula = (
        masks.contiguous_utilization_blocks
        if partition == "contiguous"
        else masks.balanced_utilization_blocks
    )

    assert formula(cp_size=cp_size) == pytest.approx(float(exact), rel=1e-14)


@given(cp_size=st.integers(1, 1024))
def test_contiguous_utilization_tends_to_the_published_limit(cp_size: int) -> None:
    """P/(2P - 1): ring-flash-attention's README has .53 at P = 8."""
    block = 10**9
    utilization = masks.contiguous_utilization(seq_len=cp_size * block, block_tokens=block)

    assert utilization == pytest.approx(cp_size / (2 * cp_size - 1), rel=1e-8)


@given(cp_size=st.integers(1, 64), block=st.integers(1, 10**6))
def test_zigzag_wastes_nothing_and_striped_less_than_contiguous(cp_size: int, block: int) -> None:
    worst, better, best = (
        utilization(each, cp_size, 2 * block) for each in ("contiguous", "striped", "zigzag")
    )

    assert worst <= better * (1 + 1e-12)
    assert better <= best * (1 + 1e-12)
    assert best == pytest.approx(1, rel=1e-12)


@each_partition
@given(cp_size=st.integers(1, 8), half=halves, cached=st.integers(0, 40))
def test_visible_share_times_the_square_is_the_pairs_of_a_later_step(
    partition: str, cp_size: int, half: int, cached: int
) -> None:
    """Striped sees half of its diagonal besides: y = 1/2 of a query each."""
    new = 2 * half
    block = new + cached
    share = masks.visible_share(
        new_tokens=new * cp_size,
        seq_len=block * cp_size,
        mask_share=1 if partition == "contiguous" else 0.5,
    )
    diagonal = new / 2 if partition == "striped" else 0

    assert share * block**2 + diagonal == pytest.approx(
        LATER[partition](query_tokens=new, block_tokens=block), rel=1e-12
    )


def windowed(partition: str, cp_size: int, block: int, window: int) -> tuple[float, float]:
    """Pairs of step 0 and of a later step in a window layer."""
    tokens = {"query_tokens": block, "block_tokens": block}
    first = masks.window_first_pairs(pairs=masks.diagonal_pairs(**tokens), **tokens, window=window)
    later = masks.window_later_pairs(
        pairs=LATER[partition](**tokens),
        first_pairs=first,
        query_tokens=block,
        window=window,
        ring_size=cp_size,
    )
    return first, later


@each_partition
@given(cp_size=rings, half=halves, window=st.integers(1, 70))
def test_window_pairs_cover_the_busiest_rank_of_the_pass(
    partition: str, cp_size: int, half: int, window: int
) -> None:
    """Spread over the steps, but in all no fewer than counted and no more than q w."""
    block = 2 * half
    counts = causal_steps(PARTITIONS[partition](cp_size, block), window)
    first, later = windowed(partition, cp_size, block, window)
    total = first + (cp_size - 1) * later

    assert max(map(sum, zip(*counts, strict=True))) <= total * (1 + 1e-12)
    assert total <= block * window * (1 + 1e-12)
    assert max(counts[0]) <= first


@each_partition
@given(cp_size=rings, half=halves)
def test_window_of_the_whole_context_hides_nothing(partition: str, cp_size: int, half: int) -> None:
    block = 2 * half
    tokens = {"query_tokens": block, "block_tokens": block}
    first, later = windowed(partition, cp_size, block, window=cp_size * block)

    assert first == masks.diagonal_pairs(**tokens)
    if cp_size > 1:
        assert later == LATER[partition](**tokens)
