"""The ring: traffic counted hop by hop, time step by step, and blocks that hide their transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ringplan.costs import attention, buffers, collectives, hiding, layout, links, masks, ring

if TYPE_CHECKING:
    from collections.abc import Callable

counts = st.integers(1, 64)
ranks = st.integers(1, 12)
times = st.floats(1e-6, 1e3)
rates = st.floats(1e9, 1e12)
scales = st.floats(1e-3, 1e3)

MIB = 2**20


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


# Bytes


def send_around(size: int, hops: int) -> tuple[list[int], list[set[int]], list[int]]:
    """Pass numbered blocks on; return sends by rank, blocks seen by rank, blocks held last."""
    held, sends = list(range(size)), [0] * size
    seen = [{block} for block in held]
    for _ in range(hops):
        arrived = [held[rank - 1] for rank in range(size)]
        sends = [count + 1 for count in sends]
        held = arrived
        for rank, block in enumerate(held):
            seen[rank].add(block)
    return sends, seen, held


@given(size=st.integers(2, 12))
def test_one_hop_less_than_ranks_shows_every_block_to_every_rank(size: int) -> None:
    """And one hop less than that does not."""
    hops = int(ring.ring_hops(ring_size=size, extra_hops=-1))
    everything = set(range(size))

    sends, seen, _ = send_around(size, hops)
    assert seen == [everything] * size
    assert sends == [hops] * size
    assert everything not in send_around(size, hops - 1)[1]


@given(size=st.integers(2, 12))
def test_as_many_hops_as_ranks_bring_a_block_home(size: int) -> None:
    """What gradients need that travel with their block."""
    hops = int(ring.ring_hops(ring_size=size, extra_hops=0))

    assert send_around(size, hops)[2] == list(range(size))


@given(extra=st.integers(-1, 1), hop=counts)
def test_one_rank_sends_nothing(extra: int, hop: int) -> None:
    """Whatever the schedule adds, there is nobody to send to."""
    hops = ring.ring_hops(ring_size=1, extra_hops=extra)

    assert ring.bytes_of_hops(hops=hops, hop_bytes=hop) == 0
    assert collectives.all_gather_bytes(cp_size=1, shard_bytes=hop) == 0
    assert ulysses(ulysses_size=1) == 0


@given(size=ranks, hop=counts)
def test_bytes_of_a_pass_are_those_each_rank_was_seen_to_send(size: int, hop: int) -> None:
    hops = int(ring.ring_hops(ring_size=size, extra_hops=-1))
    sends, _, _ = send_around(size, hops)

    assert {ring.bytes_of_hops(hops=hops, hop_bytes=hop)} == {count * hop for count in sends}


@given(size=ranks, shard=counts)
def test_all_gather_sends_as_much_as_the_ring(size: int, shard: int) -> None:
    """It gathers the same blocks; only nothing is computed in between."""
    hops = ring.ring_hops(ring_size=size, extra_hops=-1)

    assert collectives.all_gather_bytes(cp_size=size, shard_bytes=shard) == ring.bytes_of_hops(
        hops=hops, hop_bytes=shard
    )


@given(size=ranks, shard=counts)
def test_gathered_buffer_is_what_was_received_and_what_was_there(size: int, shard: int) -> None:
    received = collectives.all_gather_bytes(cp_size=size, shard_bytes=shard)

    assert buffers.gathered_buffer_bytes(cp_size=size, shard_bytes=shard, copies=1) == (
        received + shard
    )


def block_bytes(**given: int) -> float:
    shape = {"batch_size": 1, "tokens": 8, "num_kv_heads": 2, "head_dim": 4, "v_head_dim": 4}
    if (both := given.pop("element_bytes", None)) is not None:
        given |= {"key_bytes": both, "value_bytes": both}
    return ring.kv_block_bytes(**{**shape, "key_bytes": 2, "value_bytes": 2, **given})


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 4)),
    head_dim=st.integers(1, 8),
    v_head_dim=st.integers(1, 8),
    dtype=st.sampled_from(["f2", "f4", "f8", "i1"]),
)
def test_block_is_as_large_as_its_arrays(
    shape: tuple[int, int, int], head_dim: int, v_head_dim: int, dtype: str
) -> None:
    """NumPy's own count of the bytes of K and of V."""
    keys, values = np.empty((*shape, head_dim), dtype), np.empty((*shape, v_head_dim), dtype)
    batch, tokens, heads = shape

    assert keys.nbytes + values.nbytes == block_bytes(
        batch_size=batch,
        tokens=tokens,
        num_kv_heads=heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        element_bytes=keys.itemsize,
    )


@pytest.mark.parametrize("name", ["batch_size", "tokens", "num_kv_heads", "element_bytes"])
@given(once=counts, times_=counts)
def test_block_bytes_are_proportional_to(name: str, once: int, times_: int) -> None:
    assert block_bytes(**{name: once * times_}) == times_ * block_bytes(**{name: once})


@given(heads=counts, ulysses_size=st.integers(1, 16), tokens=counts)
def test_wire_bytes_of_a_token_are_those_of_a_hop(
    heads: int, ulysses_size: int, tokens: int
) -> None:
    """Inside a hybrid a hop carries u times the tokens with 1/u of the heads, at least one."""
    per_token = hiding.wire_bytes_per_token(
        num_kv_heads=heads,
        head_dim=192,
        v_head_dim=128,
        key_bytes=4,
        value_bytes=2,
        ulysses_size=ulysses_size,
    )
    hop = ring.kv_block_bytes(
        batch_size=1,
        tokens=layout.ring_tokens(tokens=tokens, ulysses_size=ulysses_size),
        num_kv_heads=layout.ring_kv_heads(num_kv_heads=heads, ulysses_size=ulysses_size),
        head_dim=192,
        v_head_dim=128,
        key_bytes=4,
        value_bytes=2,
    )

    assert hop == close(tokens * per_token)


def ulysses(**given: int) -> float:
    shape = {"batch_size": 1, "tokens": 16, "num_heads": 8, "num_kv_heads": 8, "head_dim": 4}
    rest = {"v_head_dim": 4, "element_bytes": 2, "ulysses_size": 4}
    return collectives.ulysses_bytes(**{**shape, **rest, **given})


@given(
    size=st.integers(1, 5),
    tokens=st.integers(1, 4),
    heads=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
)
def test_exchange_sends_each_head_slice_that_another_rank_owns(
    size: int, tokens: int, heads: int, kv_heads: int
) -> None:
    """Q, K, V go to the owner of the head; the output comes back to the owner of the token."""
    h, g, d_k, d_v, e = heads * size, kv_heads * size, 6, 4, 2
    sent = [0] * size
    for token in range(tokens * size):
        home = token // tokens
        for head in range(h):
            owner = head // heads
            sent[home] += (owner != home) * d_k * e
            sent[owner] += (owner != home) * d_v * e
        for head in range(g):
            owner = head // kv_heads
            sent[home] += (owner != home) * (d_k + d_v) * e
    expected = ulysses(
        tokens=tokens,
        num_heads=h,
        num_kv_heads=g,
        head_dim=d_k,
        v_head_dim=d_v,
        element_bytes=e,
        ulysses_size=size,
    )

    assert set(sent) == {expected}


@given(
    cp_size=st.integers(2, 64), kv_heads=st.integers(1, 32), group=st.integers(1, 16), tokens=counts
)
def test_ring_sends_fewer_bytes_than_ulysses_iff_pg_is_less_than_h_plus_g(
    cp_size: int, kv_heads: int, group: int, tokens: int
) -> None:
    """Both of the same tokens, heads and width; the implementations' own comparison."""
    heads = kv_heads * group
    shard = block_bytes(tokens=tokens, num_kv_heads=kv_heads)
    around = ring.bytes_of_hops(
        hops=ring.ring_hops(ring_size=cp_size, extra_hops=-1), hop_bytes=shard
    )
    across = ulysses(tokens=tokens, num_heads=heads, num_kv_heads=kv_heads, ulysses_size=cp_size)

    if cp_size * kv_heads == heads + kv_heads:
        assert around == close(across)
    else:
        assert (around < across) == (cp_size * kv_heads < heads + kv_heads)


@given(inside=counts, around=counts)
def test_hybrid_sends_what_its_parts_send(inside: int, around: int) -> None:
    both = collectives.hybrid_bytes(ulysses_bytes=inside, ring_bytes=around)

    assert both - around == inside
    assert ring.backward_hop_bytes(kv_bytes=inside, gradient_bytes=around) == both


@given(kinds=st.lists(st.tuples(counts, counts), min_size=1, max_size=5))
def test_layers_send_one_after_another(kinds: list[tuple[int, int]]) -> None:
    layers, each = zip(*kinds, strict=True)
    sent = sum(size for count, size in kinds for _ in range(count))

    assert ring.bytes_of_layers(layers=layers, layer_bytes=each) == sent


@given(size=st.integers(1, 8))
def test_exchange_without_partners_holds_no_buffer(size: int) -> None:
    """Else it holds Q, K, V and the output of as many tokens and heads as it gave away."""
    shape = {"batch_size": 1, "tokens": 16, "num_heads": 8, "v_head_dim": 4, "element_bytes": 2}
    qkv = buffers.exchanged_qkv_bytes(**shape, num_kv_heads=8, head_dim=4, ulysses_size=size)
    out = buffers.exchanged_out_bytes(**shape, ulysses_size=size)
    one = np.empty((16, 8, 4), "f2").nbytes

    assert qkv == (3 * one if size > 1 else 0)
    assert out == (one if size > 1 else 0)


@given(arrived=counts, ring_buffers=counts, leaving=counts)
def test_result_of_an_exchange_leaves_after_the_ring(
    arrived: int, ring_buffers: int, leaving: int
) -> None:
    """So its buffers and the ring's are not held together; what arrived is held with either."""
    held = buffers.exchange_buffer_bytes(
        arrived_bytes=arrived, ring_buffer_bytes=ring_buffers, leaving_bytes=leaving
    )

    assert held in {arrived + ring_buffers, arrived + leaving}
    assert held >= arrived + ring_buffers
    assert held >= arrived + leaving


# Work


@given(pairs=counts, heads=counts, head_dim=counts, v_head_dim=counts)
def test_work_is_two_for_each_multiply_add(
    pairs: int, heads: int, head_dim: int, v_head_dim: int
) -> None:
    """Q K^T is d_k long a pair, P V d_v; backward takes three products of d_k and two of d_v."""
    shape = {"batch_size": 1, "pairs": pairs, "num_heads": heads, "head_dim": head_dim}
    forward = [head_dim, v_head_dim]
    backward = [head_dim, v_head_dim, v_head_dim, head_dim, head_dim]

    assert attention.attention_flops(**shape, v_head_dim=v_head_dim) == sum(
        2 * pairs * heads * length for length in forward
    )
    assert attention.attention_backward_flops(**shape, v_head_dim=v_head_dim) == sum(
        2 * pairs * heads * length for length in backward
    )


@given(head_dim=counts, v_head_dim=counts)
def test_backward_is_two_and_a_half_times_forward_only_for_equal_head_sizes(
    head_dim: int, v_head_dim: int
) -> None:
    shape = {"batch_size": 3, "pairs": 7, "num_heads": 5}
    dims = {"head_dim": head_dim, "v_head_dim": v_head_dim}
    forward = attention.attention_flops(**shape, **dims)
    backward = attention.attention_backward_flops(**shape, **dims)

    assert (2 * backward == 5 * forward) == (head_dim == v_head_dim)


@given(size=st.floats(1, 1e6), low=st.floats(0.1, 0.5), high=st.floats(0.5, 1))
def test_efficiency_stays_between_the_measured_ones(size: float, low: float, high: float) -> None:
    """Flat beyond the ends, and never better than the best kernel."""
    efficiency = attention.tile_efficiency(
        query_tokens=size, sizes=(1024, 16384), shares=(low, high)
    )

    assert low * (1 - 1e-12) <= efficiency <= high * (1 + 1e-12)
    if size <= 1024:
        assert efficiency == low
    if size >= 16384:
        assert efficiency == close(high)


@given(peak=rates, share=st.floats(0.01, 1), flops=rates)
def test_work_at_peak_is_never_slower(peak: float, share: float, flops: float) -> None:
    achieved = attention.achieved_rate(peak=peak, efficiency=share)
    at_peak = attention.compute_time(flops=flops, flops_per_second=peak)
    time = attention.compute_time(flops=flops, flops_per_second=achieved)

    assert at_peak <= time
    assert time * achieved == close(flops)


# Time


@given(size=counts, bandwidth=rates)
def test_twice_the_bandwidth_halves_a_transfer_without_latency(size: int, bandwidth: float) -> None:
    slow = ring.transfer_time(transfer_bytes=size, bandwidth=bandwidth, latency=0)
    fast = ring.transfer_time(transfer_bytes=size, bandwidth=2 * bandwidth, latency=0)

    assert slow == 2 * fast


@given(size=counts, bandwidth=rates, latency=times, exchanges=st.integers(0, 8))
def test_latency_is_paid_once_for_each_exchange(
    size: int, bandwidth: float, latency: float, exchanges: int
) -> None:
    """And it is all that an empty transfer costs."""
    wire = {"bandwidth": bandwidth, "latency": latency}
    one = ring.transfer_time(transfer_bytes=size, **wire)

    assert ring.transfer_time(transfer_bytes=0, **wire) == latency
    assert one == collectives.collective_time(transfer_bytes=size, latencies=1, **wire)
    assert collectives.collective_time(transfer_bytes=size, latencies=exchanges, **wire) == close(
        size / bandwidth + exchanges * latency
    )


def exposure(first: float, step: float, transfer: float, size: int) -> float:
    return ring.overlapped_exposure(
        first_step_time=first, step_time=step, transfer_time=transfer, hops=size - 1
    )


def pass_time(first: float, step: float, transfer: float, size: int) -> float:
    busy = ring.busy_time(first_step_time=first, step_time=step, ring_size=size)
    return ring.pass_time(busy_time=busy, exposed_time=exposure(first, step, transfer, size))


def walk(first: float, step: float, transfer: float, size: int) -> float:
    """A rank's clock: a step starts when the last is done and its block has come."""
    computed = arrived = 0.0
    for number in range(size):
        start = max(computed, arrived)
        computed = start + (step if number else first)
        arrived = start + transfer if number < size - 1 else start
    return max(computed, arrived)


@given(first=times, step=times, transfer=times, size=ranks)
def test_pass_takes_as_long_as_its_steps_one_by_one(
    first: float, step: float, transfer: float, size: int
) -> None:
    """The closed form is the clock of a rank: the sum of max(c_s, x), and the last step."""
    assert pass_time(first, step, transfer, size) == close(walk(first, step, transfer, size))


@given(first=times, step=times, transfer=times, size=ranks)
def test_overlap_can_hide_time_but_not_create_or_destroy_it(
    first: float, step: float, transfer: float, size: int
) -> None:
    """max(work) <= overlapped <= sum(work)."""
    busy = ring.busy_time(first_step_time=first, step_time=step, ring_size=size)
    alternating = ring.synchronous_exposure(transfer_time=transfer, hops=size - 1, home_time=0)
    exposed = exposure(first, step, transfer, size)

    assert 0 <= exposed <= alternating * (1 + 1e-12)
    assert ring.pass_time(busy_time=busy, exposed_time=exposed) >= max(busy, alternating) * (
        1 - 1e-12
    )


@given(first=times, step=times, size=ranks)
def test_transfer_no_longer_than_any_step_is_hidden(first: float, step: float, size: int) -> None:
    assert exposure(first, step, min(first, step), size) == 0


@given(first=times, step=times, transfer=times)
def test_one_rank_waits_for_nothing(first: float, step: float, transfer: float) -> None:
    assert exposure(first, step, transfer, 1) == 0
    assert ring.synchronous_exposure(transfer_time=transfer, hops=0, home_time=0) == 0
    assert pass_time(first, step, transfer, 1) == first


@given(first=times, step=times, transfer=times, size=ranks, scale=scales)
def test_another_unit_of_time_rescales_the_answer_and_nothing_else(
    first: float, step: float, transfer: float, size: int, scale: float
) -> None:
    assert pass_time(scale * first, scale * step, scale * transfer, size) == close(
        scale * pass_time(first, step, transfer, size)
    )
    assert ring.overlap_margin(step_time=scale * step, transfer_time=scale * transfer) == close(
        ring.overlap_margin(step_time=step, transfer_time=transfer)
    )


@given(step=times, transfer=times, size=st.integers(2, 12))
def test_margin_of_one_is_where_exposure_begins(step: float, transfer: float, size: int) -> None:
    margin = ring.overlap_margin(step_time=step, transfer_time=transfer)

    assume(abs(margin - 1) > 1e-9)
    assert (exposure(step, step, transfer, size) == 0) == (margin >= 1)


@given(exposed=times, exchange=times)
def test_exchange_is_exposed_beside_the_ring(exposed: float, exchange: float) -> None:
    both = ring.total_exposure(ring_exposure=exposed, collective_time=exchange)

    assert both == exposed + exchange


# Smallest blocks

EFFICIENCIES = [((1,), (1,)), ((1024, 4096, 16384), (0.3, 0.55, 0.65)), ((256, 8192), (0.4, 0.7))]
#: What of its rate a kernel reaches by rows, keys met and head size, and the keys of its tile.
FLAT: dict[str, Any] = {
    **dict.fromkeys(("fill_sizes", "depth_sizes", "head_sizes"), (1,)),
    **dict.fromkeys(("fill_shares", "depth_shares", "head_shares"), (1,)),
    "tile": 0,
}
CURVE: dict[str, Any] = {
    "fill_sizes": (2**15, 2**18, 2**20),
    "fill_shares": (0.5, 0.9, 1),
    "depth_sizes": (256, 4096),
    "depth_shares": (0.5, 1),
    "head_sizes": (64, 128),
    "head_shares": (0.75, 1),
    "tile": 128,
}
LINK_EFFICIENCIES = [((1,), (1,)), ((1,), (0.9,)), ((2**20, 2**24, 2**28), (0.1, 0.45, 0.75))]


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """A layer, a device and a link; the new tokens are all of the context, or a half or third."""
    partition = draw(st.sampled_from(["full", "zigzag", "striped"]))
    sizes, shares = draw(st.sampled_from(EFFICIENCIES))
    message_sizes, link_shares = draw(st.sampled_from(LINK_EFFICIENCIES))
    return {
        "partition": partition,
        "new_parts": draw(st.integers(1, 3)),
        "batch_size": draw(st.integers(1, 4)),
        "num_heads": draw(st.sampled_from([8, 32, 64])),
        "num_kv_heads": draw(st.sampled_from([1, 8])),
        "head_dim": draw(st.sampled_from([64, 192])),
        "v_head_dim": draw(st.sampled_from([64, 128])),
        "element_bytes": draw(st.sampled_from([1, 2, 4])),
        "ulysses_size": draw(st.sampled_from([1, 2, 8])),
        "peak": draw(st.floats(1e13, 5e15)),
        "sizes": sizes,
        "shares": shares,
        "curve": draw(st.sampled_from([FLAT, CURVE])),
        "bandwidth": draw(st.floats(5e9, 9e11)),
        "message_sizes": message_sizes,
        "link_shares": link_shares,
        "messages": draw(st.sampled_from([1, 2])),
        "latency": draw(st.sampled_from([0, 5e-6, 1e-3])),
        "latencies": draw(st.sampled_from([1, 2])),
        "merge_time": draw(st.sampled_from([0, 1e-9])),
    }


PAIRS: dict[str, Callable[..., float]] = {
    "full": masks.full_pairs,
    "zigzag": masks.zigzag_pairs,
    "striped": masks.diagonal_pairs,
}


def margin_of(block: int, x: dict[str, Any]) -> float:
    """The overlap margin of a later step, built from the formulas that look forward."""
    heads, kv_heads, u = x["num_heads"], x["num_kv_heads"], x["ulysses_size"]
    keys = layout.ring_tokens(tokens=block, ulysses_size=u)
    queries = layout.ring_tokens(tokens=block // x["new_parts"], ulysses_size=u)
    dims = {"head_dim": x["head_dim"], "v_head_dim": x["v_head_dim"]}
    pairs = PAIRS[x["partition"]](query_tokens=queries, block_tokens=keys)
    flops = attention.attention_flops(
        batch_size=x["batch_size"],
        pairs=pairs,
        num_heads=layout.ring_query_heads(num_heads=heads, ulysses_size=u),
        **dims,
    )
    curve = {key: value for key, value in x["curve"].items() if key != "tile"}
    rate = attention.achieved_rate(
        peak=x["peak"],
        efficiency=attention.kernel_efficiency(
            plateau=attention.tile_efficiency(
                query_tokens=queries, sizes=x["sizes"], shares=x["shares"]
            ),
            query_rows=attention.query_rows(
                batch_size=x["batch_size"],
                num_heads=layout.ring_query_heads(num_heads=heads, ulysses_size=u),
                query_tokens=queries,
            ),
            keys_met=attention.keys_met(
                pairs=pairs,
                query_tokens=queries,
                tile=x["curve"]["tile"],
                diagonal_share=1 if x["partition"] == "striped" else 0,
            ),
            pairs=pairs,
            query_tokens=queries,
            head_dim=x["head_dim"],
            **curve,
        ),
    )
    hop = ring.kv_block_bytes(
        batch_size=x["batch_size"],
        tokens=keys,
        num_kv_heads=layout.ring_kv_heads(num_kv_heads=kv_heads, ulysses_size=u),
        key_bytes=x["element_bytes"],
        value_bytes=x["element_bytes"],
        **dims,
    )
    return ring.overlap_margin(
        step_time=attention.compute_time(flops=flops, flops_per_second=rate)
        + x["merge_time"] * queries / u,
        transfer_time=ring.transfer_time(
            transfer_bytes=hop,
            bandwidth=links.achieved_bandwidth(
                bandwidth=x["bandwidth"],
                efficiency=links.link_efficiency(
                    message_bytes=links.message_bytes(transfer_bytes=hop, messages=x["messages"]),
                    message_sizes=x["message_sizes"],
                    link_shares=x["link_shares"],
                ),
            ),
            latency=x["latencies"] * x["latency"],
        ),
    )


def shared(x: dict[str, Any]) -> dict[str, Any]:
    """Arguments that the two inverse formulas have in common."""
    names = ["batch_size", "num_heads", "head_dim", "v_head_dim", "ulysses_size"]
    return {name: x[name] for name in [*names, "bandwidth", "latency"]} | {
        "visible_share": masks.visible_share(
            new_tokens=1,
            seq_len=x["new_parts"],
            mask_share=1 if x["partition"] == "full" else 0.5,
        ),
        "wire_bytes_per_token": hiding.wire_bytes_per_token(
            num_kv_heads=x["num_kv_heads"],
            head_dim=x["head_dim"],
            v_head_dim=x["v_head_dim"],
            key_bytes=x["element_bytes"],
            value_bytes=x["element_bytes"],
            ulysses_size=x["ulysses_size"],
        ),
    }


@given(x=layers(), wanted=st.sampled_from([1, 1.25, 3]), pieces=st.integers(1, 64))
def test_smallest_block_hides_its_transfer_and_one_step_less_does_not(
    x: dict[str, Any], wanted: float, pieces: int
) -> None:
    """Forward formulas at the answer and one granule below it; latency, tables and all."""
    granule = 2 * x["new_parts"] * pieces
    block = hiding.min_block_tokens(
        margin=wanted,
        granule=granule,
        diagonal_share=0.5 if x["partition"] == "striped" else 0,
        new_tokens=1,
        seq_len=x["new_parts"],
        peak=x["peak"],
        **{name: x[name] for name in ("sizes", "shares", "message_sizes", "link_shares")},
        messages=x["messages"],
        **x["curve"],
        head_size=x["head_dim"],
        latencies=x["latencies"],
        merge_time=x["merge_time"],
        **shared(x),
    )

    assert block % granule == 0
    assert block >= granule
    assert margin_of(int(block), x) >= wanted * (1 - 1e-9)
    if block > granule:
        assert margin_of(int(block) - granule, x) < wanted * (1 + 1e-9)


def test_block_that_no_context_reaches_is_recognisable() -> None:
    """Twice the largest that is looked at, not a number somebody might plan with."""
    nothing = hiding.min_block_tokens(
        margin=1,
        granule=2,
        batch_size=1,
        num_heads=1,
        head_dim=1,
        v_head_dim=1,
        visible_share=1,
        diagonal_share=0,
        new_tokens=1,
        seq_len=1,
        ulysses_size=1,
        wire_bytes_per_token=1e12,
        peak=1e18,
        sizes=(1,),
        shares=(1,),
        bandwidth=1,
        message_sizes=(1,),
        link_shares=(1,),
        messages=1,
        **FLAT,
        head_size=1,
        latency=0,
        latencies=1,
        merge_time=0,
    )

    assert nothing == 2 * 2 * 2**32


@given(x=layers(), block=st.integers(1, 10**5), longer=st.integers(1, 10**5))
def test_bigger_block_never_lowers_the_margin_at_a_constant_rate(
    x: dict[str, Any], block: int, longer: int
) -> None:
    """Work grows with the square of the block, bytes only in proportion."""
    x |= {"sizes": (1,), "shares": (0.6,), "curve": FLAT}
    granule = 2 * x["new_parts"]

    assert margin_of((block + longer) * granule, x) >= margin_of(block * granule, x)


@given(x=layers(), rate=st.floats(1e13, 1e15))
def test_ideal_block_equalises_step_and_transfer(x: dict[str, Any], rate: float) -> None:
    """At the returned block attention takes exactly as long as the hop; the diagonal aside."""
    common = shared(x)
    block = hiding.min_block_tokens_ideal(flops_per_second=rate, **common)
    u = x["ulysses_size"]
    flops = attention.attention_flops(
        batch_size=x["batch_size"],
        pairs=common["visible_share"] * (block * u) ** 2,
        num_heads=layout.ring_query_heads(num_heads=x["num_heads"], ulysses_size=u),
        head_dim=x["head_dim"],
        v_head_dim=x["v_head_dim"],
    )

    assert attention.compute_time(flops=flops, flops_per_second=rate) == close(
        ring.transfer_time(
            transfer_bytes=x["batch_size"] * block * common["wire_bytes_per_token"],
            bandwidth=x["bandwidth"],
            latency=x["latency"],
        )
    )


@given(heads=counts, head_dim=counts, rate=st.floats(1e13, 1e15), bandwidth=rates)
def test_ideal_block_of_the_article_is_rate_over_bandwidth(
    heads: int, head_dim: int, rate: float, bandwidth: float
) -> None:
    """Multi-head attention, 16 bits, no mask, no latency: b B/F > 1, so n = F/B."""
    block = hiding.min_block_tokens_ideal(
        batch_size=1,
        num_heads=heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        visible_share=1,
        ulysses_size=1,
        wire_bytes_per_token=4 * heads * head_dim,
        flops_per_second=rate,
        bandwidth=bandwidth,
        latency=0,
    )

    assert block == close(rate / bandwidth)


@given(block=st.integers(1, 10**6), heads=counts, head_dim=counts, rate=rates, bandwidth=rates)
def test_margin_of_the_article_is_block_times_bandwidth_over_rate(
    block: int, heads: int, head_dim: int, rate: float, bandwidth: float
) -> None:
    """The same seen forward."""
    x = {
        "partition": "full",
        "new_parts": 1,
        "batch_size": 1,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": head_dim,
        "v_head_dim": head_dim,
        "element_bytes": 2,
        "ulysses_size": 1,
        "peak": rate,
        "sizes": (1,),
        "shares": (1,),
        "curve": FLAT,
        "bandwidth": bandwidth,
        "message_sizes": (1,),
        "link_shares": (1,),
        "messages": 1,
        "latency": 0,
        "latencies": 1,
        "merge_time": 0,
    }

    assert margin_of(block, x) == close(block * bandwidth / rate)


@given(
    seq_len=st.integers(1, 400),
    inside=st.integers(1, 400),
    slower=st.integers(0, 400),
    domain=st.integers(0, 64),
    ulysses_size=st.sampled_from([1, 2, 4]),
)
def test_most_ranks_are_those_whose_blocks_hide_on_the_link_they_use(
    seq_len: int, inside: int, slower: int, domain: int, ulysses_size: int
) -> None:
    """Tried one by one; a ring of one rank hides its hops whatever the block, having none."""
    tried = range(2 * ulysses_size, seq_len + 1, ulysses_size)
    blocks = {True: inside, False: inside + slower}
    fine = [ranks for ranks in tried if seq_len >= blocks[ranks <= domain] * ranks]

    assert hiding.max_cp_size(
        seq_len=seq_len,
        min_block_inside=inside,
        min_block_outside=inside + slower,
        inside_ranks=domain,
        ulysses_size=ulysses_size,
    ) == max(fine, default=ulysses_size)


# Published


def test_ring_flash_attention_shape() -> None:
    """
    The shape of ring-flash-attention's README: 32 heads, 8 KV heads of 128, n = 8192, P = 8.

    From the sources of each, in MiB: ring-flash-attention sends 16-bit K/V 7 times and fp32
    gradients 8 times (224, 736), Transformer Engine 16-bit gradients 7 times (448), its JAX ring
    K/V 8 and gradients 9 times (544), MaxText K/V and fp32 gradients 8 times (256, 768), Ulysses
    140 each way.
    """
    shape = {"batch_size": 1, "tokens": 8192, "num_kv_heads": 8, "head_dim": 128}
    half = ring.kv_block_bytes(**shape, v_head_dim=128, key_bytes=2, value_bytes=2)
    full = ring.kv_block_bytes(**shape, v_head_dim=128, key_bytes=4, value_bytes=4)
    fewer, even, more = (ring.ring_hops(ring_size=8, extra_hops=extra) for extra in (-1, 0, 1))

    def backward(kv_hops: float, gradient_hops: float, gradient_bytes: float) -> float:
        return (
            ring.backward_bytes(
                kv_sent=ring.bytes_of_hops(hops=kv_hops, hop_bytes=half),
                gradients_sent=ring.bytes_of_hops(hops=gradient_hops, hop_bytes=gradient_bytes),
            )
            / MIB
        )

    assert half == 32 * MIB
    assert ring.bytes_of_hops(hops=fewer, hop_bytes=half) == 224 * MIB
    assert ring.bytes_of_hops(hops=even, hop_bytes=half) == 256 * MIB
    assert backward(fewer, even, full) == 736
    assert backward(fewer, fewer, half) == 448
    assert backward(even, more, half) == 544
    assert backward(even, even, full) == 768
    gathered = collectives.all_gather_bytes(cp_size=8, shard_bytes=half)
    assert ring.backward_bytes(kv_sent=gathered, gradients_sent=gathered) == 448 * MIB
    assert (
        collectives.ulysses_bytes(
            **shape, num_heads=32, v_head_dim=128, element_bytes=2, ulysses_size=8
        )
        == 140 * MIB
    )


def test_zigzag_work_of_the_same_shape() -> None:
    """The shape of ring-flash-attention's README: 4.398 TFLOP a GPU, layer and forward pass."""
    tokens = {"query_tokens": 8192, "block_tokens": 8192}
    pairs = masks.diagonal_pairs(**tokens) + 7 * masks.zigzag_pairs(**tokens)
    flops = attention.attention_flops(
        batch_size=1, pairs=pairs, num_heads=32, head_dim=128, v_head_dim=128
    )

    assert round(flops / 1e12, 3) == 4.398
    assert flops == 16384 * (4 * 8192**2 + 4096)


def test_gathered_cache_of_a_million_tokens() -> None:
    """Transformer Engine #3411: 8.0 GiB of K and V a layer, 8 heads of 256."""
    shard = ring.kv_block_bytes(
        batch_size=1,
        tokens=layout.shard_tokens(tokens=2**20, cp_size=8),
        num_kv_heads=8,
        head_dim=256,
        v_head_dim=256,
        key_bytes=2,
        value_bytes=2,
    )

    assert buffers.gathered_buffer_bytes(cp_size=8, shard_bytes=shard, copies=1) == 8 * 2**30


def test_two_ranks_of_transformer_engine_backward() -> None:
    """Transformer Engine's sources: 5 U in JAX, one hop beyond home for gradients; 2 U in torch."""
    fewer, even, more = (ring.ring_hops(ring_size=2, extra_hops=extra) for extra in (-1, 0, 1))

    def units(kv_hops: float, gradient_hops: float) -> float:
        return ring.backward_bytes(kv_sent=kv_hops, gradients_sent=gradient_hops)

    assert units(even, more) == 5
    assert units(fewer, fewer) == 2
