"""A decode step's attention, the cache read and exchanged in one way or another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import decode, fit, rank_cache
from ringplan.estimation.caches import elements_on_rank
from ringplan.estimation.decode import dcp_step, decode_step
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import with_schedule
from ringplan.estimation.results import Alternative
from ringplan.feasibility import reasons

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.costs.numeric import Number
    from ringplan.estimation.device import Device
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory
    from ringplan.specs.schedule import Schedule


def decode_ways(x: Numbers, device: Device, bill: RankMemory) -> tuple[Alternative, ...]:
    """Cost the ways to decode over a shared cache, and mark the fastest."""
    own, kind = device.scenario.schedule, x.kinds[x.widest]
    rows: list[Alternative] = []
    if plain(x.cp_size) > 1:
        step = decode_step(x, kind, device)
        for label, way in (("stationary", step.stationary_kv), ("rotate", step.rotate_kv)):
            made = _row(x, device, bill, own, label, way.bytes_sent, way.time, step.kv_read_time)
            rows.append(made)
    if plain(x.dcp_size) > 1:
        rows.append(_alone(x, device))
        for schedule in (own, *device.scenario.rivals):
            if "decode" not in schedule.phases:
                continue
            ruled = with_schedule(x, schedule)
            dcp = dcp_step(ruled, kind, device)
            assert dcp is not None  # noqa: S101 - dcp_size > 1
            label = schedule.name if schedule.implementation else "dcp"
            read = _read(x, device)
            rows.append(_row(x, device, bill, schedule, label, dcp.bytes_sent, dcp.time, read))
    return mark_best(rows)


def mark_best(rows: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """Mark the fastest implementation, and the fastest way without one."""
    rows, best = list(rows), []
    for real in (True, False):
        able = [
            row
            for row in rows
            if row.implementation is real and row.time is not None and plain(row.fits)
        ]
        best += [min(able, key=lambda row: plain(row.time))] if able else []
    return tuple(row._replace(best=any(row is each for each in best)) for row in rows)


def _read(x: Numbers, device: Device) -> Number:
    """Time to read a rank's cache of the widest layer."""
    tokens = rank_cache.dcp_tokens(tokens=x.tokens.block, dcp_size=x.dcp_size)
    shard = decode.cache_shard_bytes(
        batch_size=x.attention_batch_size,
        tokens=tokens,
        cached_elements=elements_on_rank(x.kinds[x.widest]),
        element_bytes=x.kv_bytes,
    )
    return device.read_time(shard)


def _alone(x: Numbers, device: Device) -> Alternative:
    """Every rank holds and reads the whole cache of its KV head, and exchanges nothing."""
    nothing = x.leaf.derived("exchange", 0, "every rank has the whole cache of its KV head")
    x = x._replace(dcp_size=x.leaf.derived("dcp_size", 1, "a candidate layout"))
    bill = fullest_rank(x, device.scenario)
    schedule, read = device.scenario.schedule, _read(x, device)
    return _row(x, device, bill, schedule, "tp", nothing, nothing, read)


def _row(  # noqa: PLR0917 - one way
    x: Numbers,
    device: Device,
    bill: RankMemory,
    schedule: Schedule,
    label: str,
    sent: Number,
    exchange: Number,
    read: Number,
) -> Alternative:
    why = reasons(device.scenario.model_copy(update={"schedule": schedule}))
    whole = None if why else decode.decode_time(read_time=read, exchange_time=exchange)
    return Alternative(
        label=label,
        schedule=schedule.name,
        implementation=schedule.implementation,
        comm_type="decode",
        ring_size=x.sizes["ring"],
        ulysses_size=x.sizes["ulysses"],
        partition=x.partition,
        feasible=not why,
        reasons=tuple(reason.brief for reason in why),
        bytes_sent_forward=sent,
        bytes_sent_backward=None,
        memory_bytes=bill.total_bytes,
        fits=fit.fits(total=bill.total_bytes, capacity=bill.capacity_bytes),
        time_forward=whole,
        time_backward=None,
        exposed_time=None if why else exchange,
        time=whole,
        best=False,
    )
