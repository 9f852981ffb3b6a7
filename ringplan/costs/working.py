"""Activations, scores and logits on one rank."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum, minimum


@formula(
    equation="B n e max[(2 D/s + max[(h + g)(d_k + d_v), x/T_a]) / D_a, 2 D/s + 3 I/T]",
    unit="B",
    scope="rank, layer",
    source="tensors alive at the widest point of a layer: residual, its norm, and either Q, K, V "
    "and the output of attention, or what a state layer mixes, or gate, up and product of the MLP. "
    "Data-parallel attention deals its tokens, the MLP has all of them",
)
def working_set_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    hidden_size: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    intermediate_size: Number,
    mixer_width: Number,
    tp_size: Number,
    attention_tp_size: Number,
    attention_dp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of activations while one layer runs forward.

    >>> working_set_bytes(
    ...     batch_size=1, query_tokens=8, hidden_size=4096, num_heads=32, num_kv_heads=32,
    ...     head_dim=128, v_head_dim=128, intermediate_size=11008, mixer_width=0, tp_size=1,
    ...     attention_tp_size=1, attention_dp_size=1, residual_shards=1, element_bytes=2
    ... )
    659456
    """
    residual = divide(2 * hidden_size, residual_shards)
    heads = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    mixed = maximum(heads, divide(mixer_width, attention_tp_size))
    attention = divide(residual + mixed, attention_dp_size)
    mlp = residual + divide(3 * intermediate_size, tp_size)
    return batch_size * query_tokens * element_bytes * maximum(attention, mlp)


@formula(
    equation="L B n D/s e",
    unit="B",
    scope="rank",
    source="full recompute keeps the input of each layer",
)
def boundary_bytes(
    *,
    layers: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the layer inputs that full recompute keeps.

    >>> boundary_bytes(
    ...     layers=60, batch_size=1, tokens=256000, hidden_size=5376, residual_shards=1,
    ...     element_bytes=2
    ... )
    165150720000
    """
    return divide(layers * batch_size * tokens * hidden_size * element_bytes, residual_shards)


@formula(
    equation="L B n (e (4 D/s + ((h + g)(d_k + d_v) + x/T_a)/D_a + 4 I/T) + 4 h/D_a)",
    unit="B",
    scope="rank",
    source="inputs of both norms and both blocks; Q, K, V, output and its log-sum-exp; gate, up, "
    "activation and product of the MLP; what a state layer mixes. FlashAttention stores no scores",
)
def kept_activation_bytes(
    *,
    layers: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    intermediate_size: Number,
    mixer_width: Number,
    tp_size: Number,
    attention_tp_size: Number,
    attention_dp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the activations that training keeps of some layers without recompute.

    >>> kept_activation_bytes(
    ...     layers=1, batch_size=1, tokens=1, hidden_size=8, num_heads=2, num_kv_heads=1,
    ...     head_dim=4, v_head_dim=4, intermediate_size=16, mixer_width=0, tp_size=1,
    ...     attention_tp_size=1, attention_dp_size=1, residual_shards=1, element_bytes=2
    ... )
    248
    """
    heads = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    mixed = divide(heads + divide(mixer_width, attention_tp_size), attention_dp_size)
    residual = divide(4 * hidden_size, residual_shards)
    per_token = residual + mixed + divide(4 * intermediate_size, tp_size)
    sums = divide(4 * num_heads, attention_dp_size)
    return layers * batch_size * tokens * (per_token * element_bytes + sums)


@formula(
    equation="B n ceil(V/T) x bytes",
    unit="B",
    scope="rank, last stage",
    source="inference: fp32 logits of the last token; training, unfused: 16-bit logits, fp32 copy "
    "and fp32 gradient, 10 bytes",
)
def logits_bytes(
    *, batch_size: Number, tokens: Number, vocab_size: Number, tp_size: Number, bytes_each: Number
) -> Number:
    """
    Bytes of the logits.

    >>> logits_bytes(batch_size=1, tokens=1, vocab_size=128256, tp_size=8, bytes_each=4)
    64128
    """
    return batch_size * tokens * ceil_div(vocab_size, tp_size) * bytes_each


@formula(
    equation="min(B n, ceil(chunk/P))",
    unit="token",
    scope="rank",
    source="chunked prefill: the tokens of all sequences that are computed at once",
)
def chunked_tokens(
    *, batch_size: Number, tokens: Number, chunk_tokens: Number, cp_size: Number
) -> Number:
    """
    Tokens of a prefill that one rank computes at once.

    >>> chunked_tokens(batch_size=4, tokens=131072, chunk_tokens=8192, cp_size=2)
    4096
    """
    return minimum(batch_size * tokens, ceil_div(chunk_tokens, cp_size))


@formula(
    equation="B h q n s",
    unit="B",
    scope="rank, layer",
    source="without FlashAttention: fp32 scores of the tokens that are computed at once",
)
def scores_bytes(
    *,
    batch_size: Number,
    num_heads: Number,
    query_tokens: Number,
    block_tokens: Number,
    accumulator_bytes: Number,
) -> Number:
    """
    Bytes of the stored scores of one layer.

    >>> scores_bytes(
    ...     batch_size=1, num_heads=32, query_tokens=512, block_tokens=131072, accumulator_bytes=4
    ... )
    8589934592
    """
    return batch_size * num_heads * query_tokens * block_tokens * accumulator_bytes


@formula(
    equation="min(m, stages - stage)",
    unit="1",
    scope="rank",
    source="1F1B: a stage has begun as many micro-batches as there are stages from it to the last",
)
def micro_batches_in_flight(*, num_micro_batches: Number, pp_size: Number, stage: Number) -> Number:
    """
    Micro-batches whose activations a pipeline stage holds.

    >>> micro_batches_in_flight(num_micro_batches=8, pp_size=4, stage=1)
    3
    """
    return minimum(num_micro_batches, pp_size - stage)


@formula(
    equation="m kept", unit="B", scope="rank", source="each micro-batch in flight keeps its own"
)
def in_flight(*, kept: Number, passes: Number) -> Number:
    """
    Bytes of the activations of all micro-batches in flight.

    >>> in_flight(kept=100, passes=4)
    400
    """
    return kept * passes
