"""GPT-2 and GPT BigCode: learned positions, LayerNorms and biases everywhere, a plain MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Decoder, Heads, Layer, Mlp, Trunk, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads
from ringplan.io.hf.tensors import linear, norm, output_head
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.tensors import Tensors


def read_gpt2(fields: Fields) -> Decoder:
    """Read GPT-2: as many K/V heads as query heads, or one if multi_query is true."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, kv_default=True, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    tensors = (
        *norm("ln_1", hidden, bias=True),
        *_attention(hidden, heads),
        *norm("ln_2", hidden, bias=True),
    )
    layer = Layer(heads, tensors, _mlp(fields, trunk))
    tied = fields.flag("tie_word_embeddings", default=True)
    layers = (layer,) * trunk.num_hidden_layers.value
    return Decoder(trunk, layers, _ends(fields, trunk, tied=tied))


def read_gpt_bigcode(fields: Fields) -> Decoder:
    """Read GPT BigCode, which always says whether its queries share one K/V head."""
    if not fields.has("multi_query") and not fields.has("num_key_value_heads"):
        fields.vital("multi_query")
    return read_gpt2(fields)


def _attention(hidden_size: int, heads: Heads) -> Tensors:
    """Return c_attn, which holds Q, K and V one after the other, in its three parts."""
    width = heads.num_attention_heads.value * heads.head_dim.value
    kv_width = heads.num_key_value_heads.value * heads.head_dim.value
    return (
        *linear("attn.c_attn.q", width, hidden_size, "heads", bias="heads"),
        *linear("attn.c_attn.k", kv_width, hidden_size, "kv", bias="kv"),
        *linear("attn.c_attn.v", kv_width, hidden_size, "kv", bias="kv"),
        *linear("attn.c_proj", hidden_size, width, "heads", bias="none"),
    )


def _mlp(fields: Fields, trunk: Trunk) -> Mlp:
    hidden = trunk.hidden_size
    width = fields.optional("intermediate_size", "n_inner")
    if width is None:
        rule = "4 * hidden_size, as the config has no n_inner"
        width = fields.derived(4 * hidden.value, rule, hidden)
    up = linear("mlp.c_fc", width.value, hidden.value, bias="tensor")
    down = linear("mlp.c_proj", hidden.value, width.value, bias="none")
    return Mlp(width, up + down)


def _ends(fields: Fields, trunk: Trunk, *, tied: bool) -> Tensors:
    """Return embeddings of tokens and of positions, final norm and head."""
    positions = trunk.max_position_embeddings or fields.integer("n_positions")
    hidden, shape = trunk.hidden_size.value, (trunk.vocab_size.value, trunk.hidden_size.value)
    return (
        Tensor("transformer.wte.weight", shape, quantized=False),
        # looked up by position, not by word: every tensor-parallel rank has all of them
        Tensor("transformer.wpe.weight", (positions.value, hidden), "none", quantized=False),
        *(each._replace(stage="last") for each in norm("transformer.ln_f", hidden, bias=True)),
        output_head(trunk, tied=tied),
    )
