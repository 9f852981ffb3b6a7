"""What a rank may fill, as arithmetic that can be followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.assess import lacking
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.estimation.results import RankMemory
    from ringplan.specs.scenario import Scenario

#: What may be filled, by what an engine's utilization is a share of.
_SHARES: Final = {
    "total": "may fill {share} of {device}",
    "free_at_start": "weights and cache may fill {share} of what is free at start on {device}",
    "free_after_load": "the cache may fill {share} of what all else leaves free on {device}",
}
_WINDOWS: Final = {
    "capped": "sliding-window layers cache their window",
    "full": "sliding-window layers are charged in full",
    "share": "sliding-window layers have {share:g} % of a full layer's pool",
}


def policy(scenario: Scenario) -> str:
    """Return the policy of the engine in one line."""
    engine = scenario.engine
    chunk = scenario.workload.chunk_tokens or engine.chunk_tokens
    room = _SHARES[engine.budget].format(share=_percent(_share(scenario)), device="a device")
    if engine.kv_cache is not None:
        room = f"the cache gets {show(engine.kv_cache, 'B')} a rank"
    parts = [
        room,
        f"chunks of {chunk:,} tokens" if chunk else "prefill in one piece",
        f"pages of {engine.page_tokens:,} token{'s' * (engine.page_tokens > 1)}",
    ]
    if any(kind.window for kind in scenario.model.kinds):
        parts.append(_WINDOWS[engine.window_cache].format(share=100 * engine.window_share))
    return f"{engine.title}: {'; '.join(parts)}"


def _share(scenario: Scenario) -> float:
    own = scenario.engine.utilization
    return scenario.hardware.memory.utilization if own is None else own


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def limit(scenario: Scenario, rank: RankMemory) -> str:
    """Derive the capacity from the device, and say who says so."""
    if scenario.model.unknown:
        return f"{_of_device(scenario, rank)}; not known: {lacking(scenario.model)}"
    if scenario.engine.kv_cache is not None:
        return _with_cache(scenario, rank, scenario.engine.kv_cache)
    match scenario.engine.budget:
        case "free_at_start":
            return _of_free(scenario, rank)
        case "free_after_load":
            return _beside(scenario, rank)
        case _:
            return _of_device(scenario, rank)


def _owner(scenario: Scenario) -> str:
    """Name the fields that give the share and, where it is no device's, the memory."""
    share = "hardware.memory" if scenario.engine.utilization is None else "engine"
    stages = " of mesh.pp_memory" if scenario.mesh.pp_memory is not None else ""
    return f"({share}.utilization{stages})"


def _of_device(scenario: Scenario, rank: RankMemory) -> str:
    """A share of the device, and what lies beside it."""
    device, share = scenario.device_memory(rank.stage or 0), _share(scenario)
    text = f"capacity: {_percent(share)} of {show(device, 'B')}"
    if share < 1:
        text += f" is {show(share * device, 'B')}"
    text += f" {_owner(scenario)}"
    outside = rank.capacity_bytes - share * device
    parts = [name for name in _parts(scenario) if name in scenario.engine.outside_budget]
    if parts and outside > 0:
        lie = "lies" if len(parts) == 1 else "lie"
        text += f"; {' and '.join(parts)}, {show(outside, 'B')}, {lie} beside it"
    return text


def _parts(scenario: Scenario) -> dict[str, float]:
    """Parts of the overhead that the engine names; a rank alone has no communicators."""
    engine, alone = scenario.engine, scenario.mesh.world_size == 1
    parts = {
        "runtime": engine.runtime,
        "communicators": None if alone else engine.communicators,
        "graphs": engine.graphs,
    }
    return {name: size for name, size in parts.items() if size}


def _of_free(scenario: Scenario, rank: RankMemory) -> str:
    """A share of what is free at start, for weights and caches; the rest lies beside it."""
    device, share = scenario.device_memory(rank.stage or 0), _share(scenario)
    parts = {name: size for name, size in _parts(scenario).items() if name != "graphs"}
    if scenario.engine.runtime is None:
        parts = {"overhead": rank.overhead_bytes}
    free = device - sum(parts.values())
    less = f" less {' and '.join(parts)} leaves {show(free, 'B')}" if parts else " is"
    rest = _without_cache(rank) - rank.weights_bytes
    most = ", as far as it has room" if share * free + rest > device else ""
    return (
        f"capacity: {show(device, 'B')}{less} free at start; {_percent(share)} of that,"
        f" {show(share * free, 'B')}, is for weights and cache {_owner(scenario)}; all else,"
        f" {show(rest, 'B')}, lies beside it{most}"
    )


def _without_cache(rank: RankMemory) -> float:
    return float(rank.total_bytes - rank.kv_bytes - rank.state_bytes)


def _with_cache(scenario: Scenario, rank: RankMemory, cache: float) -> str:
    """Everything but caches, and what caches are given."""
    device, beside = scenario.device_memory(rank.stage or 0), _without_cache(rank)
    text = f"capacity: all but the cache is {show(beside, 'B')}, and the cache gets"
    text += f" {show(cache, 'B')} (engine.kv_cache)"
    return f"{text}; the device has {show(device, 'B')}" if beside + cache > device else text


def _beside(scenario: Scenario, rank: RankMemory) -> str:
    """Everything but caches, and a share of what that leaves."""
    device, share = scenario.device_memory(rank.stage or 0), _share(scenario)
    beside = _without_cache(rank)
    text = f"capacity: all but the cache is {show(beside, 'B')}"
    if beside >= device:
        return f"{text}, more than the {show(device, 'B')} of the device {_owner(scenario)}"
    left = device - beside
    return (
        f"{text} and leaves {show(left, 'B')} of {show(device, 'B')}; the cache may fill"
        f" {_percent(share)} of that, {show(share * left, 'B')} {_owner(scenario)}"
    )
