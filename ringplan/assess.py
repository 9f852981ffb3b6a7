"""A scenario's estimate, its findings, and the sentence a reviewer reads first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.checks import Finding, findings, judged_margin
from ringplan.estimation.core import estimate
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.estimation.results import Estimate
    from ringplan.specs.scenario import Scenario


class Summary(NamedTuple):
    """The answer in a few fields."""

    works: bool
    fits: bool
    verdict: str
    overlap_margin: float | None
    cp_sizes: tuple[int, int] | None
    headline: str
    change: str


class Assessment(NamedTuple):
    """What ringplan has to say of a scenario."""

    scenario: Scenario
    estimate: Estimate
    findings: tuple[Finding, ...]
    summary: Summary

    @property
    def works(self) -> bool:
        """Whether no rule says that the layout cannot work."""
        return self.summary.works


def assess(scenario: Scenario) -> Assessment:
    """Estimate a scenario, run the rules, and sum up."""
    made = estimate(scenario)
    found = tuple(findings(scenario, made))
    return Assessment(scenario, made, found, _summary(scenario, made, found))


def cp_window(made: Estimate) -> tuple[int, int] | None:
    """Context-parallel sizes that both fit and hide; None if there are none or no ring."""
    least, most = made.memory.min_cp_size, made.ring.max_cp_size
    if least is None or most is None or least > most:
        return None
    return least, most


def _summary(scenario: Scenario, made: Estimate, found: tuple[Finding, ...]) -> Summary:
    works = not any(finding.severity == "error" for finding in found)
    loud = [finding for finding in found if finding.severity != "info"]
    margin = judged_margin(scenario, made)
    return Summary(
        works=works,
        fits=made.memory.fits is True,
        verdict=made.ring.verdict or "none",
        overlap_margin=margin,
        cp_sizes=cp_window(made),
        headline=_headline(made, margin),
        change=loud[0].hint if loud else "nothing",
    )


def _headline(made: Estimate, margin: float | None) -> str:
    rank: Any = made.memory.rank
    share = rank.total_bytes / rank.capacity_bytes
    room = (
        f"fits ({share:.0%} of {show(rank.capacity_bytes, 'B')})"
        if made.memory.fits
        else f"does not fit ({show(rank.total_bytes, 'B')} on {show(rank.capacity_bytes, 'B')})"
    )
    ring = made.ring
    match ring.verdict:
        case "none":
            return f"{room}; no ring"
        case "exposed":
            return f"{room}; ring exposed: the schedule does not overlap"
        case verdict:
            return f"{room}; ring {verdict}, margin {show(margin or 0, 'x')} over {ring.link}"
