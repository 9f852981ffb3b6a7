"""Rules about what a schedule costs where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.feasibility import divisors
from ringplan.findings import Finding
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.estimation.results import Estimate
    from ringplan.specs.scenario import Scenario


def rp218(scenario: Scenario, estimate: Estimate) -> Finding | None:  # noqa: ARG001
    """Uneven heads: some ranks work on one head more than others."""
    mesh = scenario.mesh
    heads = max(kind.query_heads for kind in scenario.model.kinds) // mesh.attention_tp_size
    degree = mesh.ulysses_size
    if not scenario.schedule.uneven_heads or degree > heads or not heads % degree:
        return None
    most = -(-heads // degree)
    used = heads / (degree * most)
    even = max(d for d in divisors(heads, degree))
    return Finding(
        "RP218",
        "info",
        f"{heads} query heads over {degree} ranks: some work on {most} of them, and"
        f" {show(used, '%')} of the attention time is used",
        f"--cp {even} shares them evenly",
    )


def rp219(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The ring carries heads that are expanded from latents."""
    work, schedule = scenario.workload, scenario.schedule
    latent = [kind for kind in scenario.model.kinds if kind.latent_dim is not None]
    if not latent or scenario.mesh.ring_size == 1 or work.phase == "decode":
        return None
    if schedule.latents_on_wire:
        return None
    kind = latent[0]
    assert kind.latent_dim is not None  # noqa: S101 - chosen so
    heads = -(-kind.query_heads // scenario.mesh.attention_tp_size)
    wide = heads * (kind.head_dim + kind.v_head_dim)
    names = [r.name for r in scenario.rivals if r.latents_on_wire and work.phase in r.phases]
    return Finding(
        "RP219",
        "info",
        f"{schedule.name} sends heads that are expanded from latents, {wide:,} elements a token"
        f" and rank, {show(wide / kind.latent_dim, 'x')} the {kind.latent_dim:,} of a latent:"
        f" {show(estimate.ring.bytes_sent_forward, 'B')} a layer",
        f"--schedule {names[0]} gathers latents" if names else "an implementation that sends them",
    )


def rp220(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """Packed documents are too short to hide a hop."""
    pairs = scenario.workload.document_lengths
    if pairs is None or estimate.ring.verdict not in ("stalled", "marginal"):
        return None
    tokens = sum(length * count for length, count in pairs)
    reach = sum(length**2 * count for length, count in pairs) / tokens
    return Finding(
        "RP220",
        "info",
        f"the ring carries all {tokens:,} packed tokens, but what hides a hop is the length of"
        f" documents, {reach:,.0f} tokens (sum l^2 / sum l)",
        "fewer ranks a sequence, or documents of like length together",
    )
