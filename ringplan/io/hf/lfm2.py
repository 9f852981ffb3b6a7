"""LFM 2: layers of short convolutions, which keep a few tokens, and some of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import mixture, read_experts
from ringplan.io.hf.parts import Decoder, Layer, Mlp, State, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads, read_layer_types
from ringplan.io.hf.tensors import ends, gated_mlp, linear, norm, projections, query_key_norms
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Split


def read_lfm2(fields: Fields) -> Decoder:
    """Read dense LFM 2."""
    trunk = read_trunk(fields)
    width = _width(fields)
    mlp = Mlp(width, gated_mlp("feed_forward", trunk.hidden_size.value, width.value))
    return _read(fields, trunk, (mlp,) * trunk.num_hidden_layers.value)


def read_lfm2_moe(fields: Fields) -> Decoder:
    """Read LFM 2 with experts, after a few dense layers."""
    trunk = read_trunk(fields)
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    dense_width = fields.integer("intermediate_size")
    dense = Mlp(dense_width, gated_mlp("feed_forward", hidden, dense_width.value))
    experts, visited = read_experts(fields, "num_experts")
    width = fields.integer("moe_intermediate_size")
    correction = fields.flag("use_expert_bias", default=True)
    name = "feed_forward"
    routed = mixture(fields, hidden, experts, visited, width, correction=correction, inside=name)
    first = min(fields.integer("num_dense_layers", least=0).value, count)
    return _read(fields, trunk, (dense,) * first + (routed,) * (count - first))


def _read(fields: Fields, trunk: Trunk, mlps: Sequence[Mlp]) -> Decoder:
    chosen = fields.integers("full_attn_idxs", least=0)
    if chosen is None and not fields.has("layer_types"):
        fields.vital("layer_types")
    picked = {item.value for item in chosen or ()}
    known = ("conv", "full_attention")
    count = trunk.num_hidden_layers.value
    types = read_layer_types(fields, count, known, lambda index: known[index in picked])
    full, conv = _full_layer(fields, trunk), _conv_layer(fields, trunk)
    layers = tuple(
        (full if kind == "full_attention" else conv)._replace(mlp=mlp)
        for kind, mlp in zip(types, mlps, strict=True)
    )
    given = fields.flag("tie_word_embeddings", default=True)
    return Decoder(trunk, layers, ends(trunk, tied=fields.flag("tie_embedding", default=given)))


def _width(fields: Fields) -> Sourced:
    """Read the width of the MLP, cut to two thirds and rounded up unless that is switched off."""
    given = fields.integer("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return given
    multiple = fields.integer("block_multiple_of")
    factor = fields.config.values.get("block_ffn_dim_multiplier", 1.0)
    fields.keys.add("block_ffn_dim_multiplier")
    if not isinstance(factor, int | float):
        fields.wrong("block_ffn_dim_multiplier", "must be a number")
        factor = 1.0
    wide = int(factor * int(2 * given.value / 3))
    rule = "two thirds of it, rounded up to a multiple of block_multiple_of"
    rounded = -(-wide // multiple.value) * multiple.value
    return fields.derived(rounded, rule, given, multiple)


def _norms(trunk: Trunk) -> Tensors:
    return norm("operator_norm", trunk.hidden_size.value) + norm(
        "ffn_norm", trunk.hidden_size.value
    )


def _full_layer(fields: Fields, trunk: Trunk) -> Layer:
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    tensors = (
        *projections(trunk.hidden_size.value, heads, names=names),
        *query_key_norms(heads, ("q_layernorm", "k_layernorm")),
    )
    return Layer(heads, tensors + _norms(trunk))


def _conv_layer(fields: Fields, trunk: Trunk) -> Layer:
    """Read a convolution, a channel for each element of a token; channels stand for heads."""
    hidden, kernel = trunk.hidden_size, fields.integer("conv_L_cache")
    size, bias = hidden.value, fields.flag("conv_bias", default=False)
    whole: Split | None = "none" if bias else None
    cut: Split | None = "heads" if bias else None
    conv = Tensor("conv.conv.weight", (size, 1, kernel.value), "heads", quantized=False)
    tensors = (
        *linear("conv.in_proj", 3 * size, size, "heads", bias=cut),
        conv,
        *((conv._replace(name="conv.conv.bias", shape=(size,)),) if bias else ()),
        *linear("conv.out_proj", size, size, "heads", bias=whole),
    )
    rule = "(conv_L_cache - 1) * hidden_size"
    state = State(
        state_heads=hidden,
        conv_state=fields.derived((kernel.value - 1) * size, rule, kernel, hidden),
        recurrent_state=fields.derived(0, "a convolution has none"),
        mixer_width=fields.derived(4 * size, "3 projections and the output", hidden),
    )
    return Layer(None, tensors + _norms(trunk), state=state)
