"""The smallest block of tokens that hides its transfer, and the largest ring of such blocks."""

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


@formula(
    equation="w = max(g, u)(d_k e_k + d_v e_v)",
    unit="B",
    scope="rank, layer, token",
    source="the hop's bytes over the tokens of a block",
)
def wire_bytes_per_token(
    *,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    key_bytes: Number,
    value_bytes: Number,
    ulysses_size: Number,
) -> Number:
    """
    Bytes on the wire for one token of a block.

    >>> wire_bytes_per_token(
    ...     num_kv_heads=8, head_dim=128, v_head_dim=128, key_bytes=2, value_bytes=2,
    ...     ulysses_size=1
    ... )
    4096
    """
    token = head_dim * key_bytes + v_head_dim * value_bytes
    return maximum(num_kv_heads, ulysses_size) * token


@formula(
    equation="smallest n with 2 B h (d_k + d_v)(u phi n^2 + f y n) / F + f n merge"
    " >= m (k a + B n w / W)",
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
    fill_sizes: Sequence[Number],
    fill_shares: Sequence[Number],
    depth_sizes: Sequence[Number],
    depth_shares: Sequence[Number],
    tile: Number,
    head_size: Number,
    head_sizes: Sequence[Number],
    head_shares: Sequence[Number],
    bandwidth: Number,
    message_sizes: Sequence[Number],
    link_shares: Sequence[Number],
    messages: Number,
    latency: Number,
    latencies: Number,
    merge_time: Number,
) -> Number:
    """
    Smallest legal block whose steady step hides its transfer by a margin.

    The block is n = S/P tokens of one rank. Inside a hybrid's ring a rank works on n u tokens with
    1/u of the heads. The kernel's rate F is that of the block's call, the link's rate W that of
    its message; a merge takes seconds a new token. Below it the transfer is not
    hidden; where a table of efficiencies rises faster than the size of the work, or of the
    message, there may be other crossings. Beyond 2^32 granules there is
    none and twice that is returned.

    >>> min_block_tokens(
    ...     margin=1, granule=1, batch_size=1, num_heads=32, head_dim=128, v_head_dim=128,
    ...     visible_share=1, diagonal_share=0, new_tokens=1, seq_len=1, ulysses_size=1,
    ...     wire_bytes_per_token=16384, peak=1e12, sizes=(1,), shares=(1,), fill_sizes=(1,),
    ...     fill_shares=(1,), depth_sizes=(1,), depth_shares=(1,), tile=0,
    ...     head_size=128, head_sizes=(1,), head_shares=(1,), bandwidth=3e9,
    ...     message_sizes=(1,), link_shares=(1,), messages=1, latency=0, latencies=1, merge_time=0
    ... )
    334
    """
    new_share = new_tokens / seq_len
    per_pair = 2 * batch_size * num_heads * (head_dim + v_head_dim)
    per_token = batch_size * wire_bytes_per_token
    share = interpolation(message_sizes, link_shares)
    efficiency = interpolation(sizes, shares)
    fill = interpolation(fill_sizes, fill_shares)
    depth = interpolation(depth_sizes, depth_shares)
    most = peak * interpolation(head_sizes, head_shares)(head_size)
    hidden_keys = minimum(2 * diagonal_share, 1) * tile / 2

    def hides(block: Number) -> bool:
        pairs = (visible_share * ulysses_size * block + diagonal_share * new_share) * block
        queries = new_share * block
        seen = pairs / queries
        rows = fill(maximum(batch_size * num_heads * queries, 1))
        deep = depth(maximum(seen + hidden_keys, 1)) * seen / maximum(seen + hidden_keys, 1e-9)
        rate = most * efficiency(maximum(queries * ulysses_size, 1)) * rows * deep
        sent = per_token * block
        wire = share(sent / messages) * bandwidth
        step = per_pair * pairs / rate + merge_time * queries
        return step >= margin * (latencies * latency + sent / wire)

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
