"""
How many (query, key) pairs any rank of a ring sees of any rank's block, exactly.

Tokens are never enumerated. The tokens of a rank are runs of equally spaced positions, and the
visible pairs of two runs are a difference of triangular numbers. Counts are of one sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array: TypeAlias = npt.NDArray[np.float64]
Ranks: TypeAlias = npt.NDArray[np.int64]
#: Pairs that the queries of some ranks see of the blocks of others.
Counter: TypeAlias = "Callable[[Ranks, Ranks], Any]"

#: Sums of triangular numbers of runs this long together fit into 64 bits.
_EXACT = 2**31
#: Counts of which at most so many are in memory at once.
_BATCH = 2**15


class Dealt(NamedTuple):
    """
    A sequence, dealt to the ranks of a ring.

    Attributes
    ----------
    partition
        contiguous, zigzag or striped: who holds which new tokens.
    ring_size
        Ranks.
    query_tokens, block_tokens
        New tokens on one rank, and these with its share of a cached prefix. The prefix lies before
        all new tokens and is dealt in contiguous blocks.
    causal, window
        A query sees no later key, and only keys fewer than ``window`` tokens before it.
    documents
        Lengths of packed documents; a query sees its own document only. Zigzag and striped deal
        each document on its own, contiguous cuts the whole.
    """

    partition: str
    ring_size: int
    query_tokens: int
    block_tokens: int
    causal: bool = True
    window: int | None = None
    documents: tuple[int, ...] = ()


def visible_pairs(dealt: Dealt, *, reverse: bool = False) -> Array:
    """
    Count the pairs of each rank at each step, ``[rank, step]``.

    At step s rank r meets the block of rank r - s; in a reversed ring, which starts from the last
    block received, that of rank r + 1 + s.

    >>> visible_pairs(Dealt("contiguous", 3, 2, 2))
    array([[3., 0., 0.],
           [3., 4., 0.],
           [3., 4., 4.]])
    """
    return np.concatenate(list(step_pairs(dealt, reverse=reverse))).T


def step_pairs(dealt: Dealt, *, reverse: bool = False) -> Iterator[Array]:
    """Yield the same for a few steps at a time, as ``[step, rank]``."""
    size = dealt.ring_size
    ranks, count = np.arange(size), counter(dealt)
    batch = max(_BATCH // size, 1)
    for first in range(0, size, batch):
        steps = np.arange(first, min(first + batch, size))[:, None]
        owners = (ranks + 1 + steps) % size if reverse else (ranks - steps) % size
        yield np.asarray(count(ranks, owners), dtype=np.float64)


def counter(dealt: Dealt) -> Counter:
    """
    Return what counts the pairs between any ranks and any owners of blocks.

    >>> int(counter(Dealt("striped", 4, 8, 8))(np.array(2), np.array(3)))
    28
    """
    if dealt.ring_size == 1:
        dealt = dealt._replace(partition="contiguous")
    if dealt.documents:
        _check(dealt)
    packed = dealt.documents and dealt.partition == "contiguous"
    own = _packed(dealt) if packed else _by_distance(dealt)
    if dealt.block_tokens == dealt.query_tokens:
        return own
    prefix = _prefix(dealt)
    return lambda ranks, owners: own(ranks, owners) + prefix(ranks, owners)


def _check(dealt: Dealt) -> None:
    chunks = {"contiguous": 1, "striped": dealt.ring_size, "zigzag": 2 * dealt.ring_size}
    if dealt.block_tokens != dealt.query_tokens:
        raise ValueError("packed documents have no cached prefix")
    if sum(dealt.documents) != dealt.ring_size * dealt.query_tokens:
        raise ValueError("the documents are not as long as the sequence")
    if any(length % chunks[dealt.partition] for length in dealt.documents):
        raise ValueError(f"a document does not make {chunks[dealt.partition]} equal parts")


def ordered(queries: Any, keys: Any, least: Any) -> Any:
    """
    Count the pairs of query i < ``queries`` and key j < ``keys`` with i - j >= ``least``.

    >>> int(ordered(4, 4, 0)), int(ordered(4, 3, -9)), int(ordered(4, 4, 4))
    (10, 12, 0)
    """
    large = np.max(queries) + np.max(keys) > _EXACT
    kind = np.float64 if large else np.int64
    queries, keys = np.asarray(queries, dtype=kind), np.asarray(keys, dtype=kind)
    least = np.minimum(np.maximum(np.asarray(least, dtype=kind), -keys), queries)
    return (
        _triangle(queries - least)
        - _triangle(queries - least - keys)
        - _triangle(-least)
        + _triangle(-least - keys)
    )


def _triangle(side: Any) -> Any:
    side = np.maximum(side, 0)
    return side * (side + 1) // 2


def _by_distance(dealt: Dealt) -> Counter:
    """Between chunks of equal length, only the distance of their places counts."""
    size = dealt.ring_size
    places = 2 * size if dealt.partition == "zigzag" else size
    distance = np.arange(1 - places, places)
    table: Any = 0
    whole = dealt.documents or (size * dealt.query_tokens,)
    for length, times in zip(*np.unique(whole, return_counts=True), strict=True):
        tokens = int(length) // places
        table = table + int(times) * _of_distance(dealt, distance, tokens)
    if dealt.partition != "zigzag":
        return lambda ranks, owners: table[ranks - owners + size - 1]
    both = table + table[::-1]  # a rank's chunks lie at r and at 2 R - 1 - r
    return lambda ranks, owners: both[ranks - owners + places - 1] + both[ranks + owners]


def _of_distance(dealt: Dealt, distance: Ranks, tokens: int) -> Any:
    """Pairs of two chunks of so many tokens that lie ``distance`` places apart."""
    size, window = dealt.ring_size, dealt.window
    striped = dealt.partition == "striped"
    apart = distance // size if striped else distance * tokens
    seen = ordered(tokens, tokens, -apart if dealt.causal else -tokens)
    if window is None:
        return seen if seen.ndim else np.full(distance.shape, seen)
    beyond = (window - 1 - distance) // size + 1 if striped else window - apart
    return seen - ordered(tokens, tokens, beyond) if dealt.causal else _within(tokens, beyond)


def _within(tokens: int, beyond: Any) -> Any:
    """Pairs that no window cuts off, of a mask that is not causal."""
    return ordered(tokens, tokens, -tokens) - ordered(tokens, tokens, beyond)


def _prefix(dealt: Dealt) -> Counter:
    """Of the cached prefix every query sees all, or what its window reaches."""
    size, tokens, window = dealt.ring_size, dealt.query_tokens, dealt.window
    cached = dealt.block_tokens - tokens
    if window is None:
        return lambda ranks, owners: np.full(np.broadcast(ranks, owners).shape, tokens * cached)

    def chunk(places: Ranks, owners: Ranks, length: int) -> Any:
        apart = size * cached + places * length - owners * cached
        return length * cached - ordered(length, cached, window - apart)

    def contiguous(ranks: Ranks, owners: Ranks) -> Any:
        return chunk(ranks, owners, tokens)

    def zigzag(ranks: Ranks, owners: Ranks) -> Any:
        half = tokens // 2
        return chunk(ranks, owners, half) + chunk(2 * size - 1 - ranks, owners, half)

    def striped(ranks: Ranks, owners: Ranks) -> Any:
        reach = (owners + 1 - size) * cached - 1 + window - ranks
        return _falling(reach, tokens, size) - _falling(reach - cached, tokens, size)

    return {"contiguous": contiguous, "zigzag": zigzag, "striped": striped}[dealt.partition]


def _falling(first: Any, terms: int, by: int) -> Any:
    """Sum of the positive ones of ``first``, ``first - by``, ... over so many terms."""
    positive = np.clip(-(-first // by), 0, terms)
    return positive * first - by * (positive * (positive - 1) // 2)


def _packed(dealt: Dealt) -> Counter:
    """Contiguous blocks of packed documents: two ranks share one document at most."""
    size, tokens, window = dealt.ring_size, dealt.query_tokens, dealt.window
    ends = np.cumsum(dealt.documents)
    starts, begins = ends - np.array(dealt.documents), np.arange(size) * tokens
    first = np.searchsorted(ends, begins, side="right")
    last = np.searchsorted(ends, begins + tokens - 1, side="right")
    head = np.minimum(ends[first], begins + tokens) - begins
    tail = begins + tokens - np.maximum(starts[last], begins)
    own = _own_pairs(dealt, np.union1d(starts, begins))

    def count(ranks: Ranks, owners: Ranks) -> Any:
        earlier = (first[ranks] == last[owners]) * head[ranks] * tail[owners]
        if window is not None:
            apart = begins[ranks] - begins[owners] - tokens + tail[owners]
            cut = ordered(head[ranks], tail[owners], window - apart)
            earlier = np.where(earlier > 0, earlier - cut, 0)
        later = 0 if dealt.causal else (last[ranks] == first[owners]) * tail[ranks] * head[owners]
        return np.where(ranks == owners, own[ranks], np.where(ranks > owners, earlier, later))

    return count


def _own_pairs(dealt: Dealt, cuts: Ranks) -> Any:
    """Pairs that each rank sees of its own block, which documents cut into pieces."""
    lengths = np.diff(cuts, append=dealt.ring_size * dealt.query_tokens)
    seen = ordered(lengths, lengths, 0 if dealt.causal else -lengths)
    if dealt.window is not None:
        seen = seen - ordered(lengths, lengths, dealt.window)
    own = np.zeros(dealt.ring_size, dtype=seen.dtype)
    np.add.at(own, cuts // dealt.query_tokens, seen)
    return own
