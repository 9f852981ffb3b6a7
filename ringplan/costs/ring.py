"""The ring: bytes of a hop, time of a pass, and the block that hides its transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import (
    Number,
    ceil_div,
    divide,
    maximum,
    minimum,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LIU = "Liu et al. 2023 (Ring Attention), section 3, for multi-head attention: 4 n d bytes"


@formula(
    equation="U = B n g (d_k e_k + d_v e_v)",
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
    key_bytes: Number,
    value_bytes: Number,
) -> Number:
    """
    Bytes of the keys and values of one rank's tokens in one layer.

    >>> kv_block_bytes(
    ...     batch_size=1, tokens=16384, num_kv_heads=8, head_dim=128, v_head_dim=128,
    ...     key_bytes=2, value_bytes=2
    ... )
    67108864
    """
    return batch_size * tokens * num_kv_heads * (head_dim * key_bytes + v_head_dim * value_bytes)


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
    equation="sent_kv + sent_dkv",
    unit="B",
    scope="rank, layer",
    source="counted: K and V again, where they were not kept, and their gradients",
)
def backward_bytes(*, kv_sent: Number, gradients_sent: Number) -> Number:
    """
    Bytes that one rank sends in the backward pass of one layer.

    >>> backward_bytes(kv_sent=7 * 32, gradients_sent=8 * 64)
    736
    """
    return kv_sent + gradients_sent


@formula(
    equation="v U_first + (R - v) U_dkv + (R / v) U_dkv, none for R = 1",
    unit="B",
    scope="rank, layer",
    source="InternLM/InternEvo zigzag_ring_flash_attn_with_sliding_window.py @23c67edf: v hops"
    " inside a window, then one to the next",
)
def double_ring_gradient_bytes(
    *,
    ring_size: Number,
    inner_ring_size: Number,
    first_gradient_bytes: Number,
    gradient_bytes: Number,
) -> Number:
    """
    Bytes of dK and dV that one rank sends round a double ring.

    >>> double_ring_gradient_bytes(
    ...     ring_size=8, inner_ring_size=4, first_gradient_bytes=2, gradient_bytes=1
    ... )
    14
    """
    later = (ring_size - inner_ring_size + divide(ring_size, inner_ring_size)) * gradient_bytes
    return where(ring_size > 1, inner_ring_size * first_gradient_bytes + later, 0)


@formula(
    equation="min(R - 1, ceil((w - 1) / n))",
    unit="hop",
    scope="rank, layer",
    source="lucidrains/ring-attention-pytorch: max_lookback_seq_len ends the ring",
)
def window_hops(*, ring_size: Number, window: Number, block_tokens: Number) -> Number:
    """
    Hops after which no query sees a visiting block of contiguous tokens any more.

    >>> window_hops(ring_size=8, window=4096, block_tokens=16384)
    1
    """
    return minimum(ring_size - 1, ceil_div(window - 1, block_tokens))


@formula(
    equation="forward + recomputed + backward",
    unit="B",
    scope="rank, layer",
    source="counted; full recompute runs the forward pass again",
)
def step_bytes(*, forward: Number, recomputed: Number, backward: Number) -> Number:
    """
    Bytes that one rank sends in one layer of a training step.

    >>> step_bytes(forward=7, recomputed=0, backward=14)
    21
    """
    return forward + recomputed + backward


@formula(equation="hops x", unit="s", scope="rank, layer", source="counted")
def hops_time(*, hops: Number, transfer_time: Number) -> Number:
    """
    Time on the wire of hops, one after another.

    >>> hops_time(hops=7, transfer_time=2)
    14
    """
    return hops * transfer_time


@formula(equation="hops + 1", unit="hop", scope="rank, layer", source="gradients go home directly")
def with_home_hop(*, hops: Number) -> Number:
    """
    Hops of gradients that turned back early, the one that brings them home included.

    >>> with_home_hop(hops=1)
    2
    """
    return hops + 1


@formula(
    equation="x_kv + x_dkv",
    unit="s",
    scope="rank, layer, step",
    source="one communicator is one queue (NCCL)",
)
def one_after_another(*, kv_time: Number, gradient_time: Number) -> Number:
    """
    Time of two transfers that wait in line.

    >>> one_after_another(kv_time=3, gradient_time=5)
    8
    """
    return kv_time + gradient_time


@formula(equation="hops_kv x_kv + hops_dkv x_dkv", unit="s", scope="rank, layer", source="counted")
def time_of_hops(
    *, kv_hops: Number, kv_time: Number, gradient_hops: Number, gradient_time: Number
) -> Number:
    """
    Time on the wire of a backward pass.

    >>> time_of_hops(kv_hops=7, kv_time=1, gradient_hops=8, gradient_time=2)
    23
    """
    return kv_hops * kv_time + gradient_hops * gradient_time


@formula(
    equation="max(hops_kv, hops_dkv)", unit="1", scope="rank, layer", source="they start together"
)
def more_hops(*, kv_hops: Number, gradient_hops: Number) -> Number:
    """
    Transfers, one after another, of two kinds that travel side by side.

    >>> more_hops(kv_hops=7, gradient_hops=8)
    8
    """
    return maximum(kv_hops, gradient_hops)


@formula(
    equation="(R - R/v) x_in + (R/v - 1) x_out", unit="s", scope="rank, layer", source="counted"
)
def double_ring_time(
    *,
    inner_transfer: Number,
    outer_transfer: Number,
    inner_ring_size: Number,
    ring_size: Number,
) -> Number:
    """
    Time on the wire of a double ring.

    >>> double_ring_time(inner_transfer=1, outer_transfer=10, inner_ring_size=4, ring_size=8)
    16
    """
    windows = divide(ring_size, inner_ring_size)
    return (ring_size - windows) * inner_transfer + (windows - 1) * outer_transfer


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
    equation="max(x - c_0, 0) + (hops - 1) max(x - c, 0), none without hops",
    unit="s",
    scope="rank, layer",
    source="block s + 1 travels while step s computes: the pass is the sum of max(c_s, x) over the "
    "steps that send, and the last step; this is what exceeds the compute",
)
def overlapped_exposure(
    *, first_step_time: Number, step_time: Number, transfer_time: Number, hops: Number
) -> Number:
    """
    Communication that the steps do not hide when transfers overlap them.

    >>> overlapped_exposure(first_step_time=5, step_time=4, transfer_time=7, hops=3)
    8
    """
    first = maximum(transfer_time - first_step_time, 0)
    later = maximum(hops - 1, 0) * maximum(transfer_time - step_time, 0)
    return where(hops > 0, first + later, 0)


@formula(
    equation="max(x_0 - c_0, 0) + (R - 2) max(x - c, 0) + max(x_last - c_last, 0) + home,"
    " none for R = 1",
    unit="s",
    scope="rank, layer",
    source="K and V of the next step and the gradients of the last travel while a step computes;"
    " hops of gradients after the last step are hidden by nothing",
)
def backward_exposure(
    *,
    first_step_time: Number,
    step_time: Number,
    last_step_time: Number,
    first_transfer: Number,
    transfer_time: Number,
    last_transfer: Number,
    home_time: Number,
    ring_size: Number,
) -> Number:
    """
    Communication of a backward pass that the steps do not hide.

    >>> backward_exposure(
    ...     first_step_time=5, step_time=4, last_step_time=4, first_transfer=6, transfer_time=7,
    ...     last_transfer=1, home_time=2, ring_size=4
    ... )
    9
    """
    first = maximum(first_transfer - first_step_time, 0)
    middle = maximum(ring_size - 2, 0) * maximum(transfer_time - step_time, 0)
    last = maximum(last_transfer - last_step_time, 0)
    return where(ring_size > 1, first + middle + last + home_time, 0)


@formula(
    equation="hops x + home",
    unit="s",
    scope="rank, layer",
    source="a step waits for its block (lucidrains' ring)",
)
def synchronous_exposure(*, transfer_time: Number, hops: Number, home_time: Number) -> Number:
    """
    Communication that nothing hides when transfers and steps alternate.

    >>> synchronous_exposure(transfer_time=3, hops=3, home_time=1)
    10
    """
    return hops * transfer_time + home_time


@formula(
    equation="with y = max(c, x_in): R/v - 1 times max(x_out - (v - 1) y - c, 0), and"
    " max(x_in - c_0, 0) + (R - R/v - 1) max(x_in - c, 0)",
    unit="s",
    scope="rank, layer",
    source="Gu et al. 2024 (LoongTrain): the block for the next window travels during the v steps"
    " of this one",
)
def double_ring_exposure(
    *,
    first_step_time: Number,
    step_time: Number,
    inner_transfer: Number,
    outer_transfer: Number,
    inner_ring_size: Number,
    ring_size: Number,
) -> Number:
    """
    Communication of a double ring that the steps do not hide.

    >>> double_ring_exposure(
    ...     first_step_time=5, step_time=4, inner_transfer=3, outer_transfer=20, inner_ring_size=4,
    ...     ring_size=8
    ... )
    4
    """
    windows = divide(ring_size, inner_ring_size)
    slower = maximum(step_time, inner_transfer)
    inside = (inner_ring_size - 1) * slower + step_time
    outside = maximum(windows - 1, 0) * maximum(outer_transfer - inside, 0)
    inner_hops = ring_size - windows
    first = where(inner_hops > 0, maximum(inner_transfer - first_step_time, 0), 0)
    later = maximum(inner_hops - 1, 0) * maximum(inner_transfer - step_time, 0)
    return outside + first + later


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


@formula(
    equation="forward + recomputed + backward",
    unit="s",
    scope="rank, layer",
    source="definition; full recompute runs the forward pass again",
)
def layer_time(*, forward: Number, recomputed: Number, backward: Number) -> Number:
    """
    Time of a layer's attention in a training step.

    >>> layer_time(forward=2, recomputed=0, backward=5)
    7
    """
    return forward + recomputed + backward


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
