"""Dense models with LayerNorms, which have biases: NeoX, Bloom, StarCoder 2, StableLM and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.llama import uniform_windows
from ringplan.io.hf.parts import Mlp, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads
from ringplan.io.hf.stack import dense, stack
from ringplan.io.hf.tensors import norm, plain_mlp, projections
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder, Heads, Trunk
    from ringplan.io.hf.tensors import Tensors


def read_starcoder2(fields: Fields) -> Decoder:
    """Read StarCoder 2: one switch for all biases, tied embeddings, a window in every layer."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    bias = fields.flag("use_bias", default=True)
    tensors = _attention(trunk, heads, bias=bias)
    windows = uniform_windows(fields, trunk.num_hidden_layers.value)
    mlp = _mlp(fields, trunk, ("c_fc", "c_proj"), bias=bias)
    return stack(fields, trunk, heads, tensors, mlp, windows=windows, tied=True, norm_bias=True)


def read_nemotron(fields: Fields) -> Decoder:
    """Read Nemotron 3 and 4: an MLP without gate, a switch for each kind of bias."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    tensors = _attention(trunk, heads, bias=fields.flag("attention_bias", default=False))
    mlp = _mlp(fields, trunk, bias=fields.flag("mlp_bias", default=False))
    return stack(fields, trunk, heads, tensors, mlp, norm_bias=True)


def read_gpt_neox(fields: Fields) -> Decoder:
    """Read GPT-NeoX and Pythia: as many K/V heads as query heads, biases everywhere."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    tensors = _attention(trunk, heads, bias=fields.flag("attention_bias", default=True))
    mlp = _mlp(fields, trunk, ("dense_h_to_4h", "dense_4h_to_h"), bias=True)
    return stack(fields, trunk, heads, tensors, mlp, norm_bias=True)


def read_bloom(fields: Fields) -> Decoder:
    """Read BLOOM: MLPs four times as wide as a token, a norm on the embeddings, which are tied."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size
    width = fields.derived(4 * hidden.value, "4 * hidden_size, as in all of the family", hidden)
    names = ("dense_h_to_4h", "dense_4h_to_h")
    mlp = Mlp(width, plain_mlp(hidden.value, width.value, names, bias=True))
    tensors = _attention(trunk, heads, bias=True)
    decoder = stack(fields, trunk, heads, tensors, mlp, tied=True, norm_bias=True)
    first = norm("word_embeddings_layernorm", hidden.value, bias=True)
    return decoder._replace(ends=decoder.ends + first)


def read_phi(fields: Fields) -> Decoder:
    """Read Phi 1 and 2: one norm in a layer, biases everywhere, on the output head too."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    names = ("q_proj", "k_proj", "v_proj", "dense")
    normed = fields.flag("qk_layernorm", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=True, out_bias=True, names=names),
        *(_head_norms(heads, bias=True) if normed else ()),
        *norm("input_layernorm", hidden, bias=True),
    )
    mlp = _mlp(fields, trunk, ("fc1", "fc2"), bias=True)
    decoder = stack(fields, trunk, heads, tensors, mlp, norm_bias=True)
    shape = (trunk.vocab_size.value,)
    bias = Tensor("lm_head.bias", shape, quantized=False, stage="last")
    return decoder._replace(ends=(*decoder.ends, bias))


def read_stablelm(fields: Fields) -> Decoder:
    """Read StableLM 2: a gated MLP; norms on each head, if any."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    parallel = fields.flag("use_parallel_residual", default=False)
    normed = fields.flag("qk_layernorm", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=fields.flag("use_qkv_bias", default=False)),
        *(_each_head_norm(heads) if normed else ()),
        *norm("input_layernorm", hidden, bias=True),
        *(() if parallel else norm("post_attention_layernorm", hidden, bias=True)),
    )
    return dense(fields, trunk, heads, tensors, norm_bias=True)


def _attention(trunk: Trunk, heads: Heads, *, bias: bool) -> Tensors:
    hidden = trunk.hidden_size.value
    return (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *norm("input_layernorm", hidden, bias=True),
        *norm("post_attention_layernorm", hidden, bias=True),
    )


def _head_norms(heads: Heads, *, bias: bool) -> Tensors:
    size = heads.head_dim.value
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm")
    return norm(names[0], size, bias=bias) + norm(names[1], size, bias=bias)


def _each_head_norm(heads: Heads) -> Tensors:
    query = heads.num_attention_heads.value * heads.head_dim.value
    key = heads.num_key_value_heads.value * heads.head_dim.value
    names = ("self_attn.q_layernorm", "self_attn.k_layernorm")
    return norm(names[0], query) + norm(names[1], key)


def _mlp(
    fields: Fields, trunk: Trunk, names: tuple[str, str] = ("up_proj", "down_proj"), *, bias: bool
) -> Mlp:
    width = fields.integer("intermediate_size")
    return Mlp(width, plain_mlp(trunk.hidden_size.value, width.value, names, bias=bias))
