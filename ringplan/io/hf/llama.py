"""Dense models in the manner of Llama: grouped-query attention, gated MLP, two norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.drafts import with_mimo_drafts
from ringplan.io.hf.parts import read_trunk
from ringplan.io.hf.readings import equal_share, read_heads, read_windows, share_if_null
from ringplan.io.hf.stack import dense
from ringplan.io.hf.tensors import layer_norms, projections, query_key_norms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Decoder, Heads, Trunk
    from ringplan.io.hf.tensors import Tensors


def read_llama(fields: Fields) -> Decoder:
    """Read Llama and Granite: every layer sees everything; biases if the config says so."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)
    mlp_bias = fields.flag("mlp_bias", default=False)
    return dense(fields, trunk, heads, attention + _norms(trunk), mlp_bias=mlp_bias)


def read_mistral(fields: Fields) -> Decoder:
    """Read Mistral: every layer has the sliding window, unless it is null."""
    return _read_mistral(fields, equal_share)


def read_ministral3(fields: Fields) -> Decoder:
    """Read Ministral 3: Mistral with a head size of its own."""
    return _read_mistral(fields, share_if_null)


def _read_mistral(fields: Fields, head_dim: Callable[[Fields], Sourced]) -> Decoder:
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: head_dim(fields))
    tensors = projections(trunk.hidden_size.value, heads) + _norms(trunk)
    windows = uniform_windows(fields, trunk.num_hidden_layers.value)
    return dense(fields, trunk, heads, tensors, windows=windows)


def read_ministral(fields: Fields) -> Decoder:
    """Read Ministral: layer_types say which layers have the window; without them, none does."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    tensors = projections(trunk.hidden_size.value, heads) + _norms(trunk)
    windows = read_windows(fields, trunk.num_hidden_layers.value, lambda _: False)
    return dense(fields, trunk, heads, tensors, windows=windows)


def read_qwen2(fields: Fields) -> Decoder:
    """Read Qwen 2: biases on Q, K and V."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=True)
    windows = qwen_windows(fields, trunk.num_hidden_layers.value)
    return dense(fields, trunk, heads, attention + _norms(trunk), windows=windows)


def read_mimo(fields: Fields) -> Decoder:
    """Read MiMo: Qwen 2 with draft layers."""
    return with_mimo_drafts(fields, read_qwen2(fields))


def read_qwen3(fields: Fields) -> Decoder:
    """Read Qwen 3: norms on query and key heads."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    attention = qwen3_attention(fields, trunk, heads)
    windows = qwen_windows(fields, trunk.num_hidden_layers.value)
    return dense(fields, trunk, heads, attention + _norms(trunk), windows=windows)


def read_smollm3(fields: Fields) -> Decoder:
    """Read SmolLM3: Llama with tied embeddings, and windows if switched on."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)
    used = fields.flag("use_sliding_window", default=False)
    windows = read_windows(fields, trunk.num_hidden_layers.value, lambda _: False) if used else None
    mlp_bias = fields.flag("mlp_bias", default=False)
    tensors = attention + _norms(trunk)
    return dense(fields, trunk, heads, tensors, windows=windows, mlp_bias=mlp_bias, tied=True)


def read_seed_oss(fields: Fields) -> Decoder:
    """Read Seed-OSS: biases on Q, K and V, and switches for the others."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    attention = projections(
        trunk.hidden_size.value,
        heads,
        qkv_bias=fields.flag("attention_bias", default=True),
        out_bias=fields.flag("attention_out_bias", default=False),
    )
    mlp_bias = fields.flag("mlp_bias", default=False)
    return dense(fields, trunk, heads, attention + _norms(trunk), mlp_bias=mlp_bias)


def read_internlm3(fields: Fields) -> Decoder:
    """Read InternLM 3: one switch for biases on Q, K and V, one for all others."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: share_if_null(fields))
    bias = fields.flag("bias", default=False)
    qkv_bias = fields.flag("qkv_bias", default=False)
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=qkv_bias, out_bias=bias)
    return dense(fields, trunk, heads, attention + _norms(trunk), mlp_bias=bias)


def read_hunyuan(fields: Fields) -> Decoder:
    """Read Hunyuan: Llama with norms on query and key heads."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)
    norms = query_key_norms(heads, ("query_layernorm", "key_layernorm"))
    return dense(fields, trunk, heads, attention + norms + _norms(trunk))


def _norms(trunk: Trunk) -> Tensors:
    return layer_norms(trunk.hidden_size.value)


def qwen3_attention(fields: Fields, trunk: Trunk, heads: Heads) -> Tensors:
    """Return the attention of Qwen 3, dense or with experts."""
    bias = fields.flag("attention_bias", default=False)
    weights = projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)
    return weights + query_key_norms(heads)


def qwen_windows(fields: Fields, layers: int) -> tuple[Sourced | None, ...]:
    """Read Qwen's windows: none unless switched on, then from layer max_window_layers upwards."""
    used = fields.flag("use_sliding_window", default=False)
    first = fields.optional("max_window_layers", least=0)
    if not used:
        fields.keys.update(("layer_types", "sliding_window"))
        return (None,) * layers
    if first is None and not fields.has("layer_types"):
        first = fields.integer("max_window_layers", least=0)
    return read_windows(fields, layers, lambda index: first is not None and index >= first.value)


def uniform_windows(fields: Fields, layers: int) -> tuple[Sourced | None, ...]:
    """Read a window of all layers; a config that does not mention it is incomplete."""
    if not fields.has("sliding_window"):
        fields.vital("sliding_window")
    return (fields.optional("sliding_window"),) * layers
