"""What else fits: caches, sequences, contexts, ranks, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringplan.feasibility import legal_cp
from ringplan.render.bill import columns_of
from ringplan.render.sections import Section, without_zeros
from ringplan.render.words import in_one_pass, rank_words
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.estimation.growth import Length
    from ringplan.estimation.results import Memory, RankMemory
    from ringplan.render.bill import Bill
    from ringplan.specs.scenario import Scenario


def what_fits(bill: Bill) -> Section:
    """List what would fit, or why a question has no answer."""
    estimate, scenario = bill.assessment.estimate, bill.assessment.scenario
    memory, why = estimate.memory, estimate.not_counted
    if memory.fits is None:
        return Section("What fits", [], [])
    rows = [*_caches(scenario, memory)]
    longest = memory.max_seq_len
    tokens = why.get("memory.max_seq_len") if longest is None else f"{longest:,} tokens"
    trained = scenario.model.max_position_embeddings
    known = f" (the model: {trained:,})" if trained and longest is not None else ""
    rows.append(["longest context at this mesh", f"{tokens}{known}"])
    least = memory.min_cp_size
    ranks = str(why.get("memory.min_cp_size")) if least is None else _ranks(scenario, least)
    rows.append(["smallest cp that fits", ranks])
    mesh = bill.smallest_mesh
    if mesh is not None:
        count = f"{mesh.num_devices:,} device{'s' * (mesh.num_devices != 1)}"
        rows.append(
            [
                "fewest devices, powers of two",
                f"{count}: {mesh.flags}, {show(mesh.total_bytes, 'B')}",
            ]
        )
    return Section("What fits", ["", "value"], rows)


def _caches(scenario: Scenario, memory: Memory) -> Iterator[list[str]]:
    """Say what caches may fill; training has none."""
    rank: Any = memory.rank
    if rank.kv_budget_bytes is None:
        return
    yield ["caches of a rank may fill", show(rank.kv_budget_bytes, "B")]
    if scenario.workload.engine is not None:
        yield ["the same in its log", _as_logged(scenario, rank)]
    yield ["cached tokens beside this pass", f"{memory.kv_tokens:,}"]
    by_tokens = f"{memory.max_concurrency:,.2f} by tokens"
    if memory.max_sequences is not None:
        by_tokens = f"{memory.max_sequences:,}{in_one_pass(scenario)} ({by_tokens})"
    yield ["sequences of this context", by_tokens]


def _ranks(scenario: Scenario, least: int) -> str:
    """Smallest cp that fits, and the next that the tokens can be divided over."""
    mesh = scenario.mesh
    devices = mesh.world_size // mesh.cp_size * least
    text = f"{devices:,} device{'s' * (devices != 1)}"
    legal = legal_cp(scenario, least, up=True)
    if legal is None:
        text += "; none from there on divides the tokens"
    elif legal != least:
        text += f"; {legal:,} divides the tokens"
    return f"{least:,} ({text})"


#: What a log calls its unit: bytes of it.
_UNITS: Final = {"GiB": 2**30, "GB": 2**30, "MiB": 2**20}


def _as_logged(scenario: Scenario, rank: RankMemory) -> str:
    """Write the budget, and what of it is filled, in the unit of the engine's log."""
    unit = scenario.engine.prints_gib_as
    budget, filled = (
        f"{value / _UNITS[unit]:,.2f} {unit}" for value in (rank.kv_budget_bytes, rank.kv_bytes)
    )
    note = " (its GB are GiB)" if unit == "GB" else ""
    return f"{budget}, KV cache of it {filled}{note}"


def over_lengths(bill: Bill) -> Section:
    """Bill other contexts; where another stage has the least left, say which."""
    scenario, lengths = bill.assessment.scenario, bill.report.lengths
    columns = ["context", "stage", "KV cache", "states", "total", "left", "sequences", "fits"]
    moves = len({each.rank.stage for each in lengths}) > 1
    rows = [
        [
            f"{each.seq_len:,}",
            str(each.rank.stage) if moves else "-",
            *columns_of(each.rank, "kv_bytes", "state_bytes", "total_bytes", "headroom_bytes"),
            "-" if each.max_concurrency is None else f"{each.max_concurrency:,.2f}",
            _fits(each),
        ]
        for each in lengths
    ]
    counted = any(each.max_concurrency is not None for each in lengths)
    note = "sequences: by tokens" if counted else ""
    title = f"Over context lengths, {rank_words(scenario)}"
    made = without_zeros(Section(title, columns, rows, note))
    return made if len(made.columns) > 1 else made._replace(rows=[])


def _fits(length: Length) -> str:
    left = length.rank.headroom_bytes
    return "-" if left is None else "yes" if left >= 0 else "no"
