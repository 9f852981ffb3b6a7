"""
What an estimate says: one frozen dataclass a block, base units, every number bound to its formula.

A field made with `metric` takes its unit, scope and equation from the formula that computes it;
the JSON Schema and ``--explain`` read them there. A number that is not computed is None, and
`Estimate.not_counted` says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringplan.costs import attention, axes, collectives, decode, layout, masks, memory, ring

if TYPE_CHECKING:
    from ringplan.costs.formula import Formula


def metric(*formulas: Formula[Any], about: str = "") -> Any:
    """Declare a number and the formulas that may compute it."""
    return field(default=None, metadata={"formulas": formulas, "about": about})


def plain(about: str, unit: str = "", scope: str = "job") -> Any:
    """Declare a field that no formula computes: a word, a flag, or a part of another block."""
    return field(default=None, metadata={"about": about, "unit": unit, "scope": scope})


Number = Any  # float | int | None in use; a Known while an estimate is explained


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """The fullest rank."""

    weights_bytes: Number = metric(memory.weights_bytes)
    kv_bytes: Number = metric(memory.rank_kv_bytes)
    activation_bytes: Number = metric(memory.working_set_bytes, memory.total_bytes)
    logits_bytes: Number = metric(memory.logits_bytes)
    ring_buffer_bytes: Number = metric(memory.total_bytes)
    gradient_bytes: Number = metric(memory.training_state_bytes)
    optimizer_bytes: Number = metric(memory.training_state_bytes)
    overhead_bytes: Number = plain("Context, communicators, graphs.", "B", "rank")
    total_bytes: Number = metric(memory.total_bytes)
    capacity_bytes: Number = plain("What the driver shows.", "B", "rank")
    stage: int | None = plain("Pipeline stage of the fullest rank.", "1", "rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What lies where, and what would fit."""

    kv_bytes_per_token: Number = metric(memory.kv_bytes_per_token)
    kv_constant_bytes: Number = metric(memory.kv_constant_bytes)
    kv_bytes_per_layer: Number = metric(memory.kv_layer_bytes)
    kv_bytes: Number = metric(memory.kv_bytes)
    score_matrix_bytes: Number = metric(memory.score_matrix_bytes)
    fits: Number = metric(memory.fits)
    max_seq_len: Number = metric(memory.max_seq_len)
    min_cp_size: Number = metric(memory.min_cp_size)
    kv_tokens: Number = metric(memory.kv_tokens)
    max_concurrency: Number = metric(memory.max_concurrency)
    not_counted: tuple[str, ...] = plain("Parts of the memory bill that are not computed.")
    rank: RankMemory = plain("The fullest rank.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """One rank and the widest full-attention layer, steady step, mask included."""

    block_tokens: Number = metric(layout.shard_tokens)
    hop_bytes: Number = metric(ring.kv_block_bytes, decode.cache_shard_bytes)
    hops_forward: Number = metric(ring.ring_hops)
    hops_backward: Number = metric(ring.ring_hops, about="Hops of dK and dV.")
    bytes_sent_forward: Number = metric(collectives.hybrid_bytes)
    bytes_sent_backward: Number = metric(collectives.hybrid_bytes)
    bytes_sent_all_layers: Number = metric(ring.bytes_of_layers)
    step_flops: Number = metric(attention.attention_flops)
    step_attention_time: Number = metric(attention.compute_time, decode.roofline_time)
    hop_time: Number = metric(ring.transfer_time)
    overlap_margin: Number = metric(ring.overlap_margin)
    overlap_margin_nominal: Number = metric(ring.overlap_margin, about="At nominal rates.")
    overlap_margin_backward: Number = metric(ring.overlap_margin)
    verdict: str | None = plain("none, exposed, hidden (>= 1.25), marginal (>= 1) or stalled.")
    min_block_tokens: Number = metric(ring.min_block_tokens)
    min_block_tokens_hidden: Number = metric(ring.min_block_tokens, about="Margin 1.25.")
    min_block_tokens_ideal: Number = metric(ring.min_block_tokens_ideal)
    max_cp_size: Number = metric(ring.max_cp_size)
    time_forward: Number = metric(ring.pass_time)
    time_backward: Number = metric(ring.pass_time)
    exposed_time: Number = metric(ring.total_exposure)
    link: str | None = plain("scale_up or scale_out: the link that paces the ring.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUtilization:
    """Useful share of the work slots under a causal mask at this S and P."""

    block_granular: Number = metric(
        masks.contiguous_utilization_blocks, masks.balanced_utilization_blocks
    )
    exact: Number = metric(
        masks.contiguous_utilization, masks.zigzag_utilization, masks.striped_utilization
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """What the causal mask costs, by partition."""

    contiguous: PartitionUtilization = plain("Blocks one after another.")
    zigzag: PartitionUtilization = plain("An early and a late chunk each.")
    striped: PartitionUtilization = plain("Token i on rank i mod P.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another way to share the sequence over the same ranks."""

    schedule: str = plain("Whose rules.")
    comm_type: str = plain("p2p, all_gather, a2a or a2a+p2p.")
    ring_size: int = plain("Ranks in a ring.", "rank")
    ulysses_size: int = plain("Ranks that exchange heads.", "rank")
    partition: str = plain("contiguous, zigzag or striped.")
    feasible: bool = plain("Whether the rules of the layout hold.")
    reasons: tuple[str, ...] = plain("Why not.")
    bytes_sent_forward: Number = metric(collectives.hybrid_bytes, collectives.all_gather_bytes)
    bytes_sent_backward: Number = metric(
        collectives.hybrid_bytes, collectives.all_gather_backward_bytes
    )
    memory_bytes: Number = metric(memory.total_bytes)
    fits: Number = metric(memory.fits)
    time_forward: Number = metric(ring.pass_time)
    exposed_time: Number = metric(ring.total_exposure, collectives.collective_time)
    best: bool = plain("Fastest of those that run and fit.")

    @property
    def label(self) -> str:
        """Name of the row among its kind: comm_type, and the degree of a hybrid."""
        mixed = self.comm_type == "a2a+p2p"
        return f"{self.comm_type}:{self.ulysses_size}" if mixed else self.comm_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What one axis of the mesh costs one rank, all its layers."""

    axis: str = plain("ring, ulysses, tp, pp, fsdp, dp or ep.")
    link: str = plain("scale_up or scale_out.")
    bytes: Number = metric(
        ring.bytes_of_layers,
        axes.tensor_parallel_bytes,
        axes.pipeline_bytes,
        axes.shard_collective_bytes,
        axes.expert_parallel_bytes,
    )
    time: Number = metric(collectives.collective_time)
    exposed_time: Number = metric(
        collectives.collective_time,
        ring.bytes_of_layers,
        about="None where overlap is not modelled.",
    )
    latencies: Number = metric(
        ring.bytes_of_layers,
        axes.tensor_parallel_latencies,
        axes.shard_collective_latencies,
        axes.expert_parallel_latencies,
    )

    @property
    def label(self) -> str:
        """Name of the row among its kind: the axis."""
        return self.axis


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateKV:
    """Every shard of the cache visits every rank."""

    bytes_sent: Number = metric(ring.bytes_of_hops)
    time: Number = metric(decode.rotate_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class StationaryKV:
    """The cache stays; queries and partial outputs travel."""

    bytes_sent: Number = metric(decode.stationary_bytes)
    time: Number = metric(collectives.collective_time)
    latencies: Number = metric(decode.decode_latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """One decode step over this context: one rank, the widest layer."""

    rotate_kv: RotateKV = plain("Every shard visits every rank.")
    stationary_kv: StationaryKV = plain("The cache stays where it is.")
    kv_read_time: Number = metric(decode.memory_read_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """One way to bring queries and cached keys together."""

    bytes_sent: Number = metric(ring.bytes_of_hops, decode.pass_q_bytes)
    time: Number = metric(ring.pass_time, decode.pass_q_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPrefix:
    """New tokens over a cached prefix: one rank, the widest layer."""

    pass_kv: Passing = plain("Keys and values travel.")
    pass_q: Passing = plain("Queries travel, partial outputs return.")
    faster: str | None = plain("pass_kv or pass_q.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """The whole pass."""

    total: Number = plain("The whole pass.", "s")
    attention: Number = plain("Attention with its ring.", "s")
    linear: Number = plain("Everything that acts on one token at a time.", "s")
    exposed_communication: Number = plain("Communication that nothing hides.", "s")
    bubble: Number = plain("Idle pipeline stages.", "s")
    lower: Number = plain("Everything overlaps, best measured rates.", "s")
    upper: Number = plain("Nothing overlaps, low measured rates.", "s")
    tokens_per_second: Number = plain("Tokens per second of the job.", "token/s")
    tokens_per_second_per_device: Number = plain("The same per device.", "token/s", "rank")
    mfu: Number = plain("Model FLOPs over peak.", "1")
    hfu: Number = plain("Hardware FLOPs over peak.", "1")
    usd_per_million_tokens: Number = plain("Cost of tokens.", "USD")
    usd: Number = plain("Cost of the pass.", "USD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Like steps of the busiest rank, in lock-step."""

    steps: str = plain("Which steps.")
    count: int = plain("How many.", "1")
    compute_time: Number = metric(attention.compute_time, decode.roofline_time)
    transfer_time: Number = metric(ring.transfer_time)
    waits: bool = plain("Whether the transfer outlasts the step.")

    @property
    def label(self) -> str:
        """Name of the row among its kind: the steps."""
        return self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Everything that ringplan says of one scenario, in base units."""

    memory: Memory = plain("What lies where.")
    ring: Ring = plain("The attention layer of the layout.")
    utilization: Utilization = plain("What the causal mask costs.")
    alternatives: tuple[Alternative, ...] = plain("The same ranks, used another way.")
    communication: tuple[Communication, ...] = plain("By axis of the mesh.")
    decode: Decode = plain("A decode step over this context.")
    cached_prefix: CachedPrefix | None = plain("pass-KV against pass-Q.")
    time: Time = plain("The whole pass.")
    timeline: tuple[Step, ...] = plain("Steps of the forward pass of the layer.")
    not_counted: dict[str, str] = plain("Each answer that is null, and why.")
