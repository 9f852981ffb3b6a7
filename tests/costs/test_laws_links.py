"""Which hops cross, what a network card carries, what an exchange gets of a mesh or a torus."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import links
from ringplan.estimation.placement import box, crossings, place

if TYPE_CHECKING:
    from collections.abc import Iterator

counts = st.integers(1, 64)
rates = st.floats(1e9, 1e12)


@given(
    inner=st.integers(1, 8),
    size=st.integers(2, 8),
    domain=st.integers(1, 80),
    groups=st.integers(1, 6),
)
def test_group_fits_the_domain_if_no_two_of_its_ranks_are_in_different_ones(
    inner: int, size: int, domain: int, groups: int
) -> None:
    """Ranks laid out innermost axis first, domains filled in order; every group looked at."""
    span = links.group_span(inner_ranks=inner, group_size=size)
    world = groups * inner * size
    homes = [
        {(outer * inner * size + member * inner + lane) // domain for member in range(size)}
        for outer in range(groups)
        for lane in range(inner)
    ]

    assert links.fits_domain(span=span, domain_size=domain, world_size=world) == all(
        len(home) == 1 for home in homes
    )


@given(up=rates, out=rates)
def test_group_is_paced_by_the_link_it_crosses(up: float, out: float) -> None:
    assert links.of_slowest_link(inside=1, scale_up=up, scale_out=out) == up
    assert links.of_slowest_link(inside=0, scale_up=up, scale_out=out) == out


@given(bandwidth=rates, share=st.floats(0.01, 1))
def test_achieved_bandwidth_is_at_most_the_nominal(bandwidth: float, share: float) -> None:
    achieved = links.achieved_bandwidth(bandwidth=bandwidth, efficiency=share)

    assert 0 < achieved <= bandwidth
    assert links.achieved_bandwidth(bandwidth=bandwidth, efficiency=1) == bandwidth


@given(pair=rates, lanes=st.integers(1, 16), size=st.integers(2, 64))
def test_mesh_uses_one_link_for_each_other_rank_of_the_group(
    pair: float, lanes: int, size: int
) -> None:
    """A device of `lanes` links that talks to `size - 1` others, each over its own."""
    used = min(lanes, size - 1)
    bandwidth = links.mesh_bandwidth(bandwidth=lanes * pair, pair_bandwidth=pair, group_size=size)

    assert bandwidth == used * pair


@given(bandwidth=rates, size=counts)
def test_switch_gives_any_pair_everything(bandwidth: float, size: int) -> None:
    assert (
        links.mesh_bandwidth(bandwidth=bandwidth, pair_bandwidth=bandwidth, group_size=size)
        == bandwidth
    )


# Hops that cross, and what leaves a node


meshes = {
    "inner": st.integers(1, 9),
    "size": st.integers(2, 9),
    "domain": st.integers(1, 80),
    "groups": st.integers(1, 7),
}


def rings(inner: int, size: int, groups: int) -> Iterator[list[int]]:
    """Ranks of every ring of an axis, innermost axis first."""
    for outer, lane in itertools.product(range(groups), range(inner)):
        yield [outer * inner * size + member * inner + lane for member in range(size)]


def hops(ring: list[int]) -> list[tuple[int, int]]:
    return list(zip(ring, [*ring[1:], ring[0]], strict=True))


@given(**meshes)
def test_crossing_hops_are_those_between_ranks_of_two_domains(
    inner: int, size: int, domain: int, groups: int
) -> None:
    """Every ring walked; the one that the estimate looks at crosses most."""
    most = 0
    for ring in rings(inner, size, groups):
        edges = [here // domain != there // domain for here, there in hops(ring)]
        most = max(most, sum(edges))
        counted = links.crossing_hops(
            first_rank=ring[0], inner_ranks=inner, group_size=size, domain_size=domain
        )
        assert counted == sum(edges)
        assert crossings(inner, size, domain, ring[0]) == edges

    found = place(inner, size, domain, inner * size * groups)
    assert most == links.crossing_hops(
        first_rank=found.first, inner_ranks=inner, group_size=size, domain_size=domain
    )
    assert found.first in {ring[0] for ring in rings(inner, size, groups)}


@given(**meshes, directions=st.sampled_from([1, 2]))
def test_flows_that_leave_a_node_are_hops_of_its_devices_to_others(
    inner: int, size: int, domain: int, groups: int, directions: int
) -> None:
    """Exact where no border cuts a group unevenly, else at most so many; a node is a domain."""
    leaving: Counter[int] = Counter()
    crossing = 0
    for ring in rings(inner, size, groups):
        out = [(a, b) for a, b in hops(ring) if a // domain != b // domain]
        crossing = max(crossing, len(out))
        leaving.update(a // domain for a, _ in out)
        if directions == 2:
            leaving.update(b // domain for _, b in out)
    flows = links.flows_per_node(
        crossing_hops=crossing,
        senders=place(inner, size, domain, inner * size * groups).senders,
        devices_per_node=domain,
        directions=directions,
    )

    most = max(leaving.values(), default=0)
    span = inner * size
    if span % domain == 0 or domain % span == 0:
        assert flows == most
    assert flows >= most


def test_one_ring_of_sixteen_over_two_boxes_of_eight() -> None:
    """Fourteen hops on NVLink, two between the boxes: one card of eight works, at 50 GB/s."""
    edges = crossings(inner=1, size=16, domain=8)
    card = {"devices_per_node": 8, "cards_per_node": 8, "flows_per_node": 1}

    assert (edges.count(False), edges.count(True)) == (14, 2)
    assert [i for i, out in enumerate(edges) if out] == [7, 15]
    assert links.flow_bandwidth(bandwidth=50e9, directions=1, **card) == 50e9
    assert links.cards_busy(**card) == 1


def test_eight_rings_side_by_side_use_every_card() -> None:
    """Tensor parallelism inside the box: every hop crosses, each through a card of its own."""
    card = {"devices_per_node": 8, "cards_per_node": 8, "flows_per_node": 8}

    assert all(crossings(inner=8, size=16, domain=8))
    assert links.flow_bandwidth(bandwidth=50e9, directions=1, **card) == 50e9
    assert links.cards_busy(**card) == 8


@pytest.mark.parametrize(("flows", "each"), [(1, 25e9), (2, 12.5e9), (8, 3.125e9)])
def test_rings_share_the_only_card_of_a_node(flows: int, each: float) -> None:
    """One HDR200 for eight A800s (NVIDIA/nccl issue 412): 3 GB/s each if all eight send."""
    found = links.flow_bandwidth(
        bandwidth=25e9 / 8,
        devices_per_node=8,
        cards_per_node=1,
        flows_per_node=flows,
        directions=1,
    )

    assert found == each


@given(share=rates, devices=st.integers(1, 16), cards=st.integers(1, 32), flows=counts)
def test_cards_carry_whole_flows_and_no_more_than_the_node_has(
    share: float, devices: int, cards: int, flows: int
) -> None:
    """Flows dealt over the cards one by one; the fullest card paces all."""
    used = min(cards, devices)
    dealt = Counter(flow % used for flow in range(flows))
    slowest = share * devices / used / max(dealt.values())
    node = {"devices_per_node": devices, "cards_per_node": cards, "flows_per_node": flows}
    each = links.flow_bandwidth(bandwidth=share, directions=1, **node)

    assert each == pytest.approx(slowest, rel=1e-12)
    assert flows * each <= share * devices * (1 + 1e-12)
    assert links.cards_busy(**node) == len(dealt)


@given(share=rates, devices=st.integers(1, 16), flows=st.integers(1, 16))
def test_a_card_for_each_device_is_the_device_s_share(
    share: float, devices: int, flows: int
) -> None:
    each = links.flow_bandwidth(
        bandwidth=share,
        devices_per_node=devices,
        cards_per_node=devices,
        flows_per_node=min(flows, devices),
        directions=1,
    )

    assert each == share


@pytest.mark.parametrize(("rings_side_by_side", "gain"), [(1, 2), (4, 2), (8, 1)])
def test_both_ways_over_the_network_gains_the_idle_cards(
    rings_side_by_side: int, gain: int
) -> None:
    """Half the block leaves a node at either end; where every device sends, cards are full."""
    flows = links.flows_per_node(
        crossing_hops=2, senders=rings_side_by_side, devices_per_node=8, directions=2
    )
    found = links.flow_bandwidth(
        bandwidth=50e9, devices_per_node=8, cards_per_node=8, flows_per_node=flows, directions=2
    )

    assert found == gain * 50e9


@given(pair=rates, lanes=st.integers(1, 8))
def test_both_ways_inside_a_box_use_two_links_of_a_torus_and_one_of_a_switch(
    pair: float, lanes: int
) -> None:
    """A switch gives one pair all there is, so that half of it each way is the same."""
    found = links.both_ways_bandwidth(bandwidth=lanes * pair, pair_bandwidth=pair)

    assert found == min(lanes, 2) * pair


# All-to-alls on a torus


def busiest_link(sides: tuple[int, ...], *, closes: bool) -> float:
    """
    Route 1 from each device to each of all k, axis by axis; the most that one link carries.

    On a closed axis the shorter way round; where both are as short, half each.
    """
    load: Counter[tuple[tuple[int, ...], int, int]] = Counter()
    devices = list(itertools.product(*map(range, sides)))
    for source, target in itertools.product(devices, devices):
        here = list(source)
        for axis, side in enumerate(sides):
            ahead = (target[axis] - here[axis]) % side
            ways = {1: 1.0} if target[axis] > here[axis] else {-1: 1.0}
            if closes:
                near = {1: 1.0} if 2 * ahead < side else {-1: 1.0}
                ways = {1: 0.5, -1: 0.5} if 2 * ahead == side else near
            for step, part in ways.items():
                at = list(here)
                while at[axis] != target[axis]:
                    load[tuple(at), axis, step] += part  # type: ignore[assignment]
                    at[axis] = (at[axis] + step) % side
            here[axis] = target[axis]
    return max(load.values())


@pytest.mark.parametrize("closes", [0, 1])
@pytest.mark.parametrize(
    "sides", [(2,), (3,), (4,), (5,), (8,), (2, 2), (4, 2), (4, 4), (2, 2, 2), (4, 2, 2), (4, 4, 4)]
)
def test_an_exchange_on_a_torus_takes_as_long_as_its_busiest_link(
    sides: tuple[int, ...], closes: int
) -> None:
    """Every message routed: what one rank sends, over its rate, is the busiest link's time."""
    devices = math.prod(sides)
    rate = links.torus_exchange_bandwidth(
        pair_bandwidth=1, group_size=devices, side=sides[0], closes=closes
    )

    assert (devices - 1) / rate == pytest.approx(busiest_link(sides, closes=bool(closes)))


@pytest.mark.parametrize(
    ("devices", "closes", "time"), [(2, 0, 1 / 2), (4, 0, 1 / 2), (8, 0, 1 / 2), (64, 1, 1 / 2)]
)
def test_an_exchange_takes_d_v_over_eight_links_or_four(
    devices: int, closes: int, time: float
) -> None:
    """Bisection of a cube: k V / 4 cross, over k/d links, twice as many where the axis closes."""
    side = box(devices, 3, 4).slowest
    rate = links.torus_exchange_bandwidth(
        pair_bandwidth=1, group_size=devices, side=side, closes=closes
    )

    assert side / (8 if closes else 4) == time
    assert (devices - 1) / devices / rate == pytest.approx(time)


# Size of a message


@given(
    size=st.integers(1, 2**40),
    table=st.dictionaries(st.integers(1, 2**32), st.floats(0.01, 1), min_size=1, max_size=5),
)
def test_share_of_a_message_is_read_off_its_table(size: int, table: dict[int, float]) -> None:
    """Straight lines over the logarithm of the size, as NumPy draws them."""
    sizes = sorted(table)
    shares = [table[each] for each in sizes]
    found = links.link_efficiency(
        message_bytes=size, message_sizes=tuple(sizes), link_shares=tuple(shares)
    )

    assert found == pytest.approx(np.interp(np.log2(size), np.log2(sizes), shares), rel=1e-9)


@given(size=st.integers(0, 2**40), share=st.floats(0.01, 1))
def test_share_without_a_table_is_the_same_for_all(size: int, share: float) -> None:
    assert (
        links.link_efficiency(message_bytes=size, message_sizes=(1,), link_shares=(share,)) == share
    )


@given(size=counts, messages=counts)
def test_messages_add_up_to_the_transfer(size: int, messages: int) -> None:
    assert links.message_bytes(transfer_bytes=size * messages, messages=messages) == size
