"""Llama's layers with routed experts for an MLP: Mixtral and Qwen 3 MoE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.llama import qwen3_attention, qwen_windows
from ringplan.io.hf.parts import (
    Decoder,
    Layer,
    equal_share,
    read_heads,
    read_trunk,
    read_windows,
)
from ringplan.io.hf.tensors import ends, gated_experts, gated_mlp, layer_norms, projections, router

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced


def read_mixtral(fields: Fields) -> Decoder:
    """Read Mixtral: experts in every layer."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    width = fields.integer("intermediate_size")
    experts, per_token = read_experts(fields, "num_local_experts")
    tensors = (
        *projections(hidden, heads),
        router("block_sparse_moe.gate", experts.value, hidden),
        *gated_experts(
            "block_sparse_moe.experts", experts.value, hidden, width.value, ("w1", "w3", "w2")
        ),
        *layer_norms(hidden),
    )
    window = fields.optional("sliding_window")
    layer = Layer(heads, active_width(fields, per_token, width), tensors, window, per_token)
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, (layer,) * trunk.num_hidden_layers.value, ends(trunk, tied=tied))


def read_qwen3_moe(fields: Fields) -> Decoder:
    """Read Qwen 3 MoE: experts in every layer, or in some with a dense MLP in the others."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    sparse = _sparse_layers(fields, trunk.num_hidden_layers.value)
    windows = qwen_windows(fields, trunk.num_hidden_layers.value)
    shared = qwen3_attention(fields, trunk, heads) + layer_norms(trunk.hidden_size.value)
    with_experts = _expert_layer(fields, Layer(heads, trunk.hidden_size, shared))
    dense = with_experts if all(sparse) else _dense_layer(fields, with_experts._replace(tensors=shared))
    fields.keys.add("intermediate_size")
    layers = tuple(
        (with_experts if routed else dense)._replace(window=window)
        for routed, window in zip(sparse, windows, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))
