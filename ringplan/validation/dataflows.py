"""Every dataflow that has a prediction: run it, and put counts beside what the estimate says."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ringplan.reference import decode, gather, ring, ulysses
from ringplan.reference.network import Ledger
from ringplan.validation import counts
from ringplan.validation.runs import gathered, relative_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringplan.reference.network import Rank
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import Schedule
    from ringplan.validation.runs import Run


#: Runs a scaled scenario one way, forward and perhaps backward.
Dataflow: TypeAlias = "Callable[[Run], list[Witnessed]]"


class Witnessed(NamedTuple):
    """One pass of a dataflow: its error against dense attention, and its counts."""

    what: str
    error: float
    counts: tuple[counts.Count, ...]
    backward: bool = False


def mesh_passes(run: Run) -> list[Witnessed]:
    """Run the mesh of the scenario, forward and, where nothing is cached, backward."""
    ranks = run.place()
    ulysses_size, schedule = run.scenario.mesh.ulysses_size, run.scenario.schedule
    if ulysses_size > 1:
        ulysses.forward(run.network, ranks, run.setup, ulysses_size, keep="both")
    else:
        ring.forward(run.network, ranks, run.setup, keep="both")
    done = [Witnessed(f"{mesh_name(run)} forward", _error(run, ranks), counts.forward(run, ranks))]
    hops = run.scenario.mesh.ring_size > 1
    if run.scenario.workload.split[0] or (hops and not backward_runs(schedule)):
        return done
    around = ring.backward_reversed if schedule.reverses else ring.backward
    _fresh_ledgers(ranks)
    if ulysses_size > 1:
        ulysses.backward(run.network, ranks, run.setup, ulysses_size, around=around)
    else:
        around(run.network, ranks, run.setup)
    name = f"{mesh_name(run)} backward{'' if schedule.reverses else ', home'}"
    error = _gradient_error(run, ranks)
    return [*done, Witnessed(name, error, counts.backward(run, ranks), backward=True)]


def all_gather(run: Run) -> list[Witnessed]:
    """Collect K and V, and scatter their gradients."""
    (expected,) = (row for row in run.estimate.alternatives if row.comm_type == "all_gather")
    training = run.scenario.workload.phase == "train"
    ranks = run.place()
    gather.forward(run.network, ranks, run.setup)
    seen = [counts.sent(expected.bytes_sent_forward, ranks), *counts.flops(run, ranks)]
    if not training:
        seen += counts.gathered_buffer(run, expected.memory_bytes, ranks)
    made = [Witnessed("all-gather forward", _error(run, ranks), tuple(seen))]
    if run.scenario.workload.split[0]:
        return made
    _fresh_ledgers(ranks)
    gather.backward(run.network, ranks, run.setup)
    sent = counts.sent(expected.bytes_sent_backward, ranks)
    seen = [sent, *counts.flops(run, ranks, backward=True)]
    if training:
        seen += counts.gathered_buffer(run, expected.memory_bytes, ranks)
    error = _gradient_error(run, ranks)
    return [*made, Witnessed("all-gather backward", error, tuple(seen), backward=True)]


def double_ring(run: Run) -> list[Witnessed]:
    """Go round in windows: as many bytes as a flat ring, fewer of them between windows."""
    size = run.scenario.mesh.cp_size
    window = next(w for w in range(size // 2, 0, -1) if not size % w)
    ranks = run.place()
    ring.double(run.network, ranks, run.setup, window)
    seen = (counts.sent(run.estimate.ring.bytes_sent_forward, ranks), *counts.flops(run, ranks))
    name = f"double ring {window} x {size // window} forward"
    return [Witnessed(name, _error(run, ranks), seen)]


def pass_q(run: Run) -> list[Witnessed]:
    """Send queries round over a cached prefix, and return the partial outputs."""
    expected = run.estimate.cached_prefix
    assert expected is not None  # noqa: S101 - `dataflows` asks only then
    ranks = run.place()
    decode.pass_q(run.network, ranks, run.setup)
    seen = (counts.sent(expected.pass_q.bytes_sent, ranks), *counts.flops(run, ranks))
    return [Witnessed("pass-Q forward", _error(run, ranks), seen)]


def decode_step(run: Run) -> list[Witnessed]:
    """Let one query see the whole context: the cache goes round, or the query does."""
    expected, setup, exact = run.estimate.decode, run.decode_setup, [run.exact_decode]
    ranks = run.place_cache()
    ring.forward(run.network, ranks, setup)
    rotated = Witnessed(
        "decode, K/V rotating",
        max(relative_error([rank["out"][0]], exact) for rank in ranks),
        (
            counts.sent(expected.rotate_kv.bytes_sent, ranks),
            *counts.decode_flops(run, ranks, times=len(ranks)),
            *counts.rotation(run, ranks),
        ),
    )
    ranks = run.place_cache()
    for rank in ranks[1:]:
        rank.drop("q")  # it comes with the broadcast
    decode.stationary(run.network, ranks, setup)
    _, *others = ranks  # the first one asks; it exchanges as much with each
    exchanged = max((r.ledger.sent() + r.ledger.received() for r in others), default=0)
    stationary = Witnessed(
        "decode, K/V stationary",
        relative_error(ranks[0]["out"], exact),
        (
            counts.Count("bytes_sent", expected.stationary_kv.bytes_sent, exchanged),
            *counts.decode_flops(run, ranks),
            *counts.latencies(run, expected.stationary_kv.latencies, ranks),
        ),
    )
    return [rotated, stationary]


def dataflows(scenario: Scenario) -> list[Dataflow]:
    """List what a scaled scenario can be run as."""
    mesh, work = scenario.mesh, scenario.workload
    if work.phase == "decode":
        return [decode_step]
    flat = mesh.ulysses_size == 1 and mesh.cp_size > 1
    cached = work.split[0] > 0
    rings = mesh.ring_size == 1 or forward_runs(scenario.schedule)
    found: list[Dataflow] = [mesh_passes] if rings else []
    if flat and gather_runs(scenario.schedule):
        found.append(all_gather)
    if flat and rings and not cached and any(not mesh.cp_size % w for w in range(2, mesh.cp_size)):
        found.append(double_ring)
    if flat and cached:
        found.append(pass_q)
    return [*found, decode_step]


def forward_runs(schedule: Schedule) -> bool:
    """Whether the reference's forward ring has the hops of a schedule: none after the last use."""
    whole = schedule.heads_on_wire == "kv" and schedule.window_hops == "all"
    alike = schedule.k_wire_dtype == schedule.v_wire_dtype and not schedule.uneven_heads
    return _rings(schedule) and whole and alike and schedule.kv_extra_hops_forward == -1


def backward_runs(schedule: Schedule) -> bool:
    """The same of the backward ring, whose gradients may have one more hop to come home."""
    hops = schedule.kv_extra_hops_backward == -1 and schedule.gradient_extra_hops <= 0
    return _rings(schedule) and hops


def gather_runs(schedule: Schedule) -> bool:
    """Whether the reference's all-gather is that of a schedule: all blocks, gathered again."""
    some = schedule.sends_needed_only or schedule.keeps_gathered or schedule.latents_on_wire
    scattered = schedule.kv_exchange == "ring" or schedule.gradient_exchange == "reduce_scatter"
    return "all_gather" in schedule.comm_types and scattered and not some


def _rings(schedule: Schedule) -> bool:
    return schedule.kv_exchange == "ring" and not schedule.double_ring


def mesh_name(run: Run) -> str:
    """Name the way in which the mesh shares the sequence."""
    mesh = run.scenario.mesh
    if mesh.ulysses_size == 1:
        return "pass-KV" if run.scenario.workload.split[0] else "ring"
    if mesh.ring_size == 1:
        return "ulysses"
    return f"ulysses {mesh.ulysses_size} x ring {mesh.ring_size}"


def _error(run: Run, ranks: Sequence[Rank]) -> float:
    return relative_error(gathered(ranks, "out", run.setup.queries), [run.exact])


def _gradient_error(run: Run, ranks: Sequence[Rank]) -> float:
    made = gathered(ranks, "dq", run.setup.queries) + gathered(ranks, "dkv", run.setup.keys)
    return relative_error(made, run.exact_gradients)


def _fresh_ledgers(ranks: Iterable[Rank]) -> None:
    for rank in ranks:
        rank.ledger = Ledger()
