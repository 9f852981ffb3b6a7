"""Kimi Linear: latent attention in some layers, linear attention with gates in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.experts import read_dense_mlp, read_shared_mlp
from ringplan.io.hf.latent import latent_attention, latent_heads, read_latent
from ringplan.io.hf.parts import Decoder, Layer, State, read_trunk
from ringplan.io.hf.tensors import ends, layer_norms, linear, norm
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors

_BLOCK: Final = "linear_attn_config"


def read_kimi_linear(fields: Fields) -> Decoder:
    """Read Kimi Linear; linear_attn_config counts layers from 1."""
    trunk = read_trunk(fields)
    count, hidden = trunk.num_hidden_layers.value, trunk.hidden_size.value
    block = fields.block(_BLOCK)
    full = block.integers("full_attn_layers", least=0) if block else None
    if block is None or full is None:
        fields.vital(f"{_BLOCK}.full_attn_layers")
    chosen = {item.value - 1 for item in full or ()}
    latent = read_latent(fields)
    bias = fields.flag("attention_bias", default=False)
    attention = latent_attention(hidden, latent, bias=bias) + layer_norms(hidden)
    whole = Layer(latent_heads(fields, latent), attention)
    gated = _linear_layer(fields, block, trunk)
    experts = read_shared_mlp(fields, hidden, correction=True)
    first = fields.integer("first_k_dense_replace", least=0).value
    dense = read_dense_mlp(fields, hidden) if first else experts
    layers = tuple(
        (whole if index in chosen else gated)._replace(mlp=dense if index < first else experts)
        for index in range(count)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _linear_layer(fields: Fields, block: Fields | None, trunk: Trunk) -> Layer:
    heads, size, kernel = (
        (block.optional(key) if block else None) or fields.missing(f"{_BLOCK}.{key}")
        for key in ("num_heads", "head_dim", "short_conv_kernel_size")
    )
    width = heads.value * size.value
    state = State(
        state_heads=heads,
        conv_state=fields.derived(
            (kernel.value - 1) * 3 * width,
            "(kernel - 1) * 3 * heads * head size",
            heads,
            size,
            kernel,
        ),
        recurrent_state=fields.derived(width * size.value, "heads * head size ** 2", heads, size),
        mixer_width=fields.derived(
            6 * width + heads.value, "projections, gates, rates and the output", heads, size
        ),
    )
    hidden = trunk.hidden_size.value
    tensors = _tensors(hidden, heads, size, kernel) + layer_norms(hidden)
    return Layer(None, tensors, state=state)


def _tensors(hidden_size: int, heads: Sourced, size: Sourced, kernel: Sourced) -> Tensors:
    """Return projections, one convolution each, and gates by way of the size of a head."""
    width, name = heads.value * size.value, "self_attn"
    conv, down = (width, 1, kernel.value), (size.value, hidden_size)
    return (
        *(t for each in "qkv" for t in linear(f"{name}.{each}_proj", width, hidden_size, "heads")),
        *(Tensor(f"{name}.{each}_conv1d.weight", conv, "heads", quantized=False) for each in "qkv"),
        *(t for each in "fg" for t in linear(f"{name}.{each}_a_proj", *down, "none")),
        *(t for each in "fg" for t in linear(f"{name}.{each}_b_proj", width, size.value, "heads")),
        *linear(f"{name}.b_proj", heads.value, hidden_size, "heads"),
        Tensor(f"{name}.dt_bias", (width,), "heads", quantized=False),
        Tensor(f"{name}.A_log", (heads.value,), "heads", quantized=False),
        *norm(f"{name}.o_norm", size.value),
        *linear(f"{name}.o_proj", hidden_size, width, "heads"),
    )
