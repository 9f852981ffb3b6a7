"""Small rings drawn at random, and what their ledgers hold after a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ringplan.reference import decode, gather, ring, ulysses
from ringplan.reference.blocks import DTYPES
from ringplan.reference.local import Setup, place
from ringplan.reference.masks import Mask
from ringplan.reference.network import Ledger, Network
from ringplan.reference.partition import PARTITIONS, contiguous, joined, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.dense import Array
    from ringplan.reference.network import Rank, Step


@dataclass(frozen=True)
class Small:
    """A ring small enough to draw many of: Ulysses inside a ring, cached tokens, one format."""

    ring_size: int
    ulysses_size: int
    partition: str
    causal: bool
    tokens: int
    cached: int
    batch: int
    kv_heads: int
    repeat: int
    head_dim: int
    v_head_dim: int
    dtype: str
    kv_dtype: str
    gradient_dtype: str
    partial_dtype: str
    window: int | None = None

    @property
    def ranks(self) -> int:
        return self.ring_size * self.ulysses_size

    @property
    def heads(self) -> int:
        return self.kv_heads * self.repeat

    @property
    def new_tokens(self) -> int:
        return self.ranks * self.tokens

    @property
    def seq_len(self) -> int:
        return self.ranks * (self.tokens + self.cached)

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def accumulator_bytes(self) -> int:
        return 8 if self.dtype == "fp64" else 4

    @property
    def kv_bytes(self) -> int:
        """Bytes of an element of K and V on the wire of the ring."""
        return DTYPES[self.kv_dtype].itemsize

    @property
    def partial_bytes(self) -> int:
        return DTYPES[self.partial_dtype].itemsize

    @property
    def kv_shape(self) -> dict[str, int]:
        """Arguments that describe K and V on one rank, before any exchange."""
        return {
            "batch_size": self.batch,
            "num_kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "v_head_dim": self.v_head_dim,
        }

    @property
    def exchange(self) -> dict[str, int]:
        """Arguments that describe an exchange of heads, with copies where KV heads are too few."""
        return {
            **self.kv_shape,
            "element_bytes": self.element_bytes,
            "num_kv_heads": max(self.kv_heads, self.ulysses_size),
            "tokens": self.tokens,
            "num_heads": self.heads,
            "ulysses_size": self.ulysses_size,
        }

    @property
    def shard_elements(self) -> int:
        """Elements of one rank's K and V, measured on its arrays."""
        return sum(array.size for array in self.placed()[0]["kv"])

    @property
    def hop_bytes(self) -> int:
        """One rank's K and V on the wire."""
        return self.shard_elements * self.kv_bytes

    @property
    def gradient_bytes(self) -> int:
        """Their gradients on the wire."""
        return self.shard_elements * DTYPES[self.gradient_dtype].itemsize

    def plain_wire(self) -> Small:
        """The same, K and V on the wire as they are held."""
        return replace(self, kv_dtype=self.dtype)

    def network(self) -> Network:
        return Network(DTYPES[self.kv_dtype])

    @cached_property
    def setup(self) -> Setup:
        new = np.arange(self.new_tokens) + self.cached * self.ranks
        tokens = spread(PARTITIONS[self.partition](new, self.ring_size), self.ulysses_size)
        old = contiguous(np.arange(self.cached * self.ranks), self.ranks)
        return Setup(
            Mask(self.causal, self.window),
            tokens,
            joined(old, tokens),
            gradient_dtype=DTYPES[self.gradient_dtype],
            partial_dtype=DTYPES[self.partial_dtype],
        )

    def arrays(self, queries: int | None = None) -> tuple[Array, Array, Array, Array]:
        rng = np.random.default_rng(0)

        def some(heads: int, tokens: int, width: int) -> Array:
            return rng.standard_normal((self.batch, heads, tokens, width)).astype(
                DTYPES[self.dtype]
            )

        many = self.seq_len if queries is None else queries
        return (
            some(self.heads, many, self.head_dim),
            some(self.kv_heads, self.seq_len, self.head_dim),
            some(self.kv_heads, self.seq_len, self.v_head_dim),
            some(self.heads, many, self.v_head_dim),
        )

    def placed(self) -> list[Rank]:
        return place(self.setup, *self.arrays())

    def forward(self, keep: ring.Kept = "own") -> list[Rank]:
        """Run the ring, with heads exchanged inside where there are ranks for it."""
        ranks = self.placed()
        if self.ulysses_size > 1:
            ulysses.forward(self.network(), ranks, self.setup, self.ulysses_size, keep)
        else:
            ring.forward(self.network(), ranks, self.setup, keep)
        return ranks

    def backward(self, *, reverse: bool = False) -> list[Rank]:
        """Run both passes; the ledgers hold the second."""
        ranks = self.forward("both" if reverse else "own")
        fresh(ranks)
        around = ring.backward_reversed if reverse else ring.backward
        if self.ulysses_size > 1:
            ulysses.backward(self.network(), ranks, self.setup, self.ulysses_size, around)
        else:
            around(self.network(), ranks, self.setup)
        return ranks

    def gather(self) -> list[Rank]:
        ranks = self.placed()
        gather.forward(self.network(), ranks, self.setup)
        return ranks

    def gather_backward(self) -> list[Rank]:
        ranks = self.gather()
        fresh(ranks)
        gather.backward(self.network(), ranks, self.setup)
        return ranks

    def pass_q(self) -> list[Rank]:
        ranks = self.placed()
        decode.pass_q(self.network(), ranks, self.setup)
        return ranks

    def decode(self, queries: int, *, rotating: bool) -> list[Rank]:
        """Let the last tokens, on every rank the same, see the whole context."""
        last = np.arange(self.seq_len - queries, self.seq_len)
        keys = contiguous(np.arange(self.seq_len), self.ranks)
        setup = Setup(Mask(causal=False), ((last,),) * self.ranks, keys)
        setup = setup._replace(partial_dtype=DTYPES[self.partial_dtype])
        ranks = place(setup, *self.arrays())
        run = ring.forward if rotating else decode.stationary
        run(self.network(), ranks, setup)
        return ranks


def fresh(ranks: Sequence[Rank]) -> None:
    """Begin new ledgers."""
    for rank in ranks:
        rank.ledger = Ledger()


def sent(ranks: Sequence[Rank], *what: str) -> int:
    """Bytes that every rank sent; none sends more than another."""
    (each,) = {rank.ledger.sent(*what) for rank in ranks}
    return each


def computing(ranks: Sequence[Rank]) -> list[list[Step]]:
    """Steps in which each rank met a block."""
    return [[step for step in rank.ledger.steps if step.read_bytes] for rank in ranks]


CAUSAL = st.just(value=True)
SIZES, ONE, ZERO, NOTHING = st.integers(1, 6), st.just(1), st.just(0), st.none()
ANY_PARTITION, EITHER = st.sampled_from(list(PARTITIONS)), st.booleans()


@st.composite
def smalls(
    draw: st.DrawFn,
    *,
    ring_size: st.SearchStrategy[int] = SIZES,
    ulysses_size: st.SearchStrategy[int] = ONE,
    partition: st.SearchStrategy[str] = ANY_PARTITION,
    causal: st.SearchStrategy[bool] = EITHER,
    cached: st.SearchStrategy[int] = ZERO,
    window: st.SearchStrategy[int | None] = NOTHING,
) -> Small:
    """Draw a ring; heads are such that the degree divides them or is a multiple of them."""
    degree = draw(ulysses_size)
    groups = draw(st.integers(1, 3))
    kv_heads = degree * groups if draw(st.booleans()) else draw(st.sampled_from(_divisors(degree)))
    repeat = draw(st.integers(1, 3)) * (degree // kv_heads if kv_heads < degree else 1)
    dtypes = draw(st.tuples(*[st.sampled_from(list(DTYPES))] * 4))
    return Small(
        ring_size=draw(ring_size),
        ulysses_size=degree,
        partition=draw(partition),
        causal=draw(causal),
        tokens=2 * draw(st.integers(1, 3)),
        cached=draw(cached),
        batch=draw(st.integers(1, 2)),
        kv_heads=kv_heads,
        repeat=repeat,
        head_dim=2 * draw(st.integers(1, 3)),
        v_head_dim=draw(st.integers(1, 5)),
        dtype=dtypes[0],
        kv_dtype=dtypes[1],
        gradient_dtype=dtypes[2],
        partial_dtype=dtypes[3],
        window=draw(window),
    )


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if not number % d]
