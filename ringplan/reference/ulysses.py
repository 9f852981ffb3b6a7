"""
Ulysses: trade tokens for heads, attend, trade back; inside a ring it is the hybrid of both.

Consecutive ranks exchange heads. Each then holds a share of the heads of all their tokens, under
names that begin with ``by_head.``, and passes blocks round a ring with its likes of other groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringplan.reference import ring
from ringplan.reference.blocks import accumulator
from ringplan.reference.network import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.local import Setup
    from ringplan.reference.network import Network, Rank
    from ringplan.reference.partition import Layout


def forward(network: Network, ranks: Sequence[Rank], setup: Setup, ulysses_size: int) -> None:
    """
    Turn ``q`` and ``kv`` of every rank into its ``out``.

    ``ulysses_size`` divides the query heads and the number of ranks; a single ring rank is plain
    Ulysses. Fewer key/value heads than ranks are replicated.
    """
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
            rank.drop("k", "v")
    for ring_ranks, whole in _rings(inside, setup, ulysses_size):
        ring.forward(network, ring_ranks, whole)
    for group in _groups(ranks, ulysses_size):
        _heads_to_tokens(network, group, "out")


def backward(network: Network, ranks: Sequence[Rank], setup: Setup, ulysses_size: int) -> None:
    """Turn ``dout`` into ``dq`` and ``dkv``; copies of a key/value head add up their gradients."""
    inside = [rank.scope("by_head") for rank in ranks]
    for group in _groups(ranks, ulysses_size):
        begin(group)
        _tokens_to_heads(network, group, "dout")
    for ring_ranks, whole in _rings(inside, setup, ulysses_size):
        ring.backward(network, ring_ranks, whole)
    for group in _groups(ranks, ulysses_size):
        for rank in group:
            inner = rank.scope("by_head")
            (inner["dk"], inner["dv"]) = ((part,) for part in inner["dkv"])
            inner["dq"] = (inner["dq"][0].astype(inner["q"][0].dtype),)
        for name, own in (("dq", "q"), ("dk", "kv"), ("dv", "kv")):
            _heads_to_tokens(network, group, name, num_heads=group[0][own][0].shape[1])
        for rank in group:
            rank["dkv"] = (*rank["dk"], *rank["dv"])
            rank.drop("dk", "dv")


def _groups(ranks: Sequence[Rank], ulysses_size: int) -> list[Sequence[Rank]]:
    return [ranks[i : i + ulysses_size] for i in range(0, len(ranks), ulysses_size)]


def _rings(
    inside: Sequence[Rank], setup: Setup, ulysses_size: int
) -> list[tuple[Sequence[Rank], Setup]]:
    """Ranks that hold the same heads, and the tokens that their groups hold together."""

    def whole(layout: Layout) -> Layout:
        return tuple(
            tuple(chunk for chunks in layout[i : i + ulysses_size] for chunk in chunks)
            for i in range(0, len(layout), ulysses_size)
        )

    together = setup._replace(queries=whole(setup.queries), keys=whole(setup.keys))
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


def _heads_to_tokens(
    network: Network, group: Sequence[Rank], name: str, num_heads: int | None = None
) -> None:
    """Send every rank of the group its tokens of the others' heads, and add up copies of a head."""
    size = len(group)
    ends = np.cumsum([0, *(rank["q"][0].shape[2] for rank in group)])
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
        batch, held, tokens, width = pieces[0].shape
        heads = held * size if num_heads is None else num_heads
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
