"""Tokens, heads and FLOPs of a rank, and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ringplan.costs import attention, buffers, cache, layout, rank_cache
from ringplan.reference.clock import replay
from ringplan.reference.local import collect
from ringplan.reference.partition import PARTITIONS, positions
from tests.reference.rings import CAUSAL, SIZES, Small, computing, smalls
from tests.reference.witnesses.registry import Claim, rates, rings, witness

if TYPE_CHECKING:
    from ringplan.reference.network import Rank


@witness(layout.context_tokens)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    held = sum(rank["kv"][0].shape[2] for rank in small.placed())
    old = small.cached * small.ranks
    return Claim({"cached_tokens": old, "new_tokens": small.new_tokens}, held)


@witness(layout.padded_tokens)
def _(data: st.DataObject) -> Claim:
    """The shortest sequence, no shorter than asked, that the partition can deal."""
    partition, ranks = data.draw(st.sampled_from(list(PARTITIONS))), data.draw(SIZES)
    tokens = data.draw(st.integers(1, 40))

    def deals(length: int) -> bool:
        try:
            return bool(PARTITIONS[partition](np.arange(length), ranks))
        except ValueError:
            return False

    multiple = 2 * ranks if partition == "zigzag" else ranks
    padded = next(length for length in range(tokens, 1000) if deals(length))
    return Claim({"new_tokens": tokens, "multiple": multiple}, padded)


@witness(layout.shard_tokens)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    (k, _) = small.placed()[-1]["kv"]
    return Claim({"tokens": small.seq_len, "cp_size": small.ranks}, k.shape[2])


def inside(data: st.DataObject) -> tuple[Small, Rank]:
    """A rank of a hybrid, as its ring sees it."""
    small = data.draw(smalls(ulysses_size=st.integers(2, 4)))
    return small, data.draw(st.sampled_from(small.forward())).scope("by_head")


@witness(layout.ring_ranks)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 4)))
    met = len(computing(small.forward())[0])
    return Claim({"cp_size": small.ranks, "ulysses_size": small.ulysses_size}, met)


@witness(layout.ring_query_heads)
def _(data: st.DataObject) -> Claim:
    small, rank = inside(data)
    inputs = {"num_heads": small.heads, "ulysses_size": small.ulysses_size}
    return Claim(inputs, rank["q"][0].shape[1])


@witness(layout.ring_kv_heads)
def _(data: st.DataObject) -> Claim:
    small, rank = inside(data)
    inputs = {"num_kv_heads": small.kv_heads, "ulysses_size": small.ulysses_size}
    return Claim(inputs, rank["kv"][0].shape[1])


@witness(layout.ring_tokens)
def _(data: st.DataObject) -> Claim:
    small, rank = inside(data)
    inputs = {"tokens": small.tokens, "ulysses_size": small.ulysses_size}
    return Claim(inputs, rank["q"][0].shape[2])


@witness(layout.ring_latencies)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls())
    return Claim({"group_size": small.ranks}, small.gather()[0].ledger.exchanges)


def work(data: st.DataObject, *, backward: bool) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 3)))
    ranks = small.backward() if backward else small.forward()
    done = data.draw(st.sampled_from(ranks)).ledger.work
    return Claim(
        {
            "batch_size": small.batch,
            "pairs": done.pairs,
            "num_heads": small.heads // small.ulysses_size,
            "head_dim": small.head_dim,
            "v_head_dim": small.v_head_dim,
        },
        done.flops,
    )


@witness(attention.attention_flops)
def _(data: st.DataObject) -> Claim:
    return work(data, backward=False)


@witness(attention.attention_backward_flops)
def _(data: st.DataObject) -> Claim:
    return work(data, backward=True)


@witness(attention.compute_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls(ring_size=st.just(1))), data.draw(rates)
    ranks = small.forward()
    inputs = {
        "flops": ranks[0].ledger.work.flops,
        "flops_per_second": speed.flops_per_second,
    }
    return Claim(inputs, replay(ranks, speed, overlaps=True).total)


@witness(buffers.ring_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    (held,) = {rank.ledger.peak("visiting", "state") for rank in small.forward()}
    return Claim(
        {
            "ring_size": small.ring_size,
            "kv_buffers": 2,
            "hop_bytes": small.hop_bytes,
            "state_bytes": buffers.running_state_bytes(**state(small, small.v_head_dim)),
        },
        held,
    )


def state(small: Small, elements: int) -> dict[str, int]:
    """Sums of a rank's queries, so wide, that steps add to themselves."""
    return {
        "batch_size": small.batch,
        "query_tokens": small.tokens,
        "num_heads": small.heads,
        "elements": elements,
        "accumulator_bytes": small.accumulator_bytes,
        "block_bytes": 0,
        "statistic_bytes": small.accumulator_bytes,
    }


@witness(buffers.running_state_bytes)
def _(data: st.DataObject) -> Claim:
    """Output, maximum and denominator; on the way back dQ, log-sum-exp and delta."""
    small, way = data.draw(smalls()), data.draw(st.sampled_from(["forward", "ring", "gather"]))
    if way == "forward":
        (held,) = {rank.ledger.peak("state") for rank in small.forward()}
        return Claim(state(small, small.v_head_dim), held)
    ranks = small.gather_backward() if way == "gather" else small.backward()
    (held,) = {rank.ledger.peak("dq", "lse", "delta") for rank in ranks}
    return Claim(state(small, small.head_dim), held)


@witness(buffers.ring_backward_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small, reverse = data.draw(smalls(ring_size=rings)).plain_wire(), data.draw(st.booleans())
    names = ("last", "visiting", "dkv", "dq", "lse", "delta")
    (held,) = {rank.ledger.peak(*names) for rank in small.backward(reverse=reverse)}
    return Claim(
        {
            "ring_size": small.ring_size,
            "kv_buffers": 2,
            "last_blocks": int(reverse),
            "hop_bytes": small.hop_bytes,
            "gradient_buffers": 2,
            "gradient_bytes": small.gradient_bytes,
            "state_bytes": buffers.running_state_bytes(**state(small, small.head_dim)),
        },
        held,
    )


@witness(cache.score_matrix_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(causal=st.just(value=False), cached=st.integers(0, 3)))
    pairs = sum(rank.ledger.work.pairs for rank in small.forward())
    return Claim(
        {
            "dp_size": 1,
            "batch_size": small.batch,
            "num_attention_heads": small.heads,
            "new_tokens": small.new_tokens,
            "seq_len": small.seq_len,
            "element_bytes": small.element_bytes,
        },
        pairs * small.batch * small.heads * small.element_bytes,
    )


@witness(cache.kv_layer_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    ranks = small.placed()
    whole = [collect([rank["kv"][i] for rank in ranks], small.setup.keys) for i in (0, 1)]
    return Claim(
        {
            "dp_size": 1,
            "batch_size": small.batch,
            "seq_len": small.seq_len,
            "row_bytes": small.kv_heads * (small.head_dim + small.v_head_dim) * small.element_bytes,
        },
        sum(array.nbytes for array in whole),
    )


def kept(small: Small, window: int) -> int:
    """Of the last tokens of the sequence, those that the rank with most of them holds."""
    first = small.seq_len - window
    return max(int((positions(chunks) >= first).sum()) for chunks in small.setup.keys)


@witness(rank_cache.window_block_tokens)
def _(data: st.DataObject) -> Claim:
    """Keys that some new token of the pass can see, on the contiguous rank with most of them."""
    small = data.draw(
        smalls(partition=st.just("contiguous"), causal=CAUSAL, cached=st.integers(1, 6))
    )
    window = data.draw(st.integers(1, 40))
    new = small.setup.queries
    first = positions(new[0])[0]
    held = [int((positions(chunks) >= first - window).sum()) for chunks in small.setup.keys]
    return Claim(
        {
            "block_tokens": small.tokens + small.cached,
            "query_tokens": small.tokens,
            "window_tokens": min(window, small.cached),
        },
        max(held),
    )


@witness(rank_cache.window_tokens)
def _(data: st.DataObject) -> Claim:
    small, window = (
        data.draw(smalls(partition=st.just("contiguous"))),
        data.draw(st.integers(1, 40)),
    )
    return Claim({"window": window, "chunk_tokens": small.tokens}, kept(small, window))


@witness(rank_cache.zigzag_window_tokens)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, partition=st.just("zigzag")))
    window = data.draw(st.integers(1, 40))
    inputs = {"window": window, "block_tokens": small.tokens, "seq_len": small.seq_len}
    return Claim(inputs, kept(small, min(window, small.seq_len)))
