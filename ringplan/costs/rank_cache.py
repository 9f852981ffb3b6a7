"""What of the caches and states lies on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, floor, maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    >>> paged_tokens(batch_size=2, tokens=100, shared_tokens=60, page_tokens=16)
    176
    """
    pages = ceil_div(tokens, page_tokens)
    return page_tokens * (batch_size * pages - (batch_size - 1) * (shared_tokens // page_tokens))


@formula(
    equation="min(p ceil((B n - c + s)/p), p ceil((B N - c)/p)), c = (B - 1) shared",
    unit="token",
    scope="rank, layer",
    source="cells that all sequences share, padded once; windows lie beside one micro-batch, and "
    "are never more than the whole context",
)
def pooled_tokens(
    *,
    batch_size: Number,
    tokens: Number,
    shared_tokens: Number,
    slack_tokens: Number,
    block_tokens: Number,
    page_tokens: Number,
) -> Number:
    """
    Tokens of all sequences on a rank, in cells that they share.

    >>> pooled_tokens(
    ...     batch_size=4, tokens=1024, shared_tokens=0, slack_tokens=512, block_tokens=2048,
    ...     page_tokens=256
    ... )
    4608
    """
    common = (batch_size - 1) * shared_tokens
    window = ceil_div(batch_size * tokens - common + slack_tokens, page_tokens)
    whole = ceil_div(batch_size * block_tokens - common, page_tokens)
    return page_tokens * minimum(window, whole)


@formula(
    equation="sum over kinds of L (ceil(n/c) + held) row",
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
    equation="floor(min(shared, S) / (P D_kv))",
    unit="token",
    scope="rank",
    source="a shared prefix is dealt over the ranks like the rest",
)
def shared_shard(
    *, shared_tokens: Number, seq_len: Number, cp_size: Number, dcp_size: Number
) -> Number:
    """
    Tokens of a shared prefix on one rank.

    >>> shared_shard(shared_tokens=8000, seq_len=10000, cp_size=2, dcp_size=4)
    1000
    """
    return minimum(shared_tokens, seq_len) // (cp_size * dcp_size)


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
