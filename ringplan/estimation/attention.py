"""One attention layer of a layout: its steps, its hops, and what overlaps what."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import attention, collectives, decode, layout, ring
from ringplan.estimation.device import Call
from ringplan.estimation.leaves import plain
from ringplan.estimation.shapes import shape
from ringplan.estimation.transfers import (
    Steps,
    in_ring,
    ringless,
    timing,
    volume,
)

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.link import Link
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.shapes import Shape


class Pass(NamedTuple):
    """One direction of the layer; the hop has no time where nothing hops."""

    flops: Number
    compute_time: Number
    merge_time: Number
    step_time: Number
    first_step_time: Number
    busy_time: Number
    hops: Number
    bytes_sent: Number
    ring_bytes: Number
    hop_time: Number | None
    ring_time: Number
    ring_latencies: Number
    ring_exposure: Number
    time: Number
    exposed_time: Number


class Layer(NamedTuple):
    """An attention layer of one kind: its shape and its two directions; decode has no backward."""

    kind: Kind
    shape: Shape
    forward: Pass
    backward: Pass | None


def layer(x: Numbers, kind: Kind, device: Device) -> Layer:
    """Work out one layer of the layout."""
    s = shape(x, kind)
    return Layer(
        kind=kind,
        shape=s,
        forward=run(x, kind, device, s),
        backward=None if x.phase == "decode" else run(x, kind, device, s, backward=True),
    )


def run(x: Numbers, kind: Kind, device: Device, s: Shape, *, backward: bool = False) -> Pass:
    """Time one direction of the layer of shape ``s`` in the layout of ``x``."""
    flops, first, compute = _compute(x, s, device, backward=backward)
    merge = merge_time(x, s, device, backward=backward)
    later, busy = (
        compute,
        ring.busy_time(first_step_time=first, step_time=compute, ring_size=s.ring_size),
    )
    if merge is not None:
        merged = ring.hops_time(hops=s.ring_size, transfer_time=merge)
        busy = attention.step_time(compute_time=busy, merge_time=merged)
        if not x.schedule.merges_at_end:
            first = attention.step_time(compute_time=first, merge_time=merge)
            later = attention.step_time(compute_time=compute, merge_time=merge)
    sent = volume(x, s, backward=backward)
    steps = Steps(first, later, busy)
    passed = timing(x, s, device, steps, sent, backward=backward) if in_ring(x) else ringless(x)
    exchange = ulysses_exchange(x, kind, s)
    exchange_time = ulysses_time(x, device, exchange)
    exposed = ring.total_exposure(
        ring_exposure=passed.exposed,
        collective_time=x.leaf.derived("collective_time", 0, "no exchange of heads")
        if exchange_time is None
        else exchange_time,
    )
    return Pass(
        flops=flops,
        compute_time=compute,
        merge_time=x.leaf.derived("merge_time", 0, "fused") if merge is None else merge,
        step_time=later,
        first_step_time=first,
        busy_time=busy,
        hops=sent.hops,
        bytes_sent=collectives.hybrid_bytes(ulysses_bytes=exchange, ring_bytes=sent.sent),
        ring_bytes=sent.sent,
        hop_time=passed.hop,
        ring_time=passed.wire,
        ring_latencies=passed.latencies,
        ring_exposure=passed.exposed,
        time=ring.pass_time(busy_time=busy, exposed_time=exposed),
        exposed_time=exposed,
    )


def merge_seconds(x: Numbers, device: Device, *, backward: bool) -> Number:
    """Seconds of a merge for each new token of one rank; nothing where no step waits for it."""
    kind, schedule = x.kinds[x.widest], x.schedule
    if not schedule.merge_bytes_per_element or schedule.merges_at_end:
        return x.leaf.derived("merge_time", 0, "fused, or at the end")
    return device.read_time(
        attention.merge_bytes(
            batch_size=x.attention_batch_size,
            query_tokens=x.leaf.derived("query_tokens", 1, "a token"),
            num_heads=kind.rank_heads,
            elements=kind.head_dim if backward else kind.v_head_dim,
            bytes_per_element=x.of_schedule("merge_bytes_per_element"),
        )
    )


def of_step(x: Numbers, forward: Number, backward: Number) -> Number:
    """Seconds of a layer in a training step: forward, again under full recompute, backward."""
    again = x.leaf.derived("recomputed", 0, "activations are kept")
    return ring.layer_time(
        forward=forward, recomputed=forward if x.recomputes else again, backward=backward
    )


def merge_time(x: Numbers, s: Shape, device: Device, *, backward: bool) -> Number | None:
    """Time of merging a step into the sums; None where the kernel does it."""
    if not x.schedule.merge_bytes_per_element or not in_ring(x):
        return None
    return device.read_time(
        attention.merge_bytes(
            batch_size=x.attention_batch_size,
            query_tokens=s.query_tokens,
            num_heads=s.ring_query_heads,
            elements=s.head_dim if backward else s.v_head_dim,
            bytes_per_element=x.of_schedule("merge_bytes_per_element"),
        )
    )


def slowed(x: Numbers) -> bool:
    """Whether kernels that move data hold some of the compute."""
    return x.schedule.uses_compute_units and x.schedule.overlaps and in_ring(x)


def _compute(
    x: Numbers, s: Shape, device: Device, *, backward: bool
) -> tuple[Number, Number, Number]:
    """FLOPs of a later step; times of step 0 and of a later step."""
    count = attention.attention_backward_flops if backward else attention.attention_flops
    memory = device.read_time(s.hop_bytes) if x.phase == "decode" else None

    def step(pairs: Number, *, first: bool) -> tuple[Number, Number]:
        rate = device.flops_per_second(call_of(x, s, pairs, first=first), backward=backward)
        if slowed(x):
            rate = device.beside_communication(rate)
        flops = count(
            batch_size=x.attention_batch_size,
            pairs=pairs,
            num_heads=s.ring_query_heads,
            head_dim=s.head_dim,
            v_head_dim=s.v_head_dim,
        )
        time = attention.compute_time(flops=flops, flops_per_second=rate)
        if memory is not None:
            time = decode.roofline_time(compute_time=time, memory_time=memory)
        return flops, time

    flops, later = step(s.later_pairs, first=not in_ring(x))
    return flops, step(s.first_pairs, first=True)[1], later


def call_of(x: Numbers, s: Shape, pairs: Number, *, first: bool) -> Call:
    """Describe the kernel call of a step; a diagonal runs through step 0, and all striped ones."""
    diagonal = x.causal and x.phase != "decode" and (first or x.partition == "striped")
    return Call(
        batch_size=x.attention_batch_size,
        num_heads=s.ring_query_heads,
        query_tokens=s.query_tokens,
        head_dim=s.head_dim,
        pairs=pairs,
        diagonal=int(diagonal),
    )


def exchanged(x: Numbers, kind: Kind, s: Shape) -> dict[str, Number]:
    """Sizes of the tensors that an exchange of heads moves."""
    kv_heads = s.num_kv_heads
    if x.schedule.replicates_kv_heads:
        kv_heads = layout.replicated_kv_heads(num_kv_heads=kv_heads, ulysses_size=x.ulysses_size)
    return {
        "batch_size": x.attention_batch_size,
        "tokens": x.tokens.rank,
        "num_heads": s.num_heads,
        "num_kv_heads": kv_heads,
        "head_dim": kind.head_dim,
        "v_head_dim": kind.v_head_dim,
        "element_bytes": x.activation_bytes,
        "ulysses_size": x.ulysses_size,
    }


def ulysses_exchange(x: Numbers, kind: Kind, s: Shape) -> Number:
    """Bytes that one rank sends to trade tokens for heads and back."""
    return collectives.ulysses_bytes(**exchanged(x, kind, s))


def ulysses_time(x: Numbers, device: Device, exchange: Number) -> Number | None:
    """Time of the exchange; None without one."""
    if x.sizes["ulysses"] == 1:
        return None
    link = device.link(x, "ulysses", all_to_all=True)
    rounds = x.of_schedule("all_to_alls")
    return collectives.collective_time(
        transfer_bytes=exchange,
        bandwidth=link.bandwidth(exchange, rounds, peers(x, x.sizes["ulysses"])),
        latency=link.latency,
        latencies=rounds,
    )


def peers(x: Numbers, group_size: int) -> Number:
    """Ranks that a rank of an all-to-all sends a message to."""
    return x.leaf.derived("messages", group_size - 1, "one to each other rank of the group")


def margin(
    done: Pass, device: Device, link: Link, message: Number, *, nominal: bool
) -> Number | None:
    """Compute over transfer of a later step, at achieved or at nominal rates."""
    if done.hop_time is None:
        return None
    if not nominal:
        return ring.overlap_margin(step_time=done.step_time, transfer_time=done.hop_time)
    step = attention.compute_time(flops=done.flops, flops_per_second=device.peak)
    if device.x.phase == "decode":
        read = device.read_time(message, nominal=True)
        step = decode.roofline_time(compute_time=step, memory_time=read)
    return ring.overlap_margin(
        step_time=step,
        transfer_time=ring.transfer_time(
            transfer_bytes=message,
            bandwidth=link.nominal,
            latency=device.x.leaf.derived("latency", 0, "none at nominal rates"),
        ),
    )


def verdict(overlaps: bool, margins: list[Number | None]) -> str:  # noqa: FBT001
    """
    Judge the worse of a phase's passes.

    >>> verdict(True, [1.3, 1.1]), verdict(False, [2.0]), verdict(True, [None])
    ('marginal', 'exposed', 'none')
    """
    known = [plain(each) for each in margins if each is not None]
    if not known:
        return "none"
    if not overlaps:
        return "exposed"
    worst = min(known)
    return "hidden" if worst >= HIDDEN else "marginal" if worst >= 1 else "stalled"


#: A margin that survives a quarter less compute or bandwidth.
HIDDEN = 1.25
