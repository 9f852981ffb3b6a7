"""A rank must know where its tokens stand in the sequence, not in its block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringplan.reference import dense, partition
from ringplan.reference.masks import Mask
from ringplan.reference.rope import rotate
from tests.reference.cases import (
    DATAFLOWS,
    TOLERANCE,
    Case,
    answer,
    error,
    example,
    go,
    on_ranks,
    place_case,
    run,
    solve,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.reference.dense import Array
    from ringplan.reference.partition import Chunks, Positions
    from tests.reference.cases import Answer

each_dataflow = pytest.mark.parametrize("name", DATAFLOWS)
each_partition = pytest.mark.parametrize("partition_name", partition.PARTITIONS)


def local(chunks: Chunks) -> Positions:
    """Positions as a rank would count them that thinks it is alone."""
    return np.arange(len(partition.positions(chunks)))


def rotated_by_ranks(case: Case, positions: Callable[[Chunks], Positions]) -> Answer:
    """Every rank rotates its own q and k before any is sent."""
    ranks = place_case(case)
    for rank, queries, keys in zip(ranks, case.setup.queries, case.setup.keys, strict=True):
        (q,), (k, v) = rank["q"], rank["kv"]
        rank["q"] = (rotate(q, positions(queries)),)
        rank["kv"] = (rotate(k, positions(keys)), v)
    go(case, ranks, forward_only=True)
    return answer(case, ranks)


def solve_rotated(case: Case) -> Answer:
    """Rotate the whole sequence, and attend densely."""
    q, k, *_ = case.tensors
    tokens = np.arange(q.shape[2])
    whole = case.tensors._replace(q=rotate(q, tokens), k=rotate(k, tokens))
    return solve(case._replace(tensors=whole))


@each_dataflow
@each_partition
def test_global_positions_are_right(name: str, partition_name: str) -> None:
    case = example(name, partition_name=partition_name)
    made = rotated_by_ranks(case, partition.positions)

    assert error(made, solve_rotated(case)) <= TOLERANCE
    assert error(made, solve(case)) > TOLERANCE  # rotation does something


@each_dataflow
@each_partition
def test_local_positions_are_wrong_and_look_right(name: str, partition_name: str) -> None:
    """Finite, of the right shape, of the right size: only the comparison with dense catches it."""
    case = example(name, partition_name=partition_name)
    made, right = rotated_by_ranks(case, local), solve_rotated(case)

    for array in ("out", "lse"):
        assert made[array].shape == right[array].shape
        assert np.isfinite(made[array]).all()
        assert 0.5 < np.linalg.norm(made[array]) / np.linalg.norm(right[array]) < 2
        assert error({array: made[array]}, right) > TOLERANCE


@pytest.mark.parametrize(("name", "num_ranks"), on_ranks(1))
def test_one_rank_alone_may_count_as_it_likes(name: str, num_ranks: int) -> None:
    """Then, and only then, local positions are global ones."""
    case = example(name, partition_name="contiguous", num_ranks=num_ranks)

    assert error(rotated_by_ranks(case, local), solve_rotated(case)) <= TOLERANCE


@each_dataflow
@each_partition
def test_mask_on_local_positions_is_wrong_and_looks_right(name: str, partition_name: str) -> None:
    """The same slip in the mask: a rank that takes every block for its own triangle."""
    case = example(name, partition_name=partition_name)
    layout = tuple((local(chunks),) for chunks in case.setup.keys)
    ranks = place_case(case)
    go(case._replace(setup=case.setup._replace(queries=layout, keys=layout)), ranks)
    made, right = answer(case, ranks), solve(case)

    assert all(np.isfinite(array).all() for array in made.values())
    assert 0.5 < np.linalg.norm(made["out"]) / np.linalg.norm(right["out"]) < 2
    assert error({"out": made["out"]}, right) > TOLERANCE


@pytest.mark.parametrize("shift", [1, 1000])
def test_rotation_knows_distances_only(shift: int) -> None:
    """All positions moved alike leave attention as it is, up to the rounding of the angles."""
    q, k, v, _ = tensors(8, heads=(2, 1))
    tokens = np.arange(8)
    here, there = (
        dense.attention(
            rotate(q, tokens + start), rotate(k, tokens + start), v, Mask(),
            queries=tokens, keys=tokens,
        )
        for start in (0, shift)
    )  # fmt: skip

    assert error({"out": there[0]}, {"out": here[0]}) <= TOLERANCE


def test_rotation_keeps_the_length_of_every_pair() -> None:
    """Element i turns with element i + D/2, the first pair by one radian a token."""
    q = tensors(8).q
    turned = rotate(q, np.arange(8))

    def lengths(x: Array) -> Array:
        squares: Array = x[..., :3] ** 2 + x[..., 3:] ** 2
        return np.sqrt(squares)

    np.testing.assert_allclose(lengths(turned), lengths(q), rtol=1e-12)
    np.testing.assert_array_equal(turned[:, :, 0], q[:, :, 0])
    first, half = q[..., 1, 0], q[..., 1, 3]
    np.testing.assert_allclose(turned[..., 1, 0], first * np.cos(1) - half * np.sin(1))


@each_partition
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_partitions_deal_every_token_once(partition_name: str, num_ranks: int) -> None:
    layout = partition.PARTITIONS[partition_name](np.arange(4 * num_ranks), num_ranks)
    held = np.concatenate([partition.positions(chunks) for chunks in layout])

    assert sorted(held.tolist()) == list(range(4 * num_ranks))
    assert {partition.positions(chunks).size for chunks in layout} == {4}


@each_partition
def test_partitions_refuse_what_they_cannot_cut_evenly(partition_name: str) -> None:
    with pytest.raises(ValueError, match="9 tokens do not make"):
        partition.PARTITIONS[partition_name](np.arange(9), 2)


@each_dataflow
def test_answers_come_back_in_the_order_of_the_sequence(name: str) -> None:
    """A value that is its position, seen by its own query alone."""
    given = tensors(16, sizes=(6, 1))
    given = given._replace(v=np.broadcast_to(np.arange(16.0)[:, None], given.v.shape))
    for partition_name in partition.PARTITIONS:
        case = example(name, partition_name=partition_name, mask=Mask(window=1), given=given)
        out = run(case, forward_only=True)["out"]
        np.testing.assert_array_equal(out[0, 0, :, 0], np.arange(16))
