"""Decode and cached prefixes: move the cache to the query, or the query to the cache."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, maximum, where


@formula(
    equation="B n z e",
    unit="B",
    scope="rank, layer",
    source="z cached elements a token: g (d_k + d_v), or MLA's latent (DeepSeek-V2)",
)
def cache_shard_bytes(
    *, batch_size: Number, tokens: Number, cached_elements: Number, element_bytes: Number
) -> Number:
    """
    Bytes of the KV cache of one layer on one rank.

    >>> cache_shard_bytes(batch_size=1, tokens=16384, cached_elements=2048, element_bytes=2)
    67108864
    """
    return batch_size * tokens * cached_elements * element_bytes


@formula(
    equation="(P - 1) a + (P - 1) U / W, none for P = 1",
    unit="s",
    scope="rank, layer, step",
    source="every shard visits every rank for one query (LargeWorldModel's inference ring)",
)
def rotate_time(
    *, cp_size: Number, bytes_sent: Number, bandwidth: Number, latency: Number
) -> Number:
    """
    Time of a decode step that rotates the cache.

    >>> rotate_time(cp_size=2, bytes_sent=50e9, bandwidth=50e9, latency=0)
    1.0
    """
    return (cp_size - 1) * latency + bytes_sent / bandwidth


@formula(
    equation="B t h (q e + o e_p + 2 s), none for P = 1",
    unit="B",
    scope="rank, layer, step",
    source="a query out, a partial output with its maximum and denominator back",
)
def stationary_bytes(
    *,
    batch_size: Number,
    new_tokens: Number,
    num_heads: Number,
    query_dim: Number,
    output_dim: Number,
    element_bytes: Number,
    partial_bytes: Number,
    accumulator_bytes: Number,
    cp_size: Number,
) -> Number:
    """
    Bytes that a rank exchanges with the one that asks, in a step that leaves the cache in place.

    >>> stationary_bytes(
    ...     batch_size=1, new_tokens=1, num_heads=32, query_dim=128, output_dim=128,
    ...     element_bytes=2, partial_bytes=4, accumulator_bytes=4, cp_size=8
    ... )
    24832
    """
    head = query_dim * element_bytes + output_dim * partial_bytes + 2 * accumulator_bytes
    return where(cp_size > 1, batch_size * new_tokens * num_heads * head, 0)


@formula(
    equation="(D_kv - 1) B t h z e, none where every rank has the queries",
    unit="B",
    scope="rank, layer, step",
    source="counted; vLLM and SGLang gather the queries of the ranks that share a KV head",
)
def dcp_query_bytes(
    *,
    dcp_size: Number,
    batch_size: Number,
    new_tokens: Number,
    num_heads: Number,
    elements: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of queries that one rank sends (and receives) in an all-gather of a decode step.

    >>> dcp_query_bytes(
    ...     dcp_size=8, batch_size=64, new_tokens=1, num_heads=16, elements=576, element_bytes=2
    ... )
    8257536
    """
    return (dcp_size - 1) * batch_size * new_tokens * num_heads * elements * element_bytes


@formula(
    equation="(D_kv - 1) B t h' k s, h' = h, or D_kv h where all ranks get the statistics of all",
    unit="B",
    scope="rank, layer, step",
    source="counted; vLLM gathers a log-sum-exp of every head, Helix sends maximum and sum along",
)
def dcp_statistic_bytes(
    *,
    dcp_size: Number,
    batch_size: Number,
    new_tokens: Number,
    num_heads: Number,
    num_statistics: Number,
    statistic_bytes: Number,
) -> Number:
    """
    Bytes of the softmax statistics that one rank sends in a decode step.

    >>> dcp_statistic_bytes(
    ...     dcp_size=8, batch_size=64, new_tokens=1, num_heads=128, num_statistics=1,
    ...     statistic_bytes=4
    ... )
    229376
    """
    heads = (dcp_size - 1) * batch_size * new_tokens * num_heads
    return heads * num_statistics * statistic_bytes


@formula(
    equation="r (D_kv - 1) B t h d_v e_p, r = 2 for an all-reduce",
    unit="B",
    scope="rank, layer, step",
    source="counted; an all-reduce is a reduce-scatter and an all-gather",
)
def dcp_partial_bytes(
    *,
    dcp_size: Number,
    batch_size: Number,
    new_tokens: Number,
    num_heads: Number,
    elements: Number,
    partial_bytes: Number,
    rounds: Number,
) -> Number:
    """
    Bytes of partial outputs that one rank sends in a decode step.

    >>> dcp_partial_bytes(
    ...     dcp_size=8, batch_size=64, new_tokens=1, num_heads=16, elements=512, partial_bytes=2,
    ...     rounds=1
    ... )
    7340032
    """
    heads = (dcp_size - 1) * batch_size * new_tokens * num_heads
    return rounds * heads * elements * partial_bytes


@formula(
    equation="D_kv h",
    unit="1",
    scope="rank, layer",
    source="heads of all ranks that share a KV head",
)
def dcp_heads(*, dcp_size: Number, num_heads: Number) -> Number:
    """
    Query heads that a rank works on in decode context parallelism.

    >>> dcp_heads(dcp_size=8, num_heads=16)
    128
    """
    return dcp_size * num_heads


@formula(equation="sum", unit="B", scope="rank, layer, step", source="counted")
def dcp_bytes(*, queries: Number, softmax: Number, partials: Number) -> Number:
    """
    Bytes that one rank sends in a decode step of decode context parallelism.

    >>> dcp_bytes(queries=8257536, softmax=229376, partials=7340032)
    15826944
    """
    return queries + softmax + partials


@formula(
    equation="ceil(x eta W_mem D_kv / (z e (D_kv - 1)))",
    unit="token",
    scope="rank",
    source="the exchange is paid where it takes as long as reading the cache that it saves",
)
def dcp_break_even_tokens(
    *,
    exchange_time: Number,
    bandwidth: Number,
    efficiency: Number,
    row_bytes: Number,
    dcp_size: Number,
) -> Number:
    """
    Cached tokens, of all sequences of the batch, from which sharing them saves time.

    >>> dcp_break_even_tokens(
    ...     exchange_time=55e-6, bandwidth=4800e9, efficiency=1, row_bytes=1152, dcp_size=8
    ... )
    261905.0
    """
    saved = row_bytes * maximum(dcp_size - 1, 1)
    return ceil_div(exchange_time * bandwidth * efficiency * dcp_size, saved)


@formula(
    equation="k, none for P = 1", unit="1", scope="rank, layer, step", source="the schedule's field"
)
def decode_latencies(*, latencies: Number, cp_size: Number) -> Number:
    """
    Exchanges, one after another, of a stationary decode step.

    >>> decode_latencies(latencies=2, cp_size=8)
    2
    """
    return where(cp_size > 1, latencies, 0)


@formula(
    equation="shard / (eta W_mem)",
    unit="s",
    scope="rank, layer, step",
    source="the cache is read once; memory bandwidth bounds decode",
)
def memory_read_time(*, read_bytes: Number, bandwidth: Number, efficiency: Number) -> Number:
    """
    Time to read bytes from the device's memory.

    >>> memory_read_time(read_bytes=3350e9, bandwidth=3350e9, efficiency=0.8)
    1.25
    """
    return read_bytes / (bandwidth * efficiency)


@formula(
    equation="q = B N/P h d_k e; out = B N/P h (d_v e + 4)",
    unit="B",
    scope="rank, layer, step",
    source="Yang et al. 2024 (arXiv 2411.01783) pass-Q; the returned partials counted",
)
def pass_q_block_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    elements: Number,
    element_bytes: Number,
    statistic_bytes: Number,
) -> Number:
    """
    Bytes of one rank's queries, or of one partial output that comes back with its statistic.

    >>> pass_q_block_bytes(
    ...     batch_size=1, query_tokens=8, num_heads=2, elements=128, element_bytes=2,
    ...     statistic_bytes=4
    ... )
    4160
    """
    return batch_size * query_tokens * num_heads * (elements * element_bytes + statistic_bytes)


@formula(
    equation="(P - 1)(q + out)",
    unit="B",
    scope="rank, layer",
    source="each rank's queries visit P - 1 others, P - 1 partial outputs return",
)
def pass_q_bytes(*, cp_size: Number, query_bytes: Number, output_bytes: Number) -> Number:
    """
    Bytes that one rank sends when queries travel and the cache stays.

    >>> pass_q_bytes(cp_size=8, query_bytes=1, output_bytes=2)
    21
    """
    return (cp_size - 1) * (query_bytes + output_bytes)


@formula(
    equation="ring pass + [a + (P - 1) out / W], none for P = 1",
    unit="s",
    scope="rank, layer",
    source="the queries' hops overlap the steps, the return of the outputs does not",
)
def pass_q_time(
    *, ring_time: Number, cp_size: Number, output_bytes: Number, bandwidth: Number, latency: Number
) -> Number:
    """
    Time of one layer when queries travel.

    >>> pass_q_time(ring_time=1, cp_size=2, output_bytes=50e9, bandwidth=50e9, latency=0)
    2.0
    """
    home = latency + (cp_size - 1) * output_bytes / bandwidth
    return where(cp_size > 1, ring_time + home, ring_time)


@formula(
    equation="read + exchange",
    unit="s",
    scope="rank, layer, step",
    source="the cache is read between the exchanges",
)
def decode_time(*, read_time: Number, exchange_time: Number) -> Number:
    """
    Time of a decode step's attention: the cache is read, and what ranks exchange.

    >>> decode_time(read_time=3, exchange_time=1)
    4
    """
    return read_time + exchange_time


@formula(
    equation="max(compute, memory)",
    unit="s",
    scope="rank, layer, step",
    source="roofline (Williams et al. 2009)",
)
def roofline_time(*, compute_time: Number, memory_time: Number) -> Number:
    """
    Time of work that is bound by arithmetic or by memory, whichever is slower.

    >>> roofline_time(compute_time=1, memory_time=2)
    2
    """
    return maximum(compute_time, memory_time)
