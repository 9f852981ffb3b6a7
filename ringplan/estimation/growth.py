"""How the memory bill changes with the context: which part grows, and what fits how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.estimation.capacity import concurrency
from ringplan.estimation.memory import PARTS, fullest_rank, stages
from ringplan.estimation.numbers import numbers, token_multiple, with_cached, with_tokens
from ringplan.units import MAX_TOKENS

if TYPE_CHECKING:
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory
    from ringplan.specs.scenario import Scenario


class Growth(NamedTuple):
    """
    A part of the bill, on one rank.

    Attributes
    ----------
    part, bytes
        Which, and its bytes at this context.
    constant_bytes, bytes_per_token
        The straight line through this context and twice it: where it begins, and how it rises.
    """

    part: str
    bytes: float
    constant_bytes: float
    bytes_per_token: float


class Length(NamedTuple):
    """The bill at another context, and how many sequences of it fit; None in training."""

    seq_len: int
    rank: RankMemory
    max_concurrency: float | None


class MemoryReport(NamedTuple):
    """What grows, and the bill over context lengths."""

    growth: tuple[Growth, ...]
    lengths: tuple[Length, ...]


def memory_report(scenario: Scenario) -> MemoryReport:
    """Bill the fullest rank over context lengths."""
    x = numbers(scenario)
    return MemoryReport(
        growth=growth(scenario),
        lengths=tuple(
            dict.fromkeys(
                _length(_at(x, scenario, factor), scenario)
                for factor in FACTORS
                if factor * x.tokens.context <= MAX_TOKENS
            )
        ),
    )


#: Contexts that are looked at, over the asked one.
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


def _at(x: Numbers, scenario: Scenario, factor: float) -> Numbers:
    """Numbers of another context: other cached tokens, or without them a longer pass."""
    context, why = int(x.tokens.context * factor), "another context"
    if x.phase == "decode" or x.tokens.cached:
        return with_cached(x, max(context - int(x.tokens.new), 0), why)
    multiple = token_multiple(scenario)
    return with_tokens(x, -(-max(context, 1) // multiple) * multiple, why)


def _length(x: Numbers, scenario: Scenario) -> Length:
    bill = fullest_rank(x, scenario)
    known = bill.kv_budget_bytes is not None
    return Length(
        seq_len=int(x.tokens.context),
        rank=bill,
        max_concurrency=concurrency(x, scenario)["max_concurrency"] if known else None,
    )


def growth(scenario: Scenario) -> tuple[Growth, ...]:
    """Split each part of the bill into what grows with the context and what does not."""
    x = numbers(scenario)
    longer = _at(x, scenario, 2)
    here = fullest_rank(x, scenario)
    there = next(bill for bill in stages(longer, scenario) if bill.stage == here.stage)
    more = longer.tokens.context - x.tokens.context
    rows = []
    for name in PARTS:
        now, then = getattr(here, name), getattr(there, name)
        if now is not None and then is not None:
            each = (then - now) / more
            rows.append(Growth(name, now, now - each * x.tokens.context, each))
    return tuple(rows)
