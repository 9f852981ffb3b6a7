"""The ring: bytes of a hop, time of a pass, and the block that hides its transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import (
    Number,
    maximum,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LIU = "Liu et al. 2023 (Ring Attention), section 3, for multi-head attention: 4 n d bytes"


@formula(
    equation="U = B n g (d_k + d_v) e",
    unit="B",
    scope="rank, layer, step",
    source=LIU,
)
def kv_block_bytes(
    *,
    batch_size: Number,
    tokens: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the keys and values of one rank's tokens in one layer.

    >>> kv_block_bytes(
    ...     batch_size=1, tokens=16384, num_kv_heads=8, head_dim=128, v_head_dim=128,
    ...     element_bytes=2
    ... )
    67108864
    """
    return batch_size * tokens * num_kv_heads * (head_dim + v_head_dim) * element_bytes


@formula(
    equation="hops = R + x, none for R = 1",
    unit="hop",
    scope="rank, layer",
    source="the schedule's field",
)
def ring_hops(*, ring_size: Number, extra_hops: Number) -> Number:
    """
    Hops of a block in one pass; -1 extra where the last holder does not send it on.

    >>> ring_hops(ring_size=8, extra_hops=-1), ring_hops(ring_size=1, extra_hops=1)
    (7, 0)
    """
    return where(ring_size > 1, ring_size + extra_hops, 0)


@formula(equation="hops x U", unit="B", scope="rank, layer", source="counted")
def bytes_of_hops(*, hops: Number, hop_bytes: Number) -> Number:
    """
    Bytes that one rank sends in one pass of one layer.

    >>> bytes_of_hops(hops=63, hop_bytes=268435456)
    16911433728
    """
    return hops * hop_bytes


@formula(
    equation="hops_kv x U_kv + hops_dkv x U_dkv",
    unit="B",
    scope="rank, layer",
    source="counted: K and V travel again, their gradients travel with them",
)
def backward_bytes(
    *, kv_hops: Number, kv_bytes: Number, gradient_hops: Number, gradient_bytes: Number
) -> Number:
    """
    Bytes that one rank sends in the backward pass of one layer.

    >>> backward_bytes(kv_hops=7, kv_bytes=32, gradient_hops=8, gradient_bytes=64)
    736
    """
    return kv_hops * kv_bytes + gradient_hops * gradient_bytes


@formula(equation="U_kv + U_dkv", unit="B", scope="rank, layer, step", source="counted")
def backward_hop_bytes(*, kv_bytes: Number, gradient_bytes: Number) -> Number:
    """
    Bytes of one backward hop: K, V and the gradients that travel with them.

    >>> backward_hop_bytes(kv_bytes=32, gradient_bytes=64)
    96
    """
    return kv_bytes + gradient_bytes


@formula(equation="sum over layers", unit="B", scope="rank, pass", source="definition")
def bytes_of_layers(*, layers: Sequence[Number], layer_bytes: Sequence[Number]) -> Number:
    """
    Bytes of all attention layers on a rank, kind by kind.

    >>> bytes_of_layers(layers=(2, 3), layer_bytes=(100, 10))
    230
    """
    return sum(count * each for count, each in zip(layers, layer_bytes, strict=True))


@formula(equation="sum over layers", unit="s", scope="rank, pass", source="definition")
def time_of_layers(*, layers: Sequence[Number], layer_time: Sequence[Number]) -> Number:
    """
    Time of all attention layers on a rank, kind by kind.

    >>> time_of_layers(layers=(2, 3), layer_time=(100, 10))
    230
    """
    return sum(count * each for count, each in zip(layers, layer_time, strict=True))


@formula(equation="sum over layers", unit="1", scope="rank, pass", source="definition")
def latencies_of_layers(*, layers: Sequence[Number], latencies: Sequence[Number]) -> Number:
    """
    Transfers, one after another, of all attention layers on a rank, kind by kind.

    >>> latencies_of_layers(layers=(2, 3), latencies=(7, 1))
    17
    """
    return sum(count * each for count, each in zip(layers, latencies, strict=True))


@formula(
    equation="x = a + bytes / W",
    unit="s",
    scope="rank, layer, step",
    source="latency plus bandwidth",
)
def transfer_time(*, transfer_bytes: Number, bandwidth: Number, latency: Number) -> Number:
    """
    Time of one transfer.

    >>> transfer_time(transfer_bytes=268435456, bandwidth=50e9, latency=0)
    0.00536870912
    """
    return latency + transfer_bytes / bandwidth


@formula(
    equation="max(x - c_0, 0) + (R - 2) max(x - c, 0), none for R = 1",
    unit="s",
    scope="rank, layer",
    source="block s + 1 travels while step s computes: the pass is the sum of max(c_s, x) over the "
    "steps that send, and the last step; this is what exceeds the compute",
)
def overlapped_exposure(
    *, first_step_time: Number, step_time: Number, transfer_time: Number, ring_size: Number
) -> Number:
    """
    Communication that the steps do not hide when transfers overlap them.

    >>> overlapped_exposure(first_step_time=5, step_time=4, transfer_time=7, ring_size=4)
    8
    """
    first = maximum(transfer_time - first_step_time, 0)
    later = maximum(ring_size - 2, 0) * maximum(transfer_time - step_time, 0)
    return where(ring_size > 1, first + later, 0)


@formula(
    equation="(R - 1) x",
    unit="s",
    scope="rank, layer",
    source="a step waits for its block (lucidrains' ring)",
)
def synchronous_exposure(*, transfer_time: Number, ring_size: Number) -> Number:
    """
    Communication that nothing hides when transfers and steps alternate.

    >>> synchronous_exposure(transfer_time=3, ring_size=4)
    9
    """
    return (ring_size - 1) * transfer_time


@formula(
    equation="c_0 + (R - 1) c", unit="s", scope="rank, layer", source="the steps, back to back"
)
def busy_time(*, first_step_time: Number, step_time: Number, ring_size: Number) -> Number:
    """
    Compute time of the busiest rank in one pass.

    >>> busy_time(first_step_time=5, step_time=4, ring_size=4)
    17
    """
    return first_step_time + (ring_size - 1) * step_time


@formula(equation="compute + exposed", unit="s", scope="rank, layer", source="definition")
def pass_time(*, busy_time: Number, exposed_time: Number) -> Number:
    """
    Time of a pass: the compute of the busiest rank and the communication it waits for.

    >>> pass_time(busy_time=17, exposed_time=8)
    25
    """
    return busy_time + exposed_time


@formula(equation="ring + exchange", unit="s", scope="rank, layer", source="definition")
def total_exposure(*, ring_exposure: Number, collective_time: Number) -> Number:
    """
    Communication of a layer that nothing hides: the ring's, and the exchange of heads.

    >>> total_exposure(ring_exposure=8, collective_time=1)
    9
    """
    return ring_exposure + collective_time


@formula(
    equation="margin = c / x",
    unit="1",
    scope="rank, layer, step",
    source="compute over transfer of a steady step; at least 1 hides it",
)
def overlap_margin(*, step_time: Number, transfer_time: Number) -> Number:
    """
    How many times the transfer fits into the step.

    >>> overlap_margin(step_time=0.01099511627776, transfer_time=0.00536870912)
    2.048
    """
    return step_time / transfer_time
