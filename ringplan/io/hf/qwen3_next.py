"""Qwen 3 Next and 3.5: three layers of linear attention, then one of gated full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.delta import delta_state, delta_tensors, read_delta
from ringplan.io.hf.drafts import with_qwen_drafts
from ringplan.io.hf.experts import read_dense_mlp
from ringplan.io.hf.moe import read_gated_shared_mlp, some_routed
from ringplan.io.hf.parts import Decoder, Layer, read_trunk
from ringplan.io.hf.readings import class_default, read_heads, read_layer_types
from ringplan.io.hf.tensors import ends, layer_norms, projections, query_key_norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Mlp, Trunk

#: What the config classes of transformers have for a config without full_attention_interval.
DEFAULT_INTERVAL: Final = 4


def read_qwen3_next(fields: Fields) -> Decoder:
    """Read Qwen 3 Next: experts with a shared one, in all layers or some."""
    trunk = read_trunk(fields)
    hidden = trunk.hidden_size.value
    experts = read_gated_shared_mlp(fields, hidden)
    mlps = some_routed(fields, hidden, trunk.num_hidden_layers.value, experts)
    return _read(fields, trunk, mlps, experts)


def read_qwen3_5(fields: Fields) -> Decoder:
    """Read dense Qwen 3.5."""
    trunk = read_trunk(fields)
    mlp = read_dense_mlp(fields, trunk.hidden_size.value)
    return _read(fields, trunk, (mlp,) * trunk.num_hidden_layers.value, mlp)


def read_qwen3_5_moe(fields: Fields) -> Decoder:
    """Read Qwen 3.5 with experts in all layers."""
    trunk = read_trunk(fields)
    mlp = read_gated_shared_mlp(fields, trunk.hidden_size.value)
    return _read(fields, trunk, (mlp,) * trunk.num_hidden_layers.value, mlp)


def _read(fields: Fields, trunk: Trunk, mlps: Sequence[Mlp], drafting: Mlp) -> Decoder:
    linear, full = _linear_layer(fields, trunk), _full_layer(fields, trunk)
    types = _types(fields, trunk.num_hidden_layers.value)
    layers = tuple(
        (full if kind == "full_attention" else linear)._replace(mlp=mlp)
        for kind, mlp in zip(types, mlps, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    decoder = Decoder(trunk, layers, ends(trunk, tied=tied))
    return with_qwen_drafts(fields, decoder, full._replace(mlp=drafting))


def _types(fields: Fields, layers: int) -> list[str]:
    interval = class_default(fields, "full_attention_interval", DEFAULT_INTERVAL).value
    known = ("linear_attention", "full_attention")
    return read_layer_types(fields, layers, known, lambda index: known[(index + 1) % interval == 0])


def _linear_layer(fields: Fields, trunk: Trunk) -> Layer:
    delta, hidden = read_delta(fields), trunk.hidden_size.value
    tensors = delta_tensors(hidden, delta) + layer_norms(hidden)
    return Layer(None, tensors, state=delta_state(fields, delta))


def _full_layer(fields: Fields, trunk: Trunk) -> Layer:
    """Read attention that has a gate for each element of its output."""
    heads, hidden = read_heads(fields), trunk.hidden_size.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias, gated=True),
        *query_key_norms(heads),
        *layer_norms(hidden),
    )
    return Layer(heads, tensors)
