"""What attention holds beside a rank's own tensors while blocks, queries or heads travel."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, maximum, minimum, where


@formula(
    equation="min(k, R - 1) U + B q h/u s (d_v + 2), none for R = 1",
    unit="B",
    scope="rank, layer",
    source="visiting and arriving K/V, of two ranks one block in all; running output, maximum and "
    "denominator",
)
def ring_buffer_bytes(
    *,
    ring_size: Number,
    kv_buffers: Number,
    hop_bytes: Number,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    v_head_dim: Number,
    accumulator_bytes: Number,
) -> Number:
    """
    Bytes that the ring holds in a forward pass beside the rank's own tensors.

    >>> ring_buffer_bytes(
    ...     ring_size=8, kv_buffers=2, hop_bytes=100, batch_size=1, query_tokens=2, num_heads=3,
    ...     v_head_dim=4, accumulator_bytes=4
    ... )
    344
    """
    blocks = minimum(kv_buffers, ring_size - 1) * hop_bytes
    accumulators = batch_size * query_tokens * num_heads * (v_head_dim + 2) * accumulator_bytes
    return where(ring_size > 1, blocks + accumulators, 0)


@formula(
    equation="min(k, R - 1 + r) U_kv + k U_dkv + B q h/u s (d_k + 2), none for R = 1",
    unit="B",
    scope="rank, layer",
    source="visiting and arriving K/V, their travelling gradients, and the queries' own",
)
def ring_backward_buffer_bytes(
    *,
    ring_size: Number,
    kv_buffers: Number,
    last_blocks: Number,
    hop_bytes: Number,
    gradient_bytes: Number,
    query_gradient_bytes: Number,
) -> Number:
    """
    Bytes that the ring holds in a backward pass beside the rank's own tensors.

    A reversed ring has the last block it received beside its own from the start.

    >>> ring_backward_buffer_bytes(
    ...     ring_size=8, kv_buffers=2, last_blocks=1, hop_bytes=100, gradient_bytes=200,
    ...     query_gradient_bytes=44
    ... )
    644
    """
    blocks = minimum(kv_buffers, ring_size - 1 + last_blocks) * hop_bytes
    return where(ring_size > 1, blocks + kv_buffers * gradient_bytes + query_gradient_bytes, 0)


@formula(
    equation="B q h/u s (d_k + 2)",
    unit="B",
    scope="rank, layer",
    source="dQ is added up block by block; log-sum-exp and sum(out x dout) go with it",
)
def query_gradient_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    head_dim: Number,
    accumulator_bytes: Number,
) -> Number:
    """
    Bytes of the queries' gradient and its statistics while blocks come by.

    >>> query_gradient_bytes(
    ...     batch_size=1, query_tokens=2, num_heads=3, head_dim=4, accumulator_bytes=4
    ... )
    144
    """
    return batch_size * query_tokens * num_heads * (head_dim + 2) * accumulator_bytes


@formula(
    equation="P U",
    unit="B",
    scope="rank, layer",
    source="every rank holds the K and V of all",
)
def gathered_buffer_bytes(*, cp_size: Number, shard_bytes: Number) -> Number:
    """
    Bytes of the gathered K and V.

    >>> gathered_buffer_bytes(cp_size=8, shard_bytes=32)
    256
    """
    return cp_size * shard_bytes


@formula(
    equation="B n (h d_k + g (d_k + d_v)) e, none for u = 1",
    unit="B",
    scope="rank, layer",
    source="Q, K and V as they arrive from the all-to-all; on the way back their gradients",
)
def exchanged_qkv_bytes(
    *,
    batch_size: Number,
    tokens: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    element_bytes: Number,
    ulysses_size: Number,
) -> Number:
    """
    Bytes of a rank's Q, K and V, or of their gradients, once heads are exchanged.

    >>> exchanged_qkv_bytes(
    ...     batch_size=1, tokens=2, num_heads=4, num_kv_heads=2, head_dim=8, v_head_dim=8,
    ...     element_bytes=2, ulysses_size=2
    ... )
    256
    """
    elements = num_heads * head_dim + num_kv_heads * (head_dim + v_head_dim)
    return where(ulysses_size > 1, batch_size * tokens * elements * element_bytes, 0)


@formula(
    equation="B n h d_v e, none for u = 1",
    unit="B",
    scope="rank, layer",
    source="the output before the all-to-all; on the way back its gradient",
)
def exchanged_out_bytes(
    *,
    batch_size: Number,
    tokens: Number,
    num_heads: Number,
    v_head_dim: Number,
    element_bytes: Number,
    ulysses_size: Number,
) -> Number:
    """
    Bytes of a rank's output, or of its gradient, while heads are exchanged.

    >>> exchanged_out_bytes(
    ...     batch_size=1, tokens=2, num_heads=4, v_head_dim=8, element_bytes=2, ulysses_size=2
    ... )
    128
    """
    elements = num_heads * v_head_dim
    return where(ulysses_size > 1, batch_size * tokens * elements * element_bytes, 0)


@formula(
    equation="arrived + max(ring, leaving)",
    unit="B",
    scope="rank, layer",
    source="counted: the ring's buffers are gone when its result leaves",
)
def exchange_buffer_bytes(
    *, arrived_bytes: Number, ring_buffer_bytes: Number, leaving_bytes: Number
) -> Number:
    """
    Bytes that an exchange of heads and the ring inside it hold beside the rank's own tensors.

    >>> exchange_buffer_bytes(arrived_bytes=256, ring_buffer_bytes=100, leaving_bytes=128)
    384
    """
    return arrived_bytes + maximum(ring_buffer_bytes, leaving_bytes)
