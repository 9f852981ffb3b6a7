"""Tokens and heads of one rank."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import layout

tokens = st.integers(0, 10**7)
counts = st.integers(1, 64)


@given(new=tokens, multiple=counts)
def test_padding_reaches_the_next_multiple_and_no_further(new: int, multiple: int) -> None:
    padded = layout.padded_tokens(new_tokens=new, multiple=multiple)

    assert padded % multiple == 0
    assert 0 <= padded - new < multiple


@given(held=tokens, cp_size=counts)
def test_shards_hold_the_sequence_with_less_than_one_token_each_to_spare(
    held: int, cp_size: int
) -> None:
    shard = layout.shard_tokens(tokens=held, cp_size=cp_size)

    assert 0 <= shard * cp_size - held < cp_size


@given(held=tokens, cp_size=counts, more=counts)
def test_more_ranks_never_lengthen_a_block(held: int, cp_size: int, more: int) -> None:
    assert layout.shard_tokens(tokens=held, cp_size=cp_size + more) <= layout.shard_tokens(
        tokens=held, cp_size=cp_size
    )


@given(cached=tokens, new=tokens)
def test_context_is_what_was_there_and_what_comes(cached: int, new: int) -> None:
    assert layout.context_tokens(cached_tokens=cached, new_tokens=new) - cached == new


@given(ring_size=counts, ulysses_size=counts)
def test_ring_and_exchange_share_the_ranks_out(ring_size: int, ulysses_size: int) -> None:
    """P = R u."""
    ranks = layout.ring_ranks(cp_size=ring_size * ulysses_size, ulysses_size=ulysses_size)

    assert ranks == ring_size


@given(heads=counts, tp_size=counts)
def test_every_head_has_a_rank_and_every_rank_a_head(heads: int, tp_size: int) -> None:
    """Dealt out one by one, the fullest rank holds this many; with too few they are replicated."""
    fullest = max(len(range(rank, heads, tp_size)) for rank in range(tp_size))

    assert layout.query_heads(num_attention_heads=heads, tp_size=tp_size) == fullest
    assert layout.kv_heads(num_key_value_heads=heads, tp_size=tp_size) == fullest >= 1


@given(heads=counts, held=tokens, ulysses_size=counts)
def test_exchange_trades_tokens_for_heads(heads: int, held: int, ulysses_size: int) -> None:
    """Of what a rank works on, as much before as after: n h = (n u)(h / u)."""
    after = layout.ring_tokens(tokens=held, ulysses_size=ulysses_size)
    whole = heads * ulysses_size

    assert (
        after * layout.ring_query_heads(num_heads=whole, ulysses_size=ulysses_size) == held * whole
    )


@given(heads=counts, ulysses_size=counts)
def test_kv_heads_are_cut_until_one_is_left(heads: int, ulysses_size: int) -> None:
    """g/u of them, at least one."""
    ring = layout.ring_kv_heads(num_kv_heads=heads, ulysses_size=ulysses_size)

    assert ring == max(heads / ulysses_size, 1)


@given(size=counts)
def test_ring_algorithm_passes_on_until_everyone_has_been_met(size: int) -> None:
    """Walked: from rank 0 to the one before it."""
    met = [0]
    while len(met) < size:
        met.append((met[-1] + 1) % size)

    assert layout.ring_latencies(group_size=size) == len(met) - 1
