"""The recurrence against the longest path, the closed forms, and what must hold of any ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import ring
from ringplan.reference.clock import Rates, replay
from ringplan.timeline.events import Traffic, walk
from ringplan.timeline.pairs import Dealt, visible_pairs
from tests.reference.rings import Small, smalls
from tests.timeline.graph import graph, shares

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringplan.timeline.events import Timeline

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ring:
    """A ring whose steps, merges and edges take random times."""

    size: int
    seed: int
    kv_extra: int
    gradient_extra: int | None
    shared: bool
    overlaps: bool
    scale: float

    def draw(self, *shape: int, key: int) -> Array:
        return np.random.default_rng((self.seed, key)).random(shape)

    @property
    def compute(self) -> Array:
        return self.draw(self.size, self.size, key=0)

    @property
    def merge(self) -> Array:
        return self.draw(self.size, self.size, key=1) * 0.2

    @property
    def traffic(self) -> Traffic:
        size, moves = self.size, self.size > 1
        backward, extra = self.gradient_extra is not None, self.gradient_extra or 0
        kv, gradients, latency = (self.draw(size, key=key) * self.scale for key in (2, 3, 4))
        return Traffic(
            kv=kv + latency,
            kv_hops=moves * (size + self.kv_extra),
            gradients=gradients + latency if backward else None,
            gradient_hops=moves * (size + extra) if backward else 0,
            together=kv + gradients + latency if backward and self.shared else None,
            overlaps=self.overlaps,
        )

    def walk(self) -> Timeline:
        return walk(self.compute.T, self.traffic, self.merge.T, keep=True)


rings = st.builds(
    Ring,
    size=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    kv_extra=st.sampled_from([-1, 0]),
    gradient_extra=st.sampled_from([None, -1, 0, 1]),
    shared=st.booleans(),
    overlaps=st.booleans(),
    scale=st.sampled_from([0.01, 0.3, 1.0, 5.0]),
)


@given(each=rings)
def test_times_are_longest_paths_of_the_event_graph(each: Ring) -> None:
    made, size = each.walk(), each.size
    ends = graph(each.compute, each.merge, each.traffic).ends()

    assert made.steps is not None
    assert made.total == pytest.approx(max(ends.values()), rel=1e-12)
    for name, found in (("begin", made.steps.begins), ("computed", made.steps.computed)):
        wanted = [[ends[name, r, s] for s in range(size)] for r in range(size)]
        assert found == pytest.approx(np.array(wanted), rel=1e-12, abs=1e-12)


@given(each=rings)
def test_hops_are_longest_paths_of_the_event_graph(each: Ring) -> None:
    made, size = each.walk(), each.size
    ends = graph(each.compute, each.merge, each.traffic).ends()

    assert made.steps is not None
    found = np.sort([hop.ends for hop in made.steps.hops], axis=0)
    wanted = sorted(node[2] for node in ends if node[0] == "hop" and node[1] == 0)
    path = np.array([[ends["hop", e, number] for e in range(size)] for number in wanted])
    assert found == pytest.approx(np.sort(path, axis=0), rel=1e-12)


@given(each=rings)
def test_time_of_a_rank_is_busy_exposed_or_idle(each: Ring) -> None:
    made, size = each.walk(), each.size
    whole = graph(each.compute, each.merge, each.traffic)

    for rank in range(size):
        wanted = shares(whole, rank, size)
        found = made.busy[rank], made.exposed[rank], made.idle[rank]
        assert found == pytest.approx(tuple(wanted), rel=1e-9, abs=1e-9)
        assert sum(found) == pytest.approx(made.total, rel=1e-12)


@given(each=rings, where=st.integers(0, 5), slower=st.floats(0, 3))
def test_slower_steps_and_edges_never_shorten_a_pass(each: Ring, where: int, slower: float) -> None:
    total, traffic, at = each.walk().total, each.traffic, where % each.size
    compute = each.compute
    compute[at, -1 - at] += slower

    assert walk(compute.T, traffic, each.merge.T).total >= total
    kv = traffic.kv.copy()
    kv[at] += slower
    late = traffic._replace(kv=kv)
    if traffic.together is not None:
        together = traffic.together.copy()
        together[at] += slower
        late = late._replace(together=together)
    assert walk(each.compute.T, late, each.merge.T).total >= total


SECONDS = st.floats(0, 10)


def equal_steps(first: float, later: float, size: int) -> Array:
    steps = np.full((size, size), later)
    steps[0] = first
    return steps


@given(size=st.integers(1, 9), first=SECONDS, later=SECONDS, hop=SECONDS)
def test_equal_ranks_take_the_time_of_the_closed_form(
    size: int, first: float, later: float, hop: float
) -> None:
    hops = Traffic(np.full(size, hop), kv_hops=size - 1)
    steps = {"first_step_time": first, "step_time": later, "ring_size": size}
    busy = ring.busy_time(**steps)
    late = ring.overlapped_exposure(
        first_step_time=first, step_time=later, transfer_time=hop, hops=size - 1
    )
    after = ring.synchronous_exposure(hops=size - 1, transfer_time=hop, home_time=0)

    overlapped = walk(equal_steps(first, later, size), hops)
    synchronous = walk(equal_steps(first, later, size), hops._replace(overlaps=False))

    for made, exposed in ((overlapped, late), (synchronous, after)):
        assert made.total == pytest.approx(busy + exposed, rel=1e-12, abs=1e-12)
        assert made.busy == pytest.approx(np.full(size, busy), rel=1e-12, abs=1e-12)
        assert made.exposed == pytest.approx(np.full(size, exposed), rel=1e-9, abs=1e-9)
        assert made.idle == pytest.approx(np.zeros(size), abs=1e-9)


@given(size=st.integers(2, 9), step=SECONDS, kv=SECONDS, gradients=SECONDS)
def test_gradients_that_come_home_are_exposed(
    size: int, step: float, kv: float, gradients: float
) -> None:
    """Of P hops one has no step left, of P + 1 two, of P - 1 none."""
    hops = Traffic(np.zeros(size), size - 1, np.full(size, gradients))

    for extra, homeless in ((-1, 0), (0, 1), (1, 2)):
        made = walk(
            equal_steps(step + gradients, step + gradients, size),
            hops._replace(gradient_hops=size + extra),
        )
        assert made.exposed == pytest.approx(np.full(size, homeless * gradients), abs=1e-9)
    both = hops._replace(kv=np.full(size, kv), gradient_hops=size)
    alone = walk(equal_steps(0, 0, size), both).total
    assert alone == pytest.approx((size - 1) * kv + size * gradients, rel=1e-9, abs=1e-9)


def test_two_communicators_spare_latencies_and_one_keeps_order() -> None:
    """Steps of nothing: each hop of both takes one latency instead of two."""
    size, latency, kv, gradients = 5, 1.0, 10.0, 20.0
    hops = Traffic(
        np.full(size, kv + latency), size - 1, np.full(size, gradients + latency), size - 1
    )
    shared = hops._replace(together=np.full(size, kv + gradients + latency))

    one, two = (walk(np.zeros((size, size)), each).total for each in (hops, shared))

    assert one == 4 * (kv + gradients + 2 * latency)
    assert one - two == 3 * latency


@given(size=st.integers(2, 9), step=SECONDS, slow=st.floats(10, 20))
def test_one_edge_between_nodes_paces_the_whole_ring(size: int, step: float, slow: float) -> None:
    """The neighbours wait for the slow edge, theirs for them; the last rank for all but one hop."""
    edges = np.zeros(size)
    edges[0] = slow
    hops = Traffic(edges, kv_hops=size - 1)

    made = walk(np.full((size, size), step), hops)

    assert made.total == pytest.approx((size - 1) * slow + step, rel=1e-12)
    assert made.exposed[:2] == pytest.approx(np.full(2, (size - 1) * (slow - step)), rel=1e-9)
    assert made.exposed[2:] == pytest.approx(np.zeros(size - 2), abs=1e-9)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_free_hops_still_couple_the_ranks_of_a_contiguous_causal_ring(size: int) -> None:
    """The last rank works at every step; the first has nothing to do after its own block."""
    pairs = visible_pairs(Dealt("contiguous", size, 8, 8))

    made = walk(pairs.T, Traffic(np.zeros(size), kv_hops=size - 1))

    assert made.total == pairs.max(axis=0).sum() == pairs[-1].sum()
    assert made.idle.tolist() == (made.total - pairs.sum(axis=1)).tolist()
    assert not made.exposed.any()


@pytest.mark.parametrize("size", [2, 3, 8])
def test_zigzag_leaves_nobody_idle(size: int) -> None:
    pairs = visible_pairs(Dealt("zigzag", size, 8, 8))

    made = walk(pairs.T, Traffic(np.full(size, 40.0), kv_hops=size - 1))

    assert not made.idle.any()
    assert set(made.exposed) == {40.0 - 36 + (size - 2) * (40.0 - 32)}


@given(each=rings, seconds=SECONDS)
def test_collectives_are_exposed_unless_the_own_block_hides_them(
    each: Ring, seconds: float
) -> None:
    size, none = each.size, Traffic(np.zeros(each.size))
    plain = walk(each.compute.T, none)
    own = each.compute[:, 0]
    tolerance: Any = {"rel": 1e-9, "abs": 1e-9}

    before = walk(each.compute.T, none._replace(gather=seconds))
    within = walk(each.compute.T, none._replace(gather=seconds, gather_overlaps=True))
    after = walk(each.compute.T, none._replace(scatter=seconds))
    traded = walk(each.compute.T, each.traffic._replace(exchange=seconds), each.merge.T)

    assert before.exposed == pytest.approx(np.full(size, seconds), **tolerance)
    assert within.exposed == pytest.approx(np.maximum(seconds - own, 0), **tolerance)
    assert after.total == pytest.approx(plain.total + seconds, **tolerance)
    assert traded.total == pytest.approx(each.walk().total + seconds, **tolerance)
    for made in (before, within, after, traded):
        assert made.busy + made.exposed + made.idle == pytest.approx(
            np.full(size, made.total), **tolerance
        )


@given(small=smalls(ring_size=st.integers(2, 6)), latency=st.floats(0, 1e-2))
def test_replayed_ledgers_take_as_long_where_all_ranks_work_alike(
    small: Small, latency: float
) -> None:
    """Forward the rules are the same, but here ranks may run ahead: it is never later."""
    speed = Rates(flops_per_second=1e4, bandwidth=1e4, latency=latency)
    ranks = small.forward()
    steps = [
        [step.work.flops / speed.flops_per_second for step in rank.ledger.steps if step.read_bytes]
        for rank in ranks
    ]
    hop = latency + small.hop_bytes / speed.bandwidth
    hops = Traffic(np.full(small.ring_size, hop), kv_hops=small.ring_size - 1)

    for overlaps in (True, False):
        made = walk(np.array(steps).T, hops._replace(overlaps=overlaps))
        replayed = replay(ranks, speed, overlaps=overlaps).total
        if np.array(steps).std(axis=0).any():
            assert made.total <= replayed * (1 + 1e-12)
        else:
            assert made.total == pytest.approx(replayed, rel=1e-12)


@given(
    small=smalls(ring_size=st.integers(2, 6), causal=st.just(value=False)), reverse=st.booleans()
)
def test_replayed_gradients_take_as_long_on_a_wire_without_latency(
    small: Small, *, reverse: bool
) -> None:
    """The replay gives an exchange one latency, and none to gradients that are alone at the end."""
    speed = Rates(flops_per_second=1e4, bandwidth=1e4, latency=0)
    ranks, size = small.backward(reverse=reverse), small.ring_size
    steps = [
        [step.work.flops / speed.flops_per_second for step in rank.ledger.steps if step.read_bytes]
        for rank in ranks
    ]
    kv, gradients = (
        np.full(size, each / speed.bandwidth) for each in (small.hop_bytes, small.gradient_bytes)
    )
    hops = Traffic(kv, size - 1, gradients, size - 1 if reverse else size, kv + gradients)

    for overlaps in (True, False):
        made = walk(np.array(steps).T, hops._replace(overlaps=overlaps))
        assert made.total == pytest.approx(replay(ranks, speed, overlaps=overlaps).total, rel=1e-12)
