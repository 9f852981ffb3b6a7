"""Nemotron models found by architecture search: blocks of Llama that lack parts, each its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.io.hf.fields import Sourced
from ringplan.io.hf.parts import Decoder, Heads, Layer, Mlp, read_trunk
from ringplan.io.hf.readings import equal_share
from ringplan.io.hf.tensors import ends, gated_mlp, linear, norm, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors


def read_nemotron_nas(fields: Fields) -> Decoder:
    """Read Nemotron-NAS; ``block_configs`` has an item for each layer."""
    trunk = read_trunk(fields)
    query = fields.integer("num_attention_heads")
    size = fields.optional("head_dim") or equal_share(fields)
    blocks = _blocks(fields, trunk.num_hidden_layers.value)
    layers = tuple(_layer(fields, trunk, (query, size), block) for block in blocks)
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _blocks(fields: Fields, layers: int) -> list[dict[str, Any]]:
    if fields.words("block_configs") is None:
        fields.vital("block_configs")
        return []
    given = fields.config.values["block_configs"]
    if not all(isinstance(block, dict) for block in given):
        fields.wrong("block_configs", "must be a list of blocks of keys in braces")
        return []
    fields.count("block_configs", len(given), layers)
    return list(given[:layers])


def _layer(
    fields: Fields, trunk: Trunk, sizes: tuple[Sourced, Sourced], block: dict[str, Any]
) -> Layer:
    mixer, follower = block.get("attention") or {}, block.get("ffn") or {}
    if mixer.get("mamba") or follower.get("moe"):
        fields.note(
            f"{fields.place('block_configs')}: a block has mamba or moe, which ringplan cannot "
            "lay out"
        )
    heads, attention = _attention(fields, trunk, sizes, mixer)
    mlp, feed_forward = _feed_forward(fields, trunk, follower)
    return Layer(heads, attention + feed_forward, mlp)


def _attention(
    fields: Fields, trunk: Trunk, sizes: tuple[Sourced, Sourced], block: dict[str, Any]
) -> tuple[Heads | None, Tensors]:
    hidden = trunk.hidden_size.value
    if block.get("no_op"):
        return None, ()
    if block.get("replace_with_linear"):
        return None, (
            *norm("input_layernorm", hidden),
            *linear("self_attn.linear_attn", hidden, hidden),
        )
    query, size = sizes
    group = block.get("n_heads_in_group")
    if not isinstance(group, int) or group < 1 or query.value % group:
        fields.note(
            f"{fields.place('block_configs')}: n_heads_in_group is '{group}', but must be a whole "
            f"number that divides num_attention_heads {query.value}"
        )
        group = 1
    key = fields.derived(query.value // group, "num_attention_heads / n_heads_in_group", query)
    heads = Heads(query, key, size, size)
    bias = fields.flag("attention_bias", default=False)
    weights = projections(hidden, heads, qkv_bias=bias, out_bias=bias)
    return heads, norm("input_layernorm", hidden) + weights


def _feed_forward(
    fields: Fields, trunk: Trunk, block: dict[str, Any]
) -> tuple[Mlp | None, Tensors]:
    """Read an MLP and the norm before it; a linear layer in its place counts as no MLP."""
    hidden = trunk.hidden_size.value
    first = norm("post_attention_layernorm", hidden)
    if block.get("no_op"):
        return None, ()
    if block.get("replace_with_linear"):
        return None, (*first, *linear("mlp.linear_mlp", hidden, hidden))
    width = _width(fields, trunk, block)
    bias = fields.flag("mlp_bias", default=False)
    return Mlp(width, gated_mlp("mlp", hidden, width.value, bias=bias)), first


def _width(fields: Fields, trunk: Trunk, block: dict[str, Any]) -> Sourced:
    """Read the width, or two thirds of a multiple of the hidden size, rounded up to 256."""
    given, multiple = block.get("intermediate_size"), block.get("ffn_mult")
    origin = fields.origin("block_configs")
    if isinstance(given, int) and given > 0:
        return Sourced(given, origin)
    if isinstance(multiple, int | float) and multiple > 0:
        wide = int(2 * multiple * trunk.hidden_size.value / 3)
        rule = "2 * ffn_mult * hidden_size / 3, rounded up to a multiple of 256"
        return fields.derived(-(-wide // 256) * 256, rule, trunk.hidden_size)
    fields.note(f"{fields.place('block_configs')}: a block has neither ffn_mult nor its width")
    return Sourced(1, origin)
