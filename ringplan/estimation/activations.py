"""Activations, scores and logits on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import buffers, layout, memory, working
from ringplan.estimation.leaves import plain
from ringplan.estimation.shapes import shape
from ringplan.specs.recipes import LOGITS

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import Stage
    from ringplan.specs.scenario import Scenario


def chunk_of(x: Numbers, scenario: Scenario) -> Number | None:
    """Tokens of a prefill chunk: the workload's, else the engine's; None is the whole pass."""
    given, engine = scenario.workload.chunk_tokens, scenario.engine.chunk_tokens
    if given:
        return x.leaf("workload.chunk_tokens", given)
    return x.leaf("engine.chunk_tokens", engine) if engine else None


def at_once(x: Numbers, scenario: Scenario) -> tuple[Number, Number]:
    """Sequences, and tokens of each, that one rank computes at once."""
    chunk = chunk_of(x, scenario)
    if x.phase == "train" or chunk is None:
        return x.batch_size, x.tokens.rank
    one = x.leaf.derived("batch_size", 1, "the chunk has the tokens of all sequences")
    tokens = working.chunked_tokens(
        batch_size=x.batch_size,
        # a decoding engine prefills beside: its chunks come from whole contexts
        tokens=x.tokens.block if x.phase == "decode" else x.tokens.rank,
        chunk_tokens=chunk,
        cp_size=x.cp_size,
    )
    return one, tokens


def attention_at_once(x: Numbers, scenario: Scenario) -> tuple[Number, Number]:
    """The same of attention, which data-parallel ranks deal out among them."""
    batch_size, tokens = at_once(x, scenario)
    if x.phase == "train" or chunk_of(x, scenario) is None:
        return x.attention_batch_size, tokens
    share = layout.replica_sequences(batch_size=tokens, attention_dp_size=x.attention_dp_size)
    return batch_size, share


def activations(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Working set of the widest layer and, in training, what is kept of all of them."""
    kinds = [i for i, count in enumerate(stage.layers) if plain(count)] or [0]
    batch_size, tokens = at_once(x, scenario)
    shared = scenario.mesh.sequence_parallel
    residual = x.leaf.derived(
        "residual_shards", x.sizes["tp"] if shared else 1, f"mesh.sequence_parallel={shared}"
    )

    def of_layer(kind: Kind) -> dict[str, Number]:
        return {
            "batch_size": batch_size,
            "hidden_size": x.hidden_size,
            "num_heads": kind.rank_heads,
            "num_kv_heads": kind.rank_kv_heads,
            "head_dim": kind.head_dim,
            "v_head_dim": kind.v_head_dim,
            "intermediate_size": kind.active_intermediate_size,
            "mixer_width": kind.mixer_width,
            "tp_size": x.tp_size,
            "attention_tp_size": x.attention_tp_size,
            "attention_dp_size": x.attention_dp_size,
            "residual_shards": residual,
            "element_bytes": x.activation_bytes,
        }

    widest = max(
        (working.working_set_bytes(query_tokens=tokens, **of_layer(x.kinds[i])) for i in kinds),
        key=plain,
    )
    if x.phase != "train":
        return widest
    flying = working.micro_batches_in_flight(
        num_micro_batches=x.leaf("workload.num_micro_batches", scenario.workload.num_micro_batches),
        pp_size=x.pp_size,
        stage=x.leaf.derived("stage", stage.number, "stages are numbered from 0"),
    )

    def kept(i: int, layers: Number) -> Number:
        own = working.kept_activation_bytes(layers=layers, tokens=tokens, **of_layer(x.kinds[i]))
        if not x.schedule.keeps_gathered or not x.kinds[i].attends or x.sizes["ring"] == 1:
            return own
        others = buffers.kept_gathered_bytes(
            layers=layers,
            cp_size=x.cp_size,
            shard_bytes=shape(x, x.kinds[i]).hop_bytes,
        )
        return memory.total_bytes(parts=(own, others))

    if scenario.workload.recompute != "full":
        every = memory.total_bytes(parts=tuple(kept(i, stage.layers[i]) for i in kinds))
        return memory.total_bytes(parts=(widest, working.in_flight(kept=every, passes=flying)))
    one = x.leaf.derived("layers", 1, "the layer that is recomputed")
    rebuilt = max((kept(i, one) for i in kinds), key=plain)
    boundaries = _boundaries(x, scenario, stage, residual)
    return memory.total_bytes(
        parts=(widest, rebuilt, working.in_flight(kept=boundaries, passes=flying))
    )


def _boundaries(x: Numbers, scenario: Scenario, stage: Stage, residual: Number) -> Number:
    """Bytes of the layer inputs that full recompute keeps on the device."""
    layers = memory.total_layers(layers=stage.layers)
    if "activations" in scenario.workload.offload:
        layers = x.leaf.derived(
            "layers",
            min(2, plain(layers)),
            "offloaded to the host, but for the one in use and the next",
        )
    return working.boundary_bytes(
        layers=layers,
        batch_size=x.batch_size,
        tokens=x.tokens.rank,
        hidden_size=x.hidden_size,
        residual_shards=residual,
        element_bytes=x.activation_bytes,
    )


def scores(x: Numbers, scenario: Scenario) -> Number:
    """Bytes of the scores that attention stores without FlashAttention."""
    if scenario.workload.flash_attention:
        return x.leaf.derived("score_bytes", 0, "FlashAttention stores no scores")
    batch_size, tokens = attention_at_once(x, scenario)
    return working.scores_bytes(
        batch_size=batch_size,
        num_heads=x.kinds[x.widest].rank_heads,
        query_tokens=tokens,
        block_tokens=x.tokens.block,
        accumulator_bytes=x.accumulator_bytes,
    )


def logits(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Bytes of the logits on a stage."""
    work, rows = scenario.workload, scenario.engine.logit_rows
    if not stage.last:
        return x.leaf.derived("logits_bytes", 0, "only the last pipeline stage has logits")
    batch_size, scored = x.batch_size, x.tokens.rank
    bytes_each = x.leaf.derived("bytes_each", 4, f"{x.phase}: fp32")
    if x.phase == "train":
        size, why = LOGITS[work.loss]
        bytes_each = x.leaf.derived("bytes_each", size, f"{work.loss}: {why}")
        if work.loss == "chunked":
            batch_size = x.leaf.derived("batch_size", 1, "a chunk has tokens of any sequence")
            scored = working.chunked_tokens(
                batch_size=x.batch_size,
                tokens=x.tokens.rank,
                chunk_tokens=x.leaf("workload.loss_chunk_tokens", work.loss_chunk_tokens),
                cp_size=x.leaf.derived("cp_size", 1, "each rank has chunks of its own"),
            )
    elif rows:
        batch_size = x.leaf.derived("batch_size", 1, "the engine's rows are of all sequences")
        scored = x.leaf("engine.logit_rows", rows)
    elif x.phase == "prefill":
        scored = x.leaf.derived("tokens", 1, "only the last token")
    return working.logits_bytes(
        batch_size=batch_size,
        tokens=scored,
        vocab_size=x.vocab_size,
        tp_size=x.leaf.derived("tp_size", 1, "the engine gathers whole rows on every rank")
        if scenario.engine.gathers_logits
        else x.tp_size,
        bytes_each=bytes_each,
    )
