"""The device's rates and links, as the formulas need them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.costs import attention, decode
from ringplan.errors import SpecError
from ringplan.estimation.leaves import plain
from ringplan.estimation.link import Group, hop_link, link_of
from ringplan.estimation.placement import crossings, inner_ranks, place

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.leaves import Table
    from ringplan.estimation.link import Link, Pattern
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.hardware import HardwareProfile, KernelCurve
    from ringplan.specs.scenario import Scenario


class Call(NamedTuple):
    """
    One call of an attention kernel.

    Attributes
    ----------
    batch_size, num_heads, query_tokens, head_dim
        Its queries.
    pairs
        Visible pairs of one sequence.
    diagonal
        1 where a causal diagonal runs through its tiles, else 0.
    """

    batch_size: Number
    num_heads: Number
    query_tokens: Number
    head_dim: Number
    pairs: Number
    diagonal: int


class Device(NamedTuple):
    """Rates and links of one device in its mesh."""

    scenario: Scenario
    x: Numbers
    peak: Number
    forward: Table
    backward: Table
    links: dict[Any, Link]

    @property
    def profile(self) -> HardwareProfile:
        """The device's profile."""
        return self.scenario.hardware

    def curve(self, *, backward: bool) -> KernelCurve | None:
        """Return the family's curve; None where a profile or the user has a table by tokens."""
        shares = self.profile.efficiency
        table = shares.attention_backward if backward else shares.attention_forward
        if len(table) > 1:
            return None
        return shares.backward_curve if backward else shares.forward_curve

    def flops_per_second(self, call: Call, *, backward: bool = False) -> Number:
        """Rate that an attention kernel reaches on a call."""
        table = self.backward if backward else self.forward
        share = attention.tile_efficiency(
            query_tokens=call.query_tokens, sizes=table.sizes, shares=table.shares
        )
        curve = self.curve(backward=backward)
        if curve is not None:
            share = self._on_curve(call, share, curve, backward=backward)
        return attention.achieved_rate(peak=self.peak, efficiency=share)

    def _on_curve(
        self, call: Call, plateau: Number, curve: KernelCurve, *, backward: bool
    ) -> Number:
        leaf, path = self.x.leaf, f"hardware.efficiency.{'back' if backward else 'for'}ward_curve"
        fill = leaf.table(f"{path}.fill", curve.fill)
        depth = leaf.table(f"{path}.depth", curve.depth)
        head = leaf.table(f"{path}.head", curve.head)
        met = attention.keys_met(
            pairs=call.pairs,
            query_tokens=call.query_tokens,
            tile=leaf(f"{path}.tile", curve.tile),
            diagonal_share=leaf.derived("diagonal_share", call.diagonal, "1 on a diagonal"),
        )
        rows = attention.query_rows(
            batch_size=call.batch_size,
            num_heads=call.num_heads,
            query_tokens=call.query_tokens,
        )
        return attention.kernel_efficiency(
            plateau=plateau,
            query_rows=rows,
            keys_met=met,
            pairs=call.pairs,
            query_tokens=call.query_tokens,
            fill_sizes=fill.sizes,
            fill_shares=fill.shares,
            depth_sizes=depth.sizes,
            depth_shares=depth.shares,
            head_dim=call.head_dim,
            head_sizes=head.sizes,
            head_shares=head.shares,
        )

    def beside_communication(self, rate: Number) -> Number:
        """Rate that is left while kernels of a communication library run beside."""
        share = self.profile.efficiency.beside_communication
        return attention.rate_beside_communication(
            rate=rate, share=self.x.leaf("hardware.efficiency.beside_communication", share)
        )

    def read_time(self, read_bytes: Number, *, nominal: bool = False) -> Number:
        """Time to read something from the device's memory, at the achieved or the nominal rate."""
        leaf, profile = self.x.leaf, self.profile
        share = leaf("hardware.efficiency.memory", profile.efficiency.memory)
        if nominal:
            share = leaf.derived("efficiency", 1, "nominal rate")
        return decode.memory_read_time(
            read_bytes=read_bytes,
            bandwidth=leaf("hardware.memory.bandwidth", profile.memory.bandwidth),
            efficiency=share,
        )

    def link(
        self,
        x: Numbers,
        *axes: str,
        collective: bool = False,
        all_to_all: bool = False,
        both_ways: bool = False,
        group_size: int | None = None,
    ) -> Link:
        """
        Find the link that paces the groups spread over some axes of the mesh.

        Parameters
        ----------
        x
            Numbers of the layout.
        axes
            Axes that the group is spread over.
        collective
            Whether a rank talks to its whole group at once, over all its links, rather than to
            one neighbour.
        all_to_all
            Whether it has something else for each of them.
        both_ways
            Whether it sends half to either neighbour.
        group_size
            Ranks of a group that does not fill its axes.
        """
        size = group_size or math.prod(x.sizes[axis] for axis in axes)
        pattern: Pattern = "collective" if collective else "both_ways" if both_ways else "hop"
        if all_to_all:
            pattern = "all_to_all"
        key = (*x.sizes.values(), axes, pattern, size)
        if key not in self.links:
            group = self._group(x, axes, size, pattern)
            order = ", ".join(self.scenario.mesh.order)
            self.links[key] = link_of(x, self.profile, group, f"mesh.order is {order}")
        return self.links[key]

    def ring_links(self, x: Numbers) -> tuple[Link, Link]:
        """Return the link inside a window of a double ring, and the one between windows."""
        inside = self.link(x, "ring", group_size=plain(x.inner_ring_size))
        return inside, self.link(x, "ring")

    def hop_link(self, x: Numbers, *, inside: bool, both_ways: bool = False) -> Link | None:
        """Return the link of a ring that stays inside the domain, or of one that leaves it."""
        up, out = self.profile.scale_up, self.profile.scale_out
        needed = (
            (up.pair_bandwidth_per_direction, up.latency)
            if inside
            else (out.bandwidth_per_direction, out.latency)
        )
        if None in needed:
            return None
        group = self._group(x, ("ring",), x.sizes["ring"], "both_ways" if both_ways else "hop")
        return hop_link(x, self.profile, group, inside=inside)

    def crossings(self, x: Numbers, *axes: str) -> list[bool]:
        """Tell of each hop of the ring that crosses most whether it leaves the domain."""
        group = self._group(x, axes, math.prod(x.sizes[axis] for axis in axes), "hop")
        domain = self.profile.scale_up.domain_size
        where = place(group.inner, group.size, domain, self.scenario.mesh.world_size)
        return crossings(group.inner, group.size, domain, where.first)

    def _group(self, x: Numbers, axes: tuple[str, ...], size: int, pattern: Pattern) -> Group:
        inner = inner_ranks(self.scenario.mesh.order, x.sizes, axes, size)
        return Group(" x ".join(axes), inner, size, pattern)


def device(scenario: Scenario, x: Numbers) -> Device:
    """Build the device of a scenario; refuse one that has no rate for the activations' format."""
    dtype = scenario.workload.activation_dtype
    peak = getattr(scenario.hardware.peak, dtype)
    if peak is None:
        raise SpecError(
            f"{scenario.hardware.name} has no peak.{dtype}, the format of the activations",
            hint=f'--set hardware.peak.{dtype}="100 TFLOP/s", or another activation_dtype',
        )
    shares = scenario.hardware.efficiency
    return Device(
        scenario=scenario,
        x=x,
        peak=x.leaf(f"hardware.peak.{dtype}", peak),
        forward=x.leaf.table("hardware.efficiency.attention_forward", shares.attention_forward),
        backward=x.leaf.table("hardware.efficiency.attention_backward", shares.attention_backward),
        links={},
    )
