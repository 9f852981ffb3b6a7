"""DeepSeek's layers: multi-head latent attention, then a dense MLP or experts with shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.experts import read_dense_mlp, read_shared_mlp
from ringplan.io.hf.parts import Decoder, Heads, Layer, read_trunk
from ringplan.io.hf.tensors import ends, layer_norms, linear, norm

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Split


class _Latent(NamedTuple):
    """Sizes of latent attention."""

    heads: Sourced
    nope: Sourced
    rope: Sourced
    value: Sourced
    kv_rank: Sourced
    q_rank: Sourced | None


def read_deepseek_v2(fields: Fields) -> Decoder:
    """Read DeepSeek V2."""
    return _read(fields, correction=False)


def read_deepseek_v3(fields: Fields) -> Decoder:
    """Read DeepSeek V3 and R1, Kimi K2: the router has a correction bias."""
    return _read(fields, correction=True)


def _read(fields: Fields, *, correction: bool) -> Decoder:
    trunk = read_trunk(fields)
    hidden = trunk.hidden_size.value
    latent = _latent(fields)
    bias = fields.flag("attention_bias", default=False)
    tensors = _attention(hidden, latent, bias=bias) + layer_norms(hidden)
    routed = _routed_layers(fields, trunk.num_hidden_layers.value)
    experts = read_shared_mlp(fields, hidden, correction=correction)
    fields.optional("intermediate_size")
    dense = experts if all(routed) else read_dense_mlp(fields, hidden)
    heads = _heads(fields, latent)
    layers = tuple(Layer(heads, tensors, experts if each else dense) for each in routed)
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _latent(fields: Fields) -> _Latent:
    if not fields.has("q_lora_rank"):  # null is an answer: V2 Lite has none
        fields.integer("q_lora_rank")
    return _Latent(
        heads=fields.integer("num_attention_heads"),
        nope=fields.integer("qk_nope_head_dim"),
        rope=fields.integer("qk_rope_head_dim"),
        value=fields.integer("v_head_dim"),
        kv_rank=fields.integer("kv_lora_rank"),
        q_rank=fields.optional("q_lora_rank"),
    )


def _heads(fields: Fields, latent: _Latent) -> Heads:
    """Count the heads that the latent expands to; the cache holds the latent itself."""
    _, nope, rope, value, kv_rank, _ = latent
    size = fields.derived(
        nope.value + rope.value, "qk_nope_head_dim + qk_rope_head_dim", nope, rope
    )
    cached = fields.derived(
        kv_rank.value + rope.value, "kv_lora_rank + qk_rope_head_dim", kv_rank, rope
    )
    rule = "num_attention_heads, as latent attention expands to so many"
    return Heads(
        num_attention_heads=latent.heads,
        num_key_value_heads=fields.derived(latent.heads.value, rule, latent.heads),
        head_dim=size,
        v_head_dim=value,
        latent_dim=cached,
        latent_v_dim=kv_rank,
    )


def _attention(hidden_size: int, latent: _Latent, *, bias: bool) -> Tensors:
    """Return the projections down to the latents, which all ranks have, and up to the heads."""
    heads, rank, rope = latent.heads.value, latent.kv_rank.value, latent.rope.value
    down: Split | None = "none" if bias else None
    keys_values = heads * (latent.nope.value + latent.value.value)
    name = "self_attn.kv_a"
    return (
        *_queries(hidden_size, latent, bias=bias),
        *linear(f"{name}_proj_with_mqa", rank + rope, hidden_size, "none", bias=down),
        *norm(f"{name}_layernorm", rank),
        *linear("self_attn.kv_b_proj", keys_values, rank),
        *linear("self_attn.o_proj", hidden_size, heads * latent.value.value, bias=down),
    )


def _queries(hidden_size: int, latent: _Latent, *, bias: bool) -> Tensors:
    width = latent.heads.value * (latent.nope.value + latent.rope.value)
    if latent.q_rank is None:
        return linear("self_attn.q_proj", width, hidden_size)
    rank = latent.q_rank.value
    down = linear("self_attn.q_a_proj", rank, hidden_size, "none", bias="none" if bias else None)
    up = linear("self_attn.q_b_proj", width, rank)
    return down + norm("self_attn.q_a_layernorm", rank) + up


def _routed_layers(fields: Fields, layers: int) -> list[bool]:
    """Tell which layers have experts: after the first few dense ones, every n-th."""
    first = fields.integer("first_k_dense_replace", least=0).value
    step = fields.optional("moe_layer_freq")
    every = step.value if step else 1
    return [index >= first and index % every == 0 for index in range(layers)]
