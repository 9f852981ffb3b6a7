"""What is run: a readable selection, everything, or one scenario of the user's."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from threadpoolctl import threadpool_limits

from ringplan.errors import SpecError
from ringplan.feasibility import divisors, reasons
from ringplan.reference.blocks import DTYPES
from ringplan.specs.mesh import Partition
from ringplan.specs.model import LayerKind
from ringplan.validation.dataflows import (
    all_gather,
    backward_runs,
    dataflows,
    decode_step,
    double_ring,
    forward_runs,
    mesh_passes,
    pass_q,
)
from ringplan.validation.runs import Run, tolerance
from ringplan.validation.scaling import PREFIX, SEQUENCES, least_tokens, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringplan.specs.scenario import Scenario
    from ringplan.validation.counts import Count
    from ringplan.validation.dataflows import Dataflow, Witnessed


class Row(NamedTuple):
    """
    One pass of one scaled scenario.

    Attributes
    ----------
    what
        Dataflow and direction.
    scenario
        What was run.
    dtype
        Format of all arrays.
    error, tolerance
        Largest distance from dense attention in fp64, relative to the norm, and what it may be.
    counts
        Predicted and counted, the bytes sent by a rank and the FLOPs of all ranks first.
    """

    what: str
    scenario: Scenario
    dtype: str
    error: float
    tolerance: float
    counts: tuple[Count, ...]

    def named(self, name: str) -> Count | None:
        """Return the count of a name; None where there is no prediction."""
        return next((count for count in self.counts if count.name == name), None)

    @property
    def passed(self) -> bool:
        """Whether the answer is right and every count is the prediction."""
        return self.error <= self.tolerance and all(count.agrees for count in self.counts)


class Case(NamedTuple):
    """A scaled scenario, a format, and the dataflows to run it as."""

    scenario: Scenario
    dtype: str
    dataflows: tuple[Dataflow, ...]


class Plan(NamedTuple):
    """
    What to run.

    Attributes
    ----------
    cases
        To be run.
    blocked
        Rules that the mesh asked for breaks, so that it cannot be run.
    notes
        What is left out, and why.
    """

    cases: tuple[Case, ...]
    blocked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_runs(self) -> int:
        """How many times `rows` yields."""
        return sum(len(case.dataflows) for case in self.cases)

    def rows(self) -> Iterator[list[Row]]:
        """
        Run every dataflow of every case: its passes, one dataflow after the other.

        Matrix products of tiles are too small to share between threads, which would only wait.
        """
        with threadpool_limits(1):
            for scenario, dtype, flows in self.cases:
                run = Run(scenario, dtype)
                for dataflow in flows:
                    yield [_row(run, done, dtype) for done in dataflow(run)]


def _row(run: Run, done: Witnessed, dtype: str) -> Row:
    ranks = run.scenario.mesh.cp_size
    allowed = tolerance(dtype, ranks, backward=done.backward)
    return Row(done.what, run.scenario, dtype, done.error, allowed, done.counts)


def own(scenario: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """
    Plan a scenario of the user's: every kind of layer, and every other way to use its ranks.

    Raises
    ------
    SpecError
        ``seq_len`` is too short for the ranks.
    """
    broken = reasons(scenario)
    blocked = tuple(f"{reason.code}: {reason.message}" for reason in broken)
    if any(reason.code in UNSHARED_HEADS for reason in broken):
        return Plan((), blocked)  # there are no heads of one rank
    cases: dict[tuple[LayerKind, int], Case] = {}
    notes = dict.fromkeys(_unlike(scenario))
    ranks, asked = scenario.mesh.cp_size, scenario.mesh.ulysses_size
    others = [] if scenario.workload.phase == "decode" else divisors(ranks, ranks)
    for kind, degree in product(scenario.model.kinds, dict.fromkeys([asked, *others])):
        mesh = scenario.mesh.model_copy(update={"ulysses_size": degree})
        small = scaled(scenario.model_copy(update={"mesh": mesh}), kind, seq_len)
        if scenario.workload.phase == "prefill" and kind.window and scenario.workload.split[0]:
            notes[WINDOWS_OVER_A_PREFIX] = None
        elif not reasons(small):
            ways = dataflows(small)
            if degree != asked:
                ways.remove(decode_step)  # it does not depend on the degree
            cases[small.model.kinds[0], degree] = Case(small, dtype, tuple(ways))
    return Plan(tuple(cases.values()), blocked, tuple(notes))


#: Rules of tensor parallelism: without them a rank's heads are not a whole number.
UNSHARED_HEADS: Final = {"RP102", "RP103"}
WINDOWS_OVER_A_PREFIX: Final = (
    "sliding-window layers over a cached prefix are left out: their blocks differ from rank to rank"
)


def _unlike(scenario: Scenario) -> list[str]:
    """Say what of a scenario is not run as it is."""
    work, schedule = scenario.workload, scenario.schedule
    notes = []
    if scenario.mesh.ring_size > 1 and not (forward_runs(schedule) and backward_runs(schedule)):
        notes.append(
            f"passes in which schedule {schedule.name} sends blocks on without need are left out"
        )
    if work.batch_size > SEQUENCES:
        notes.append(f"{SEQUENCES} sequences are run in place of {work.batch_size:,}")
    if work.kv_dtype not in (None, work.activation_dtype):
        notes.append(f"one format is run throughout, not a cache in {work.kv_dtype}")
    if work.phase == "decode" and scenario.mesh.ulysses_size > 1:
        notes.append("a decode step is run on a flat ring, heads are not exchanged")
    if work.phase == "decode" and work.split[1] > 1:
        notes.append(f"one query a sequence is run in place of {work.split[1]:,}")
    if work.phase == "prefill" and work.split[0] > PREFIX * work.split[1]:
        notes.append(f"{PREFIX} cached tokens for a new one are run, not more")
    return notes


class Shape(NamedTuple):
    """A scenario of ours, in short."""

    ranks: int
    partition: Partition = "zigzag"
    ulysses: int = 1
    heads: tuple[int, int] = (8, 2)
    head_dims: tuple[int, int] = (4, 4)
    causal: bool = True
    window: int | None = None
    cached: int = 0
    home: bool = False
    train: bool = False

    def on(self, base: Scenario) -> Scenario:
        """Put the shape in place of a scenario's own."""
        kind = LayerKind(
            num_attention_heads=self.heads[0],
            num_key_value_heads=self.heads[1],
            head_dim=self.head_dims[0],
            v_head_dim=self.head_dims[1],
            window=self.window,
            active_intermediate_size=1,
        )
        mesh = {
            "cp_size": self.ranks,
            "ulysses_size": self.ulysses,
            "partition": self.partition,
        }
        tokens = 16 * self.ranks
        work = {
            "seq_len": tokens * (1 + self.cached),
            "cached_len": tokens * self.cached,
            "batch_size": SEQUENCES,
            "causal": self.causal,
            "phase": "train" if self.train else "prefill",
        }
        home = {"gradient_extra_hops": 0, "gradient_wire_dtype": "fp32"} if self.home else {}
        return base.model_copy(
            update={
                "model": base.model.model_copy(update={"kinds": (kind,)}),
                "mesh": base.mesh.model_copy(update=mesh),
                "workload": base.workload.model_copy(update=work),
                "schedule": base.schedule.model_copy(update=home),
            }
        )


READABLE: Final = (
    (Shape(4, "contiguous"), (mesh_passes,)),
    (Shape(4, "striped"), (mesh_passes,)),
    (Shape(6), (mesh_passes, all_gather, double_ring, decode_step)),
    (Shape(4, "contiguous", causal=False), (mesh_passes,)),
    (Shape(2, heads=(4, 4), head_dims=(12, 8)), (mesh_passes,)),
    (Shape(8, heads=(8, 1)), (mesh_passes,)),
    (Shape(4, train=True), (mesh_passes, all_gather)),
    (Shape(2, train=True), (mesh_passes,)),
    (Shape(4, home=True, train=True), (mesh_passes,)),
    (Shape(4, window=20), (mesh_passes,)),
    (Shape(4, ulysses=4, heads=(8, 4)), (mesh_passes,)),
    (Shape(2, ulysses=2), (mesh_passes, decode_step)),
    (Shape(4, ulysses=2, head_dims=(12, 8)), (mesh_passes,)),
    (Shape(4, cached=3, head_dims=(12, 8)), (mesh_passes, all_gather, pass_q, decode_step)),
    (Shape(3, "striped", cached=1), (mesh_passes,)),
)
#: Rings of so many ranks on one sequence show what rounding of 16-bit blocks adds up to.
ROUNDED_RANKS, ROUNDED_TOKENS = (1, 2, 4, 8, 16, 32), 256


def readable(base: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """
    Plan a selection that shows every dataflow, and in 16 bits the error against the ranks.

    ``base`` lends its device and schedule. A ring in bf16 stands beside those in wider formats,
    whose activations and sums take as many bytes as one another.
    """
    shapes = [(shape.on(base), flows) for shape, flows in READABLE]
    _long_enough([asked for asked, _ in shapes], seq_len)
    cases = [Case(_small(asked, seq_len), dtype, flows) for asked, flows in shapes]
    if DTYPES[dtype].itemsize > 2:
        mixed = Shape(4, cached=1, head_dims=(12, 8)).on(base)
        cases.append(Case(_small(mixed, seq_len), "bf16", (mesh_passes, pass_q, decode_step)))
        return Plan(tuple(cases))
    tokens = ROUNDED_TOKENS if seq_len is None else seq_len
    rings = [Shape(ranks).on(base) for ranks in ROUNDED_RANKS]
    cases += [
        Case(_small(asked, tokens), dtype, (mesh_passes,))
        for asked in rings
        if least_tokens(asked) <= tokens
    ]
    return Plan(tuple(cases))


#: Sizes of the rings that `full` plans.
FULL_RANKS = (1, 2, 3, 4, 5, 8)


def full(base: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """Plan every partition, mask, head layout, prefix and degree on up to eight ranks."""
    shapes = []
    for ranks, partition, causal, heads, (window, cached), home in product(
        FULL_RANKS,
        get_args(Partition),
        (True, False),
        ((8, 8), (8, 4), (8, 1)),
        ((None, 0), (None, 2), (20, 0)),
        (False, True),
    ):
        if home and cached:
            continue  # a prefix has no backward pass
        for ulysses in divisors(ranks, ranks):
            shape = Shape(
                ranks, partition, ulysses, heads, (12, 8), causal, window, cached, home, train=home
            )
            asked = shape.on(base)
            if not reasons(asked):
                shapes.append(asked)
    _long_enough(shapes, seq_len)
    small = [_small(asked, seq_len) for asked in shapes]
    return Plan(tuple(Case(each, dtype, tuple(dataflows(each))) for each in small))


def _small(asked: Scenario, seq_len: int | None) -> Scenario:
    return scaled(asked, asked.model.kinds[0], seq_len)


def _long_enough(scenarios: Sequence[Scenario], seq_len: int | None) -> None:
    """Refuse a length that is too short for any, and say what is long enough for all."""
    least = max(map(least_tokens, scenarios))
    if seq_len is not None and seq_len < least:
        raise SpecError(f"seq_len={seq_len} is too short", hint=f"--seq-len {least} or more")
