"""What lies where: caches counted token by token, shards that add up, answers with their proof."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.costs import buffers, cache, fit, layout, memory, model_state, rank_cache, working

counts = st.integers(1, 64)
sizes = st.integers(0, 10**12)
kinds = st.lists(st.tuples(counts, counts, st.integers(0, 50)), min_size=1, max_size=4)

MIB = 2**20


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


# Caches


@given(kinds=kinds, seq_len=st.integers(1, 100), batch=counts, replicas=counts)
def test_cache_is_what_each_layer_keeps_of_each_token(
    kinds: list[tuple[int, int, int]], seq_len: int, batch: int, replicas: int
) -> None:
    """Counted layer by layer and token by token; a window of 0 is none and grows."""
    layers, elements, windows = zip(*kinds, strict=True)
    kept = sum(
        width
        for count, width, window in kinds
        for _ in range(count)
        for token in range(seq_len)
        if not window or token >= seq_len - window
    )
    rows = tuple(2 * width for width in elements)
    per_token = cache.kv_bytes_per_token(
        layers=layers,
        rows=rows,
        grows=tuple(int(not window) for window in windows),
        ratios=(1,) * len(rows),
    )
    constant = cache.kv_constant_bytes(layers=layers, rows=rows, windows=windows, seq_len=seq_len)

    assert (
        cache.kv_bytes(
            dp_size=replicas,
            batch_size=batch,
            seq_len=seq_len,
            shared_tokens=0,
            per_token=per_token,
            constant=constant,
        )
        == 2 * replicas * batch * kept
    )


@given(blocks=counts, cp_size=counts, heads=counts, tp_size=st.sampled_from([1, 2, 4]))
def test_shards_of_the_cache_add_up_to_it(
    blocks: int, cp_size: int, heads: int, tp_size: int
) -> None:
    """Over replicas, context and tensor ranks, where heads can be dealt evenly."""
    seq_len = blocks * cp_size
    shape = {"head_dim": 192, "v_head_dim": 128}
    formats = {"k_bytes": 2, "v_bytes": 2, "alignment": 1}
    whole = cache.cache_row_bytes(num_kv_heads=heads * tp_size, **shape, **formats)
    part = cache.cache_row_bytes(
        num_kv_heads=layout.kv_heads(num_key_value_heads=heads * tp_size, tp_size=tp_size),
        **shape,
        **formats,
    )
    layer = cache.kv_layer_bytes(dp_size=3, batch_size=2, seq_len=seq_len, row_bytes=whole)
    held = rank_cache.paged_tokens(batch_size=2, tokens=blocks, shared_tokens=0, page_tokens=1)
    rank = rank_cache.rank_kv_bytes(
        layers=(1,), growing_tokens=(held,), ratios=(1,), window_tokens=(0,), rows=(part,)
    )

    assert 3 * rank * cp_size * tp_size == layer
    assert layer == 3 * 2 * seq_len * heads * tp_size * (192 + 128) * 2


@given(kinds=kinds, batch=counts, each=st.sampled_from([1, 2, 4]))
def test_rank_holds_its_tokens_of_every_layer(
    kinds: list[tuple[int, int, int]], batch: int, each: int
) -> None:
    """Growing tokens and those of windows alike; a compressed entry stands for several."""
    layers, widths, tokens = zip(*kinds, strict=True)
    held = sum(width * -(-batch * here // each) for n, width, here in kinds for _ in range(n))
    windows = sum(width * here for n, width, here in kinds for _ in range(n))

    assert (
        rank_cache.rank_kv_bytes(
            layers=layers,
            growing_tokens=tuple(batch * here for here in tokens),
            ratios=(each,) * len(layers),
            window_tokens=tokens,
            rows=widths,
        )
        == held + windows
    )
    assert memory.total_layers(layers=layers) == sum(layers)


def fullest(blocks: list[set[int]], window: int) -> int:
    """Tokens of the window, the last of the sequence, on the rank that holds most of them."""
    seq_len = sum(map(len, blocks))
    return max(sum(token >= seq_len - window for token in block) for block in blocks)


@given(cp_size=st.integers(1, 8), block=st.integers(1, 8), window=st.integers(1, 80))
def test_window_lies_on_the_last_ranks(cp_size: int, block: int, window: int) -> None:
    """Contiguous: the last block is the first to fill. Striped: dealt out like the rest."""
    seq_len = cp_size * block
    contiguous = [set(range(rank * block, (rank + 1) * block)) for rank in range(cp_size)]
    striped = [set(range(rank, seq_len, cp_size)) for rank in range(cp_size)]
    share = layout.shard_tokens(tokens=window, cp_size=cp_size)

    assert rank_cache.window_tokens(window=window, chunk_tokens=block) == fullest(
        contiguous, window
    )
    assert rank_cache.window_tokens(window=share, chunk_tokens=block) == fullest(striped, window)


@given(cp_size=st.integers(1, 8), half=st.integers(1, 6), window=st.integers(1, 100))
def test_window_lies_on_late_chunks_of_a_zigzag(cp_size: int, half: int, window: int) -> None:
    """Rank 0 has the last chunk; once the window is past the middle, rank P - 1 has most."""
    seq_len = 2 * cp_size * half
    chunks = [set(range(i * half, (i + 1) * half)) for i in range(2 * cp_size)]
    blocks = [chunks[rank] | chunks[-1 - rank] for rank in range(cp_size)]

    assert rank_cache.zigzag_window_tokens(
        window=window, block_tokens=2 * half, seq_len=seq_len
    ) == fullest(blocks, window)


@given(new=counts, context=counts, heads=counts)
def test_scores_are_a_number_for_each_head_query_and_key(
    new: int, context: int, heads: int
) -> None:
    """So twice the context is four times the scores."""

    def scores(scale: int) -> float:
        return cache.score_matrix_bytes(
            dp_size=1,
            batch_size=3,
            num_attention_heads=heads,
            new_tokens=scale * new,
            seq_len=scale * context,
            element_bytes=2,
        )

    assert scores(1) == 3 * heads * new * context * 2
    assert scores(2) == 4 * scores(1)


# Weights, gradients, moments


@given(shards=counts, parameters=counts, each=st.sampled_from([2, 4, 12]))
def test_shards_of_the_training_state_add_up(shards: int, parameters: int, each: int) -> None:
    shard = model_state.training_state_bytes(parameters=parameters, bytes_each=each, shards=shards)
    weights = model_state.weights_bytes(
        quantized=parameters,
        embedding=0,
        unquantized=0,
        quantized_bytes=each,
        embedding_bytes=2,
        unquantized_bytes=2,
        shards=shards,
    )

    assert shard * shards == close(parameters * each)
    assert weights == shard


@given(quantized=counts, words=counts, rest=counts, each=st.sampled_from([1, 2]))
def test_quantised_weights_keep_the_rest_in_sixteen_bits(
    quantized: int, words: int, rest: int, each: int
) -> None:
    """Embeddings are in a format of their own."""
    made = model_state.weights_bytes(
        quantized=quantized,
        embedding=words,
        unquantized=rest,
        quantized_bytes=model_state.quantized_bytes(element_bytes=1, scale_bytes=0.25),
        embedding_bytes=each,
        unquantized_bytes=2,
        shards=1,
    )

    assert made == 1.25 * quantized + each * words + 2 * rest


@given(
    tensor=counts,
    heads=st.integers(1, 16),
    head=counts,
    expert=counts,
    tp_size=st.sampled_from([1, 2, 4, 8]),
)
def test_ranks_hold_the_model_once_and_replicate_what_cannot_be_cut(
    tensor: int, heads: int, head: int, expert: int, tp_size: int
) -> None:
    """KV heads are dealt whole; the fullest rank's share is that of the heads it holds."""
    ep_size = 2
    held = max(len(range(rank, heads, tp_size)) for rank in range(tp_size))
    dense = model_state.dense_parameters(
        replicated=7,
        tensor=tensor * tp_size,
        heads=3 * tp_size,
        kv=(heads * head, heads),
        tp_size=2 * tp_size,
        attention_tp_size=tp_size,
        num_key_value_heads=(heads, heads),
    )
    experts = model_state.expert_parameters(
        expert=expert * tp_size * ep_size, tp_size=tp_size, ep_size=ep_size
    )

    assert dense == 7 + tensor / 2 + 3 + held * head + held
    assert experts == expert


@given(vocab=st.integers(1, 10**5), tp_size=counts, tokens=counts, each=st.sampled_from([4, 6, 10]))
def test_logits_are_a_number_for_each_token_and_word(
    vocab: int, tp_size: int, tokens: int, each: int
) -> None:
    """Tensor-parallel ranks hold all words between them, and less than one each to spare."""
    rank = working.logits_bytes(
        batch_size=1, tokens=tokens, vocab_size=vocab, tp_size=tp_size, bytes_each=each
    )

    assert rank % (tokens * each) == 0
    assert 0 <= rank * tp_size - tokens * vocab * each < tokens * each * tp_size


# Activations and buffers


def decoder(**given: int) -> dict[str, int]:
    shape = {"batch_size": 1, "hidden_size": 64, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    rest = {"v_head_dim": 8, "intermediate_size": 96, "mixer_width": 0, "element_bytes": 2}
    ranks = {"attention_tp_size": 1, "attention_dp_size": 1, "residual_shards": 1}
    return {**shape, **rest, "tp_size": 1, **ranks, **given}


def boundary(**given: int) -> float:
    shape = {"layers": 1, "batch_size": 1, "tokens": 8, "hidden_size": 64, "residual_shards": 1}
    return working.boundary_bytes(**{**shape, "element_bytes": 2, **given})


@given(layers=counts, batch=counts, tokens=counts, tp_size=st.sampled_from([1, 2, 4]))
def test_activations_are_proportional_to_the_tokens(
    layers: int, batch: int, tokens: int, tp_size: int
) -> None:
    """Of all sequences, and of all layers that keep them."""

    def kept(layers: int, batch: int, tokens: int) -> float:
        shape = decoder(tp_size=tp_size, batch_size=batch)
        return working.kept_activation_bytes(layers=layers, tokens=tokens, **shape)

    def at_work(batch: int, tokens: int) -> float:
        shape = decoder(tp_size=tp_size, batch_size=batch)
        return working.working_set_bytes(query_tokens=tokens, **shape)

    assert kept(layers, batch, tokens) == layers * batch * tokens * kept(1, 1, 1)
    assert at_work(batch, tokens) == batch * tokens * at_work(1, 1)


@given(tokens=counts, layers=counts, hidden_size=counts)
def test_full_recompute_keeps_less_than_none(tokens: int, layers: int, hidden_size: int) -> None:
    """One tensor a layer against all of them."""
    shape = {"layers": layers, "tokens": tokens, "batch_size": 3}
    kept = working.kept_activation_bytes(**decoder(hidden_size=hidden_size) | shape)

    assert boundary(hidden_size=hidden_size, **shape) == layers * 3 * tokens * hidden_size * 2
    assert 4 * boundary(hidden_size=hidden_size, **shape) < kept


@given(tokens=counts, shards=counts)
def test_sequence_parallel_ranks_share_the_residual_stream(tokens: int, shards: int) -> None:
    """Only it: heads and MLP are cut by tensor parallelism already."""
    alone, shared = decoder(), decoder(residual_shards=shards)
    spared = 1 - 1 / shards
    residual = tokens * 64 * 2

    assert boundary(tokens=tokens, residual_shards=shards) * shards == close(residual)
    assert working.kept_activation_bytes(
        layers=1, tokens=tokens, **alone
    ) - working.kept_activation_bytes(layers=1, tokens=tokens, **shared) == close(
        4 * residual * spared
    )
    assert working.working_set_bytes(query_tokens=tokens, **alone) - working.working_set_bytes(
        query_tokens=tokens, **shared
    ) == close(2 * residual * spared)


@given(heads=counts, kv_heads=counts, head_dim=counts, v_head_dim=counts, intermediate_size=counts)
def test_kept_activations_are_counted_tensor_by_tensor(
    heads: int, kv_heads: int, head_dim: int, v_head_dim: int, intermediate_size: int
) -> None:
    """One token of one layer: 16-bit tensors by name, and the fp32 log-sum-exp of each head."""
    tensors = {
        "norm input": 10, "attention input": 10, "second norm input": 10, "mlp input": 10,
        "q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * v_head_dim,
        "output": heads * v_head_dim,
        "gate": intermediate_size, "up": intermediate_size, "activation": intermediate_size,
        "product": intermediate_size,
    }  # fmt: skip

    assert (
        working.kept_activation_bytes(
            layers=1,
            tokens=1,
            **decoder(
                hidden_size=10,
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
                intermediate_size=intermediate_size,
            ),
        )
        == 2 * sum(tensors.values()) + 4 * heads
    )


@given(intermediate_size=st.integers(1, 400), heads=st.integers(1, 16))
def test_working_set_is_that_of_the_wider_half_of_the_layer(
    intermediate_size: int, heads: int
) -> None:
    """Attention and MLP are not alive at once."""
    attention = heads * 16 + 2 * 16 + 2 * 8 + heads * 8
    mlp = 3 * intermediate_size

    assert working.working_set_bytes(
        query_tokens=1, **decoder(intermediate_size=intermediate_size, num_heads=heads)
    ) == 2 * (2 * 64 + max(attention, mlp))


@given(ring_size=st.integers(1, 8), held=st.integers(0, 3), hop=counts, tokens=counts)
def test_ring_holds_blocks_and_a_running_output(
    ring_size: int, held: int, hop: int, tokens: int
) -> None:
    """Output, maximum and denominator in fp32; no more visiting blocks than other ranks."""
    state = buffers.running_state_bytes(
        batch_size=1,
        query_tokens=tokens,
        num_heads=4,
        elements=16,
        accumulator_bytes=4,
        block_bytes=0,
        statistic_bytes=4,
    )
    made = buffers.ring_buffer_bytes(
        ring_size=ring_size, kv_buffers=held, hop_bytes=hop, state_bytes=state
    )
    whole = buffers.whole_ring_buffer_bytes(ring_size=ring_size, hop_bytes=hop, state_bytes=state)

    assert whole == (ring_size * hop + state if ring_size > 1 else 0)
    blocks = min(held, ring_size - 1)
    assert made == (blocks * hop + tokens * 4 * (16 + 1 + 1) * 4 if ring_size > 1 else 0)


@given(ring_size=st.integers(1, 8), last=st.integers(0, 1), hop=counts, tokens=counts)
def test_backward_ring_holds_blocks_with_their_gradients_and_the_queries_gradient(
    ring_size: int, last: int, hop: int, tokens: int
) -> None:
    """A query's gradient is as wide as the query; the last block received is one more at hand."""
    queries = buffers.running_state_bytes(
        batch_size=1,
        query_tokens=tokens,
        num_heads=4,
        elements=24,
        accumulator_bytes=4,
        block_bytes=0,
        statistic_bytes=4,
    )
    held = buffers.ring_backward_buffer_bytes(
        ring_size=ring_size,
        kv_buffers=2,
        last_blocks=last,
        hop_bytes=hop,
        gradient_buffers=2,
        gradient_bytes=3 * hop,
        state_bytes=queries,
    )
    blocks = min(2, ring_size - 1 + last)

    assert queries == tokens * 4 * (24 + 1 + 1) * 4
    assert held == (blocks * hop + 2 * 3 * hop + queries if ring_size > 1 else 0)


@given(parts=st.lists(sizes, min_size=1, max_size=8), new=sizes)
def test_bill_with_one_part_swapped_is_the_bill_of_the_other_parts(
    parts: list[int], new: int
) -> None:
    total = memory.total_bytes(parts=tuple(parts))

    assert memory.swapped_bytes(total=total, old=parts[0], new=new) == sum(parts[1:]) + new


# Answers


@given(total=sizes, capacity=sizes)
def test_what_is_no_more_than_the_capacity_fits(total: int, capacity: int) -> None:
    assert fit.fits(total=total, capacity=capacity) is (total <= capacity)


@given(answer=counts, here=st.integers(-9, 9), next_=st.integers(-9, 9))
def test_answers_without_proof_are_none(answer: int, here: int, next_: int) -> None:
    """It fits, and one step further it does not; what is left is shown of both."""
    proven = answer if next_ < 0 <= here else 0

    assert fit.max_seq_len(seq_len=answer, headroom_here=here, headroom_beyond=next_) == proven
    assert fit.min_cp_size(cp_size=answer, headroom_here=here, headroom_below=next_) == proven


@given(
    capacity=st.integers(0, 10**6),
    other=st.integers(0, 10**6),
    cached=st.integers(1, 10**6),
    batch=counts,
    seq_len=counts,
)
def test_tokens_that_fit_fill_the_memory_to_the_last(
    capacity: int, other: int, cached: int, batch: int, seq_len: int
) -> None:
    """At the bytes a token takes now, they take no more than is free, and one more would."""
    tokens = fit.kv_tokens(
        capacity=capacity,
        total=other + cached,
        rank_kv=cached,
        dp_size=1,
        batch_size=batch,
        seq_len=seq_len,
    )
    free = max(capacity - other, 0)

    assert tokens >= 0
    assert tokens * cached <= free * batch * seq_len < (tokens + 1) * cached


def test_model_without_a_cache_has_no_tokens_to_count() -> None:
    """Nothing to divide by."""
    assert fit.kv_tokens(capacity=9, total=4, rank_kv=0, dp_size=1, batch_size=1, seq_len=8) == 0


@given(whole=st.integers(0, 99), replicas=counts, each=counts, data=st.data())
def test_sequences_are_whole_on_every_replica_and_one_more_in_part(
    whole: int, replicas: int, each: int, data: st.DataObject
) -> None:
    left = data.draw(st.integers(0, each - 1)) if each > 1 else 0
    proof = {"headroom_here": left, "headroom_beyond": left - each}
    sequences = fit.max_concurrency(sequences=whole, replicas=replicas, **proof)

    assert sequences == close(replicas * whole + left / each)
    assert fit.max_sequences(sequences=whole, replicas=replicas, **proof) == replicas * whole


# Published


def test_checkpoint_boundary_of_verl() -> None:
    """Verl #7476: 32768 tokens of 5120, 320 MiB a boundary; 40 MiB each on eight ranks."""

    shard = layout.shard_tokens(tokens=32768, cp_size=8)

    assert boundary(tokens=32768, hidden_size=5120) == 320 * MIB
    assert boundary(tokens=int(shard), hidden_size=5120) == 40 * MIB


def test_checkpoint_boundaries_of_llama_factory() -> None:
    """LlamaFactory #10475: 60 layers, 256000 tokens of 5376, 165.15 GB."""
    boundaries = boundary(layers=60, tokens=256000, hidden_size=5376)

    assert round(boundaries / 1e9, 2) == 165.15
