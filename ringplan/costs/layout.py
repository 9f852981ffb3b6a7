"""Tokens, heads and layers on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(
    equation="N' = m ceil(N / m)",
    unit="token",
    scope="sequence",
    source="divisibility of the partition",
)
def padded_tokens(*, new_tokens: Number, multiple: Number) -> Number:
    """
    New tokens of a sequence, padded so that every rank holds as many.

    >>> padded_tokens(new_tokens=7, multiple=4)
    8
    """
    return ceil_div(new_tokens, multiple) * multiple


@formula(
    equation="N' = sum of c m ceil(l / m)",
    unit="token",
    scope="sequence",
    source="each packed document is cut over all ranks (zhuzilin/ring_flash_attn, Transformer"
    " Engine's thd)",
)
def padded_documents(
    *, lengths: Sequence[Number], counts: Sequence[Number], multiple: Number
) -> Number:
    """
    Tokens of packed documents, each padded so that every rank holds as many of it.

    >>> padded_documents(lengths=(7, 8), counts=(2, 1), multiple=4)
    24
    """
    return sum(
        count * ceil_div(length, multiple) * multiple
        for length, count in zip(lengths, counts, strict=True)
    )


@formula(equation="S = C + N", unit="token", scope="sequence", source="definition")
def context_tokens(*, cached_tokens: Number, new_tokens: Number) -> Number:
    """
    Tokens of the whole context after the pass.

    >>> context_tokens(cached_tokens=100, new_tokens=28)
    128
    """
    return cached_tokens + new_tokens


@formula(equation="ceil(x / P)", unit="token", scope="rank, sequence", source="definition")
def shard_tokens(*, tokens: Number, cp_size: Number) -> Number:
    """
    Tokens of a sequence that one rank holds.

    >>> shard_tokens(tokens=1048576, cp_size=64)
    16384
    """
    return ceil_div(tokens, cp_size)


@formula(equation="R = P / u", unit="rank", scope="job", source="definition")
def ring_ranks(*, cp_size: Number, ulysses_size: Number) -> Number:
    """
    Ranks in one ring.

    >>> ring_ranks(cp_size=64, ulysses_size=8)
    8
    """
    return cp_size // ulysses_size


@formula(equation="h = ceil(H / T)", unit="1", scope="rank, layer", source="tensor parallelism")
def query_heads(*, num_attention_heads: Number, tp_size: Number) -> Number:
    """
    Query heads on one rank.

    >>> query_heads(num_attention_heads=64, tp_size=8)
    8
    """
    return ceil_div(num_attention_heads, tp_size)


@formula(
    equation="g = ceil(G / T)",
    unit="1",
    scope="rank, layer",
    source="tensor parallelism; fewer KV heads than ranks are replicated (Megatron-LM, vLLM)",
)
def kv_heads(*, num_key_value_heads: Number, tp_size: Number) -> Number:
    """
    Key/value heads on one rank, at least one.

    >>> kv_heads(num_key_value_heads=4, tp_size=8)
    1
    """
    return ceil_div(num_key_value_heads, tp_size)


@formula(
    equation="T / D_a",
    unit="rank",
    scope="job",
    source="data-parallel attention: so many ranks share the heads of a sequence",
)
def attention_ranks(*, tp_size: Number, attention_dp_size: Number) -> Number:
    """
    Tensor-parallel ranks that share the heads of a sequence.

    >>> attention_ranks(tp_size=8, attention_dp_size=8)
    1
    """
    return divide(tp_size, attention_dp_size)


@formula(
    equation="dp D_a",
    unit="1",
    scope="job",
    source="every replica, of the model or of its attention, has sequences of its own",
)
def cache_replicas(*, dp_size: Number, attention_dp_size: Number) -> Number:
    """
    Groups of ranks that cache different sequences.

    >>> cache_replicas(dp_size=2, attention_dp_size=8)
    16
    """
    return dp_size * attention_dp_size


@formula(
    equation="ceil(B / D_a)",
    unit="1",
    scope="rank",
    source="data-parallel attention deals the sequences of the batch",
)
def replica_sequences(*, batch_size: Number, attention_dp_size: Number) -> Number:
    """
    Sequences of the batch whose attention runs on one rank.

    >>> replica_sequences(batch_size=12, attention_dp_size=8)
    2
    """
    return ceil_div(batch_size, attention_dp_size)


@formula(
    equation="h / u",
    unit="1",
    scope="rank, layer",
    source="Ulysses; cut as if heads could be cut, see feasible",
)
def ring_query_heads(*, num_heads: Number, ulysses_size: Number) -> Number:
    """
    Query heads of one rank inside the ring of a hybrid.

    >>> ring_query_heads(num_heads=8, ulysses_size=2)
    4
    """
    return divide(num_heads, ulysses_size)


@formula(
    equation="ceil(h / u)",
    unit="1",
    scope="rank, layer",
    source="DeepSpeed's uneven_heads_all2all: some ranks have one head more, and they pace",
)
def uneven_query_heads(*, num_heads: Number, ulysses_size: Number) -> Number:
    """
    Query heads of the rank that has most of them after an exchange of heads.

    >>> uneven_query_heads(num_heads=20, ulysses_size=8)
    3
    """
    return ceil_div(num_heads, ulysses_size)


@formula(
    equation="ceil(g / k)", unit="1", scope="rank, layer", source="heads_k_stride heads at a time"
)
def gather_slices(*, num_kv_heads: Number, heads_per_gather: Number) -> Number:
    """
    Gathers of some key/value heads each.

    >>> gather_slices(num_kv_heads=8, heads_per_gather=1)
    8
    """
    return ceil_div(num_kv_heads, heads_per_gather)


@formula(
    equation="g' = max(g, u)",
    unit="1",
    scope="rank, layer",
    source="K and V are repeated before the exchange (DeepSpeed's UlyssesSPAttentionHF)",
)
def replicated_kv_heads(*, num_kv_heads: Number, ulysses_size: Number) -> Number:
    """
    Key/value heads that an exchange of heads moves where fewer than ranks are replicated.

    >>> replicated_kv_heads(num_kv_heads=2, ulysses_size=8)
    8
    """
    return maximum(num_kv_heads, ulysses_size)


@formula(
    equation="max(g, u) / u",
    unit="1",
    scope="rank, layer",
    source="fewer KV heads than ranks are replicated (DeepSpeed's UlyssesSPAttentionHF)",
)
def ring_kv_heads(*, num_kv_heads: Number, ulysses_size: Number) -> Number:
    """
    Key/value heads of one rank inside the ring of a hybrid.

    >>> ring_kv_heads(num_kv_heads=8, ulysses_size=2), ring_kv_heads(num_kv_heads=1, ulysses_size=2)
    (4, 1)
    """
    return divide(maximum(num_kv_heads, ulysses_size), ulysses_size)


@formula(
    equation="n u", unit="token", scope="rank, sequence", source="the all-to-all gathers u shards"
)
def ring_tokens(*, tokens: Number, ulysses_size: Number) -> Number:
    """
    Tokens of one rank inside the ring of a hybrid.

    >>> ring_tokens(tokens=16384, ulysses_size=2)
    32768
    """
    return tokens * ulysses_size


@formula(equation="k - 1", unit="hop", scope="rank, layer", source="ring algorithm")
def ring_latencies(*, group_size: Number) -> Number:
    """
    Hops, one after another, of a ring all-gather or reduce-scatter.

    >>> ring_latencies(group_size=8)
    7
    """
    return group_size - 1


@formula(
    equation="m (k - 1)",
    unit="hop",
    scope="rank, layer",
    source="K and V in one gather, or in one each",
)
def gather_latencies(*, group_size: Number, messages: Number) -> Number:
    """
    Hops, one after another, of ring all-gathers of so many tensors.

    >>> gather_latencies(group_size=8, messages=2)
    14
    """
    return (group_size - 1) * messages
