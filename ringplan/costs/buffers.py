"""What attention holds beside a rank's own tensors while blocks, queries or heads travel."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, divide, maximum, minimum, where


@formula(
    equation="min(k, R - 1) U + state, none for R = 1",
    unit="B",
    scope="rank, layer",
    source="visiting and arriving K/V, of two ranks one block in all, and the running output",
)
def ring_buffer_bytes(
    *, ring_size: Number, kv_buffers: Number, hop_bytes: Number, state_bytes: Number
) -> Number:
    """
    Bytes that the ring holds in a forward pass beside the rank's own tensors.

    >>> ring_buffer_bytes(ring_size=8, kv_buffers=2, hop_bytes=100, state_bytes=144)
    344
    """
    blocks = minimum(kv_buffers, ring_size - 1) * hop_bytes
    return where(ring_size > 1, blocks + state_bytes, 0)


@formula(
    equation="R U + partials, none for R = 1",
    unit="B",
    scope="rank, layer",
    source="Transformer Engine's AttnFuncWithCPAndKVP2P @d0067d0da: p2p_comm_buffers keeps the"
    " blocks of all ranks, out_per_step and softmax_lse_per_step the outputs of all steps",
)
def whole_ring_buffer_bytes(*, ring_size: Number, hop_bytes: Number, state_bytes: Number) -> Number:
    """
    Bytes of a forward pass that lets go of nothing before its end.

    >>> whole_ring_buffer_bytes(ring_size=8, hop_bytes=100, state_bytes=144)
    944
    """
    return where(ring_size > 1, ring_size * hop_bytes + state_bytes, 0)


@formula(
    equation="B q h/u (d_v (s + e) + 2 s_0)",
    unit="B",
    scope="rank, layer",
    source="running output, maximum and denominator (or two log-sum-exps); where a step's output"
    " lies beside it, that too",
)
def running_state_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    elements: Number,
    accumulator_bytes: Number,
    block_bytes: Number,
    statistic_bytes: Number,
) -> Number:
    """
    Bytes of the running output of a rank's queries and its statistics.

    >>> running_state_bytes(
    ...     batch_size=1, query_tokens=2, num_heads=3, elements=4, accumulator_bytes=4,
    ...     block_bytes=0, statistic_bytes=4
    ... )
    144
    """
    head = elements * (accumulator_bytes + block_bytes) + 2 * statistic_bytes
    return batch_size * query_tokens * num_heads * head


@formula(
    equation="1 + r + (R - 1 - r)/2 zigzag under a causal mask, else R",
    unit="1",
    scope="rank, layer",
    source="counted: all queries see the block of an earlier rank, half of them that of a later",
)
def partial_slots(*, ring_size: Number, rank: Number, later_share: Number) -> Number:
    """
    Outputs of steps that a rank keeps for one merge at the end, in outputs of all its queries.

    >>> partial_slots(ring_size=8, rank=0, later_share=0.5)
    4.5
    >>> partial_slots(ring_size=8, rank=7, later_share=0.5)
    8.0
    """
    return 1 + rank + (ring_size - 1 - rank) * later_share


@formula(
    equation="k B q h/u (d_v e + s)",
    unit="B",
    scope="rank, layer",
    source="output and log-sum-exp of each step",
)
def partials_bytes(
    *,
    slots: Number,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    v_head_dim: Number,
    element_bytes: Number,
    statistic_bytes: Number,
) -> Number:
    """
    Bytes of the outputs of all steps, kept until the last.

    >>> partials_bytes(
    ...     slots=8, batch_size=1, query_tokens=2, num_heads=3, v_head_dim=4, element_bytes=2,
    ...     statistic_bytes=4
    ... )
    576
    """
    head = v_head_dim * element_bytes + statistic_bytes
    return slots * batch_size * query_tokens * num_heads * head


@formula(
    equation="min(k, R - 1 + r) U_kv + k_d U_dkv + state, none for R = 1",
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
    gradient_buffers: Number,
    gradient_bytes: Number,
    state_bytes: Number,
) -> Number:
    """
    Bytes that the ring holds in a backward pass beside the rank's own tensors.

    A reversed ring has the last block it received beside its own from the start.

    >>> ring_backward_buffer_bytes(
    ...     ring_size=8, kv_buffers=2, last_blocks=1, hop_bytes=100, gradient_buffers=2,
    ...     gradient_bytes=200, state_bytes=44
    ... )
    644
    """
    blocks = minimum(kv_buffers, ring_size - 1 + last_blocks) * hop_bytes
    gradients = gradient_buffers * gradient_bytes
    return where(ring_size > 1, blocks + gradients + state_bytes, 0)


@formula(
    equation="P U x copies",
    unit="B",
    scope="rank, layer",
    source="every rank holds the K and V of all; where they are gathered in slices of heads, two"
    " slices",
)
def gathered_buffer_bytes(*, cp_size: Number, shard_bytes: Number, copies: Number) -> Number:
    """
    Bytes of the gathered K and V.

    >>> gathered_buffer_bytes(cp_size=8, shard_bytes=32, copies=1)
    256
    """
    return cp_size * shard_bytes * copies


@formula(equation="k U", unit="B", scope="rank, layer", source="the sums, and what arrives")
def blocks_bytes(*, blocks: Number, block_bytes: Number) -> Number:
    """
    Bytes of some blocks.

    >>> blocks_bytes(blocks=2, block_bytes=32)
    64
    """
    return blocks * block_bytes


@formula(
    equation="U / slices",
    unit="B",
    scope="rank, layer",
    source="zhuzilin/ring_flash_attn's llama3 variant gathers heads_k_stride heads at a time",
)
def slice_bytes(*, shard_bytes: Number, slices: Number) -> Number:
    """
    Bytes of the heads that are gathered at once, of one rank.

    >>> slice_bytes(shard_bytes=32, slices=8)
    4
    """
    return divide(shard_bytes, slices)


@formula(
    equation="L (P - 1) U",
    unit="B",
    scope="rank",
    source="PyTorch's flex_cp_allgather @v2.14.1: autograd keeps what it gathered; the rank's own"
    " K and V are kept anyway",
)
def kept_gathered_bytes(*, layers: Number, cp_size: Number, shard_bytes: Number) -> Number:
    """
    Bytes of the others' K and V that layers keep for the backward pass.

    >>> kept_gathered_bytes(layers=2, cp_size=8, shard_bytes=32)
    448
    """
    return layers * (cp_size - 1) * shard_bytes


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
