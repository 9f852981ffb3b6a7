"""
What an estimate says: one immutable tuple of named fields a block, base units.

A field declared with `metric` takes its unit, scope and equation from the formula that computes
it; the JSON Schema and ``--explain`` read them there. The declarations stand in the annotations,
which Python does not evaluate until somebody asks, so that they cost an estimate nothing. A
number that is not computed is None, and `Estimate.not_counted` says why.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from ringplan.costs import (
    attention,
    axes,
    budget,
    buffers,
    cache,
    collectives,
    decode,
    fit,
    hiding,
    layout,
    links,
    masks,
    memory,
    model_state,
    rank_cache,
    ring,
    working,
)
from ringplan.costs.formula import Formula


class Declared(NamedTuple):
    """What a field is: in words, its unit and scope, and the formulas that may compute it."""

    about: str
    unit: str
    scope: str
    formulas: tuple[Formula[Any], ...] = ()


def metric(*formulas: Formula[Any], about: str = "") -> Declared:
    """Declare a number by the formulas that may compute it; the first says unit and scope."""
    first = formulas[0]
    return Declared(f"{first.summary}. {about}".strip(), first.unit, first.scope, formulas)


def plain(about: str, unit: str = "", scope: str = "job") -> Declared:
    """Declare a field that no formula computes: a word, a flag, or a part of another block."""
    return Declared(about, unit, scope)


Number = Any  # float | int | None in use; a Known while an estimate is explained


class RankMemory(NamedTuple):
    """One rank: the one with the least left, or one of a stage."""

    weights_bytes: Annotated[Number, metric(memory.total_bytes)] = None
    kv_bytes: Annotated[Number, metric(rank_cache.rank_kv_bytes, rank_cache.with_indexer)] = None
    state_bytes: Annotated[Number, metric(rank_cache.rank_state_bytes)] = None
    activation_bytes: Annotated[Number, metric(working.working_set_bytes, memory.total_bytes)] = (
        None
    )
    score_bytes: Annotated[Number, metric(working.scores_bytes)] = None
    logits_bytes: Annotated[Number, metric(working.logits_bytes)] = None
    ring_buffer_bytes: Annotated[
        Number, metric(buffers.exchange_buffer_bytes, about="In the pass that holds more.")
    ] = None
    gathered_bytes: Annotated[Number, metric(model_state.gathered_layer_bytes)] = None
    gradient_bytes: Annotated[Number, metric(memory.total_bytes)] = None
    optimizer_bytes: Annotated[Number, metric(memory.total_bytes)] = None
    overhead_bytes: Annotated[
        Number, metric(memory.runtime_bytes, about="Context, communicators, graphs.")
    ] = None
    total_bytes: Annotated[Number, metric(memory.rank_total)] = None
    capacity_bytes: Annotated[
        Number,
        metric(
            budget.usable_bytes,
            budget.usable_of_free_bytes,
            budget.usable_beside_bytes,
            budget.usable_with_cache_bytes,
        ),
    ] = None
    headroom_bytes: Annotated[Number, metric(budget.headroom_bytes)] = None
    kv_budget_bytes: Annotated[Number, metric(budget.kv_budget_bytes)] = None
    stage: Annotated[int | None, plain("Pipeline stage of the rank.", "1", "rank")] = None

    @property
    def label(self) -> str:
        """Name of the row among its kind: the stage."""
        return str(self.stage)


class Memory(NamedTuple):
    """What lies where, and what would fit."""

    num_parameters: Annotated[Number, plain("Parameters that are loaded.", "1")]
    num_active_parameters: Annotated[Number, plain("Of them, those a token meets.", "1")]
    kv_bytes_per_token: Annotated[Number, metric(cache.kv_bytes_per_token)]
    kv_bytes_per_token_full: Annotated[
        Number,
        metric(cache.kv_bytes_per_token, about="As if windows kept the whole context."),
    ]
    indexer_bytes_per_token: Annotated[
        Number, metric(cache.kv_bytes_per_token, about="Of indexers' keys.")
    ]
    kv_constant_bytes: Annotated[Number, metric(cache.kv_constant_bytes)]
    state_bytes: Annotated[Number, metric(cache.state_bytes)]
    kv_bytes_per_layer: Annotated[Number, metric(cache.kv_layer_bytes)]
    kv_bytes: Annotated[Number, metric(cache.kv_bytes)]
    score_matrix_bytes: Annotated[Number, metric(cache.score_matrix_bytes)]
    fits: Annotated[Number, metric(fit.fits)]
    max_seq_len: Annotated[Number, metric(fit.max_seq_len)]
    min_cp_size: Annotated[Number, metric(fit.min_cp_size)]
    kv_tokens: Annotated[Number, metric(fit.kv_tokens)]
    max_concurrency: Annotated[Number, metric(fit.max_concurrency, about="By tokens.")]
    max_sequences: Annotated[Number, metric(fit.max_sequences)]
    not_counted: Annotated[
        tuple[str, ...], plain("Parts of the memory bill that are not computed.")
    ]
    rank: Annotated[RankMemory, plain("The rank with the least left.")]
    stages: Annotated[tuple[RankMemory, ...], plain("A rank of each stage that differs.")]


class Ring(NamedTuple):
    """One rank and the widest full-attention layer, steady step, mask included."""

    block_tokens: Annotated[Number, metric(layout.shard_tokens)] = None
    hop_bytes: Annotated[Number, metric(ring.kv_block_bytes, decode.cache_shard_bytes)] = None
    hops_forward: Annotated[
        Number, metric(ring.ring_hops, ring.window_hops, layout.ring_latencies)
    ] = None
    hops_backward: Annotated[
        Number,
        metric(
            ring.ring_hops,
            ring.with_home_hop,
            layout.ring_latencies,
            about="Hops of dK and dV.",
        ),
    ] = None
    bytes_sent_forward: Annotated[Number, metric(collectives.hybrid_bytes)] = None
    bytes_sent_backward: Annotated[Number, metric(collectives.hybrid_bytes)] = None
    bytes_sent_recompute: Annotated[
        Number,
        metric(collectives.hybrid_bytes, about="Of the forward pass that full recompute repeats."),
    ] = None
    bytes_sent_step: Annotated[Number, metric(ring.step_bytes)] = None
    bytes_sent_all_layers: Annotated[
        Number, metric(ring.bytes_of_layers, about="In training of the whole step.")
    ] = None
    step_flops: Annotated[Number, metric(attention.attention_flops)] = None
    step_flops_backward: Annotated[Number, metric(attention.attention_backward_flops)] = None
    step_attention_time: Annotated[Number, metric(attention.compute_time, decode.roofline_time)] = (
        None
    )
    merge_time: Annotated[
        Number,
        metric(decode.memory_read_time, about="Of one step's output into the sums; 0 is fused."),
    ] = None
    hop_time: Annotated[Number, metric(ring.transfer_time)] = None
    overlap_margin: Annotated[Number, metric(ring.overlap_margin)] = None
    overlap_margin_nominal: Annotated[
        Number, metric(ring.overlap_margin, about="At nominal rates.")
    ] = None
    overlap_margin_backward: Annotated[Number, metric(ring.overlap_margin)] = None
    verdict: Annotated[
        str | None, plain("none, exposed, hidden (>= 1.25), marginal (>= 1) or stalled.")
    ] = None
    min_block_tokens: Annotated[Number, metric(hiding.min_block_tokens, hiding.larger_block)] = None
    min_block_tokens_hidden: Annotated[
        Number, metric(hiding.min_block_tokens, hiding.larger_block, about="Margin 1.25.")
    ] = None
    min_block_tokens_ideal: Annotated[Number, metric(hiding.min_block_tokens_ideal)] = None
    max_cp_size: Annotated[Number, metric(hiding.max_cp_size)] = None
    time_forward: Annotated[Number, metric(ring.pass_time)] = None
    time_backward: Annotated[Number, metric(ring.pass_time)] = None
    exposed_time: Annotated[
        Number,
        metric(ring.total_exposure, ring.layer_time, about="In training of the whole step."),
    ] = None
    link: Annotated[str | None, plain("scale_up or scale_out: the link that paces the ring.")] = (
        None
    )


class PartitionUtilization(NamedTuple):
    """Useful share of the work slots under a causal mask at this S and P."""

    block_granular: Annotated[
        Number, metric(masks.contiguous_utilization_blocks, masks.balanced_utilization_blocks)
    ]
    exact: Annotated[
        Number,
        metric(masks.contiguous_utilization, masks.zigzag_utilization, masks.striped_utilization),
    ]


class Utilization(NamedTuple):
    """What the causal mask costs, by partition."""

    contiguous: Annotated[PartitionUtilization, plain("Blocks one after another.")]
    zigzag: Annotated[PartitionUtilization, plain("An early and a late chunk each.")]
    striped: Annotated[PartitionUtilization, plain("Token i on rank i mod P.")]


class Alternative(NamedTuple):
    """Another way to share the sequence over the same ranks."""

    label: Annotated[str, plain("Name of the row: a shape, or an implementation.")]
    schedule: Annotated[str, plain("Whose rules.")]
    implementation: Annotated[bool, plain("Whether somebody wrote it.")]
    comm_type: Annotated[str, plain("p2p, all_gather, a2a, a2a+p2p or decode.")]
    ring_size: Annotated[int, plain("Ranks in a ring.", "rank")]
    ulysses_size: Annotated[int, plain("Ranks that exchange heads.", "rank")]
    partition: Annotated[str, plain("contiguous, zigzag or striped.")]
    feasible: Annotated[bool, plain("Whether the rules of the layout hold.")]
    reasons: Annotated[tuple[str, ...], plain("Why not.")]
    bytes_sent_forward: Annotated[
        Number,
        metric(
            collectives.hybrid_bytes,
            decode.dcp_bytes,
            decode.stationary_bytes,
            ring.bytes_of_hops,
        ),
    ]
    bytes_sent_backward: Annotated[Number, metric(collectives.hybrid_bytes)]
    memory_bytes: Annotated[Number, metric(memory.swapped_bytes, memory.rank_total)]
    fits: Annotated[Number, metric(fit.fits)]
    time_forward: Annotated[Number, metric(ring.pass_time, decode.decode_time)]
    time_backward: Annotated[Number, metric(ring.pass_time, about="In training.")]
    exposed_time: Annotated[
        Number,
        metric(
            ring.total_exposure,
            collectives.collective_time,
            decode.rotate_time,
            ring.layer_time,
            about="Of all passes.",
        ),
    ]
    time: Annotated[
        Number,
        metric(ring.pass_time, ring.layer_time, decode.decode_time, about="All passes of a layer."),
    ]
    best: Annotated[
        bool, plain("Fastest of those that run and fit, of implementations and of the others.")
    ]


class Communication(NamedTuple):
    """What one axis of the mesh costs one rank, all its layers."""

    axis: Annotated[str, plain("ring, ulysses, state, tp, pp, fsdp, dp or ep.")]
    link: Annotated[str, plain("scale_up or scale_out.")]
    bytes: Annotated[
        Number,
        metric(
            ring.bytes_of_layers,
            axes.state_pass_bytes,
            axes.tensor_parallel_bytes,
            axes.pipeline_bytes,
            memory.total_bytes,
            axes.expert_parallel_bytes,
        ),
    ]
    time: Annotated[Number, metric(collectives.collective_time, ring.time_of_layers)]
    exposed_time: Annotated[
        Number,
        metric(
            collectives.collective_time,
            ring.time_of_layers,
            about="None where overlap is not modelled.",
        ),
    ]
    latencies: Annotated[
        Number,
        metric(
            axes.tensor_parallel_latencies,
            ring.latencies_of_layers,
            axes.state_latencies,
            axes.shard_collective_latencies,
            axes.expert_parallel_latencies,
        ),
    ]
    ranks: Annotated[Number, plain("Ranks of a group.", "rank", "group")]
    crossing_hops: Annotated[
        Number, metric(links.crossing_hops, about="Of ranks in their order around the group.")
    ]
    flows_per_node: Annotated[Number, metric(links.flows_per_node)]
    cards_busy: Annotated[Number, metric(links.cards_busy, about="0 where nothing leaves it.")]

    @property
    def label(self) -> str:
        """Name of the row among its kind: the axis."""
        return self.axis


class RotateKV(NamedTuple):
    """Every shard of the cache visits every rank."""

    bytes_sent: Annotated[Number, metric(ring.bytes_of_hops)] = None
    time: Annotated[Number, metric(decode.rotate_time)] = None


class StationaryKV(NamedTuple):
    """The cache stays; queries and partial outputs travel."""

    bytes_sent: Annotated[Number, metric(decode.stationary_bytes)] = None
    time: Annotated[Number, metric(collectives.collective_time)] = None
    latencies: Annotated[Number, metric(decode.decode_latencies)] = None


class Dcp(NamedTuple):
    """Tensor-parallel ranks that share the tokens of a KV head: one decode step, one layer."""

    bytes_sent: Annotated[Number, metric(decode.dcp_bytes)]
    time: Annotated[Number, metric(collectives.collective_time)]
    latencies: Annotated[Number, plain("Exchanges, one after another.", "1", "rank, layer, step")]
    link: Annotated[str, plain("scale_up or scale_out.")]
    break_even_tokens: Annotated[Number, metric(decode.dcp_break_even_tokens)]


class Decode(NamedTuple):
    """One decode step over this context: one rank, the widest layer."""

    rotate_kv: Annotated[RotateKV, plain("Every shard visits every rank.")] = RotateKV()
    stationary_kv: Annotated[StationaryKV, plain("The cache stays where it is.")] = StationaryKV()
    kv_read_time: Annotated[Number, metric(decode.memory_read_time)] = None
    dcp: Annotated[Dcp | None, plain("Decode context parallelism; null without it.")] = None


class Passing(NamedTuple):
    """One way to bring queries and cached keys together."""

    bytes_sent: Annotated[Number, metric(ring.bytes_of_hops, decode.pass_q_bytes)]
    time: Annotated[Number, metric(ring.pass_time, decode.pass_q_time)]


class CachedPrefix(NamedTuple):
    """New tokens over a cached prefix: one rank, the widest layer."""

    pass_kv: Annotated[Passing, plain("Keys and values travel.")]
    pass_q: Annotated[Passing, plain("Queries travel, partial outputs return.")]
    faster: Annotated[str | None, plain("pass_kv or pass_q.")]


class Time(NamedTuple):
    """The whole pass."""

    total: Annotated[Number, plain("The whole pass.", "s")] = None
    attention: Annotated[Number, plain("Attention with its ring.", "s")] = None
    linear: Annotated[Number, plain("Everything that acts on one token at a time.", "s")] = None
    exposed_communication: Annotated[Number, plain("Communication that nothing hides.", "s")] = None
    bubble: Annotated[Number, plain("Idle pipeline stages.", "s")] = None
    lower: Annotated[Number, plain("Everything overlaps, best measured rates.", "s")] = None
    upper: Annotated[Number, plain("Nothing overlaps, low measured rates.", "s")] = None
    tokens_per_second: Annotated[Number, plain("Tokens per second of the job.", "token/s")] = None
    tokens_per_second_per_device: Annotated[
        Number, plain("The same per device.", "token/s", "rank")
    ] = None
    mfu: Annotated[Number, plain("Model FLOPs over peak.", "1")] = None
    hfu: Annotated[Number, plain("Hardware FLOPs over peak.", "1")] = None
    usd_per_million_tokens: Annotated[Number, plain("Cost of tokens.", "USD")] = None
    usd: Annotated[Number, plain("Cost of the pass.", "USD")] = None


class Step(NamedTuple):
    """Like steps of the busiest rank, in lock-step."""

    steps: Annotated[str, plain("Which steps.")]
    num_steps: Annotated[int, plain("How many.", "1")]
    compute_time: Annotated[Number, metric(attention.compute_time, decode.roofline_time)]
    transfer_time: Annotated[Number, metric(ring.transfer_time)]
    waits: Annotated[bool, plain("Whether the transfer outlasts the step.")]

    @property
    def label(self) -> str:
        """Name of the row among its kind: the steps."""
        return self.steps


class RankTime(NamedTuple):
    """One rank of the ring in one direction of the layer; its three times add up to the pass."""

    direction: Annotated[str, plain("forward or backward.")]
    rank: Annotated[int, plain("Place in the ring.", "1", "rank")]
    busy_time: Annotated[Number, plain("Computing and merging.", "s", "rank, layer")]
    exposed_time: Annotated[
        Number, plain("Waiting while a transfer of its own is on the wire.", "s", "rank, layer")
    ]
    idle_time: Annotated[
        Number, plain("Waiting for a rank that is late, or done last.", "s", "rank, layer")
    ]

    @property
    def label(self) -> str:
        """Name of the row among its kind: direction and rank."""
        return f"{self.direction}:{self.rank}"


class Estimate(NamedTuple):
    """Everything that ringplan says of one scenario, in base units."""

    memory: Annotated[Memory, plain("What lies where.")]
    ring: Annotated[Ring, plain("The attention layer of the layout.")]
    utilization: Annotated[Utilization, plain("What the causal mask costs.")]
    alternatives: Annotated[tuple[Alternative, ...], plain("The same ranks, used another way.")]
    communication: Annotated[tuple[Communication, ...], plain("By axis of the mesh.")]
    decode: Annotated[Decode, plain("A decode step over this context.")]
    cached_prefix: Annotated[CachedPrefix | None, plain("pass-KV against pass-Q.")]
    time: Annotated[Time, plain("The whole pass.")]
    timeline: Annotated[tuple[Step, ...], plain("Steps of the forward pass of the layer.")]
    timeline_ranks: Annotated[
        tuple[RankTime, ...] | None,
        plain("With --timeline: where the time of each rank of the ring goes."),
    ]
    not_counted: Annotated[dict[str, str], plain("Each answer that is null, and why.")]
