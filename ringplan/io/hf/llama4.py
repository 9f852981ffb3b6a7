"""Llama 4: three layers of four see a chunk only; experts with a shared one in some or all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import active_width, read_experts, shared_expert
from ringplan.io.hf.parts import Mlp, read_trunk
from ringplan.io.hf.readings import read_heads, read_layer_types, share_if_null
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import gated_experts, gated_mlp, layer_norms, projections, router

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Decoder


def read_llama4(fields: Fields) -> Decoder:
    """Read Llama 4; a chunk is a window that starts anew."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: share_if_null(fields))
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    bias = fields.flag("attention_bias", default=False)
    tensors = projections(hidden, heads, qkv_bias=bias, out_bias=bias) + layer_norms(hidden)
    mlps = _mlps(fields, hidden, count)
    windows = _chunks(fields, count)
    return stack(fields, trunk, heads, tensors, mlps, windows=windows)


def _chunks(fields: Fields, layers: int) -> list[Sourced | None]:
    """Read which layers see their chunk only: those with rotary positions."""
    if not fields.has("attention_chunk_size"):  # null is an answer: all layers see everything
        fields.vital("attention_chunk_size")
    size = fields.optional("attention_chunk_size")
    interval = fields.optional("no_rope_layer_interval")
    step = interval.value if interval else 4
    rope = fields.integers("no_rope_layers", least=0, most=1) or []
    fields.count("no_rope_layers", len(rope) or layers, layers)

    def default(index: int) -> str:
        chunked = rope[index].value if index < len(rope) else (index + 1) % step
        return "chunked_attention" if chunked and size else "full_attention"

    known = ("full_attention", "chunked_attention")
    types = read_layer_types(fields, layers, known, default)
    return [size if kind == "chunked_attention" else None for kind in types]


def _mlps(fields: Fields, hidden_size: int, layers: int) -> tuple[Mlp, ...]:
    """Read which layers have experts: those that are listed, or every n-th."""
    listed = fields.integers("moe_layers", least=0)
    interleave = fields.optional("interleave_moe_layer_step")
    step = interleave.value if interleave else 1
    chosen = {item.value for item in listed} if listed else set(range(step - 1, layers, step))
    experts = _experts(fields, hidden_size)
    fields.optional("intermediate_size_mlp")
    dense = experts if len(chosen) == layers else _dense(fields, hidden_size)
    return tuple(experts if index in chosen else dense for index in range(layers))


def _dense(fields: Fields, hidden_size: int) -> Mlp:
    width = fields.integer("intermediate_size_mlp")
    return Mlp(width, gated_mlp("feed_forward", hidden_size, width.value))


def _experts(fields: Fields, hidden_size: int) -> Mlp:
    """Read routed experts and the shared one, all of one width."""
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    name = "feed_forward"
    tensors = (
        router(f"{name}.router", experts.value, hidden_size),
        *gated_experts(f"{name}.experts", experts.value, hidden_size, width.value),
        *shared_expert(f"{name}.shared_expert", hidden_size, width.value),
    )
    return Mlp(active_width(fields, visited, width, width), tensors, visited)
