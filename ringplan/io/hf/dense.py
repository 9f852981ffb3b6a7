"""Dense models with RMS norms that differ from Llama in norms, biases or windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.drafts import unmodelled_drafts
from ringplan.io.hf.parts import read_trunk
from ringplan.io.hf.readings import equal_share, read_heads, read_windows, share_if_null
from ringplan.io.hf.stack import dense
from ringplan.io.hf.tensors import (
    layer_norms,
    norm,
    projections,
    query_key_norms,
    wide_query_key_norms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder
    from ringplan.io.hf.tensors import Tensors


def read_olmo2(fields: Fields) -> Decoder:
    """Read OLMo 2: norms after each part, and over all query heads and all key heads."""
    return _read_olmo(fields, None)


def read_olmo3(fields: Fields) -> Decoder:
    """Read OLMo 3: OLMo 2, but three layers of four have a window."""
    return _read_olmo(fields, lambda index: index % 4 != 3)


def _read_olmo(fields: Fields, slides: Callable[[int], bool] | None) -> Decoder:
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    bias = fields.flag("attention_bias", default=False)
    hidden = trunk.hidden_size.value
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *wide_query_key_norms(heads),
        *_norms_after(hidden),
    )
    windows = read_windows(fields, trunk.num_hidden_layers.value, slides) if slides else None
    return dense(fields, trunk, heads, tensors, windows=windows)


def read_exaone4(fields: Fields) -> Decoder:
    """Read EXAONE 4: norms after each part and on heads; all layers see everything, or some."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    tensors = (*projections(hidden, heads), *query_key_norms(heads), *_norms_after(hidden))
    windows = None
    if fields.optional("sliding_window") is not None:
        if not fields.has("layer_types"):
            fields.vital("layer_types")
        windows = read_windows(fields, trunk.num_hidden_layers.value, lambda _: False)
    return dense(fields, trunk, heads, tensors, windows=windows)


def _norms_after(hidden_size: int) -> Tensors:
    names = ("post_attention_layernorm", "post_feedforward_layernorm")
    return norm(names[0], hidden_size) + norm(names[1], hidden_size)


def read_glm(fields: Fields) -> Decoder:
    """Read GLM: biases on Q, K and V if the config says so."""
    return _read_glm(fields, ())


def read_glm4(fields: Fields) -> Decoder:
    """Read GLM 4: GLM with norms before and after each part."""
    return _read_glm(fields, ("post_self_attn_layernorm", "post_mlp_layernorm"))


def _read_glm(fields: Fields, after: tuple[str, ...]) -> Decoder:
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    hidden = trunk.hidden_size.value
    tensors = (
        *projections(hidden, heads, qkv_bias=fields.decisive("attention_bias")),
        *layer_norms(hidden),
        *(tensor for name in after for tensor in norm(name, hidden)),
    )
    return dense(fields, trunk, heads, tensors)


def read_phi3(fields: Fields) -> Decoder:
    """Read Phi 3 and 4: every layer has the sliding window, unless it is null."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    names = ("qkv_proj.q", "qkv_proj.k", "qkv_proj.v", "o_proj")
    tensors = projections(hidden, heads, names=names) + layer_norms(hidden)
    windows = (fields.optional("sliding_window"),) * trunk.num_hidden_layers.value
    return dense(fields, trunk, heads, tensors, windows=windows)


def read_ernie4_5(fields: Fields) -> Decoder:
    """Read dense ERNIE 4.5: Llama with one switch for all biases, and tied embeddings."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: share_if_null(fields))
    bias = fields.flag("use_bias", default=False)
    hidden = trunk.hidden_size.value
    tensors = projections(hidden, heads, qkv_bias=bias, out_bias=bias) + layer_norms(hidden)
    decoder = dense(fields, trunk, heads, tensors, mlp_bias=bias, tied=True)
    return decoder._replace(not_counted=unmodelled_drafts(fields))


def read_cohere(fields: Fields) -> Decoder:
    """Read Command R: one norm in a layer, tied embeddings; norms on each head, if any."""
    return _read_cohere(fields, None, normed=fields.decisive("use_qk_norm"))


def read_cohere2(fields: Fields) -> Decoder:
    """Read Command R7B and A: three layers of four have a window."""
    pattern = fields.optional("sliding_window_pattern")
    step = pattern.value if pattern else 4
    return _read_cohere(fields, lambda index: (index + 1) % step != 0, normed=False)


def _read_cohere(fields: Fields, slides: Callable[[int], bool] | None, *, normed: bool) -> Decoder:
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *(wide_query_key_norms(heads) if normed else ()),
        *norm("input_layernorm", hidden),
    )
    windows = read_windows(fields, trunk.num_hidden_layers.value, slides) if slides else None
    return dense(fields, trunk, heads, tensors, windows=windows, tied=True)
