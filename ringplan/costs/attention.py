"""Work of attention, and how fast a device does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, interpolate, maximum

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(
    equation="2 B h (d_k + d_v) pairs",
    unit="FLOP",
    scope="rank, layer, step",
    source="two matrix products, a multiply-add is 2 FLOP",
)
def attention_flops(
    *, batch_size: Number, pairs: Number, num_heads: Number, head_dim: Number, v_head_dim: Number
) -> Number:
    """
    FLOPs of Q K^T and P V over the visible pairs.

    >>> attention_flops(batch_size=1, pairs=16384**2, num_heads=32, head_dim=128, v_head_dim=128)
    4398046511104
    """
    return 2 * batch_size * num_heads * (head_dim + v_head_dim) * pairs


@formula(
    equation="2 B h (3 d_k + 2 d_v) pairs",
    unit="FLOP",
    scope="rank, layer, step",
    source="five matrix products: scores again, dV, dP, dQ, dK (FlashAttention, Dao et al. 2022)",
)
def attention_backward_flops(
    *, batch_size: Number, pairs: Number, num_heads: Number, head_dim: Number, v_head_dim: Number
) -> Number:
    """
    FLOPs of the backward pass with recomputed scores; 2.5 times forward when d_k = d_v.

    >>> attention_backward_flops(batch_size=1, pairs=1, num_heads=1, head_dim=64, v_head_dim=64)
    640
    """
    return 2 * batch_size * num_heads * (3 * head_dim + 2 * v_head_dim) * pairs


@formula(
    equation="eta(q), straight lines over log2 q",
    unit="1",
    scope="rank, layer, step",
    source="the profile's table of measured kernels",
)
def tile_efficiency(
    *, query_tokens: Number, sizes: Sequence[Number], shares: Sequence[Number]
) -> Number:
    """
    Share of the peak that a kernel reaches on this many query tokens.

    >>> tile_efficiency(query_tokens=2048, sizes=(1024, 4096), shares=(0.25, 0.75))
    0.5
    """
    return interpolate(query_tokens, sizes, shares)


@formula(
    equation="d = pairs / q + t/2 on a diagonal",
    unit="1",
    scope="rank, layer, step",
    source="a kernel computes the tiles that the diagonal cuts whole: half a tile more a query",
)
def keys_met(
    *, pairs: Number, query_tokens: Number, tile: Number, diagonal_share: Number
) -> Number:
    """
    Keys that a query meets on average, those in the hidden half of a tile included.

    >>> keys_met(pairs=1024 * 1025 // 2, query_tokens=1024, tile=128, diagonal_share=1)
    576.5
    """
    return pairs / query_tokens + diagonal_share * tile / 2


@formula(
    equation="B h q",
    unit="1",
    scope="rank, layer, step",
    source="a kernel has a block of threads for so many rows",
)
def query_rows(*, batch_size: Number, num_heads: Number, query_tokens: Number) -> Number:
    """
    Rows of queries that one call works on.

    >>> query_rows(batch_size=1, num_heads=32, query_tokens=8192)
    262144
    """
    return batch_size * num_heads * query_tokens


@formula(
    equation="eta fill(B h q) depth(d) head(d_k) (pairs / q) / d",
    unit="1",
    scope="rank, layer, step",
    source="the family's measured kernels: few rows leave processors idle, few keys leave little to"
    " do between load and store; hidden halves of tiles are no useful work",
)
def kernel_efficiency(
    *,
    plateau: Number,
    query_rows: Number,
    keys_met: Number,
    pairs: Number,
    query_tokens: Number,
    fill_sizes: Sequence[Number],
    fill_shares: Sequence[Number],
    depth_sizes: Sequence[Number],
    depth_shares: Sequence[Number],
    head_dim: Number,
    head_sizes: Sequence[Number],
    head_shares: Sequence[Number],
) -> Number:
    """
    Share of the peak that a kernel reaches on one call.

    >>> kernel_efficiency(
    ...     plateau=0.5, query_rows=2**20, keys_met=1000, pairs=1000, query_tokens=1,
    ...     fill_sizes=(1024, 2**18), fill_shares=(0.5, 1), depth_sizes=(1,), depth_shares=(1,),
    ...     head_dim=128, head_sizes=(64, 128), head_shares=(0.75, 1)
    ... )
    0.5
    """
    fill = interpolate(query_rows, fill_sizes, fill_shares)
    depth = interpolate(maximum(keys_met, 1), depth_sizes, depth_shares)
    head = interpolate(head_dim, head_sizes, head_shares)
    return plateau * fill * depth * head * (pairs / query_tokens) / maximum(keys_met, 1)


@formula(equation="F = eta F_peak", unit="FLOP/s", scope="rank", source="dense peak of the profile")
def achieved_rate(*, peak: Number, efficiency: Number) -> Number:
    """
    FLOPs per second that a kernel really reaches.

    >>> achieved_rate(peak=989e12, efficiency=0.65)
    642.85e12
    """
    return peak * efficiency


@formula(equation="c = FLOP / F", unit="s", scope="rank, layer, step", source="definition")
def compute_time(*, flops: Number, flops_per_second: Number) -> Number:
    """
    Time of some work at an achieved rate.

    >>> compute_time(flops=4398046511104, flops_per_second=400e12)
    0.01099511627776
    """
    return flops / flops_per_second


@formula(
    equation="m B q h d_v",
    unit="B",
    scope="rank, layer, step",
    source="counted: the running output is read and written, a step's output is read",
)
def merge_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    elements: Number,
    bytes_per_element: Number,
) -> Number:
    """
    Memory traffic of merging one step's output, or its gradient of the queries, into the sums.

    >>> merge_bytes(
    ...     batch_size=1, query_tokens=8192, num_heads=32, elements=128, bytes_per_element=10
    ... )
    335544320
    """
    return batch_size * query_tokens * num_heads * elements * bytes_per_element


@formula(
    equation="c + merge", unit="s", scope="rank, layer, step", source="one kernel after the other"
)
def step_time(*, compute_time: Number, merge_time: Number) -> Number:
    """
    Time of a step: its attention, and the merge of what it found.

    >>> step_time(compute_time=3, merge_time=1)
    4
    """
    return compute_time + merge_time


@formula(
    equation="F share",
    unit="FLOP/s",
    scope="rank",
    source="kernels that move data hold some of the device's processors (MagiAttention, sm_margin)",
)
def rate_beside_communication(*, rate: Number, share: Number) -> Number:
    """
    FLOPs per second of a kernel while others move data.

    >>> rate_beside_communication(rate=600e12, share=0.95)
    570e12
    """
    return rate * share
