"""The device's rates and links, as the formulas need them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.costs import attention, decode, layout
from ringplan.errors import SpecError
from ringplan.estimation.leaves import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.leaves import Table
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.hardware import HardwareProfile
    from ringplan.specs.scenario import Scenario


class Link(NamedTuple):
    """The link that paces a group of ranks."""

    name: str
    nominal: Number
    bandwidth: Number
    latency: Number


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

    def flops_per_second(self, query_tokens: Number, *, backward: bool = False) -> Number:
        """Rate that an attention kernel on this many query tokens reaches."""
        table = self.backward if backward else self.forward
        return attention.achieved_rate(
            peak=self.peak,
            efficiency=attention.tile_efficiency(
                query_tokens=query_tokens, sizes=table.sizes, shares=table.shares
            ),
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
        self, x: Numbers, *axes: str, collective: bool = False, group_size: int | None = None
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
        group_size
            Ranks of a group that does not fill its axes.
        """
        size = group_size or math.prod(x.sizes[axis] for axis in axes)
        key = (*x.sizes.values(), axes, collective, size)
        if key not in self.links:
            self.links[key] = self._link(x, axes, size, collective=collective)
        return self.links[key]

    def _link(self, x: Numbers, axes: tuple[str, ...], size: int, *, collective: bool) -> Link:
        found = self._of(x, self._inside(x, axes, size), f"the {' x '.join(axes)} axis")
        up = self.profile.scale_up.bandwidth_per_direction
        torus = self.profile.scale_up.topology.startswith("torus")  # one link, to be safe
        if not collective or found.name == "scale_out" or up is None or torus:
            return found
        nominal = layout.mesh_bandwidth(
            bandwidth=x.leaf("hardware.scale_up.bandwidth_per_direction", up),
            pair_bandwidth=found.nominal,
            group_size=x.leaf.derived("group_size", size, f"ranks on {' x '.join(axes)}"),
        )
        share = x.leaf("hardware.efficiency.scale_up", self.profile.efficiency.scale_up[-1][1])
        achieved = layout.achieved_bandwidth(bandwidth=nominal, efficiency=share)
        return found._replace(nominal=nominal, bandwidth=achieved)

    def ring_links(self, x: Numbers) -> tuple[Link, Link]:
        """Return the link inside a window of a double ring, and the one between windows."""
        inside = self.link(x, "ring", group_size=plain(x.inner_ring_size))
        return inside, self.link(x, "ring")

    def hop_link(self, x: Numbers, *, inside: bool) -> Link | None:
        """Return the link of a ring that stays inside the domain, or of one that leaves it."""
        up, out = self.profile.scale_up, self.profile.scale_out
        needed = (
            (up.pair_bandwidth_per_direction, up.latency)
            if inside
            else (out.bandwidth_per_direction, out.latency)
        )
        if None in needed:
            return None
        flag = x.leaf.derived("inside", int(inside), "1 for a ring inside the domain")
        return self._of(x, flag, "the ring")

    def _of(self, x: Numbers, inside: Number, what: str) -> Link:
        """Rates of the link inside the domain, or of the one between domains."""
        name = "scale_up" if plain(inside) else "scale_out"
        up, out = self.profile.scale_up, self.profile.scale_out
        shares = self.profile.efficiency

        def pick(
            up_path: str, up_value: float | None, out_path: str, out_value: float | None
        ) -> Number:
            needed, path = (up_value, up_path) if name == "scale_up" else (out_value, out_path)
            if needed is None:
                raise SpecError(
                    f"{what} needs {path}, which {self.profile.name} lacks",
                    hint=f'--set {path}="{_EXAMPLE[path.rpartition(".")[2]]}", or what yours has',
                )
            return layout.of_slowest_link(
                inside=inside,
                scale_up=x.leaf(up_path, up_value if up_value is not None else out_value),
                scale_out=x.leaf(out_path, out_value if out_value is not None else up_value),
            )

        nominal = pick(
            "hardware.scale_up.pair_bandwidth_per_direction",
            up.pair_bandwidth_per_direction,
            "hardware.scale_out.bandwidth_per_direction",
            out.bandwidth_per_direction,
        )
        share = pick(
            "hardware.efficiency.scale_up",
            shares.scale_up[-1][1],
            "hardware.efficiency.scale_out",
            shares.scale_out[-1][1],
        )
        return Link(
            name=name,
            nominal=nominal,
            bandwidth=layout.achieved_bandwidth(bandwidth=nominal, efficiency=share),
            latency=pick(
                "hardware.scale_up.latency", up.latency, "hardware.scale_out.latency", out.latency
            ),
        )

    def _inside(self, x: Numbers, axes: tuple[str, ...], size: int) -> Number:
        order = self.scenario.mesh.order
        places = [order.index(axis) for axis in axes]
        filled = math.prod(x.sizes[axis] for axis in axes)
        inner = math.prod(x.sizes[axis] for axis in order[: max(places) + 1]) // filled
        if size != filled:  # the group starts on its innermost axis
            inner = math.prod(x.sizes[axis] for axis in order[: min(places)])
        why = f"mesh.order is {', '.join(order)}"
        return layout.fits_domain(
            span=layout.group_span(
                inner_ranks=x.leaf.derived("inner_ranks", inner, why),
                group_size=x.leaf.derived("group_size", size, f"ranks on {' x '.join(axes)}"),
            ),
            domain_size=x.leaf("hardware.scale_up.domain_size", self.profile.scale_up.domain_size),
            world_size=x.world_size,
        )


_EXAMPLE = {
    "bandwidth_per_direction": "25 Gb/s",
    "pair_bandwidth_per_direction": "32 GB/s",
    "latency": "20 us",
}


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
