"""Weights and training state on one rank: what is cut, what is sharded, what is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import memory, model_state
from ringplan.estimation.leaves import plain
from ringplan.estimation.stages import copies_outside, layer_parameters, tensor_parameters
from ringplan.specs.dtypes import ELEMENT_BYTES
from ringplan.specs.recipes import OPTIMIZERS

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import ByFormat, Parameters, Stage
    from ringplan.specs.scenario import Scenario

#: Bytes of dense parameters, and of routed experts.
Pair = tuple["Number", "Number"]


def by_class(x: Numbers, of: ByFormat) -> list[dict[str, Number]]:
    """Parameters on a rank by format: of all but routed experts, and of those."""

    def dense(part: Parameters) -> Number:
        return model_state.dense_parameters(
            replicated=part.replicated,
            tensor=part.tensor,
            heads=part.heads,
            kv=part.kv,
            tp_size=x.tp_size,
            attention_tp_size=x.attention_tp_size,
            num_key_value_heads=tuple(kind.num_key_value_heads for kind in x.kinds),
        )

    def experts(part: Parameters) -> Number:
        return model_state.expert_parameters(
            expert=part.expert, tp_size=x.tp_size, ep_size=x.ep_size
        )

    formats = of._asdict().items()
    return [{name: count(part) for name, part in formats} for count in (dense, experts)]


def shards(x: Numbers, scenario: Scenario, from_stage: int) -> Pair:
    """Ranks over which ZeRO shards dense parameters and experts, from a stage on."""
    zero_stage, ep_size = scenario.mesh.zero_stage, scenario.mesh.ep_size
    ranks = plain(x.dp_size) * plain(x.cp_size) if zero_stage >= from_stage else 1
    why = f"mesh.zero_stage={zero_stage}"
    dense = x.leaf.derived("shards", ranks, f"{why} over dp x cp")
    return dense, x.leaf.derived("shards", max(ranks // ep_size, 1), f"{why} over dp x cp / ep")


def weights(x: Numbers, of: ByFormat, over: Pair) -> Pair:
    """Bytes of weights on a rank, dense and experts, each over its shards."""
    dense, experts = (
        model_state.weights_bytes(
            **parameters,
            quantized_bytes=x.weights_bytes,
            embedding_bytes=x.embedding_bytes,
            unquantized_bytes=x.unquantized_bytes,
            shards=count,
        )
        for parameters, count in zip(by_class(x, of), over, strict=True)
    )
    return dense, experts


def gradient_size(x: Numbers, scenario: Scenario) -> Number:
    """Bytes of a gradient: the recipe's, or what the workload says."""
    work = scenario.workload
    recipe, dtype = OPTIMIZERS[work.optimizer], work.gradient_dtype
    if dtype is not None:
        return x.leaf("workload.gradient_dtype", ELEMENT_BYTES[dtype])
    return x.leaf.derived("bytes_each", recipe.gradient, f"{work.optimizer}: {recipe.why}")


def training_state(x: Numbers, of: ByFormat, over: Pair, bytes_each: Number) -> Pair:
    """Bytes of a training state on a rank, of dense parameters and of experts."""
    dense, experts = (
        model_state.training_state_bytes(
            parameters=model_state.total_parameters(**parameters),
            bytes_each=bytes_each,
            shards=count,
        )
        for parameters, count in zip(by_class(x, of), over, strict=True)
    )
    return dense, experts


def training(x: Numbers, scenario: Scenario, stage: Stage) -> dict[str, Number]:
    """Bytes of gradients, optimizer, and of layers that are whole for a while."""
    work = scenario.workload
    if x.phase != "train":
        nothing = x.leaf.derived("training state", 0, "inference keeps none")
        kept = dict.fromkeys(("gradient_bytes", "optimizer_bytes"), nothing)
        return kept | {"gathered_bytes": _gathered(x, scenario, stage)}
    recipe = OPTIMIZERS[work.optimizer]
    state = x.leaf.derived("bytes_each", recipe.state, f"{work.optimizer}: {recipe.why}")
    moments = training_state(x, stage.parameters, shards(x, scenario, 1), state)
    gradients = training_state(
        x, stage.parameters, shards(x, scenario, 2), gradient_size(x, scenario)
    )
    return {
        "gradient_bytes": memory.total_bytes(parts=gradients),
        "optimizer_bytes": x.leaf.derived("optimizer_bytes", 0, "offloaded to the host")
        if "optimizer" in work.offload
        else memory.total_bytes(parts=moments),
        "gathered_bytes": _gathered(x, scenario, stage),
    }


def _gathered(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Bytes of the largest unit of a stage while it is whole: a layer, or embeddings and head."""
    zero_stage, training = scenario.mesh.zero_stage, x.phase == "train"
    if plain(x.dp_size) * plain(x.cp_size) == 1 or zero_stage < (2 if training else 3):
        return x.leaf.derived("gathered_bytes", 0, f"mesh.zero_stage={zero_stage} gathers nothing")
    one = x.leaf.derived("shards", 1, "what runs is whole")
    why = f"mesh.zero_stage={zero_stage}"
    ahead = x.leaf.derived("copies", 2 if zero_stage == 3 else 0, f"{why}: this layer, the next")
    alone = x.leaf.derived("copies", 1 if zero_stage == 3 else 0, f"{why}: what is in no layer")

    def of(unit: ByFormat, copies: Number) -> Number:
        gradient = training_state(x, unit, (one, one), gradient_size(x, scenario))
        return model_state.gathered_layer_bytes(
            layer_weights_bytes=memory.total_bytes(parts=weights(x, unit, (one, one))),
            copies=copies,
            layer_gradient_bytes=memory.total_bytes(parts=gradient)
            if training
            else x.leaf.derived("layer_gradient_bytes", 0, "inference has none"),
        )

    units = [
        of(layer_parameters(x.leaf, scenario.model, kind), ahead)
        for kind, count in enumerate(stage.layers)
        if plain(count)
    ]
    units += [
        of(tensor_parameters(x.leaf, scenario.model, tensor), alone)
        for tensor in scenario.model.tensors
        if tensor.embeds
        and copies_outside(tensor, first=stage.number == 0, last=stage.last, drafts=0)
    ]
    return max(units, key=plain)
