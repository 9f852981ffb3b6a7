"""Dense models in the manner of Llama: grouped-query attention, gated MLP, two norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import (
    Decoder,
    Heads,
    Layer,
    Mlp,
    Trunk,
    equal_share,
    read_heads,
    read_trunk,
    read_windows,
)
from ringplan.io.hf.tensors import ends, gated_mlp, layer_norms, projections, query_key_norms

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors


def read_llama(fields: Fields) -> Decoder:
    """Read Llama: every layer sees everything; biases if the config says so."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=bias, out_bias=bias)
    windows = (None,) * trunk.num_hidden_layers.value
    mlp_bias = fields.flag("mlp_bias", default=False)
    return _decoder(fields, trunk, heads, attention, windows, mlp_bias=mlp_bias)


def read_mistral(fields: Fields) -> Decoder:
    """Read Mistral: every layer has the sliding window, unless it is null."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    attention = projections(trunk.hidden_size.value, heads)
    windows = uniform_windows(fields, trunk.num_hidden_layers.value)
    return _decoder(fields, trunk, heads, attention, windows)


def read_qwen2(fields: Fields) -> Decoder:
    """Read Qwen 2: biases on Q, K and V."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    attention = projections(trunk.hidden_size.value, heads, qkv_bias=True)
    windows = qwen_windows(fields, trunk.num_hidden_layers.value)
    return _decoder(fields, trunk, heads, attention, windows)


def read_qwen3(fields: Fields) -> Decoder:
    """Read Qwen 3: norms on query and key heads."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    attention = qwen3_attention(fields, trunk, heads)
    windows = qwen_windows(fields, trunk.num_hidden_layers.value)
    return _decoder(fields, trunk, heads, attention, windows)


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
        fields.integer("sliding_window")
    return (fields.optional("sliding_window"),) * layers


def _decoder(
    fields: Fields,
    trunk: Trunk,
    heads: Heads,
    attention: Tensors,
    windows: tuple[Sourced | None, ...],
    *,
    mlp_bias: bool = False,
) -> Decoder:
    width = fields.integer("intermediate_size")
    hidden = trunk.hidden_size.value
    tensors = attention + layer_norms(hidden)
    mlp = Mlp(width, gated_mlp("mlp", hidden, width.value, bias=mlp_bias))
    tied = fields.flag("tie_word_embeddings", default=False)
    layers = tuple(Layer(heads, tensors, mlp, window) for window in windows)
    return Decoder(trunk, layers, ends(trunk, tied=tied))
