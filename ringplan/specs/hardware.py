"""A device and its links. Bandwidths are per direction and device; peaks are dense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ringplan import units
from ringplan.specs.base import Bytes, BytesPerSecond, FlopsPerSecond, GroupSize, Seconds, Spec

if TYPE_CHECKING:
    from collections.abc import Callable


def _by_tokens(given: object) -> object:
    """Read ``{1K: 0.3, 16K: 0.65}`` as pairs by size; a single number is a table of one size."""
    return _table(given, units.parse_tokens, "{16K: 0.65}")


def _by_bytes(given: object) -> object:
    """Read ``{1 MiB: 0.3, 64 MiB: 0.76}`` likewise, by the bytes of one message."""
    return _table(given, lambda size: int(units.parse(size, "B")), "{64 MiB: 0.76}")


def _table(given: object, size_of: Callable[[str], int], example: str) -> object:
    if isinstance(given, dict):
        if not given:
            raise ValueError(f"an efficiency table needs at least one size, like {example}")
        pairs = [(size_of(str(size)), share) for size, share in given.items()]
        sizes = [size for size, _ in pairs]
        if min(sizes) < 1 or len(set(sizes)) < len(sizes):
            raise ValueError("sizes of an efficiency table must be positive and differ")
        return tuple(sorted(pairs))
    return ((1, given),)


def _number(given: object) -> object:
    """Read 1e-6, which YAML takes for text, as a number."""
    try:
        return float(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f"is '{given}', but must be a share from 0 to 1, like 0.9") from None


Share = Annotated[float, BeforeValidator(_number), Field(strict=True, ge=1e-6, le=1)]
_Pairs = tuple[tuple[int, Share], ...]
_NumberOrTable = float | dict[str, float]
Efficiency = Annotated[_Pairs, BeforeValidator(_by_tokens, json_schema_input_type=_NumberOrTable)]
LinkEfficiency = Annotated[
    _Pairs, BeforeValidator(_by_bytes, json_schema_input_type=_NumberOrTable)
]


class Source(Spec):
    """Who says so."""

    kind: Literal["datasheet", "measured", "derived", "assumed", "published"]
    title: str = Field(min_length=1)
    url: str | None = None
    retrieved: str | None = None
    note: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}, {self.title}"


class Memory(Spec):
    """The memory of one device."""

    capacity: Bytes = Field(description="What the driver shows, before any context.")
    bandwidth: BytesPerSecond
    utilization: Share = Field(
        default=1.0, description="Share of the capacity that an engine may use."
    )
    overhead: Bytes = Field(description="Context, communicators and graphs, each counted once.")


class Peak(Spec):
    """Dense peak rates with fp32 accumulation; absent where the device has none."""

    fp32: FlopsPerSecond | None = None
    tf32: FlopsPerSecond | None = None
    bf16: FlopsPerSecond | None = None
    fp16: FlopsPerSecond | None = None
    fp8: FlopsPerSecond | None = None
    int8: FlopsPerSecond | None = None
    fp4: FlopsPerSecond | None = None


class KernelCurve(Spec):
    """
    What of its plateau an attention kernel reaches on less work, as measured on a device family.

    Sizes of ``fill`` are query rows, sequences x heads x query tokens; those of ``depth`` the keys
    that a query meets.
    """

    fill: Efficiency
    depth: Efficiency
    head: Efficiency = Field(default=((1, 1.0),), description="By the size of a query head.")
    tile: GroupSize = Field(
        description="Keys of a tile that the diagonal cuts in half and the kernel computes whole."
    )


class Efficiencies(Spec):
    """
    Achieved over peak: a number, or a table by size.

    The size of work is the tokens of one call, that of a transfer the bytes of one message; what a
    link's share leaves out is its latency.
    """

    matmul: Efficiency
    attention_forward: Efficiency = Field(
        description="In a profile a number is the plateau, on which the family's curve acts; one"
        " that a scenario gives, or a table by query tokens of one call, stands alone."
    )
    attention_backward: Efficiency = Field(description="The same of the backward kernel.")
    forward_curve: KernelCurve | None = Field(
        default=None, description="Of the forward kernel; None is flat."
    )
    backward_curve: KernelCurve | None = Field(
        default=None, description="Of the backward kernel; None is flat."
    )
    memory: Share
    scale_up: LinkEfficiency
    scale_out: LinkEfficiency
    beside_communication: Share = Field(
        default=1.0,
        description="Share of the compute that is left while kernels of a communication library"
        " run beside it.",
    )


class ScaleUp(Spec):
    """The fast domain: NVLink, Infinity Fabric, ICI, or PCIe inside a box."""

    bandwidth_per_direction: BytesPerSecond | None = None
    pair_bandwidth_per_direction: BytesPerSecond | None = Field(
        default=None, description="What one neighbour pair can use: one link on meshes and tori."
    )
    latency: Seconds | None = None
    domain_size: GroupSize
    topology: Literal["switch", "full_mesh", "torus_2d", "torus_3d", "pcie_tree", "none"]
    wrap_multiple: GroupSize | None = Field(
        default=None,
        description="On a torus, an axis closes into a ring where its length is a multiple of this;"
        " None never closes.",
    )


class ScaleOut(Spec):
    """The network between domains, as one device's share of it."""

    bandwidth_per_direction: BytesPerSecond | None = None
    latency: Seconds | None = None
    devices_per_node: GroupSize
    cards_per_node: GroupSize | None = Field(
        default=None, description="Network cards of a node; None is one a device."
    )

    @property
    def cards(self) -> int:
        """Cards of a node that carry transfers of their own: those beyond one a device do not."""
        return min(self.cards_per_node or self.devices_per_node, self.devices_per_node)


class HardwareProfile(Spec):
    """One device. Every number of a shipped profile has a source."""

    name: str
    title: str = ""
    device_type: Literal["gpu", "tpu", "npu", "cpu"]
    memory: Memory
    peak: Peak
    efficiency: Efficiencies
    scale_up: ScaleUp
    scale_out: ScaleOut
    price_per_hour: Annotated[float, Field(gt=0, lt=1e6)] | None = Field(
        default=None, description="USD per device and hour; prices are yours, never a default."
    )
    sources: dict[str, Source] = Field(default_factory=dict)


def source_of(path: str, sources: dict[str, Any]) -> Any:
    """
    Return the source that covers a field: its own, or that of the nearest parent.

    >>> source_of("peak.bf16", {"peak": "datasheet"})
    'datasheet'
    """
    while path not in sources and "." in path:
        path = path.rpartition(".")[0]
    return sources.get(path)
