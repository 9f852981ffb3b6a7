"""Every dataflow attends as one dense matrix would."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringplan.reference import dense, masks, partition, ring, ulysses
from ringplan.reference.local import Setup
from ringplan.reference.masks import Mask
from tests.reference.cases import (
    DATAFLOWS,
    STATES,
    TOLERANCE,
    Case,
    Dataflow,
    error,
    example,
    layout_of,
    run,
    solve,
    tensors,
)
from tests.reference.strategies import cases, seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.reference.dense import Array

each_dataflow = pytest.mark.parametrize("name", DATAFLOWS)
each_partition = pytest.mark.parametrize("partition_name", partition.PARTITIONS)
each_state = pytest.mark.parametrize("state", STATES)


def forward_error(case: Case) -> float:
    return error(run(case, forward_only=True), solve(case))


@each_dataflow
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_ranks_heads_masks_and_documents(name: str, data: st.DataObject) -> None:
    """Splitting a sequence over ranks changes nothing but the rounding."""
    assert forward_error(data.draw(cases(name))) <= TOLERANCE


@each_dataflow
@each_partition
@each_state
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("heads", [(4, 4), (8, 4), (8, 1)], ids=["MHA", "GQA", "MQA"])
def test_heads_partitions_and_states(
    name: str, partition_name: str, state: str, *, causal: bool, heads: tuple[int, int]
) -> None:
    case = example(
        name,
        partition_name=partition_name,
        mask=Mask(causal=causal),
        state=state,
        given=tensors(16, heads=heads),
    )

    assert forward_error(case) <= TOLERANCE


@pytest.mark.parametrize("name", ["ring", "reversed ring", "double ring", "all-gather", "pass-Q"])
@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_one_to_eight_ranks(name: str, num_ranks: int) -> None:
    """Odd rings too; one rank alone is a ring of no hops."""
    assert forward_error(example(name, num_ranks=num_ranks, tokens=4 * num_ranks)) <= TOLERANCE


@each_state
@pytest.mark.parametrize("window", [1, 2, 3, 6])
def test_double_ring_of_any_inner_window(window: int, state: str) -> None:
    """Windows of one are the plain ring by outer hops, one window of P by inner hops."""
    case = example("double ring", num_ranks=6, tokens=24, state=state)

    assert forward_error(case._replace(inner=window)) <= TOLERANCE


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8])
@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_ulysses_degree_beyond_the_kv_heads_replicates_them(degree: int, kv_heads: int) -> None:
    """Eight ranks: from a plain ring over hybrids to plain Ulysses."""
    layout = layout_of("zigzag", 32, 8, degree)
    dataflow = Dataflow(ulysses.forward, inner_sizes=lambda _: [degree], trades_heads=True)
    case = Case(
        dataflow, Setup(Mask(), layout, layout), tensors(32, heads=(8, kv_heads)), inner=degree
    )

    assert forward_error(case) <= TOLERANCE


@pytest.mark.parametrize("heads", [(6, 6), (2, 2), (12, 3), (24, 6)], ids=str)
def test_ulysses_refuses_heads_that_it_cannot_share_evenly(heads: tuple[int, int]) -> None:
    """Neither query heads that are too few nor KV heads that would sit beside foreign queries."""
    case = example("ulysses", given=tensors(16, heads=heads))

    with pytest.raises(ValueError, match=f"4 ranks cannot share {heads[0]}/{heads[1]} heads"):
        run(case)


@each_dataflow
@pytest.mark.parametrize("sizes", [(1, 7), (8, 3)], ids=str)
def test_values_of_another_size_than_keys(name: str, sizes: tuple[int, int]) -> None:
    assert forward_error(example(name, given=tensors(16, sizes=sizes))) <= TOLERANCE


@each_dataflow
@each_partition
@pytest.mark.parametrize("window", [1, 3, 4, 5, 16])
def test_sliding_windows(name: str, partition_name: str, window: int) -> None:
    """Narrower than a block, its size, one more, and as wide as the context."""
    case = example(name, partition_name=partition_name, mask=Mask(window=window))

    assert forward_error(case) <= TOLERANCE


def packed(name: str, lengths: list[int], mask: Mask) -> Case:
    """Documents one after another, each zigzagged on its own over four ranks."""
    case = example(name, tokens=sum(lengths), mask=mask)
    layout = layout_of("zigzag", lengths, 4, case.group)
    return case._replace(setup=case.setup._replace(queries=layout, keys=layout))


@each_dataflow
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
def test_packed_documents_zigzagged_each_on_its_own(name: str, *, causal: bool) -> None:
    """A document attends as if it were alone in the world."""
    lengths = [8, 24, 16]
    case = packed(name, lengths, Mask(causal=causal, documents=masks.documents(lengths)))
    out = run(case, forward_only=True)["out"]

    assert forward_error(case) <= TOLERANCE
    ends = np.cumsum(lengths)
    for end, length in zip(ends, lengths, strict=True):
        alone = np.arange(length)
        q, k, v = (array[:, :, end - length : end] for array in case.tensors[:3])
        right, _ = dense.attention(q, k, v, Mask(causal=causal), queries=alone, keys=alone)
        assert error({"out": out[:, :, end - length : end]}, {"out": right}) <= TOLERANCE


@each_dataflow
def test_other_documents_and_the_future_have_no_influence(name: str) -> None:
    """New keys and values where a query must not look leave every bit of its answer."""
    lengths = [8, 16]
    case = packed(name, lengths, Mask(documents=masks.documents(lengths)))
    q, k, v, dout = (array.copy() for array in case.tensors)
    k[:, :, :8], v[:, :, :8] = 7, 7  # the first document
    k[:, :, 16:], v[:, :, 16:] = -7, -7  # the later half of the second
    other = case._replace(tensors=case.tensors._replace(q=q, k=k, v=v, dout=dout))

    before, after = (run(each, forward_only=True)["out"] for each in (case, other))
    assert np.array_equal(before[:, :, 8:16], after[:, :, 8:16])
    assert not np.isclose(before[:, :, 16:], after[:, :, 16:]).any()


def by_the_definition(q: Array, k: Array, v: Array, sees: list[list[int]]) -> Array:
    """Weighted means of values, one query at a time."""
    out = np.zeros((len(sees), v.shape[-1]))
    for query, keys in enumerate(sees):
        weights = [np.exp(q[query] @ k[key] / np.sqrt(len(q[query]))) for key in keys]
        for key, weight in zip(keys, weights, strict=True):
            out[query] += weight / sum(weights) * v[key]
    return out


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        (Mask(), lambda i, j: j <= i),
        (Mask(causal=False), lambda _i, _j: True),
        (Mask(window=3), lambda i, j: i - 3 < j <= i),
        (Mask(causal=False, window=3), lambda i, j: i - 3 < j),
        (Mask(documents=masks.documents([3, 4])), lambda i, j: j <= i and (i < 3) == (j < 3)),
    ],
    ids=["causal", "full", "window", "window and future", "documents"],
)
def test_dense_is_the_definition(mask: Mask, rule: Callable[[int, int], bool]) -> None:
    """What everything is held against, held against two loops."""
    q, k, v, _ = tensors(7, heads=(2, 1))
    out, lse = dense.attention(q, k, v, mask, queries=np.arange(7), keys=np.arange(7))
    sees = [[j for j in range(7) if rule(i, j)] for i in range(7)]

    for sequence, head in product(range(2), range(2)):
        right = by_the_definition(q[sequence, head], k[sequence, 0], v[sequence, 0], sees)
        np.testing.assert_allclose(out[sequence, head], right, rtol=1e-12)
        for i, keys in enumerate(sees):
            scores = k[sequence, 0, keys] @ q[sequence, head, i] / np.sqrt(6)
            assert lse[sequence, head, i] == pytest.approx(np.log(np.exp(scores).sum()), rel=1e-12)


@given(num_ranks=st.integers(1, 6), chunks=st.integers(1, 4), seed=seeds)
@settings(max_examples=30, deadline=None)
def test_key_value_heads_shared_are_key_value_heads_repeated(
    num_ranks: int, chunks: int, seed: int
) -> None:
    """Grouped-query attention is multi-head attention with equal heads."""
    tokens = 2 * num_ranks * chunks
    few = tensors(tokens, heads=(6, 2), seed=seed)
    many = few._replace(k=np.repeat(few.k, 3, axis=1), v=np.repeat(few.v, 3, axis=1))
    grouped, repeated = (
        run(example("ring", num_ranks=num_ranks, tokens=tokens, given=each), forward_only=True)
        for each in (few, many)
    )

    assert error(grouped, repeated) <= TOLERANCE


@each_partition
def test_tiles_of_a_block_are_merged_like_blocks(
    partition_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles that divide nothing evenly."""
    monkeypatch.setattr("ringplan.reference.blocks.QUERY_TILE", 3)
    monkeypatch.setattr("ringplan.reference.blocks.KEY_TILE", 2)
    case = example("ring", partition_name=partition_name, num_ranks=2, tokens=28)

    assert error(run(case), solve(case)) <= TOLERANCE


def test_double_ring_leaves_what_a_backward_ring_needs() -> None:
    case = example("double ring", num_ranks=6, tokens=24)._replace(inner=3)
    inner_then_plain = case.dataflow._replace(
        backward=lambda network, ranks, setup, _window: ring.backward(network, ranks, setup)
    )
    case = case._replace(dataflow=inner_then_plain)

    assert error(run(case), solve(case)) <= TOLERANCE
