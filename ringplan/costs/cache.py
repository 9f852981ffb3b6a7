"""The KV cache: of the whole job, and on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, floor, maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(equation="G (d_k + d_v)", unit="1", scope="job, layer", source="definition")
def cached_elements(*, num_kv_heads: Number, head_dim: Number, v_head_dim: Number) -> Number:
    """
    Elements that a token leaves in the cache of a layer.

    >>> cached_elements(num_kv_heads=8, head_dim=128, v_head_dim=128)
    2048
    """
    return num_kv_heads * (head_dim + v_head_dim)


@formula(
    equation="a ceil(G (d_k e_k + d_v e_v) / a)",
    unit="B",
    scope="job, layer, token",
    source="K and V may differ in format; block formats carry their scales; rows are padded to a",
)
def cache_row_bytes(
    *,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    k_bytes: Number,
    v_bytes: Number,
    alignment: Number,
) -> Number:
    """
    Bytes that a token leaves in the cache of a layer.

    >>> cache_row_bytes(
    ...     num_kv_heads=8, head_dim=128, v_head_dim=128, k_bytes=2, v_bytes=1, alignment=1
    ... )
    3072
    """
    return ceil_div(num_kv_heads * (head_dim * k_bytes + v_head_dim * v_bytes), alignment) * (
        alignment
    )


@formula(
    equation="a ceil((c e + (l - c) e_r) / a)",
    unit="B",
    scope="job, layer, token",
    source="multi-head latent attention caches the latent and one rotary key, whatever the heads "
    "and the tensor parallelism",
)
def latent_row_bytes(
    *,
    latent_dim: Number,
    latent_v_dim: Number,
    latent_bytes: Number,
    rotary_bytes: Number,
    alignment: Number,
) -> Number:
    """
    Bytes that a token leaves in the latent cache of a layer.

    >>> latent_row_bytes(
    ...     latent_dim=576, latent_v_dim=512, latent_bytes=2, rotary_bytes=2, alignment=256
    ... )
    1280
    """
    row = latent_v_dim * latent_bytes + (latent_dim - latent_v_dim) * rotary_bytes
    return ceil_div(row, alignment) * alignment


@formula(
    equation="d e + s",
    unit="B",
    scope="job, layer, token",
    source="DeepSeek-V3.2's indexer: a key in 8 bits and one fp32 scale",
)
def indexer_row_bytes(
    *, indexer_dim: Number, element_bytes: Number, scale_bytes: Number, present: Number
) -> Number:
    """
    Bytes that a token leaves in the cache of an indexer's keys.

    >>> indexer_row_bytes(indexer_dim=128, element_bytes=1, scale_bytes=4, present=1)
    132
    """
    return present * (indexer_dim * element_bytes + scale_bytes)


@formula(
    equation="row / z",
    unit="B",
    scope="job, layer",
    source="the mean over a token's row, scales and padding included",
)
def mean_element_bytes(*, row_bytes: Number, elements: Number) -> Number:
    """
    Bytes of a cached element.

    >>> mean_element_bytes(row_bytes=656, elements=576)  # doctest: +ELLIPSIS
    1.138...
    """
    return divide(row_bytes, elements)


@formula(
    equation="sum over growing layers of row / c",
    unit="B",
    scope="job, token",
    source="layers that keep the whole context; a compressed cache has an entry for c tokens",
)
def kv_bytes_per_token(
    *,
    layers: Sequence[Number],
    rows: Sequence[Number],
    grows: Sequence[Number],
    ratios: Sequence[Number],
) -> Number:
    """
    Bytes that one more token of context adds to the caches of all layers.

    >>> kv_bytes_per_token(layers=(2, 2), rows=(8, 8), grows=(1, 0), ratios=(1, 1))
    16
    """
    kinds = zip(layers, rows, grows, ratios, strict=True)
    return sum(divide(count * row * growing, per) for count, row, growing, per in kinds)


@formula(
    equation="sum over window layers of min(S, w) row",
    unit="B",
    scope="job, sequence",
    source="a sliding window keeps its last w tokens, a chunk at most w",
)
def kv_constant_bytes(
    *,
    layers: Sequence[Number],
    rows: Sequence[Number],
    windows: Sequence[Number],
    seq_len: Number,
) -> Number:
    """
    Bytes of a sequence in layers that do not grow with the context; a window of 0 is none.

    >>> kv_constant_bytes(layers=(2, 2), rows=(8, 8), windows=(0, 8), seq_len=99)
    128
    """
    kinds = zip(layers, rows, windows, strict=True)
    return sum(count * row * minimum(seq_len, w) for count, row, w in kinds)


@formula(
    equation="sum over state layers of conv e_c + state e_s",
    unit="B",
    scope="job, sequence",
    source="linear attention and state-space layers keep as much of a short context as of a long",
)
def state_bytes(
    *,
    layers: Sequence[Number],
    conv_state: Sequence[Number],
    recurrent_state: Sequence[Number],
    conv_bytes: Number,
    recurrent_bytes: Number,
) -> Number:
    """
    Bytes of a sequence's states of convolutions and recurrences.

    >>> state_bytes(
    ...     layers=(24,), conv_state=(24576,), recurrent_state=(524288,), conv_bytes=4,
    ...     recurrent_bytes=4
    ... )
    52690944
    """
    kinds = zip(layers, conv_state, recurrent_state, strict=True)
    return sum(
        count * (conv * conv_bytes + state * recurrent_bytes) for count, conv, state in kinds
    )


@formula(
    equation="state ceil(h_s/T)/h_s",
    unit="1",
    scope="rank, sequence, layer",
    source="tensor-parallel ranks share the heads of a state, whole ones",
)
def rank_state(*, state: Number, state_heads: Number, tp_size: Number) -> Number:
    """
    Elements of a state on one rank.

    >>> rank_state(state=524288, state_heads=32, tp_size=8)
    65536
    """
    return divide(state * ceil_div(state_heads, tp_size), maximum(state_heads, 1))


@formula(
    equation="dp ((B S - (B - 1) shared) k + B C)",
    unit="B",
    scope="job",
    source="every sequence of every replica; a shared prefix is stored once",
)
def kv_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    shared_tokens: Number,
    per_token: Number,
    constant: Number,
) -> Number:
    """
    Bytes of K and V of the whole job, nothing replicated.

    >>> kv_bytes(
    ...     dp_size=1, batch_size=2, seq_len=10000, shared_tokens=8000, per_token=1, constant=0
    ... )
    12000
    """
    tokens = batch_size * seq_len - (batch_size - 1) * shared_tokens
    return dp_size * (tokens * per_token + batch_size * constant)


@formula(equation="dp B S row", unit="B", scope="job, layer", source="2 N d bytes in the article")
def kv_layer_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    row_bytes: Number,
) -> Number:
    """
    Bytes of K and V of the widest full-attention layer.

    >>> kv_layer_bytes(dp_size=1, batch_size=1, seq_len=1048576, row_bytes=16384)
    17179869184
    """
    return dp_size * batch_size * seq_len * row_bytes


@formula(
    equation="B H N S e",
    unit="B",
    scope="job, layer",
    source="what FlashAttention never stores (Dao et al. 2022)",
)
def score_matrix_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    num_attention_heads: Number,
    new_tokens: Number,
    seq_len: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the attention scores of one layer, if they were stored.

    >>> score_matrix_bytes(
    ...     dp_size=1, batch_size=1, num_attention_heads=32, new_tokens=1048576, seq_len=1048576,
    ...     element_bytes=2
    ... )
    70368744177664
    """
    return dp_size * batch_size * num_attention_heads * new_tokens * seq_len * element_bytes


@formula(
    equation="min(w, tokens of a chunk)",
    unit="token",
    scope="rank, sequence, layer",
    source="the last chunks' ranks hold the window, not all evenly",
)
def window_tokens(*, window: Number, chunk_tokens: Number) -> Number:
    """
    Tokens of a sliding window on the rank that holds most of them.

    >>> window_tokens(window=4096, chunk_tokens=1024)
    1024
    """
    return minimum(window, chunk_tokens)


@formula(
    equation="min(w, n/2) + min(max(w - S/2, 0), n/2)",
    unit="token",
    scope="rank, sequence, layer",
    source="counted: a rank's two chunks lie in opposite halves of the sequence",
)
def zigzag_window_tokens(*, window: Number, block_tokens: Number, seq_len: Number) -> Number:
    """
    Tokens of a sliding window on the zigzag rank that holds most of them.

    >>> zigzag_window_tokens(window=6, block_tokens=4, seq_len=8)
    4
    """
    chunk = divide(block_tokens, 2)
    beyond_half = maximum(window - divide(seq_len, 2), 0)
    return minimum(window, chunk) + minimum(beyond_half, chunk)


@formula(
    equation="min(n, q + held)",
    unit="token",
    scope="rank, sequence, layer",
    source="the new tokens, and what the window keeps of the cached ones",
)
def window_block_tokens(
    *, block_tokens: Number, query_tokens: Number, window_tokens: Number
) -> Number:
    """
    Tokens of one rank that a sliding-window layer has keys for when some are cached.

    >>> window_block_tokens(block_tokens=100, query_tokens=8, window_tokens=16)
    24
    """
    return minimum(block_tokens, query_tokens + window_tokens)


@formula(
    equation="p (B ceil(n/p) - (B - 1) floor(shared/p))",
    unit="token",
    scope="rank, layer",
    source="a sequence fills whole pages of p tokens; a shared prefix is stored once",
)
def paged_tokens(
    *, batch_size: Number, tokens: Number, shared_tokens: Number, page_tokens: Number
) -> Number:
    """
    Tokens of all sequences on a rank, in whole pages.

    >>> paged_tokens(batch_size=2, tokens=100, shared_tokens=0, page_tokens=16)
    224
    """
    pages = ceil_div(tokens, page_tokens)
    return page_tokens * (batch_size * pages - (batch_size - 1) * (shared_tokens // page_tokens))


@formula(
    equation="min(p ceil((B n + s)/p), p ceil(B N/p))",
    unit="token",
    scope="rank, layer",
    source="cells that all sequences share, padded once; windows lie beside one micro-batch, and "
    "are never more than the whole context",
)
def pooled_tokens(
    *,
    batch_size: Number,
    tokens: Number,
    slack_tokens: Number,
    block_tokens: Number,
    page_tokens: Number,
) -> Number:
    """
    Tokens of all sequences on a rank, in cells that they share.

    >>> pooled_tokens(
    ...     batch_size=4, tokens=1024, slack_tokens=512, block_tokens=2048, page_tokens=256
    ... )
    4608
    """
    window = ceil_div(batch_size * tokens + slack_tokens, page_tokens)
    whole = ceil_div(batch_size * block_tokens, page_tokens)
    return page_tokens * minimum(window, whole)


@formula(
    equation="sum over kinds of L n row / c",
    unit="B",
    scope="rank",
    source="the fullest rank; MLA's latent is whole on every tensor-parallel rank",
)
def rank_kv_bytes(
    *,
    layers: Sequence[Number],
    growing_tokens: Sequence[Number],
    ratios: Sequence[Number],
    window_tokens: Sequence[Number],
    rows: Sequence[Number],
) -> Number:
    """
    Bytes of the KV cache on one rank.

    >>> rank_kv_bytes(
    ...     layers=(32,), growing_tokens=(16384,), ratios=(1,), window_tokens=(0,), rows=(4096,)
    ... )
    2147483648
    """
    kinds = zip(layers, growing_tokens, ratios, window_tokens, rows, strict=True)
    return sum(
        count * (ceil_div(grown, per) + held) * row for count, grown, per, held, row in kinds
    )


@formula(
    equation="ceil(n / D_kv)",
    unit="token",
    scope="rank, sequence",
    source="decode context parallelism: ranks that hold the same KV head share its tokens",
)
def dcp_tokens(*, tokens: Number, dcp_size: Number) -> Number:
    """
    Tokens of a sequence on one of the ranks that share a KV head.

    >>> dcp_tokens(tokens=100, dcp_size=8)
    13
    """
    return ceil_div(tokens, dcp_size)


@formula(
    equation="floor(shared / (P D_kv))",
    unit="token",
    scope="rank",
    source="a shared prefix is dealt over the ranks like the rest",
)
def shared_shard(*, shared_tokens: Number, cp_size: Number, dcp_size: Number) -> Number:
    """
    Tokens of a shared prefix on one rank.

    >>> shared_shard(shared_tokens=8000, cp_size=2, dcp_size=1)
    4000
    """
    return shared_tokens // (cp_size * dcp_size)


@formula(equation="kv + indexer", unit="B", scope="rank", source="both caches grow together")
def with_indexer(*, kv_bytes: Number, indexer_bytes: Number) -> Number:
    """
    Bytes of the KV cache with an indexer's keys.

    >>> with_indexer(kv_bytes=70272, indexer_bytes=8052)
    78324
    """
    return kv_bytes + indexer_bytes


@formula(
    equation="B state",
    unit="B",
    scope="rank",
    source="every sequence has a state, whole on every context-parallel rank",
)
def rank_state_bytes(*, batch_size: Number, sequence_bytes: Number) -> Number:
    """
    Bytes of the states of all sequences on one rank.

    >>> rank_state_bytes(batch_size=2, sequence_bytes=100)
    200
    """
    return batch_size * sequence_bytes


@formula(
    equation="min(n, w + s)",
    unit="token",
    scope="rank, sequence, layer",
    source="a window is held beside the micro-batch that is computed, never more than the context",
)
def beside_slack(*, tokens: Number, slack_tokens: Number, block_tokens: Number) -> Number:
    """
    Tokens of a window and of the micro-batch beside it.

    >>> beside_slack(tokens=1024, slack_tokens=512, block_tokens=1200)
    1200
    """
    return minimum(block_tokens, tokens + slack_tokens)


@formula(
    equation="ceil(share n)",
    unit="token",
    scope="rank, sequence, layer",
    source="a pool for windows that is a share of the pool of full layers",
)
def pool_share(*, block_tokens: Number, share: Number) -> Number:
    """
    Tokens of a window layer's pool.

    >>> pool_share(block_tokens=1000, share=0.8)
    800
    """
    return -floor(-share * block_tokens)
