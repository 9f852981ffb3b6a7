"""Visible pairs, and the share of the slots that they fill."""

from __future__ import annotations

from hypothesis import strategies as st

from ringplan.costs import masks
from tests.reference.rings import CAUSAL, Small, computing, smalls
from tests.reference.witnesses.registry import Claim, rings, witness


@witness(masks.full_pairs)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(causal=st.just(value=False), cached=st.integers(0, 3)))
    step = data.draw(st.sampled_from(computing(small.forward())[0]))
    block = small.tokens + small.cached
    return Claim({"query_tokens": small.tokens, "block_tokens": block}, step.work.pairs)


@witness(masks.diagonal_pairs)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(causal=CAUSAL, cached=st.integers(0, 3)))
    (first, *_), *_ = computing(small.forward())
    block = small.tokens + small.cached
    return Claim({"query_tokens": small.tokens, "block_tokens": block}, first.work.pairs)


@witness(masks.zigzag_pairs)
def _(data: st.DataObject) -> Claim:
    small = data.draw(
        smalls(
            ring_size=rings, partition=st.just("zigzag"), causal=CAUSAL, cached=st.integers(0, 3)
        )
    )
    _, *later = data.draw(st.sampled_from(computing(small.forward())))
    block = small.tokens + small.cached
    pairs = data.draw(st.sampled_from(later)).work.pairs
    return Claim({"query_tokens": small.tokens, "block_tokens": block}, pairs)


@witness(masks.visible_pairs)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(causal=CAUSAL, cached=st.integers(0, 3)))
    pairs = sum(rank.ledger.work.pairs for rank in small.forward())
    cached = small.cached * small.ranks
    return Claim({"new_tokens": small.new_tokens, "cached_tokens": cached}, pairs)


@witness(masks.visible_share)
def _(data: st.DataObject) -> Claim:
    partition = data.draw(st.sampled_from(["contiguous", "zigzag"]))
    small = data.draw(
        smalls(
            ring_size=rings, partition=st.just(partition), causal=CAUSAL, cached=st.integers(0, 3)
        )
    )
    busiest = max(steps[1].work.pairs for steps in computing(small.forward()))
    return Claim(
        {
            "new_tokens": small.new_tokens,
            "seq_len": small.seq_len,
            "mask_share": 1 if partition == "contiguous" else 0.5,
        },
        busiest / (small.tokens + small.cached) ** 2,
    )


def windowed(data: st.DataObject) -> tuple[Small, list[list[int]]]:
    """A ring with a sliding window, and the pairs of every rank and step."""
    small = data.draw(smalls(ring_size=rings, causal=CAUSAL, window=st.integers(1, 40)))
    pairs = [[step.work.pairs for step in steps] for steps in computing(small.forward())]
    return small, pairs


def unmasked(small: Small) -> tuple[float, float]:
    """Pairs of step 0 and of a later step without the window, by the formulas above."""
    tokens = {"query_tokens": small.tokens, "block_tokens": small.tokens}
    first = masks.diagonal_pairs(**tokens)
    later = {
        "contiguous": masks.full_pairs(**tokens),
        "zigzag": masks.zigzag_pairs(**tokens),
        "striped": first,
    }
    return first, later[small.partition]


@witness(masks.window_first_pairs)
def _(data: st.DataObject) -> Claim:
    small, pairs = windowed(data)
    return Claim(
        {
            "pairs": unmasked(small)[0],
            "query_tokens": small.tokens,
            "block_tokens": small.tokens,
            "window": small.window,
        },
        max(first for first, *_ in pairs),
        None if small.partition == "contiguous" else unmasked(small)[0],
    )


@witness(masks.window_later_pairs)
def _(data: st.DataObject) -> Claim:
    small, pairs = windowed(data)
    first, later = unmasked(small)
    tokens = {"query_tokens": small.tokens, "block_tokens": small.tokens}
    assert small.window is not None
    seen = masks.window_first_pairs(pairs=first, **tokens, window=small.window)
    busiest = max(sum(steps) for steps in pairs)
    return Claim(
        {
            "pairs": later,
            "first_pairs": seen,
            "query_tokens": small.tokens,
            "window": small.window,
            "ring_size": small.ring_size,
        },
        max(busiest - seen, 0) / (small.ring_size - 1),
        later,
    )


def share(data: st.DataObject, partition: str, *, blocks: bool) -> tuple[Small, float]:
    """Useful pairs over the slots of the busiest rank at every step."""
    small = data.draw(smalls(partition=st.just(partition), causal=CAUSAL))
    steps = [
        [step.work.touched_pairs if blocks else step.work.pairs for step in steps]
        for steps in computing(small.forward())
    ]
    slots = small.ranks * sum(max(each) for each in zip(*steps, strict=True))
    return small, sum(map(sum, steps)) / slots


@witness(masks.contiguous_utilization)
def _(data: st.DataObject) -> Claim:
    small, used = share(data, "contiguous", blocks=False)
    return Claim({"seq_len": small.seq_len, "block_tokens": small.tokens}, used)


@witness(masks.contiguous_utilization_blocks)
def _(data: st.DataObject) -> Claim:
    small, used = share(data, "contiguous", blocks=True)
    return Claim({"cp_size": small.ranks}, used)


@witness(masks.zigzag_utilization)
def _(data: st.DataObject) -> Claim:
    small, used = share(data, "zigzag", blocks=False)
    size = {"seq_len": small.seq_len, "block_tokens": small.tokens, "cp_size": small.ranks}
    return Claim(size, used)


@witness(masks.striped_utilization)
def _(data: st.DataObject) -> Claim:
    small, used = share(data, "striped", blocks=False)
    size = {"seq_len": small.seq_len, "block_tokens": small.tokens, "cp_size": small.ranks}
    return Claim(size, used)


@witness(masks.balanced_utilization_blocks)
def _(data: st.DataObject) -> Claim:
    small, used = share(data, data.draw(st.sampled_from(["zigzag", "striped"])), blocks=True)
    return Claim({"cp_size": small.ranks}, used)
