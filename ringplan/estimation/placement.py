"""Where the groups of an axis lie: which of their hops leave a domain, and how many at once."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ringplan.feasibility import divisors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.specs.mesh import Mesh


class Place(NamedTuple):
    """
    Groups of ranks, spread over some axes of a mesh.

    Attributes
    ----------
    inner, size
        Ranks from one member to the next, and members.
    first
        First rank of the ring that leaves its domain most often.
    senders
        Ranks of a domain that would send out of it at once.
    """

    inner: int
    size: int
    first: int
    senders: int


def sizes_of(mesh: Mesh) -> dict[str, int]:
    """Return the ranks on each axis of a mesh."""
    return {
        "tp": mesh.tp_size,
        "ulysses": mesh.ulysses_size,
        "ring": mesh.ring_size,
        "dp": mesh.dp_size,
        "pp": mesh.pp_size,
    }


def inner_ranks(
    order: Sequence[str], sizes: dict[str, int], axes: tuple[str, ...], size: int
) -> int:
    """
    Return the ranks from one member of a group to the next.

    >>> sizes = {"tp": 2, "ulysses": 1, "ring": 8, "dp": 2, "pp": 1}
    >>> inner_ranks(("tp", "ulysses", "ring", "dp", "pp"), sizes, ("ring",), 8)
    2
    """
    places = [order.index(axis) for axis in axes]
    filled = math.prod(sizes[axis] for axis in axes)
    if size != filled:  # the group starts on its innermost axis
        return math.prod(sizes[axis] for axis in order[: min(places)])
    return math.prod(sizes[axis] for axis in order[: max(places) + 1]) // filled


@lru_cache(maxsize=1024)
def place(inner: int, size: int, domain: int, world: int) -> Place:
    """
    Find the ring that crosses most, and the ranks that send out of a domain together.

    Where borders of domains cut groups unevenly, one group may close as the next one leaves.

    >>> place(inner=1, size=16, domain=8, world=16)
    Place(inner=1, size=16, first=0, senders=1)
    >>> place(inner=8, size=16, domain=72, world=256)
    Place(inner=8, size=16, first=135, senders=16)
    """
    span, rest = inner * size, (size - 1) * inner % domain

    def nearest(start: int) -> int:
        """Of the rings side by side from here, the start that is nearest to the next border."""
        return start + min(inner, domain - start % domain) - 1

    starts = range(0, min(world, math.lcm(span, domain)), span)
    first = max(map(nearest, starts), key=lambda rank: rank % domain, default=0)
    most = first if first % domain + rest >= domain else 0
    even = span % domain == 0 or domain % span == 0
    return Place(inner, size, most, inner if even else 2 * inner)


def crossings(inner: int, size: int, domain: int, first: int = 0) -> list[bool]:
    """
    Tell of each hop of a ring, from its first member on, whether it leaves the domain.

    >>> crossings(inner=1, size=4, domain=2)
    [False, True, False, True]
    """
    homes = [(first + member * inner) // domain for member in range(size)]
    return [here != there for here, there in zip(homes, [*homes[1:], homes[0]], strict=True)]


class Box(NamedTuple):
    """Devices of a torus: sides, the one that paces an exchange, whether it closes to a ring."""

    sides: tuple[int, ...]
    slowest: int
    closes: bool


@lru_cache(maxsize=256)
def box(devices: int, dimensions: int, wrap_multiple: int | None) -> Box:
    """
    Find the box in which an exchange is fastest.

    A side closes where it is a multiple; in three dimensions only if all sides are, as cubes of
    chips are joined to larger ones (Google Cloud documentation, TPU v5p).

    >>> box(64, 3, 4), box(32, 3, 4)
    (Box(sides=(4, 4, 4), slowest=4, closes=True), Box(sides=(4, 4, 2), slowest=4, closes=False))
    >>> box(128, 2, 16), box(7, 2, None).sides
    (Box(sides=(16, 8), slowest=16, closes=True), (7, 1))
    """
    able = [_box(sides, wrap_multiple) for sides in _shapes(devices, dimensions)]
    return min(able, key=lambda each: (each.slowest / (1 + each.closes), each.sides))


def _shapes(devices: int, dimensions: int) -> list[tuple[int, ...]]:
    if dimensions == 1:
        return [(devices,)]
    return [
        (side, *rest)
        for side in divisors(devices, devices)
        for rest in _shapes(devices // side, dimensions - 1)
        if side >= rest[0]
    ]


def _box(sides: tuple[int, ...], wrap_multiple: int | None) -> Box:
    closed = [wrap_multiple is not None and side % wrap_multiple == 0 for side in sides]
    if len(sides) > 2:
        closed = [all(closed)] * len(sides)
    slowest = max(range(len(sides)), key=lambda axis: sides[axis] / (1 + closed[axis]))
    return Box(sides, sides[slowest], closed[slowest])
