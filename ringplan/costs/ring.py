"""The ring: bytes of a hop, time of a pass, and the block that hides its transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import (
    Number,
    floor,
    interpolation,
    maximum,
    minimum,
    smallest,
    sqrt,
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


@formula(
    equation="smallest n with 2 B h (d_k + d_v)(u phi n^2 + f y n) / F(f n u) >= m (a + B n w / W)",
    unit="token",
    scope="rank, sequence",
    source="the overlap margin at the estimate's own rates, latency included",
)
def min_block_tokens(
    *,
    margin: Number,
    granule: Number,
    batch_size: Number,
    num_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    visible_share: Number,
    diagonal_share: Number,
    new_tokens: Number,
    seq_len: Number,
    ulysses_size: Number,
    wire_bytes_per_token: Number,
    peak: Number,
    sizes: Sequence[Number],
    shares: Sequence[Number],
    bandwidth: Number,
    latency: Number,
) -> Number:
    """
    Smallest legal block whose steady step hides its transfer by a margin.

    The block is n = S/P tokens of one rank. Inside a hybrid's ring a rank works on n u tokens with
    1/u of the heads. Below it the transfer is not hidden; where a table of efficiencies rises
    faster than the size of the work there may be other crossings. Beyond 2^32 granules there is
    none and twice that is returned.

    >>> min_block_tokens(
    ...     margin=1, granule=1, batch_size=1, num_heads=32, head_dim=128, v_head_dim=128,
    ...     visible_share=1, diagonal_share=0, new_tokens=1, seq_len=1, ulysses_size=1,
    ...     wire_bytes_per_token=16384, peak=1e12, sizes=(1,), shares=(1,), bandwidth=3e9, latency=0
    ... )
    334
    """
    new_share = new_tokens / seq_len
    per_pair = 2 * batch_size * num_heads * (head_dim + v_head_dim)
    per_token = batch_size * wire_bytes_per_token / bandwidth
    efficiency = interpolation(sizes, shares)

    def hides(block: Number) -> bool:
        pairs = (visible_share * ulysses_size * block + diagonal_share * new_share) * block
        rate = peak * efficiency(maximum(new_share * block * ulysses_size, 1))
        return per_pair * pairs / rate >= margin * (latency + per_token * block)

    return smallest(hides, step=granule, bits=32)


@formula(
    equation="max(n_forward, n_backward)",
    unit="token",
    scope="rank, sequence",
    source="every pass of the phase must hide",
)
def larger_block(*, forward: Number, backward: Number) -> Number:
    """
    Smallest legal block whose forward and backward steps both hide their transfers.

    >>> larger_block(forward=800, backward=900)
    900
    """
    return maximum(forward, backward)


@formula(
    equation="n = [w/W + sqrt((w/W)^2 + 4 A a / B)] / (2 A), A = 2 h (d_k + d_v) phi u / F; "
    "without latency k (g/h)(F/W), k = e/(2 phi)",
    unit="token",
    scope="rank, sequence",
    source="the overlap condition b B/F > 1 of the article, in general",
)
def min_block_tokens_ideal(
    *,
    batch_size: Number,
    num_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    visible_share: Number,
    ulysses_size: Number,
    wire_bytes_per_token: Number,
    flops_per_second: Number,
    bandwidth: Number,
    latency: Number,
) -> Number:
    """
    Block at which step and transfer take equally long, at a constant rate.

    >>> min_block_tokens_ideal(
    ...     batch_size=1, num_heads=32, head_dim=128, v_head_dim=128, visible_share=1,
    ...     ulysses_size=1, wire_bytes_per_token=16384, flops_per_second=1e12, bandwidth=3e9,
    ...     latency=0
    ... )
    333.33
    """
    per_token = wire_bytes_per_token / bandwidth
    per_square = (
        2 * num_heads * (head_dim + v_head_dim) * visible_share * ulysses_size / flops_per_second
    )
    root = sqrt(per_token**2 + 4 * per_square * latency / batch_size)
    return (per_token + root) / (2 * per_square)


@formula(
    equation="u floor(S / n_out / u) if that leaves the domain, else u floor(min(S / n_in, D) / u)",
    unit="rank",
    scope="job",
    source="blocks of at least n_min tokens on the link that a ring of this size uses",
)
def max_cp_size(
    *,
    seq_len: Number,
    min_block_inside: Number,
    min_block_outside: Number,
    inside_ranks: Number,
    ulysses_size: Number,
) -> Number:
    """
    Largest context-parallel size whose blocks still hide their transfer; at least one rank a ring.

    >>> max_cp_size(
    ...     seq_len=131072, min_block_inside=1000, min_block_outside=8000, inside_ranks=8,
    ...     ulysses_size=1
    ... )
    16
    >>> max_cp_size(
    ...     seq_len=131072, min_block_inside=1000, min_block_outside=50000, inside_ranks=8,
    ...     ulysses_size=1
    ... )
    8
    """
    outside = floor(seq_len / min_block_outside / ulysses_size) * ulysses_size
    inside = floor(minimum(seq_len / min_block_inside, inside_ranks) / ulysses_size) * ulysses_size
    return maximum(where(outside > inside_ranks, outside, inside), ulysses_size)


@formula(
    equation="w = max(g, u)(d_k + d_v) e",
    unit="B",
    scope="rank, layer, token",
    source="the hop's bytes over the tokens of a block",
)
def wire_bytes_per_token(
    *,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    element_bytes: Number,
    ulysses_size: Number,
) -> Number:
    """
    Bytes on the wire for one token of a block.

    >>> wire_bytes_per_token(
    ...     num_kv_heads=8, head_dim=128, v_head_dim=128, element_bytes=2, ulysses_size=1
    ... )
    4096
    """
    return maximum(num_kv_heads, ulysses_size) * (head_dim + v_head_dim) * element_bytes
