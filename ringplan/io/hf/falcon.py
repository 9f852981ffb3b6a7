"""Falcon: one K/V head in the old architecture, several in the new; LayerNorms, tied embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Heads, Mlp, read_trunk
from ringplan.io.hf.readings import equal_share
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import norm, plain_mlp, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Decoder, Trunk
    from ringplan.io.hf.tensors import Tensors


def read_falcon(fields: Fields) -> Decoder:
    """Read Falcon, by Hugging Face's names or TensorRT-LLM's."""
    trunk = read_trunk(fields)
    heads = _heads(fields)
    hidden = trunk.hidden_size.value
    bias = fields.flag("bias", default=False)
    name = "query_key_value"
    names = (f"{name}.q", f"{name}.k", f"{name}.v", "dense")
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias, names=names),
        *_norms(fields, hidden),
    )
    mlp = _mlp(fields, trunk, bias=bias)
    return stack(fields, trunk, heads, tensors, mlp, tied=True, norm_bias=True)


def _heads(fields: Fields) -> Heads:
    heads = fields.integer("num_attention_heads", "n_head")
    size = fields.optional("head_dim") or equal_share(fields)
    return Heads(heads, _kv_heads(fields, heads), size, size)


def _kv_heads(fields: Fields, heads: Sourced) -> Sourced:
    """Count K/V heads: as the new architecture says, or one for all unless that is switched off."""
    given = fields.optional("num_key_value_heads")
    if given is not None:
        return given
    new = fields.flag("new_decoder_architecture", default=False)
    single = fields.flag("multi_query", default=True)
    if not new and single:
        rule = "one K/V head, as multi_query is true or absent, in the old architecture"
        return fields.derived(1, rule)
    alike = "num_attention_heads, as the config has no num_kv_heads"
    return fields.optional("num_kv_heads") or fields.derived(heads.value, alike, heads)


def _norms(fields: Fields, hidden_size: int) -> Tensors:
    """Return the norms: two unless attention and MLP run side by side and share one."""
    if fields.has("num_key_value_heads") and not fields.has("new_decoder_architecture"):
        fields.missing("new_decoder_architecture")
    new = fields.flag("new_decoder_architecture", default=False)
    parallel = fields.flag("parallel_attn", default=True)
    count = fields.optional("num_ln_in_parallel_attn")
    two = count.value == 2 if count else new
    first = norm("input_layernorm", hidden_size, bias=True)
    if parallel and not two:
        return first
    return first + norm("post_attention_layernorm", hidden_size, bias=True)


def _mlp(fields: Fields, trunk: Trunk, *, bias: bool) -> Mlp:
    hidden = trunk.hidden_size
    width = fields.optional("ffn_hidden_size", "intermediate_size") or fields.derived(
        4 * hidden.value, "4 * hidden_size, as the config has no ffn_hidden_size", hidden
    )
    names = ("dense_h_to_4h", "dense_4h_to_h")
    return Mlp(width, plain_mlp(hidden.value, width.value, names, bias=bias))
