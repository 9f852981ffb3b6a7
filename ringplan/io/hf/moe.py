"""Llama's layers with routed experts for an MLP: Mixtral and Qwen 3 MoE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import active_width, read_dense_mlp, read_experts, read_routed_mlp
from ringplan.io.hf.llama import qwen3_attention, qwen_windows
from ringplan.io.hf.parts import Decoder, Layer, Mlp, equal_share, read_heads, read_trunk
from ringplan.io.hf.tensors import ends, gated_experts, layer_norms, projections, router

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields


def read_mixtral(fields: Fields) -> Decoder:
    """Read Mixtral: experts in every layer, as wide as intermediate_size."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    tensors = projections(hidden, heads) + layer_norms(hidden)
    layer = Layer(heads, tensors, _mixtral_mlp(fields, hidden), fields.optional("sliding_window"))
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, (layer,) * trunk.num_hidden_layers.value, ends(trunk, tied=tied))


def _mixtral_mlp(fields: Fields, hidden_size: int) -> Mlp:
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    name, names = "block_sparse_moe", ("w1", "w3", "w2")
    tensors = (
        router(f"{name}.gate", experts.value, hidden_size),
        *gated_experts(f"{name}.experts", experts.value, hidden_size, width.value, names),
    )
    return Mlp(active_width(fields, visited, width), tensors, visited)


def read_qwen3_moe(fields: Fields) -> Decoder:
    """Read Qwen 3 MoE: experts in every layer, or in some and a dense MLP in the others."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    count, hidden = trunk.num_hidden_layers.value, trunk.hidden_size.value
    tensors = qwen3_attention(fields, trunk, heads) + layer_norms(hidden)
    windows = qwen_windows(fields, count)
    routed = _routed_layers(fields, count)
    experts = read_routed_mlp(fields, hidden, "num_experts", "num_local_experts")
    fields.optional("intermediate_size")
    dense = experts if all(routed) else read_dense_mlp(fields, hidden)
    layers = tuple(
        Layer(heads, tensors, experts if has_experts else dense, window)
        for has_experts, window in zip(routed, windows, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _routed_layers(fields: Fields, layers: int) -> list[bool]:
    """Tell which layers have experts: every n-th, but for those that are listed."""
    step = fields.optional("decoder_sparse_step")
    dense = fields.words("mlp_only_layers") or ()
    every = step.value if step else 1
    return [(index + 1) % every == 0 and str(index) not in dense for index in range(layers)]
