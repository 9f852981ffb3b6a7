"""What else lies on a rank: weights, activations, logits, training state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(
    equation="B n e (2 D/s + max[(h + g)(d_k + d_v), 3 I/T, x/T])",
    unit="B",
    scope="rank, layer",
    source="tensors alive at the widest point of a layer: residual, its norm, and either Q, K, V "
    "and the output of attention, or gate, up and product of the MLP, or what a state layer mixes",
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
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of activations while one layer runs forward.

    >>> working_set_bytes(
    ...     batch_size=1, query_tokens=1, hidden_size=4096, num_heads=32, num_kv_heads=32,
    ...     head_dim=128, v_head_dim=128, intermediate_size=11008, mixer_width=0, tp_size=1,
    ...     residual_shards=1, element_bytes=2
    ... )
    82432
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    mlp = divide(3 * intermediate_size, tp_size)
    inside = maximum(maximum(attention, mlp), divide(mixer_width, tp_size))
    widest = divide(2 * hidden_size, residual_shards) + inside
    return batch_size * query_tokens * element_bytes * widest


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
    equation="L B n (e (4 D/s + (h + g)(d_k + d_v) + (4 I + x)/T) + 4 h)",
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
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the activations that training keeps of some layers without recompute.

    >>> kept_activation_bytes(
    ...     layers=1, batch_size=1, tokens=1, hidden_size=8, num_heads=2, num_kv_heads=1,
    ...     head_dim=4, v_head_dim=4, intermediate_size=16, mixer_width=0, tp_size=1,
    ...     residual_shards=1, element_bytes=2
    ... )
    248
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    residual = divide(4 * hidden_size, residual_shards)
    per_token = residual + attention + divide(4 * intermediate_size + mixer_width, tp_size)
    return layers * batch_size * tokens * (per_token * element_bytes + 4 * num_heads)


@formula(
    equation="B n V/T x bytes",
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
    equation="replicated + tensor/T + heads/T_a + sum over kinds of kv ceil(G/T_a)/G",
    unit="1",
    scope="rank",
    source="the model's tensor list: tensor-parallel slices, of K and V at least one head; "
    "attention is cut over the ranks that share a sequence's heads",
)
def dense_parameters(
    *,
    replicated: Number,
    tensor: Number,
    heads: Number,
    kv: Sequence[Number],
    tp_size: Number,
    attention_tp_size: Number,
    num_key_value_heads: Sequence[Number],
) -> Number:
    """
    Parameters on one rank of a stage but for routed experts, before any ZeRO sharding.

    >>> dense_parameters(
    ...     replicated=10, tensor=40, heads=40, kv=(16,), tp_size=8, attention_tp_size=8,
    ...     num_key_value_heads=(4,)
    ... )
    24
    """
    slices = sum(
        divide(parameters * ceil_div(groups, attention_tp_size), maximum(groups, 1))
        for parameters, groups in zip(kv, num_key_value_heads, strict=True)
    )
    return replicated + divide(tensor, tp_size) + divide(heads, attention_tp_size) + slices


@formula(
    equation="expert / (T E)",
    unit="1",
    scope="rank",
    source="expert-parallel ranks hold whole experts, tensor-parallel ranks slices of them",
)
def expert_parameters(*, expert: Number, tp_size: Number, ep_size: Number) -> Number:
    """
    Parameters of routed experts on one rank of a stage, before any ZeRO sharding.

    >>> expert_parameters(expert=160, tp_size=8, ep_size=2)
    10
    """
    return divide(expert, tp_size * ep_size)


@formula(
    equation="e + s",
    unit="B",
    scope="job",
    source="the element and its share of the scales and zero points of its block",
)
def quantized_bytes(*, element_bytes: Number, scale_bytes: Number) -> Number:
    """
    Bytes of a quantised parameter.

    >>> quantized_bytes(element_bytes=0.5, scale_bytes=2.5 / 128)
    0.51953125
    """
    return element_bytes + scale_bytes


@formula(
    equation="(q e_q + w e_w + a e_16) / N_zero",
    unit="B",
    scope="rank",
    source="quantised weights, embeddings and head, the rest in 16 bits; ZeRO stage 3 shards them "
    "over dp x cp, experts over dp x cp / ep",
)
def weights_bytes(
    *,
    quantized: Number,
    embedding: Number,
    unquantized: Number,
    quantized_bytes: Number,
    embedding_bytes: Number,
    unquantized_bytes: Number,
    shards: Number,
) -> Number:
    """
    Bytes of the weights of one class, dense or expert, on one rank.

    >>> weights_bytes(
    ...     quantized=100, embedding=8, unquantized=2, quantized_bytes=1, embedding_bytes=2,
    ...     unquantized_bytes=2, shards=1
    ... )
    120
    """
    rest = embedding * embedding_bytes + unquantized * unquantized_bytes
    return divide(quantized * quantized_bytes + rest, shards)


@formula(equation="q + w + a", unit="1", scope="rank", source="definition")
def total_parameters(*, quantized: Number, embedding: Number, unquantized: Number) -> Number:
    """
    Parameters of all formats.

    >>> total_parameters(quantized=1, embedding=2, unquantized=3)
    6
    """
    return quantized + embedding + unquantized


@formula(
    equation="parameters x bytes / N_zero",
    unit="B",
    scope="rank",
    source="ZeRO (Rajbhandari et al. 2020): optimizer from stage 1, gradients from 2",
)
def training_state_bytes(*, parameters: Number, bytes_each: Number, shards: Number) -> Number:
    """
    Bytes of gradients, or of master weights and moments, on one rank.

    >>> training_state_bytes(parameters=1000, bytes_each=12, shards=8)
    1500
    """
    return divide(parameters * bytes_each, shards)


@formula(equation="sum of the parts", unit="B", scope="rank", source="counted")
def total_bytes(*, parts: Sequence[Number]) -> Number:
    """
    Bytes of everything on one rank.

    >>> total_bytes(parts=(1, 2, 3))
    6
    """
    return sum(parts)


@formula(equation="sum", unit="layer", scope="rank", source="definition")
def total_layers(*, layers: Sequence[Number]) -> Number:
    """
    Layers on a rank, of all kinds.

    >>> total_layers(layers=(3, 58))
    61
    """
    return sum(layers)


@formula(equation="shard x N", unit="B", scope="group", source="definition")
def whole_bytes(*, shard_bytes: Number, shards: Number) -> Number:
    """
    Bytes of something of which a rank holds one of N shards.

    >>> whole_bytes(shard_bytes=10, shards=8)
    80
    """
    return shard_bytes * shards


@formula(
    equation="total - old + new", unit="B", scope="rank", source="the same rank with other buffers"
)
def swapped_bytes(*, total: Number, old: Number, new: Number) -> Number:
    """
    Bytes on the fullest rank with another layout's buffers.

    >>> swapped_bytes(total=100, old=10, new=30)
    120
    """
    return total - old + new


@formula(equation="sum of the parts", unit="B", scope="rank", source="counted")
def rank_total(
    *,
    weights_bytes: Number,
    kv_bytes: Number,
    state_bytes: Number,
    activation_bytes: Number,
    score_bytes: Number,
    logits_bytes: Number,
    ring_buffer_bytes: Number,
    gathered_bytes: Number,
    gradient_bytes: Number,
    optimizer_bytes: Number,
    overhead_bytes: Number,
) -> Number:
    """
    Bytes of everything on one rank.

    >>> rank_total(
    ...     weights_bytes=1, kv_bytes=2, state_bytes=3, activation_bytes=4, score_bytes=5,
    ...     logits_bytes=6, ring_buffer_bytes=7, gathered_bytes=8, gradient_bytes=9,
    ...     optimizer_bytes=10, overhead_bytes=11
    ... )
    66
    """
    caches = kv_bytes + state_bytes
    working = activation_bytes + score_bytes + logits_bytes + ring_buffer_bytes
    training = gathered_bytes + gradient_bytes + optimizer_bytes
    return weights_bytes + caches + working + training + overhead_bytes


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
    equation="runtime + communicators + graphs",
    unit="B",
    scope="rank",
    source="an engine's log names them apart",
)
def runtime_bytes(*, runtime: Number, communicators: Number, graphs: Number) -> Number:
    """
    Bytes of everything that is no tensor of the model's.

    >>> runtime_bytes(runtime=5, communicators=2, graphs=1)
    8
    """
    return runtime + communicators + graphs


@formula(
    equation="weights copies + gradient",
    unit="B",
    scope="rank",
    source="ZeRO stage 3 gathers a layer while the one before runs; stages 2 and 3 hold a layer's "
    "whole gradient before it is scattered",
)
def gathered_layer_bytes(
    *, layer_weights_bytes: Number, copies: Number, layer_gradient_bytes: Number
) -> Number:
    """
    Bytes of layers that are whole for a while although their state is sharded.

    >>> gathered_layer_bytes(layer_weights_bytes=10, copies=2, layer_gradient_bytes=20)
    40
    """
    return layer_weights_bytes * copies + layer_gradient_bytes


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
