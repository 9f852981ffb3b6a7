"""The memory bill of the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import buffers, cache, memory
from ringplan.estimation.attention import Shape, exchanged, held_tokens, shape
from ringplan.estimation.numbers import plain
from ringplan.estimation.results import RankMemory

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Kind, Numbers, Parameters, Stage
    from ringplan.specs.scenario import Scenario

#: Bytes of optimizer state a parameter, by recipe (Rajbhandari et al. 2020, section 3).
OPTIMIZER_BYTES = {"adamw": 12, "sgd": 4}
#: Bytes a logit: fp32 in inference; 16-bit logits, fp32 copy and fp32 gradient in training.
LOGIT_BYTES = {"prefill": 4, "decode": 4, "train": 10}


def fullest_rank(x: Numbers, scenario: Scenario) -> RankMemory:
    """Bill every stage that differs and return the fullest."""
    bills = [rank_memory(x, scenario, stage) for stage in x.stages]
    return max(bills, key=lambda bill: plain(bill.total_bytes))


def rank_memory(x: Numbers, scenario: Scenario, stage: Stage) -> RankMemory:
    """Bill one rank of a stage, part by part."""
    training, room = x.phase == "train", scenario.hardware.memory
    parts: dict[str, Number] = {
        "weights_bytes": _weights(x, scenario, stage),
        "kv_bytes": x.leaf.derived(
            "kv_bytes", 0, "training keeps no cache: K and V are activations"
        )
        if training
        else _cache(x, stage),
        "activation_bytes": _activations(x, scenario, stage),
        "logits_bytes": _logits(x, stage),
        "ring_buffer_bytes": buffer_bytes(x, scenario),
        "overhead_bytes": x.leaf("hardware.memory.overhead", room.overhead),
        **_training(x, scenario, stage),
    }
    return RankMemory(
        **parts,
        total_bytes=memory.rank_total(**parts),
        capacity_bytes=memory.usable_bytes(
            capacity=x.leaf("hardware.memory.capacity", room.capacity),
            utilization=x.leaf("hardware.memory.utilization", room.utilization),
        ),
        stage=stage.number,
    )


def by_class(x: Numbers, stage: Stage) -> tuple[tuple[Number, Number], tuple[Number, Number]]:
    """Quantised and 16-bit parameters on a rank: of all but routed experts, and of those."""

    def dense(part: Parameters) -> Number:
        return memory.dense_parameters(
            replicated=part.replicated,
            tensor=part.tensor,
            kv=part.kv,
            tp_size=x.tp_size,
            num_key_value_heads=tuple(kind.num_key_value_heads for kind in x.kinds),
        )

    def experts(part: Parameters) -> Number:
        return memory.expert_parameters(expert=part.expert, tp_size=x.tp_size, ep_size=x.ep_size)

    quantized, unquantized = stage.quantized, stage.unquantized
    return (dense(quantized), dense(unquantized)), (experts(quantized), experts(unquantized))


def _shards(x: Numbers, scenario: Scenario, from_stage: int) -> tuple[Number, Number]:
    """Ranks over which ZeRO shards dense parameters and experts, from a stage on."""
    zero_stage, ep_size = scenario.mesh.zero_stage, scenario.mesh.ep_size
    ranks = plain(x.dp_size) * plain(x.cp_size) if zero_stage >= from_stage else 1
    why = f"mesh.zero_stage={zero_stage}"
    dense = x.leaf.derived("shards", ranks, f"{why} over dp x cp")
    return dense, x.leaf.derived("shards", max(ranks // ep_size, 1), f"{why} over dp x cp / ep")


def _weights(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    shards = _shards(x, scenario, 3)
    return memory.total_bytes(parts=weights(x, stage, shards))


def weights(x: Numbers, stage: Stage, shards: tuple[Number, Number]) -> tuple[Number, Number]:
    """Bytes of the weights on a rank, dense and experts, each over its shards."""
    sixteen = x.leaf.derived(
        "unquantized_bytes",
        max(2, plain(x.weights_bytes)),
        "embeddings, head, norms and routers stay in 16 bits",
    )
    dense, experts = (
        memory.weights_bytes(
            quantized=quantized,
            unquantized=unquantized,
            quantized_bytes=x.weights_bytes,
            unquantized_bytes=sixteen,
            shards=count,
        )
        for (quantized, unquantized), count in zip(by_class(x, stage), shards, strict=True)
    )
    return dense, experts


def elements_on_rank(kind: Kind) -> Number:
    """Cached elements a token and layer on one rank; MLA's latent is whole on each."""
    if kind.latent_dim is not None:
        return kind.latent_dim
    return cache.cached_elements(
        num_kv_heads=kind.rank_kv_heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
    )


def _cache(x: Numbers, stage: Stage) -> Number:
    return cache.rank_kv_bytes(
        batch_size=x.batch_size,
        layers=stage.layers,
        tokens=tuple(held_tokens(x, kind) for kind in x.kinds),
        elements=tuple(elements_on_rank(kind) for kind in x.kinds),
        element_bytes=x.kv_bytes,
    )


def _activations(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Working set of the widest layer and, in training, what is kept of all of them."""
    kinds = [i for i, count in enumerate(stage.layers) if plain(count)] or [0]

    shared = scenario.mesh.sequence_parallel
    residual = x.leaf.derived(
        "residual_shards", x.sizes["tp"] if shared else 1, f"mesh.sequence_parallel={shared}"
    )

    def of_layer(kind: Kind) -> dict[str, Number]:
        return {
            "batch_size": x.batch_size,
            "hidden_size": x.hidden_size,
            "num_heads": kind.rank_heads,
            "num_kv_heads": kind.rank_kv_heads,
            "head_dim": kind.head_dim,
            "v_head_dim": kind.v_head_dim,
            "intermediate_size": kind.active_intermediate_size,
            "tp_size": x.tp_size,
            "residual_shards": residual,
            "element_bytes": x.activation_bytes,
        }

    widest = max(
        (
            memory.working_set_bytes(query_tokens=x.tokens.rank, **of_layer(x.kinds[i]))
            for i in kinds
        ),
        key=plain,
    )
    if x.phase != "train":
        return widest
    kept = [
        memory.boundary_bytes(
            layers=stage.layers[i],
            batch_size=x.batch_size,
            tokens=x.tokens.rank,
            hidden_size=x.hidden_size,
            residual_shards=residual,
            element_bytes=x.activation_bytes,
        )
        if scenario.workload.recompute == "full"
        else memory.kept_activation_bytes(
            layers=stage.layers[i], tokens=x.tokens.rank, **of_layer(x.kinds[i])
        )
        for i in kinds
    ]
    return memory.total_bytes(parts=(widest, *kept))


def _logits(x: Numbers, stage: Stage) -> Number:
    if not stage.last:
        return x.leaf.derived("logits_bytes", 0, "only the last pipeline stage has logits")
    scored = x.tokens.rank
    if x.phase == "prefill":
        scored = x.leaf.derived("tokens", 1, "only the last token")
    return memory.logits_bytes(
        batch_size=x.batch_size,
        tokens=scored,
        vocab_size=x.vocab_size,
        tp_size=x.tp_size,
        bytes_each=x.leaf.derived("bytes_each", LOGIT_BYTES[x.phase], f"{x.phase}, unfused"),
    )


def buffer_bytes(x: Numbers, scenario: Scenario, of: Shape | None = None) -> Number:
    """Bytes beside the rank's own tensors, in the pass that holds more; training runs both."""
    if x.phase == "decode":
        return x.leaf.derived("buffers", 0, "decode leaves the cache where it is")
    kind = x.kinds[x.widest]
    s = of or shape(x, kind)
    sizes = exchanged(x, kind, s)
    qkv = buffers.exchanged_qkv_bytes(**sizes)
    out = buffers.exchanged_out_bytes(
        **{name: size for name, size in sizes.items() if name not in ("num_kv_heads", "head_dim")}
    )
    forward = buffers.exchange_buffer_bytes(
        arrived_bytes=qkv, ring_buffer_bytes=_ring_forward(x, scenario, s), leaving_bytes=out
    )
    if x.phase != "train":
        return forward
    backward = buffers.exchange_buffer_bytes(
        arrived_bytes=out, ring_buffer_bytes=_ring_backward(x, scenario, s), leaving_bytes=qkv
    )
    return max(forward, backward, key=plain)


def _ring_forward(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    return buffers.ring_buffer_bytes(
        ring_size=s.ring_size,
        kv_buffers=x.leaf("schedule.kv_buffers", scenario.schedule.kv_buffers),
        hop_bytes=s.hop_bytes,
        batch_size=x.batch_size,
        query_tokens=s.query_tokens,
        num_heads=s.ring_query_heads,
        v_head_dim=s.v_head_dim,
        accumulator_bytes=x.accumulator_bytes,
    )


def _ring_backward(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    schedule = scenario.schedule
    return buffers.ring_backward_buffer_bytes(
        ring_size=s.ring_size,
        kv_buffers=x.leaf("schedule.kv_buffers", schedule.kv_buffers),
        last_blocks=x.leaf.derived(
            "last_blocks",
            int(schedule.reverses),
            f"schedule {schedule.name} starts from {_STARTS[schedule.reverses]}",
        ),
        hop_bytes=s.hop_bytes,
        gradient_bytes=s.gradient_bytes,
        query_gradient_bytes=query_gradient(x, s),
    )


_STARTS = {True: "the last block received", False: "the rank's own block"}


def query_gradient(x: Numbers, s: Shape) -> Number:
    """Bytes of dQ and its statistics inside the ring."""
    return buffers.query_gradient_bytes(
        batch_size=x.batch_size,
        query_tokens=s.query_tokens,
        num_heads=s.ring_query_heads,
        head_dim=s.head_dim,
        accumulator_bytes=x.accumulator_bytes,
    )


def _training(x: Numbers, scenario: Scenario, stage: Stage) -> dict[str, Number]:
    if x.phase != "train":
        nothing = x.leaf.derived("training state", 0, "inference keeps none")
        return {"gradient_bytes": nothing, "optimizer_bytes": nothing}
    recipe = scenario.workload.optimizer
    kept = (OPTIMIZER_BYTES[recipe], f"{recipe}: master copy and moments in fp32")
    return {
        "gradient_bytes": memory.total_bytes(
            parts=gradients(x, stage, _shards(x, scenario, 2), *GRADIENTS)
        ),
        "optimizer_bytes": memory.total_bytes(
            parts=gradients(x, stage, _shards(x, scenario, 1), *kept)
        ),
    }


#: Bytes of a gradient, and why.
GRADIENTS = (4, "gradients accumulate in fp32")


def gradients(
    x: Numbers, stage: Stage, shards: tuple[Number, Number], bytes_each: int, why: str
) -> tuple[Number, Number]:
    """Bytes of a training state on a rank, of dense parameters and of experts."""
    each = x.leaf.derived("bytes_each", bytes_each, why)
    dense, experts = (
        memory.training_state_bytes(
            parameters=memory.total_parameters(quantized=quantized, unquantized=unquantized),
            bytes_each=each,
            shards=count,
        )
        for (quantized, unquantized), count in zip(by_class(x, stage), shards, strict=True)
    )
    return dense, experts
