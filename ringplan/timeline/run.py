"""From a scenario to the timeline of its widest attention layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ringplan.costs import attention, layout, ring
from ringplan.estimation.attention import (
    call_of,
    layer,
    merge_time,
    slowed,
    ulysses_exchange,
    ulysses_time,
)
from ringplan.estimation.device import device
from ringplan.estimation.leaves import plain
from ringplan.estimation.numbers import numbers
from ringplan.estimation.results import RankTime
from ringplan.estimation.transfers import (
    Steps,
    beside,
    gather_times,
    gradient_hops,
    hop_time,
    kv_hops,
    ring_link,
)
from ringplan.timeline.events import Traffic, walk
from ringplan.timeline.pairs import Dealt, step_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import Estimate
    from ringplan.estimation.shapes import Shape
    from ringplan.specs.scenario import Scenario
    from ringplan.timeline.events import Array, Timeline

#: Ranks of the largest ring that is walked through; the time grows with their square.
MAX_RANKS = 16_384


class Direction(NamedTuple):
    """A pass of the layer: forward or backward."""

    name: str
    timeline: Timeline


def timelines(scenario: Scenario, *, keep: bool = False) -> tuple[Direction, ...]:
    """
    Walk through the widest attention layer, forward and, in training, backward.

    Parameters
    ----------
    scenario
        The question; its model has attention.
    keep
        Whether the times of steps and hops are kept.
    """
    x = numbers(scenario)
    dev = device(scenario, x)
    widest = layer(x, x.kinds[x.widest], dev)
    directions = ("forward", "backward") if x.phase == "train" else ("forward",)
    return tuple(
        Direction(
            name,
            walk(
                computing(x, dev, widest, backward=name == "backward"),
                traffic(x, dev, widest, backward=name == "backward"),
                merging(x, dev, widest.shape, backward=name == "backward"),
                keep=keep,
            ),
        )
        for name in directions
    )


def with_timeline(scenario: Scenario, estimate: Estimate) -> Estimate:
    """Return the estimate with the time of each rank, or why there is none."""
    missing = dict(estimate.not_counted)
    if estimate.ring.verdict is None:
        missing["timeline_ranks"] = missing["ring.verdict"]
    elif scenario.mesh.ring_size > MAX_RANKS:
        missing["timeline_ranks"] = f"the ring has more than {MAX_RANKS:,} ranks"
    elif scenario.schedule.double_ring:
        missing["timeline_ranks"] = "the timeline walks round one ring, and this is a double one"
    else:
        del missing["timeline_ranks"]
        rows = tuple(row for each in timelines(scenario) for row in _rows(each))
        return estimate._replace(timeline_ranks=rows, not_counted=missing)
    return estimate._replace(not_counted=missing)


def _rows(direction: Direction) -> Iterator[RankTime]:
    name, (_, *shares, _) = direction
    for rank, (busy, exposed, idle) in enumerate(
        zip(*(share.tolist() for share in shares), strict=True)
    ):
        yield RankTime(name, rank, busy, exposed, idle)


def computing(x: Numbers, dev: Device, widest: Layer, *, backward: bool) -> Iterator[Array]:
    """
    Yield the seconds that each rank computes, step by step.

    A decode step does not depend on the rank.
    """
    s, kind, size = widest.shape, widest.kind, x.sizes["ring"]
    if x.phase == "decode":
        done = widest.forward
        for step in range(size):
            yield np.full(size, float(done.step_time if step else done.first_step_time))
        return
    count = attention.attention_backward_flops if backward else attention.attention_flops
    reverse = backward and x.schedule.reverses
    own = size - 1 if reverse else 0
    step = 0
    for pairs in step_pairs(dealt(x, s, kind), reverse=reverse):
        steps = range(step, step + len(pairs))
        step += len(pairs)
        diagonal = np.array([[each == own or size == 1] for each in steps])
        rate = _rate(x, dev, s, pairs, diagonal, backward=backward)
        flops = count(
            batch_size=x.attention_batch_size,
            pairs=cast("Number", pairs),
            num_heads=s.ring_query_heads,
            head_dim=s.head_dim,
            v_head_dim=s.v_head_dim,
        )
        seconds = attention.compute_time(flops=flops, flops_per_second=rate)
        yield from cast("Array", seconds)


def _rate(
    x: Numbers, dev: Device, s: Shape, pairs: Array, diagonal: Array, *, backward: bool
) -> Number:
    """Rates of steps, ``[step, rank]``; where nothing is seen it does not matter."""
    call = call_of(x, s, cast("Number", np.maximum(pairs, 1)), first=True)
    if x.partition != "striped":
        call = call._replace(diagonal=cast("int", diagonal * call.diagonal))
    rate = dev.flops_per_second(call, backward=backward)
    return dev.beside_communication(rate) if slowed(x) else rate


def dealt(x: Numbers, s: Shape, kind: Kind) -> Dealt:
    """Say who holds which tokens of the sequence."""
    documents: tuple[int, ...] = ()
    if x.documents is not None:
        multiple = plain(x.multiple) if x.cuts_documents else 1
        pairs = zip(plain(x.documents.sizes), plain(x.documents.shares), strict=True)
        documents = tuple(
            -(-length // multiple) * multiple for length, count in pairs for _ in range(count)
        )
        documents = padded(documents, plain(x.tokens.new))
    return Dealt(
        x.partition,
        x.sizes["ring"],
        query_tokens=plain(s.query_tokens),
        block_tokens=plain(layout.ring_tokens(tokens=x.tokens.block, ulysses_size=x.ulysses_size)),
        causal=x.causal,
        window=plain(kind.window),
        documents=documents,
    )


def padded(documents: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Add the padding of the sequence as a document of its own."""
    rest = tokens - sum(documents)
    return (*documents, rest) if rest > 0 else documents


def merging(x: Numbers, dev: Device, s: Shape, *, backward: bool) -> Iterator[Array]:
    """Yield the seconds that each rank merges, step by step: of the queries that saw the block."""
    size, schedule = x.sizes["ring"], x.schedule
    whole = merge_time(x, s, dev, backward=backward)
    ranks, steps = np.arange(size), np.arange(size)[:, None]
    reverse = backward and schedule.reverses
    owners = (ranks + 1 + steps) % size if reverse else (ranks - steps) % size
    later = _SEE_LATER[x.partition] if x.causal else 1
    each = np.where(owners <= ranks, 1.0, later) * float(whole or 0)
    if schedule.merges_at_end:
        each[-1] = each.sum(axis=0)
        each[:-1] = 0
    yield from each


#: Share of a rank's queries that see the block of a later rank under a causal mask.
_SEE_LATER = {"zigzag": 0.5, "contiguous": 0.0, "striped": 1.0}


def traffic(x: Numbers, dev: Device, widest: Layer, *, backward: bool) -> Traffic:
    """Say what the schedule sends around the ring of a layout, in seconds on each edge."""
    s, schedule, size = widest.shape, x.schedule, x.sizes["ring"]
    exchange = ulysses_time(x, dev, ulysses_exchange(x, widest.kind, s))
    made = Traffic(np.zeros(size), overlaps=schedule.overlaps, exchange=exchange or 0.0)
    if size == 1:
        return made
    if schedule.kv_exchange == "gather":
        made = _gathers(x, dev, widest, made, backward=backward)
    else:
        hops = int(kv_hops(x, s, backward=backward))
        made = made._replace(kv=seconds(x, dev, s.hop_bytes), kv_hops=hops)
    if not backward or schedule.gradient_exchange == "reduce_scatter":
        return made
    joined = schedule.kv_exchange == "ring" and (schedule.joins_gradients or schedule.streams > 1)
    both = ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
    return made._replace(
        gradients=seconds(x, dev, s.gradient_bytes),
        gradient_hops=int(gradient_hops(x, s)),
        together=seconds(x, dev, both) if joined else None,
        early_gradients=schedule.gradient_extra_hops > 0,
    )


def seconds(x: Numbers, dev: Device, hop_bytes: Number) -> Array:
    """Time of a hop on each edge of the ring that crosses most."""
    link = ring_link(x, dev)
    hop = float(hop_time(x, link, hop_bytes))
    inside = dev.hop_link(x, inside=True, both_ways=x.schedule.bidirectional)
    if link.name == "scale_up" or inside is None:
        return np.full(x.sizes["ring"], hop)
    return np.where(dev.crossings(x, "ring"), hop, float(hop_time(x, inside, hop_bytes)))


def _gathers(x: Numbers, dev: Device, widest: Layer, made: Traffic, *, backward: bool) -> Traffic:
    """All blocks at once, and gradients scattered at the end."""
    gather = gather_times(x, widest.shape, dev, backward=backward)
    by_heads = x.schedule.gather_overlap == "heads"
    done = widest.backward if backward and widest.backward is not None else widest.forward
    kv = gather.kv
    if by_heads and kv:  # what later slices hide is left out
        steps = Steps(done.first_step_time, done.step_time, done.busy_time)
        kv = beside(x, widest.shape, steps, kv)
    return made._replace(
        overlaps=True,
        gather=float(kv),
        gather_overlaps=x.schedule.gather_overlap == "own_block",
        scatter=float(gather.scatter),
    )
