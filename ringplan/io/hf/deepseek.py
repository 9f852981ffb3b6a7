"""DeepSeek's layers: multi-head latent attention, then a dense MLP or experts with shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.drafts import count_drafts, with_deepseek_drafts
from ringplan.io.hf.experts import read_dense_mlp, read_shared_mlp
from ringplan.io.hf.indexer import indexed_layers, read_indexer
from ringplan.io.hf.latent import latent_attention, latent_heads, read_latent
from ringplan.io.hf.parts import Decoder, Layer, read_trunk
from ringplan.io.hf.tensors import ends, layer_norms

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Heads
    from ringplan.io.hf.tensors import Tensors

#: The heads and tensors of one layer's attention.
Attention = tuple["Heads", "Tensors"]


def read_deepseek_v2(fields: Fields) -> Decoder:
    """Read DeepSeek V2."""
    return _read(fields, correction=False, indexed=False)


def read_deepseek_v3(fields: Fields) -> Decoder:
    """Read DeepSeek V3 and R1, Kimi K2: the router has a correction bias."""
    return _read(fields, correction=True, indexed=False)


def read_deepseek_v32(fields: Fields) -> Decoder:
    """Read DeepSeek V3.2 and GLM 5: an indexer chooses what attention looks at."""
    return _read(fields, correction=True, indexed=True)


def _read(fields: Fields, *, correction: bool, indexed: bool) -> Decoder:
    trunk = read_trunk(fields)
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    latent = read_latent(fields)
    bias = fields.flag("attention_bias", default=False)
    tensors = latent_attention(hidden, latent, bias=bias) + layer_norms(hidden)
    plain: Attention = (latent_heads(fields, latent), tensors)
    full = _indexed(fields, plain, hidden) if indexed else plain
    routed = _routed_layers(fields, count)
    experts = read_shared_mlp(fields, hidden, correction=correction)
    fields.optional("intermediate_size")
    dense = experts if all(routed) else read_dense_mlp(fields, hidden)
    own = indexed_layers(fields, count) if indexed else [True] * count
    layers = tuple(
        Layer(*(full if has_indexer else plain), experts if each else dense)
        for has_indexer, each in zip(own, routed, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    decoder = Decoder(trunk, layers, ends(trunk, tied=tied))
    if not count_drafts(fields):
        return decoder
    return with_deepseek_drafts(fields, decoder, Layer(*full, experts))


def _indexed(fields: Fields, plain: Attention, hidden_size: int) -> Attention:
    """Add the indexer to a layer's attention."""
    heads, tensors = plain
    size, more = read_indexer(fields, hidden_size)
    return heads._replace(indexer_dim=size), tensors + more


def _routed_layers(fields: Fields, layers: int) -> list[bool]:
    """Tell which layers have experts: after the first few dense ones, every n-th."""
    first = fields.integer("first_k_dense_replace", least=0).value
    step = fields.optional("moe_layer_freq")
    every = step.value if step else 1
    return [index >= first and index % every == 0 for index in range(layers)]
