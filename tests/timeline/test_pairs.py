"""Visible pairs, counted token by token and by formula."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import masks
from ringplan.reference.masks import Mask, documents
from ringplan.reference.partition import PARTITIONS, by_document, contiguous, joined, positions
from ringplan.timeline.pairs import Dealt, counter, ordered, visible_pairs
from tests.reference.rings import Small, smalls

WINDOWS = st.none() | st.integers(1, 40)


@st.composite
def deals(draw: st.DrawFn) -> Dealt:
    """Draw a sequence of one document, with a prefix or without, or of several."""
    partition, size = draw(st.sampled_from(list(PARTITIONS))), draw(st.integers(1, 6))
    parts = {"contiguous": 1, "striped": size, "zigzag": 2 * size}[partition]
    lengths: tuple[int, ...] = ()
    tokens = 2 * draw(st.integers(1, 5))
    if draw(st.booleans()):
        lengths = tuple(parts * n for n in draw(st.lists(st.integers(1, 6), max_size=6)))
        short = -sum(lengths) % (2 * size)
        lengths += (short or 2 * size,)
        tokens = sum(lengths) // size
    return Dealt(
        partition,
        size,
        tokens,
        tokens if lengths else tokens + draw(st.integers(0, 5)),
        causal=draw(st.booleans()),
        window=draw(WINDOWS),
        documents=lengths,
    )


def enumerated(dealt: Dealt, *, reverse: bool = False) -> list[list[int]]:
    """Every query against every key."""
    size, cut = dealt.ring_size, PARTITIONS[dealt.partition]
    cached = size * (dealt.block_tokens - dealt.query_tokens)
    if size == 1:
        cut = contiguous
    if dealt.documents and dealt.partition != "contiguous":
        layout = by_document(cut, dealt.documents, size)
    else:
        layout = cut(np.arange(size * dealt.query_tokens) + cached, size)
    keys = joined(contiguous(np.arange(cached), size), layout)
    rule = Mask(dealt.causal, dealt.window, documents(dealt.documents) if dealt.documents else None)

    def seen(rank: int, step: int) -> int:
        owner = (rank + 1 + step if reverse else rank - step) % size
        here, there = positions(layout[rank]), positions(keys[owner])
        return int(np.sum(np.broadcast_to(rule.between(here, there), (len(here), len(there)))))

    return [[seen(rank, step) for step in range(size)] for rank in range(size)]


@given(dealt=deals(), reverse=st.booleans())
def test_pairs_are_those_counted_one_by_one(dealt: Dealt, *, reverse: bool) -> None:
    assert visible_pairs(dealt, reverse=reverse).tolist() == enumerated(dealt, reverse=reverse)


@given(dealt=deals())
def test_a_reversed_ring_meets_the_same_blocks_in_another_order(dealt: Dealt) -> None:
    plain, reverse = (np.sort(visible_pairs(dealt, reverse=each)) for each in (False, True))

    assert np.array_equal(plain, reverse)


@given(queries=st.integers(0, 9), keys=st.integers(0, 9), least=st.integers(-12, 12))
def test_ordered_pairs_are_those_counted_one_by_one(queries: int, keys: int, least: int) -> None:
    found = sum(i - j >= least for i in range(queries) for j in range(keys))

    assert ordered(queries, keys, least) == found


def test_ordered_pairs_of_long_runs_do_not_overflow() -> None:
    tokens = 2**40

    assert ordered(tokens, tokens, 0) == pytest.approx(tokens * (tokens + 1) / 2, rel=1e-12)


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("cached", [0, 6])
@pytest.mark.parametrize("partition", list(PARTITIONS))
def test_the_busiest_rank_has_the_pairs_of_the_closed_form(
    partition: str, size: int, cached: int
) -> None:
    tokens: Any = {"query_tokens": 8, "block_tokens": 8 + cached}
    later = {
        "contiguous": masks.full_pairs,
        "striped": masks.diagonal_pairs,
        "zigzag": masks.zigzag_pairs,
    }[partition]

    busiest = visible_pairs(Dealt(partition, size, **tokens)).max(axis=0)

    assert busiest[0] == masks.diagonal_pairs(**tokens)
    assert set(busiest[1:]) == {later(**tokens)}


@given(small=smalls(cached=st.integers(0, 3), window=WINDOWS))
def test_a_simulated_ring_counts_the_same_pairs(small: Small) -> None:
    dealt = Dealt(
        small.partition if small.ring_size > 1 else "contiguous",
        small.ring_size,
        small.tokens,
        small.tokens + small.cached,
        small.causal,
        small.window,
    )
    counted = [
        [step.work.pairs for step in rank.ledger.steps if step.read_bytes]
        for rank in small.forward()
    ]

    assert visible_pairs(dealt).tolist() == counted


def test_many_documents_of_few_lengths_are_counted_at_once() -> None:
    """Zigzag shares every document out evenly, so that each rank has as much as another."""
    lengths = tuple(chain.from_iterable([(64, 128, 192)] * 1000))

    pairs = visible_pairs(
        Dealt("zigzag", 32, sum(lengths) // 32, sum(lengths) // 32, documents=lengths)
    )

    each = sum(length * (length + 1) // 2 for length in lengths) / 32
    assert set(pairs.sum(axis=1)) == {each}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Dealt("contiguous", 2, 4, 5, documents=(8,)), "no cached prefix"),
        (Dealt("contiguous", 2, 4, 4, documents=(7,)), "not as long as the sequence"),
        (Dealt("zigzag", 2, 4, 4, documents=(6, 2)), "does not make 4 equal parts"),
    ],
)
def test_documents_that_cannot_be_dealt_are_refused(wrong: Dealt, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        counter(wrong)
