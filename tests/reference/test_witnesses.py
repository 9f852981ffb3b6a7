"""
Every formula on rings, exchanges, decode and utilization equals what a run's ledgers hold.

A witness runs something and returns the arguments of its formula with what was counted. The
formula itself is called here, so that a witness cannot answer for it.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringplan.estimation.core  # noqa: F401 - registers every formula
from ringplan.costs import (
    attention,
    cache,
    collectives,
    decode,
    hiding,
    layout,
    masks,
    memory,
    ring,
)
from ringplan.costs.formula import REGISTRY, Formula
from ringplan.reference.clock import Rates, replay
from ringplan.reference.local import collect
from ringplan.reference.partition import PARTITIONS, positions
from tests.reference.rings import CAUSAL, SIZES, Small, computing, sent, smalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.reference.network import Rank

#: Modules in which every formula needs a witness, and formulas of what a rank holds that do.
MODULES = (ring, collectives, masks, decode, hiding, layout, attention)
HELD = (
    cache.kv_layer_bytes,
    cache.score_matrix_bytes,
    cache.window_block_tokens,
    cache.window_tokens,
    cache.zigzag_window_tokens,
    memory.query_gradient_bytes,
    memory.ring_backward_buffer_bytes,
    memory.ring_buffer_bytes,
)
TENSOR_PARALLEL = "tensor parallelism is outside attention: a rank's heads are what it is given"
LINKS = "which link, how fast: a matter of the machine, not of a run"
#: Formulas of these modules that no run can witness, and why.
EXEMPT = {
    "achieved_bandwidth": LINKS,
    "achieved_rate": "a measured share of the peak",
    "fits_domain": LINKS,
    "group_span": LINKS,
    "kv_heads": TENSOR_PARALLEL,
    "mesh_bandwidth": LINKS,
    "of_slowest_link": LINKS,
    "query_heads": TENSOR_PARALLEL,
    "tile_efficiency": "a table of measured kernels",
}


class Claim(NamedTuple):
    """Arguments of a formula, and what a run counted; for a bound also the most it may be."""

    inputs: dict[str, Any]
    counted: float
    most: float | None = None


Witness = "Callable[[st.DataObject], Claim]"
WITNESSES: dict[str, Callable[[st.DataObject], Claim]] = {}


def witness(made: Formula[Any]) -> Callable[[Any], Any]:
    """Let a function answer for a formula."""

    def register(function: Callable[[st.DataObject], Claim]) -> Callable[[st.DataObject], Claim]:
        assert made.name not in WITNESSES
        WITNESSES[made.name] = function
        return function

    return register


rings = st.integers(2, 6)
rates = st.builds(
    Rates,
    flops_per_second=st.floats(1e3, 1e6),
    bandwidth=st.floats(1e3, 1e6),
    latency=st.floats(0, 1e-2),
    read_bandwidth=st.just(float("inf")),
)


# The ring


@witness(ring.kv_block_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    step = small.forward()[0].ledger.steps[1]
    tokens = small.tokens + small.cached
    inputs = {**small.kv_shape, "tokens": tokens, "element_bytes": small.kv_bytes}
    return Claim(inputs, step.sent["kv"])


@witness(ring.ring_hops)
def _(data: st.DataObject) -> Claim:
    small, what = data.draw(smalls()), data.draw(st.sampled_from([-1, 0]))
    if what == -1:
        hops = small.forward()[0].ledger.hops("kv")
    else:  # gradients that come home with the last hop
        hops = small.backward()[0].ledger.hops("gradients")
    return Claim({"ring_size": small.ring_size, "extra_hops": what}, hops)


@witness(ring.bytes_of_hops)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    hops = small.ring_size - 1
    return Claim({"hops": hops, "hop_bytes": small.hop_bytes}, sent(small.forward()))


@witness(ring.backward_bytes)
def _(data: st.DataObject) -> Claim:
    small, reverse = data.draw(smalls()), data.draw(st.booleans())
    home = 0 if reverse or small.ring_size == 1 else 1
    return Claim(
        {
            "kv_hops": small.ring_size - 1,
            "kv_bytes": small.hop_bytes,
            "gradient_hops": small.ring_size - 1 + home,
            "gradient_bytes": small.gradient_bytes,
        },
        sent(small.backward(reverse=reverse)),
    )


@witness(ring.backward_hop_bytes)
def _(data: st.DataObject) -> Claim:
    small, reverse = data.draw(smalls(ring_size=rings)), data.draw(st.booleans())
    step = small.backward(reverse=reverse)[0].ledger.steps[1]
    inputs = {"kv_bytes": small.hop_bytes, "gradient_bytes": small.gradient_bytes}
    return Claim(inputs, step.sent.total())


@witness(ring.bytes_of_layers)
def _(data: st.DataObject) -> Claim:
    kinds = [data.draw(smalls()) for _ in range(2)]
    layers = data.draw(st.tuples(st.integers(0, 2), st.integers(1, 2)))
    each = tuple((kind.ring_size - 1) * kind.hop_bytes for kind in kinds)
    total = sum(
        sent(kind.forward())
        for count, kind in zip(layers, kinds, strict=True)
        for _ in range(count)
    )
    return Claim({"layers": layers, "layer_bytes": each}, total)


@witness(ring.time_of_layers)
def _(data: st.DataObject) -> Claim:
    kinds = [data.draw(smalls()) for _ in range(2)]
    speed, layers = data.draw(rates), data.draw(st.tuples(st.integers(0, 2), st.integers(1, 2)))
    each = tuple(replay(kind.forward(), speed, overlaps=True).total for kind in kinds)
    runs = [kind for count, kind in zip(layers, kinds, strict=True) for _ in range(count)]
    total = sum(replay(run.forward(), speed, overlaps=True).total for run in runs)
    return Claim({"layers": layers, "layer_time": each}, total)


@witness(ring.latencies_of_layers)
def _(data: st.DataObject) -> Claim:
    kinds = [data.draw(smalls()) for _ in range(2)]
    layers = data.draw(st.tuples(st.integers(0, 2), st.integers(1, 2)))
    runs = [kind for count, kind in zip(layers, kinds, strict=True) for _ in range(count)]
    waited = sum(run.forward()[0].ledger.exchanges for run in runs)
    hops = tuple(kind.ring_size - 1 for kind in kinds)
    return Claim({"layers": layers, "latencies": hops}, waited)


@witness(ring.transfer_time)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=st.just(2)))
    speed = data.draw(rates)._replace(flops_per_second=float("inf"))
    return Claim(
        {
            "transfer_bytes": small.hop_bytes,
            "bandwidth": speed.bandwidth,
            "latency": speed.latency,
        },
        replay(small.forward(), speed, overlaps=True).total,
    )


class Timed(NamedTuple):
    """A ring on a clock: its size, seconds of step 0, of a later step, of a hop, and the ranks."""

    ring_size: int
    first: float
    later: float
    hop: float
    speed: Rates
    ranks: list[Rank]


def timed(data: st.DataObject) -> Timed:
    """Run a ring of which one rank is the busiest at every step, as the formulas assume."""
    small, speed = data.draw(smalls(ring_size=rings)), data.draw(rates)
    ranks = small.forward()
    flops = np.array([[step.work.flops for step in steps] for steps in computing(ranks)])
    busiest = flops.max(axis=0) / speed.flops_per_second
    hop = speed.latency + small.hop_bytes / speed.bandwidth
    later = busiest[1]
    assert (busiest[1:] == later).all()
    return Timed(small.ring_size, busiest[0], later, hop, speed, ranks)


@witness(ring.overlapped_exposure)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    return Claim(
        {
            "first_step_time": run.first,
            "step_time": run.later,
            "transfer_time": run.hop,
            "ring_size": run.ring_size,
        },
        replay(run.ranks, run.speed, overlaps=True).exposed,
    )


@witness(ring.synchronous_exposure)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    exposed = replay(run.ranks, run.speed, overlaps=False).exposed
    return Claim({"transfer_time": run.hop, "ring_size": run.ring_size}, exposed)


@witness(ring.busy_time)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    return Claim(
        {"first_step_time": run.first, "step_time": run.later, "ring_size": run.ring_size},
        replay(run.ranks, run.speed, overlaps=True).computing,
    )


@witness(ring.pass_time)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    busy = run.first + (run.ring_size - 1) * run.later
    exposed = (run.ring_size - 1) * run.hop
    total = replay(run.ranks, run.speed, overlaps=False).total
    return Claim({"busy_time": busy, "exposed_time": exposed}, total)


@witness(ring.overlap_margin)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    step = run.ranks[0].ledger.steps[1]
    hop = step.exchanges * run.speed.latency + step.sent.total() / run.speed.bandwidth
    flops = max(rank.ledger.steps[2].work.flops for rank in run.ranks)
    margin = flops / run.speed.flops_per_second / hop
    return Claim({"step_time": run.later, "transfer_time": run.hop}, margin)


@witness(ring.total_exposure)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, ulysses_size=st.just(2)))
    speed = data.draw(rates)
    ranks = small.forward()
    exchange = 4 * speed.latency + sent(ranks, "heads") / speed.bandwidth
    around = (small.ring_size - 1) * speed.latency + sent(ranks, "kv") / speed.bandwidth
    exposed = replay(ranks, speed, overlaps=False).exposed
    return Claim({"ring_exposure": around, "collective_time": exchange}, exposed)


# The exchanges


@witness(collectives.all_gather_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    inputs = {"cp_size": small.ranks, "shard_bytes": small.hop_bytes}
    return Claim(inputs, sent(small.gather()))


@witness(collectives.all_gather_backward_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls())
    inputs = {
        "cp_size": small.ranks,
        "shard_bytes": small.hop_bytes,
        "gradient_bytes": small.gradient_bytes,
    }
    return Claim(inputs, sent(small.gather_backward()))


@witness(collectives.gathered_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small, training = data.draw(smalls()).plain_wire(), data.draw(st.booleans())
    ranks = small.gather_backward() if training else small.gather()
    held = max(rank.ledger.peak("gathered", "gradients") for rank in ranks)
    shard = small.hop_bytes + (small.gradient_bytes if training else 0)
    return Claim({"cp_size": small.ranks, "shard_bytes": shard}, held)


@witness(collectives.ulysses_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 4)))
    backward = data.draw(st.booleans())
    ranks = small.backward() if backward else small.forward()
    return Claim(small.exchange, sent(ranks, "heads"))


@witness(collectives.hybrid_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 4)))
    ranks = small.forward()
    heads, blocks = sent(ranks, "heads"), sent(ranks, "kv")
    return Claim({"ulysses_bytes": heads, "ring_bytes": blocks}, sent(ranks))


def by_head(rank: Rank, *names: str) -> int:
    """Bytes of arrays of a rank, heads exchanged."""
    inner = rank.scope("by_head")
    return sum(array.nbytes for name in names for array in inner[name])


@witness(collectives.exchanged_qkv_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4)))
    return Claim(small.exchange, by_head(small.forward()[0], "q", "kv"))


@witness(collectives.exchanged_out_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4)))
    backward = data.draw(st.booleans())
    rank = small.backward()[0] if backward else small.forward()[0]
    unused = ("num_kv_heads", "head_dim")
    inputs = {name: size for name, size in small.exchange.items() if name not in unused}
    return Claim(inputs, by_head(rank, "dout" if backward else "out"))


@witness(collectives.exchange_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4))).plain_wire()
    ranks = small.forward()
    ring_names = ("by_head.visiting", "by_head.state")
    around = ranks[0].ledger.peak(*ring_names) if small.ring_size > 1 else 0
    names = ("by_head.q", "by_head.kv", "by_head.out")
    counted = ranks[0].ledger.peak(*names, *(ring_names if small.ring_size > 1 else ()))
    return Claim(
        {
            "arrived_bytes": by_head(ranks[0], "q", "kv"),
            "ring_buffer_bytes": around,
            "leaving_bytes": by_head(ranks[0], "out"),
        },
        counted,
    )


@witness(collectives.collective_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls()), data.draw(rates)
    ranks = small.gather()
    return Claim(
        {
            "transfer_bytes": sent(ranks),
            "bandwidth": speed.bandwidth,
            "latency": speed.latency,
            "latencies": small.ranks - 1,
        },
        replay(ranks, speed, overlaps=False).exposed,
    )


# Masks and utilization


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


# Decode and cached prefixes


@witness(decode.cache_shard_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings))
    ranks = small.decode(1, rotating=True)
    return Claim(
        {
            "batch_size": small.batch,
            "tokens": small.tokens,
            "cached_elements": small.kv_heads * (small.head_dim + small.v_head_dim),
            "element_bytes": small.kv_bytes,
        },
        ranks[0].ledger.steps[1].sent["kv"],
    )


@witness(decode.rotate_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls()), data.draw(rates)
    ranks = small.decode(1, rotating=True)
    return Claim(
        {
            "cp_size": small.ranks,
            "bytes_sent": sent(ranks),
            "bandwidth": speed.bandwidth,
            "latency": speed.latency,
        },
        replay(ranks, speed, overlaps=False).exposed,
    )


@witness(decode.stationary_bytes)
def _(data: st.DataObject) -> Claim:
    small, queries = data.draw(smalls()), data.draw(st.integers(1, 3))
    queries = min(queries, small.seq_len)
    _, *others = small.decode(queries, rotating=False)
    exchanged = {rank.ledger.sent() + rank.ledger.received() for rank in others} or {0}
    (each,) = exchanged
    return Claim(
        {
            "batch_size": small.batch,
            "new_tokens": queries,
            "num_heads": small.heads,
            "query_dim": small.head_dim,
            "output_dim": small.v_head_dim,
            "element_bytes": small.element_bytes,
            "partial_bytes": small.partial_bytes,
            "accumulator_bytes": small.accumulator_bytes,
            "cp_size": small.ranks,
        },
        each,
    )


@witness(decode.decode_latencies)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls())
    waited = max(rank.ledger.exchanges for rank in small.decode(1, rotating=False))
    return Claim({"latencies": 2, "cp_size": small.ranks}, waited)


@witness(decode.memory_read_time)
def _(data: st.DataObject) -> Claim:
    small, speed, share = (
        data.draw(smalls()).plain_wire(),
        data.draw(rates),
        data.draw(st.floats(0.1, 1)),
    )
    ranks = small.decode(1, rotating=False)
    only_reading = speed._replace(
        flops_per_second=float("inf"), read_bandwidth=speed.bandwidth * share
    )
    return Claim(
        {"read_bytes": small.hop_bytes, "bandwidth": speed.bandwidth, "efficiency": share},
        replay(ranks, only_reading, overlaps=False).computing,
    )


@witness(decode.roofline_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls()).plain_wire(), data.draw(rates)
    speed = speed._replace(read_bandwidth=speed.bandwidth)
    ranks = small.decode(1, rotating=False)
    flops = max(rank.ledger.work.flops for rank in ranks)
    return Claim(
        {
            "compute_time": flops / speed.flops_per_second,
            "memory_time": small.hop_bytes / speed.read_bandwidth,
        },
        replay(ranks, speed, overlaps=False).computing,
    )


@witness(decode.pass_q_block_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    what, elements, statistic = data.draw(
        st.sampled_from(
            [
                ("queries", small.head_dim, 0),
                ("outputs", small.v_head_dim, small.accumulator_bytes),
            ]
        )
    )
    ranks = small.pass_q()
    return Claim(
        {
            "batch_size": small.batch,
            "query_tokens": small.tokens,
            "num_heads": small.heads,
            "elements": elements,
            "element_bytes": small.element_bytes,
            "statistic_bytes": statistic,
        },
        ranks[0].ledger.sent(what) // (small.ranks - 1),
    )


@witness(decode.pass_q_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    ranks = small.pass_q()
    query = ranks[0].ledger.steps[1].sent["queries"]
    (out,), (lse,) = ranks[0]["out"], ranks[0]["lse"]
    output = out.nbytes + lse.nbytes
    return Claim(
        {"cp_size": small.ranks, "query_bytes": query, "output_bytes": output}, sent(ranks)
    )


@witness(decode.pass_q_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls(cached=st.integers(0, 3))), data.draw(rates)
    ranks = small.pass_q()
    *round_, home = zip(*(rank.ledger.steps for rank in ranks), strict=True)
    compute = [max(step.work.flops for step in each) / speed.flops_per_second for each in round_]
    wire = [
        max(s.exchanges * speed.latency + s.sent.total() / speed.bandwidth for s in each)
        for each in round_
    ]
    steps = map(max, compute, wire)
    output = max(step.sent["outputs"] for step in home) // max(small.ranks - 1, 1)
    return Claim(
        {
            "ring_time": sum(steps),
            "cp_size": small.ranks,
            "output_bytes": output,
            "bandwidth": speed.bandwidth,
            "latency": speed.latency,
        },
        replay(ranks, speed, overlaps=True).total,
    )


# The block that hides its transfer

#: Rates at which blocks of some tens of tokens hide their transfer.
SLOW = st.builds(
    Rates,
    flops_per_second=st.floats(2e3, 6e3),
    bandwidth=st.floats(50, 100),
    latency=st.floats(0, 0.05),
    read_bandwidth=st.just(float("inf")),
)


class Hiding(NamedTuple):
    """A model on rates, and the margin that a ring of three has with blocks of some tokens."""

    small: Small
    speed: Rates

    @property
    def rates(self) -> dict[str, Any]:
        return {"bandwidth": self.speed.bandwidth, "latency": self.speed.latency}

    @property
    def shape(self) -> dict[str, Any]:
        small = self.small
        return {
            "batch_size": small.batch,
            "num_heads": small.heads,
            "head_dim": small.head_dim,
            "v_head_dim": small.v_head_dim,
            "visible_share": 0.5 if small.causal else 1,
            "ulysses_size": 1,
            "wire_bytes_per_token": small.hop_bytes // small.batch // small.tokens,
        }

    def margin(self, tokens: int) -> float:
        """Compute over transfer of a step on a visiting block."""
        ranks = dataclasses.replace(self.small, tokens=tokens).forward()
        step = ranks[0].ledger.steps[1]
        hop = step.exchanges * self.speed.latency + step.sent.total() / self.speed.bandwidth
        flops = max(rank.ledger.steps[2].work.flops for rank in ranks)
        return flops / self.speed.flops_per_second / hop


@st.composite
def hidings(draw: st.DrawFn) -> Hiding:
    small = draw(smalls(ring_size=st.just(3), partition=st.just("zigzag")))
    return Hiding(small, draw(SLOW))


def smallest(hides: Callable[[int], float], margin: float) -> tuple[int, int]:
    """Smallest legal block of enough margin, by trying; both that may be, should one just tie."""
    enough = 2
    while hides(enough) < margin * (1 + TIE):
        enough *= 2
    legal = range(2, enough + 1, 2)
    first, last = (bisect_left(legal, margin * each, key=hides) for each in (1 - TIE, 1 + TIE))
    return legal[first], legal[last]


#: Margins nearer than this may fall on either side of one another.
TIE = 1e-9


@witness(hiding.wire_bytes_per_token)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, ulysses_size=st.integers(1, 4)))
    hop = small.forward()[0].ledger.sent("kv") // (small.ring_size - 1)
    shape = {name: size for name, size in small.kv_shape.items() if name != "batch_size"}
    per_token = hop // small.batch // small.tokens
    inputs = {**shape, "element_bytes": small.kv_bytes, "ulysses_size": small.ulysses_size}
    return Claim(inputs, per_token)


@witness(hiding.min_block_tokens)
def _(data: st.DataObject) -> Claim:
    case, margin = data.draw(hidings()), data.draw(st.sampled_from([1, 1.25]))
    return Claim(
        {
            "margin": margin,
            "granule": 2,
            **case.shape,
            "diagonal_share": 0,
            "new_tokens": 1,
            "seq_len": 1,
            "peak": case.speed.flops_per_second,
            "sizes": (1,),
            "shares": (1,),
            **case.rates,
        },
        *smallest(case.margin, margin),
    )


@witness(hiding.min_block_tokens_ideal)
def _(data: st.DataObject) -> Claim:
    """Between the largest legal block that stalls and the smallest that hides."""
    case = data.draw(hidings())
    inputs = {**case.shape, "flops_per_second": case.speed.flops_per_second, **case.rates}
    first, last = smallest(case.margin, 1)
    return Claim(inputs, first - 2, last)


@witness(hiding.larger_block)
def _(data: st.DataObject) -> Claim:
    case, other = data.draw(hidings()), data.draw(SLOW)
    passes = (case, case._replace(speed=other))
    forward, backward = (smallest(each.margin, 1)[0] for each in passes)
    both = smallest(lambda n: min(each.margin(n) for each in passes), 1)
    return Claim({"forward": forward, "backward": backward}, *both)


@witness(hiding.max_cp_size)
def _(data: st.DataObject) -> Claim:
    """Try every size on the link that it would use: inside a domain, or beyond."""
    case, other = data.draw(hidings()), data.draw(SLOW)
    inside, outside = (smallest(each.margin, 1)[1] for each in (case, case._replace(speed=other)))
    domain, degree = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    seq_len = 2 * data.draw(st.integers(1, 200))

    def hides(size: int) -> bool:
        return seq_len / size >= (inside if size <= domain else outside)

    sizes = range(degree, max(seq_len, domain) + 1, degree)
    return Claim(
        {
            "seq_len": seq_len,
            "min_block_inside": inside,
            "min_block_outside": outside,
            "inside_ranks": domain,
            "ulysses_size": degree,
        },
        max(filter(hides, sizes), default=degree),
    )


# Tokens, heads and FLOPs of a rank; what it holds


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


@witness(memory.ring_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    (held,) = {rank.ledger.peak("visiting", "state") for rank in small.forward()}
    return Claim(
        {
            "ring_size": small.ring_size,
            "kv_buffers": 2,
            "hop_bytes": small.hop_bytes,
            "batch_size": small.batch,
            "query_tokens": small.tokens,
            "num_heads": small.heads,
            "v_head_dim": small.v_head_dim,
            "accumulator_bytes": small.accumulator_bytes,
        },
        held,
    )


def query_gradient(small: Small) -> dict[str, int]:
    return {
        "batch_size": small.batch,
        "query_tokens": small.tokens,
        "num_heads": small.heads,
        "head_dim": small.head_dim,
        "accumulator_bytes": small.accumulator_bytes,
    }


@witness(memory.query_gradient_bytes)
def _(data: st.DataObject) -> Claim:
    small, gathers = data.draw(smalls()), data.draw(st.booleans())
    ranks = small.gather_backward() if gathers else small.backward()
    (held,) = {rank.ledger.peak("dq", "lse", "delta") for rank in ranks}
    return Claim(query_gradient(small), held)


@witness(memory.ring_backward_buffer_bytes)
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
            "gradient_bytes": small.gradient_bytes,
            "query_gradient_bytes": memory.query_gradient_bytes(**query_gradient(small)),
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
            "elements": small.kv_heads * (small.head_dim + small.v_head_dim),
            "element_bytes": small.element_bytes,
        },
        sum(array.nbytes for array in whole),
    )


def kept(small: Small, window: int) -> int:
    """Of the last tokens of the sequence, those that the rank with most of them holds."""
    first = small.seq_len - window
    return max(int((positions(chunks) >= first).sum()) for chunks in small.setup.keys)


@witness(cache.window_block_tokens)
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


@witness(cache.window_tokens)
def _(data: st.DataObject) -> Claim:
    small, window = (
        data.draw(smalls(partition=st.just("contiguous"))),
        data.draw(st.integers(1, 40)),
    )
    return Claim({"window": window, "chunk_tokens": small.tokens}, kept(small, window))


@witness(cache.zigzag_window_tokens)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, partition=st.just("zigzag")))
    window = data.draw(st.integers(1, 40))
    inputs = {"window": window, "block_tokens": small.tokens, "seq_len": small.seq_len}
    return Claim(inputs, kept(small, min(window, small.seq_len)))


# The tests


@pytest.mark.parametrize("name", WITNESSES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_formula_is_what_the_ledger_counted(name: str, data: st.DataObject) -> None:
    """Counts are integers and equal; times and shares may differ in their last digits."""
    inputs, counted, most = WITNESSES[name](data)
    formula = REGISTRY[name](**inputs)

    if most is not None:
        assert counted * (1 - TIE) <= formula <= most * (1 + TIE)
    elif isinstance(formula, int):
        assert formula == counted
    else:
        assert formula == pytest.approx(counted, rel=1e-9, abs=1e-12)


def test_no_formula_is_without_a_witness() -> None:
    """Of rings, exchanges, masks, decode, hiding, layout and attention; and what a rank holds."""
    modules = {module.__name__ for module in MODULES}
    needed = {name for name, made in REGISTRY.items() if made.__module__ in modules}
    needed |= {made.name for made in HELD}

    assert needed - WITNESSES.keys() - EXEMPT.keys() == set()
    assert WITNESSES.keys() - needed == set()
    assert EXEMPT.keys() <= needed - WITNESSES.keys()
