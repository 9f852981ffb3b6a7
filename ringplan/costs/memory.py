"""What else lies on a rank: weights, activations, logits, training state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum

if TYPE_CHECKING:
    from collections.abc import Sequence


@formula(
    equation="B n e (2 D/s + max[(h + g)(d_k + d_v), 3 I/T])",
    unit="B",
    scope="rank, layer",
    source="tensors alive at the widest point of a layer: residual, its norm, and either Q, K, V "
    "and the output of attention, or gate, up and product of the MLP",
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
    tp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of activations while one layer runs forward.

    >>> working_set_bytes(
    ...     batch_size=1, query_tokens=1, hidden_size=4096, num_heads=32, num_kv_heads=32,
    ...     head_dim=128, v_head_dim=128, intermediate_size=11008, tp_size=1, residual_shards=1,
    ...     element_bytes=2
    ... )
    82432
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    mlp = divide(3 * intermediate_size, tp_size)
    widest = divide(2 * hidden_size, residual_shards) + maximum(attention, mlp)
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
    equation="L B n (e (4 D/s + (h + g)(d_k + d_v) + 4 I/T) + 4 h)",
    unit="B",
    scope="rank",
    source="inputs of both norms and both blocks; Q, K, V, output and its log-sum-exp; gate, up, "
    "activation and product of the MLP. FlashAttention stores no scores",
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
    tp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the activations that training keeps of some layers without recompute.

    >>> kept_activation_bytes(
    ...     layers=1, batch_size=1, tokens=1, hidden_size=8, num_heads=2, num_kv_heads=1,
    ...     head_dim=4, v_head_dim=4, intermediate_size=16, tp_size=1, residual_shards=1,
    ...     element_bytes=2
    ... )
    248
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    residual = divide(4 * hidden_size, residual_shards)
    per_token = residual + attention + divide(4 * intermediate_size, tp_size)
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
    equation="replicated + tensor/T + sum over kinds of kv ceil(G/T)/G",
    unit="1",
    scope="rank",
    source="the model's tensor list: tensor-parallel slices, of K and V at least one head",
)
def dense_parameters(
    *,
    replicated: Number,
    tensor: Number,
    kv: Sequence[Number],
    tp_size: Number,
    num_key_value_heads: Sequence[Number],
) -> Number:
    """
    Parameters on one rank of a stage but for routed experts, before any ZeRO sharding.

    >>> dense_parameters(
    ...     replicated=10, tensor=80, kv=(16,), tp_size=8, num_key_value_heads=(4,)
    ... )
    24
    """
    slices = sum(
        divide(parameters * ceil_div(heads, tp_size), heads)
        for parameters, heads in zip(kv, num_key_value_heads, strict=True)
    )
    return replicated + divide(tensor, tp_size) + slices


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
    equation="(q e_q + a e_16) / N_zero",
    unit="B",
    scope="rank",
    source="quantised weights, the rest in 16 bits; ZeRO stage 3 shards them over dp x cp, experts "
    "over dp x cp / ep",
)
def weights_bytes(
    *,
    quantized: Number,
    unquantized: Number,
    quantized_bytes: Number,
    unquantized_bytes: Number,
    shards: Number,
) -> Number:
    """
    Bytes of the weights of one class, dense or expert, on one rank.

    >>> weights_bytes(
    ...     quantized=100, unquantized=10, quantized_bytes=1, unquantized_bytes=2, shards=1
    ... )
    120
    """
    return divide(quantized * quantized_bytes + unquantized * unquantized_bytes, shards)


@formula(equation="q + a", unit="1", scope="rank", source="definition")
def total_parameters(*, quantized: Number, unquantized: Number) -> Number:
    """
    Parameters of both formats.

    >>> total_parameters(quantized=1, unquantized=2)
    3
    """
    return quantized + unquantized


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
    activation_bytes: Number,
    logits_bytes: Number,
    ring_buffer_bytes: Number,
    gradient_bytes: Number,
    optimizer_bytes: Number,
    overhead_bytes: Number,
) -> Number:
    """
    Bytes of everything on one rank.

    >>> rank_total(
    ...     weights_bytes=1, kv_bytes=2, activation_bytes=3, logits_bytes=4, ring_buffer_bytes=5,
    ...     gradient_bytes=6, optimizer_bytes=7, overhead_bytes=8
    ... )
    36
    """
    model = weights_bytes + kv_bytes + activation_bytes + logits_bytes + ring_buffer_bytes
    return model + gradient_bytes + optimizer_bytes + overhead_bytes


@formula(
    equation="M = limit x M_driver", unit="B", scope="rank", source="what an engine may use of it"
)
def usable_bytes(*, capacity: Number, utilization: Number) -> Number:
    """
    Bytes of the device's memory that may be used.

    >>> usable_bytes(capacity=80, utilization=0.5)
    40.0
    """
    return capacity * utilization
