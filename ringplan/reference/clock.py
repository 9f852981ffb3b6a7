"""
How long a run would take: the ledgers replayed in lock-step at given rates.

All ranks begin a step together. Where transfers overlap, blocks that a step sends are on the wire
while it computes, and gradients, which it has only made, while the next step does. A step takes as
long as the slowest of all ranks and wires; where nothing overlaps, as long as both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.reference.network import Rank, Step


class Rates(NamedTuple):
    """
    What a device and its link reach.

    Attributes
    ----------
    flops_per_second
        Of attention.
    bandwidth, latency
        Of one rank's link, one way: bytes per second, and seconds an exchange.
    read_bandwidth
        Of the device's memory, bytes per second; infinite where reading costs nothing.
    """

    flops_per_second: float
    bandwidth: float
    latency: float
    read_bandwidth: float = float("inf")


class Duration(NamedTuple):
    """
    Seconds of a run.

    Attributes
    ----------
    total
        From the first step to the last.
    computing
        The busiest rank's compute of every step, added up.
    """

    total: float
    computing: float

    @property
    def exposed(self) -> float:
        """Seconds in which no rank computes."""
        return self.total - self.computing


def replay(ranks: Iterable[Rank], rates: Rates, *, overlaps: bool) -> Duration:
    """Replay the ledgers of all ranks of a run."""
    total = computing = pending = 0.0
    for steps in zip(*(rank.ledger.steps for rank in ranks), strict=True):
        busy = max(_compute(step, rates) for step in steps)
        late = max(step.sent["gradients"] for step in steps) / rates.bandwidth
        wire = max(_transfer(step, rates) for step in steps) - late
        total += max(busy, wire + pending) if overlaps else busy + wire + late
        computing += busy
        pending = late if overlaps else 0.0
    return Duration(total + pending, computing)


def _compute(step: Step, rates: Rates) -> float:
    """Arithmetic or reading, whichever is slower."""
    return max(step.work.flops / rates.flops_per_second, step.read_bytes / rates.read_bandwidth)


def _transfer(step: Step, rates: Rates) -> float:
    return step.exchanges * rates.latency + step.sent.total() / rates.bandwidth
