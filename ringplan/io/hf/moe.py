"""Llama's layers with routed experts for an MLP: Mixtral, Qwen's mixtures and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import (
    active_width,
    mixture,
    read_dense_mlp,
    read_experts,
    read_routed_mlp,
    shared_expert,
)
from ringplan.io.hf.llama import qwen3_attention, qwen_windows
from ringplan.io.hf.parts import Mlp, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import (
    gated_experts,
    layer_norms,
    projections,
    router,
    wide_query_key_norms,
)

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder


def read_mixtral(fields: Fields) -> Decoder:
    """Read Mixtral: experts in every layer, as wide as intermediate_size."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    tensors = projections(hidden, heads) + layer_norms(hidden)
    mlp = _mixtral_mlp(fields, hidden)
    windows = (fields.optional("sliding_window"),) * trunk.num_hidden_layers.value
    return stack(fields, trunk, heads, tensors, mlp, windows=windows)


def _mixtral_mlp(fields: Fields, hidden_size: int) -> Mlp:
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    name, names = "block_sparse_moe", ("w1", "w3", "w2")
    tensors = (
        router(f"{name}.gate", experts.value, hidden_size),
        *gated_experts(f"{name}.experts", experts.value, hidden_size, width.value, names),
    )
    return Mlp(active_width(fields, visited, width), tensors, visited)


def read_olmoe(fields: Fields) -> Decoder:
    """Read OLMoE: norms over all query heads and all key heads."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *wide_query_key_norms(heads),
        *layer_norms(hidden),
    )
    experts, visited = read_experts(fields, "num_experts", "num_local_experts")
    width = fields.integer("intermediate_size")
    mlp = mixture(fields, hidden, experts, visited, width)
    return stack(fields, trunk, heads, tensors, mlp)


def read_minimax_m2(fields: Fields) -> Decoder:
    """Read MiniMax M2: norms over all heads, a router with a bias that balances its experts."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    hidden = trunk.hidden_size.value
    tensors = (
        *projections(hidden, heads),
        *wide_query_key_norms(heads),
        *layer_norms(hidden),
    )
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    mlp = mixture(fields, hidden, experts, visited, width, correction=True)
    return stack(fields, trunk, heads, tensors, mlp)


def read_qwen2_moe(fields: Fields) -> Decoder:
    """Read Qwen 2 MoE: Qwen 2 with routed experts and a shared one that has a gate."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    bias = fields.flag("qkv_bias", default=True)
    tensors = projections(hidden, heads, qkv_bias=bias) + layer_norms(hidden)
    mlps = some_routed(fields, hidden, count, read_gated_shared_mlp(fields, hidden))
    windows = qwen_windows(fields, count)
    return stack(fields, trunk, heads, tensors, mlps, windows=windows)


def read_qwen3_moe(fields: Fields) -> Decoder:
    """Read Qwen 3 MoE: experts in every layer, or in some and a dense MLP in the others."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    count, hidden = trunk.num_hidden_layers.value, trunk.hidden_size.value
    tensors = qwen3_attention(fields, trunk, heads) + layer_norms(hidden)
    windows = qwen_windows(fields, count)
    experts = read_routed_mlp(fields, hidden, "num_experts", "num_local_experts")
    mlps = some_routed(fields, hidden, count, experts)
    return stack(fields, trunk, heads, tensors, mlps, windows=windows)


def read_gated_shared_mlp(fields: Fields, hidden_size: int) -> Mlp:
    """Read routed experts and a shared one that each token opens by a gate."""
    routed = read_routed_mlp(fields, hidden_size, "num_experts", "num_local_experts")
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("shared_expert_intermediate_size")
    visited = fields.integer("num_experts_per_tok")
    gate = router("mlp.shared_expert_gate", 1, hidden_size)
    tensors = shared_expert("mlp.shared_expert", hidden_size, shared.value)
    active = active_width(fields, visited, width, shared)
    return Mlp(active, (*routed.tensors, gate, *tensors), visited)


def some_routed(fields: Fields, hidden_size: int, layers: int, experts: Mlp) -> tuple[Mlp, ...]:
    """Give experts to every n-th layer that is not listed as dense, a plain MLP to the others."""
    step = fields.optional("decoder_sparse_step")
    listed = fields.words("mlp_only_layers") or ()
    every = step.value if step else 1
    routed = [(index + 1) % every == 0 and str(index) not in listed for index in range(layers)]
    fields.optional("intermediate_size")
    plain = experts if all(routed) else read_dense_mlp(fields, hidden_size)
    return tuple(experts if each else plain for each in routed)
