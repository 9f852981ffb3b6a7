"""What a rank does with arrays that it holds; every dataflow is made of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ringplan.reference.blocks import Block, Gradients, Running, State, accumulator
from ringplan.reference.network import Rank
from ringplan.reference.partition import positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ringplan.reference.dense import Array
    from ringplan.reference.masks import Mask
    from ringplan.reference.partition import Layout


class Setup(NamedTuple):
    """
    What every rank knows.

    Attributes
    ----------
    mask
        Which pairs are visible.
    queries, keys
        Who holds which query tokens, and which key tokens.
    cached
        Where heads are exchanged: which tokens a group of ranks has cached besides, by head.
    state
        How blocks are merged.
    gradient_dtype, partial_dtype
        Format of dK and dV, and of the partial outputs that decode returns; None is the queries'.
    latent_v_dim
        Where a rank holds one latent in place of K and V (MLA in decode): its leading columns are
        V, all of it is K.
    """

    mask: Mask
    queries: Layout
    keys: Layout
    state: type[State] = Running
    gradient_dtype: np.dtype[Any] | None = None
    partial_dtype: np.dtype[Any] | None = None
    cached: Layout = ()
    latent_v_dim: int | None = None


def place(setup: Setup, q: Array, k: Array, v: Array, dout: Array | None = None) -> list[Rank]:
    """Make ranks, each with a copy of its tokens of ``B H S D`` arrays."""
    ranks = []
    for number, (queries, keys) in enumerate(zip(setup.queries, setup.keys, strict=True)):
        rank = Rank(number)
        here, there = positions(queries), positions(keys)
        rank["q"] = (q[:, :, here],)
        rank["kv"] = (k[:, :, there], v[:, :, there])
        if dout is not None:
            rank["dout"] = (dout[:, :, here],)
        ranks.append(rank)
    return ranks


def collect(shards: Iterable[Array], layout: Layout) -> Array:
    """Put the ranks' tokens (axis 2) back into the order of the sequence."""
    order = np.concatenate([positions(chunks) for chunks in layout])
    return np.concatenate(list(shards), axis=2)[:, :, np.argsort(order)]


def start(ranks: Iterable[Rank], setup: Setup) -> None:
    """Let every rank's queries have seen nothing."""
    for rank in ranks:
        (q,), (_, v) = rank["q"], keys_and_values(rank, setup, "kv")
        rank["state"] = setup.state.empty(q, v)


def attend(rank: Rank, setup: Setup, index: int, block: str, *, owner: int) -> None:
    """Let the rank's queries see a block that it holds and that ``owner`` brought."""
    (q,), (k, v) = rank["q"], keys_and_values(rank, setup, block)
    seen = Block(q, k, v, setup.queries[index], setup.keys[owner])
    now = rank.ledger.now
    now.work += setup.state(*rank["state"]).attend(seen, setup.mask)
    now.read_bytes += sum(array.nbytes for array in rank[block])


def keys_and_values(rank: Rank, setup: Setup, block: str) -> tuple[Array, Array]:
    """Return K and V of a block that the rank holds, or what a latent stands for."""
    match rank[block]:
        case (latent,):
            return latent, latent[..., : setup.latent_v_dim]
        case (k, v):
            return k, v
    raise ValueError(f"{block} is neither K and V nor a latent")


def finish(ranks: Iterable[Rank], setup: Setup) -> None:
    """Turn the state into ``out``, in the format of the queries, and ``lse``."""
    for rank in ranks:
        out, lse = setup.state(*rank["state"]).finish()
        rank.drop("state")
        rank["out"] = (out.astype(rank["q"][0].dtype),)
        rank["lse"] = (lse,)


def prepare(ranks: Sequence[Rank]) -> None:
    """Make ``dq``, empty, and ``delta``, the sum of ``out * dout`` of each query."""
    for rank in ranks:
        (q,), (out,), (dout,) = rank["q"], rank["out"], rank["dout"]
        wide = accumulator(q)
        rank["dq"] = (np.zeros(q.shape, wide),)
        rank["delta"] = ((out.astype(wide) * dout.astype(wide)).sum(axis=-1),)


def add_gradients(
    rank: Rank,
    setup: Setup,
    index: int,
    block: str,
    *,
    owner: int,
    into: str,
) -> None:
    """Add what a block contributes to ``dq``, and to its own gradients if the rank has some."""
    (q,), (k, v) = rank["q"], rank[block]
    (dout,), (dq,), (lse,), (delta,) = (rank[name] for name in ("dout", "dq", "lse", "delta"))
    wide = accumulator(q)
    made = Gradients(dq, np.zeros(k.shape, wide), np.zeros(v.shape, wide))
    seen = Block(q, k, v, setup.queries[index], setup.keys[owner])
    now = rank.ledger.now
    now.work += made.add(seen, setup.mask, dout, lse, delta)
    now.read_bytes += k.nbytes + v.nbytes
    if into in rank:
        add_into(rank[into], (made.dk, made.dv))
    else:
        kept = setup.gradient_dtype or q.dtype
        rank[into] = (made.dk.astype(kept), made.dv.astype(kept))


def add_into(sums: tuple[Array, ...], more: tuple[Array, ...]) -> None:
    """Add arrays to others, rounding to the others' format."""
    for array, addend in zip(sums, more, strict=True):
        array[...] = (array.astype(addend.dtype) + addend).astype(array.dtype)
