"""From a scenario to its estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.costs import masks
from ringplan.estimation.alternatives import alternatives
from ringplan.estimation.attention import layer
from ringplan.estimation.communication import communication
from ringplan.estimation.decode import cached_prefix, decode_step
from ringplan.estimation.device import device
from ringplan.estimation.job_memory import job_memory
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import numbers
from ringplan.estimation.results import (
    Alternative,
    CachedPrefix,
    Decode,
    Estimate,
    PartitionUtilization,
    Ring,
    Step,
    Time,
    Utilization,
)
from ringplan.estimation.ring_block import ring_block, widest_layer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.estimation.attention import Layer, Pass
    from ringplan.estimation.device import Device
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.scenario import Scenario


def estimate(scenario: Scenario, origin: Callable[[str], str] | None = None) -> Estimate:
    """
    Estimate one scenario.

    Parameters
    ----------
    scenario
        The question.
    origin
        Path to origin in words. With it, every number of the result is a `Known` that can be
        explained; without it they are plain numbers.

    Raises
    ------
    SpecError
        The layout needs a rate or a link that the hardware lacks.
    """
    return estimate_numbers(scenario, numbers(scenario, origin))


def estimate_numbers(scenario: Scenario, x: Numbers) -> Estimate:
    """Estimate a scenario from its numbers, or from others in their place."""
    missing = {"timeline_ranks": "ranks are walked through with --timeline"}
    if x.unknown:
        return _memory_only(x, scenario, missing)
    dev = device(scenario, x)
    layers = [layer(x, kind, dev) for kind in x.kinds if kind.attends]
    widest = widest_layer(x, layers)
    bill = fullest_rank(x, scenario)
    if plain(x.dcp_size) == 1:
        missing["decode.dcp"] = "mesh.dcp_size is 1: no ranks share the tokens of a KV head"
    return Estimate(
        memory=job_memory(x, scenario, bill, missing),
        ring=ring_block(x, dev, layers, missing),
        utilization=_utilization(x),
        alternatives=_alternatives(x, dev, bill, missing),
        communication=_communication(x, dev, layers, missing),
        decode=decode_step(x, widest.kind, dev),
        cached_prefix=_cached_prefix(x, widest, dev, missing),
        time=_time(missing),
        timeline=_timeline(x, widest.forward, missing),
        timeline_ranks=None,
        not_counted=missing,
    )


def _memory_only(x: Numbers, scenario: Scenario, missing: dict[str, str]) -> Estimate:
    """Count memory, of a model without attention or one whose config lacks what the rest needs."""
    model = scenario.model
    lacks = f"{model.name} lacks {', '.join(model.unknown)}"
    why = lacks if model.unknown else f"{model.name} has no attention"
    bill = fullest_rank(x, scenario)
    made = job_memory(x, scenario, bill, missing)
    for block in (Ring, Decode):
        missing |= {f"{block.__name__.lower()}.{name}": why for name in block._fields}
    missing["cached_prefix"] = why
    return Estimate(
        memory=made,
        ring=Ring(),
        utilization=_utilization(x),
        alternatives=(),
        communication=(),
        decode=Decode(),
        cached_prefix=None,
        time=_time(missing),
        timeline=(),
        timeline_ranks=None,
        not_counted=missing,
    )


def _utilization(x: Numbers) -> Utilization:
    tokens = {"seq_len": x.tokens.context, "block_tokens": x.tokens.block}
    balanced = masks.balanced_utilization_blocks(cp_size=x.cp_size)
    return Utilization(
        contiguous=PartitionUtilization(
            block_granular=masks.contiguous_utilization_blocks(cp_size=x.cp_size),
            exact=masks.contiguous_utilization(**tokens),
        ),
        zigzag=PartitionUtilization(
            block_granular=balanced,
            exact=masks.zigzag_utilization(cp_size=x.cp_size, **tokens),
        ),
        striped=PartitionUtilization(
            block_granular=balanced,
            exact=masks.striped_utilization(cp_size=x.cp_size, **tokens),
        ),
    )


def _alternatives(x: Numbers, dev: Device, bill: Any, missing: dict[str, str]) -> Any:
    rows = alternatives(x, dev, bill)
    for row in rows:
        why = "only training goes back" if row.feasible else "a layout that cannot run has none"
        absent = [name for name in Alternative._fields if getattr(row, name) is None]
        missing |= {f"alternatives[{row.label}].{name}": why for name in absent}
    return rows


def _communication(x: Numbers, dev: Device, layers: list[Layer], missing: dict[str, str]) -> Any:
    rows = communication(x, dev, layers)
    for row in rows:
        if row.exposed_time is None:
            missing[f"communication[{row.label}].exposed_time"] = (
                "how much of it the layers hide is not modelled yet"
            )
    return rows


def _cached_prefix(
    x: Numbers, widest: Layer, dev: Device, missing: dict[str, str]
) -> CachedPrefix | None:
    if x.phase == "prefill" and plain(x.tokens.cached) and x.sizes["ring"] > 1:
        return cached_prefix(x, widest, dev)
    missing["cached_prefix"] = "only a prefill over a cached prefix with a ring has this choice"
    return None


def _time(missing: dict[str, str]) -> Time:
    for name in Time._fields:
        missing[f"time.{name}"] = "whole passes are not timed yet; attention layers are, see ring"
    return Time()


def _timeline(x: Numbers, done: Pass, missing: dict[str, str]) -> tuple[Step, ...]:
    if done.hop_time is None:
        return ()
    size = x.sizes["ring"]
    groups = [("0", 1, done.first_step_time, True)]
    if size > 2:
        groups.append((f"1 to {size - 2}", size - 2, done.step_time, True))
    groups.append((f"{size - 1}", 1, done.step_time, False))
    rows = []
    for name, count, compute, sends in groups:
        if not sends:
            missing[f"timeline[{name}].transfer_time"] = "the last step has nothing to send"
        rows.append(
            Step(
                steps=name,
                num_steps=count,
                compute_time=compute,
                transfer_time=done.hop_time if sends else None,
                waits=sends and plain(done.hop_time) > plain(compute),
            )
        )
    return tuple(rows)
