"""The ring's alternatives: all-gather of K and V, and the exchange of heads (Ulysses)."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, divide, maximum


@formula(
    equation="(P - 1) U",
    unit="B",
    scope="rank, layer",
    source="ring algorithm; Megatron-LM's all_gather, torch's flex context parallelism",
)
def all_gather_bytes(*, cp_size: Number, shard_bytes: Number) -> Number:
    """
    Bytes that one rank sends so that every rank holds all K and V of a layer.

    >>> all_gather_bytes(cp_size=8, shard_bytes=32)
    224
    """
    return (cp_size - 1) * shard_bytes


@formula(
    equation="sent x share; 3/4 zigzag, 1/2 contiguous under a causal mask, else 1",
    unit="B",
    scope="rank, layer",
    source="counted: of 2 P (P - 1) chunks of a zigzag, queries see 3/2 P (P - 1); of P (P - 1)"
    " contiguous blocks half",
)
def needed_bytes(*, sent: Number, share: Number) -> Number:
    """
    Bytes of an exchange that brings every rank only what its queries see.

    >>> needed_bytes(sent=24, share=0.75)
    18.0
    """
    return sent * share


@formula(
    equation="max(t - c_0, 0)",
    unit="s",
    scope="rank, layer",
    source="PyTorch's _AllGatherRotater: asked for at step 0, used at step 1",
)
def beside_own_block(*, gather_time: Number, first_step_time: Number) -> Number:
    """
    Time of an all-gather that the rank's own block does not hide.

    >>> beside_own_block(gather_time=5, first_step_time=3)
    2
    """
    return maximum(gather_time - first_step_time, 0)


@formula(
    equation="t/k + (k - 1) max(t - c, 0)/k",
    unit="s",
    scope="rank, layer",
    source="zhuzilin/ring_flash_attn, llama3: while some heads compute, the next are gathered",
)
def beside_heads(*, gather_time: Number, busy_time: Number, slices: Number) -> Number:
    """
    Time of an all-gather in slices of heads that the compute on earlier slices does not hide.

    >>> beside_heads(gather_time=8, busy_time=4, slices=4)
    5.0
    """
    return (gather_time + (slices - 1) * maximum(gather_time - busy_time, 0)) / slices


@formula(
    equation="(u - 1)/u B n (h + g)(d_k + d_v) e",
    unit="B",
    scope="rank, layer",
    source="Jacobs et al. 2023 (DeepSpeed-Ulysses): Q, K, V before attention, the output after",
)
def ulysses_bytes(
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
    Bytes that one rank sends to trade tokens for heads and back, in one layer and direction.

    Heads are cut as if they could be cut; a schedule says whether they can.

    >>> ulysses_bytes(
    ...     batch_size=1, tokens=16384, num_heads=32, num_kv_heads=32, head_dim=128, v_head_dim=128,
    ...     element_bytes=2, ulysses_size=64
    ... )
    528482304
    """
    tensors = batch_size * tokens * (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    return divide(tensors * element_bytes * (ulysses_size - 1), ulysses_size)


@formula(
    equation="k a + bytes / W",
    unit="s",
    scope="rank, layer",
    source="k exchanges one after another, each waits for the last",
)
def collective_time(
    *, transfer_bytes: Number, bandwidth: Number, latency: Number, latencies: Number
) -> Number:
    """
    Time of collectives that nothing overlaps.

    >>> collective_time(transfer_bytes=50e9, bandwidth=50e9, latency=0.001, latencies=4)
    1.004
    """
    return latencies * latency + transfer_bytes / bandwidth


@formula(
    equation="all-to-all over u, then the ring", unit="B", scope="rank, layer", source="counted"
)
def hybrid_bytes(*, ulysses_bytes: Number, ring_bytes: Number) -> Number:
    """
    Bytes that one rank sends in a hybrid: heads inside, blocks around.

    >>> hybrid_bytes(ulysses_bytes=1, ring_bytes=2)
    3
    """
    return ulysses_bytes + ring_bytes
