"""Exact up to rounding, in every format and at every edge, and not bit for bit."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringplan.reference import dense, masks, partition
from ringplan.reference.blocks import DTYPES, Block, LogSumExp, Running, State
from ringplan.reference.local import Setup
from ringplan.reference.masks import Mask
from tests.reference.cases import (
    BACKWARD,
    DATAFLOWS,
    DECODE,
    STATES,
    TOLERANCE,
    Case,
    Tensors,
    error,
    example,
    go,
    on_ranks,
    place_case,
    run,
    solve,
    tensors,
)
from tests.reference.strategies import seeds, uneven_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.reference.dense import Array
    from ringplan.reference.partition import Positions

each_dataflow = pytest.mark.parametrize("name", DATAFLOWS)
each_state = pytest.mark.parametrize("state", STATES)
each_half = pytest.mark.parametrize("dtype", ["bf16", "fp16"])

#: Largest relative error of rounding to nearest.
ROUNDOFF = {"fp64": 2**-53, "fp32": 2**-24, "bf16": 2**-8, "fp16": 2**-11}
#: What sums in fp32 may add to the roundings of a half format.
SUMS = 1e-5


@pytest.fixture(autouse=True)
def _every_floating_point_event_is_an_error() -> Iterator[None]:
    with np.errstate(all="raise", under="ignore"):
        yield


def test_a_warning_would_not_pass_unnoticed() -> None:
    with pytest.raises(FloatingPointError):
        np.log(np.zeros(1))


@pytest.mark.parametrize(("name", "num_ranks"), on_ranks(1, 2, 4, 8))
@each_state
def test_fp32_is_within_a_hundred_thousandth(name: str, state: str, num_ranks: int) -> None:
    """And not much better, or it was not computed in fp32."""
    given = tensors(64, heads=(8, 4)).rounded("fp32")
    case = example(name, num_ranks=num_ranks, tokens=64, state=state, given=given)
    made = run(case)

    assert {array.dtype for array in made.values()} == {DTYPES["fp32"]}
    assert ROUNDOFF["fp32"] / 8 < error(made, solve(case)) <= 1e-5


def positive(tokens: int, dtype: str, seed: int = 0) -> Tensors:
    """
    Values and incoming gradients above zero.

    Sums of such numbers do not cancel, so that a relative error of the terms is the sum's too.
    """
    given = tensors(tokens, heads=(8, 8), seed=seed)
    draw = np.random.default_rng(seed).uniform
    return given._replace(
        v=draw(0.5, 1.5, given.v.shape), dout=draw(0.5, 1.5, given.dout.shape)
    ).rounded(dtype)


def relative(made: Array, right: Array, dtype: str) -> Array:
    """Error of each element in units of the format's rounding."""
    errors: Array = np.abs(made.astype(np.float64) / right - 1) / ROUNDOFF[dtype]
    return errors


@pytest.mark.parametrize(("name", "num_ranks"), on_ranks(1, 2, 4, 8))
@each_half
@each_state
def test_outputs_are_rounded_once_or_twice_however_many_blocks(
    name: str, state: str, num_ranks: int, dtype: str
) -> None:
    """
    No element of the output is off by more than one rounding for each time it is rounded.

    A merged output is a weighted mean of block outputs. So if each was rounded, the mean is off by
    one rounding at most, whatever their number; the answer itself is rounded once more.
    """
    given = positive(48, dtype)
    case = example(name, num_ranks=num_ranks, tokens=48, state=state, given=given)
    blocks_are_rounded = state == "log-sum-exp" or name == "pass-Q"
    roundings = 2 if blocks_are_rounded and case.num_blocks > 1 else 1

    made, right = run(case, forward_only=True), solve(case)
    worst = relative(made["out"], right["out"], dtype).max()

    assert made["out"].dtype == DTYPES[dtype]
    assert roundings - 0.5 < worst <= roundings + SUMS / ROUNDOFF[dtype]


@each_half
def test_output_error_against_ranks(dtype: str) -> None:
    """
    In the mean, two ranks cost most; with more ranks their roundings average out.

    Block errors are independent and weighted 1/P: variance 1 + 1/P of one rounding's.
    """
    errors = {}
    for num_ranks in (1, 2, 4, 8, 16):
        given = positive(64, dtype)
        case = example(
            "ring", num_ranks=num_ranks, tokens=64, state="log-sum-exp", given=given,
            mask=Mask(causal=False),
        )  # fmt: skip
        errors[num_ranks] = error(run(case, forward_only=True), solve(case))

    assert all(error < ROUNDOFF[dtype] for error in errors.values()), errors
    assert errors[2] > errors[4] > errors[8] > errors[16] > errors[1], errors
    for num_ranks in (2, 4, 8, 16):
        expected = errors[1] * np.sqrt(1 + 1 / num_ranks)
        assert errors[num_ranks] == pytest.approx(expected, rel=0.05), errors


@pytest.mark.parametrize(("name", "num_ranks"), on_ranks(1, 2, 4, 8, names=BACKWARD))
@each_half
def test_travelling_gradients_are_rounded_once_a_hop(name: str, num_ranks: int, dtype: str) -> None:
    """dV is a sum of P positive terms, and each addition rounds what there is so far."""
    case = example(name, num_ranks=num_ranks, tokens=64, given=positive(64, dtype))
    made, right = run(case), solve(case)
    bound = ((1 + ROUNDOFF[dtype]) ** num_ranks - 1) / ROUNDOFF[dtype]

    assert relative(made["dv"], right["dv"], dtype).max() <= bound + SUMS / ROUNDOFF[dtype]
    for gradient in ("dq", "dk"):  # they cancel, so that only their norm is bounded
        assert error({gradient: made[gradient]}, right) <= 8 * ROUNDOFF[dtype]


@pytest.mark.parametrize("name", ["ring", "reversed ring", "all-gather"])
@each_half
def test_gradient_error_against_ranks(name: str, dtype: str) -> None:
    """It grows with P, no faster than its root; in fp32 it neither is nor grows."""
    errors, wide = {}, {}
    for num_ranks in (1, 2, 4, 8, 16):
        case = example(name, num_ranks=num_ranks, tokens=64, given=positive(64, dtype))
        right = solve(case)
        errors[num_ranks] = error({"dv": run(case)["dv"]}, right)
        setup = case.setup._replace(gradient_dtype=DTYPES["fp32"])
        wide[num_ranks] = error({"dv": run(case._replace(setup=setup))["dv"]}, right)

    assert all(fewer < more for fewer, more in pairwise(errors.values())), errors
    assert all(errors[each] <= 1.1 * np.sqrt(each) * errors[1] for each in errors), errors
    assert max(wide.values()) <= 1e-6, wide


@pytest.mark.parametrize("name", ["ring", "reversed ring", "all-gather"])
def test_narrow_wire_rounds_what_travels(name: str) -> None:
    """Nothing is lost that the format can hold, and one rank sends nothing."""
    fine, coarse = tensors(16), tensors(16).rounded("bf16").exact()
    for num_ranks, some, lossless in ((4, coarse, True), (4, fine, False), (1, fine, True)):
        case = example(name, num_ranks=num_ranks, given=some)
        found = error(run(case, kv_dtype="bf16"), solve(case))

        assert found <= TOLERANCE if lossless else 1e-4 < found < 1e-2


@each_dataflow
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_empty_shards_and_rows_with_nothing_to_attend(name: str, data: st.DataObject) -> None:
    """Any token anywhere, or nowhere. Gradients can vanish altogether, so errors are absolute."""
    case = data.draw(uneven_cases(name))
    made, right = run(case), solve(case)

    for array, values in made.items():
        np.testing.assert_allclose(values, right[array], rtol=1e-11, atol=1e-11)


NOTHING = {
    "all keys come later": (Mask(), np.arange(8), np.arange(8, 16)),
    "window ends before the keys": (Mask(window=2), np.arange(8, 16), np.arange(6)),
    "keys of another document": (
        Mask(causal=False, documents=masks.documents([8, 8])),
        np.arange(8),
        np.arange(8, 16),
    ),
    "no keys": (Mask(), np.arange(8), np.arange(0)),
    "no queries": (Mask(), np.arange(0), np.arange(8)),
}


def between(case: Case, mask: Mask, queries: Positions, keys: Positions) -> Case:
    """Ask about some tokens, with others for keys, both dealt round robin."""
    here, there = (tuple((tokens[rank::4],) for rank in range(4)) for tokens in (queries, keys))
    return case._replace(setup=Setup(mask, here, there, case.setup.state))


@each_dataflow
@each_state
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("why", NOTHING)
def test_nothing_to_attend_is_zero_and_minus_infinity(
    name: str, state: str, dtype: str, why: str
) -> None:
    given = tensors(16).rounded(dtype)
    made = run(between(example(name, state=state, given=given), *NOTHING[why]))

    assert np.isneginf(made.pop("lse")).all()
    for array in made.values():
        assert not array.any()


@each_dataflow
@each_state
def test_rows_with_nothing_beside_rows_with_something(name: str, state: str) -> None:
    """The first four queries come before every key."""
    case = between(example(name, state=state), Mask(), np.arange(16), np.arange(4, 16))
    made, right = run(case), solve(case)

    assert np.isneginf(right["lse"][:, :, :4]).all()
    assert np.isfinite(right["lse"][:, :, 4:]).all()
    assert error(made, right) <= TOLERANCE


@pytest.mark.parametrize("way", DECODE)
@each_state
@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_with_nothing_in_the_cache(way: str, state: str, dtype: str) -> None:
    """No shard has a token, or none is in the window."""
    for mask, keys in ((Mask(), np.arange(0)), (Mask(window=3), np.arange(5))):
        setup = Setup(mask, ((np.arange(8, 9),),) * 4, partition.interleaved(keys, 4))
        case = Case(
            DECODE[way],
            setup._replace(state=STATES[state]),
            tensors(9).rounded(dtype),
        )
        made = run(case)

        assert np.isneginf(made["lse"]).all()
        assert not made["out"].any()


SCORES = {"up to 1e4": (1e4, 0), "around 1e4": (1, 1e4), "around -1e4": (1, -1e4)}


@each_dataflow
@each_state
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_ten_thousand(name: str, state: str, dtype: str, kind: str) -> None:
    """
    Finite, and as right as such scores can be.

    The error of a weight is relative what the error of its score is absolute: roundoff times 1e4.
    """
    factor, offset = SCORES[kind]
    given = tensors(16)
    q, k = factor * given.q, given.k.copy()
    k[..., 0] = 1 if offset else k[..., 0]
    q[..., 0] += offset * np.sqrt(6)
    case = example(name, state=state, given=given._replace(q=q, k=k).rounded(dtype))
    made, right = run(case), solve(case)

    assert np.abs(right["lse"]).max() > 9e3
    assert all(np.isfinite(array).all() for array in made.values())
    sums = ROUNDOFF["fp64" if dtype == "fp64" else "fp32"]
    bound = 4 * sums * np.abs(right["lse"]).max() + 4 * ROUNDOFF[dtype]
    for array in ("out", "lse", "dv"):
        if array in made:
            assert error({array: made[array]}, right) <= bound


def partials(state: type[State], cuts: list[int], seed: int = 0) -> tuple[list[State], Array]:
    """States that have each seen one slice of the keys, and the answer to all of them."""
    q, k, v, _ = tensors(16, seed=seed)
    tokens = np.arange(16)
    made = []
    for start, end in pairwise([0, *sorted(cuts), 16]):
        some = slice(start, end)
        each = state.empty(q, v)
        block = Block(q, k[:, :, some], v[:, :, some], (tokens,), (tokens[some],))
        each.attend(block, Mask())
        made.append(each)
    right, _ = dense.attention(q, k, v, Mask(), queries=tokens, keys=tokens)
    return made, right


def merged(states: list[State]) -> Array:
    """Output of all, merged one after another into an empty state."""
    first = states[0]
    total = type(first)(*(array.copy() for array in first))
    for other in states[1:]:
        match total, other:
            case Running(), Running():
                total.merge(other)
            case LogSumExp(), LogSumExp():
                total.merge(other)
    return total.finish()[0]


@each_state
@given(cuts=st.lists(st.integers(0, 16), max_size=5), seed=seeds)
@settings(max_examples=60, deadline=None)
def test_any_blocks_merge_in_any_order(state: str, cuts: list[int], seed: int) -> None:
    """Empty blocks, hidden blocks, and blocks of one key."""
    with np.errstate(all="raise", under="ignore"):
        states, right = partials(STATES[state], cuts, seed)

        for order in (states, states[::-1], states[1:] + states[:1]):
            assert error({"out": merged(order)}, {"out": right}) <= TOLERANCE


@each_state
def test_merging_with_nothing_changes_no_bit(state: str) -> None:
    """-inf with -inf, -inf with something, and something with -inf."""
    (some,), _ = partials(STATES[state], [])
    q, _, v, _ = tensors(16)
    nothing = [STATES[state].empty(q, v) for _ in range(2)]

    assert not merged(nothing).any()
    np.testing.assert_array_equal(merged([some, nothing[0]]), some.finish()[0])
    np.testing.assert_array_equal(merged([nothing[0], some]), some.finish()[0])
    assert np.isneginf(nothing[0].finish()[1]).all()


@each_dataflow
def test_not_bit_for_bit_dense(name: str) -> None:
    """Exact up to rounding: some bits differ, and no difference is larger than rounding."""
    case = example(name, partition_name="contiguous")
    made, right = run(case, forward_only=True)["out"], solve(case)["out"]

    assert not np.array_equal(made, right)
    assert error({"out": made}, {"out": right}) <= 1e-15


@each_state
def test_not_bit_for_bit_in_another_order(state: str) -> None:
    """Addition of rounded numbers is not associative, and merging adds."""
    states, right = partials(STATES[state], [4, 8, 12])
    outs = [merged(list(order)) for order in permutations(states)]

    assert len({out.tobytes() for out in outs}) > 1
    assert max(error({"out": out}, {"out": right}) for out in outs) <= 1e-15


def test_ranks_of_a_rotating_decode_differ_in_bits() -> None:
    """Same query, same cache, met in the order in which it came by: sampling must pick one."""
    setup = Setup(Mask(), ((np.arange(63, 64),),) * 4, partition.interleaved(np.arange(64), 4))
    case = Case(DECODE["rotating"], setup, tensors(64))
    ranks = place_case(case)
    go(case, ranks)
    outs = [rank["out"][0] for rank in ranks]

    assert len({out.tobytes() for out in outs}) > 1
    assert max(error({"out": out}, {"out": outs[0]}) for out in outs) <= 1e-15
