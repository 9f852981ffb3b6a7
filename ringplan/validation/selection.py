"""What is run: a readable selection, everything, or one scenario of the user's."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from ringplan.feasibility import divisors, reasons
from ringplan.reference.blocks import DTYPES
from ringplan.specs.mesh import Partition
from ringplan.specs.model import LayerKind
from ringplan.validation.dataflows import (
    all_gather,
    dataflows,
    decode_step,
    double_ring,
    mesh_passes,
    pass_q,
)
from ringplan.validation.runs import Run, tolerance
from ringplan.validation.scaling import scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.specs.scenario import Scenario
    from ringplan.validation.dataflows import Count, Dataflow


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
        """Run every dataflow of every case: its passes, one dataflow after the other."""
        for scenario, dtype, flows in self.cases:
            run = Run(scenario, dtype)
            for dataflow in flows:
                allowed = tolerance(dtype, scenario.mesh.cp_size)
                yield [
                    Row(done.what, scenario, dtype, done.error, allowed, done.counts)
                    for done in dataflow(run)
                ]


def own(scenario: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """
    Plan a scenario of the user's: every kind of layer, and every other way to use its ranks.

    Raises
    ------
    SpecError
        ``seq_len`` is too short for the ranks.
    """
    cases: dict[tuple[LayerKind, int], Case] = {}
    blocked: list[str] = []
    notes: list[str] = []
    ranks, asked = scenario.mesh.cp_size, scenario.mesh.ulysses_size
    others = [] if scenario.workload.phase == "decode" else divisors(ranks, ranks)
    for kind, degree in product(scenario.model.kinds, dict.fromkeys([asked, *others])):
        mesh = scenario.mesh.model_copy(update={"ulysses_size": degree})
        small = scaled(scenario.model_copy(update={"mesh": mesh}), kind, seq_len)
        broken = reasons(small)
        if degree == asked:
            blocked += [f"{reason.code}: {reason.message}; {reason.hint}" for reason in broken]
        if scenario.workload.phase == "prefill" and kind.window and scenario.workload.split[0]:
            notes.append(WINDOWS_OVER_A_PREFIX)
        elif not broken:
            ways = dataflows(small)
            if degree != asked:
                ways.remove(decode_step)  # it does not depend on the degree
            cases[small.model.kinds[0], degree] = Case(small, dtype, tuple(ways))
    return Plan(tuple(cases.values()), *(tuple(dict.fromkeys(each)) for each in (blocked, notes)))


WINDOWS_OVER_A_PREFIX: Final = (
    "sliding-window layers over a cached prefix are left out: their blocks differ from rank to rank"
)


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

    def on(self, base: Scenario, seq_len: int | None) -> Scenario:
        """Put the shape in place of a scenario's own."""
        kind = LayerKind(
            num_attention_heads=self.heads[0],
            num_key_value_heads=self.heads[1],
            head_dim=self.head_dims[0],
            v_head_dim=self.head_dims[1],
            window=self.window,
            active_intermediate_size=1,
        )
        mesh = base.mesh.model_copy(
            update={
                "cp_size": self.ranks,
                "ulysses_size": self.ulysses,
                "partition": self.partition,
            }
        )
        tokens = 16 * self.ranks
        update = {
            "seq_len": tokens * (1 + self.cached),
            "cached_len": tokens * self.cached,
            "batch_size": 2,
            "causal": self.causal,
        }
        workload = base.workload.model_copy(update=update)
        asked = base.model_copy(update={"mesh": mesh, "workload": workload})
        return scaled(asked, kind, seq_len)


READABLE: Final = (
    (Shape(4, "contiguous"), (mesh_passes,)),
    (Shape(4, "striped"), (mesh_passes,)),
    (Shape(4), (mesh_passes, all_gather, double_ring, decode_step)),
    (Shape(4, "contiguous", causal=False), (mesh_passes,)),
    (Shape(3, heads=(4, 4), head_dims=(12, 8)), (mesh_passes,)),
    (Shape(8, heads=(8, 1)), (mesh_passes,)),
    (Shape(4, window=20), (mesh_passes,)),
    (Shape(4, ulysses=4, heads=(8, 4)), (mesh_passes,)),
    (Shape(4, ulysses=2), (mesh_passes,)),
    (Shape(4, cached=3), (mesh_passes, pass_q)),
)


#: Rings of so many ranks on one sequence show what rounding of 16-bit blocks adds up to.
ROUNDED_RANKS, ROUNDED_TOKENS = (1, 2, 4, 8, 16, 32), 256


def readable(base: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """
    Plan a selection that shows every dataflow once, and in 16 bits the error against the ranks.

    ``base`` lends its device and schedule.
    """
    cases = [Case(shape.on(base, seq_len), dtype, flows) for shape, flows in READABLE]
    if DTYPES[dtype].itemsize == 2:
        tokens = ROUNDED_TOKENS if seq_len is None else seq_len
        enough = [ranks for ranks in ROUNDED_RANKS if tokens >= 2 * ranks]
        shapes = [Shape(ranks).on(base, tokens) for ranks in enough]
        cases += [Case(shape, dtype, (mesh_passes,)) for shape in shapes]
    return Plan(tuple(cases))


def full(base: Scenario, dtype: str, seq_len: int | None = None) -> Plan:
    """Plan every partition, mask, head layout and degree on up to eight ranks."""
    cases = []
    for ranks, partition, causal, heads, cached in product(
        (1, 2, 3, 4, 5, 8),
        get_args(Partition),
        (True, False),
        ((8, 8), (8, 4), (8, 1)),
        (0, 2),
    ):
        for ulysses in divisors(ranks, ranks):
            shape = Shape(ranks, partition, ulysses, heads, (12, 8), causal, cached=cached)
            small = shape.on(base, seq_len)
            if not reasons(small):
                cases.append(Case(small, dtype, tuple(dataflows(small))))
    return Plan(tuple(cases))
