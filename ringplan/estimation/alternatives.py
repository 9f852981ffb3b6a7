"""The same ranks, used another way: ring, all-gather, Ulysses, hybrids, and whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import collectives, fit, memory
from ringplan.estimation.attention import of_step, run, ulysses_exchange
from ringplan.estimation.decode_ways import decode_ways, mark_best
from ringplan.estimation.domains import inner_ring
from ringplan.estimation.exchange import buffer_bytes
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import with_schedule, with_ulysses
from ringplan.estimation.results import Alternative
from ringplan.estimation.shapes import shape
from ringplan.estimation.transfers import volume
from ringplan.feasibility import reasons

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.costs.numeric import Number
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory
    from ringplan.estimation.shapes import Shape
    from ringplan.specs.mesh import Mesh
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import CommType, Schedule


class Asked(NamedTuple):
    """What a candidate is compared with: the layout that was asked for, and its bill."""

    device: Device
    bill: RankMemory
    buffers: Number


def alternatives(x: Numbers, device: Device, bill: RankMemory) -> tuple[Alternative, ...]:
    """Cost every way to share the sequence over cp_size ranks, and mark the fastest that runs."""
    if x.phase == "decode":
        return decode_ways(x, device, bill)
    if plain(x.cp_size) == 1:
        return ()
    asked = Asked(device, bill, buffer_bytes(x, device.scenario))
    own = device.scenario.schedule
    rows = [
        _row(x, asked, schedule, mesh)
        for schedule, mesh in _shapes(own, own.comm_types, device.scenario.mesh, x)
    ]
    for rival in device.scenario.rivals:
        if x.phase not in rival.phases or device.profile.device_type not in rival.devices:
            continue
        several = _shapes(rival, rival.comm_types[:1], device.scenario.mesh, x)
        rows += _fastest([_row(x, asked, schedule, mesh) for schedule, mesh in several])
    return mark_best(rows)


def _shapes(
    schedule: Schedule, comm_types: tuple[CommType, ...], mesh: Mesh, x: Numbers
) -> Iterator[tuple[Schedule, Mesh]]:
    """Every way in which a schedule can share the sequence over the ranks of a mesh."""
    ranks, heads = mesh.cp_size, plain(x.kinds[x.widest].num_attention_heads)
    partition = mesh.partition
    if partition not in schedule.partitions:
        partition = schedule.partitions[0]
    degrees = {
        "p2p": [1],
        "all_gather": [1],
        "a2a+p2p": [u for u in range(2, min(ranks, heads + 1)) if not ranks % u],
        "a2a": [ranks],
    }
    for comm_type, several in degrees.items():
        if comm_type not in comm_types:
            continue
        rules = schedule
        if comm_type == "all_gather" and schedule.kv_exchange == "ring":
            rules = schedule.gathered
        for ulysses in several:
            fields = {"ulysses_size": ulysses, "partition": partition, "schedule": schedule.name}
            yield rules, mesh.model_copy(update=fields)


def _fastest(rows: list[Alternative]) -> list[Alternative]:
    """Of the ways of one implementation the fastest that runs, or the first that does not."""
    able = [row for row in rows if row.time is not None]
    return [min(able, key=lambda row: plain(row.time))] if able else rows[:1]


def _row(x: Numbers, asked: Asked, schedule: Schedule, mesh: Mesh) -> Alternative:
    scenario = asked.device.scenario.model_copy(update={"schedule": schedule, "mesh": mesh})
    device = asked.device._replace(scenario=scenario)
    own = schedule.name == x.schedule.name  # with the formats that the numbers have already
    x = x._replace(schedule=schedule) if own else with_schedule(x, schedule)
    x = with_ulysses(x, mesh.ulysses_size)
    window = x.leaf.derived("inner_ring_size", inner_ring(scenario), "neighbours in one domain")
    x = x._replace(partition=mesh.partition, inner_ring_size=window)
    kind = x.kinds[x.widest]
    s = shape(x, kind)
    why = reasons(scenario)
    times = _Times() if why else _times(x, kind, device, s)  # what cannot run has no time
    total, capacity = _memory(x, asked, scenario, s)
    comm_type = schedule.comm_type(mesh)
    return Alternative(
        label=_label(schedule, comm_type, mesh.ulysses_size),
        schedule=schedule.name,
        implementation=schedule.implementation,
        comm_type=comm_type,
        ring_size=x.sizes["ring"],
        ulysses_size=mesh.ulysses_size,
        partition=mesh.partition,
        feasible=not why,
        reasons=tuple(reason.brief for reason in why),
        bytes_sent_forward=_sent(x, kind, s, backward=False),
        bytes_sent_backward=_sent(x, kind, s, backward=True),
        memory_bytes=total,
        fits=fit.fits(total=total, capacity=capacity),
        **times._asdict(),
        best=False,
    )


class _Times(NamedTuple):
    time_forward: Number | None = None
    time_backward: Number | None = None
    exposed_time: Number | None = None
    time: Number | None = None


def _times(x: Numbers, kind: Kind, device: Device, s: Shape) -> _Times:
    """Time the passes of a layer: forward and, in training, what follows."""
    forward = run(x, kind, device, s)
    if x.phase != "train":
        return _Times(forward.time, None, forward.exposed_time, forward.time)
    backward = run(x, kind, device, s, backward=True)
    return _Times(
        time_forward=forward.time,
        time_backward=backward.time,
        exposed_time=of_step(x, forward.exposed_time, backward.exposed_time),
        time=of_step(x, forward.time, backward.time),
    )


def _label(schedule: Schedule, comm_type: CommType, ulysses: int) -> str:
    """Name a row: of an implementation by the schedule, where that is not enough by its shape."""
    shape_of = f"{comm_type}:{ulysses}" if comm_type == "a2a+p2p" else comm_type
    if not schedule.implementation:
        return shape_of
    return schedule.name if len(schedule.comm_types) == 1 else f"{schedule.name}:{shape_of}"


def _memory(x: Numbers, asked: Asked, scenario: Scenario, s: Shape) -> tuple[Number, Number]:
    """Bytes of the fullest rank, and what it may fill."""
    own, schedule, bill = asked.device.scenario.schedule, scenario.schedule, asked.bill
    kept = ("keeps_gathered", "cache_replicated")
    # windows are dealt another way too, and some engines' limits depend on the rest of the bill
    if (
        scenario.engine.budget != "total"
        or any(each.window is not None for each in x.kinds)
        or any(getattr(own, name) != getattr(schedule, name) for name in kept)
    ):
        other = fullest_rank(x, scenario)
        return other.total_bytes, other.capacity_bytes
    new = buffer_bytes(x, scenario, s)
    total = memory.swapped_bytes(total=bill.total_bytes, old=asked.buffers, new=new)
    return total, bill.capacity_bytes


def _sent(x: Numbers, kind: Kind, s: Shape, *, backward: bool) -> Number:
    return collectives.hybrid_bytes(
        ulysses_bytes=ulysses_exchange(x, kind, s),
        ring_bytes=volume(x, s, backward=backward).sent,
    )
