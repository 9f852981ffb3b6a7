"""Problems to attend to, the dataflows that solve them, and the comparison that decides."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringplan.reference import decode, dense, gather, partition, ring, ulysses
from ringplan.reference.blocks import DTYPES, LogSumExp, Running, State
from ringplan.reference.local import Setup, collect, place
from ringplan.reference.masks import Mask
from ringplan.reference.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ringplan.reference.dense import Array
    from ringplan.reference.network import Rank
    from ringplan.reference.partition import Layout

    Answer = dict[str, Array]

#: Distance from dense, relative to the norm, at which an fp64 answer is still the answer.
TOLERANCE = 1e-12

STATES: dict[str, type[State]] = {"running": Running, "log-sum-exp": LogSumExp}


def divisors(number: int) -> list[int]:
    """Every size of equal groups, the smallest first."""
    return [size for size in range(1, number + 1) if number % size == 0]


class Dataflow(NamedTuple):
    """
    One way to attend over ranks.

    ``inner_sizes`` are the groups inside a ring of P that its functions can be asked for, or None
    if they take no such size. With ``trades_heads`` the group shares out heads. Only the first
    rank has the answer with ``at_root``.
    """

    forward: Callable[..., None]
    backward: Callable[..., None] | None = None
    inner_sizes: Callable[[int], list[int]] | None = None
    trades_heads: bool = False
    at_root: bool = False

    def sizes(self, num_ranks: int) -> list[int]:
        """Inner sizes to try; none if this number of ranks is not for it."""
        return [1] if self.inner_sizes is None else self.inner_sizes(num_ranks)


def whole(num_ranks: int) -> list[int]:
    """All ranks are one group."""
    return [num_ranks]


def groups(num_ranks: int) -> list[int]:
    """Neither one group nor groups of one."""
    return divisors(num_ranks)[1:-1]


DATAFLOWS = {
    "ring": Dataflow(ring.forward, ring.backward),
    "reversed ring": Dataflow(partial(ring.forward, keep="last"), ring.backward_reversed),
    "double ring": Dataflow(ring.double, inner_sizes=divisors),
    "all-gather": Dataflow(gather.forward, gather.backward),
    "ulysses": Dataflow(ulysses.forward, ulysses.backward, whole, trades_heads=True),
    "hybrid": Dataflow(ulysses.forward, ulysses.backward, groups, trades_heads=True),
    "reversed hybrid": Dataflow(
        partial(ulysses.forward, keep="last"),
        partial(ulysses.backward, around=ring.backward_reversed),
        groups,
        trades_heads=True,
    ),
    "pass-Q": Dataflow(decode.pass_q),
}
BACKWARD = [name for name, dataflow in DATAFLOWS.items() if dataflow.backward]


def on_ranks(*sizes: int, names: Iterable[str] = DATAFLOWS) -> list[tuple[str, int]]:
    """Dataflows with the numbers of ranks, of these, on which they run."""
    return [(name, size) for name, size in product(names, sizes) if DATAFLOWS[name].sizes(size)]


#: The same queries on every rank.
DECODE = {
    "rotating": Dataflow(ring.forward),
    "stationary": Dataflow(decode.stationary, at_root=True),
}


class Tensors(NamedTuple):
    """``B H S D``, ``B G S D``, ``B G S E`` and ``B H S E``, tokens in the sequence's order."""

    q: Array
    k: Array
    v: Array
    dout: Array

    def rounded(self, dtype: str) -> Tensors:
        return Tensors(*(array.astype(DTYPES[dtype]) for array in self))

    def exact(self) -> Tensors:
        """Round nothing any more."""
        return Tensors(*(array.astype(np.float64) for array in self))


def tensors(
    tokens: int,
    *,
    heads: tuple[int, int] = (4, 2),
    sizes: tuple[int, int] = (6, 5),
    batch: int = 2,
    seed: int = 0,
) -> Tensors:
    """Normal numbers for query and key/value heads, of a size for q and k and one for v."""
    draw = np.random.default_rng(seed).standard_normal
    (query_heads, kv_heads), (qk_size, v_size) = heads, sizes
    return Tensors(
        draw((batch, query_heads, tokens, qk_size)),
        draw((batch, kv_heads, tokens, qk_size)),
        draw((batch, kv_heads, tokens, v_size)),
        draw((batch, query_heads, tokens, v_size)),
    )


class Case(NamedTuple):
    """A dataflow and all that it is given."""

    dataflow: Dataflow
    setup: Setup
    tensors: Tensors
    inner: int = 1

    @property
    def group(self) -> int:
        """Ranks that trade heads with one another."""
        return self.inner if self.dataflow.trades_heads else 1

    @property
    def num_blocks(self) -> int:
        """Blocks that a query meets one after another."""
        return len(self.setup.keys) // self.group


def layout_of(
    partition_name: str, tokens: int | Sequence[int], num_ranks: int, group: int = 1
) -> Layout:
    """Partition a sequence, or each of several documents; a group that trades heads cuts on."""
    cut, parts = partition.PARTITIONS[partition_name], num_ranks // group
    layout = (
        cut(np.arange(tokens), parts)
        if isinstance(tokens, int)
        else partition.by_document(cut, tokens, parts)
    )
    return partition.spread(layout, group) if group > 1 else layout


def example(
    name: str,
    *,
    partition_name: str = "zigzag",
    num_ranks: int = 4,
    tokens: int = 16,
    mask: Mask | None = None,
    state: str = "running",
    given: Tensors | None = None,
) -> Case:
    """Four ranks with four tokens each, unless told otherwise; groups of two where there are."""
    dataflow = DATAFLOWS[name]
    sizes = dataflow.sizes(num_ranks)
    inner = sizes[len(sizes) // 2]
    group = inner if dataflow.trades_heads else 1
    layout = layout_of(partition_name, tokens, num_ranks, group)
    setup = Setup(mask or Mask(), layout, layout, STATES[state])
    return Case(dataflow, setup, given or tensors(tokens), inner)


def place_case(case: Case) -> list[Rank]:
    return place(case.setup, *case.tensors)


def go(
    case: Case, ranks: list[Rank], *, forward_only: bool = False, kv_dtype: str | None = None
) -> None:
    """Go forward, and backward if the dataflow can."""
    network, dataflow = Network(None if kv_dtype is None else DTYPES[kv_dtype]), case.dataflow
    inner = () if dataflow.inner_sizes is None else (case.inner,)
    dataflow.forward(network, ranks, case.setup, *inner)
    if dataflow.backward and not forward_only:
        dataflow.backward(network, ranks, case.setup, *inner)


def run(case: Case, *, forward_only: bool = False, kv_dtype: str | None = None) -> Answer:
    """Let fresh ranks solve it, and put their answers together."""
    ranks = place_case(case)
    go(case, ranks, forward_only=forward_only, kv_dtype=kv_dtype)
    return answer(case, ranks)


def answer(case: Case, ranks: Sequence[Rank]) -> Answer:
    """Tokens of all ranks in the sequence's order; log-sum-exp where heads are, if traded."""
    queries, keys = answered(case), case.setup.keys
    ranks = ranks[: len(queries)]
    made = {"out": collect([rank["out"][0] for rank in ranks], queries)}
    if case.dataflow.trades_heads:
        by_head = [
            collect([rank["by_head.lse"][0] for rank in ranks[i :: case.inner]], queries)
            for i in range(case.inner)
        ]
        made["lse"] = np.concatenate(by_head, axis=1)
    else:
        made["lse"] = collect([rank["lse"][0] for rank in ranks], queries)
    if "dkv" in ranks[0]:
        made["dq"] = collect([rank["dq"][0] for rank in ranks], queries)
        made["dk"] = collect([rank["dkv"][0] for rank in ranks], keys)
        made["dv"] = collect([rank["dkv"][1] for rank in ranks], keys)
    return made


def answered(case: Case) -> Layout:
    """Queries whose answers the ranks have in the end."""
    return case.setup.queries[:1] if case.dataflow.at_root else case.setup.queries


def solve(case: Case) -> Answer:
    """Dense attention in fp64 to the same queries and keys, and its gradients."""
    queries, keys = (
        np.sort(np.concatenate([partition.positions(chunks) for chunks in layout]))
        for layout in (answered(case), case.setup.keys)
    )
    q, k, v, dout = case.tensors.exact()
    q, k, v, dout = q[:, :, queries], k[:, :, keys], v[:, :, keys], dout[:, :, queries]
    mask = case.setup.mask
    out, lse = dense.attention(q, k, v, mask, queries=queries, keys=keys)
    dq, dk, dv = dense.gradients(q, k, v, dout, mask, queries=queries, keys=keys)
    return {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def error(made: Answer, right: Answer) -> float:
    """
    Worst distance of an array from what is right, relative to its norm.

    A wrong shape, a NaN, and an infinity in the wrong place are infinitely wrong.
    """
    return max(distance(array, right[name]) for name, array in made.items())


def distance(made: Array, right: Array) -> float:
    nothing = np.isneginf(right)  # log-sum-exp of a query that sees no key
    if made.shape != right.shape or not np.array_equal(np.isneginf(made), nothing):
        return np.inf
    made, right = np.where(nothing, 0, made), np.where(nothing, 0, right)
    if not np.isfinite(made).all():
        return np.inf
    return float(np.linalg.norm(made - right) / (np.linalg.norm(right) or 1))
