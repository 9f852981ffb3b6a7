"""
The recurrence: when each rank begins each step, and what it waits for.

The ranks stand in a ring; edge r joins rank r and rank r + 1. At each step every edge carries the
block for the next step, one hop, and a rank's own edges are r - 1 and r. These rules decide:

- A rank computes, merges, and begins the next step when the hops of both its edges are over.
- A hop begins when both ends are ready for it and both have done with their hops before.
- Where the schedule overlaps, the ends are ready when they begin the step, otherwise when they
  have computed and merged.
- Gradients of a block are made by a step, travel after it, and must be there before the next step
  merges, which adds to them. On one communicator they go before the step's K and V, one hop after
  the other. On two they share the wire and go as one hop, with the bytes of both and one latency.
- Hops that no step is left for come at the end, one after the other.

Direction does not matter: a reversed ring uses the same edges. Waiting is *exposed* while one of a
rank's own hops is on the wire, and *idle* otherwise: for a neighbour that is late, or at the end
for the last rank.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable

Array: TypeAlias = npt.NDArray[np.float64]


class Traffic(NamedTuple):
    """
    What travels in one pass, in seconds.

    Attributes
    ----------
    kv
        A hop of K and V on each edge; an array as long as the ring, whatever travels.
    kv_hops
        How many.
    gradients, gradient_hops
        The same for dK and dV.
    together
        A hop of both on each edge, where they share the wire; None is one communicator.
    early_gradients
        Whether a useless first hop of gradients travels beside step 0.
    overlaps
        Whether hops travel while a step computes.
    exchange
        A collective before the steps, such as an exchange of heads. One after them counts the
        same here: each rank does it when it is done, with ranks of other rings that are as far.
    gather, gather_overlaps
        An all-gather before the steps, or during the first, which needs only the rank's own block.
    scatter
        A collective of the whole ring after the steps.
    """

    kv: Array
    kv_hops: int = 0
    gradients: Array | None = None
    gradient_hops: int = 0
    together: Array | None = None
    early_gradients: bool = False
    overlaps: bool = True
    exchange: float = 0.0
    gather: float = 0.0
    gather_overlaps: bool = False
    scatter: float = 0.0


class Hop(NamedTuple):
    """A hop on every edge: when it begins and ends, and when each rank has done with it."""

    begins: Array
    ends: Array
    done: Array


class Steps(NamedTuple):
    """When each rank begins each step and has computed it, ``[rank, step]``; hops as they went."""

    begins: Array
    computed: Array
    hops: tuple[Hop, ...]


class Timeline(NamedTuple):
    """Seconds of each rank, which add up to the total on each; steps where they were kept."""

    total: float
    busy: Array
    exposed: Array
    idle: Array
    steps: Steps | None = None


def walk(
    compute: Iterable[Array],
    traffic: Traffic,
    merge: Iterable[Array | float] = repeat(0.0),
    *,
    keep: bool = False,
) -> Timeline:
    """
    Walk through the steps of one pass.

    Parameters
    ----------
    compute
        Seconds of each step, in order, an array over ranks each; of ``c[rank, step]``, ``c.T``.
    traffic
        What travels.
    merge
        Seconds a rank takes to merge what a step made, step by step.
    keep
        Whether the times of steps and hops are kept.

    Examples
    --------
    >>> made = walk(np.array([[5.0, 5], [4, 8]]), Traffic(np.array([7.0, 1]), kv_hops=1))
    >>> made.total, made.busy, made.exposed, made.idle
    (15.0, array([ 9., 13.]), array([2., 2.]), array([4., 0.]))
    """
    ranks = _Ranks(traffic.kv.size, keep=keep)
    gathered = traffic.exchange + traffic.gather
    ranks.until(traffic.exchange if traffic.gather_overlaps else gathered)
    step_of = _overlapping if traffic.overlaps else _synchronous
    sent = 0
    for step, (seconds, merging) in enumerate(zip(compute, merge, strict=False)):
        sent += step_of(ranks, traffic, step, seconds, merging)
        if traffic.gather_overlaps and step == 0:
            ranks.until(gathered)
    for _ in range(sent, traffic.gradient_hops):
        ranks.wait(ranks.post(_hops(traffic, gradients=True)))
    ranks.barrier(traffic.scatter)
    return ranks.finish()


def _overlapping(
    ranks: _Ranks, traffic: Traffic, step: int, seconds: Array, merging: Array | float
) -> bool:
    """Hide hops behind a step; return whether gradients travelled."""
    kv = step < traffic.kv_hops
    first = 0 if traffic.early_gradients else 1
    gradients = first <= step <= traffic.gradient_hops
    posted = ranks.post(_hops(traffic, kv=kv, gradients=gradients))
    awaited = 1 if gradients else 0  # of the hops, the first carries them
    ranks.compute(seconds)
    ranks.wait(posted[:awaited])
    ranks.merge(merging)
    ranks.wait(posted[awaited:])
    return gradients


def _synchronous(
    ranks: _Ranks, traffic: Traffic, step: int, seconds: Array, merging: Array | float
) -> bool:
    """Let hops follow a step; return whether gradients travelled."""
    kv, gradients = step < traffic.kv_hops, step < traffic.gradient_hops
    ranks.compute(seconds)
    ranks.merge(merging)
    ranks.wait(ranks.post(_hops(traffic, kv=kv, gradients=gradients)))
    return gradients


def _hops(traffic: Traffic, *, kv: bool = False, gradients: bool = False) -> list[Array]:
    """Seconds of the hops that carry these, in the order in which they go."""
    if kv and gradients and traffic.together is not None:
        return [traffic.together]
    found = []
    if gradients and traffic.gradients is not None:
        found.append(traffic.gradients)
    if kv:
        found.append(traffic.kv)
    return found


class _Ranks:
    """The clock of each rank, and where its time went."""

    def __init__(self, size: int, *, keep: bool) -> None:
        self._now = np.zeros(size)
        self._busy, self._exposed, self._idle = np.zeros(size), np.zeros(size), np.zeros(size)
        self._keep = keep
        self._begins: list[Array] = []
        self._computed: list[Array] = []
        self._hops: list[Hop] = []

    def compute(self, seconds: Array) -> None:
        """Compute a step."""
        computed = self._now + seconds
        if self._keep:
            self._begins.append(self._now)
            self._computed.append(computed)
        self._now = computed
        self._busy += seconds

    def merge(self, seconds: Array | float) -> None:
        """Be busy with something else."""
        self._now = self._now + seconds
        self._busy += seconds

    def post(self, hops: list[Array]) -> list[Hop]:
        """Send hops of so many seconds, one after another, from now on."""
        ready, posted = self._now, []
        for seconds in hops:
            begins = np.maximum(ready, _next(ready))
            ends = begins + seconds
            ready = np.maximum(ends, _previous(ends))
            posted.append(Hop(begins, ends, ready))
        if self._keep:
            self._hops += posted
        return posted

    def wait(self, hops: list[Hop]) -> None:
        """Wait until both edges of each rank have done with the hops."""
        for begins, ends, done in hops:
            later = np.maximum(self._now, done)
            if np.array_equal(later, self._now):
                continue
            exposed = _covered(self._now, begins, ends)
            self._exposed += exposed
            self._idle += later - self._now - exposed
            self._now = later

    def until(self, moment: float) -> None:
        """Wait for a collective that ends at a moment and has been on the wire since the start."""
        later = np.maximum(self._now, moment)
        self._exposed += later - self._now
        self._now = later

    def barrier(self, seconds: float) -> None:
        """Let a collective pass that begins when the last rank is ready."""
        if seconds:
            last = self._now.max()
            self._idle += last - self._now
            self._exposed += seconds
            self._now = np.full_like(self._now, last + seconds)

    def finish(self) -> Timeline:
        """Wait for the last rank."""
        total = float(self._now.max())
        self._idle += total - self._now
        steps = None
        if self._keep:
            steps = Steps(np.array(self._begins).T, np.array(self._computed).T, tuple(self._hops))
        return Timeline(total, self._busy, self._exposed, self._idle, steps)


def _covered(since: Array, begins: Array, ends: Array) -> Array:
    """Seconds since a moment in which a hop is on one of the rank's edges, or on both."""
    begin, before = np.maximum(begins, since), np.maximum(_previous(begins), since)
    end, before_end = np.maximum(ends, begin), np.maximum(_previous(ends), before)
    both = np.minimum(end, before_end) - np.maximum(begin, before)
    covered: Array = (end - begin) + (before_end - before) - np.maximum(both, 0)
    return covered


def _next(ring: Array) -> Array:
    """Give each rank what the next one has."""
    return np.concatenate((ring[1:], ring[:1]))


def _previous(ring: Array) -> Array:
    """Give each rank what the one before it has."""
    return np.concatenate((ring[-1:], ring[:-1]))
