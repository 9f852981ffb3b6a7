"""Parameters on one rank, and what training keeps of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum

if TYPE_CHECKING:
    from collections.abc import Sequence


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
