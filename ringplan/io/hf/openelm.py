"""OpenELM: heads and MLP widths grow from layer to layer."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Decoder, Heads, Layer, Mlp, Trunk
from ringplan.io.hf.tensors import ends, gated_mlp, norm, projections, query_key_norms

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced


def read_openelm(fields: Fields) -> Decoder:
    """Read OpenELM; the lists have an item for each layer."""
    trunk = Trunk(
        hidden_size=fields.integer("model_dim"),
        vocab_size=fields.integer("vocab_size"),
        num_hidden_layers=fields.integer("num_transformer_layers", most=10_000),
        max_position_embeddings=fields.optional("max_context_length"),
    )
    count = trunk.num_hidden_layers.value
    queries, keys = _list(fields, "num_query_heads", count), _list(fields, "num_kv_heads", count)
    size = fields.integer("head_dim")
    widths = _widths(fields, trunk, count)
    layers = tuple(
        _layer(fields, trunk, Heads(query, key, size, size), width)
        for query, key, width in zip(queries, keys, widths, strict=True)
    )
    tied = fields.flag("share_input_output_layers", default=True)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _list(fields: Fields, key: str, layers: int) -> list[Sourced]:
    given = fields.integers(key)
    if given is None:
        return [fields.integer(key)] * layers
    fields.count(key, len(given), layers)
    return (given + given[-1:] * layers)[:layers] or [fields.missing(key)] * layers


def _widths(fields: Fields, trunk: Trunk, layers: int) -> list[Sourced]:
    """Round each multiple of the hidden size to the next that the divisor divides."""
    multipliers = fields.words("ffn_multipliers")
    divisor = fields.integer("ffn_dim_divisor")
    if multipliers is None or len(multipliers) < layers:
        return [fields.integer("ffn_multipliers")] * layers
    rule = "ffn_multipliers * model_dim, rounded to a multiple of ffn_dim_divisor"
    hidden = trunk.hidden_size
    return [
        fields.derived(_rounded(each, hidden.value, divisor.value), rule, hidden, divisor)
        for each in multipliers[:layers]
    ]


def _rounded(multiplier: str, size: int, divisor: int) -> int:
    """
    Round to the nearest multiple, but up where that would lose more than a tenth.

    >>> _rounded("0.5", 1280, 256), _rounded("3.07", 1280, 256)
    (768, 3840)
    """
    exact = int(Fraction(multiplier) * size)
    nearest = max(divisor, (exact + divisor // 2) // divisor * divisor)
    return nearest if 10 * nearest >= 9 * exact else nearest + divisor


def _layer(fields: Fields, trunk: Trunk, heads: Heads, width: Sourced) -> Layer:
    hidden = trunk.hidden_size.value
    normed = fields.flag("normalize_qk_projections", default=True)
    if not fields.flag("ffn_with_glu", default=True):
        fields.note(f"{fields.place('ffn_with_glu')}: ffn_with_glu is false, which ringplan lacks")
    tensors = (
        *projections(hidden, heads),
        *(query_key_norms(heads) if normed else ()),
        *norm("attn_norm", hidden),
        *norm("ffn_norm", hidden),
    )
    return Layer(heads, tensors, Mlp(width, gated_mlp("ffn", hidden, width.value)))
