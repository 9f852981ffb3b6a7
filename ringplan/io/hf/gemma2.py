"""Gemma 2: every other layer has a window, four norms in a layer, tied embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.experts import read_dense_mlp
from ringplan.io.hf.parts import Decoder, Layer, read_heads, read_trunk, read_windows
from ringplan.io.hf.tensors import ends, layer_norms, norm, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields

#: What Gemma2Config of transformers has for a config without head_dim.
DEFAULT_HEAD_DIM: Final = 256


def read_gemma2(fields: Fields) -> Decoder:
    """Read Gemma 2; the first layer has the window, the second sees everything, and so on."""
    trunk = read_trunk(fields)
    rule = f"{DEFAULT_HEAD_DIM}, the default of the class, as the config has no head_dim"
    heads = read_heads(fields, head_dim=lambda: fields.derived(DEFAULT_HEAD_DIM, rule))
    hidden = trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *layer_norms(hidden),
        *norm("pre_feedforward_layernorm", hidden),
        *norm("post_feedforward_layernorm", hidden),
    )
    mlp = read_dense_mlp(fields, hidden)
    windows = read_windows(fields, trunk.num_hidden_layers.value, lambda index: index % 2 == 0)
    tied = fields.flag("tie_word_embeddings", default=True)
    layers = tuple(Layer(heads, tensors, mlp, window) for window in windows)
    return Decoder(trunk, layers, ends(trunk, tied=tied))
