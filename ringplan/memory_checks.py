"""Rules about memory: what does not fit, why, and what would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.estimation.growth import growth
from ringplan.estimation.memory import PARTS
from ringplan.findings import Finding
from ringplan.remedies import remedies
from ringplan.specs.dtypes import ELEMENT_BYTES
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.estimation.results import Estimate
    from ringplan.specs.scenario import Scenario


def rp110(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The fullest rank does not fit its memory."""
    memory = estimate.memory
    if memory.fits is not False:
        return None
    rank = memory.rank
    return Finding(
        "RP110",
        "error",
        f"the fullest rank needs {show(rank.total_bytes, 'B')}, {show(-rank.headroom_bytes, 'B')}"
        f" more than the {show(rank.capacity_bytes, 'B')} it may use; {_largest(scenario)}",
        "; or ".join(_room(scenario, estimate)),
    )


def _largest(scenario: Scenario) -> str:
    """Name the part that is largest, and how it grows."""
    part = max(growth(scenario), key=lambda each: each.bytes)
    name = PARTS[part.part]
    grows = (
        f"growing by {show(part.bytes_per_token, 'B')} a token of the context"
        if part.bytes_per_token > 0
        else "whatever the context"
    )
    return f"the largest part is {name}, {show(part.bytes, 'B')}, {grows}"


def _room(scenario: Scenario, estimate: Estimate) -> list[str]:
    """Ways to make it fit, each with its new total; last, a shorter context."""
    here = scenario.mesh.world_size
    ways = []
    for remedy in remedies(scenario, estimate.memory):
        more = f", {remedy.num_devices:,} devices" if remedy.num_devices != here else ""
        ways.append(f"{remedy.flags} ({show(remedy.total_bytes, 'B')}{more})")
    if estimate.memory.max_seq_len:
        ways.append(f"--seq-len {estimate.memory.max_seq_len} at this mesh")
    return ways or [NO_MESH]


NO_MESH = (
    "no mesh of up to 8,192 devices fits: a smaller model, --weights-dtype, or more for the engine"
    " (engine.utilization, engine.kv_cache)"
)


def rp114(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A cache of given bytes is more than the device has left."""
    pool, rank = scenario.engine.kv_cache, estimate.memory.rank
    if pool is None or rank.total_bytes is None or scenario.workload.phase == "train":
        return None
    beside = rank.total_bytes - rank.kv_bytes - rank.state_bytes
    device = scenario.device_memory(rank.stage or 0)
    if beside + pool <= device:
        return None
    left = max(device - beside, 0)
    return Finding(
        "RP114",
        "error",
        f"engine.kv_cache is {show(pool, 'B')}, but {show(left, 'B')} are left of"
        f" {show(device, 'B')}",
        f"--set 'engine.kv_cache={int(left)} B' at most",
    )


def rp212(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The config lacks what the whole bill needs."""
    if not scenario.model.unknown:
        return None
    cache = estimate.memory.rank.kv_bytes
    return Finding(
        "RP212",
        "warning",
        f"only caches are counted ({show(cache, 'B')} on the fullest rank):"
        f" {scenario.model.name} lacks {', '.join(scenario.model.unknown)}",
        _give(scenario),
    )


def _give(scenario: Scenario) -> str:
    """Say how to give the fields that a config lacks, where they are fields."""
    fields = [name for name in scenario.model.unknown if name.isidentifier()]
    if len(fields) < len(scenario.model.unknown):
        return "nothing to give: the caches are all that can be counted"
    return "give them in the config, or here: " + " ".join(f"--set model.{f}=..." for f in fields)


def rp205(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A ring on CPUs hides its transfers and is slow all the same."""
    if scenario.hardware.device_type != "cpu":
        return None
    return Finding(
        "RP205",
        "info",
        "a CPU computes so slowly that any network hides the ring: the bottleneck is still there",
        f"on one box, {_smaller_cache(scenario, estimate)}",
    )


def rp214(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A small model on one device does not fit for its cache."""
    memory, rank = estimate.memory, estimate.memory.rank
    serves = scenario.workload.phase != "train" and scenario.mesh.world_size == 1
    small = serves and memory.fits is False and 2 * rank.weights_bytes < rank.capacity_bytes
    if not small or 2 * rank.kv_bytes < rank.capacity_bytes:
        return None
    return Finding(
        "RP214",
        "info",
        f"the model itself is small, {show(rank.weights_bytes, 'B')} of"
        f" {show(rank.capacity_bytes, 'B')}: its cache does not fit",
        f"before more devices, {_smaller_cache(scenario, estimate)}",
    )


def _smaller_cache(scenario: Scenario, estimate: Estimate) -> str:
    """Say what a window, a quantised cache or eviction leave of a sequence, in bytes."""
    memory, work = estimate.memory, scenario.workload
    sequence = work.seq_len * memory.kv_bytes_per_token
    window = min(work.seq_len, WINDOW) * memory.kv_bytes_per_token
    eight = scenario.engine.quantized_kv_dtype
    quantised = sequence * ELEMENT_BYTES[eight] / ELEMENT_BYTES[work.activation_dtype]
    return (
        f"for {show(sequence, 'B')} of K/V a sequence: sliding-window attention of {WINDOW:,}"
        f" tokens ({show(window, 'B')}), a quantised cache (--kv-dtype {eight},"
        f" {show(quantised, 'B')}), or evicting three tokens of four ({show(sequence / 4, 'B')})"
    )


#: Tokens of the sliding window that is compared with, Mistral 7B's.
WINDOW = 4096
