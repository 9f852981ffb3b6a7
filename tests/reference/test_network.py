"""What is sent is a copy, what is given away is gone, and the ledger has every byte of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.reference.blocks import DTYPES, Work
from ringplan.reference.local import place
from ringplan.reference.network import Network, Rank, begin
from tests.reference.cases import (
    BACKWARD,
    DATAFLOWS,
    TOLERANCE,
    Case,
    answer,
    error,
    example,
    go,
    on_ranks,
    place_case,
    solve,
    tensors,
)

each_dataflow = pytest.mark.parametrize("name", DATAFLOWS)


def two_ranks(dtype: str = "fp64") -> tuple[Rank, Rank, Network]:
    """The first holds six numbers."""
    source, target = Rank(0), Rank(1)
    source["x"] = (np.arange(6.0).astype(DTYPES[dtype]),)
    return source, target, Network()


def test_what_arrives_is_a_copy() -> None:
    source, target, network = two_ranks()
    network.send(source, target, "x", into="y", what="kv", keep=True)
    source["x"][0][:] = 7
    network.deliver()

    np.testing.assert_array_equal(target["y"][0], np.arange(6))
    assert not np.shares_memory(source["x"][0], target["y"][0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_given_away_is_poison(dtype: str) -> None:
    """Whoever goes on to use it gets NaN, not a number that happens to be right."""
    source, target, network = two_ranks(dtype)
    network.send(source, target, "x", into="y", what="kv")
    network.deliver()

    assert np.isnan(source["x"][0].astype(np.float64)).all()
    assert not np.isnan(target["y"][0].astype(np.float64)).any()


def test_what_is_kept_stays_as_it_is() -> None:
    source, target, network = two_ranks()
    network.send(source, target, "x", into="y", what="kv", keep=True)

    np.testing.assert_array_equal(source["x"][0], np.arange(6))


def test_nothing_is_there_before_it_is_delivered() -> None:
    source, target, network = two_ranks()
    network.send(source, target, "x", into="y", what="kv")
    assert "y" not in target

    network.deliver()
    assert "y" in target


def test_a_shift_moves_all_at_once() -> None:
    """Each gets its neighbour's, under the very name under which it sends its own."""
    ranks, network = [Rank(i) for i in range(3)], Network()
    for by, expected in ((1, [2, 0, 1]), (-1, [1, 2, 0]), (2, [1, 2, 0]), (3, [0, 1, 2])):
        for rank in ranks:
            rank["x"] = (np.array([float(rank.number)]),)
        network.shift(ranks, "x", into="x", what="kv", by=by)
        network.deliver()

        assert [rank["x"][0].item() for rank in ranks] == expected


@given(
    shapes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4),
    held=st.sampled_from(list(DTYPES)),
    wire=st.none() | st.sampled_from(list(DTYPES)),
)
def test_bytes_are_those_of_the_copy_in_the_format_of_the_wire(
    shapes: list[tuple[int, int]], held: str, wire: str | None
) -> None:
    """Whatever the sender holds; no array is too small to count, and an empty one is nothing."""
    sizes = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
    source, target = Rank(0), Rank(1)
    network = Network(kv_dtype=DTYPES[wire] if wire else None)
    source["x"] = tuple(np.ones(shape, DTYPES[held]) for shape in shapes)
    network.send(source, target, "x", into="y", what="kv")
    network.deliver()

    num_bytes = sum(a * b for a, b in shapes) * sizes[wire or held]
    assert source.ledger.sent() == target.ledger.received() == num_bytes
    assert source.ledger.received() == target.ledger.sent() == 0
    assert {array.dtype for array in target["y"]} <= {DTYPES[wire or held]}


def test_bytes_are_counted_by_what_they_are() -> None:
    source, target, network = two_ranks()
    network.send(source, target, "x", into="a", what="kv", keep=True)
    network.send(source, target, "x", into="b", what="kv", keep=True)
    network.send(source, target, "x", into="c", what="gradients")

    assert source.ledger.sent("kv") == target.ledger.received("kv") == 96
    assert source.ledger.sent("gradients") == 48
    assert source.ledger.sent("kv", "gradients") == source.ledger.sent() == 144
    assert source.ledger.sent("queries") == 0


def test_hops_are_steps_in_which_something_was_sent() -> None:
    """Two messages in one step are one hop, a step without any is none."""
    source, target, network = two_ranks()
    network.send(source, target, "x", into="a", what="kv", keep=True)
    network.send(source, target, "x", into="b", what="kv", keep=True)
    begin([source, target])
    begin([source, target])
    network.send(source, target, "x", into="c", what="kv")

    assert len(source.ledger.steps) == 3
    assert [step.sent["kv"] for step in source.ledger.steps] == [96, 0, 48]
    assert source.ledger.hops("kv") == 2
    assert target.ledger.hops("kv") == 0


def test_an_exchange_is_one_wait_however_much_is_on_the_wire() -> None:
    """And only for those who send or receive."""
    source, target, network = two_ranks()
    bystander = Rank(2)
    for name in ("a", "b"):
        network.send(source, target, "x", into=name, what="kv", keep=True)
    network.deliver()
    network.deliver()  # nothing left to wait for

    assert [rank.ledger.exchanges for rank in (source, target, bystander)] == [1, 1, 0]


def test_peak_is_the_most_at_one_moment() -> None:
    """Not the sum of what each name ever held, nor what is left in the end."""
    rank = Rank(0)
    rank["a"] = (np.zeros(10),)
    rank["b"] = (np.zeros(5), np.zeros(1))
    rank.drop("a")
    rank["c"] = (np.zeros(2),)

    assert rank.ledger.peak("a") == 80
    assert rank.ledger.peak("a", "b") == rank.ledger.peak() == 128
    assert rank.ledger.peak("b", "c") == 64
    assert rank.ledger.peak("other") == 0


def test_peak_has_what_is_arriving_beside_what_it_replaces() -> None:
    """A block is received into a second buffer while the first is still computed on."""
    source, target, network = two_ranks()
    target["x"] = (np.zeros(6),)
    network.send(source, target, "x", into="x", what="kv")
    network.deliver()

    assert target.ledger.peak() == 96
    assert target.ledger.now.held[-1].total() == 48


def test_numbered_arrays_are_one_in_the_ledger() -> None:
    rank = Rank(0)
    rank["gathered 0"] = (np.zeros(1),)
    rank["gathered 1"] = (np.zeros(2),)

    assert rank.ledger.peak("gathered") == 24


def test_scope_is_the_same_rank_under_other_names() -> None:
    """It has its own names and shares arrays and ledger."""
    rank = Rank(3)
    inner = rank.scope("by_head")
    rank["q"], inner["q"] = (np.zeros(1),), (np.ones(2),)

    assert rank["by_head.q"] is inner["q"]
    assert rank["q"] is not inner["q"]
    assert inner.number == 3
    assert inner.ledger is rank.ledger
    assert rank.ledger.peak() == 24

    inner.drop("q")
    assert "q" in rank
    assert "q" not in inner


def test_work_adds_up() -> None:
    assert Work(1, 2, 3) + Work(10, 20, 30) == Work(11, 22, 33)


def run_case(case: Case) -> list[Rank]:
    ranks = place_case(case)
    go(case, ranks)
    return ranks


@pytest.mark.parametrize(("name", "num_ranks"), on_ranks(1, 2, 3, 4, 6))
def test_what_is_sent_is_received(name: str, num_ranks: int) -> None:
    """Kind by kind over all ranks; one rank sends nothing and waits for nobody."""
    given = tensors(24, heads=(12, 12))
    ranks = run_case(example(name, num_ranks=num_ranks, tokens=24, given=given))
    kinds = {kind for rank in ranks for step in rank.ledger.steps for kind in step.sent}

    for kind in kinds:
        sent, received = (
            sum(getattr(rank.ledger, way)(kind) for rank in ranks) for way in ("sent", "received")
        )
        assert sent == received > 0
    assert bool(kinds) == (num_ranks > 1)
    assert any(rank.ledger.exchanges for rank in ranks) == (num_ranks > 1)


@each_dataflow
def test_equal_ranks_send_equally(name: str) -> None:
    """Zigzag, with heads for everybody: no rank has more to do than another."""
    case = example(name, given=tensors(16, heads=(4, 4)))
    first, *others = run_case(case)

    for rank in others:
        assert rank.ledger.sent() == rank.ledger.received() == first.ledger.sent()
        assert rank.ledger.exchanges == first.ledger.exchanges
        assert rank.ledger.work.pairs == first.ledger.work.pairs


@pytest.mark.parametrize("name", [name for name in DATAFLOWS if not DATAFLOWS[name].trades_heads])
def test_every_visible_pair_is_computed_once(name: str) -> None:
    """Forward; with traded heads a rank sees its heads' pairs only, but of all tokens."""
    case = example(name)
    ranks = place_case(case)
    go(case, ranks, forward_only=True)

    assert sum(rank.ledger.work.pairs for rank in ranks) == 16 * 17 // 2


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_is_five_products_where_forward_is_two(name: str) -> None:
    """Scores again, dS, and one product for each gradient; here with equal head sizes."""
    case = example(name, given=tensors(16, sizes=(6, 6)))
    ranks = place_case(case)
    go(case, ranks, forward_only=True)
    forward = sum(rank.ledger.work.flops for rank in ranks)
    both = sum(rank.ledger.work.flops for rank in run_case(case))

    batch, heads, pairs, size = 2, 4, 16 * 17 // 2, 6
    assert forward == 2 * 2 * batch * heads * pairs * size
    assert both == forward + 5 * 2 * batch * heads * pairs * size


def test_ring_ledger_of_four_ranks() -> None:
    """By hand: blocks of 4 tokens x 2 heads x (6 + 5) x 2 sequences x 8 bytes."""
    block = 4 * 2 * (6 + 5) * 2 * 8
    for rank in run_case(example("ring")):
        assert rank.ledger.sent("kv") == 2 * 3 * block
        assert rank.ledger.sent("gradients") == 4 * block
        assert rank.ledger.hops("kv") == 6
        assert rank.ledger.hops("gradients") == 4
        assert rank.ledger.exchanges == 3 + 4
    for rank in run_case(example("reversed ring")):
        assert rank.ledger.sent("kv") == 2 * 3 * block
        assert rank.ledger.sent("gradients") == 3 * block
        assert rank.ledger.exchanges == 3 + 3


@each_dataflow
def test_ranks_are_placed_with_copies(name: str) -> None:
    """Whatever becomes of the tensors afterwards, and of the other ranks' arrays."""
    case = example(name)
    tensors_given = case.tensors.rounded("fp64")
    ranks = place(case.setup, *tensors_given)
    for array in tensors_given:
        array.fill(np.nan)
    go(case, ranks)

    assert error(answer(case, ranks), solve(case)) <= TOLERANCE


@each_dataflow
def test_no_rank_ever_holds_another_ranks_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at whenever any rank takes hold of anything, from beginning to end."""
    arrays_of: dict[int, dict[str, tuple[np.ndarray, ...]]] = {}
    hold = Rank.__setitem__
    looks = 0

    def hold_and_look(rank: Rank, name: str, arrays: tuple[np.ndarray, ...]) -> None:
        nonlocal looks
        hold(rank, name, arrays)
        arrays_of[rank.number] = rank._arrays  # noqa: SLF001
        for number, held in arrays_of.items():
            if number != rank.number:
                others = (other for each in held.values() for other in each)
                assert not any(np.shares_memory(a, b) for b in others for a in arrays), name
                looks += 1

    monkeypatch.setattr(Rank, "__setitem__", hold_and_look)
    run_case(example(name))

    assert looks > 0


def test_sharing_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look of the test above, at a network that hands over what it should copy."""

    def hand_over(
        _: Network, source: Rank, target: Rank, name: str, *, into: str, **_others: object
    ) -> None:
        target[into] = source[name]

    monkeypatch.setattr(Network, "send", hand_over)
    with pytest.raises(AssertionError):
        test_no_rank_ever_holds_another_ranks_memory("all-gather", monkeypatch)
