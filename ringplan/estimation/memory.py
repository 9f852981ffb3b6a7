"""The memory bill of the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import cache, collectives, layout, memory, ring
from ringplan.estimation.attention import Shape, exchanged, shape
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
    training = x.phase == "train"
    parts: dict[str, Number] = {
        "weights_bytes": _weights(x, scenario, stage),
        "kv_bytes": x.leaf.derived(
            "kv_bytes", 0, "training keeps no cache: K and V are activations"
        )
        if training
        else _cache(x, stage),
        "activation_bytes": _activations(x, scenario, stage),
        "logits_bytes": _logits(x, stage),
        "ring_buffer_bytes": buffers(x, scenario),
        "overhead_bytes": x.leaf("hardware.memory.overhead", scenario.hardware.memory.overhead),
        **_training(x, scenario, stage),
    }
    return RankMemory(
        **parts,
        total_bytes=memory.total_bytes(parts=tuple(parts.values())),
        capacity_bytes=x.leaf("hardware.memory.capacity", scenario.hardware.memory.capacity),
        stage=stage.number,
    )


def _parameters(x: Numbers, stage: Stage) -> tuple[Number, Number]:
    """Quantised and 16-bit parameters on a rank."""

    def share(part: Parameters) -> Number:
        return memory.rank_parameters(
            replicated=part.replicated,
            tensor=part.tensor,
            kv=part.kv,
            expert=part.expert,
            tp_size=x.tp_size,
            ep_size=x.ep_size,
            num_key_value_heads=tuple(kind.num_key_value_heads for kind in x.kinds),
        )

    return share(stage.quantized), share(stage.unquantized)


def _shards(x: Numbers, scenario: Scenario, from_stage: int) -> Number:
    """Ranks over which ZeRO shards something, from a stage on."""
    zero_stage = scenario.mesh.zero_stage
    count = plain(x.dp_size) * plain(x.cp_size) if zero_stage >= from_stage else 1
    return x.leaf.derived("shards", count, f"mesh.zero_stage={zero_stage} over dp x cp")


def _weights(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    quantized, unquantized = _parameters(x, stage)
    sixteen = x.leaf.derived(
        "unquantized_bytes",
        max(2, plain(x.weights_bytes)),
        "embeddings, head, norms and routers stay in 16 bits",
    )
    return memory.weights_bytes(
        quantized=quantized,
        unquantized=unquantized,
        quantized_bytes=x.weights_bytes,
        unquantized_bytes=sixteen,
        shards=_shards(x, scenario, 3),
    )


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
    block = x.tokens.block

    def held(kind: Kind) -> Number:
        if kind.window is None:
            return block
        if x.partition == "striped":
            evenly = layout.shard_tokens(tokens=kind.window, cp_size=x.cp_size)
            return cache.window_tokens(window=evenly, chunk_tokens=block)
        if x.partition == "zigzag" and x.sizes["ring"] > 1:
            return cache.zigzag_window_tokens(
                window=kind.window, block_tokens=block, seq_len=x.tokens.context
            )
        return cache.window_tokens(window=kind.window, chunk_tokens=block)

    return cache.rank_kv_bytes(
        batch_size=x.batch_size,
        layers=stage.layers,
        tokens=tuple(held(kind) for kind in x.kinds),
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
    scored = (
        x.tokens.rank if x.phase == "train" else x.leaf.derived("tokens", 1, "only the last token")
    )
    return memory.logits_bytes(
        batch_size=x.batch_size,
        tokens=scored,
        vocab_size=x.vocab_size,
        tp_size=x.tp_size,
        bytes_each=x.leaf.derived("bytes_each", LOGIT_BYTES[x.phase], f"{x.phase}, unfused"),
    )


def buffers(x: Numbers, scenario: Scenario, of: Shape | None = None) -> Number:
    """Bytes beside the rank's own tensors: visiting blocks, accumulators, exchanged heads."""
    kind = x.kinds[x.widest]
    s = of or shape(x, kind)
    exchange = collectives.ulysses_buffer_bytes(**exchanged(x, kind, s))
    return memory.total_bytes(parts=(_ring_buffers(x, scenario, s), exchange))


def _ring_buffers(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    travelling = (
        ring.backward_hop_bytes(kv_bytes=s.hop_bytes, gradient_bytes=s.gradient_bytes)
        if x.phase == "train"
        else s.hop_bytes
    )
    return memory.ring_buffer_bytes(
        ring_size=s.ring_size,
        kv_buffers=x.leaf("schedule", scenario.schedule.kv_buffers),
        hop_bytes=travelling,
        batch_size=x.batch_size,
        query_tokens=s.query_tokens,
        num_heads=s.ring_query_heads,
        v_head_dim=s.v_head_dim,
    )


def _training(x: Numbers, scenario: Scenario, stage: Stage) -> dict[str, Number]:
    if x.phase != "train":
        nothing = x.leaf.derived("training state", 0, "inference keeps none")
        return {"gradient_bytes": nothing, "optimizer_bytes": nothing}
    quantized, unquantized = _parameters(x, stage)
    parameters = memory.total_bytes(parts=(quantized, unquantized))
    recipe = scenario.workload.optimizer

    def state(bytes_each: int, why: str, zero_stage: int) -> Number:
        return memory.training_state_bytes(
            parameters=parameters,
            bytes_each=x.leaf.derived("bytes_each", bytes_each, why),
            shards=_shards(x, scenario, zero_stage),
        )

    return {
        "gradient_bytes": state(4, "gradients accumulate in fp32", 2),
        "optimizer_bytes": state(
            OPTIMIZER_BYTES[recipe], f"{recipe}: master copy and moments in fp32", 1
        ),
    }
