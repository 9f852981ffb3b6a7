"""Every rank and every step of a ring, not only the busiest ones that formulas speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import masks
from tests.reference.rings import CAUSAL, computing, smalls

if TYPE_CHECKING:
    from tests.reference.rings import Small


def pairs(small: Small) -> list[list[int]]:
    """Visible pairs by rank and step."""
    return [[step.work.pairs for step in steps] for steps in computing(small.forward())]


def tokens(small: Small) -> dict[str, float]:
    return {"query_tokens": small.tokens, "block_tokens": small.tokens + small.cached}


@given(small=smalls(partition=st.just("contiguous"), causal=CAUSAL))
def test_contiguous_rank_sees_all_of_earlier_blocks_and_none_of_later_ones(small: Small) -> None:
    """At step s rank r meets the block of r - s; below zero it has gone round and comes later."""
    for rank, (first, *later) in enumerate(pairs(small)):
        full = masks.full_pairs(**tokens(small))

        assert first == masks.diagonal_pairs(**tokens(small))
        assert later == [full if step <= rank else 0 for step in range(1, small.ring_size)]


@given(small=smalls(partition=st.just("zigzag"), causal=CAUSAL, cached=st.integers(0, 3)))
def test_zigzag_ranks_see_as_much_as_one_another_at_every_step(small: Small) -> None:
    for first, *later in pairs(small):
        assert first == masks.diagonal_pairs(**tokens(small))
        assert set(later) <= {masks.zigzag_pairs(**tokens(small))}


@given(small=smalls(partition=st.just("striped"), causal=CAUSAL))
def test_striped_rank_sees_its_triangle_with_or_without_the_diagonal(small: Small) -> None:
    """A block of an earlier stripe begins one token earlier than one of a later stripe."""
    for rank, steps in enumerate(pairs(small)):
        for step, seen in enumerate(steps):
            diagonal = 0 if step <= rank else small.tokens

            assert seen == masks.diagonal_pairs(**tokens(small)) - diagonal


@given(small=smalls(causal=CAUSAL, ulysses_size=st.integers(1, 3)))
def test_ranks_that_exchange_heads_see_the_same_pairs(small: Small) -> None:
    """Heads differ between them, tokens do not."""
    seen = np.array(pairs(small)).reshape(small.ring_size, small.ulysses_size, -1)

    assert (seen == seen[:, :1]).all()


@given(small=smalls(ring_size=st.integers(2, 6)))
def test_every_rank_sends_one_block_a_step_but_for_the_last(small: Small) -> None:
    for rank in small.forward():
        *sending, last = (step.sent["kv"] for step in rank.ledger.steps[1:])

        assert set(sending) == {small.hop_bytes}
        assert last == 0


@given(small=smalls(ring_size=st.integers(2, 6)), reverse=st.booleans())
def test_backward_sends_blocks_with_their_gradients_and_gradients_home(
    small: Small,
    reverse: bool,  # noqa: FBT001 - drawn
) -> None:
    """The reversed ring has no hop home: the last block that it meets is its own."""
    for rank in small.backward(reverse=reverse):
        *sending, last = (step.sent for step in rank.ledger.steps[1:])

        assert all(step["kv"] == small.hop_bytes for step in sending)
        assert all(step["gradients"] == small.gradient_bytes for step in sending)
        assert last["kv"] == 0
        assert last["gradients"] == (0 if reverse else small.gradient_bytes)
