"""A scenario's estimate, its findings, and the sentence a reviewer reads first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.checks import cp_window, findings
from ringplan.estimation.core import estimate
from ringplan.link_checks import judged_margin
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.estimation.results import Estimate
    from ringplan.findings import Finding
    from ringplan.specs.model import ModelSpec
    from ringplan.specs.scenario import Scenario


class Summary(NamedTuple):
    """The answer in a few fields; ``fits`` is null where the config says too little to tell."""

    works: bool
    fits: bool | None
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


def assess(scenario: Scenario, *, timeline: bool = False) -> Assessment:
    """Estimate a scenario, run the rules, and sum up; with the time of each rank if asked for."""
    made = estimate(scenario)
    if timeline:
        from ringplan.timeline.run import with_timeline  # noqa: PLC0415 - it needs NumPy

        made = with_timeline(scenario, made)
    found = tuple(findings(scenario, made))
    return Assessment(scenario, made, found, _summary(scenario, made, found))


def _summary(scenario: Scenario, made: Estimate, found: tuple[Finding, ...]) -> Summary:
    errors = [finding for finding in found if finding.severity == "error"]
    loud = errors or [finding for finding in found if finding.severity == "warning"][:1]
    margin = judged_margin(scenario, made)
    return Summary(
        works=not errors,
        fits=made.memory.fits,
        verdict=made.ring.verdict or "none",
        overlap_margin=margin,
        cp_sizes=cp_window(scenario, made),
        headline=_headline(scenario, made, errors, margin),
        change=" and ".join(finding.hint for finding in loud) or "nothing",
    )


def _headline(
    scenario: Scenario, made: Estimate, errors: list[Finding], margin: float | None
) -> str:
    broken = [finding.message for finding in errors if finding.code != "RP110"]
    apart = "memory " if broken and made.memory.fits is not None else ""
    room = f"{apart}{_room(scenario, made)}"
    return "; ".join([*broken, room, *_exchange(scenario, made, margin)])


def _room(scenario: Scenario, made: Estimate) -> str:
    """Whether the fullest rank has room, in half a sentence."""
    rank: Any = made.memory.rank
    capacity = show(rank.capacity_bytes, "B")
    if made.memory.fits is None:
        caches = rank.kv_bytes + rank.state_bytes
        need = f"; caches take {show(caches, 'B')} of {capacity}" if caches else ""
        return f"cannot say whether it fits: {lacking(scenario.model)}{need}"
    if made.memory.fits:
        return f"fits ({rank.total_bytes / rank.capacity_bytes:.0%} of {capacity})"
    return f"does not fit ({show(rank.total_bytes, 'B')} on {capacity})"


def lacking(model: ModelSpec) -> str:
    """Say what a config lacks, so that only its caches are counted."""
    keys = [each for each in model.unknown if " " not in each]
    words = [f"the config has no {', '.join(keys)}"] if keys else []
    words += [f"it needs {each}" for each in model.unknown if each not in keys]
    return " and ".join(words)


def _exchange(scenario: Scenario, made: Estimate, margin: float | None) -> list[str]:
    """How the ranks share the sequence, in half a sentence; nothing where it is not known."""
    ring, mesh = made.ring, scenario.mesh
    if mesh.cp_size == 1:
        return ["no ring"]
    if ring.verdict is None:
        return []
    if scenario.workload.phase == "decode":
        stay = made.decode.stationary_kv
        return [f"K/V stationary, exchange {show(stay.time, 's')} a layer and token"]
    if ring.verdict == "none":
        exposed, whole = show(ring.exposed_time, "s"), show(ring.time_forward, "s")
        return [f"Ulysses, {exposed} of {whole} exposed"]
    if ring.verdict == "exposed":
        return ["ring exposed: the schedule does not overlap"]
    return [f"ring {ring.verdict}, margin {show(margin or 0, 'x')} over {ring.link}"]
