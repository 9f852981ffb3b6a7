"""The KV cache: of the whole job, and on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, minimum

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
    ...     layers=(24,), conv_state=(24576,), recurrent_state=(524288,), conv_bytes=2,
    ...     recurrent_bytes=4
    ... )
    51511296
    """
    kinds = zip(layers, conv_state, recurrent_state, strict=True)
    return sum(
        count * (conv * conv_bytes + state * recurrent_bytes) for count, conv, state in kinds
    )


@formula(
    equation="dp ((B S - (B - 1) min(shared, S)) k + B C)",
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
    tokens = batch_size * seq_len - (batch_size - 1) * minimum(shared_tokens, seq_len)
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
