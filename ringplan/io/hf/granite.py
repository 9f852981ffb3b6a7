"""Granite's mixtures: fused projections of experts, a shared MLP, and layers of Mamba 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.experts import active_width, mixture, read_experts, shared_expert
from ringplan.io.hf.mamba import mamba_state, mamba_tensors, read_bamba_mamba
from ringplan.io.hf.parts import Decoder, Layer, Mlp, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads, read_layer_types
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import ends, layer_norms, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Heads, Trunk
    from ringplan.io.hf.tensors import Tensors

_MAMBA: Final = ("mamba", "linear_attention")


def read_granitemoe(fields: Fields) -> Decoder:
    """Read Granite MoE, and the kind with a shared MLP."""
    trunk = read_trunk(fields)
    heads, tensors = _attention(fields, trunk)
    return stack(fields, trunk, heads, tensors, _mlp(fields, trunk.hidden_size.value))


def read_granitemoehybrid(fields: Fields) -> Decoder:
    """Read Granite 4: Mamba 2 where layer_types say so, a shared MLP, and experts if any."""
    trunk = read_trunk(fields)
    if not fields.has("layer_types"):
        fields.vital("layer_types")
    mlp = _mlp(fields, trunk.hidden_size.value)
    known = ("attention", "full_attention", *_MAMBA)
    types = read_layer_types(fields, trunk.num_hidden_layers.value, known, lambda _: "attention")
    full = Layer(*_attention(fields, trunk), mlp)
    state = _mamba_layer(fields, trunk, mlp) if {*types} & {*_MAMBA} else full
    layers = tuple(state if kind in _MAMBA else full for kind in types)
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _attention(fields: Fields, trunk: Trunk) -> tuple[Heads, Tensors]:
    hidden = trunk.hidden_size.value
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    weights = projections(hidden, heads, qkv_bias=bias, out_bias=bias)
    return heads, weights + layer_norms(hidden)


def _mamba_layer(fields: Fields, trunk: Trunk, mlp: Mlp) -> Layer:
    hidden, expand = trunk.hidden_size, fields.integer("mamba_expand")
    inner = fields.derived(
        expand.value * hidden.value, "mamba_expand * hidden_size", expand, hidden
    )
    mamba = read_bamba_mamba(fields, inner)
    tensors = mamba_tensors(
        hidden.value,
        mamba,
        name="mamba",
        bias=fields.flag("mamba_proj_bias", default=False),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
    )
    return Layer(None, tensors + layer_norms(hidden.value), mlp, state=mamba_state(fields, mamba))


def _mlp(fields: Fields, hidden_size: int) -> Mlp:
    """Read the shared MLP, the experts, or both."""
    shared = fields.optional("shared_intermediate_size", least=0)
    tensors = shared_expert("shared_mlp", hidden_size, shared.value if shared else 0)
    count = fields.optional("num_local_experts", least=0)
    if shared is not None and count is not None and not count.value:
        return Mlp(shared, tensors)
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    inside = "block_sparse_moe"
    routed = mixture(fields, hidden_size, experts, visited, width, inside=inside, gate="router")
    return Mlp(active_width(fields, visited, width, shared), routed.tensors + tensors, visited)
