"""DeepSeek V4: keys that are also the values, in a window and compressed beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.drafts import count_drafts, unmodelled_drafts
from ringplan.io.hf.parts import Decoder, Heads, Layer, read_trunk

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced

#: Layers that compress so many tokens to one choose among the entries by an indexer.
INDEXED_RATIO: Final = 4
UNKNOWN: Final = "the tensors of deepseek_v4, whose layout ringplan does not know"


def read_deepseek_v4(fields: Fields) -> Decoder:
    """Read the caches of DeepSeek V4; draft layers take the rest of compress_ratios."""
    trunk = read_trunk(fields)
    count, drafts = trunk.num_hidden_layers.value, count_drafts(fields)
    heads = _heads(fields)
    window = fields.integer("sliding_window")
    indexer = fields.integer("index_head_dim")
    ratios = _ratios(fields, count)
    told = len(ratios) >= count + drafts
    layers = tuple(_layer(heads, window, ratio, indexer) for ratio in ratios[: count + drafts])
    return Decoder(
        trunk,
        layers[:count],
        (),
        drafts=layers[count:] if told else (),
        unknown=UNKNOWN,
        not_counted=() if told else unmodelled_drafts(fields),
    )


def _heads(fields: Fields) -> Heads:
    """Read the query heads, and the one entry of a token that they share."""
    size = fields.integer("head_dim")
    return Heads(
        num_attention_heads=fields.integer("num_attention_heads"),
        num_key_value_heads=fields.integer("num_key_value_heads"),
        head_dim=size,
        v_head_dim=size,
        latent_dim=size,
        latent_v_dim=size,
    )


def _ratios(fields: Fields, layers: int) -> list[Sourced | None]:
    """Read how many tokens share an entry in each layer; 0 is a layer with a window only."""
    ratios = fields.integers("compress_ratios", least=0)
    if ratios is None:
        fields.vital("compress_ratios")
        return [None] * layers
    fields.count("compress_ratios", len(ratios), layers)
    found = [ratio if ratio.value else None for ratio in ratios]
    return found + [None] * (layers - len(found))


def _layer(heads: Heads, window: Sourced, ratio: Sourced | None, indexer: Sourced) -> Layer:
    indexed = ratio is not None and ratio.value == INDEXED_RATIO
    seen = heads._replace(indexer_dim=indexer) if indexed else heads
    return Layer(seen, (), window=window, compress_ratio=ratio)
