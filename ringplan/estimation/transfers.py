"""What the ranks of a ring pass on in one direction of a layer, and what of it nothing hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import collectives, layout, ring
from ringplan.estimation.leaves import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.device import Device
    from ringplan.estimation.link import Link
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.shapes import Shape


class Volume(NamedTuple):
    """
    Bytes that one rank sends round its ring.

    Attributes
    ----------
    hops
        Of K and V forward, of dK and dV backward.
    kv, gradients, sent
        Bytes of K and V, of dK and dV, and of both.
    """

    hops: Number
    kv: Number
    gradients: Number
    sent: Number


class Steps(NamedTuple):
    """Times of step 0, of a later step, and of all steps."""

    first: Number
    later: Number
    all: Number


class Timing(NamedTuple):
    """
    Seconds of what travels.

    Attributes
    ----------
    hop
        What travels beside a steady step; None where K and V are gathered at once.
    wire
        All of it, one after another.
    latencies
        Transfers, one after another.
    exposed
        What the steps do not hide.
    """

    hop: Number | None
    wire: Number
    latencies: Number
    exposed: Number


def hides(x: Numbers) -> bool:
    """Whether hops of K and V travel while steps compute."""
    return x.schedule.overlaps and x.schedule.kv_exchange == "ring"


def volume(x: Numbers, s: Shape, *, backward: bool) -> Volume:
    """Count what one direction of a layer sends."""
    nothing = x.leaf.derived("bytes", 0, "forward moves no gradients")
    hops, kv = _kv_volume(x, s, backward=backward)
    if not backward:
        return Volume(hops, kv, nothing, kv)
    hops, gradients = _gradient_volume(x, s)
    return Volume(hops, kv, gradients, ring.backward_bytes(kv_sent=kv, gradients_sent=gradients))


def _kv_volume(x: Numbers, s: Shape, *, backward: bool) -> tuple[Number, Number]:
    if backward and x.schedule.keeps_gathered:
        kept = x.of_schedule("keeps_gathered", 0)
        return kept, ring.bytes_of_hops(hops=kept, hop_bytes=s.hop_bytes)
    if x.schedule.kv_exchange == "gather":
        sent = collectives.all_gather_bytes(cp_size=s.ring_size, shard_bytes=s.hop_bytes)
        return layout.ring_latencies(group_size=s.ring_size), _needed(x, sent)
    hops = kv_hops(x, s, backward=backward)
    return hops, ring.bytes_of_hops(hops=hops, hop_bytes=s.hop_bytes)


def kv_hops(x: Numbers, s: Shape, *, backward: bool) -> Number:
    """Hops of K and V round the ring."""
    if s.window is not None and x.schedule.window_hops == "needed":
        return ring.window_hops(ring_size=s.ring_size, window=s.window, block_tokens=s.key_tokens)
    name = "kv_extra_hops_backward" if backward else "kv_extra_hops_forward"
    return ring.ring_hops(ring_size=s.ring_size, extra_hops=x.of_schedule(name))


def gradient_hops(x: Numbers, s: Shape) -> Number:
    """Hops of dK and dV round the ring."""
    if s.window is not None and x.schedule.window_hops == "needed":
        made = ring.window_hops(ring_size=s.ring_size, window=s.window, block_tokens=s.key_tokens)
        return ring.with_home_hop(hops=made)
    extra = x.of_schedule("gradient_extra_hops")
    return ring.ring_hops(ring_size=s.ring_size, extra_hops=extra)


def _gradient_volume(x: Numbers, s: Shape) -> tuple[Number, Number]:
    if x.schedule.gradient_exchange == "reduce_scatter":
        sent = collectives.all_gather_bytes(cp_size=s.ring_size, shard_bytes=s.gradient_bytes)
        return layout.ring_latencies(group_size=s.ring_size), _needed(x, sent)
    hops = gradient_hops(x, s)
    if x.schedule.double_ring:
        return hops, ring.double_ring_gradient_bytes(
            ring_size=s.ring_size,
            inner_ring_size=x.inner_ring_size,
            first_gradient_bytes=s.first_gradient_bytes,
            gradient_bytes=s.gradient_bytes,
        )
    return hops, ring.bytes_of_hops(hops=hops, hop_bytes=s.gradient_bytes)


def _needed(x: Numbers, sent: Number) -> Number:
    """Of an exchange, the chunks that queries see, where the schedule sends only those."""
    if not x.schedule.sends_needed_only:
        return sent
    share = NEEDED[x.partition] if x.causal else 1
    why = f"{x.partition} under {'a causal' if x.causal else 'no'} mask"
    return collectives.needed_bytes(sent=sent, share=x.leaf.derived("share", share, why))


#: Share of the others' blocks that queries see under a causal mask, the mean of all ranks.
NEEDED = {"zigzag": 0.75, "contiguous": 0.5, "striped": 1}


def timing(
    x: Numbers, s: Shape, device: Device, steps: Steps, sent: Volume, *, backward: bool
) -> Timing:
    """Time one direction of a layer; there is more than one rank in the ring."""
    if x.schedule.kv_exchange == "gather":
        return _gathered(x, s, device, steps, backward=backward)
    if x.schedule.double_ring:
        return _double(x, s, device, steps, sent, backward=backward)
    hop = hop_time(x, ring_link(x, device), s.hop_bytes)
    hops = kv_hops(x, s, backward=backward)
    if not backward:
        wire = ring.hops_time(hops=hops, transfer_time=hop)
        nothing = x.leaf.derived("home_time", 0, "forward brings nothing home")
        if not x.schedule.overlaps:
            exposed = ring.synchronous_exposure(transfer_time=hop, hops=hops, home_time=nothing)
        else:
            exposed = ring.overlapped_exposure(
                first_step_time=steps.first, step_time=steps.later, transfer_time=hop, hops=hops
            )
        return Timing(hop, wire, hops, exposed)
    return _backward_ring(x, s, device, steps, hop, hops)


def _backward_ring(  # noqa: PLR0917 - one direction of one layer
    x: Numbers, s: Shape, device: Device, steps: Steps, kv: Number, hops: Number
) -> Timing:
    """K and V again, with their gradients a step behind them."""
    link = ring_link(x, device)
    schedule = x.schedule
    gradient = hop_time(x, link, s.gradient_bytes)
    together = ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
    if schedule.joins_gradients or schedule.streams > 1:  # one message, or one shared wire
        both = hop_time(x, link, together)
    else:
        both = ring.one_after_another(kv_time=kv, gradient_time=gradient)
    nothing = x.leaf.derived("home_time", 0, "the last hop arrives with the last step")
    home = gradient if schedule.gradient_extra_hops >= 0 else nothing
    wire = ring.time_of_hops(
        kv_hops=hops, kv_time=kv, gradient_hops=gradient_hops(x, s), gradient_time=gradient
    )
    latencies = ring.more_hops(kv_hops=hops, gradient_hops=gradient_hops(x, s))
    if not schedule.overlaps:
        exposed = ring.synchronous_exposure(transfer_time=both, hops=hops, home_time=home)
        return Timing(both, wire, latencies, exposed)
    ends = (steps.later, steps.first) if schedule.reverses else (steps.first, steps.later)
    exposed = ring.backward_exposure(
        first_step_time=ends[0],
        step_time=steps.later,
        last_step_time=ends[1],
        first_transfer=both if schedule.gradient_extra_hops > 0 else kv,
        transfer_time=both,
        last_transfer=both if schedule.kv_extra_hops_backward >= 0 else gradient,
        home_time=home,
        ring_size=s.ring_size,
    )
    return Timing(both, wire, latencies, exposed)


def _double(
    x: Numbers, s: Shape, device: Device, steps: Steps, sent: Volume, *, backward: bool
) -> Timing:
    """Inside a window from neighbour to neighbour, meanwhile from window to window."""
    inner_link, outer_link = device.ring_links(x)
    message = s.hop_bytes
    home = x.leaf.derived("home_time", 0, "forward brings nothing home")
    if backward:
        message = ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
        home = ring.one_after_another(
            kv_time=hop_time(x, inner_link, s.gradient_bytes),
            gradient_time=hop_time(x, outer_link, s.gradient_bytes),
        )
    inner, outer = hop_time(x, inner_link, message), hop_time(x, outer_link, message)
    exposed = ring.double_ring_exposure(
        first_step_time=steps.first,
        step_time=steps.later,
        inner_transfer=inner,
        outer_transfer=outer,
        inner_ring_size=x.inner_ring_size,
        ring_size=s.ring_size,
    )
    wire = ring.double_ring_time(
        inner_transfer=inner,
        outer_transfer=outer,
        inner_ring_size=x.inner_ring_size,
        ring_size=s.ring_size,
    )
    return Timing(
        inner,
        ring.one_after_another(kv_time=wire, gradient_time=home),
        sent.hops,
        ring.total_exposure(ring_exposure=exposed, collective_time=home),
    )


class GatherTimes(NamedTuple):
    """Seconds of an all-gather of K and V, and of a reduce-scatter of their gradients."""

    kv: Number
    scatter: Number
    latencies: Number


def gather_times(x: Numbers, s: Shape, device: Device, *, backward: bool) -> GatherTimes:
    """Time the collectives of one direction of a layer."""
    rounds = layout.gather_latencies(
        group_size=s.ring_size, messages=x.of_schedule("messages_per_hop")
    )
    sent = volume(x, s, backward=backward)
    kv = scatter = x.leaf.derived("gather_time", 0, "nothing is gathered")
    if not (backward and x.schedule.keeps_gathered):
        kv = _collective(x, device, sent.kv, rounds)
    if backward and x.schedule.gradient_exchange == "reduce_scatter":
        scatter = _collective(x, device, sent.gradients, rounds)
    return GatherTimes(kv, scatter, rounds)


def _gathered(x: Numbers, s: Shape, device: Device, steps: Steps, *, backward: bool) -> Timing:
    """All blocks at once, hidden by what the schedule computes meanwhile; then gradients."""
    kv, scatter, rounds = gather_times(x, s, device, backward=backward)
    kept = backward and x.schedule.keeps_gathered
    exposed = kv if kept else beside(x, s, steps, kv)
    if not backward:
        return Timing(None, kv, rounds, exposed)
    home, hops = scatter, rounds
    if x.schedule.gradient_exchange == "ring":
        hop = hop_time(x, ring_link(x, device), s.gradient_bytes)
        hops = gradient_hops(x, s)
        scatter = ring.hops_time(hops=hops, transfer_time=hop)
        home = ring.backward_exposure(
            first_step_time=steps.first,
            step_time=steps.later,
            last_step_time=steps.later,
            first_transfer=x.leaf.derived("first_transfer", 0, "no gradients yet"),
            transfer_time=hop,
            last_transfer=hop,
            home_time=hop,
            ring_size=s.ring_size,
        )
    return Timing(
        None,
        ring.one_after_another(kv_time=kv, gradient_time=scatter),
        ring.more_hops(kv_hops=rounds, gradient_hops=hops),
        ring.total_exposure(ring_exposure=exposed, collective_time=home),
    )


def beside(x: Numbers, s: Shape, steps: Steps, gather: Number) -> Number:
    """Time of an all-gather that nothing hides."""
    match x.schedule.gather_overlap:
        case "own_block":
            return collectives.beside_own_block(gather_time=gather, first_step_time=steps.first)
        case "heads":
            slices = layout.gather_slices(
                num_kv_heads=s.num_kv_heads, heads_per_gather=x.of_schedule("heads_per_gather")
            )
            return collectives.beside_heads(gather_time=gather, busy_time=steps.all, slices=slices)
    return gather


def _collective(x: Numbers, device: Device, sent: Number, rounds: Number) -> Number:
    """Time of a ring all-gather or reduce-scatter: so many messages, one after another."""
    link = device.link(x, "ring", collective=True)
    return collectives.collective_time(
        transfer_bytes=sent,
        bandwidth=link.bandwidth(sent, rounds),
        latency=link.latency,
        latencies=rounds,
    )


def ring_link(x: Numbers, device: Device) -> Link:
    """Return the link that paces the ring of a layout."""
    return device.link(x, "ring", both_ways=x.schedule.bidirectional)


def hop_time(x: Numbers, link: Link, hop_bytes: Number) -> Number:
    """Time of a hop, in as many messages as the schedule sends it in."""
    return ring.transfer_time(
        transfer_bytes=hop_bytes,
        bandwidth=link.bandwidth(hop_bytes, x.of_schedule("messages_per_hop")),
        latency=link.latency,
    )


def ringless(x: Numbers) -> Timing:
    """Nothing travels round a ring of one rank."""
    nothing = x.leaf.derived("ring_exposure", 0, "one rank in the ring sends nothing")
    return Timing(None, nothing, nothing, nothing)


def in_ring(x: Numbers) -> bool:
    """Whether there is another rank in the ring."""
    return bool(plain(x.sizes["ring"]) > 1)
