"""Every dataflow that has a prediction: run it, and put counts beside what the estimate says."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ringplan.costs import attention, masks
from ringplan.reference import decode, gather, ring, ulysses
from ringplan.reference.blocks import Running
from ringplan.reference.network import Ledger
from ringplan.validation.runs import gathered, relative_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringplan.reference.network import Rank, Step
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import Schedule
    from ringplan.validation.runs import Run


#: Runs a scaled scenario one way, forward and perhaps backward.
Dataflow: TypeAlias = "Callable[[Run], list[Witnessed]]"


class Count(NamedTuple):
    """
    One quantity.

    Attributes
    ----------
    name
        What it is: ``bytes_sent``, ``flops``, ``hops``, ...
    predicted, counted
        What the estimate says, and what the ledgers hold.
    """

    name: str
    predicted: float
    counted: float

    @property
    def agrees(self) -> bool:
        """Whether they are equal; shares may differ in the last digits of a float."""
        if isinstance(self.predicted, int):
            return self.predicted == self.counted
        return abs(self.predicted - self.counted) <= 1e-12 * abs(self.counted)


class Witnessed(NamedTuple):
    """One pass of a dataflow: its error against dense attention, and its counts."""

    what: str
    error: float
    counts: tuple[Count, ...]
    backward: bool = False


def mesh_passes(run: Run) -> list[Witnessed]:
    """Run the mesh of the scenario, forward and, where nothing is cached, backward."""
    ranks = run.place()
    ulysses_size, schedule = run.scenario.mesh.ulysses_size, run.scenario.schedule
    if ulysses_size > 1:
        ulysses.forward(run.network, ranks, run.setup, ulysses_size, keep="both")
    else:
        ring.forward(run.network, ranks, run.setup, keep="both")
    done = [Witnessed(f"{mesh_name(run)} forward", _error(run, ranks), _forward(run, ranks))]
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
    return [*done, Witnessed(name, error, _backward(run, ranks), backward=True)]


def _forward(run: Run, ranks: Sequence[Rank]) -> tuple[Count, ...]:
    expected = run.estimate.ring
    return (
        _sent(expected.bytes_sent_forward, ranks),
        *_flops(run, ranks),
        _hops(expected.hops_forward, ranks, "kv"),
        *_hop_bytes(expected.hop_bytes, ranks),
        *_alternative(run, "forward", ranks),
        *_pass_kv(run, ranks),
        *_step_flops(run, expected.step_flops, ranks, diagonal=0),
        *_utilization(run, ranks),
        *_buffers(run, ranks),
    )


def _backward(run: Run, ranks: Sequence[Rank]) -> tuple[Count, ...]:
    expected, reverses = run.estimate.ring, run.scenario.schedule.reverses
    diagonal = -1 if reverses else 0
    return (
        _sent(expected.bytes_sent_backward, ranks),
        *_flops(run, ranks, backward=True),
        _hops(expected.hops_backward, ranks, "gradients"),
        *_alternative(run, "backward", ranks),
        *_step_flops(run, expected.step_flops_backward, ranks, diagonal=diagonal),
        *_backward_buffers(run, ranks),
    )


def all_gather(run: Run) -> list[Witnessed]:
    """Collect K and V, and scatter their gradients."""
    (expected,) = (row for row in run.estimate.alternatives if row.comm_type == "all_gather")
    ranks = run.place()
    gather.forward(run.network, ranks, run.setup)
    counts = (_sent(expected.bytes_sent_forward, ranks), *_flops(run, ranks))
    made = [Witnessed("all-gather forward", _error(run, ranks), counts)]
    if not run.scenario.workload.split[0]:
        _fresh_ledgers(ranks)
        gather.backward(run.network, ranks, run.setup)
        counts = (_sent(expected.bytes_sent_backward, ranks), *_flops(run, ranks, backward=True))
        error = _gradient_error(run, ranks)
        made.append(Witnessed("all-gather backward", error, counts, backward=True))
    return made


def double_ring(run: Run) -> list[Witnessed]:
    """Go round in windows: as many bytes as a flat ring, fewer of them between windows."""
    size = run.scenario.mesh.cp_size
    window = next(w for w in range(size // 2, 0, -1) if not size % w)
    ranks = run.place()
    ring.double(run.network, ranks, run.setup, window)
    counts = (_sent(run.estimate.ring.bytes_sent_forward, ranks), *_flops(run, ranks))
    name = f"double ring {window} x {size // window} forward"
    return [Witnessed(name, _error(run, ranks), counts)]


def pass_q(run: Run) -> list[Witnessed]:
    """Send queries round over a cached prefix, and return the partial outputs."""
    expected = run.estimate.cached_prefix
    assert expected is not None  # noqa: S101 - `dataflows` asks only then
    ranks = run.place()
    decode.pass_q(run.network, ranks, run.setup)
    counts = (_sent(expected.pass_q.bytes_sent, ranks), *_flops(run, ranks))
    return [Witnessed("pass-Q forward", _error(run, ranks), counts)]


def decode_step(run: Run) -> list[Witnessed]:
    """Let one query see the whole context: the cache goes round, or the query does."""
    expected, setup, exact = run.estimate.decode, run.decode_setup, [run.exact_decode]
    ranks = run.place_cache()
    ring.forward(run.network, ranks, setup)
    rotated = Witnessed(
        "decode, K/V rotating",
        max(relative_error([rank["out"][0]], exact) for rank in ranks),
        (_sent(expected.rotate_kv.bytes_sent, ranks), *_decode_flops(run, ranks, times=len(ranks))),
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
            Count("bytes_sent", expected.stationary_kv.bytes_sent, exchanged),
            *_decode_flops(run, ranks),
            *_latencies(run, expected.stationary_kv.latencies, ranks),
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
    if flat:
        found.append(all_gather)
    if flat and rings and not cached and any(not mesh.cp_size % w for w in range(2, mesh.cp_size)):
        found.append(double_ring)
    if flat and cached:
        found.append(pass_q)
    return [*found, decode_step]


def forward_runs(schedule: Schedule) -> bool:
    """Whether the reference's forward ring has the hops of a schedule: none after the last use."""
    return schedule.kv_extra_hops_forward == -1


def backward_runs(schedule: Schedule) -> bool:
    """The same of the backward ring, whose gradients may have one more hop to come home."""
    return schedule.kv_extra_hops_backward == -1 and schedule.gradient_extra_hops <= 0


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


def _sent(predicted: float, ranks: Sequence[Rank]) -> Count:
    return Count("bytes_sent", predicted, _most_sent(ranks))


def _most_sent(ranks: Sequence[Rank]) -> int:
    return max(rank.ledger.sent() for rank in ranks)


def _latencies(run: Run, predicted: float, ranks: Sequence[Rank]) -> list[Count]:
    """Exchanges one after another; the reference has two, a schedule may have others."""
    if run.scenario.schedule.decode_latencies != DECODE_EXCHANGES:
        return []
    return [Count("latencies", predicted, max(rank.ledger.exchanges for rank in ranks))]


#: Broadcast and reduction of `reference.decode.stationary`.
DECODE_EXCHANGES: Final = 2


def _hop_bytes(predicted: float, ranks: Sequence[Rank]) -> list[Count]:
    """Bytes of the block that a rank sends in one step."""
    sent = {step.sent["kv"] for rank in ranks for step in rank.ledger.steps} - {0}
    return [Count("hop_bytes", predicted, max(sent))] if sent else []


def _alternative(run: Run, direction: str, ranks: Sequence[Rank]) -> list[Count]:
    """Bytes of the mesh, as the table of ways to share the sequence has them."""
    degree = run.scenario.mesh.ulysses_size
    return [
        Count("alternative_bytes", getattr(row, f"bytes_sent_{direction}"), _most_sent(ranks))
        for row in run.estimate.alternatives
        if row.ulysses_size == degree and row.comm_type != "all_gather"
    ]


def _pass_kv(run: Run, ranks: Sequence[Rank]) -> list[Count]:
    """Bytes of the ring over a cached prefix."""
    expected = run.estimate.cached_prefix
    if expected is None:
        return []
    sent = max(rank.ledger.sent("kv") for rank in ranks)
    return [Count("pass_kv_bytes", expected.pass_kv.bytes_sent, sent)]


def _hops(predicted: float, ranks: Sequence[Rank], what: str) -> Count:
    return Count("hops", predicted, max(rank.ledger.hops(what) for rank in ranks))


def _flops(run: Run, ranks: Sequence[Rank], *, backward: bool = False) -> list[Count]:
    """FLOPs of all ranks over the visible pairs; sliding windows have no closed form yet."""
    work, kind = run.scenario.workload, run.kind
    if kind.window is not None:
        return []
    cached, new = work.split
    pairs = (
        masks.visible_pairs(new_tokens=new, cached_tokens=cached)
        if work.causal
        else masks.full_pairs(query_tokens=new, block_tokens=cached + new)
    )
    formula = attention.attention_backward_flops if backward else attention.attention_flops
    predicted = formula(
        batch_size=work.batch_size,
        pairs=pairs,
        num_heads=kind.num_attention_heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
    )
    return [Count("flops", predicted, sum(rank.ledger.work.flops for rank in ranks))]


def _decode_flops(run: Run, ranks: Sequence[Rank], times: int = 1) -> list[Count]:
    """FLOPs of all ranks; a rotating cache is met by the same query on every rank."""
    if run.kind.window is not None:
        return []
    q, _, v, _ = run.decode_tensors
    predicted = attention.attention_flops(
        batch_size=q.shape[0],
        pairs=masks.full_pairs(query_tokens=times, block_tokens=q.shape[2]),
        num_heads=q.shape[1],
        head_dim=q.shape[3],
        v_head_dim=v.shape[3],
    )
    return [Count("flops", predicted, sum(rank.ledger.work.flops for rank in ranks))]


def _computing(rank: Rank) -> list[Step]:
    """Steps in which a rank met a block."""
    return [step for step in rank.ledger.steps if step.read_bytes]


def _step_flops(run: Run, predicted: float, ranks: Sequence[Rank], *, diagonal: int) -> list[Count]:
    """FLOPs of the busiest rank in a steady step: one that meets another rank's block."""
    if run.kind.window is not None:
        return []
    steps = [_computing(rank) for rank in ranks]
    if run.scenario.mesh.ring_size > 1:
        for each in steps:
            del each[diagonal]
    counted = max(step.work.flops for each in steps for step in each)
    return [Count("step_flops", predicted, counted)]


def _utilization(run: Run, ranks: Sequence[Rank]) -> list[Count]:
    """Useful share of a causal mask: pairs over those of the busiest rank at every step."""
    mesh, work = run.scenario.mesh, run.scenario.workload
    plain = work.causal and not work.split[0] and run.kind.window is None
    if not plain or mesh.ulysses_size > 1:
        return []
    shares = getattr(run.estimate.utilization, mesh.partition)
    table = [[step.work for step in _computing(rank)] for rank in ranks]
    return [
        Count(f"utilization.{name}", predicted, _share(slots))
        for name, predicted, slots in (
            ("exact", shares.exact, [[work.pairs for work in row] for row in table]),
            (
                "block_granular",
                shares.block_granular,
                [[work.touched_pairs for work in row] for row in table],
            ),
        )
    ]


def _share(slots: Sequence[Sequence[int]]) -> float:
    busiest = sum(max(step) for step in zip(*slots, strict=True))
    return float(Fraction(sum(map(sum, slots)), len(slots) * busiest))


def _buffers(run: Run, ranks: Sequence[Rank]) -> list[Count]:
    """Most bytes held beside a rank's own tensors; training holds more on the way back."""
    if run.scenario.workload.phase == "train" or not _comparable(run):
        return []
    names: tuple[str, ...] = ("visiting", "state") if run.scenario.mesh.ring_size > 1 else ()
    if run.scenario.mesh.ulysses_size > 1:
        names = ("by_head.q", "by_head.kv", "by_head.out", *(f"by_head.{each}" for each in names))
    return [Count("buffer_bytes", run.estimate.memory.rank.ring_buffer_bytes, _peak(ranks, names))]


def _backward_buffers(run: Run, ranks: Sequence[Rank]) -> list[Count]:
    """The same on the way back, for a ring; an exchange finishes its gradients in 16 bits."""
    mesh = run.scenario.mesh
    if run.scenario.workload.phase != "train" or not _comparable(run) or mesh.ulysses_size > 1:
        return []
    names: tuple[str, ...] = ()
    if mesh.ring_size > 1:
        names = ("visiting", "dkv", "dq", "lse", "delta")
        names += ("last",) if run.scenario.schedule.reverses else ()
    return [Count("buffer_bytes", run.estimate.memory.rank.ring_buffer_bytes, _peak(ranks, names))]


def _comparable(run: Run) -> bool:
    """
    Whether the estimate's buffers are the reference's.

    They are with the article's running state, two visiting blocks, one format on the wire, and no
    cache by head.
    """
    return (
        run.setup.state is Running
        and run.scenario.schedule.kv_buffers == KV_BUFFERS
        and not run.setup.cached
        and run.wire == run.dtype
    )


#: Blocks of `reference.ring` beside a rank's own: one visiting, one arriving.
KV_BUFFERS: Final = 2


def _peak(ranks: Sequence[Rank], names: tuple[str, ...]) -> int:
    return max(rank.ledger.peak(*names) for rank in ranks) if names else 0
