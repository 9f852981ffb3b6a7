"""
How long a run would take: the ledgers replayed in lock-step at given rates.

All ranks begin a step together, and what a step sends is on the wire while it computes, or after
it where nothing overlaps. So a step takes as long as the slowest of all ranks and wires.
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
    total = computing = 0.0
    for steps in zip(*(rank.ledger.steps for rank in ranks), strict=True):
        busy = max(_compute(step, rates) for step in steps)
        wire = max(_transfer(step, rates) for step in steps)
        total += max(busy, wire) if overlaps else busy + wire
        computing += busy
    return Duration(total, computing)


def _compute(step: Step, rates: Rates) -> float:
    """Arithmetic or reading, whichever is slower."""
    return max(step.work.flops / rates.flops_per_second, step.read_bytes / rates.read_bandwidth)


def _transfer(step: Step, rates: Rates) -> float:
    return step.exchanges * rates.latency + step.sent.total() / rates.bandwidth
