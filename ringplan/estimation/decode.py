"""A decode step and a cached prefix: what moves, the cache or the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import collectives, decode, layout, rank_cache, ring
from ringplan.estimation.attention import peers
from ringplan.estimation.caches import elements_on_rank
from ringplan.estimation.leaves import plain
from ringplan.estimation.results import CachedPrefix, Dcp, Decode, Passing, RotateKV, StationaryKV

if TYPE_CHECKING:
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers


def decode_step(x: Numbers, kind: Kind, device: Device) -> Decode:
    """Cost a decode step of the widest layer over this context."""
    leaf = x.leaf
    shard = decode.cache_shard_bytes(
        batch_size=x.attention_batch_size,
        tokens=rank_cache.dcp_tokens(tokens=x.tokens.block, dcp_size=x.dcp_size),
        cached_elements=elements_on_rank(kind),
        element_bytes=x.kv_bytes,
    )
    one = leaf.derived("extra_hops", -1, "the last rank has nowhere to send it")
    rotated = ring.bytes_of_hops(
        hops=ring.ring_hops(ring_size=x.cp_size, extra_hops=one), hop_bytes=shard
    )
    exchanged = decode.stationary_bytes(
        batch_size=x.attention_batch_size,
        new_tokens=x.tokens.new
        if x.phase == "decode"
        else leaf.derived("new_tokens", 1, "one token a sequence"),
        num_heads=kind.rank_heads,
        query_dim=kind.head_dim if kind.latent_dim is None else kind.latent_dim,
        output_dim=kind.v_head_dim if kind.latent_v_dim is None else kind.latent_v_dim,
        element_bytes=x.activation_bytes,
        partial_bytes=x.wire.partial,
        accumulator_bytes=x.accumulator_bytes,
        cp_size=x.cp_size,
    )
    latencies = decode.decode_latencies(
        latencies=x.of_schedule("decode_latencies"), cp_size=x.cp_size
    )
    read = device.read_time(shard)
    if plain(x.cp_size) == 1:
        nothing = leaf.derived("time", 0, "one rank exchanges nothing")
        return Decode(
            rotate_kv=RotateKV(bytes_sent=rotated, time=nothing),
            stationary_kv=StationaryKV(bytes_sent=exchanged, time=nothing, latencies=latencies),
            kv_read_time=read,
            dcp=dcp_step(x, kind, device),
        )
    link = device.link(x, "ulysses", "ring")
    return Decode(
        rotate_kv=RotateKV(
            bytes_sent=rotated,
            time=decode.rotate_time(
                cp_size=x.cp_size,
                bytes_sent=rotated,
                bandwidth=link.bandwidth(shard),
                latency=link.latency,
            ),
        ),
        stationary_kv=StationaryKV(
            bytes_sent=exchanged,
            time=collectives.collective_time(
                transfer_bytes=exchanged,
                bandwidth=link.bandwidth(exchanged, latencies),
                latency=link.latency,
                latencies=latencies,
            ),
            latencies=latencies,
        ),
        kv_read_time=read,
        dcp=dcp_step(x, kind, device),
    )


def dcp_step(x: Numbers, kind: Kind, device: Device) -> Dcp | None:
    """Cost the exchanges of tensor-parallel ranks that share the tokens of a KV head."""
    if plain(x.dcp_size) == 1:
        return None
    leaf, schedule = x.leaf, x.schedule
    latent = kind.latent_dim is not None
    query = kind.head_dim if kind.latent_dim is None else kind.latent_dim
    output = kind.v_head_dim if kind.latent_v_dim is None else kind.latent_v_dim
    common = {
        "dcp_size": x.dcp_size,
        "batch_size": x.attention_batch_size,
        "new_tokens": x.tokens.new
        if x.phase == "decode"
        else leaf.derived("new_tokens", 1, "one token a sequence"),
    }
    queries = decode.dcp_query_bytes(
        num_heads=kind.rank_heads
        if schedule.query_exchange != "none"
        else leaf.derived("num_heads", 0, "every rank projects the queries that it needs"),
        elements=query,
        element_bytes=x.activation_bytes,
        **common,
    )
    every = decode.dcp_heads(dcp_size=x.dcp_size, num_heads=kind.rank_heads)
    statistics = decode.dcp_statistic_bytes(
        num_heads=every if schedule.gathers_statistics else kind.rank_heads,
        num_statistics=x.of_schedule("statistics"),
        statistic_bytes=x.accumulator_bytes,
        **common,
    )
    how = (schedule.latent_combine if latent else None) or schedule.combine
    partials = decode.dcp_partial_bytes(
        num_heads=kind.rank_heads,
        elements=output,
        partial_bytes=x.wire.latent_partial if latent else x.wire.partial,
        rounds=leaf.derived("rounds", 2 if how == "all_reduce" else 1, f"combine: {how}"),
        **common,
    )
    sent = decode.dcp_bytes(queries=queries, softmax=statistics, partials=partials)
    link = device.link(x, "tp", collective=True, group_size=plain(x.dcp_size))
    latencies = x.of_schedule("decode_latencies")
    time = collectives.collective_time(
        transfer_bytes=sent,
        bandwidth=link.bandwidth(sent, latencies, peers(x, plain(x.dcp_size))),
        latency=link.latency,
        latencies=latencies,
    )
    memory, share = device.profile.memory.bandwidth, device.profile.efficiency.memory
    return Dcp(
        bytes_sent=sent,
        time=time,
        latencies=latencies,
        link=link.name,
        break_even_tokens=decode.dcp_break_even_tokens(
            exchange_time=time,
            bandwidth=leaf("hardware.memory.bandwidth", memory),
            efficiency=leaf("hardware.efficiency.memory", share),
            row_bytes=kind.cached.rank_row_bytes,
            dcp_size=x.dcp_size,
        ),
    )


def cached_prefix(x: Numbers, layer: Layer, device: Device) -> CachedPrefix:
    """Compare pass-KV with pass-Q for one layer; queries travel the same ring as blocks would."""
    kind, s, kv = layer.kind, layer.shape, layer.forward
    link = device.link(x, "ring")
    nothing = x.leaf.derived("statistic_bytes", 0, "a query has no statistic")

    def block(elements: float, element_bytes: float, statistic: float) -> float:
        return decode.pass_q_block_bytes(
            batch_size=x.attention_batch_size,
            query_tokens=s.query_tokens,
            num_heads=s.ring_query_heads,
            elements=elements,
            element_bytes=element_bytes,
            statistic_bytes=statistic,
        )

    queries = block(kind.head_dim, x.activation_bytes, nothing)
    outputs = block(kind.v_head_dim, x.activation_bytes, x.accumulator_bytes)
    hop = ring.transfer_time(
        transfer_bytes=queries, bandwidth=link.bandwidth(queries), latency=link.latency
    )
    q_time = decode.pass_q_time(
        ring_time=ring.pass_time(
            busy_time=kv.busy_time,
            exposed_time=ring.overlapped_exposure(
                first_step_time=kv.first_step_time,
                step_time=kv.step_time,
                transfer_time=hop,
                hops=layout.ring_latencies(group_size=s.ring_size),
            ),
        ),
        cp_size=s.ring_size,
        output_bytes=outputs,
        bandwidth=link.bandwidth(outputs),
        latency=link.latency,
    )
    kv_time = ring.pass_time(busy_time=kv.busy_time, exposed_time=kv.ring_exposure)
    return CachedPrefix(
        pass_kv=Passing(bytes_sent=kv.ring_bytes, time=kv_time),
        pass_q=Passing(
            bytes_sent=decode.pass_q_bytes(
                cp_size=s.ring_size, query_bytes=queries, output_bytes=outputs
            ),
            time=q_time,
        ),
        faster="pass_kv" if plain(kv_time) <= plain(q_time) else "pass_q",
    )
