"""Few queries against a cache that no rank has whole."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringplan.reference import dense, partition, ulysses
from ringplan.reference.blocks import DTYPES
from ringplan.reference.local import Setup, place
from ringplan.reference.masks import Mask
from ringplan.reference.network import Network
from tests.reference.cases import (
    BACKWARD,
    DATAFLOWS,
    DECODE,
    STATES,
    TOLERANCE,
    Case,
    Tensors,
    answer,
    error,
    example,
    go,
    layout_of,
    place_case,
    run,
    solve,
    tensors,
)
from tests.reference.strategies import seeds

each_way = pytest.mark.parametrize("way", DECODE)
each_partition = pytest.mark.parametrize("partition_name", partition.PARTITIONS)


def decoding(
    way: str,
    given: Tensors,
    *,
    new: int,
    num_ranks: int,
    interleave: int = 1,
    mask: Mask | None = None,
) -> Case:
    """The last tokens ask; all are in the cache, dealt in runs to the ranks."""
    tokens = np.arange(given.q.shape[2])
    queries = ((tokens[-new:],),) * num_ranks
    keys = partition.interleaved(tokens, num_ranks, interleave)
    return Case(DECODE[way], Setup(mask or Mask(), queries, keys), given)


@each_way
@given(
    num_ranks=st.integers(1, 8),
    tokens=st.integers(1, 20),
    new=st.integers(1, 4),
    interleave=st.integers(1, 4),
    window=st.none() | st.integers(1, 20),
    state=st.sampled_from(list(STATES)),
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    seed=seeds,
)
@settings(max_examples=100, deadline=None)
def test_any_cache_over_any_ranks(
    way: str,
    *,
    num_ranks: int,
    tokens: int,
    new: int,
    interleave: int,
    window: int | None,
    state: str,
    batch: int,
    kv_heads: int,
    seed: int,
) -> None:
    """Short caches leave ranks without a token; windows leave others without a visible one."""
    case = decoding(
        way,
        tensors(tokens, heads=(2 * kv_heads, kv_heads), batch=batch, seed=seed),
        new=min(new, tokens),
        num_ranks=num_ranks,
        interleave=interleave,
        mask=Mask(window=window),
    )
    case = case._replace(setup=case.setup._replace(state=STATES[state]))

    assert error(run(case), solve(case)) <= TOLERANCE


@each_way
@pytest.mark.parametrize("new", [1, 3])
def test_ranks_without_a_token_do_no_harm(way: str, new: int) -> None:
    """Three tokens on eight ranks."""
    case = decoding(way, tensors(3), new=new, num_ranks=8)

    assert sum(not partition.positions(chunks).size for chunks in case.setup.keys) == 5
    assert error(run(case), solve(case)) <= TOLERANCE


def test_rotating_cache_answers_on_every_rank() -> None:
    """Each has met every block; they agree up to the order in which they did."""
    case = decoding("rotating", tensors(13), new=2, num_ranks=4)
    ranks = place_case(case)
    go(case, ranks)
    right = solve(case)["out"]

    for i, rank in enumerate(ranks):  # each query is there once for each rank
        assert error({"out": rank["out"][0]}, {"out": right[:, :, [0, 4]]}) <= TOLERANCE, i


@pytest.mark.parametrize("num_ranks", [2, 5])
def test_stationary_shards_know_the_query_by_broadcast_only(num_ranks: int) -> None:
    """What the other ranks had under that name before is of no use to anybody."""
    case = decoding("stationary", tensors(13), new=2, num_ranks=num_ranks)
    ranks = place_case(case)
    for rank in ranks[1:]:
        rank["q"][0].fill(np.nan)
    go(case, ranks)

    assert error(answer(case, ranks), solve(case)) <= TOLERANCE
    assert not any("out" in rank for rank in ranks[1:])


def test_stationary_shards_send_the_query_and_take_back_one_partial_each() -> None:
    """Root sends P - 1 queries; each other returns output, maximum and denominator."""
    num_ranks, batch, heads, new = 5, 2, 4, 3
    given = tensors(13, heads=(heads, 2), sizes=(6, 5), batch=batch).rounded("bf16")
    case = decoding("stationary", given, new=new, num_ranks=num_ranks)
    root, *others = ranks = place_case(case)
    go(case, ranks)

    rows, bf16, fp32 = batch * heads * new, 2, 4
    assert root.ledger.sent("queries") == (num_ranks - 1) * rows * 6 * bf16
    assert root.ledger.sent("outputs") == 0
    for rank in others:
        assert rank.ledger.received("queries") == rows * 6 * bf16
        assert rank.ledger.sent("outputs") == rows * (5 * bf16 + 2 * fp32)
    assert root.ledger.received("outputs") == sum(rank.ledger.sent() for rank in others)


def test_one_latent_in_place_of_keys_and_values() -> None:
    """MLA's cache: all of the latent is the key, its leading columns are the value."""
    q, latent, *_ = given = tensors(9, heads=(4, 1), sizes=(6, 6))
    given = given._replace(v=latent[..., :4], dout=given.dout[..., :4])
    case = decoding("stationary", given, new=2, num_ranks=4)
    case = case._replace(setup=case.setup._replace(latent_v_dim=4))
    ranks = place(case.setup, q, latent, given.v)
    for rank in ranks:
        rank["kv"] = rank["kv"][:1]
    go(case, ranks)

    assert error(answer(case, ranks), solve(case)) <= TOLERANCE


def prefixed(
    name: str,
    *,
    cached: int = 10,
    partition_name: str = "zigzag",
    given: Tensors | None = None,
    mask: Mask | None = None,
) -> Case:
    """Sixteen new tokens, dealt by a partition, after a cache that is dealt token by token."""
    new = 16
    case = example(name, partition_name=partition_name, given=given or tensors(cached + new))
    queries = tuple(
        tuple(chunk + cached for chunk in chunks)
        for chunks in layout_of(partition_name, new, 4, case.group)
    )
    keys = partition.joined(partition.interleaved(np.arange(cached), 4), queries)
    return case._replace(
        setup=case.setup._replace(queries=queries, keys=keys, mask=mask or case.setup.mask)
    )


@pytest.mark.parametrize("name", DATAFLOWS)
@each_partition
@pytest.mark.parametrize("cached", [0, 1, 3, 10])
def test_prefill_over_a_cached_prefix(name: str, partition_name: str, cached: int) -> None:
    """Pass-KV is the ring, pass-Q returns outputs; a short cache leaves ranks without any of it."""
    case = prefixed(name, cached=cached, partition_name=partition_name)

    assert error(run(case, forward_only=True), solve(case)) <= TOLERANCE


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_of_a_prefix(name: str) -> None:
    """A rank then holds more keys than queries, and gradients of all of them."""
    case = prefixed(name)

    assert error(run(case), solve(case)) <= TOLERANCE


@pytest.mark.parametrize("name", ["ulysses", "hybrid"])
@pytest.mark.parametrize("cached", [0, 1, 10])
@pytest.mark.parametrize("heads", [(4, 4), (4, 1)], ids=["MHA", "MQA"])
def test_prefix_cached_by_head(name: str, cached: int, heads: tuple[int, int]) -> None:
    """Ranks that trade heads keep their heads of the group's tokens: only new ones are traded."""
    case = prefixed(name, cached=cached, given=tensors(cached + 16, heads=heads))
    by_group = partition.interleaved(np.arange(cached), 4 // case.inner)
    setup = case.setup._replace(keys=case.setup.queries, cached=by_group)
    ranks = place(setup, *case.tensors)
    ulysses.place_cache(ranks, setup, case.inner, case.tensors.k, case.tensors.v)
    go(case._replace(setup=setup), ranks, forward_only=True)

    assert error(answer(case, ranks), solve(case)) <= TOLERANCE
    alone = place(setup._replace(cached=()), *case.tensors)
    go(case._replace(setup=setup._replace(cached=())), alone, forward_only=True)
    for rank, other in zip(ranks, alone, strict=True):
        assert rank.ledger.sent("heads") == other.ledger.sent("heads")


@pytest.mark.parametrize("name", DATAFLOWS)
def test_window_that_ends_inside_the_prefix(name: str) -> None:
    case = prefixed(name, mask=Mask(window=7))

    assert error(run(case, forward_only=True), solve(case)) <= TOLERANCE


@pytest.mark.parametrize(("dtype", "size"), [("fp64", 8), ("fp32", 4), ("bf16", 2)])
def test_pass_q_counts_the_outputs_that_it_returns(dtype: str, size: int) -> None:
    """P - 1 query blocks out, and P - 1 outputs back with a log-sum-exp in the accumulator's."""
    case = prefixed("pass-Q", given=tensors(26).rounded(dtype))
    ranks = place_case(case)
    go(case, ranks)

    batch, heads, queries, qk_size, v_size = 2, 4, 4, 6, 5
    rows, lse = batch * heads * queries, max(size, 4)
    for rank in ranks:
        assert rank.ledger.sent("queries") == 3 * rows * qk_size * size
        assert rank.ledger.sent("outputs") == 3 * rows * (v_size * size + lse)
        assert rank.ledger.sent() == rank.ledger.sent("queries", "outputs")
        assert rank.ledger.sent("outputs") == rank.ledger.received("outputs")


def test_partial_outputs_of_decode_may_travel_in_another_format() -> None:
    """Rounded to it, so the answer shows it; the first rank's own is not rounded."""
    errors, sent = [], []
    for dtype in ("fp64", "fp32", "fp16"):
        case = decoding("stationary", tensors(13), new=2, num_ranks=4)
        each = case._replace(setup=case.setup._replace(partial_dtype=DTYPES[dtype]))
        ranks = place_case(each)
        go(each, ranks)
        errors.append(error(answer(each, ranks), solve(each)))
        sent.append(ranks[1].ledger.sent("outputs"))

    assert errors[0] <= TOLERANCE < errors[1] <= 2**-24 < errors[2] <= 2**-11
    assert sent[0] > sent[1] > sent[2]


def test_pass_kv_moves_the_cache_and_pass_q_does_not() -> None:
    """With a long prefix the queries are the smaller thing to move."""
    case = prefixed("ring", cached=400, given=tensors(416))
    sent = {}
    for name in ("ring", "pass-Q"):
        each = case._replace(dataflow=DATAFLOWS[name])
        ranks = place_case(each)
        go(each, ranks, forward_only=True)
        sent[name] = ranks[0].ledger.sent()

    assert sent["ring"] == 3 * 2 * 2 * 104 * (6 + 5) * 8
    assert sent["pass-Q"] < sent["ring"] / 4


@pytest.mark.parametrize("state", STATES)
def test_tokens_one_after_another_are_the_prefill(state: str) -> None:
    """Decoding a sequence token by token, against what is in the cache so far."""
    given = tensors(7)
    whole, _ = dense.attention(*given[:3], Mask(), queries=np.arange(7), keys=np.arange(7))
    step = partial(decoding, "stationary", new=1, num_ranks=3)

    for length in range(1, 8):
        case = step(Tensors(*(array[:, :, :length] for array in given)))
        setup = case.setup._replace(state=STATES[state])
        ranks = place(setup, *case.tensors[:3])
        case.dataflow.forward(Network(), ranks, setup)
        right = {"out": whole[:, :, length - 1 : length]}
        assert error({"out": ranks[0]["out"][0]}, right) <= TOLERANCE
