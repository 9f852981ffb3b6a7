"""A decode step and a cached prefix: what moves, the cache or the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import collectives, decode, rank_cache, ring
from ringplan.estimation.caches import elements_on_rank
from ringplan.estimation.leaves import plain
from ringplan.estimation.results import CachedPrefix, Decode, Passing, RotateKV, StationaryKV

if TYPE_CHECKING:
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers


def decode_step(x: Numbers, kind: Kind, device: Device) -> Decode:
    """Cost a decode step of the widest layer over this context."""
    leaf, schedule = x.leaf, device.scenario.schedule
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
        partial_bytes=x.partial_bytes,
        accumulator_bytes=x.accumulator_bytes,
        cp_size=x.cp_size,
    )
    latencies = decode.decode_latencies(
        latencies=leaf("schedule.decode_latencies", schedule.decode_latencies), cp_size=x.cp_size
    )
    read = device.read_time(shard)
    if plain(x.cp_size) == 1:
        nothing = leaf.derived("time", 0, "one rank exchanges nothing")
        return Decode(
            rotate_kv=RotateKV(bytes_sent=rotated, time=nothing),
            stationary_kv=StationaryKV(bytes_sent=exchanged, time=nothing, latencies=latencies),
            kv_read_time=read,
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
                ring_size=s.ring_size,
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
