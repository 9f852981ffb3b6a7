"""Layers that have the same attention and differ in window and MLP only, put into a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Decoder, Layer, Mlp
from ringplan.io.hf.tensors import ends, gated_mlp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Heads, Trunk
    from ringplan.io.hf.tensors import Tensors


def stack(
    fields: Fields,
    trunk: Trunk,
    heads: Heads,
    tensors: Tensors,
    mlps: Mlp | Sequence[Mlp],
    *,
    windows: Sequence[Sourced | None] | None = None,
    tied: bool = False,
    norm_bias: bool = False,
) -> Decoder:
    """
    Put layers into a decoder.

    Parameters
    ----------
    fields
        The config, for tie_word_embeddings.
    trunk, heads
        Sizes.
    tensors
        Attention and norms of every layer.
    mlps
        One for all layers, or one each.
    windows
        One each; None for layers that see everything.
    tied
        Whether a config without tie_word_embeddings has one tensor for embeddings and output.
    norm_bias
        Whether the final norm has a bias.
    """
    count = trunk.num_hidden_layers.value
    each = (mlps,) * count if isinstance(mlps, Mlp) else mlps
    sights = windows or (None,) * count
    layers = tuple(
        Layer(heads, tensors, mlp, window) for mlp, window in zip(each, sights, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", default=tied)
    return Decoder(trunk, layers, ends(trunk, tied=tied, norm_bias=norm_bias))


def dense(
    fields: Fields,
    trunk: Trunk,
    heads: Heads,
    tensors: Tensors,
    *,
    windows: Sequence[Sourced | None] | None = None,
    mlp_bias: bool = False,
    tied: bool = False,
    norm_bias: bool = False,
) -> Decoder:
    """Put layers with a gated MLP into a decoder; parameters as of `stack`."""
    width = fields.integer("intermediate_size")
    mlp = Mlp(width, gated_mlp("mlp", trunk.hidden_size.value, width.value, bias=mlp_bias))
    return stack(
        fields, trunk, heads, tensors, mlp, windows=windows, tied=tied, norm_bias=norm_bias
    )
