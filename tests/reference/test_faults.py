"""Every hop, every merge and every mask matters: without any one of them the answer is wrong."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ringplan.reference import gather, local, masks, partition
from ringplan.reference.blocks import Block, Gradients, LogSumExp, Running, Work
from ringplan.reference.local import Setup
from ringplan.reference.masks import Mask
from ringplan.reference.network import Network, Rank
from tests.reference.cases import (
    BACKWARD,
    DATAFLOWS,
    DECODE,
    STATES,
    TOLERANCE,
    Case,
    error,
    example,
    go,
    place_case,
    run,
    solve,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ringplan.reference.dense import Array
    from ringplan.reference.partition import Positions

    #: Says of each call in turn whether it is the one that goes wrong.
    Strikes = Callable[[], bool]
    Fault = Callable[[pytest.MonkeyPatch, Strikes], None]


def hop_of_nothing(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Leave a receive buffer as it was made."""
    send = Network.send

    def lose(network: Network, source: Rank, target: Rank, name: str, **how: Any) -> None:
        send(network, source, target, name, **how)
        if strikes():
            for array in target[f"{how['into']} arriving"]:
                array.fill(0)

    patch.setattr(Network, "send", lose)


def hop_of_old_news(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Deliver once more what came under that name before, where that was something else."""
    send = Network.send
    last: dict[tuple[int, str], tuple[Array, ...]] = {}

    def repeat(network: Network, source: Rank, target: Rank, name: str, **how: Any) -> None:
        send(network, source, target, name, **how)
        arriving = target[f"{how['into']} arriving"]
        key = target.number, how["into"]
        old, last[key] = last.get(key, ()), tuple(array.copy() for array in arriving)
        fits = [array.shape for array in old] == [array.shape for array in arriving]
        if fits and not all(map(np.array_equal, old, arriving)) and strikes():
            put(old, into=arriving)

    patch.setattr(Network, "send", repeat)


def block_left_out(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Do not attend to a block that has something to see."""
    attend = Running.attend

    def skip(state: Running, block: Block, mask: Mask) -> Work:
        before = Running(*(array.copy() for array in state))
        work = attend(state, block, mask)
        if work.pairs and strikes():
            put(before, into=state)
        return work

    patch.setattr(Running, "attend", skip)


def block_not_merged(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Let a block replace what its queries saw before."""
    attend = Running.attend

    def replace(state: Running, block: Block, mask: Mask) -> Work:
        if state.total.any() and block.k.size and strikes():
            put(Running.empty(block.q, block.v), into=state)
        return attend(state, block, mask)

    patch.setattr(Running, "attend", replace)


def block_not_rescaled(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Add a block without bringing what was there to the new maximum."""
    attend = Running.attend

    def forget_decay(state: Running, block: Block, mask: Mask) -> Work:
        before = Running(*(array.copy() for array in state))
        work = attend(state, block, mask)
        risen = (state.top > before.top) & (before.total > 0)
        if risen.any() and strikes():
            decay = np.exp(np.where(risen, before.top - state.top, 0))
            state.total[...] += before.total * (1 - decay)
            state.out[...] += before.out * (1 - decay[..., None])
        return work

    patch.setattr(Running, "attend", forget_decay)


def merge_left_out(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Do not merge one finished block, or one rank's partial output."""
    for_running, for_log_sum_exp = Running.merge, LogSumExp.merge

    def skip(state: Running, other: Running) -> None:
        if not (other.total.any() and strikes()):
            for_running(state, other)

    def skip_finished(state: LogSumExp, other: LogSumExp) -> None:
        if not (np.isfinite(other.lse).any() and strikes()):
            for_log_sum_exp(state, other)

    patch.setattr(Running, "merge", skip)
    patch.setattr(LogSumExp, "merge", skip_finished)


def mask_forgotten(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Show queries all keys of a tile in which some or all are hidden."""
    between = Mask.between

    def show(mask: Mask, queries: Positions, keys: Positions) -> bool | npt.NDArray[np.bool_]:
        visible = between(mask, queries, keys)
        hidden = visible is not True and queries.size and keys.size
        return True if hidden and strikes() else visible

    patch.setattr(Mask, "between", show)


def gradients_left_out(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Do not add what one block contributes."""
    add = Gradients.add

    def skip(made: Gradients, block: Block, *others: Any) -> Work:
        before = Gradients(*(array.copy() for array in made))
        work = add(made, block, *others)
        if work.pairs and strikes():
            put(before, into=made)
        return work

    patch.setattr(Gradients, "add", skip)


def sum_left_out(patch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Do not add gradients to those that came from elsewhere."""
    add_into = local.add_into

    def skip(sums: tuple[Array, ...], more: tuple[Array, ...]) -> None:
        if not (any(array.any() for array in more) and strikes()):
            add_into(sums, more)

    for module in (local, gather):
        patch.setattr(module, "add_into", skip)


def put(arrays: tuple[Array, ...], *, into: tuple[Array, ...]) -> None:
    for array, was in zip(into, arrays, strict=True):
        array[...] = was


class Strike:
    """True at one call of all; counts them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls - 1 == self.at


def suffer(fault: Fault, case: Case, *, at: int | None, forward_only: bool) -> tuple[float, int]:
    """Error of the answer if a fault strikes at a call, and how many calls there were."""
    right, strike = solve(case), Strike(at)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        fault(patch, strike)
        made = run(case, forward_only=forward_only)
    return error(made, right), strike.calls


def unnoticed(fault: Fault, case: Case, *, forward_only: bool = False) -> tuple[list[int], int]:
    """Calls at which the fault does not show, and how many there are."""
    unharmed, calls = suffer(fault, case, at=None, forward_only=forward_only)
    assert unharmed <= TOLERANCE
    errors = [suffer(fault, case, at=call, forward_only=forward_only)[0] for call in range(calls)]
    return [call for call, found in enumerate(errors) if found <= TOLERANCE], calls


each_dataflow = pytest.mark.parametrize("name", DATAFLOWS)
each_backward = pytest.mark.parametrize("name", BACKWARD)
each_state = pytest.mark.parametrize("state", STATES)
each_way = pytest.mark.parametrize("way", DECODE)


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("ring", 12, 12 + 16),  # P (P - 1) blocks; the same again, and P gradients a hop
        ("reversed ring", 12, 12 + 12),
        ("double ring", 4 + 8, 0),  # an outer hop for each rank, two inner ones
        ("all-gather", 12, 12 + 12),
        ("ulysses", 4 * 12, 4 * 12),  # q, k, v, out; dout, dq, dk, dv
        ("hybrid", 4 * 4 + 4, 4 * 4 + 4 + 2 * 4),
        ("reversed hybrid", 4 * 4 + 4, 4 * 4 + 4 + 4),
        ("pass-Q", 12 + 12, 0),  # queries, outputs
    ],
)
def test_every_hop_matters(name: str, forward: int, backward: int) -> None:
    """Each message of four ranks, lost on its own, spoils the answer."""
    case = example(name)

    assert unnoticed(hop_of_nothing, case, forward_only=True) == ([], forward)
    assert unnoticed(hop_of_nothing, case) == ([], forward + backward)


@each_dataflow
def test_every_hop_brings_something_new(name: str) -> None:
    """A message that is what came before it, as if the receiver had not waited."""
    survived, calls = unnoticed(hop_of_old_news, example(name, given=tensors(16, sizes=(5, 5))))

    assert survived == []
    assert calls > 0 or name in {"all-gather", "pass-Q"}, "there each block has its own name"


@each_dataflow
@each_state
@pytest.mark.parametrize("fault", [block_left_out, block_not_merged, block_not_rescaled])
def test_every_block_is_merged(name: str, state: str, fault: Fault) -> None:
    """Left out, put in place of those before, or added without rescaling them."""
    survived, calls = unnoticed(fault, example(name, state=state), forward_only=True)
    case = example(name)

    assert survived == []
    if fault is block_left_out:
        assert calls == 4 * case.num_blocks
    elif state == "running" and name != "pass-Q":  # there each block has a state of its own
        assert (calls > 0) == (case.num_blocks > 1)


@each_dataflow
def test_every_finished_block_is_merged(name: str) -> None:
    """Output and log-sum-exp of a block; pass-Q merges what comes home besides."""
    case = example(name, state="log-sum-exp")
    merges = 4 * case.num_blocks + (12 if name == "pass-Q" else 0)

    assert unnoticed(merge_left_out, case, forward_only=True) == ([], merges)


@each_backward
@pytest.mark.parametrize("fault", [gradients_left_out, sum_left_out])
def test_every_gradient_is_added(name: str, fault: Fault) -> None:
    """What a block contributes, and what others have added to it."""
    case = example(name)
    survived, calls = unnoticed(fault, case)

    assert survived == []
    if fault is gradients_left_out:
        assert calls == 4 * case.num_blocks
    else:
        assert calls == 4 * (case.num_blocks - 1)


MASKS = {
    "causal": Mask(),
    "window": Mask(window=5),
    "documents": Mask(causal=False, documents=masks.documents([6, 10])),
}


@pytest.mark.parametrize(
    ("name", "mask_name", "partition_name"),
    [
        *product(DATAFLOWS, ["causal"], ["zigzag", "striped"]),
        ("ring", "causal", "contiguous"),
        ("ring", "window", "zigzag"),
        ("all-gather", "documents", "zigzag"),
    ],
)
def test_every_mask_matters(name: str, mask_name: str, partition_name: str) -> None:
    """Each tile that hides something, forward and backward."""
    case = example(name, partition_name=partition_name, mask=MASKS[mask_name])
    survived, calls = unnoticed(mask_forgotten, case)

    assert survived == []
    assert calls >= 4 * (2 if case.dataflow.backward else 1)


def decoding(way: str, state: str = "running") -> Case:
    """Three ranks, seven cached tokens, of which the last two ask."""
    queries = ((np.arange(5, 7),),) * 3
    keys = partition.interleaved(np.arange(7), 3)
    return Case(DECODE[way], Setup(Mask(), queries, keys, STATES[state]), tensors(7))


@pytest.mark.parametrize(("way", "hops"), [("rotating", 3 * 2), ("stationary", 2 + 2)])
def test_every_hop_of_decode_matters(way: str, hops: int) -> None:
    """The query to each shard, and a partial output from each."""
    assert unnoticed(hop_of_nothing, decoding(way)) == ([], hops)


@each_way
@pytest.mark.parametrize(
    "fault", [block_left_out, merge_left_out, mask_forgotten], ids=lambda fault: fault.__name__
)
def test_every_step_of_decode_matters(way: str, fault: Fault) -> None:
    """Each shard, each merge, and the mask between the new tokens."""
    survived, calls = unnoticed(fault, decoding(way, "log-sum-exp"))

    assert survived == []
    assert calls > 0


@each_way
def test_broadcast_of_old_news_would_show(way: str) -> None:
    """A second decode step on the same ranks must not answer the first one's query."""
    case = decoding(way)
    ranks = place_case(case)
    go(case, ranks)
    first = ranks[0]["out"][0]
    ranks[0]["q"] = (2 * ranks[0]["q"][0],)
    if way == "rotating":  # every rank knows the query
        for rank in ranks[1:]:
            rank["q"] = (2 * rank["q"][0],)
    go(case, ranks)
    doubled = case._replace(tensors=case.tensors._replace(q=2 * case.tensors.q))
    right = solve(doubled)["out"]
    right = right if way == "stationary" else right[:, :, [0, 3]]

    assert error({"out": ranks[0]["out"][0]}, {"out": right}) <= TOLERANCE
    assert error({"out": first}, {"out": right}) > TOLERANCE


@pytest.mark.parametrize("name", ["ring", "reversed ring", "double ring", "pass-Q"])
def test_using_what_was_given_away_is_not_a_number(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that computes on the block it has passed on, not on the one that has come."""
    deliver = Network.deliver

    def keep_the_old(network: Network) -> None:
        old = {
            message: message.target[message.name]
            for message in network._messages  # noqa: SLF001
            if message.name in message.target
        }
        deliver(network)
        for message, arrays in old.items():
            message.target[message.name] = arrays

    monkeypatch.setattr(Network, "deliver", keep_the_old)
    case = example(name)
    ranks = place_case(case)
    with np.errstate(all="ignore"):
        go(case, ranks, forward_only=True)

    assert all(np.isnan(rank["out"][0]).any() for rank in ranks)


def test_backward_after_the_block_was_given_away_has_no_block() -> None:
    """The plain backward ring wants each rank's own keys and values."""
    case = example("reversed ring")
    mixed = case.dataflow._replace(backward=DATAFLOWS["ring"].backward)

    with pytest.raises(KeyError, match="kv"):
        run(case._replace(dataflow=mixed))
