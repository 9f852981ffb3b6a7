"""
Ulysses: trade tokens for heads, attend, trade back; inside a ring it is the hybrid of both.

Consecutive ranks exchange heads. Each then holds a share of the heads of all their tokens, under
names that begin with ``by_head.``, and passes blocks round a ring with its likes of other groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ringplan.reference import ring
from ringplan.reference.blocks import accumulator
from ringplan.reference.network import begin
from ringplan.reference.partition import joined, positions

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringplan.reference.dense import Array
    from ringplan.reference.local import Setup
    from ringplan.reference.network import Network, Rank
    from ringplan.reference.partition import Layout


def forward(
    network: Network,
    ranks: Sequence[Rank],
    setup: Setup,
    ulysses_size: int,
    keep: ring.Kept = "own",
) -> None:
    """
    Turn ``q`` and ``kv`` of every rank into its ``out``.

    ``ulysses_size`` divides the query heads and the number of ranks; a single ring rank is plain
    Ulysses. Fewer key/value heads than ranks are replicated. The ring keeps what `ring.forward`
    says.
    """
    query_heads, kv_heads = (ranks[0][name][0].shape[1] for name in ("q", "kv"))
    if query_heads % ulysses_size or (kv_heads % ulysses_size and ulysses_size % kv_heads):
        raise ValueError(f"{ulysses_size} ranks cannot share {query_heads}/{kv_heads} heads evenly")
    inside = [rank.scope("by_head") for rank in ranks]
    for group in _groups(ranks, ulysses_size):
        begin(group)
        for rank in group:
            (k, v) = rank["kv"]
            rank["k"], rank["v"] = (k,), (v,)
        for name in ("q", "k", "v"):
            _tokens_to_heads(network, group, name)
        for rank in group:
            inner = rank.scope("by_head")
            inner["kv"] = (*inner["k"], *inner["v"])
            inner.drop("k", "v")
            if "cache" in inner:
                inner["kv"] = tuple(
                    np.concatenate(parts, axis=2)
                    for parts in zip(inner["cache"], inner["kv"], strict=True)
                )
            rank.drop("k", "v")
    for ring_ranks, whole in _rings(inside, setup, ulysses_size):
        ring.forward(network, ring_ranks, whole, keep)
    begin(ranks)
    for group in _groups(ranks, ulysses_size):
        _heads_to_tokens(network, group, "out", like="q")


def place_cache(ranks: Sequence[Rank], setup: Setup, ulysses_size: int, k: Array, v: Array) -> None:
    """Give every rank its share of the heads of the tokens that its group has cached."""
    for i, rank in enumerate(ranks):
        group, member = divmod(i, ulysses_size)
        tokens = positions(setup.cached[group])
        heads = _heads_of(member, ulysses_size, k.shape[1])
        rank.scope("by_head")["cache"] = (k[:, heads][:, :, tokens], v[:, heads][:, :, tokens])


def backward(
    network: Network,
    ranks: Sequence[Rank],
    setup: Setup,
    ulysses_size: int,
    around: Callable[[Network, Sequence[Rank], Setup], None] = ring.backward,
) -> None:
    """
    Turn ``dout`` into ``dq`` and ``dkv``; copies of a key/value head add up their gradients.

    Gradients go back in the format of the queries, whatever they were added up in.

    ``around`` is the backward pass of the ring.
    """
    inside = [rank.scope("by_head") for rank in ranks]
    for group in _groups(ranks, ulysses_size):
        begin(group)
        _tokens_to_heads(network, group, "dout")
    for ring_ranks, whole in _rings(inside, setup, ulysses_size):
        around(network, ring_ranks, whole)
    begin(ranks)
    for group in _groups(ranks, ulysses_size):
        for rank in group:
            inner = rank.scope("by_head")
            dtype = inner["q"][0].dtype
            for name, array in zip(("dq", "dk", "dv"), (*inner["dq"], *inner["dkv"]), strict=True):
                inner[name] = (array.astype(dtype),)
        for name, like in (("dq", "q"), ("dk", "kv"), ("dv", "kv")):
            _heads_to_tokens(network, group, name, like=like)
        for rank in group:
            rank["dkv"] = (*rank["dk"], *rank["dv"])
            rank.drop("dk", "dv")


def _groups(each: Sequence[T], ulysses_size: int) -> list[Sequence[T]]:
    """What consecutive ranks have, group by group."""
    return [each[i : i + ulysses_size] for i in range(0, len(each), ulysses_size)]


def _rings(
    inside: Sequence[Rank], setup: Setup, ulysses_size: int
) -> list[tuple[Sequence[Rank], Setup]]:
    """Ranks that hold the same heads, and the tokens that their groups hold together."""

    def whole(layout: Layout) -> Layout:
        held = [positions(chunks) for chunks in layout]
        return tuple((np.concatenate(group),) for group in _groups(held, ulysses_size))

    together = setup._replace(queries=whole(setup.queries), keys=whole(setup.keys))
    if setup.cached:
        together = together._replace(keys=joined(setup.cached, together.keys))
    return [(inside[i::ulysses_size], together) for i in range(ulysses_size)]


def _tokens_to_heads(network: Network, group: Sequence[Rank], name: str) -> None:
    """Send every rank of the group its heads of the others' tokens."""
    for i, rank in enumerate(group):
        (array,) = rank[name]
        for j, target in enumerate(group):
            rank[f"piece {j}"] = (array[:, _heads_of(j, len(group), array.shape[1])],)
            if i == j:
                rank[f"got {i}"] = rank[f"piece {j}"]
            else:
                network.send(rank, target, f"piece {j}", into=f"got {i}", what="heads", keep=True)
    network.deliver()
    for rank in group:
        pieces = [rank[f"got {i}"][0] for i in range(len(group))]
        rank.scope("by_head")[name] = (np.concatenate(pieces, axis=2),)
        _forget(rank, len(group))


def _heads_to_tokens(network: Network, group: Sequence[Rank], name: str, *, like: str) -> None:
    """
    Send every rank of the group its tokens of the others' heads, and add up copies of a head.

    Each then holds as many heads and tokens as of its own arrays ``like``.
    """
    size, heads = len(group), group[0][like][0].shape[1]
    ends = np.cumsum([0, *(rank[like][0].shape[2] for rank in group)])
    for i, rank in enumerate(group):
        (array,) = rank.scope("by_head")[name]
        for j, target in enumerate(group):
            rank[f"piece {j}"] = (array[:, :, ends[j] : ends[j + 1]],)
            if i == j:
                rank[f"got {i}"] = tuple(np.copy(part) for part in rank[f"piece {j}"])
            else:
                network.send(rank, target, f"piece {j}", into=f"got {i}", what="heads", keep=True)
    network.deliver()
    for rank in group:
        pieces = [rank[f"got {i}"][0] for i in range(size)]
        batch, _, tokens, width = pieces[0].shape
        whole = np.zeros((batch, heads, tokens, width), accumulator(pieces[0]))
        for i, piece in enumerate(pieces):
            whole[:, _heads_of(i, size, heads)] += piece.astype(whole.dtype)
        rank[name] = (whole.astype(pieces[0].dtype),)
        _forget(rank, size)


def _heads_of(member: int, size: int, num_heads: int) -> slice:
    """Heads of one member of a group: an equal share, or one that others have too."""
    if num_heads >= size:
        share = num_heads // size
        return slice(member * share, (member + 1) * share)
    head = member * num_heads // size
    return slice(head, head + 1)


def _forget(rank: Rank, size: int) -> None:
    for i in range(size):
        rank.drop(f"piece {i}", f"got {i}")
