"""How the memory bill changes with the context: which part grows, and what fits how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.estimation.capacity import concurrency
from ringplan.estimation.memory import PARTS, fullest_rank
from ringplan.estimation.numbers import numbers, token_multiple, with_tokens
from ringplan.units import MAX_TOKENS

if TYPE_CHECKING:
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory
    from ringplan.specs.scenario import Scenario


class Growth(NamedTuple):
    """A part of the bill: bytes here, of which would be there at no context, and a token's."""

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
    """Numbers of another context, a multiple of what the layout needs."""
    multiple = token_multiple(scenario)
    context = int(x.tokens.context * factor)
    fixed = x.tokens.new if x.phase == "decode" else x.tokens.cached
    varied = max(context - int(fixed), 1)
    return with_tokens(x, -(-varied // multiple) * multiple, "another context")


def _length(x: Numbers, scenario: Scenario) -> Length:
    bill = fullest_rank(x, scenario)
    known = bill.kv_budget_bytes is not None
    return Length(
        seq_len=int(x.tokens.context),
        rank=bill,
        max_concurrency=concurrency(x, scenario) if known else None,
    )


def growth(scenario: Scenario) -> tuple[Growth, ...]:
    """Split each part of the bill into what grows with the context and what does not."""
    x = numbers(scenario)
    here, twice = fullest_rank(x, scenario), fullest_rank(_at(x, scenario, 2), scenario)
    return tuple(
        Growth(
            part=name,
            bytes=now,
            constant_bytes=2 * now - then,
            bytes_per_token=(then - now) / x.tokens.context,
        )
        for name in PARTS
        if (now := getattr(here, name)) is not None and (then := getattr(twice, name)) is not None
    )
