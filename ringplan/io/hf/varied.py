"""Caches of models whose windowed layers have heads of their own: MiMo V2, Step 3.5, Laguna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.drafts import count_drafts, unmodelled_drafts
from ringplan.io.hf.parts import Decoder, Heads, Layer, read_trunk
from ringplan.io.hf.readings import read_heads, read_layer_types

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk

_KNOWN: Final = ("full_attention", "sliding_attention")
#: What Step 3.5 calls its K/V heads, beside the usual name.
_GROUPS: Final = ("num_key_value_heads", "num_attention_groups")


def read_mimo_v2_flash(fields: Fields) -> Decoder:
    """Read the caches of MiMo V2 Flash; hybrid_layer_pattern has 1 for a layer with a window."""
    trunk = read_trunk(fields)
    pattern = fields.integers("hybrid_layer_pattern", least=0, most=1)
    if pattern is None and not fields.has("layer_types"):
        fields.vital("hybrid_layer_pattern")
    flags = [item.value for item in pattern or ()]
    whole = _heads(fields, "num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")
    cut = _heads(
        fields,
        "swa_num_attention_heads",
        "swa_num_key_value_heads",
        "swa_head_dim",
        "swa_v_head_dim",
    )
    count = trunk.num_hidden_layers.value
    if pattern is not None:
        fields.count("hybrid_layer_pattern", len(flags), count)
    types = read_layer_types(
        fields, count, _KNOWN, lambda index: _KNOWN[flags[index] if index < len(flags) else 0]
    )
    window = fields.integer("sliding_window", "sliding_window_size")
    return _read(fields, trunk, types, (whole, cut, window), "mimo_v2_flash")


def _heads(fields: Fields, query: str, key: str, size: str, value_size: str) -> Heads:
    return Heads(
        num_attention_heads=fields.integer(query),
        num_key_value_heads=fields.integer(key),
        head_dim=fields.integer(size),
        v_head_dim=fields.integer(value_size),
    )


def read_step3p5(fields: Fields) -> Decoder:
    """
    Read the caches of Step 3.5 and 3.7.

    What attention_other_setting says is of windowed layers; draft layers are known if layer_types
    go on for them.
    """
    trunk = read_trunk(fields)
    whole = read_heads(fields, kv_keys=_GROUPS)
    other = fields.block("attention_other_setting")
    cut = _other_heads(other, whole) if other else whole
    if not fields.has("layer_types"):
        fields.vital("layer_types")
    count, drafts = trunk.num_hidden_layers.value, count_drafts(fields)
    told = len(fields.words("layer_types") or ()) >= count + drafts
    types = read_layer_types(fields, count + drafts * told, _KNOWN, lambda _: _KNOWN[0])
    window = fields.integer("sliding_window")
    decoder = _read(fields, trunk, types, (whole, cut, window), "step3p5")
    if not told:
        return decoder
    layers = decoder.layers
    return decoder._replace(layers=layers[:count], drafts=layers[count:], not_counted=())


def _other_heads(other: Fields, whole: Heads) -> Heads:
    """Read what windowed layers have of their own; the rest is as in the others."""
    size = other.optional("head_dim") or whole.head_dim
    return Heads(
        num_attention_heads=other.optional("num_attention_heads") or whole.num_attention_heads,
        num_key_value_heads=other.optional(*_GROUPS) or whole.num_key_value_heads,
        head_dim=size,
        v_head_dim=size,
    )


def read_laguna(fields: Fields) -> Decoder:
    """Read the caches of Laguna, whose query heads may differ from layer to layer."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    count = trunk.num_hidden_layers.value
    if not fields.has("layer_types"):
        fields.vital("layer_types")
    types = read_layer_types(fields, count, _KNOWN, lambda _: _KNOWN[0])
    window = fields.integer("sliding_window") if _KNOWN[1] in types else None
    queries = fields.integers("num_attention_heads_per_layer") or []
    decoder = _read(fields, trunk, types, (heads, heads, window), "laguna")
    layers = tuple(
        layer._replace(heads=heads._replace(num_attention_heads=query))
        for layer, query in zip(decoder.layers, queries, strict=False)
    )
    return decoder._replace(layers=layers + decoder.layers[len(layers) :])


def _read(
    fields: Fields,
    trunk: Trunk,
    types: list[str],
    parts: tuple[Heads, Heads, Sourced | None],
    family: str,
) -> Decoder:
    whole, cut, window = parts
    layers = tuple(
        Layer(cut, (), window=window) if kind == "sliding_attention" else Layer(whole, ())
        for kind in types
    )
    return Decoder(
        trunk,
        layers,
        (),
        unknown=f"the tensors of {family}, whose layout ringplan does not know",
        not_counted=unmodelled_drafts(fields),
    )
