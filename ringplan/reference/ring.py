"""Ring attention: keys and values go round, queries stay."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias

from ringplan.reference.local import add_gradients, attend, finish, prepare, start
from ringplan.reference.network import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.local import Setup
    from ringplan.reference.network import Network, Rank


#: What a forward ring leaves behind: the rank's own block, the last it received, or both.
Kept: TypeAlias = Literal["own", "last", "both"]


def forward(network: Network, ranks: Sequence[Rank], setup: Setup, keep: Kept = "own") -> None:
    """
    Turn ``q`` and ``kv`` of every rank into its ``out`` and ``lse``.

    At step s rank r works on the block of owner r - s. A cache or a `backward` needs the rank's
    own block afterwards, `backward_reversed` the ``last`` one; what is not kept is given away.
    """
    size = len(ranks)
    start(ranks, setup)
    block = "kv"
    for step in range(size):
        begin(ranks)
        for i, rank in enumerate(ranks):
            attend(rank, setup, i, block, owner=(i - step) % size)
        if step < size - 1:  # the last block has nowhere left to go
            lend = block == "kv" and keep != "last"
            network.shift(ranks, block, into="visiting", what="kv", keep=lend)
            network.deliver()
            if block == "kv" and not lend:
                _drop(ranks, "kv")
            block = "visiting"
    finish(ranks, setup)
    for rank in ranks:
        last = rank[block]
        if block == "visiting":
            rank.drop(block)
        if keep != "own":
            rank["last"] = last


def double(network: Network, ranks: Sequence[Rank], setup: Setup, window: int) -> None:
    """
    Go round in windows of neighbours, and from window to window, as LoongTrain does.

    While a window's blocks go round inside, the block for the next turn is already on its way
    from the window before. Inner and outer hops are ``kv`` and ``kv outer`` in the ledger.
    """
    turns = len(ranks) // window
    neighbours = [ranks[i : i + window] for i in range(0, len(ranks), window)]
    likes = [ranks[i::window] for i in range(window)]
    start(ranks, setup)
    block = "kv"
    for turn, step in product(range(turns), range(window)):
        begin(ranks)
        for number, rank in enumerate(ranks):
            outer, inner = divmod(number, window)
            owner = (outer - turn) % turns * window + (inner - step) % window
            attend(rank, setup, number, block, owner=owner)
        if step == 0 and turn < turns - 1:
            for column in likes:
                network.shift(column, block, into="next", what="kv outer", keep=True)
        if step < window - 1:
            for row in neighbours:
                network.shift(row, block, into="visiting", what="kv", keep=block == "kv")
        network.deliver()
        if step == window - 1 and turn < turns - 1:
            _rename(ranks, "next", "visiting")
        block = "visiting"
    finish(ranks, setup)
    if len(ranks) > 1:
        _drop(ranks, "visiting")


def backward(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """
    Turn ``dout`` into ``dq`` and ``dkv``: blocks go round again, their gradients with them.

    The gradients of a block start with its owner and come home with the P-th hop
    (zhuzilin, torch).
    """
    size = len(ranks)
    prepare(ranks)
    block = "kv"
    for step in range(size):
        begin(ranks)
        for i, rank in enumerate(ranks):
            add_gradients(rank, setup, i, block, owner=(i - step) % size, into="dkv")
        if step < size - 1:
            network.shift(ranks, block, into="visiting", what="kv", keep=block == "kv")
            block = "visiting"
        if size > 1:
            network.shift(ranks, "dkv", into="dkv", what="gradients")
        network.deliver()
    if block == "visiting":
        _drop(ranks, block)


def backward_reversed(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """
    Turn ``dout`` into ``dq`` and ``dkv``, starting from the ``last`` block that forward received.

    The ring runs the other way. A block reaches its owner at the last step, and its gradients,
    one hop behind it, with the last of P - 1 hops (Transformer Engine).
    """
    size = len(ranks)
    prepare(ranks)
    block = "last"
    for step in range(size):
        begin(ranks)
        for i, rank in enumerate(ranks):
            add_gradients(rank, setup, i, block, owner=(i + 1 + step) % size, into="dkv")
        if step < size - 1:
            network.shift(ranks, block, into="visiting", what="kv", by=-1)
            network.shift(ranks, "dkv", into="dkv", what="gradients", by=-1)
            network.deliver()
            if block == "last":
                _drop(ranks, "last")
            block = "visiting"
    if all("kv" in rank for rank in ranks):
        _drop(ranks, block)
    else:  # at the last step the rank's own block is home
        _rename(ranks, block, "kv")


def _drop(ranks: Sequence[Rank], name: str) -> None:
    for rank in ranks:
        rank.drop(name)


def _rename(ranks: Sequence[Rank], name: str, into: str) -> None:
    for rank in ranks:
        arrays = rank[name]
        rank.drop(name)
        rank[into] = arrays
