"""Rules about links: which axis has the slow one, which cards idle, who shares one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringplan.costs import links
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import numbers
from ringplan.estimation.placement import inner_ranks, sizes_of
from ringplan.feasibility import divisors, reasons
from ringplan.findings import Finding
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringplan.estimation.results import Communication, Estimate
    from ringplan.specs.scenario import Scenario


#: Share of the time of what it is beside from which something is worth a word.
NOTABLE = 0.05


def judged_margin(scenario: Scenario, estimate: Estimate) -> float | None:
    """Margin that the verdict goes by: the worse of the phase's passes; None without a hop."""
    ring = estimate.ring
    margins: list[float | None] = [ring.overlap_margin]
    if scenario.workload.phase == "train":
        margins.append(ring.overlap_margin_backward)
    return min((margin for margin in margins if margin is not None), default=None)


def _row(estimate: Estimate, axis: str) -> Communication | None:
    """Return the row of an axis whose groups cross domains; None where they do not."""
    rows = (row for row in estimate.communication if row.axis == axis)
    return next((row for row in rows if row.link == "scale_out"), None)


def _with(scenario: Scenario, **mesh: object) -> Scenario:
    changed = scenario.mesh.model_copy(update=mesh)
    return scenario.model_copy(update={"mesh": changed})


def _inside(scenario: Scenario, *axes: str, group_size: int | None = None) -> bool:
    """Whether every group over some axes stays inside the scale-up domain."""
    mesh, sizes = scenario.mesh, sizes_of(scenario.mesh)
    size = group_size or math.prod(sizes[axis] for axis in axes)
    return bool(
        links.fits_domain(
            span=inner_ranks(mesh.order, sizes, axes, size) * size,
            domain_size=scenario.hardware.scale_up.domain_size,
            world_size=mesh.world_size,
        )
    )


def _legal(scenario: Scenario, tried: Scenario) -> bool:
    """Whether a change breaks no rule that is kept without it."""
    mesh = tried.mesh
    whole = not (mesh.tp_size % mesh.dcp_size or mesh.tp_size % mesh.attention_dp_size)
    return whole and not ({r.code for r in reasons(tried)} - {r.code for r in reasons(scenario)})


def _reordered(scenario: Scenario, *first: str) -> Scenario:
    """Return the scenario with some axes innermost, the others in their order."""
    others = tuple(axis for axis in scenario.mesh.order if axis not in first)
    return _with(scenario, order=(*first, *others))


def _order(scenario: Scenario) -> str:
    return f"--set 'mesh.order=[{', '.join(scenario.mesh.order)}]'"


def rp208(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The order of the mesh gives an axis a slower link than it could have."""
    if _row(estimate, "tp") is None:
        return None
    domain, tp_size = scenario.hardware.scale_up.domain_size, scenario.mesh.tp_size
    tried = _reordered(scenario, "tp")
    if _inside(tried, "tp"):
        cure = _order(tried)
    else:
        fewer = (_with(tried, tp_size=t) for t in reversed(divisors(domain, tp_size)))
        able = next(each for each in fewer if each.mesh.tp_size == 1 or _legal(scenario, each))
        cure = f"--tp {able.mesh.tp_size}"
        if not _inside(_with(scenario, tp_size=able.mesh.tp_size), "tp"):
            cure = f"{cure} {_order(tried)}"
    return Finding(
        "RP208",
        "warning",
        f"tensor-parallel groups cross the {domain}-rank domain: their all-reduces, twice a layer,"
        " take the slow link",
        cure,
    )


def rp215(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A ring leaves its node through fewer network cards than the node has."""
    row, cards = _row(estimate, "ring"), scenario.hardware.scale_out.cards
    if row is None or scenario.workload.phase == "decode" or row.cards_busy >= cards:
        return None
    ring, domain = estimate.ring, scenario.hardware.scale_up.domain_size
    many = row.cards_busy > 1
    ways = [way for way in (_exchange(scenario, estimate), _double_ring(scenario, estimate)) if way]
    return Finding(
        "RP215",
        "info" if ring.verdict == "hidden" else "warning",
        f"{row.cards_busy} of {cards} network cards of a node"
        f" {'carry' if many else 'carries'} the ring: {row.crossing_hops} of its {row.ranks} hops"
        f" leave the {domain}-rank domain and pace the others, {show(ring.hop_time, 's')} each",
        "; ".join(ways) or "more tensor parallelism inside the node: each of its rings has a card",
    )


def _exchange(scenario: Scenario, estimate: Estimate) -> str | None:
    """What the most heads exchanged inside a domain would give."""
    now, ring_size = scenario.mesh.ulysses_size, scenario.mesh.ring_size
    able = (
        row
        for row in sorted(estimate.alternatives, key=lambda row: -row.ulysses_size)
        if row.ulysses_size > now
        and row.feasible
        and row.fits
        and _inside(_with(scenario, ulysses_size=row.ulysses_size), "ulysses")
    )
    best = next(able, None)
    if best is None:
        return None
    hops = best.ring_size - 1
    less = f"{hops} gated hop{'s' * (hops != 1)}" if hops else "no hop"
    times = (
        f"{show(best.time_forward, 's')} a layer against {show(estimate.ring.time_forward, 's')}"
    )
    return f"--ulysses {best.ulysses_size} ({less} in place of {ring_size - 1}; {times})"


def _double_ring(scenario: Scenario, estimate: Estimate) -> str | None:
    """What rings of the ranks of one domain inside a ring of domains would give."""
    mesh, ring = scenario.mesh, estimate.ring
    hardware = scenario.hardware
    inner = inner_ranks(mesh.order, sizes_of(mesh), ("ring",), mesh.ring_size)
    window = hardware.scale_up.domain_size // inner
    if window < 2 or mesh.ring_size % window or mesh.ring_size == window:
        return None
    node, cards = hardware.scale_out.devices_per_node, hardware.scale_out.cards
    outer = ring.hop_time * -(-min(window * inner, node) // cards)
    behind = window * ring.step_attention_time
    hidden = "which hide it" if behind >= outer else "which do not hide it"
    hops = mesh.ring_size // window - 1
    return (
        f"a double ring: {hops} hop{'s' * (hops != 1)} between domains, {show(outer, 's')} each"
        f" over all cards, beside {window} steps that take {show(behind, 's')}, {hidden}"
    )


#: Axes whose transfers may be under way while a ring's are.
_OTHERS = ("fsdp", "dp", "pp", "ep")


def rp216(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """Other axes send over the network card that the ring needs."""
    ring = _row(estimate, "ring")
    if ring is None or scenario.workload.phase == "decode":
        return None
    others = [row for axis in _OTHERS if (row := _row(estimate, axis))]
    others = [row for row in others if row.time > NOTABLE * ring.time]
    if not others:
        return None
    times = " and ".join(f"{row.axis} {show(row.time, 's')}" for row in others)
    margin = judged_margin(scenario, estimate) or 0.0
    shared = margin * ring.time / (ring.time + sum(row.time for row in others))
    stalls = shared < 1 <= margin
    return Finding(
        "RP216",
        "warning" if stalls else "info",
        f"the network card that carries {show(ring.time, 's')} of ring a pass also carries {times}"
        + (f"; all at once they leave it a margin of {show(shared, 'x')}" if stalls else ""),
        "; ".join(_apart(scenario, others)),
    )


def _apart(scenario: Scenario, rows: Iterable[Communication]) -> Iterator[str]:
    """How to keep each axis off the ring's card."""
    for row in rows:
        if row.axis == "fsdp":
            whole = _with(scenario, zero_stage=2)
            fit = fullest_rank(numbers(whole), whole).headroom_bytes >= 0
            yield (
                "--set mesh.zero_stage=2 gathers no parameters"
                if fit
                else "gather parameters while linear layers compute, not beside the ring"
            )
        elif row.axis == "dp":
            yield "reduce gradients once for several micro-batches, or outside attention"
        elif row.axis == "ep":
            least = _experts_inside(scenario)
            yield f"--ep {least} keeps experts inside the domain" if least else _EXPERTS
        else:
            yield "send activations between attention layers, not beside them"


_EXPERTS = "exchange tokens for experts between attention layers, not beside them"


def _experts_inside(scenario: Scenario) -> int | None:
    """Return the most expert-parallel ranks that a domain holds; None if only one."""
    ep_size = scenario.mesh.ep_size
    for fewer in reversed(divisors(ep_size, ep_size - 1)[1:]):
        held = _inside(scenario, "ulysses", "ring", "dp", group_size=fewer)
        if held and _legal(scenario, _with(scenario, ep_size=fewer)):
            return fewer
    return None


def rp217(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The order of the mesh sends the exchange of heads between domains."""
    row = _row(estimate, "ulysses")
    if row is None or scenario.workload.phase == "decode":
        return None
    for first in (("tp", "ulysses"), ("ulysses", "tp"), ("ulysses",)):
        tried = _reordered(scenario, *first)
        kept = _inside(tried, "tp") or not _inside(scenario, "tp")
        if _inside(tried, "ulysses") and kept:
            return Finding(
                "RP217",
                "warning",
                f"the exchange of heads leaves the {scenario.hardware.scale_up.domain_size}-rank"
                f" domain, {show(row.time, 's')} a pass that nothing hides, though its"
                f" {row.ranks} ranks would fit into one",
                _order(tried),
            )
    return None
