"""The event graph of a pass, node by node, and the longest path to each node."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ringplan.timeline.events import Traffic

    Array = npt.NDArray[np.float64]

#: A name, a rank or an edge, a number.
Node = tuple[str, int, int]


class Message(NamedTuple):
    """
    A hop on every edge.

    ``posted`` is the event after which a rank is ready for it; ``needed`` are the events of a rank
    that cannot be before it.
    """

    seconds: Array
    posted: tuple[str, int]
    needed: tuple[tuple[str, int], ...]


class Graph(NamedTuple):
    """How long each node takes, and which it comes after."""

    duration: dict[Node, float]
    after: dict[Node, list[Node]]

    def ends(self) -> dict[Node, float]:
        """Longest path to the end of each node."""

        @cache
        def end(node: Node) -> float:
            return max((end(each) for each in self.after[node]), default=0.0) + self.duration[node]

        return {node: end(node) for node in self.after}


def messages(traffic: Traffic, size: int) -> list[Message]:
    """What the ranks send, in order; ``last`` is a step that nobody computes."""
    t, last = traffic, size - 1
    alone, together = t.gradients, t.together
    made = []
    for k in range(size + 2):
        later = ("begin", min(k + 1, size))
        merge = ("merged", k + 1) if k < last else ("begin", size)
        kv, gradients = k < t.kv_hops, k < t.gradient_hops
        if not t.overlaps:
            at = ("merged", min(k, last))
            if kv and gradients and together is not None:
                made.append(Message(together, at, (later,)))
                continue
            if alone is not None and gradients:
                made.append(Message(alone, at, (later,)))
            if kv:
                made.append(Message(t.kv, at, (later,)))
            continue
        if together is not None and 0 < k <= t.gradient_hops and kv:
            made.append(Message(together, ("begin", k), (later, ("merged", k))))
        elif kv:
            made.append(Message(t.kv, ("begin", k), (later,)))
        shared = together is not None and k + 1 < t.kv_hops
        if alone is not None and gradients and not shared:
            made.append(Message(alone, ("merged", min(k, last)), (merge,)))
    return made


def graph(compute: Array, merge: Array, traffic: Traffic) -> Graph:
    """Build all nodes of a pass over ``[rank, step]``."""
    size, steps = compute.shape
    made = Graph({}, {})

    def add(node: Node, seconds: float, *after: Node) -> None:
        made.duration[node] = seconds
        made.after[node] = list(after)

    for r in range(size):
        add(("begin", r, 0), 0.0)
        for s in range(steps):
            add(("computed", r, s), compute[r, s], ("begin", r, s))
            add(("merged", r, s), 0.0, ("computed", r, s))
            add(("begin", r, s + 1), 0.0, ("merged", r, s))
            made.duration["merged", r, s] = merge[r, s]
    for number, message in enumerate(messages(traffic, size)):
        for e in range(size):
            ends = (e, (e + 1) % size)
            name, step = message.posted
            after = [(name, r, step) for r in ends]
            if number:
                after += [("hop", (r - i) % size, number - 1) for r in ends for i in (0, 1)]
            add(("hop", e, number), message.seconds[e], *after)
        for r in range(size):
            for name, step in message.needed:
                made.after[name, r, step] += [("hop", r, number), ("hop", (r - 1) % size, number)]
    return made


class Shares(NamedTuple):
    """Where the time of a rank went."""

    busy: float
    exposed: float
    idle: float


def shares(made: Graph, rank: int, size: int) -> Shares:
    """Cut the time of a rank at every event of its own, and say of each piece what it is."""
    ends = made.ends()
    total = max(ends.values())
    busy, wire = [], []
    for node, end in ends.items():
        span = (end - made.duration[node], end)
        if node[0] in ("computed", "merged") and node[1] == rank:
            busy.append(span)
        if node[0] == "hop" and node[1] in (rank, (rank - 1) % size):
            wire.append(span)
    cuts = sorted({0.0, total, *(moment for span in busy + wire for moment in span)})
    found = {"busy": 0.0, "exposed": 0.0, "idle": 0.0}
    for since, until in pairwise(cuts):
        middle = (since + until) / 2
        if any(begin < middle < end for begin, end in busy):
            found["busy"] += until - since
        elif any(begin < middle < end for begin, end in wire):
            found["exposed"] += until - since
        else:
            found["idle"] += until - since
    return Shares(**found)
