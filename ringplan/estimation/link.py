"""The link that paces a group of ranks: what one message gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ringplan.costs import links
from ringplan.errors import SpecError
from ringplan.estimation.leaves import plain
from ringplan.estimation.placement import box, place

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.leaves import Table
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.hardware import HardwareProfile

#: To one neighbour; half to either neighbour; to the whole group, the same to all or to each its
#: own.
Pattern = Literal["hop", "both_ways", "collective", "all_to_all"]


class Group(NamedTuple):
    """Ranks that talk: axes in words, ranks from one to the next, how many, and how they talk."""

    axes: str
    inner: int
    size: int
    pattern: Pattern


class Link(NamedTuple):
    """
    The link that paces a group of ranks.

    Attributes
    ----------
    name
        scale_up or scale_out.
    nominal, latency
        What a rank has of it, one way, and the start-up of a message.
    table
        Share of the nominal rate, by the bytes of one message.
    ranks, crossing_hops, flows_per_node, cards_busy
        Ranks of the group; hops around it that leave the domain; transfers that leave a node at
        once, and the network cards that carry them.
    """

    name: str
    nominal: Number
    latency: Number
    table: Table
    ranks: Number
    crossing_hops: Number
    flows_per_node: Number
    cards_busy: Number

    @property
    def placement(self) -> dict[str, Number]:
        """Where the group lies, as a row of `Communication` tells it."""
        return {
            "ranks": self.ranks,
            "crossing_hops": self.crossing_hops,
            "flows_per_node": self.flows_per_node,
            "cards_busy": self.cards_busy,
        }

    def bandwidth(self, transfer_bytes: Number, *messages: Number) -> Number:
        """
        Return the rate that a transfer reaches.

        Parameters
        ----------
        transfer_bytes
            Bytes of the transfer.
        messages
            Numbers that multiply to the messages it is sent in; none for one.
        """
        for count in messages:
            transfer_bytes = links.message_bytes(transfer_bytes=transfer_bytes, messages=count)
        share = links.link_efficiency(
            message_bytes=transfer_bytes,
            message_sizes=self.table.sizes,
            link_shares=self.table.shares,
        )
        return links.achieved_bandwidth(bandwidth=self.nominal, efficiency=share)


class Crossing(NamedTuple):
    """Whether a group stays inside the domain, and what leaves it otherwise."""

    inside: Number
    hops: Number
    flows: Number
    cards: Number
    busy: Number
    directions: Number


def link_of(x: Numbers, profile: HardwareProfile, group: Group, why: str) -> Link:
    """
    Find the link of the groups of a mesh.

    Parameters
    ----------
    x
        Numbers of the layout.
    profile
        The device.
    group
        One of the groups.
    why
        What decides where they lie, in words.
    """
    where = place(group.inner, group.size, profile.scale_up.domain_size, plain(x.world_size))
    inner = x.leaf.derived("inner_ranks", group.inner, why)
    ranks = x.leaf.derived("group_size", group.size, f"ranks on {group.axes}")
    domain = x.leaf("hardware.scale_up.domain_size", profile.scale_up.domain_size)
    inside = links.fits_domain(
        span=links.group_span(inner_ranks=inner, group_size=ranks),
        domain_size=domain,
        world_size=x.world_size,
    )
    hops = links.crossing_hops(
        first_rank=x.leaf.derived("first_rank", where.first, "of the ring that crosses most"),
        inner_ranks=inner,
        group_size=ranks,
        domain_size=domain,
    )
    return _link(x, profile, group, _crossing(x, profile, group, inside, hops))


def hop_link(x: Numbers, profile: HardwareProfile, group: Group, *, inside: bool) -> Link:
    """Return the link of groups that stay inside the domain, or of those that leave it."""
    flag = x.leaf.derived("inside", int(inside), "1 for a ring inside the domain")
    hops = x.leaf.derived("crossing_hops", 0 if inside else 1, "some hop, or none")
    return _link(x, profile, group, _crossing(x, profile, group, flag, hops))


def _crossing(
    x: Numbers, profile: HardwareProfile, group: Group, inside: Number, hops: Number
) -> Crossing:
    out = profile.scale_out
    node = x.leaf("hardware.scale_out.devices_per_node", out.devices_per_node)
    cards = node
    if out.cards_per_node is not None:
        cards = x.leaf("hardware.scale_out.cards_per_node", out.cards_per_node)
    senders = node
    if group.pattern in ("hop", "both_ways"):
        where = place(group.inner, group.size, profile.scale_up.domain_size, plain(x.world_size))
        senders = x.leaf.derived("senders", where.senders, "rings that lie side by side")
    both = group.pattern == "both_ways"
    directions = x.leaf.derived("directions", 1 + both, "both ways round" if both else "one way")
    flows = links.flows_per_node(
        crossing_hops=hops, senders=senders, devices_per_node=node, directions=directions
    )
    busy = links.cards_busy(flows_per_node=flows, cards_per_node=cards, devices_per_node=node)
    return Crossing(inside, hops, flows, cards, busy, directions)


def _link(x: Numbers, profile: HardwareProfile, group: Group, over: Crossing) -> Link:
    up, out, shares = profile.scale_up, profile.scale_out, profile.efficiency
    stays = bool(plain(over.inside))
    name = "scale_up" if stays else "scale_out"
    rates = (
        _up_rate(x, profile, group, stays=stays),
        _out_rate(x, profile, over, stays=stays),
    )
    latencies = (
        None if up.latency is None else x.leaf("hardware.scale_up.latency", up.latency),
        None if out.latency is None else x.leaf("hardware.scale_out.latency", out.latency),
    )
    fields = ("pair_bandwidth_per_direction" if stays else "bandwidth_per_direction", "latency")
    for field, values in zip(fields, (rates, latencies), strict=True):
        if values[not stays] is None:
            path = f"hardware.{name}.{field}"
            raise SpecError(
                f"the {group.axes} axis needs {path}, which {profile.name} lacks",
                hint=f'--set {path}="{_EXAMPLE[field]}", or what yours has',
            )
    return Link(
        name=name,
        nominal=_slowest(over.inside, rates),
        latency=_slowest(over.inside, latencies),
        table=x.leaf.table(f"hardware.efficiency.{name}", getattr(shares, name)),
        ranks=x.leaf.derived("group_size", group.size, f"ranks on {group.axes}"),
        crossing_hops=over.hops,
        flows_per_node=over.flows,
        cards_busy=over.busy,
    )


def _slowest(inside: Number, values: tuple[Number | None, Number | None]) -> Number:
    """Pick by where the group lies; one that is not known is not picked."""
    up, out = values
    assert up is not None or out is not None  # noqa: S101 - refused before
    return links.of_slowest_link(
        inside=inside,
        scale_up=out if up is None else up,  # type: ignore[arg-type]
        scale_out=up if out is None else out,  # type: ignore[arg-type]
    )


def _up_rate(x: Numbers, profile: HardwareProfile, group: Group, *, stays: bool) -> Number | None:
    """Rate of one rank inside the domain."""
    up, pattern = profile.scale_up, group.pattern
    if up.pair_bandwidth_per_direction is None:
        return None
    pair = x.leaf("hardware.scale_up.pair_bandwidth_per_direction", up.pair_bandwidth_per_direction)
    torus = up.topology.startswith("torus")
    if not stays or pattern == "hop" or (torus and pattern == "collective"):
        return pair  # a gather on a torus is a ring over one link of it
    ranks = x.leaf.derived("group_size", group.size, f"ranks on {group.axes}")
    if torus and pattern == "all_to_all":
        return _exchange_rate(x, profile, group.size, pair, ranks)
    if up.bandwidth_per_direction is None:
        return pair
    whole = x.leaf("hardware.scale_up.bandwidth_per_direction", up.bandwidth_per_direction)
    if pattern == "both_ways":
        return links.both_ways_bandwidth(bandwidth=whole, pair_bandwidth=pair)
    return links.mesh_bandwidth(bandwidth=whole, pair_bandwidth=pair, group_size=ranks)


def _exchange_rate(
    x: Numbers, profile: HardwareProfile, size: int, pair: Number, ranks: Number
) -> Number:
    """Rate of an all-to-all on a torus whose groups are boxes; a device has two links an axis."""
    up = profile.scale_up
    dimensions = 2 if up.topology == "torus_2d" else 3
    if up.bandwidth_per_direction is not None:
        links_each = round(up.bandwidth_per_direction / plain(pair))
        dimensions = max(min(dimensions, links_each // 2), 1)
    found = box(size, dimensions, up.wrap_multiple)
    shape = " x ".join(map(str, found.sides))
    multiple = up.wrap_multiple or "null"
    return links.torus_exchange_bandwidth(
        pair_bandwidth=pair,
        group_size=ranks,
        side=x.leaf.derived("side", found.slowest, f"the slowest of a box of {shape}"),
        closes=x.leaf.derived(
            "closes", int(found.closes), f"hardware.scale_up.wrap_multiple is {multiple}"
        ),
    )


def _out_rate(
    x: Numbers, profile: HardwareProfile, over: Crossing, *, stays: bool
) -> Number | None:
    """Rate of one rank between domains."""
    out = profile.scale_out
    if out.bandwidth_per_direction is None:
        return None
    share = x.leaf("hardware.scale_out.bandwidth_per_direction", out.bandwidth_per_direction)
    if stays:
        return share
    return links.flow_bandwidth(
        bandwidth=share,
        devices_per_node=x.leaf("hardware.scale_out.devices_per_node", out.devices_per_node),
        cards_per_node=over.cards,
        flows_per_node=over.flows,
        directions=over.directions,
    )


_EXAMPLE = {
    "bandwidth_per_direction": "25 Gb/s",
    "pair_bandwidth_per_direction": "32 GB/s",
    "latency": "20 us",
}
