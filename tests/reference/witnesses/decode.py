"""Decode and cached prefixes."""

from __future__ import annotations

from hypothesis import strategies as st

from ringplan.costs import decode
from ringplan.reference.clock import replay
from tests.reference.rings import sent, smalls
from tests.reference.witnesses.registry import Claim, rates, rings, witness


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
