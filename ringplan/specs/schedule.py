"""What one implementation of context parallelism moves, keeps and refuses."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from ringplan.specs.base import Spec
from ringplan.specs.dtypes import Dtype
from ringplan.specs.hardware import Source
from ringplan.specs.mesh import Mesh, Partition
from ringplan.specs.workload import Phase

CommType = Literal["p2p", "all_gather", "a2a", "a2a+p2p"]


class Schedule(Spec):
    """
    A dataflow as data: every total is computed from these fields, never from the name.

    Extra hops are counted from the ring: -1 is ring_size - 1 hops.
    """

    name: str
    title: str
    source: Source
    left_out: tuple[str, ...] = Field(
        default=(), description="What the implementation does and ringplan does not count."
    )

    implementation: bool = Field(
        default=True, description="Whether somebody wrote it; false is what mathematics needs."
    )

    # Where it runs.
    phases: tuple[Phase, ...] = Field(description="Passes that it runs.")
    devices: tuple[Literal["gpu", "tpu", "npu", "cpu"], ...] = Field(
        default=("gpu",), description="Kinds of device that it runs on."
    )
    comm_types: tuple[CommType, ...] = Field(
        default=(), description="Ways to share a sequence over cp_size; none in decode."
    )
    partitions: tuple[Partition, ...] = Field(
        default=("zigzag", "striped", "contiguous"), description="Which shards; the default first."
    )

    # The ring of K and V, or their all-gather.
    kv_exchange: Literal["ring", "gather"] = Field(
        default="ring", description="Whether blocks go round, or every rank gathers them all."
    )
    kv_extra_hops_forward: int = Field(
        default=-1, ge=-1, le=1, description="Hops of K and V beyond ring_size."
    )
    kv_extra_hops_backward: int = Field(
        default=-1, ge=-1, le=1, description="The same in the backward pass."
    )
    gradient_exchange: Literal["ring", "reduce_scatter"] = Field(
        default="ring", description="How dK and dV reach the rank that owns the block."
    )
    gradient_extra_hops: int = Field(
        default=-1, ge=-1, le=1, description="Hops of dK and dV beyond ring_size."
    )
    heads_on_wire: Literal["kv", "query"] = Field(
        default="kv", description="Whether K and V travel as they are or expanded to query heads."
    )
    latents_on_wire: bool = Field(
        default=False, description="Whether MLA's latents travel in place of expanded heads."
    )
    k_wire_dtype: Dtype | None = Field(
        default=None, description="K on the wire; None is activation_dtype."
    )
    v_wire_dtype: Dtype | None = Field(default=None, description="V on the wire.")
    gradient_wire_dtype: Dtype | None = Field(default=None, description="dK and dV on the wire.")
    messages_per_hop: int = Field(
        default=1, ge=1, le=2, description="K and V in one message, or each in its own."
    )
    joins_gradients: bool = Field(
        default=True, description="Whether dK and dV are in the message of K and V."
    )
    sends_needed_only: bool = Field(
        default=False, description="Whether chunks go only to ranks whose queries see them."
    )
    window_hops: Literal["all", "needed"] = Field(
        default="all", description="Whether a sliding window ends the ring early."
    )
    bidirectional: bool = Field(
        default=False, description="Whether half of a block goes each way round."
    )
    double_ring: bool = Field(
        default=False,
        description="Whether blocks go round in windows of mesh.inner_ring_size neighbours, and"
        " from window to window.",
    )
    first_window_gradient_dtype: Dtype | None = Field(
        default=None, description="dK and dV on the wire in the first window of a double ring."
    )

    # The exchange of heads.
    all_to_alls: int = Field(
        default=4, ge=1, description="All-to-alls of Ulysses in one direction."
    )
    replicates_kv_heads: bool = Field(
        default=False, description="Whether K/V heads fewer than Ulysses ranks are replicated."
    )
    uneven_heads: bool = Field(
        default=False, description="Whether ranks may get one query head more than others."
    )

    # Time.
    overlaps: bool = Field(
        default=True, description="Whether the next block travels while a step computes."
    )
    gather_overlap: Literal["none", "own_block", "heads"] = Field(
        default="none",
        description="What hides an all-gather: nothing, the rank's own block, or the heads"
        " gathered before.",
    )
    heads_per_gather: int | None = Field(
        default=None, ge=1, description="K/V heads of one gather; None is all."
    )
    streams: int = Field(
        default=2, ge=1, le=2, description="1: hops of K/V and of their gradients wait in line."
    )
    uses_compute_units: bool = Field(
        default=True, description="Whether communication kernels take some of the compute."
    )
    merge_bytes_per_element: int = Field(
        default=0, ge=0, description="Memory traffic of a merge an output element; 0 is fused."
    )
    merges_at_end: bool = Field(
        default=False, description="Whether merges wait for the last step, and hide no transfer."
    )

    # Memory.
    kv_buffers: int | Literal["all"] = Field(
        default=2,
        description="K/V blocks held beside the rank's own in forward; all is one a rank.",
    )
    kv_buffers_backward: int = Field(default=2, ge=1, description="The same in backward.")
    gradient_buffers: int = Field(default=2, ge=1, description="Blocks of dK and dV held.")
    accumulator_dtype: Dtype | None = Field(
        default="fp32", description="Running output and dQ; None is activation_dtype."
    )
    holds_block_output: bool = Field(
        default=False, description="Whether a step's output, or gradients, lie beside the sums."
    )
    keeps_partials: bool = Field(
        default=False, description="Whether the outputs of all steps wait for one merge."
    )
    gathered_copies: int = Field(
        default=1, ge=1, description="Copies of gathered K and V that are held at once."
    )
    keeps_gathered: bool = Field(
        default=False, description="Whether gathered K and V are kept for the backward pass."
    )
    cache_replicated: bool = Field(
        default=False, description="Whether every rank caches the whole sequence."
    )

    # A decode step that leaves the cache in place.
    query_exchange: Literal["broadcast", "all_gather", "none"] = "broadcast"
    combine: Literal["send", "reduce_scatter", "all_reduce", "all_to_all"] = Field(
        default="send", description="How partial outputs are brought together."
    )
    latent_combine: Literal["send", "reduce_scatter", "all_reduce", "all_to_all"] | None = Field(
        default=None, description="The same where latents are cached; None is as combine says."
    )
    partial_dtype: Dtype | None = Field(
        default="fp32", description="Partial outputs on the wire; None is activation_dtype."
    )
    latent_partial_dtype: Dtype | None = Field(
        default=None, description="The same where latents are cached; None is partial_dtype."
    )
    statistics: int = Field(
        default=2, ge=1, le=2, description="fp32 numbers beside each head's partial output."
    )
    gathers_statistics: bool = Field(
        default=False, description="Whether every rank gets the statistics of all."
    )
    decode_latencies: int = Field(
        default=2, ge=0, description="Exchanges one after another in a decode step."
    )

    # What it refuses.
    rank_multiple: int = Field(
        default=1, ge=1, description="Tokens of a rank are a multiple of this."
    )
    rank_multiple_of_ranks: bool = Field(
        default=False, description="Whether tokens of a rank are a multiple of cp_size."
    )
    causal_only: bool = False
    windows: bool = Field(default=True, description="Whether sliding windows run.")
    sinks: bool = Field(default=False, description="Whether attention sinks run.")
    documents: Literal["each", "packed", "none"] = Field(
        default="none",
        description="Packed documents: each is cut over all ranks, their sequence is, or refused.",
    )
    max_batch_size: int | None = Field(default=None, ge=1)
    pipelines: bool = Field(default=True, description="Whether pipeline stages run beside it.")

    @property
    def reverses(self) -> bool:
        """Whether a backward ring starts from the last block received, and ends at home."""
        rings = self.kv_exchange == "ring"
        return rings and self.kv_extra_hops_backward < 0 and self.gradient_extra_hops < 0

    def multiple(self, cp_size: int, ring_size: int, partition: Partition) -> int:
        """Tokens of a sequence of which every rank has as many, in whole chunks."""
        zigzag = 2 if partition == "zigzag" and ring_size > 1 else 1
        squared = cp_size if self.rank_multiple_of_ranks else 1
        return cp_size * math.lcm(zigzag, self.rank_multiple, squared) if cp_size > 1 else 1

    @property
    def gathered(self) -> Schedule:
        """The same rules with K and V gathered, their gradients scattered."""
        changes: dict[str, Any] = {"kv_exchange": "gather", "gradient_exchange": "reduce_scatter"}
        return self.model_copy(update=changes)

    def comm_type(self, mesh: Mesh) -> CommType:
        """What Megatron calls the way that a mesh shares a sequence under this schedule."""
        if mesh.ulysses_size == 1:
            return "p2p" if self.kv_exchange == "ring" else "all_gather"
        return "a2a" if mesh.ring_size == 1 else "a2a+p2p"
