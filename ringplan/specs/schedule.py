"""What one implementation of context parallelism moves and keeps."""

from __future__ import annotations

from pydantic import Field

from ringplan.specs.base import Spec
from ringplan.specs.dtypes import Dtype
from ringplan.specs.hardware import Source


class Schedule(Spec):
    """
    A dataflow as data: every total is computed from these fields, never from the name.

    Hops are counted relative to the ring: -1 is ring_size - 1 hops.
    """

    name: str
    title: str
    kv_extra_hops_forward: int = Field(ge=-1, le=1, description="Hops of K and V beyond ring_size.")
    kv_extra_hops_backward: int = Field(ge=-1, le=1, description="The same in the backward pass.")
    gradient_extra_hops: int = Field(ge=-1, le=1, description="Hops of dK and dV beyond ring_size.")
    wire_dtype: Dtype | None = Field(description="K and V on the wire; None is activation_dtype.")
    gradient_wire_dtype: Dtype | None = Field(description="dK and dV on the wire.")
    partial_dtype: Dtype = Field(description="Partial outputs that decode returns.")
    overlaps: bool = Field(description="Whether the next block travels while a step computes.")
    kv_buffers: int = Field(ge=1, description="K/V blocks held beside the rank's own.")
    decode_latencies: int = Field(ge=0, description="Exchanges one after another in a decode step.")
    all_to_alls: int = Field(ge=1, description="All-to-alls of Ulysses in one direction.")
    source: Source

    @property
    def reverses(self) -> bool:
        """Whether a backward ring starts from the last block received, and ends at home."""
        return self.kv_extra_hops_backward < 0 and self.gradient_extra_hops < 0
