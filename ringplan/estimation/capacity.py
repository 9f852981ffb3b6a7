"""The memory bill, read backwards: longest context, smallest ring, tokens of cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ringplan.costs import fit, memory
from ringplan.estimation.memory import fullest_rank, rank_memory
from ringplan.estimation.numbers import plain, with_rings, with_tokens
from ringplan.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.results import RankMemory
    from ringplan.specs.scenario import Scenario

MAX_RANKS = 2**20


def last_that_holds(holds: Callable[[int], bool], guess: int, limit: int) -> int:
    """
    Return the largest k in 0..limit with holds(k); holding must end once and for good.

    A guess near the answer makes the search short.

    >>> last_that_holds(lambda k: k <= 70, guess=64, limit=1000)
    70
    """
    guess = min(max(guess, 0), limit)
    below, above, stride = 0, limit + 1, 1
    if guess == 0 or holds(guess):
        below = guess
        while below < limit and below + stride < above:
            if holds(min(below + stride, limit)):
                below, stride = min(below + stride, limit), stride * 2
            else:
                above = min(below + stride, limit)
    else:
        above = guess
        while above - stride > 0:
            if holds(above - stride):
                below = above - stride
                break
            above, stride = above - stride, stride * 2
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below


def answers(x: Numbers, scenario: Scenario, bill: RankMemory, multiple: int) -> dict[str, Any]:
    """
    Answer the inverse questions; every stage must fit.

    Parameters
    ----------
    x, scenario
        The layout.
    bill
        Its fullest rank.
    multiple
        Tokens by which a legal context grows.
    """
    totals: dict[tuple[Any, ...], Number] = {}

    def total(changed: Numbers) -> Number:
        key = (plain(changed.tokens.new), plain(changed.tokens.cached), plain(changed.cp_size))
        if key not in totals:
            totals[key] = fullest_rank(changed, scenario).total_bytes
        return totals[key]

    found = {
        "max_seq_len": _max_seq_len(x, bill, multiple, total),
        "min_cp_size": _min_cp_size(x, bill, total),
    }
    if x.phase == "train":
        return found | {"kv_tokens": None, "max_concurrency": None}
    tokens = min((_kv_tokens(x, rank_memory(x, scenario, each)) for each in x.stages), key=plain)
    concurrency = fit.max_concurrency(kv_tokens=tokens, seq_len=x.tokens.context)
    return found | {"kv_tokens": tokens, "max_concurrency": concurrency}


def _kv_tokens(x: Numbers, bill: RankMemory) -> Number:
    """Tokens of context that the ranks of one stage have room for."""
    parts = [bill.kv_bytes]
    if x.phase == "decode":  # every sequence of the batch also has a token in flight
        parts += [bill.activation_bytes, bill.logits_bytes]
    return fit.kv_tokens(
        capacity=bill.capacity_bytes,
        total=bill.total_bytes,
        rank_kv=memory.total_bytes(parts=tuple(parts)),
        dp_size=x.dp_size,
        batch_size=x.batch_size,
        seq_len=x.tokens.context,
    )


def _max_seq_len(
    x: Numbers, bill: RankMemory, multiple: int, total: Callable[[Numbers], Number]
) -> Number | None:
    """Search the longest context; None where memory does not bound it."""
    capacity = plain(bill.capacity_bytes)
    decoding = x.phase == "decode"
    varied, fixed = x.tokens.new, x.tokens.cached
    if decoding:
        varied, fixed = fixed, varied
    step = 1 if decoding else multiple

    def at(steps: int, why: str) -> Numbers:
        return with_tokens(x, steps * step, why)

    here = plain(varied) // step
    doubled = plain(total(at(2 * here + 1, "a longer context")))
    slope = (doubled - plain(bill.total_bytes)) / (here + 1)
    guess = here + int((capacity - plain(bill.total_bytes)) / slope) if slope > 0 else here
    best = last_that_holds(
        lambda steps: plain(total(at(steps, "searched"))) <= capacity, guess, MAX_TOKENS // step
    )
    if best == MAX_TOKENS // step:
        return None
    return fit.max_seq_len(
        seq_len=x.leaf.derived("seq_len", best * step + plain(fixed) if best else 0, "searched"),
        total_here=total(at(best, "the longest that fits")),
        total_beyond=total(at(best + 1, "one legal step more")),
        capacity=bill.capacity_bytes,
    )


def _min_cp_size(x: Numbers, bill: RankMemory, total: Callable[[Numbers], Number]) -> Number | None:
    """Search the ring sizes, Ulysses unchanged; None where no number of ranks is enough."""
    capacity = plain(bill.capacity_bytes)
    exchange = x.sizes["ulysses"]
    limit = min(MAX_RANKS, plain(x.tokens.new) + plain(x.tokens.cached)) // exchange

    def at(rings: int, why: str) -> Numbers:
        return with_rings(x, rings, why)

    def too_big(rings: int) -> bool:
        return bool(plain(total(at(rings, "searched"))) > capacity)

    if limit < 1 or too_big(limit):
        return None
    fixed = plain(total(at(limit, "searched")))
    sharded = (plain(bill.total_bytes) - fixed) * x.sizes["ring"]
    guess = math.ceil(sharded / (capacity - fixed)) - 1 if capacity > fixed else limit
    last = last_that_holds(too_big, guess, limit)
    rings = last + 1
    below = (
        total(at(rings - 1, "one rank less"))
        if rings > 1
        else x.leaf.derived("total_below", float("inf"), "there is nothing below one rank")
    )
    return fit.min_cp_size(
        cp_size=x.leaf.derived("cp_size", rings * exchange, "searched"),
        total_here=total(at(rings, "the fewest that fit")),
        total_below=below,
        capacity=bill.capacity_bytes,
    )
