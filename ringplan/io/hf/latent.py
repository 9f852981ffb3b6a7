"""Multi-head latent attention: the cache holds a latent, which expands to keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.parts import Heads
from ringplan.io.hf.tensors import linear, norm

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Split


class Latent(NamedTuple):
    """Sizes of latent attention."""

    heads: Sourced
    nope: Sourced
    rope: Sourced
    value: Sourced
    kv_rank: Sourced
    q_rank: Sourced | None


def read_latent(fields: Fields) -> Latent:
    """Read the sizes of latent attention."""
    if not fields.has("q_lora_rank"):  # null is an answer: V2 Lite has none
        fields.vital("q_lora_rank")
    return Latent(
        heads=fields.integer("num_attention_heads"),
        nope=fields.integer("qk_nope_head_dim"),
        rope=fields.integer("qk_rope_head_dim"),
        value=fields.integer("v_head_dim"),
        kv_rank=fields.integer("kv_lora_rank"),
        q_rank=fields.optional("q_lora_rank"),
    )


def latent_heads(fields: Fields, latent: Latent) -> Heads:
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


def latent_attention(hidden_size: int, latent: Latent, *, bias: bool) -> Tensors:
    """Return the projections down to the latents, which all ranks have, and up to the heads."""
    heads, rank, rope = latent.heads.value, latent.kv_rank.value, latent.rope.value
    down: Split | None = "none" if bias else None
    keys_values = heads * (latent.nope.value + latent.value.value)
    width = heads * latent.value.value
    name = "self_attn.kv_a"
    return (
        *_queries(hidden_size, latent, bias=bias),
        *linear(f"{name}_proj_with_mqa", rank + rope, hidden_size, "none", bias=down),
        *norm(f"{name}_layernorm", rank),
        *linear("self_attn.kv_b_proj", keys_values, rank, "heads"),
        *linear("self_attn.o_proj", hidden_size, width, "heads", bias=down),
    )


def _queries(hidden_size: int, latent: Latent, *, bias: bool) -> Tensors:
    width = latent.heads.value * (latent.nope.value + latent.rope.value)
    if latent.q_rank is None:
        return linear("self_attn.q_proj", width, hidden_size, "heads")
    rank = latent.q_rank.value
    down = linear("self_attn.q_a_proj", rank, hidden_size, "none", bias="none" if bias else None)
    up = linear("self_attn.q_b_proj", width, rank, "heads")
    return down + norm("self_attn.q_a_layernorm", rank) + up
