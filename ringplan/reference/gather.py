"""All-gather attention: every rank collects all keys and values, then computes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringplan.reference.local import add_gradients, add_into, attend, finish, prepare, start
from ringplan.reference.network import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.local import Setup
    from ringplan.reference.network import Network, Rank


def forward(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """Turn ``q`` and ``kv`` of every rank into its ``out`` and ``lse``."""
    all_gather(network, ranks)
    begin(ranks)
    start(ranks, setup)
    for i, rank in enumerate(ranks):
        for owner in range(len(ranks)):
            attend(rank, setup, i, f"gathered {owner}", owner=owner)
    finish(ranks, setup)
    _drop(ranks, "gathered")


def backward(network: Network, ranks: Sequence[Rank], setup: Setup) -> None:
    """Turn ``dout`` into ``dq`` and ``dkv``: gather again, then add up and scatter gradients."""
    prepare(ranks)
    all_gather(network, ranks)
    begin(ranks)
    for i, rank in enumerate(ranks):
        for owner in range(len(ranks)):
            block, into = f"gathered {owner}", f"gradients {owner}"
            add_gradients(rank, setup, i, block, owner=owner, into=into)
    _drop(ranks, "gathered")
    reduce_scatter(network, ranks)
    for i, rank in enumerate(ranks):
        rank["dkv"] = rank[f"gradients {i}"]
    _drop(ranks, "gradients")


def all_gather(network: Network, ranks: Sequence[Rank]) -> None:
    """Give every rank a copy of every ``kv`` as ``gathered OWNER``, passed on from rank to rank."""
    size = len(ranks)
    for i, rank in enumerate(ranks):
        rank[f"gathered {i}"] = tuple(np.copy(array) for array in rank["kv"])
    for hop in range(size - 1):
        begin(ranks)
        for i, rank in enumerate(ranks):
            name = f"gathered {(i - hop) % size}"
            network.send(rank, ranks[(i + 1) % size], name, into=name, what="kv", keep=True)
        network.deliver()


def reduce_scatter(network: Network, ranks: Sequence[Rank]) -> None:
    """Bring the sum of all ranks' ``gradients OWNER`` to each owner, one addition a hop."""
    size = len(ranks)
    for hop in range(size - 1):
        begin(ranks)
        for i, rank in enumerate(ranks):
            name = f"gradients {(i - 1 - hop) % size}"
            network.send(rank, ranks[(i + 1) % size], name, into="sum", what="gradients")
        network.deliver()
        for i, rank in enumerate(ranks):
            add_into(rank[f"gradients {(i - 2 - hop) % size}"], rank["sum"])
            rank.drop("sum")


def _drop(ranks: Sequence[Rank], name: str) -> None:
    for rank in ranks:
        for owner in range(len(ranks)):
            rank.drop(f"{name} {owner}")
