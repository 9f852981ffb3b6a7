"""The memory bill, read backwards: longest context, smallest ring, tokens of cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from ringplan.costs import fit, layout, memory
from ringplan.estimation.activations import chunk_of
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank, stages
from ringplan.estimation.numbers import with_rings, with_sequences, with_tokens
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
    if scenario.model.unknown:
        return dict.fromkeys(ANSWERS)
    found: dict[tuple[Any, ...], Number] = {}

    def left(changed: Numbers) -> Number:
        key = (plain(changed.tokens.new), plain(changed.tokens.cached), plain(changed.cp_size))
        if key not in found:
            found[key] = fullest_rank(changed, scenario).headroom_bytes
        return found[key]

    made = {
        "max_seq_len": _max_seq_len(x, bill, multiple, left),
        "min_cp_size": _min_cp_size(x, bill, left),
    }
    if x.phase == "train":
        return dict.fromkeys(ANSWERS) | made
    return made | {"kv_tokens": _tokens_of_job(x, scenario)} | concurrency(x, scenario)


#: Questions that are answered by searching, or from what is left.
ANSWERS = ("max_seq_len", "min_cp_size", "kv_tokens", "max_concurrency", "max_sequences")
MAX_SEQUENCES = 2**30


def _tokens_of_job(x: Numbers, scenario: Scenario) -> Number:
    return min((_kv_tokens(x, scenario, each) for each in stages(x, scenario)), key=plain)


def _kv_tokens(x: Numbers, scenario: Scenario, bill: RankMemory) -> Number:
    """Tokens of context that the ranks of one stage have room for."""
    parts = [bill.kv_bytes, bill.state_bytes]
    if x.phase == "decode" and chunk_of(x, scenario) is None:
        # every sequence of the batch also has a token in flight
        parts += [bill.activation_bytes, bill.logits_bytes]
    return fit.kv_tokens(
        capacity=bill.capacity_bytes,
        total=bill.total_bytes,
        rank_kv=memory.total_bytes(parts=tuple(parts)),
        dp_size=layout.cache_replicas(dp_size=x.dp_size, attention_dp_size=x.attention_dp_size),
        batch_size=x.attention_batch_size,
        seq_len=x.tokens.context,
    )


def concurrency(x: Numbers, scenario: Scenario) -> dict[str, Number | None]:
    """
    Search how many sequences of this context fit, each a part of the batch.

    Whole ones are counted on every replica; by bytes, the one that does not fit is counted in
    part. None where memory does not bound them.
    """

    def left(sequences: int, why: str) -> Number:
        bill = fullest_rank(with_sequences(x, sequences, why), scenario)
        return cast("Number", bill.headroom_bytes)

    def holds(sequences: int) -> bool:
        return bool(plain(left(sequences, "searched")) >= 0)

    ratio = plain(_tokens_of_job(x, scenario)) / plain(x.tokens.context) / plain(x.dp_size)
    best = last_that_holds(holds, int(ratio), MAX_SEQUENCES)
    if best == MAX_SEQUENCES:
        return {"max_concurrency": None, "max_sequences": None}
    proof = {
        "sequences": x.leaf.derived("sequences", best, "searched"),
        "replicas": x.dp_size,
        "headroom_here": left(best, "the most that fit"),
        "headroom_beyond": left(best + 1, "one sequence more"),
    }
    return {
        "max_concurrency": fit.max_concurrency(**proof),
        "max_sequences": fit.max_sequences(**proof),
    }


def _max_seq_len(
    x: Numbers, bill: RankMemory, multiple: int, left: Callable[[Numbers], Number]
) -> Number | None:
    """Search the longest context; None where memory does not bound it."""
    decoding = x.phase == "decode"
    varied, fixed = x.tokens.new, x.tokens.cached
    if decoding:
        varied, fixed = fixed, varied
    step = 1 if decoding else multiple

    def at(steps: int, why: str) -> Numbers:
        return with_tokens(x, steps * step, why)

    here = plain(varied) // step
    room = plain(bill.headroom_bytes)
    slope = (room - plain(left(at(2 * here + 1, "a longer context")))) / (here + 1)
    guess = here + int(room / slope) if slope > 0 else here
    best = last_that_holds(
        lambda steps: plain(left(at(steps, "searched"))) >= 0, guess, MAX_TOKENS // step
    )
    if best == MAX_TOKENS // step:
        return None
    return fit.max_seq_len(
        seq_len=x.leaf.derived("seq_len", best * step + plain(fixed) if best else 0, "searched"),
        headroom_here=left(at(best, "the longest that fits")),
        headroom_beyond=left(at(best + 1, "one legal step more")),
    )


def _min_cp_size(x: Numbers, bill: RankMemory, left: Callable[[Numbers], Number]) -> Number | None:
    """Search the ring sizes, Ulysses unchanged; None where no number of ranks is enough."""
    exchange = x.sizes["ulysses"]
    limit = min(MAX_RANKS, plain(x.tokens.new) + plain(x.tokens.cached)) // exchange

    def at(rings: int, why: str) -> Numbers:
        return with_rings(x, rings, why)

    def too_big(rings: int) -> bool:
        return bool(plain(left(at(rings, "searched"))) < 0)

    if limit < 1 or too_big(limit):
        return None
    room = plain(left(at(limit, "searched")))  # what no rank shards is in it
    sharded = (room - plain(bill.headroom_bytes)) * x.sizes["ring"]
    guess = math.ceil(sharded / room) - 1 if room > 0 else limit
    last = last_that_holds(too_big, guess, limit)
    rings = last + 1
    below = (
        left(at(rings - 1, "one rank less"))
        if rings > 1
        else x.leaf.derived("headroom", float("-inf"), "there is nothing below one rank")
    )
    return fit.min_cp_size(
        cp_size=x.leaf.derived("cp_size", rings * exchange, "searched"),
        headroom_here=left(at(rings, "the fewest that fit")),
        headroom_below=below,
    )
