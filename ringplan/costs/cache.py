"""The KV cache: of the whole job, and on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, divide, maximum, minimum

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
    equation="sum over growing layers of z e",
    unit="B",
    scope="job, token",
    source="layers that attend to the whole context",
)
def kv_bytes_per_token(
    *,
    layers: Sequence[Number],
    elements: Sequence[Number],
    grows: Sequence[Number],
    element_bytes: Number,
) -> Number:
    """
    Bytes that one more token of context adds to the cache of all layers.

    >>> kv_bytes_per_token(layers=(2, 2), elements=(4, 4), grows=(1, 0), element_bytes=2)
    16
    """
    kinds = zip(layers, elements, grows, strict=True)
    return sum(count * each * growing for count, each, growing in kinds) * element_bytes


@formula(
    equation="sum over window layers of min(S, w) z e",
    unit="B",
    scope="job, sequence",
    source="a sliding window keeps its last w tokens",
)
def kv_constant_bytes(
    *,
    layers: Sequence[Number],
    elements: Sequence[Number],
    windows: Sequence[Number],
    seq_len: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of a sequence in layers that do not grow with the context; a window of 0 is none.

    >>> kv_constant_bytes(
    ...     layers=(2, 2), elements=(4, 4), windows=(0, 8), seq_len=99, element_bytes=2
    ... )
    128
    """
    kinds = zip(layers, elements, windows, strict=True)
    return sum(count * each * minimum(seq_len, w) for count, each, w in kinds) * element_bytes


@formula(equation="dp B (S k + C)", unit="B", scope="job", source="every sequence of every replica")
def kv_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    per_token: Number,
    constant: Number,
) -> Number:
    """
    Bytes of K and V of the whole job, nothing replicated.

    >>> kv_bytes(dp_size=1, batch_size=1, seq_len=1048576, per_token=524288, constant=0)
    549755813888
    """
    return dp_size * batch_size * (seq_len * per_token + constant)


@formula(equation="dp B S z e", unit="B", scope="job, layer", source="2 N d bytes in the article")
def kv_layer_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    elements: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of K and V of the widest full-attention layer.

    >>> kv_layer_bytes(dp_size=1, batch_size=1, seq_len=1048576, elements=8192, element_bytes=2)
    17179869184
    """
    return dp_size * batch_size * seq_len * elements * element_bytes


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
    equation="B sum over kinds of L n z e",
    unit="B",
    scope="rank",
    source="the fullest rank; MLA's latent is whole on every tensor-parallel rank",
)
def rank_kv_bytes(
    *,
    batch_size: Number,
    layers: Sequence[Number],
    tokens: Sequence[Number],
    elements: Sequence[Number],
    element_bytes: Number,
) -> Number:
    """
    Bytes of the KV cache on one rank.

    >>> rank_kv_bytes(
    ...     batch_size=1, layers=(32,), tokens=(16384,), elements=(2048,), element_bytes=2
    ... )
    2147483648
    """
    kinds = zip(layers, tokens, elements, strict=True)
    return batch_size * sum(count * held * each for count, held, each in kinds) * element_bytes
