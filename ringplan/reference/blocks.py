"""
Attention to one block of keys after another, tile by tile, and the states that merge the blocks.

No matrix of scores is larger than a tile. A state is an array or two per query, updated in place:
`Running` is the article's maximum, denominator and output; `LogSumExp` the output and
log-sum-exp with which kernels return a finished block.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ringplan.reference.dense import Array
    from ringplan.reference.masks import Mask
    from ringplan.reference.partition import Chunks, Positions

#: Formats by the names that scenarios use.
DTYPES: dict[str, np.dtype[Any]] = {
    "fp64": np.dtype(np.float64),
    "fp32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
}

#: Tokens of a tile; 256 x 512 scores of a head in fp32 stay in a core's cache.
QUERY_TILE, KEY_TILE = 256, 512


class Work(NamedTuple):
    """
    What one call computed.

    Attributes
    ----------
    pairs
        Visible (query, key) pairs of one sequence and head.
    touched_pairs
        The same with every pair of chunks that meet counted whole.
    flops
        Of the matrix products over visible pairs, all sequences and heads; a multiply-add is 2.
    """

    pairs: int = 0
    touched_pairs: int = 0
    flops: int = 0

    def __add__(self, other: object) -> Work:
        """Add what another call computed."""
        if not isinstance(other, Work):
            return NotImplemented
        return Work(*(mine + yours for mine, yours in zip(self, other, strict=True)))


class Block(NamedTuple):
    """
    Queries and the keys and values they meet, with the positions of both.

    Attributes
    ----------
    q, k, v
        ``B H N D``, ``B G K D``, ``B G K E``.
    queries, keys
        Chunks that hold N and K positions.
    """

    q: Array
    k: Array
    v: Array
    queries: Chunks
    keys: Chunks


class Running(NamedTuple):
    """
    Running maximum, denominator and output of each query; the output is not yet divided.

    Attributes
    ----------
    top, total
        ``B H N``.
    out
        ``B H N E``.
    """

    top: Array
    total: Array
    out: Array

    @classmethod
    def empty(cls, q: Array, v: Array) -> Self:
        """State of queries that have seen nothing."""
        dtype, rows = accumulator(q), q.shape[:-1]
        return cls(
            np.full(rows, -np.inf, dtype),
            np.zeros(rows, dtype),
            np.zeros((*rows, v.shape[-1]), dtype),
        )

    def attend(self, block: Block, mask: Mask) -> Work:
        """Let the queries see one more block."""
        q, k, v = (_wide(_by_kv_head(x, block.k)) for x in (block.q, block.k, block.v))
        q = q / np.sqrt(q.shape[-1], dtype=q.dtype)
        top, total, out = (_by_kv_head(x, block.k) for x in self)
        count = Tally()
        for rows, columns, visible in tiles(block, mask, count):
            scores = count.product(q[..., rows, :], k[..., columns, :].swapaxes(-1, -2))
            if visible is not True:
                np.copyto(scores, -np.inf, where=~visible)
            before = top[..., rows]
            after = np.maximum(before, scores.max(axis=-1))
            base = np.where(np.isneginf(after), 0, after)
            np.exp(np.subtract(scores, base[..., None], out=scores), out=scores)
            decay = np.exp(before - base)
            top[..., rows] = after
            total[..., rows] = total[..., rows] * decay + scores.sum(axis=-1)
            out[..., rows, :] *= decay[..., None]
            out[..., rows, :] += count.product(scores, v[..., columns, :])
        return count.work

    def finish(self) -> tuple[Array, Array]:
        """Output and log-sum-exp; zeros and -inf for queries that saw nothing."""
        some = self.total > 0
        total = np.where(some, self.total, 1)
        return self.out / total[..., None], np.where(some, self.top + np.log(total), -np.inf)

    def merge(self, other: Running) -> None:
        """Add what the same queries saw elsewhere, in other keys."""
        top = np.maximum(self.top, other.top)
        base = np.where(np.isneginf(top), 0, top)
        mine, theirs = np.exp(self.top - base), np.exp(other.top - base)
        self.top[...] = top
        self.total[...] = self.total * mine + other.total * theirs
        self.out[...] = self.out * mine[..., None] + other.out * theirs[..., None]


class LogSumExp(NamedTuple):
    """
    Output and log-sum-exp of each query, as kernels return them.

    A block's output is rounded to the format of the inputs before it is merged.

    Attributes
    ----------
    out
        ``B H N E``, divided.
    lse
        ``B H N``.
    """

    out: Array
    lse: Array

    @classmethod
    def empty(cls, q: Array, v: Array) -> Self:
        """State of queries that have seen nothing."""
        dtype, rows = accumulator(q), q.shape[:-1]
        return cls(np.zeros((*rows, v.shape[-1]), dtype), np.full(rows, -np.inf, dtype))

    def attend(self, block: Block, mask: Mask) -> Work:
        """Let the queries see one more block."""
        seen = Running.empty(block.q, block.v)
        work = seen.attend(block, mask)
        out, lse = seen.finish()
        rounded = out.astype(block.q.dtype).astype(out.dtype)
        self.merge(LogSumExp(rounded, lse.astype(out.dtype)))
        return work

    def finish(self) -> tuple[Array, Array]:
        """Output and log-sum-exp; zeros and -inf for queries that saw nothing."""
        return self.out, self.lse

    def merge(self, other: LogSumExp) -> None:
        """Add what the same queries saw elsewhere, in other keys."""
        lse = np.logaddexp(self.lse, other.lse)
        base = np.where(np.isneginf(lse), 0, lse)
        mine, theirs = np.exp(self.lse - base), np.exp(other.lse - base)
        self.out[...] = self.out * mine[..., None] + other.out * theirs[..., None]
        self.lse[...] = lse


State: TypeAlias = Running | LogSumExp


class Gradients(NamedTuple):
    """
    Accumulated gradients of some queries, and of the keys and values of one block.

    Attributes
    ----------
    dq, dk, dv
        Like q, k and v.
    """

    dq: Array
    dk: Array
    dv: Array

    def add(self, block: Block, mask: Mask, dout: Array, lse: Array, delta: Array) -> Work:
        """
        Add one block's contributions; the scores are computed again from what forward saved.

        ``delta`` is ``sum(out * dout)`` of each query, ``B H N``.
        """
        q, k, v, dout = (_wide(_by_kv_head(x, block.k)) for x in (block.q, block.k, block.v, dout))
        scale = 1 / np.sqrt(q.shape[-1], dtype=q.dtype)
        dq, delta = _by_kv_head(self.dq, block.k), _by_kv_head(delta, block.k)
        lse = _by_kv_head(np.where(np.isneginf(lse), np.inf, lse), block.k)
        count = Tally()
        for rows, columns, visible in tiles(block, mask, count):
            some_q, some_k, some_dout = q[..., rows, :], k[..., columns, :], dout[..., rows, :]
            scores = count.product(some_q, some_k.swapaxes(-1, -2)) * scale
            if visible is not True:
                np.copyto(scores, -np.inf, where=~visible)
            weights = np.exp(scores - lse[..., rows, None])
            dweights = count.product(some_dout, v[..., columns, :].swapaxes(-1, -2))
            dscores = weights * (dweights - delta[..., rows, None]) * scale
            dq[..., rows, :] += count.product(dscores, some_k)
            self.dk[..., columns, :] += count.product(dscores.swapaxes(-1, -2), some_q).sum(axis=2)
            self.dv[..., columns, :] += count.product(weights.swapaxes(-1, -2), some_dout).sum(
                axis=2
            )
        return count.work


class Tally:
    """Counts what a loop over tiles meets and multiplies."""

    def __init__(self) -> None:
        self.pairs = self.touched_pairs = self.flops = 0
        self._visible = self._whole = 0

    @property
    def work(self) -> Work:
        """What has been counted."""
        return Work(self.pairs, self.touched_pairs, self.flops)

    def tile(self, visible: int, whole: int) -> None:
        """Begin a tile of so many pairs."""
        self._visible, self._whole = visible, whole
        self.pairs += visible

    def product(self, a: Array, b: Array) -> Array:
        """Multiply matrices of the tile; the share of its pairs that is visible counts."""
        made = a @ b
        self.flops += 2 * made.size * a.shape[-1] // self._whole * self._visible
        return made


def tiles(
    block: Block, mask: Mask, count: Tally
) -> Iterator[tuple[slice, slice, bool | npt.NDArray[np.bool_]]]:
    """Rows, columns and mask of every tile in which a query sees a key."""
    for queries, first_row in _starts(block.queries):
        for keys, first_column in _starts(block.keys):
            touched = False
            for i, j in product(range(0, len(queries), QUERY_TILE), range(0, len(keys), KEY_TILE)):
                some, others = queries[i : i + QUERY_TILE], keys[j : j + KEY_TILE]
                visible = mask.between(some, others)
                if visible is False:
                    continue
                touched = True
                whole = len(some) * len(others)
                count.tile(whole if visible is True else int(np.count_nonzero(visible)), whole)
                row, column = first_row + i, first_column + j
                yield slice(row, row + len(some)), slice(column, column + len(others)), visible
            if touched:
                count.touched_pairs += len(queries) * len(keys)


def accumulator(x: Array) -> np.dtype[np.floating]:
    """Format in which sums over ``x`` are kept: fp32, or fp64 for fp64."""
    return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


def _wide(x: Array) -> Array:
    return x.astype(accumulator(x), copy=False)


def _starts(chunks: Chunks) -> Iterator[tuple[Positions, int]]:
    start = 0
    for chunk in chunks:
        yield chunk, start
        start += len(chunk)


def _by_kv_head(x: Array, k: Array) -> Array:
    """``B G H/G ...``: a view with query heads beside the key/value head they share."""
    batch, heads, *rest = x.shape
    return x.reshape(batch, k.shape[1], heads // k.shape[1], *rest)
