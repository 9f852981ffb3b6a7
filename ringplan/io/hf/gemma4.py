"""Gemma 4: global layers with heads of their own, and layers that read an earlier one's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.io.hf.gemma4_parts import embeddings, read_mlp, read_nested, surroundings
from ringplan.io.hf.parts import Decoder, Heads, Layer, read_trunk
from ringplan.io.hf.readings import class_default, read_layer_types
from ringplan.io.hf.tensors import ends, norm, projections

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors

#: What the config classes of transformers have for a config without these.
DEFAULT_HEAD_DIM: Final = 256
DEFAULT_GLOBAL_HEAD_DIM: Final = 512
_KNOWN: Final = ("sliding_attention", "full_attention")


class _Kind(NamedTuple):
    """What tells layers apart."""

    whole: bool
    caches: bool


def read_gemma4(fields: Fields) -> Decoder:
    """Read Gemma 4: one layer of six sees everything."""
    trunk = read_trunk(fields)
    count = trunk.num_hidden_layers.value
    types = read_layer_types(fields, count, _KNOWN, lambda index: _KNOWN[(index + 1) % 6 == 0])
    shared = fields.optional("num_kv_shared_layers", least=0)
    own = count - (shared.value if shared else 0)
    kinds = [_Kind(kind == _KNOWN[1], index < own) for index, kind in enumerate(types)]
    window = fields.integer("sliding_window")
    made = {kind: _layer(fields, trunk, kind, window) for kind in dict.fromkeys(kinds)}
    tied = fields.flag("tie_word_embeddings", default=True)
    nested = read_nested(fields)
    tensors = ends(trunk, tied=tied) + embeddings(fields, trunk, nested)
    return Decoder(trunk, tuple(made[kind] for kind in kinds), tensors)


def _layer(fields: Fields, trunk: Trunk, kind: _Kind, window: Sourced) -> Layer:
    heads = _heads(fields, whole=kind.whole)
    tensors = _attention(fields, trunk, heads, kind) + surroundings(fields, trunk)
    mlp = read_mlp(fields, trunk, caches=kind.caches)
    return Layer(heads, tensors, mlp, None if kind.whole else window, caches=kind.caches)


def _heads(fields: Fields, *, whole: bool) -> Heads:
    """Read the heads of a windowed layer, or of one that sees everything."""
    query = fields.integer("num_attention_heads")
    key = fields.integer("num_key_value_heads")
    size = class_default(fields, "head_dim", DEFAULT_HEAD_DIM)
    if whole:
        size = class_default(fields, "global_head_dim", DEFAULT_GLOBAL_HEAD_DIM)
        alike = fields.flag("attention_k_eq_v", default=True)
        key = (fields.optional("num_global_key_value_heads") if alike else None) or key
    return Heads(query, key, size, size)


def _attention(fields: Fields, trunk: Trunk, heads: Heads, kind: _Kind) -> Tensors:
    """Return the projections; global layers may have keys for values, others no keys at all."""
    bias = fields.flag("attention_bias", default=False)
    alike = fields.decisive("attention_k_eq_v") and kind.whole
    hidden, size = trunk.hidden_size.value, heads.head_dim.value
    without = ("k_proj", "v_proj") if not kind.caches else ("v_proj",) if alike else ()
    weights = projections(hidden, heads, qkv_bias=bias, out_bias=bias)
    return (
        *(each for each in weights if each.name.split(".")[1] not in without),
        *norm("self_attn.q_norm", size),
        *(norm("self_attn.k_norm", size) if kind.caches else ()),
    )
