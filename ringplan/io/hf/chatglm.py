"""ChatGLM and GLM-4-9B before transformers had them, by their own names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Heads, Mlp, Trunk
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import gated_mlp, layer_norms, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Decoder


def read_chatglm(fields: Fields) -> Decoder:
    """Read ChatGLM 2 and 3 and GLM-4-9B: K/V heads in groups, a gated MLP."""
    trunk = Trunk(
        hidden_size=fields.integer("hidden_size"),
        vocab_size=fields.integer("padded_vocab_size", "vocab_size"),
        num_hidden_layers=fields.integer("num_layers", "num_hidden_layers", most=10_000),
        max_position_embeddings=fields.optional("seq_length", "max_position_embeddings"),
    )
    hidden = trunk.hidden_size.value
    heads = _heads(fields)
    bias = fields.flag("add_bias_linear", default=False)
    qkv_bias = fields.decisive("add_qkv_bias") or bias
    names = ("query_key_value.q", "query_key_value.k", "query_key_value.v", "dense")
    attention = projections(hidden, heads, qkv_bias=qkv_bias, out_bias=bias, names=names)
    if not fields.flag("rmsnorm", default=True):
        fields.note(f"{fields.place('rmsnorm')}: rmsnorm is false, which ringplan cannot lay out")
    width = fields.integer("ffn_hidden_size", "intermediate_size")
    mlp = Mlp(width, gated_mlp("mlp", hidden, width.value, bias=bias))
    return stack(fields, trunk, heads, attention + layer_norms(hidden), mlp)


def _heads(fields: Fields) -> Heads:
    heads = fields.integer("num_attention_heads")
    size = fields.integer("kv_channels", "head_dim")
    return Heads(heads, _kv_heads(fields, heads), size, size)


def _kv_heads(fields: Fields, heads: Sourced) -> Sourced:
    if fields.flag("multi_query_attention", default=False):
        return fields.integer("multi_query_group_num")
    rule = "num_attention_heads, as multi_query_attention is not true"
    return fields.derived(heads.value, rule, heads)
