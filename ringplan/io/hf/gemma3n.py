"""Gemma 3n: its last layers read the cache of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.parts import Decoder, Layer, Mlp, read_trunk
from ringplan.io.hf.readings import class_default, read_heads, read_layer_types

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields

#: What Gemma3nTextConfig of transformers has for a config without head_dim.
DEFAULT_HEAD_DIM: Final = 256
UNKNOWN: Final = "the tensors of gemma3n, whose layout ringplan does not know"


def read_gemma3n(fields: Fields) -> Decoder:
    """Read the caches of Gemma 3n: one layer of five sees everything."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: class_default(fields, "head_dim", DEFAULT_HEAD_DIM))
    mlp = Mlp(fields.missing("intermediate_size"), ())
    count = trunk.num_hidden_layers.value
    known = ("sliding_attention", "full_attention")
    types = read_layer_types(fields, count, known, lambda index: known[(index + 1) % 5 == 0])
    window = fields.integer("sliding_window")
    if not fields.has("num_kv_shared_layers"):
        fields.vital("num_kv_shared_layers")
    shared = fields.optional("num_kv_shared_layers", least=0)
    own = count - (shared.value if shared else 0)
    layers = tuple(
        Layer(heads, (), mlp, None if kind == known[1] else window, caches=index < own)
        for index, kind in enumerate(types)
    )
    return Decoder(trunk, layers, (), unknown=UNKNOWN)
