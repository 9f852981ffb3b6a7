"""Collectives of the other axes, walked hop by hop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import axes

counts = st.integers(1, 64)
ranks = st.integers(1, 9)


def ring_reduce_scatter(size: int) -> tuple[int, list[list[int]]]:
    """Add up a vector of `size` pieces around a ring; return hops and the sums, rank by rank."""
    held = [[1] * size for _ in range(size)]
    hops = 0
    for hop in range(size - 1):
        sent = [(rank - hop) % size for rank in range(size)]
        moving = [held[rank][sent[rank]] for rank in range(size)]
        for rank in range(size):
            held[(rank + 1) % size][sent[rank]] += moving[rank]
        hops += 1
    return hops, held


def ring_all_gather(size: int) -> tuple[int, list[set[int]]]:
    """Pass pieces on until every rank has all; return hops and the pieces, rank by rank."""
    held = [{rank} for rank in range(size)]
    moving = list(range(size))
    hops = 0
    while any(len(pieces) < size for pieces in held):
        moving = [moving[rank - 1] for rank in range(size)]
        for rank in range(size):
            held[rank].add(moving[rank])
        hops += 1
    return hops, held


@given(size=ranks, piece=counts)
def test_ring_collective_sends_one_piece_a_hop(size: int, piece: int) -> None:
    """(N - 1)/N of the whole, as an all-gather or as a reduce-scatter."""
    gather, _ = ring_all_gather(size)
    scatter, sums = ring_reduce_scatter(size)
    sent = axes.shard_collective_bytes(group_size=size, gathered_bytes=size * piece, passes=1)

    assert sent == gather * piece == scatter * piece
    assert axes.shard_collective_latencies(layers=1, group_size=size, passes=1) == gather == scatter
    assert [max(each) for each in sums] == [size] * size


@given(size=ranks, piece=counts, passes=st.integers(1, 4))
def test_passes_repeat_the_collective(size: int, piece: int, passes: int) -> None:
    """An all-reduce is two: a reduce-scatter, then an all-gather."""
    whole = size * piece

    assert axes.shard_collective_bytes(
        group_size=size, gathered_bytes=whole, passes=passes
    ) == passes * axes.shard_collective_bytes(group_size=size, gathered_bytes=whole, passes=1)
    hops = axes.shard_collective_latencies(layers=3, group_size=size, passes=passes)
    assert hops == 3 * passes * (size - 1)


def tensor_parallel(**given: int) -> float:
    shape = {"layers": 1, "tp_size": 4, "batch_size": 1, "tokens": 12, "hidden_size": 8}
    return axes.tensor_parallel_bytes(**{**shape, "element_bytes": 2, "passes": 1, **given})


@given(layers=counts, tp_size=ranks, tokens=counts, hidden_size=counts)
def test_tensor_parallel_layer_reduces_its_activation_twice(
    layers: int, tp_size: int, tokens: int, hidden_size: int
) -> None:
    """After attention and after the MLP; each time a reduce-scatter and an all-gather."""
    hops = ring_reduce_scatter(tp_size)[0] + ring_all_gather(tp_size)[0]
    piece = tokens * hidden_size * 2

    assert tensor_parallel(
        layers=layers, tp_size=tp_size, tokens=tokens * tp_size, hidden_size=hidden_size
    ) == sum(hops * piece for _ in range(layers) for _ in ("attention", "mlp"))
    assert axes.tensor_parallel_latencies(layers=layers, tp_size=tp_size, passes=2) == sum(
        2 * hops for _ in range(layers) for _ in ("attention", "mlp")
    )


@pytest.mark.parametrize(
    "name", ["layers", "batch_size", "tokens", "hidden_size", "element_bytes", "passes"]
)
@given(once=counts, scale=counts)
def test_tensor_parallel_bytes_are_proportional_to(name: str, once: int, scale: int) -> None:
    assert tensor_parallel(**{name: once * scale}) == pytest.approx(
        scale * tensor_parallel(**{name: once}), rel=1e-12
    )


def expert_parallel(**given: int) -> float:
    shape = {"layers": 1, "ep_size": 4, "batch_size": 1, "tokens": 12, "experts_per_token": 2}
    return axes.expert_parallel_bytes(
        **{**shape, "hidden_size": 8, "element_bytes": 2, "passes": 1, **given}
    )


@given(ep_size=ranks, rounds=st.integers(1, 4), top_k=st.integers(1, 3), layers=counts)
def test_tokens_travel_to_experts_elsewhere_and_back(
    ep_size: int, rounds: int, top_k: int, layers: int
) -> None:
    """Choices dealt evenly over the ranks; those of the own rank stay."""
    tokens = ep_size * rounds
    sent = [0] * ep_size
    for home in range(ep_size):
        for choice in range(tokens * top_k):
            expert = choice % ep_size
            sent[home] += 16 * (expert != home)
            sent[expert] += 16 * (expert != home)

    shape = {"layers": layers, "ep_size": ep_size, "tokens": tokens, "experts_per_token": top_k}

    assert {layers * each for each in sent} == {expert_parallel(**shape)}
    assert expert_parallel(**shape, passes=2) == 2 * expert_parallel(**shape)


@given(layers=counts, passes=counts)
def test_experts_wait_for_two_exchanges_a_layer(layers: int, passes: int) -> None:
    assert axes.expert_parallel_latencies(layers=layers, passes=passes) == sum(
        passes for _ in range(layers) for _ in ("there", "back")
    )


@given(stages=st.integers(2, 16), batch=counts, tokens=counts, passes=st.integers(1, 2))
def test_stage_passes_on_the_activation_whatever_the_depth(
    stages: int, batch: int, tokens: int, passes: int
) -> None:
    sent = axes.pipeline_bytes(
        pp_size=stages, batch_size=batch, tokens=tokens, hidden_size=8, element_bytes=2,
        passes=passes,
    )  # fmt: skip

    assert sent == batch * tokens * 8 * 2 * passes


@given(tokens=counts)
def test_one_rank_sends_nothing(tokens: int) -> None:
    """Nobody to reduce, gather, route or pass on to."""
    assert tensor_parallel(tp_size=1, tokens=tokens) == 0
    assert axes.tensor_parallel_latencies(layers=tokens, tp_size=1, passes=1) == 0
    assert expert_parallel(ep_size=1, tokens=tokens) == 0
    assert axes.shard_collective_bytes(group_size=1, gathered_bytes=tokens, passes=1) == 0
    assert axes.shard_collective_latencies(layers=3, group_size=1, passes=2) == 0
    assert (
        axes.pipeline_bytes(
            pp_size=1, batch_size=1, tokens=tokens, hidden_size=8, element_bytes=2, passes=1
        )
        == 0
    )
