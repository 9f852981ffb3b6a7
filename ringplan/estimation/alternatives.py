"""The same ranks, used another way: ring, all-gather, Ulysses, hybrids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import buffers, collectives, fit, layout, memory, ring
from ringplan.estimation.attention import run, shape, traffic, ulysses_exchange
from ringplan.estimation.exchange import buffer_bytes, query_gradient
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import with_ulysses
from ringplan.estimation.results import Alternative
from ringplan.feasibility import reasons

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Shape
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory


def alternatives(x: Numbers, device: Device, bill: RankMemory) -> tuple[Alternative, ...]:
    """Cost every way to share the sequence over cp_size ranks, and mark the fastest that runs."""
    ranks = plain(x.cp_size)
    if ranks == 1 or x.phase == "decode":
        return ()
    heads = plain(x.kinds[x.widest].num_attention_heads)
    inner = [u for u in range(2, min(ranks, heads + 1)) if ranks % u == 0]
    degrees = [1, *inner, ranks]
    old = buffer_bytes(x, device.scenario)
    rows = [_exchange(with_ulysses(x, u), u, device, bill, old) for u in degrees]
    rows.insert(1, _all_gather(with_ulysses(x, 1), device, bill, old))
    return _mark_best(rows)


def _mark_best(rows: list[Alternative]) -> tuple[Alternative, ...]:
    able = [
        row for row in rows if row.feasible and plain(row.fits) and row.time_forward is not None
    ]
    best = min(able, key=lambda row: plain(row.time_forward), default=None)
    return tuple(row._replace(best=row is best) for row in rows)


def _exchange(
    x: Numbers, ulysses: int, device: Device, bill: RankMemory, old: Number
) -> Alternative:
    """Ring (u = 1), Ulysses (u = P), or both."""
    scenario = device.scenario
    kind = x.kinds[x.widest]
    s = shape(x, kind)
    mesh = scenario.mesh.model_copy(update={"ulysses_size": ulysses})
    why = reasons(scenario.model_copy(update={"mesh": mesh}))
    forward = None if why else run(x, kind, device, s)  # what cannot run has no time
    capacity = bill.capacity_bytes
    # windows are dealt another way too, and some engines' limits depend on the rest of the bill
    if scenario.engine.budget != "total" or any(each.window is not None for each in x.kinds):
        other = fullest_rank(x, scenario)
        total, capacity = other.total_bytes, other.capacity_bytes
    else:
        total = memory.swapped_bytes(
            total=bill.total_bytes, old=old, new=buffer_bytes(x, scenario, s)
        )
    mixed = "a2a" if x.sizes["ring"] == 1 else "a2a+p2p"
    return Alternative(
        schedule=scenario.schedule.name,
        comm_type="p2p" if ulysses == 1 else mixed,
        ring_size=x.sizes["ring"],
        ulysses_size=ulysses,
        partition=scenario.mesh.partition,
        feasible=not why,
        reasons=tuple(reason.brief for reason in why),
        bytes_sent_forward=_sent(x, kind, device, s, backward=False),
        bytes_sent_backward=_sent(x, kind, device, s, backward=True),
        memory_bytes=total,
        fits=fit.fits(total=total, capacity=capacity),
        time_forward=forward and forward.time,
        exposed_time=forward and forward.exposed_time,
        best=False,
    )


def _sent(x: Numbers, kind: Kind, device: Device, s: Shape, *, backward: bool) -> Number:
    return collectives.hybrid_bytes(
        ulysses_bytes=ulysses_exchange(x, kind, s),
        ring_bytes=traffic(x, s, device, backward=backward)[1],
    )


def _gathered(x: Numbers, s: Shape) -> Number:
    """Bytes of K and V of all tokens; in training of dK, dV and dQ before they are scattered."""
    if x.phase != "train":
        return buffers.gathered_buffer_bytes(cp_size=x.cp_size, shard_bytes=s.hop_bytes)
    shard = ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
    gathered = buffers.gathered_buffer_bytes(cp_size=x.cp_size, shard_bytes=shard)
    return memory.total_bytes(parts=(gathered, query_gradient(x, s)))


def _all_gather(x: Numbers, device: Device, bill: RankMemory, old: Number) -> Alternative:
    scenario = device.scenario
    kind = x.kinds[x.widest]
    s = shape(x, kind)
    why = reasons(
        scenario.model_copy(update={"mesh": scenario.mesh.model_copy(update={"ulysses_size": 1})})
    )
    sent = collectives.all_gather_bytes(cp_size=x.cp_size, shard_bytes=s.hop_bytes)
    total = memory.swapped_bytes(total=bill.total_bytes, old=old, new=_gathered(x, s))
    time: Number | None = None
    exposed: Number | None = None
    if not why:
        done = run(x, kind, device, s)
        link = device.link(x, "ring", collective=True)
        gather = collectives.collective_time(
            transfer_bytes=sent,
            bandwidth=link.bandwidth(s.hop_bytes),
            latency=link.latency,
            latencies=layout.ring_latencies(group_size=x.cp_size),
        )
        time = ring.pass_time(busy_time=done.busy_time, exposed_time=gather)
        exposed = gather
    return Alternative(
        schedule=scenario.schedule.name,
        comm_type="all_gather",
        ring_size=x.sizes["ring"],
        ulysses_size=1,
        partition=scenario.mesh.partition,
        feasible=not why,
        reasons=tuple(reason.brief for reason in why),
        bytes_sent_forward=sent,
        bytes_sent_backward=collectives.all_gather_backward_bytes(
            cp_size=x.cp_size, shard_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes
        ),
        memory_bytes=total,
        fits=fit.fits(total=total, capacity=bill.capacity_bytes),
        time_forward=time,
        exposed_time=exposed,
        best=False,
    )
