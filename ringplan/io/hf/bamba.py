"""Mamba 2 with attention in some layers, beside it in all, or in none at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import read_dense_mlp
from ringplan.io.hf.mamba import Mamba, mamba_state, mamba_tensors, read_bamba_mamba
from ringplan.io.hf.parts import Decoder, Layer, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads
from ringplan.io.hf.tensors import ends, norm, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Heads, Mlp, Trunk
    from ringplan.io.hf.tensors import Tensors


def read_bamba(fields: Fields) -> Decoder:
    """Read Bamba: attention in the layers of attn_layer_indices, Mamba 2 in the others."""
    trunk = read_trunk(fields)
    chosen = fields.integers("attn_layer_indices", least=0)
    if chosen is None:
        fields.vital("attn_layer_indices")
    mlp = _mlp(fields, trunk)
    heads, attention = _attention(fields, trunk)
    mamba = read_bamba_mamba(fields, _expanded(fields, trunk))
    mixer = _mixer(fields, trunk, mamba, normed=True)
    full = Layer(heads, attention + _norms(trunk), mlp)
    state = Layer(None, mixer + _norms(trunk), mlp, state=mamba_state(fields, mamba))
    picked = {item.value for item in chosen or ()}
    count = trunk.num_hidden_layers.value
    layers = tuple(full if index in picked else state for index in range(count))
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def read_falcon_h1(fields: Fields) -> Decoder:
    """Read Falcon-H1: Mamba 2 and attention side by side in every layer."""
    trunk = read_trunk(fields)
    mlp = _mlp(fields, trunk)
    heads, attention = _attention(fields, trunk)
    mamba = read_bamba_mamba(fields, fields.optional("mamba_d_ssm") or _expanded(fields, trunk))
    normed = fields.flag("mamba_rms_norm", default=False)
    mixer = _mixer(fields, trunk, mamba, normed=normed)
    tensors = attention + mixer + _norms(trunk)
    layer = Layer(heads, tensors, mlp, state=mamba_state(fields, mamba))
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, (layer,) * trunk.num_hidden_layers.value, ends(trunk, tied=tied))


def read_mamba2(fields: Fields) -> Decoder:
    """Read Mamba 2: no attention, no MLP."""
    trunk = read_trunk(fields)
    mamba = Mamba(
        heads=fields.integer("num_heads"),
        head_dim=fields.integer("head_dim"),
        groups=fields.integer("n_groups"),
        state_size=fields.integer("state_size"),
        kernel=fields.integer("conv_kernel"),
    )
    mixer = mamba_tensors(
        trunk.hidden_size.value,
        mamba,
        name="mixer",
        bias=fields.flag("use_bias", default=False),
        conv_bias=fields.flag("use_conv_bias", default=True),
    )
    tensors = mixer + norm("norm", trunk.hidden_size.value)
    layer = Layer(None, tensors, state=mamba_state(fields, mamba))
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, (layer,) * trunk.num_hidden_layers.value, ends(trunk, tied=tied))


def _expanded(fields: Fields, trunk: Trunk) -> Sourced:
    hidden, expand = trunk.hidden_size, fields.integer("mamba_expand")
    return fields.derived(expand.value * hidden.value, "mamba_expand * hidden_size", expand, hidden)


def _attention(fields: Fields, trunk: Trunk) -> tuple[Heads, Tensors]:
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    return heads, projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)


def _mixer(fields: Fields, trunk: Trunk, mamba: Mamba, *, normed: bool) -> Tensors:
    return mamba_tensors(
        trunk.hidden_size.value,
        mamba,
        name="mamba",
        bias=fields.flag("mamba_proj_bias", default=False),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        normed=normed,
    )


def _mlp(fields: Fields, trunk: Trunk) -> Mlp:
    bias = fields.flag("mlp_bias", default=False)
    return read_dense_mlp(fields, trunk.hidden_size.value, bias=bias)


def _norms(trunk: Trunk) -> Tensors:
    hidden = trunk.hidden_size.value
    return norm("input_layernorm", hidden) + norm("pre_ff_layernorm", hidden)
