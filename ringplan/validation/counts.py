"""What the ledgers of a run hold, beside what the estimate says of it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.costs import attention, masks
from ringplan.reference.blocks import Running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.network import Rank, Step
    from ringplan.validation.runs import Run


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


def forward(run: Run, ranks: Sequence[Rank]) -> tuple[Count, ...]:
    """Count a forward pass of the mesh, bytes and FLOPs first."""
    expected = run.estimate.ring
    return (
        sent(expected.bytes_sent_forward, ranks),
        *flops(run, ranks),
        _hops(expected.hops_forward, ranks, "kv"),
        *_hop_bytes(expected.hop_bytes, ranks),
        *_alternative(run, "forward", ranks),
        *_pass_kv(run, ranks),
        *_step_flops(run, expected.step_flops, ranks, diagonal=0),
        *_utilization(run, ranks),
        *_buffers(run, ranks),
    )


def backward(run: Run, ranks: Sequence[Rank]) -> tuple[Count, ...]:
    """Count its backward pass, bytes and FLOPs first."""
    expected, reverses = run.estimate.ring, run.scenario.schedule.reverses
    diagonal = -1 if reverses else 0
    return (
        sent(expected.bytes_sent_backward, ranks),
        *flops(run, ranks, backward=True),
        _hops(expected.hops_backward, ranks, "gradients"),
        *_alternative(run, "backward", ranks),
        *_step_flops(run, expected.step_flops_backward, ranks, diagonal=diagonal),
        *_backward_buffers(run, ranks),
    )


def sent(predicted: float, ranks: Sequence[Rank]) -> Count:
    """Bytes that a rank sends."""
    return Count("bytes_sent", predicted, _most_sent(ranks))


def _most_sent(ranks: Sequence[Rank]) -> int:
    return max(rank.ledger.sent() for rank in ranks)


def rotation(run: Run, ranks: Sequence[Rank]) -> list[Count]:
    """Count a decode scenario's ring: what a step sends and computes on one block of the cache."""
    mesh, expected = run.scenario.mesh, run.estimate.ring
    if run.scenario.workload.phase != "decode" or mesh.ulysses_size > 1 or run.kind.window:
        return []
    return [
        Count("ring_bytes_sent", expected.bytes_sent_forward, _most_sent(ranks)),
        _hops(expected.hops_forward, ranks, "kv"),
        *_hop_bytes(expected.hop_bytes, ranks),
        *_step_flops(run, expected.step_flops, ranks, diagonal=0),
    ]


def gathered_buffer(run: Run, memory_bytes: float, ranks: Sequence[Rank]) -> list[Count]:
    """Count what an all-gather holds beside a rank's own tensors, in the pass that holds more."""
    bill, training = run.estimate.memory.rank, run.scenario.workload.phase == "train"
    schedule = run.scenario.schedule
    if run.wire != run.dtype or run.gradient != run.dtype:
        return []
    if schedule.gathered_copies > 1 or schedule.heads_per_gather or not schedule.accumulator_dtype:
        return []
    names = ("gathered", "gradients", "dq", "lse", "delta") if training else ("gathered",)
    predicted = round(memory_bytes - (bill.total_bytes - bill.ring_buffer_bytes))
    return [Count("buffer_bytes", predicted, _peak(ranks, names))]


def latencies(run: Run, predicted: float, ranks: Sequence[Rank]) -> list[Count]:
    """Exchanges one after another; the reference has two, a schedule may have others."""
    if run.scenario.schedule.decode_latencies != DECODE_EXCHANGES:
        return []
    return [Count("latencies", predicted, max(rank.ledger.exchanges for rank in ranks))]


#: Broadcast and reduction of `reference.decode.stationary`.
DECODE_EXCHANGES: Final = 2


def _hop_bytes(predicted: float, ranks: Sequence[Rank]) -> list[Count]:
    """Bytes of the block that a rank sends in one step."""
    blocks = {step.sent["kv"] for rank in ranks for step in rank.ledger.steps} - {0}
    return [Count("hop_bytes", predicted, max(blocks))] if blocks else []


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
    around = max(rank.ledger.sent("kv") for rank in ranks)
    return [Count("pass_kv_bytes", expected.pass_kv.bytes_sent, around)]


def _hops(predicted: float, ranks: Sequence[Rank], what: str) -> Count:
    return Count("hops", predicted, max(rank.ledger.hops(what) for rank in ranks))


def flops(run: Run, ranks: Sequence[Rank], *, backward: bool = False) -> list[Count]:
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
        num_heads=kind.query_heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
    )
    return [Count("flops", predicted, sum(rank.ledger.work.flops for rank in ranks))]


def decode_flops(run: Run, ranks: Sequence[Rank], times: int = 1) -> list[Count]:
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
    schedule = run.scenario.schedule
    return (
        run.setup.state is Running
        and schedule.kv_buffers == schedule.kv_buffers_backward == KV_BUFFERS
        and schedule.accumulator_dtype == "fp32"
        and not schedule.holds_block_output
        and not run.setup.cached
        and run.wire == run.dtype
    )


#: Blocks of `reference.ring` beside a rank's own: one visiting, one arriving.
KV_BUFFERS: Final = 2


def _peak(ranks: Sequence[Rank], names: tuple[str, ...]) -> int:
    return max(rank.ledger.peak(*names) for rank in ranks) if names else 0
