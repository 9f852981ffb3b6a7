"""Which link a group of ranks crosses, and what one message gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import (
    Number,
    ceil_div,
    divide,
    interpolate,
    maximum,
    minimum,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(
    equation="s = (product of the inner axes) x (size of the axis)",
    unit="rank",
    scope="job",
    source="mesh order, innermost first",
)
def group_span(*, inner_ranks: Number, group_size: Number) -> Number:
    """
    Consecutive ranks over which one group of an axis is spread.

    >>> group_span(inner_ranks=8, group_size=4)
    32
    """
    return inner_ranks * group_size


@formula(
    equation="1 if s <= D and (D mod s = 0 or world <= D), else 0",
    unit="1",
    scope="job",
    source="a group is as fast as the slowest link it crosses",
)
def fits_domain(*, span: Number, domain_size: Number, world_size: Number) -> Number:
    """
    Whether every group of an axis stays inside the scale-up domain (1) or some cross it (0).

    >>> fits_domain(span=8, domain_size=8, world_size=64)
    1
    >>> fits_domain(span=6, domain_size=8, world_size=48)
    0
    """
    aligned = maximum(where(domain_size % span == 0, 1, 0), where(world_size <= domain_size, 1, 0))
    return minimum(aligned, where(span <= domain_size, 1, 0))


@formula(
    equation="inside x up + (1 - inside) x out",
    unit="*",
    scope="rank",
    source="a group is as fast as the slowest link it crosses",
)
def of_slowest_link(*, inside: Number, scale_up: Number, scale_out: Number) -> Number:
    """
    A property of the link that paces a group: the scale-up one inside the domain.

    >>> of_slowest_link(inside=1, scale_up=450e9, scale_out=50e9)
    450e9
    """
    return where(inside == 1, scale_up, scale_out)


@formula(
    equation="W = eta W_nominal",
    unit="B/s",
    scope="rank",
    source="measured share of the nominal rate",
)
def achieved_bandwidth(*, bandwidth: Number, efficiency: Number) -> Number:
    """
    One-way bytes per second that a transfer really gets.

    >>> achieved_bandwidth(bandwidth=50e9, efficiency=0.9)
    45e9
    """
    return bandwidth * efficiency


@formula(
    equation="min(W_device, (k - 1) W_pair)",
    unit="B/s",
    scope="rank",
    source="a mesh has one link a pair; a switch gives any pair all of them",
)
def mesh_bandwidth(*, bandwidth: Number, pair_bandwidth: Number, group_size: Number) -> Number:
    """
    One-way bytes per second of a rank that talks to its whole group at once.

    >>> mesh_bandwidth(bandwidth=448e9, pair_bandwidth=64e9, group_size=8)
    448e9
    >>> mesh_bandwidth(bandwidth=448e9, pair_bandwidth=64e9, group_size=2)
    64e9
    """
    return minimum(bandwidth, maximum(group_size - 1, 1) * pair_bandwidth)


@formula(
    equation="k if i >= D, else c + min(c, 1), c = floor((f + (k - 1) i) / D) - floor(f / D)",
    unit="hop",
    scope="group",
    source="counted: along the ring a stride shorter than the domain meets each border once, and "
    "the hop back crosses if any other does",
)
def crossing_hops(
    *, first_rank: Number, inner_ranks: Number, group_size: Number, domain_size: Number
) -> Number:
    """
    Hops of a ring, the one that closes it included, that leave the scale-up domain.

    >>> crossing_hops(first_rank=0, inner_ranks=1, group_size=16, domain_size=8)
    2
    >>> crossing_hops(first_rank=0, inner_ranks=8, group_size=16, domain_size=8)
    16
    """
    last_rank = first_rank + (group_size - 1) * inner_ranks
    borders = last_rank // domain_size - first_rank // domain_size
    hops = where(inner_ranks >= domain_size, group_size, borders + minimum(borders, 1))
    return where(group_size > 1, hops, 0)


@formula(
    equation="directions x min(senders, N), none where no hop crosses",
    unit="1",
    scope="group",
    source="counted: each ring leaves a node through one device",
)
def flows_per_node(
    *, crossing_hops: Number, senders: Number, devices_per_node: Number, directions: Number
) -> Number:
    """
    Transfers that leave a node at once.

    >>> flows_per_node(crossing_hops=2, senders=1, devices_per_node=8, directions=1)
    1
    """
    return where(crossing_hops > 0, directions * minimum(senders, devices_per_node), 0)


@formula(
    equation="min(flows, cards, N)",
    unit="1",
    scope="group",
    source="a card carries whole transfers; cards beyond one a device work as one",
)
def cards_busy(
    *, flows_per_node: Number, cards_per_node: Number, devices_per_node: Number
) -> Number:
    """
    Network cards of a node that work.

    >>> cards_busy(flows_per_node=1, cards_per_node=8, devices_per_node=8)
    1
    """
    return minimum(flows_per_node, minimum(cards_per_node, devices_per_node))


@formula(
    equation="directions x W N / c / ceil(flows / c), c = min(cards, N)",
    unit="B/s",
    scope="rank",
    source="a node's share of the network over its cards; the busiest card divides its rate among "
    "the transfers that it carries",
)
def flow_bandwidth(
    *,
    bandwidth: Number,
    devices_per_node: Number,
    cards_per_node: Number,
    flows_per_node: Number,
    directions: Number,
) -> Number:
    """
    One-way bytes per second of a rank that leaves its node beside others.

    One card of 25 GB/s for 8 devices, which eight rings or one share:

    >>> flow_bandwidth(
    ...     bandwidth=3.125e9, devices_per_node=8, cards_per_node=1, flows_per_node=8, directions=1
    ... )
    3125000000.0
    >>> flow_bandwidth(
    ...     bandwidth=3.125e9, devices_per_node=8, cards_per_node=1, flows_per_node=1, directions=1
    ... )
    25000000000.0
    """
    cards = minimum(cards_per_node, devices_per_node)
    shared = maximum(ceil_div(flows_per_node, cards), 1)
    return directions * bandwidth * divide(devices_per_node, cards) / shared


@formula(
    equation="min(W_device, 2 W_pair)",
    unit="B/s",
    scope="rank",
    source="half of the block each way round: two links on a torus, the same one on a switch",
)
def both_ways_bandwidth(*, bandwidth: Number, pair_bandwidth: Number) -> Number:
    """
    Bytes per second at which a block leaves a rank of a ring that runs both ways at once.

    >>> both_ways_bandwidth(bandwidth=600e9, pair_bandwidth=100e9)
    200e9
    >>> both_ways_bandwidth(bandwidth=450e9, pair_bandwidth=450e9)
    450e9
    """
    return minimum(bandwidth, 2 * pair_bandwidth)


@formula(
    equation="(k - 1)/k V / t, t = floor(d/2) ceil(d/2) V / (d W_pair), half of it if the side "
    "closes; for even d, t = d V / (4 W_pair) or d V / (8 W_pair)",
    unit="B/s",
    scope="rank",
    source="bisection: cut across its slowest side, a box of k devices has k/d lines, each of one "
    "link or, closed into a ring, of two; floor(d/2) ceil(d/2) k/d^2 V bytes cross each way, of V "
    "on each device for all",
)
def torus_exchange_bandwidth(
    *, pair_bandwidth: Number, group_size: Number, side: Number, closes: Number
) -> Number:
    """
    One-way bytes per second of a rank in an all-to-all over a box of a torus.

    >>> torus_exchange_bandwidth(pair_bandwidth=100e9, group_size=2, side=2, closes=0)
    100e9
    >>> torus_exchange_bandwidth(pair_bandwidth=100e9, group_size=64, side=4, closes=1)
    196.875e9
    """
    half = side // 2
    paths = maximum(half * (side - half), 1)
    sent = (group_size - 1) * side * (1 + closes)
    return sent * pair_bandwidth / (group_size * paths)


@formula(
    equation="bytes / messages",
    unit="B",
    scope="rank",
    source="counted; of unequal messages the mean",
)
def message_bytes(*, transfer_bytes: Number, messages: Number) -> Number:
    """
    Bytes of one message of a transfer that is sent in several.

    >>> message_bytes(transfer_bytes=268435456, messages=2)
    134217728
    """
    return divide(transfer_bytes, maximum(messages, 1))


@formula(
    equation="eta(m), straight lines over log2 m, flat beyond the ends",
    unit="1",
    scope="rank",
    source="the profile's table by bytes of one message, measured without its latency",
)
def link_efficiency(
    *,
    message_bytes: Number,
    message_sizes: Sequence[Number],
    link_shares: Sequence[Number],
) -> Number:
    """
    Share of a link's nominal rate that a message of this size reaches.

    >>> link_efficiency(
    ...     message_bytes=2**24, message_sizes=(2**20, 2**28), link_shares=(0.25, 0.75)
    ... )
    0.5
    """
    return interpolate(maximum(message_bytes, 1), message_sizes, link_shares)
