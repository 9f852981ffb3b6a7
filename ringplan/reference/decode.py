"""
Few queries against a cache that is spread over the ranks: what moves, the cache or the query.

Moving the cache is `ring.forward`, with the same queries on every rank in decode, or with the new
tokens' queries where they are (pass-KV).
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from ringplan.reference.blocks import Block, LogSumExp, Running
from ringplan.reference.local import attend, finish, start
from ringplan.reference.network import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.dense import Array
    from ringplan.reference.local import Setup
    from ringplan.reference.network import Network, Rank


def stationary(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """
    Broadcast the first rank's ``q``, attend to every shard where it is, reduce to one ``out``.

    A partial output travels divided, with its maximum and denominator.
    """
    root, *others = ranks
    begin(ranks)
    for rank in others:
        network.send(root, rank, "q", into="q", what="queries", keep=True)
    network.deliver()
    begin(ranks)
    setup = setup._replace(state=Running)
    start(ranks, setup)
    for i, rank in enumerate(ranks):
        attend(rank, setup, i, "kv", owner=i)
    for rank in others:
        state = Running(*rank["state"])
        out, _ = state.finish()
        out = out.astype(setup.partial_dtype or rank["q"][0].dtype)
        rank["partial"] = (out, state.top, state.total)
        network.send(rank, root, "partial", into=f"partial {rank.number}", what="outputs")
    network.deliver()
    for rank in others:
        rank.drop("state", "partial")
        out, top, total = root[f"partial {rank.number}"]
        numerator = out.astype(total.dtype) * total[..., None]
        Running(*root["state"]).merge(Running(top, total, numerator))
        root.drop(f"partial {rank.number}")
    finish([root], setup)


def pass_q(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """
    Send queries round, attend where they come by, and return the partial outputs.

    A partial output travels in the queries' format, with its log-sum-exp (Yang et al. 2024, arXiv
    2411.01783).
    """
    size = len(ranks)
    queries = "q"
    for step in range(size):
        begin(ranks)
        for i, rank in enumerate(ranks):
            _partial(rank, setup, i, queries, owner=(i - step) % size)
        if step < size - 1:
            keep = queries == "q"
            network.shift(ranks, queries, into="visiting", what="queries", keep=keep)
            network.deliver()
            queries = "visiting"
    if queries == "visiting":
        for rank in ranks:
            rank.drop("visiting")
    begin(ranks)
    for rank, target in permutations(ranks, 2):
        name = f"partial {target.number}"
        network.send(rank, target, name, into=f"home {rank.number}", what="outputs")
    network.deliver()
    for rank in ranks:
        own = f"partial {rank.number}"
        rank["state"] = _widened(rank[own])
        for other in ranks:
            if other is not rank:
                home = f"home {other.number}"
                LogSumExp(*rank["state"]).merge(_widened(rank[home]))
                rank.drop(home, f"partial {other.number}")
        rank.drop(own)
    finish(ranks, setup._replace(state=LogSumExp))


def _widened(partial: tuple[Array, ...]) -> LogSumExp:
    """Return a partial output and its log-sum-exp in the format of the latter."""
    out, lse = partial
    return LogSumExp(out.astype(lse.dtype), lse)


def _partial(rank: Rank, setup: Setup, index: int, queries: str, *, owner: int) -> None:
    """Attend with queries that the rank holds, its own or visiting ones, to its own keys."""
    (q,), (k, v) = rank[queries], rank["kv"]
    state = setup.state.empty(q, v)
    now = rank.ledger.now
    now.work += state.attend(Block(q, k, v, setup.queries[owner], setup.keys[index]), setup.mask)
    now.read_bytes += k.nbytes + v.nbytes
    out, lse = state.finish()
    rank[f"partial {owner}"] = (out.astype(q.dtype), lse)
