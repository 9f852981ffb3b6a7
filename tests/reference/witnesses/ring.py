"""The ring: hops, bytes, and time on a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hypothesis import strategies as st

from ringplan.costs import ring
from ringplan.reference.clock import Rates, replay
from tests.reference.rings import computing, sent, smalls
from tests.reference.witnesses.registry import Claim, rates, rings, witness

if TYPE_CHECKING:
    from ringplan.reference.network import Rank


@witness(ring.kv_block_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, cached=st.integers(0, 3)))
    step = small.forward()[0].ledger.steps[1]
    tokens = small.tokens + small.cached
    each = small.kv_bytes
    inputs = {**small.kv_shape, "tokens": tokens, "key_bytes": each, "value_bytes": each}
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
    small, way = data.draw(smalls()), data.draw(st.sampled_from(["ring", "reversed", "gather"]))
    home = 1 if way == "ring" and small.ring_size > 1 else 0
    ranks = small.gather_backward() if way == "gather" else small.backward(reverse=way != "ring")
    return Claim(
        {
            "kv_sent": (small.ring_size - 1) * small.hop_bytes,
            "gradients_sent": (small.ring_size - 1 + home) * small.gradient_bytes,
        },
        sent(ranks),
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
            "hops": run.ring_size - 1,
        },
        replay(run.ranks, run.speed, overlaps=True).exposed,
    )


@witness(ring.synchronous_exposure)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    exposed = replay(run.ranks, run.speed, overlaps=False).exposed
    hops = run.ring_size - 1
    return Claim({"transfer_time": run.hop, "hops": hops, "home_time": 0}, exposed)


@witness(ring.hops_time)
def _(data: st.DataObject) -> Claim:
    run = timed(data)
    exposed = replay(run.ranks, run.speed, overlaps=False).exposed
    return Claim({"hops": run.ring_size - 1, "transfer_time": run.hop}, exposed)


@witness(ring.backward_exposure)
def _(data: st.DataObject) -> Claim:
    """Zigzag ranks are alike; the clock sends gradients a step after they are made."""
    small = data.draw(smalls(ring_size=rings, partition=st.just("zigzag")))
    speed, reverse = data.draw(rates), data.draw(st.booleans())
    ranks = small.backward(reverse=reverse)
    flops = np.array([[step.work.flops for step in steps] for steps in computing(ranks)])
    busy = flops.max(axis=0) / speed.flops_per_second
    kv, gradients = (each / speed.bandwidth for each in (small.hop_bytes, small.gradient_bytes))
    return Claim(
        {
            "first_step_time": busy[0],
            "step_time": busy[1] if small.ring_size > 2 else 0.0,
            "last_step_time": busy[-1],
            "first_transfer": speed.latency + kv,
            "transfer_time": speed.latency + kv + gradients,
            # the last step of a ring that sends gradients home posts a hop, and waits for it
            "last_transfer": gradients if reverse else speed.latency + gradients,
            "home_time": 0.0 if reverse else gradients,
            "ring_size": small.ring_size,
        },
        replay(ranks, speed, overlaps=True).exposed,
    )


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
