"""Rings and the borders of the fast domain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringplan.estimation.placement import inner_ranks, sizes_of
from ringplan.feasibility import divisors

if TYPE_CHECKING:
    from ringplan.specs.scenario import Scenario


def rings_inside(scenario: Scenario, most: int) -> int:
    """Return the largest ring up to a size that no domain's border cuts; 0 if there is none."""
    mesh, domain, inner = scenario.mesh, scenario.hardware.scale_up.domain_size, _inner(scenario)
    whole = [span // inner for span in divisors(domain, domain) if not span % inner]
    alone = domain // (mesh.world_size // mesh.ring_size)  # the whole job in one domain
    return max((ring for ring in (*whole, min(alone, most)) if ring <= most), default=0)


def inner_ring(scenario: Scenario) -> int:
    """Return the neighbours of a double ring's window: as asked, or as many as a domain holds."""
    mesh = scenario.mesh
    asked = mesh.inner_ring_size or rings_inside(scenario, mesh.ring_size) or 1
    return math.gcd(asked, mesh.ring_size)


def cut(scenario: Scenario) -> bool:
    """Whether the ring is small enough for a domain, and some rings cross a border all the same."""
    ring, domain = scenario.mesh.ring_size, scenario.hardware.scale_up.domain_size
    return _inner(scenario) * ring <= domain and rings_inside(scenario, ring) < ring


def _inner(scenario: Scenario) -> int:
    """Ranks between two neighbours of a ring."""
    mesh = scenario.mesh
    return inner_ranks(mesh.order, sizes_of(mesh), ("ring",), mesh.ring_size)
