"""Gradients come home to the rank that owns what they are of, and are the dense ones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringplan.reference import dense, masks, partition, ring
from ringplan.reference.blocks import DTYPES
from ringplan.reference.masks import Mask
from tests.reference.cases import (
    BACKWARD,
    STATES,
    TOLERANCE,
    Case,
    Dataflow,
    error,
    example,
    go,
    layout_of,
    place_case,
    run,
    solve,
    tensors,
)
from tests.reference.strategies import cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.reference.dense import Array

each_dataflow = pytest.mark.parametrize("name", BACKWARD)
each_partition = pytest.mark.parametrize("partition_name", partition.PARTITIONS)


def slopes(value: Callable[[], float], array: Array, step: float = 1e-5) -> Array:
    """Central differences of a value with respect to each element of an array."""
    made = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        here = array[index]
        array[index] = here + step
        above = value()
        array[index] = here - step
        made[index] = (above - value()) / (2 * step)
        array[index] = here
    return made


@each_dataflow
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_ranks_heads_masks_and_documents(name: str, data: st.DataObject) -> None:
    """Gradients of Q, K and V are the dense ones."""
    case = data.draw(cases(name))
    made = run(case)

    assert set(made) == {"out", "lse", "dq", "dk", "dv"}
    assert error(made, solve(case)) <= TOLERANCE


@each_dataflow
@each_partition
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("heads", [(4, 4), (8, 4), (8, 1)], ids=["MHA", "GQA", "MQA"])
def test_heads_and_partitions(
    name: str, partition_name: str, *, causal: bool, heads: tuple[int, int]
) -> None:
    """With one KV head for four ranks that trade heads, copies of it add up their gradients."""
    case = example(
        name,
        partition_name=partition_name,
        mask=Mask(causal=causal),
        given=tensors(16, heads=heads),
    )

    assert error(run(case), solve(case)) <= TOLERANCE


@pytest.mark.parametrize("name", ["ring", "reversed ring", "all-gather"])
@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_one_to_eight_ranks(name: str, num_ranks: int) -> None:
    case = example(name, num_ranks=num_ranks, tokens=4 * num_ranks)

    assert error(run(case), solve(case)) <= TOLERANCE


@each_dataflow
def test_packed_documents_in_a_window(name: str) -> None:
    lengths = [8, 24, 16]
    mask = Mask(window=5, documents=masks.documents(lengths))
    case = example(name, tokens=sum(lengths), mask=mask)
    layout = layout_of("zigzag", lengths, 4, case.group)
    case = case._replace(setup=case.setup._replace(queries=layout, keys=layout))

    assert error(run(case), solve(case)) <= TOLERANCE


def small(name: str) -> Case:
    return example(name, tokens=8, given=tensors(8, heads=(4, 2), sizes=(2, 1), batch=1))


@pytest.mark.parametrize(
    "mask",
    [Mask(), Mask(causal=False), Mask(window=2), Mask(documents=masks.documents([3, 5]))],
    ids=["causal", "full", "window", "documents"],
)
def test_dense_gradients_are_slopes_of_dense_attention(mask: Mask) -> None:
    """Truncation is of order step squared, rounding of order 1e-16 / step."""
    q, k, v, dout = tensors(6, heads=(2, 1), sizes=(3, 2), batch=1)
    tokens = np.arange(6)

    def value() -> float:
        out, _ = dense.attention(q, k, v, mask, queries=tokens, keys=tokens)
        return float((out * dout).sum())

    made = dense.gradients(q, k, v, dout, mask, queries=tokens, keys=tokens)
    for gradient, array in zip(made, (q, k, v), strict=True):
        np.testing.assert_allclose(gradient, slopes(value, array), atol=1e-8)


@each_dataflow
def test_gradients_are_slopes_of_the_dataflow_itself(name: str) -> None:
    """Nothing dense is asked: the same ranks, forward, with one number nudged."""
    case = small(name)

    def value() -> float:
        return float((run(case, forward_only=True)["out"] * case.tensors.dout).sum())

    made = run(case)
    for gradient, array in zip(("dq", "dk", "dv"), case.tensors, strict=False):
        np.testing.assert_allclose(made[gradient], slopes(value, array), atol=1e-8)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8])
def test_reversed_ring_brings_every_block_home_as_it_was(num_ranks: int) -> None:
    """Own keys and values are given away forward, and are the owner's again after backward."""
    case = example("reversed ring", num_ranks=num_ranks, tokens=4 * num_ranks)
    ranks, originals = place_case(case), place_case(case)
    go(case, ranks, forward_only=True)
    assert num_ranks == 1 or not any("kv" in rank for rank in ranks)

    ranks = place_case(case)
    go(case, ranks)
    for rank, original in zip(ranks, originals, strict=True):
        assert "last" not in rank
        assert "visiting" not in rank
        for array, was in zip(rank["kv"], original["kv"], strict=True):
            np.testing.assert_array_equal(array, was)


def test_rank_that_kept_its_block_is_left_with_it_and_not_with_the_one_that_travelled() -> None:
    """On a narrow wire the latter is rounded."""
    case = example("ring")
    keep_both = Dataflow(partial(ring.forward, keep="both"), ring.backward_reversed)
    ranks, originals = place_case(case), place_case(case)
    go(case._replace(dataflow=keep_both), ranks, kv_dtype="bf16")

    for rank, original in zip(ranks, originals, strict=True):
        assert "visiting" not in rank
        for array, was in zip(rank["kv"], original["kv"], strict=True):
            np.testing.assert_array_equal(array, was)


def test_one_forward_ring_may_serve_both_ways_back() -> None:
    """A cache keeps the own block, Transformer Engine's backward starts from the last."""
    case = example("ring")
    keep_both = partial(ring.forward, keep="both")
    for backward in (ring.backward, ring.backward_reversed):
        dataflow = Dataflow(keep_both, backward)
        each = case._replace(dataflow=dataflow)

        assert error(run(each), solve(each)) <= TOLERANCE


@pytest.mark.parametrize("name", [name for name in BACKWARD if name != "reversed ring"])
def test_other_dataflows_leave_the_own_block_alone(name: str) -> None:
    case = example(name)
    ranks, originals = place_case(case), place_case(case)
    go(case, ranks)

    for rank, original in zip(ranks, originals, strict=True):
        for held in ("q", "kv", "dout"):
            for array, was in zip(rank[held], original[held], strict=True):
                np.testing.assert_array_equal(array, was)


@each_dataflow
def test_gradients_do_not_depend_on_how_the_forward_was_merged(name: str) -> None:
    """Backward needs ``out`` and ``lse`` alone, and both states finish with those."""
    running, log_sum_exp = (run(example(name, state=state)) for state in STATES)

    assert error(running, log_sum_exp) <= TOLERANCE


@each_dataflow
@given(factor=st.floats(-8, 8), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_gradients_are_linear_in_the_incoming_one(name: str, factor: float, seed: int) -> None:
    case = small(name)
    other = tensors(8, heads=(4, 2), sizes=(2, 1), batch=1, seed=seed).dout

    def gradients(dout: Array) -> list[Array]:
        made = run(case._replace(tensors=case.tensors._replace(dout=dout)))
        return [made[gradient] for gradient in ("dq", "dk", "dv")]

    both = gradients(case.tensors.dout + factor * other)
    for total, one, two in zip(both, gradients(case.tensors.dout), gradients(other), strict=True):
        np.testing.assert_allclose(total, one + factor * two, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["ring", "reversed ring", "all-gather"])
def test_gradients_may_travel_in_another_format_than_the_keys(name: str) -> None:
    """In fp32, dK and dV of bf16 tensors lose nothing on the way; in bf16 they do."""
    given = tensors(16).rounded("bf16")
    case = example(name, given=given)
    right = solve(case)

    errors = {}
    for dtype in ("bf16", "fp32"):
        setup = case.setup._replace(gradient_dtype=DTYPES[dtype])
        made = run(case._replace(setup=setup))
        assert made["dk"].dtype == made["dv"].dtype == DTYPES[dtype]
        errors[dtype] = error({"dv": made["dv"]}, right)

    assert errors["fp32"] <= 1e-6
    assert 1e-3 <= errors["bf16"] <= 1e-2
