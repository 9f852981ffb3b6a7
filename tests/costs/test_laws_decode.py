"""Decode and cached prefixes: what travels, counted message by message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import attention, decode, links, ring

counts = st.integers(1, 64)
ranks = st.integers(1, 12)
rates = st.floats(1e9, 1e12)
times = st.floats(0, 1e-2)


@given(batch=counts, tokens=counts, kv_heads=counts, head_dim=counts, v_head_dim=counts)
def test_cache_of_one_rank_is_the_block_of_a_ring(
    batch: int, tokens: int, kv_heads: int, head_dim: int, v_head_dim: int
) -> None:
    """What would rotate is what lies there: g (d_k + d_v) elements a token."""
    assert decode.cache_shard_bytes(
        batch_size=batch,
        tokens=tokens,
        cached_elements=kv_heads * (head_dim + v_head_dim),
        element_bytes=2,
    ) == ring.kv_block_bytes(
        batch_size=batch,
        tokens=tokens,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        key_bytes=2,
        value_bytes=2,
    )


@given(cp_size=ranks, shard=counts, bandwidth=rates, latency=times)
def test_rotating_takes_one_transfer_for_each_other_rank(
    cp_size: int, shard: int, bandwidth: float, latency: float
) -> None:
    """One after another: for one query there is nothing to overlap them with."""
    hops = ring.ring_hops(ring_size=cp_size, extra_hops=-1)
    sent = ring.bytes_of_hops(hops=hops, hop_bytes=shard)
    transfer = ring.transfer_time(transfer_bytes=shard, bandwidth=bandwidth, latency=latency)

    assert decode.rotate_time(
        cp_size=cp_size, bytes_sent=sent, bandwidth=bandwidth, latency=latency
    ) == pytest.approx((cp_size - 1) * transfer, rel=1e-9)


def stationary(**given: int) -> float:
    shape = {"batch_size": 1, "new_tokens": 1, "num_heads": 4, "query_dim": 16, "output_dim": 8}
    return decode.stationary_bytes(
        **{
            **shape,
            "element_bytes": 2,
            "partial_bytes": 4,
            "accumulator_bytes": 4,
            "cp_size": 8,
            **given,
        }
    )


@given(query_dim=counts, output_dim=counts, element=st.sampled_from([1, 2]), heads=counts)
def test_stationary_exchange_is_a_query_a_partial_output_and_two_statistics(
    query_dim: int, output_dim: int, element: int, heads: int
) -> None:
    """Maximum and denominator are fp32 numbers of each head."""
    message = sum([query_dim * element, output_dim * 4, 4, 4] * heads)

    assert message == stationary(
        query_dim=query_dim, output_dim=output_dim, element_bytes=element, num_heads=heads
    )


@pytest.mark.parametrize("name", ["batch_size", "new_tokens", "num_heads"])
@given(once=counts, scale=counts)
def test_stationary_exchange_is_proportional_to(name: str, once: int, scale: int) -> None:
    assert stationary(**{name: once * scale}) == scale * stationary(**{name: once})


@given(shard=counts, bandwidth=rates, latency=times, exchanges=counts)
def test_one_rank_decodes_alone(
    shard: int, bandwidth: float, latency: float, exchanges: int
) -> None:
    """It sends nothing and waits for nothing, whatever the schedule."""
    wire = {"bandwidth": bandwidth, "latency": latency}

    assert stationary(cp_size=1) == 0
    assert decode.decode_latencies(latencies=exchanges, cp_size=1) == 0
    assert decode.rotate_time(cp_size=1, bytes_sent=0, **wire) == 0
    assert decode.pass_q_bytes(cp_size=1, query_bytes=shard, output_bytes=shard) == 0
    assert decode.pass_q_time(ring_time=3, cp_size=1, output_bytes=shard, **wire) == 3


@given(cp_size=st.integers(2, 64), exchanges=counts)
def test_exchanges_do_not_depend_on_the_number_of_partners(cp_size: int, exchanges: int) -> None:
    assert decode.decode_latencies(latencies=exchanges, cp_size=cp_size) == exchanges
    assert stationary(cp_size=cp_size) == stationary(cp_size=2)


@given(read=counts, bandwidth=rates, share=st.floats(0.01, 1))
def test_reading_takes_its_bytes_at_the_achieved_bandwidth(
    read: int, bandwidth: float, share: float
) -> None:
    time = decode.memory_read_time(read_bytes=read, bandwidth=bandwidth, efficiency=share)
    achieved = links.achieved_bandwidth(bandwidth=bandwidth, efficiency=share)

    assert time * achieved == pytest.approx(read, rel=1e-12)
    assert time >= read / bandwidth


@given(flops=counts, read=counts, peak=rates, bandwidth=rates)
def test_roofline_has_its_corner_at_the_machine_balance(
    flops: int, read: int, peak: float, bandwidth: float
) -> None:
    """Below FLOP/B = F/W memory decides, above it arithmetic."""
    compute = attention.compute_time(flops=flops, flops_per_second=peak)
    memory = decode.memory_read_time(read_bytes=read, bandwidth=bandwidth, efficiency=1)
    time = decode.roofline_time(compute_time=compute, memory_time=memory)

    assert time == (memory if flops * bandwidth < read * peak else pytest.approx(compute))
    assert time >= compute
    assert time >= memory


# Pass-Q


def queries(**given: int) -> float:
    shape = {"batch_size": 1, "query_tokens": 2, "num_heads": 4, "elements": 16}
    return decode.pass_q_block_bytes(**{**shape, "element_bytes": 2, "statistic_bytes": 0, **given})


@given(tokens=counts, heads=counts, elements=counts, statistic=st.sampled_from([0, 4]))
def test_block_of_queries_is_its_heads_and_their_statistics(
    tokens: int, heads: int, elements: int, statistic: int
) -> None:
    block = sum(elements * 2 + statistic for _ in range(tokens) for _ in range(heads))

    assert block == queries(
        query_tokens=tokens, num_heads=heads, elements=elements, statistic_bytes=statistic
    )


@given(cp_size=ranks, query=counts, output=counts)
def test_queries_visit_every_other_rank_and_a_partial_output_comes_back_from_each(
    cp_size: int, query: int, output: int
) -> None:
    """Message by message: a rank passes on every block it gets but the last, answers each."""
    sent = [0] * cp_size
    for home in range(cp_size):
        for hop in range(cp_size - 1):
            sent[(home + hop) % cp_size] += query
            sent[(home + hop + 1) % cp_size] += output

    assert set(sent) == {
        decode.pass_q_bytes(cp_size=cp_size, query_bytes=query, output_bytes=output)
    }


@given(
    cp_size=st.integers(2, 16),
    new=counts,
    cached=st.integers(0, 1000),
    kv_heads=st.integers(1, 8),
    group=st.integers(1, 16),
)
def test_queries_are_lighter_than_the_cache_iff_new_tokens_are_few(
    cp_size: int, new: int, cached: int, kv_heads: int, group: int
) -> None:
    """N/S below g (d_k + d_v) e / h (d_k e + d_v e + 4): near g/h, since outputs count too."""
    heads, d_k, d_v, e = kv_heads * group, 128, 128, 2
    context = new + cached
    pass_q = decode.pass_q_bytes(
        cp_size=cp_size,
        query_bytes=queries(query_tokens=new, num_heads=heads, elements=d_k),
        output_bytes=queries(query_tokens=new, num_heads=heads, elements=d_v, statistic_bytes=4),
    )
    pass_kv = (cp_size - 1) * ring.kv_block_bytes(
        batch_size=1,
        tokens=context,
        num_kv_heads=kv_heads,
        head_dim=d_k,
        v_head_dim=d_v,
        key_bytes=e,
        value_bytes=e,
    )
    few = new * heads * ((d_k + d_v) * e + 4) < context * kv_heads * (d_k + d_v) * e

    assert (pass_q < pass_kv) == few


@given(ring_time=times, cp_size=st.integers(2, 16), output=counts, bandwidth=rates, latency=times)
def test_outputs_come_home_after_the_ring(
    ring_time: float, cp_size: int, output: int, bandwidth: float, latency: float
) -> None:
    """Exposed: one start-up and the bytes of all partial outputs."""
    home = ring.transfer_time(
        transfer_bytes=(cp_size - 1) * output, bandwidth=bandwidth, latency=latency
    )

    assert decode.pass_q_time(
        ring_time=ring_time,
        cp_size=cp_size,
        output_bytes=output,
        bandwidth=bandwidth,
        latency=latency,
    ) == pytest.approx(ring_time + home, rel=1e-12)
