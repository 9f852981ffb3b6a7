"""From a scenario to the timeline of its widest attention layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ringplan.costs import attention, layout, ring
from ringplan.estimation.attention import layer, ulysses_exchange, ulysses_time
from ringplan.estimation.device import device
from ringplan.estimation.leaves import plain
from ringplan.estimation.numbers import numbers
from ringplan.estimation.results import RankTime
from ringplan.timeline.events import Traffic, walk
from ringplan.timeline.pairs import Dealt, step_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import Estimate
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
    rate = dev.flops_per_second(s.query_tokens, backward=backward)
    dealt = Dealt(
        x.partition,
        size,
        query_tokens=plain(s.query_tokens),
        block_tokens=plain(layout.ring_tokens(tokens=x.tokens.block, ulysses_size=x.ulysses_size)),
        causal=x.causal,
        window=plain(kind.window),
    )
    for pairs in step_pairs(dealt, reverse=backward and dev.scenario.schedule.reverses):
        flops = count(
            batch_size=x.attention_batch_size,
            pairs=cast("Number", pairs),
            num_heads=s.ring_query_heads,
            head_dim=s.head_dim,
            v_head_dim=s.v_head_dim,
        )
        seconds = attention.compute_time(flops=flops, flops_per_second=rate)
        yield from cast("Array", seconds)


def traffic(x: Numbers, dev: Device, widest: Layer, *, backward: bool) -> Traffic:
    """Say what the schedule sends around the ring of a layout, in seconds on each edge."""
    s, schedule, size = widest.shape, dev.scenario.schedule, x.sizes["ring"]
    exchange = ulysses_time(x, dev, ulysses_exchange(x, widest.kind, s))
    nothing = np.zeros(size)
    made = Traffic(nothing, overlaps=schedule.overlaps, exchange=exchange or 0.0)
    if size == 1:
        return made
    link = dev.link(x, "ring")

    def seconds(hop_bytes: float) -> Array:
        """Time of a hop on each edge; all have the link that paces the ring."""
        hop = ring.transfer_time(
            transfer_bytes=hop_bytes, bandwidth=link.bandwidth, latency=link.latency
        )
        return np.full(size, float(hop))

    def hops(extra: int) -> int:
        return int(ring.ring_hops(ring_size=size, extra_hops=extra))

    kv = seconds(s.hop_bytes)
    if not backward:
        return made._replace(kv=kv, kv_hops=hops(schedule.kv_extra_hops_forward))
    both = ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
    return made._replace(
        kv=kv,
        kv_hops=hops(schedule.kv_extra_hops_backward),
        gradients=seconds(s.gradient_bytes),
        gradient_hops=hops(schedule.gradient_extra_hops),
        together=seconds(both),
    )
