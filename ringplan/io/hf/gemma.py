"""Gemma 1 to 3: tied embeddings, heads of 256; from the second on, windows and four norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.parts import read_trunk
from ringplan.io.hf.readings import class_default, read_heads, read_windows
from ringplan.io.hf.stack import dense
from ringplan.io.hf.tensors import layer_norms, norm, projections, query_key_norms

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder

#: What the config classes of transformers have for a config without head_dim.
DEFAULT_HEAD_DIM: Final = 256
#: What the config classes have for a config without sliding_window.
DEFAULT_WINDOW: Final = 4096
#: What Gemma3TextConfig has for a config without layer_types or sliding_window_pattern.
DEFAULT_PATTERN: Final = 6


def read_gemma(fields: Fields) -> Decoder:
    """Read Gemma 1: every layer sees everything."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: class_default(fields, "head_dim", DEFAULT_HEAD_DIM))
    hidden = trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = projections(hidden, heads, qkv_bias=bias, out_bias=bias) + layer_norms(hidden)
    return dense(fields, trunk, heads, tensors, tied=True)


def read_gemma2(fields: Fields) -> Decoder:
    """Read Gemma 2; the first layer has the window, the second sees everything, and so on."""
    return _read(fields, lambda index: index % 2 == 0, normed=False)


def read_gemma3(fields: Fields) -> Decoder:
    """Read Gemma 3: norms on heads; one layer of six sees everything."""
    step = class_default(fields, "sliding_window_pattern", DEFAULT_PATTERN).value
    return _read(fields, lambda index: (index + 1) % step != 0, normed=True)


def _read(fields: Fields, slides: Callable[[int], bool], *, normed: bool) -> Decoder:
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: class_default(fields, "head_dim", DEFAULT_HEAD_DIM))
    hidden = trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *(query_key_norms(heads) if normed else ()),
        *layer_norms(hidden),
        *norm("pre_feedforward_layernorm", hidden),
        *norm("post_feedforward_layernorm", hidden),
    )
    windows = read_windows(fields, trunk.num_hidden_layers.value, slides, default=DEFAULT_WINDOW)
    return dense(fields, trunk, heads, tensors, windows=windows, tied=True)
