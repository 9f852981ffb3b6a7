"""
Which tokens each rank holds, and in which order.

A layout lists, by rank, the chunks the rank holds; a chunk is an array of positions in the
sequence. Every rank knows the layout, as in real systems, so that nobody sends positions.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Positions: TypeAlias = npt.NDArray[np.int64]
Chunks: TypeAlias = tuple[Positions, ...]
Layout: TypeAlias = tuple[Chunks, ...]


def contiguous(positions: Positions, num_ranks: int) -> Layout:
    """
    Give each rank the next block.

    >>> [chunk.tolist() for (chunk,) in contiguous(np.arange(6), 3)]
    [[0, 1], [2, 3], [4, 5]]
    """
    _divides(num_ranks, positions)
    return tuple((block,) for block in np.split(positions, num_ranks))


def zigzag(positions: Positions, num_ranks: int) -> Layout:
    """
    Give each rank a chunk from the front and its mirror image from the back.

    >>> [[c.tolist() for c in chunks] for chunks in zigzag(np.arange(8), 2)]
    [[[0, 1], [6, 7]], [[2, 3], [4, 5]]]
    """
    _divides(2 * num_ranks, positions)
    chunks = np.split(positions, 2 * num_ranks)
    return tuple((chunks[rank], chunks[-1 - rank]) for rank in range(num_ranks))


def striped(positions: Positions, num_ranks: int) -> Layout:
    """
    Give token i to rank i mod P.

    >>> [chunk.tolist() for (chunk,) in striped(np.arange(6), 3)]
    [[0, 3], [1, 4], [2, 5]]
    """
    _divides(num_ranks, positions)
    return tuple((positions[rank::num_ranks],) for rank in range(num_ranks))


def interleaved(positions: Positions, num_ranks: int, run: int = 1) -> Layout:
    """
    Deal runs of tokens round robin, as vLLM lays out a decode cache; some ranks may get none.

    >>> [chunk.tolist() for (chunk,) in interleaved(np.arange(5), 4, run=2)]
    [[0, 1], [2, 3], [4], []]
    """
    owner = np.arange(len(positions)) // run % num_ranks
    return tuple((positions[owner == rank],) for rank in range(num_ranks))


PARTITIONS: dict[str, Callable[[Positions, int], Layout]] = {
    "contiguous": contiguous,
    "zigzag": zigzag,
    "striped": striped,
}


def by_document(
    partition: Callable[[Positions, int], Layout], lengths: Sequence[int], num_ranks: int
) -> Layout:
    """
    Partition each document of a packed sequence on its own.

    >>> layout = by_document(contiguous, [2, 4], 2)
    >>> [[c.tolist() for c in chunks] for chunks in layout]
    [[[0], [2, 3]], [[1], [4, 5]]]
    """
    ends = np.cumsum(lengths)
    each = [
        partition(np.arange(end - length, end), num_ranks)
        for end, length in zip(ends, lengths, strict=True)
    ]
    return joined(*each)


def joined(*layouts: Layout) -> Layout:
    """
    Let each rank hold what it holds in any of the layouts, such as cached and new tokens.

    >>> whole = joined(contiguous(np.arange(2), 2), contiguous(np.arange(2, 6), 2))
    >>> [[c.tolist() for c in chunks] for chunks in whole]
    [[[0], [2, 3]], [[1], [4, 5]]]
    """
    return tuple(tuple(chain(*held)) for held in zip(*layouts, strict=True))


def spread(layout: Layout, over: int) -> Layout:
    """
    Cut each rank's tokens into equal slices for consecutive ranks.

    >>> [[c.tolist() for c in chunks] for chunks in spread(zigzag(np.arange(8), 2), 2)]
    [[[0, 1]], [[6, 7]], [[2, 3]], [[4, 5]]]
    """
    slices: list[Chunks] = []
    for chunks in layout:
        tokens = positions(chunks)
        _divides(over, tokens)
        slices += [(part,) for part in np.split(tokens, over)]
    return tuple(slices)


def positions(chunks: Chunks) -> Positions:
    """Positions of a rank's tokens, in the order in which it holds them."""
    return np.concatenate(chunks) if chunks else np.arange(0)


def _divides(parts: int, tokens: Positions) -> None:
    if len(tokens) % parts:
        raise ValueError(f"{len(tokens)} tokens do not make {parts} equal parts")
