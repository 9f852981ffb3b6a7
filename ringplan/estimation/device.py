"""The device's rates and links, as the formulas need them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.costs import attention, decode, layout
from ringplan.errors import SpecError
from ringplan.estimation.numbers import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers, Table
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

    def read_time(self, read_bytes: Number) -> Number:
        """Time to read something from the device's memory."""
        leaf, profile = self.x.leaf, self.profile
        return decode.memory_read_time(
            read_bytes=read_bytes,
            bandwidth=leaf("hardware.memory.bandwidth", profile.memory.bandwidth),
            efficiency=leaf("hardware.efficiency.memory", profile.efficiency.memory),
        )

    def link(self, x: Numbers, *axes: str, collective: bool = False) -> Link:
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
        """
        key = (*x.sizes.values(), axes, collective)
        if key not in self.links:
            self.links[key] = self._link(x, axes, collective=collective)
        return self.links[key]

    def _link(self, x: Numbers, axes: tuple[str, ...], *, collective: bool) -> Link:
        size = math.prod(x.sizes[axis] for axis in axes)
        inside = self._inside(x, axes, size)
        name = "scale_up" if plain(inside) else "scale_out"
        up, out = self.profile.scale_up, self.profile.scale_out
        shares = self.profile.efficiency
        leaf = x.leaf

        def pick(
            up_path: str, up_value: float | None, out_path: str, out_value: float | None
        ) -> Number:
            needed, path = (up_value, up_path) if name == "scale_up" else (out_value, out_path)
            if needed is None:
                raise SpecError(
                    f"the {' x '.join(axes)} axis needs {path}, which {self.profile.name} lacks",
                    hint=f'--set {path}="{_EXAMPLE[path.rpartition(".")[2]]}"',
                )
            return layout.of_slowest_link(
                inside=inside,
                scale_up=leaf(up_path, up_value if up_value is not None else out_value),
                scale_out=leaf(out_path, out_value if out_value is not None else up_value),
            )

        nominal = pick(
            "hardware.scale_up.pair_bandwidth_per_direction",
            up.pair_bandwidth_per_direction,
            "hardware.scale_out.bandwidth_per_direction",
            out.bandwidth_per_direction,
        )
        if collective and name == "scale_up" and up.bandwidth_per_direction is not None:
            nominal = layout.mesh_bandwidth(
                bandwidth=leaf(
                    "hardware.scale_up.bandwidth_per_direction", up.bandwidth_per_direction
                ),
                pair_bandwidth=nominal,
                group_size=leaf.derived("group_size", size, f"ranks on {' x '.join(axes)}"),
            )
        return Link(
            name=name,
            nominal=nominal,
            bandwidth=layout.achieved_bandwidth(
                bandwidth=nominal,
                efficiency=pick(
                    "hardware.efficiency.scale_up",
                    shares.scale_up,
                    "hardware.efficiency.scale_out",
                    shares.scale_out,
                ),
            ),
            latency=pick(
                "hardware.scale_up.latency", up.latency, "hardware.scale_out.latency", out.latency
            ),
        )

    def _inside(self, x: Numbers, axes: tuple[str, ...], size: int) -> Number:
        order = self.scenario.mesh.order
        outermost = max(order.index(axis) for axis in axes)
        span = math.prod(x.sizes[axis] for axis in order[: outermost + 1])
        why = f"mesh.order is {', '.join(order)}"
        return layout.fits_domain(
            span=layout.group_span(
                inner_ranks=x.leaf.derived("inner_ranks", span // size, why),
                group_size=x.leaf.derived("group_size", size, f"ranks on {' x '.join(axes)}"),
            ),
            domain_size=x.leaf("hardware.scale_up.domain_size", self.profile.scale_up.domain_size),
            world_size=x.world_size,
        )


_EXAMPLE = {
    "bandwidth_per_direction": "50 GB/s",
    "pair_bandwidth_per_direction": "50 GB/s",
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
