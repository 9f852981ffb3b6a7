"""What an implementation refuses, and the nearest layout or implementation that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.findings import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import Schedule


def refusals(scenario: Scenario) -> Iterator[Reason]:
    """List what the schedule of a scenario refuses; one that is only mathematics refuses least."""
    mesh, schedule = scenario.mesh, scenario.schedule
    device = scenario.hardware.device_type
    if device not in schedule.devices:
        kinds = " and ".join(each.upper() + "s" for each in schedule.devices)
        yield Reason(
            "RP115",
            f"{schedule.name} runs on {kinds}, and {scenario.hardware.name} is a {device.upper()}",
            _other(scenario, lambda other: device in other.devices),
            f"no: {kinds} only",
        )
    elif scenario.workload.phase not in schedule.phases:
        yield _phase(scenario)
    elif mesh.cp_size > 1 and not schedule.comm_types:
        yield Reason(
            "RP116",
            f"{schedule.name} shares a cache over tensor-parallel ranks, not over"
            f" cp_size={mesh.cp_size}",
            f"--cp 1 --tp {mesh.tp_size * mesh.cp_size} and mesh.dcp_size, the ranks that share",
            "no: over dcp_size only",
        )
    elif mesh.cp_size > 1:
        yield from _shape(scenario)
        yield from _attention(scenario)
        yield from _batch(scenario)


def _phase(scenario: Scenario) -> Reason:
    schedule, phase = scenario.schedule, scenario.workload.phase
    runs = " and ".join(schedule.phases)
    return Reason(
        "RP115",
        f"{schedule.name} runs {runs}, and this is {phase}",
        _other(scenario, lambda other: phase in other.phases),
        f"no: {runs} only",
    )


def _shape(scenario: Scenario) -> Iterator[Reason]:
    """How the ranks share a sequence, and which tokens they hold."""
    mesh, schedule = scenario.mesh, scenario.schedule
    comm_type = schedule.comm_type(mesh)
    if scenario.workload.phase != "decode" and comm_type not in schedule.comm_types:
        able = " or ".join(schedule.comm_types)
        yield Reason(
            "RP116",
            f"{schedule.name} is {able}, and ulysses_size={mesh.ulysses_size} of"
            f" cp_size={mesh.cp_size} is {comm_type}",
            _degree(scenario),
            f"no: {able} only",
        )
    if mesh.partition not in schedule.partitions and mesh.ring_size > 1:
        able = " or ".join(schedule.partitions)
        yield Reason(
            "RP117",
            f"{schedule.name} deals {able} tokens, not {mesh.partition}",
            f"--partition {schedule.partitions[0]}",
            f"no: {able} only",
        )


def _degree(scenario: Scenario) -> str:
    """Which Ulysses degree the schedule would take."""
    mesh, types = scenario.mesh, scenario.schedule.comm_types
    if "p2p" in types or "all_gather" in types:
        return "--ulysses 1"
    if "a2a" in types:
        return f"--ulysses {mesh.cp_size}"
    inner = [u for u in range(2, min(mesh.cp_size, 4096)) if not mesh.cp_size % u]
    if not inner:
        return f"a cp_size with two factors, not {mesh.cp_size}"
    return f"--ulysses {min(inner, key=lambda u: abs(u - mesh.ulysses_size))}"


def _attention(scenario: Scenario) -> Iterator[Reason]:
    """Masks and kinds of attention."""
    model, schedule = scenario.model, scenario.schedule
    if schedule.causal_only and not scenario.workload.causal:
        yield Reason(
            "RP118",
            f"{schedule.name} is causal, and workload.causal=false",
            _other(scenario, lambda other: not other.causal_only),
            "no: causal only",
        )
    windows = [kind.window for kind in model.kinds if kind.window]
    if windows and not schedule.windows:
        yield Reason(
            "RP118",
            f"{schedule.name} has no sliding windows, and {model.name} has, of"
            f" {min(windows):,} tokens",
            _other(scenario, lambda other: other.windows),
            "no sliding windows",
        )
    if model.has_sinks and not schedule.sinks:
        yield Reason(
            "RP118",
            f"{schedule.name} has no attention sinks, and {model.name} has",
            _other(scenario, lambda other: other.sinks),
            "no attention sinks",
        )


def _batch(scenario: Scenario) -> Iterator[Reason]:
    """Sequences, documents and stages."""
    schedule, work = scenario.schedule, scenario.workload
    most = schedule.max_batch_size
    if most is not None and work.batch_size > most:
        yield Reason(
            "RP119",
            f"{schedule.name} takes {most} sequence, and batch_size={work.batch_size}",
            f"--batch-size {most}, the sequences packed as workload.document_lengths",
            f"no: batch {most}",
        )
    if work.document_lengths and schedule.documents == "none":
        yield Reason(
            "RP119",
            f"{schedule.name} has no packed documents",
            _other(scenario, lambda other: other.documents != "none"),
            "no packed documents",
        )
    if not schedule.pipelines and scenario.mesh.pp_size > 1:
        yield Reason(
            "RP119",
            f"{schedule.name} runs without pipeline stages, and pp_size={scenario.mesh.pp_size}",
            "--pp 1",
            "no pipeline stages",
        )


def _other(scenario: Scenario, runs: Callable[[Schedule], bool]) -> str:
    """Name an implementation of the same kind that runs, or of any."""
    able = [
        other
        for other in scenario.rivals
        if runs(other)
        and scenario.workload.phase in other.phases
        and scenario.hardware.device_type in other.devices
    ]
    alike = [each for each in able if each.comm_types == scenario.schedule.comm_types]
    names = [each.name for each in alike or able]
    return f"--schedule {names[0]}" if names else "leave --schedule out"
