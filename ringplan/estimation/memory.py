"""The memory bill of the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.costs import budget, memory
from ringplan.estimation import activations, caches, parameters
from ringplan.estimation.exchange import buffer_bytes
from ringplan.estimation.leaves import plain
from ringplan.estimation.results import RankMemory

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import Stage
    from ringplan.specs.scenario import Scenario


#: Parts of a bill in the order that they are read, and what people call them.
PARTS = {
    "weights_bytes": "weights",
    "kv_bytes": "KV cache",
    "state_bytes": "states",
    "activation_bytes": "activations",
    "score_bytes": "scores",
    "logits_bytes": "logits",
    "ring_buffer_bytes": "buffers",
    "gathered_bytes": "gathered layers",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "overhead_bytes": "overhead",
}


def fullest_rank(x: Numbers, scenario: Scenario) -> RankMemory:
    """Bill every stage that differs and return the one with the least left."""
    return min(stages(x, scenario), key=_left)


def stages(x: Numbers, scenario: Scenario) -> list[RankMemory]:
    """Bill a rank of every stage that differs."""
    return [rank_memory(x, scenario, stage) for stage in x.stages]


def _left(bill: RankMemory) -> float:
    """Bytes left on a rank; of one whose bill is not complete, by its caches alone."""
    if bill.headroom_bytes is not None:
        return float(plain(bill.headroom_bytes))
    return -float(plain(bill.kv_bytes))


def rank_memory(x: Numbers, scenario: Scenario, stage: Stage) -> RankMemory:
    """Bill one rank of a stage, part by part; where the tensors are not known, caches only."""
    known = _caches(x, scenario, stage) | {"overhead_bytes": _overhead(x, scenario)}
    if scenario.model.unknown:
        room, share = _device(x, scenario, stage)
        nothing = x.leaf.derived("outside_bytes", 0, "of the limit itself")
        room = budget.usable_bytes(capacity=room, utilization=share, outside_bytes=nothing)
        return RankMemory(**known, capacity_bytes=room, stage=stage.number)
    parts: dict[str, Number] = {
        "weights_bytes": memory.total_bytes(
            parts=parameters.weights(x, stage.parameters, parameters.shards(x, scenario, 3))
        ),
        **known,
        "activation_bytes": activations.activations(x, scenario, stage),
        "score_bytes": activations.scores(x, scenario),
        "logits_bytes": activations.logits(x, scenario, stage),
        "ring_buffer_bytes": buffer_bytes(x, scenario),
        **parameters.training(x, scenario, stage),
    }
    total = memory.rank_total(**parts)
    capacity = _usable(x, scenario, stage, parts, total)
    return RankMemory(
        **parts,
        total_bytes=total,
        capacity_bytes=capacity,
        headroom_bytes=budget.headroom_bytes(capacity=capacity, total=total),
        kv_budget_bytes=None
        if x.phase == "train"
        else budget.kv_budget_bytes(
            capacity=capacity, total=total, cache_bytes=_cache_bytes(parts)
        ),
        stage=stage.number,
    )


def _caches(x: Numbers, scenario: Scenario, stage: Stage) -> dict[str, Any]:
    if x.phase == "train":
        none = x.leaf.derived("cache", 0, "training keeps no cache: K and V are activations")
        return {"kv_bytes": none, "state_bytes": none}
    return {
        "kv_bytes": caches.rank_kv(x, scenario, stage),
        "state_bytes": caches.rank_state(x, scenario, stage),
    }


def _cache_bytes(parts: dict[str, Number]) -> Number:
    return memory.total_bytes(parts=(parts["kv_bytes"], parts["state_bytes"]))


def _overhead(x: Numbers, scenario: Scenario) -> Number:
    """Bytes of context, communicators and graphs: the engine's, or the hardware's allowance."""
    engine = scenario.engine
    if engine.runtime is None:
        return x.leaf("hardware.memory.overhead", scenario.hardware.memory.overhead)
    return memory.runtime_bytes(**_runtime(x, scenario))


def _runtime(x: Numbers, scenario: Scenario) -> dict[str, Number]:
    """Bytes of an engine's context, communicators and graphs."""
    engine, alone = scenario.engine, plain(x.world_size) == 1
    return {
        "runtime": _given(x, "runtime", engine.runtime),
        "communicators": x.leaf.derived("communicators", 0, "a rank alone needs none")
        if alone
        else _given(x, "communicators", engine.communicators),
        "graphs": _given(x, "graphs", engine.graphs),
    }


def _given(x: Numbers, name: str, value: float | None) -> Number:
    """Give a part of the engine's overhead, or nothing."""
    if value is None:
        return x.leaf.derived(name, 0, f"the engine names no {name}")
    return x.leaf(f"engine.{name}", value)


def _usable(
    x: Numbers, scenario: Scenario, stage: Stage, parts: dict[str, Number], total: Number
) -> Number:
    """Bytes that a rank may fill under the engine's policy."""
    engine = scenario.engine
    capacity, share = _device(x, scenario, stage)
    if engine.kv_cache is not None:
        return budget.usable_with_cache_bytes(
            capacity=capacity,
            beside_bytes=budget.beside_bytes(total=total, kept_bytes=_cache_bytes(parts)),
            cache_bytes=x.leaf("engine.kv_cache", engine.kv_cache),
        )
    if engine.budget == "free_after_load":
        beside = budget.beside_bytes(total=total, kept_bytes=_cache_bytes(parts))
        return budget.usable_beside_bytes(capacity=capacity, beside_bytes=beside, utilization=share)
    if engine.budget == "free_at_start":
        kept = memory.total_bytes(parts=(parts["weights_bytes"], _cache_bytes(parts)))
        return budget.usable_of_free_bytes(
            capacity=capacity,
            runtime=parts["overhead_bytes"]
            if engine.runtime is None
            else memory.total_bytes(parts=tuple(_before_load(x, scenario))),
            utilization=share,
            rest_bytes=budget.beside_bytes(total=total, kept_bytes=kept),
        )
    return budget.usable_bytes(
        capacity=capacity, utilization=share, outside_bytes=_outside(x, scenario)
    )


def _before_load(x: Numbers, scenario: Scenario) -> list[Number]:
    """Bytes that are taken before the engine looks at what is free."""
    parts = _runtime(x, scenario)
    return [parts["runtime"], parts["communicators"]]


def _outside(x: Numbers, scenario: Scenario) -> Number:
    """Bytes that the engine's budget does not count."""
    parts = _runtime(x, scenario)
    nothing = x.leaf.derived("outside_bytes", 0, "everything else is in the budget")
    kept = tuple(parts[name] for name in scenario.engine.outside_budget)
    return memory.total_bytes(parts=(nothing, *kept))


def _device(x: Numbers, scenario: Scenario, stage: Stage) -> tuple[Number, Number]:
    """Memory of a device of the stage, and the share of it that may be used."""
    engine, room = scenario.engine, scenario.hardware.memory
    capacity = x.leaf("hardware.memory.capacity", room.capacity)
    if engine.utilization is not None:
        return stage.memory or capacity, x.leaf("engine.utilization", engine.utilization)
    share = x.leaf("hardware.memory.utilization", room.utilization)
    return stage.memory or capacity, share
