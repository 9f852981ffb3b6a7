"""One attention layer of a layout: its steps, its hops, and what overlaps what."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import attention, collectives, decode, layout, masks, rank_cache, ring
from ringplan.estimation.leaves import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.link import Link
    from ringplan.estimation.numbers import Numbers


class Shape(NamedTuple):
    """Tokens, heads and head sizes that one rank works on inside the ring."""

    ring_size: Number
    query_tokens: Number
    key_tokens: Number
    num_heads: Number
    num_kv_heads: Number
    ring_query_heads: Number
    head_dim: Number
    v_head_dim: Number
    first_pairs: Number
    later_pairs: Number
    hop_bytes: Number
    gradient_bytes: Number


class Pass(NamedTuple):
    """One direction of the layer; the hop has no time where nothing hops."""

    flops: Number
    step_time: Number
    first_step_time: Number
    busy_time: Number
    hops: Number
    bytes_sent: Number
    ring_bytes: Number
    hop_time: Number | None
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


def shape(x: Numbers, kind: Kind) -> Shape:
    """Work out what one rank holds and what a hop carries."""
    decoding = x.phase == "decode"
    latent = decoding and kind.latent_dim is not None
    ring_size = layout.ring_ranks(cp_size=x.cp_size, ulysses_size=x.ulysses_size)
    keys = layout.ring_tokens(tokens=_block(x, kind), ulysses_size=x.ulysses_size)
    queries = (
        x.tokens.new
        if decoding
        else layout.ring_tokens(tokens=x.tokens.rank, ulysses_size=x.ulysses_size)
    )
    heads, kv_heads = kind.rank_heads, kind.rank_kv_heads
    ring_kv = layout.ring_kv_heads(num_kv_heads=kv_heads, ulysses_size=x.ulysses_size)
    first, later = _pairs(x, kind, queries, keys, ring_size)

    def hop(element_bytes: Number) -> Number:
        if latent and kind.latent_dim is not None:
            return decode.cache_shard_bytes(
                batch_size=x.attention_batch_size,
                tokens=keys,
                cached_elements=kind.latent_dim,
                element_bytes=element_bytes,
            )
        return ring.kv_block_bytes(
            batch_size=x.attention_batch_size,
            tokens=keys,
            num_kv_heads=ring_kv,
            head_dim=kind.head_dim,
            v_head_dim=kind.v_head_dim,
            element_bytes=element_bytes,
        )

    return Shape(
        ring_size=ring_size,
        query_tokens=queries,
        key_tokens=keys,
        num_heads=heads,
        num_kv_heads=kv_heads,
        ring_query_heads=layout.ring_query_heads(num_heads=heads, ulysses_size=x.ulysses_size),
        head_dim=kind.latent_dim if latent and kind.latent_dim is not None else kind.head_dim,
        v_head_dim=kind.latent_v_dim
        if latent and kind.latent_v_dim is not None
        else kind.v_head_dim,
        first_pairs=first,
        later_pairs=later,
        hop_bytes=hop(wire_element(x, kind)),
        gradient_bytes=hop(x.gradient_wire_bytes),
    )


def held_tokens(x: Numbers, kind: Kind) -> Number:
    """Tokens of the context that a layer caches on the rank that holds most of them."""
    if kind.window is None:
        return x.tokens.block
    if x.partition == "striped":
        evenly = layout.shard_tokens(tokens=kind.window, cp_size=x.cp_size)
        return rank_cache.window_tokens(window=evenly, chunk_tokens=x.tokens.block)
    if x.partition == "zigzag" and x.sizes["ring"] > 1:
        return rank_cache.zigzag_window_tokens(
            window=kind.window, block_tokens=x.tokens.block, seq_len=x.tokens.context
        )
    return rank_cache.window_tokens(window=kind.window, chunk_tokens=x.tokens.block)


def _block(x: Numbers, kind: Kind) -> Number:
    """Tokens of one rank that the layer has keys and values for."""
    if kind.window is None or not plain(x.tokens.cached):
        return x.tokens.block
    held = held_tokens(x, kind)
    if x.phase == "decode":
        return held
    return rank_cache.window_block_tokens(
        block_tokens=x.tokens.block, query_tokens=x.tokens.rank, window_tokens=held
    )


def wire_element(x: Numbers, kind: Kind) -> Number:
    """Bytes of an element on the wire: as cached where the cache travels, else as activations."""
    if x.phase == "decode":
        return x.kv_bytes
    return x.wire_bytes if kind.latent_dim is not None else x.cached_wire_bytes


def _pairs(
    x: Numbers, kind: Kind, queries: Number, keys: Number, ring_size: Number
) -> tuple[Number, Number]:
    """Count visible pairs of step 0 and of a later step, on the busiest rank."""
    tokens = {"query_tokens": queries, "block_tokens": keys}
    full = masks.full_pairs(**tokens)
    if not x.causal or x.phase == "decode":
        first, later = full, full
    else:
        first = masks.diagonal_pairs(**tokens)
        zigzag = masks.zigzag_pairs(**tokens)
        later = {"contiguous": full, "striped": first, "zigzag": zigzag}[x.partition]
    if kind.window is not None and x.phase != "decode":
        first = masks.window_first_pairs(
            pairs=first, query_tokens=queries, block_tokens=keys, window=kind.window
        )
        later = masks.window_later_pairs(
            pairs=later,
            first_pairs=first,
            query_tokens=queries,
            window=kind.window,
            ring_size=ring_size,
        )
    return first, first if x.sizes["ring"] == 1 else later


def run(x: Numbers, kind: Kind, device: Device, s: Shape, *, backward: bool = False) -> Pass:
    """Time one direction of the layer of shape ``s`` in the layout of ``x``."""
    flops, first, later = _compute(x, s, device, backward=backward)
    busy = ring.busy_time(first_step_time=first, step_time=later, ring_size=s.ring_size)
    hops, ring_bytes, message = traffic(x, s, device, backward=backward)
    hop_time: Number | None = None
    ring_exposure = x.leaf.derived("ring_exposure", 0, "one rank in the ring sends nothing")
    if x.sizes["ring"] > 1:
        link = device.link(x, "ring")
        hop_time = ring.transfer_time(
            transfer_bytes=message,
            bandwidth=link.bandwidth(message, device.messages_per_hop),
            latency=link.latency,
        )
        ring_exposure = _exposure(s, device, first, later, hop_time)
    exchange = ulysses_exchange(x, kind, s)
    exchange_time = ulysses_time(x, device, exchange)
    exposed = ring.total_exposure(
        ring_exposure=ring_exposure,
        collective_time=x.leaf.derived("collective_time", 0, "no exchange of heads")
        if exchange_time is None
        else exchange_time,
    )
    return Pass(
        flops=flops,
        step_time=later,
        first_step_time=first,
        busy_time=busy,
        hops=hops,
        bytes_sent=collectives.hybrid_bytes(ulysses_bytes=exchange, ring_bytes=ring_bytes),
        ring_bytes=ring_bytes,
        hop_time=hop_time,
        ring_exposure=ring_exposure,
        time=ring.pass_time(busy_time=busy, exposed_time=exposed),
        exposed_time=exposed,
    )


def _exposure(s: Shape, device: Device, first: Number, later: Number, hop_time: Number) -> Number:
    """Communication of the ring that the steps do not hide."""
    if not device.scenario.schedule.overlaps:
        return ring.synchronous_exposure(transfer_time=hop_time, ring_size=s.ring_size)
    return ring.overlapped_exposure(
        first_step_time=first, step_time=later, transfer_time=hop_time, ring_size=s.ring_size
    )


def _compute(
    x: Numbers, s: Shape, device: Device, *, backward: bool
) -> tuple[Number, Number, Number]:
    """FLOPs of a later step; times of step 0 and of a later step."""
    count = attention.attention_backward_flops if backward else attention.attention_flops
    rate = device.flops_per_second(s.query_tokens, backward=backward)
    memory = device.read_time(s.hop_bytes) if x.phase == "decode" else None

    def step(pairs: Number) -> tuple[Number, Number]:
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

    flops, later = step(s.later_pairs)
    return flops, step(s.first_pairs)[1], later


def traffic(
    x: Numbers, s: Shape, device: Device, *, backward: bool
) -> tuple[Number, Number, Number]:
    """Hops, bytes that the ring sends, and bytes of one hop's message."""
    schedule = device.scenario.schedule

    def hops(field: str) -> Number:
        extra = x.leaf(f"schedule.{field}", getattr(schedule, field))
        return ring.ring_hops(ring_size=s.ring_size, extra_hops=extra)

    if not backward:
        forward = hops("kv_extra_hops_forward")
        return forward, ring.bytes_of_hops(hops=forward, hop_bytes=s.hop_bytes), s.hop_bytes
    home = hops("gradient_extra_hops")
    sent = ring.backward_bytes(
        kv_hops=hops("kv_extra_hops_backward"),
        kv_bytes=s.hop_bytes,
        gradient_hops=home,
        gradient_bytes=s.gradient_bytes,
    )
    return (
        home,
        sent,
        ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes),
    )


def exchanged(x: Numbers, kind: Kind, s: Shape) -> dict[str, Number]:
    """Sizes of the tensors that an exchange of heads moves."""
    return {
        "batch_size": x.attention_batch_size,
        "tokens": x.tokens.rank,
        "num_heads": s.num_heads,
        "num_kv_heads": s.num_kv_heads,
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
    rounds = x.leaf("schedule.all_to_alls", device.scenario.schedule.all_to_alls)
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
