"""Grouped-query attention, then a few dense layers and many of experts with shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.drafts import count_drafts, unmodelled_drafts, with_deepseek_drafts
from ringplan.io.hf.experts import (
    active_width,
    mixture,
    read_dense_mlp,
    read_experts,
    read_shared_mlp,
    shared_expert,
)
from ringplan.io.hf.parts import Layer, Mlp, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads, read_windows
from ringplan.io.hf.stack import stack
from ringplan.io.hf.tensors import layer_norms, projections, query_key_norms

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder


def read_glm4_moe(fields: Fields) -> Decoder:
    """Read GLM 4.5 to 4.7: norms on heads if the config says so, drafts as of DeepSeek V3."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden = trunk.hidden_size.value
    bias, normed = fields.decisive("attention_bias"), fields.decisive("use_qk_norm")
    tensors = (
        *projections(hidden, heads, qkv_bias=bias),
        *(query_key_norms(heads) if normed else ()),
        *layer_norms(hidden),
    )
    experts = read_shared_mlp(fields, hidden, correction=True)
    mlps = _after_dense(fields, hidden, trunk.num_hidden_layers.value, experts)
    decoder = stack(fields, trunk, heads, tensors, mlps)
    if not count_drafts(fields):
        return decoder
    return with_deepseek_drafts(fields, decoder, Layer(heads, tensors, experts))


def read_dots1(fields: Fields) -> Decoder:
    """Read dots.llm1: norms on heads; layer_types say which layers have a window."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    bias = fields.flag("attention_bias", default=False)
    tensors = (
        *projections(hidden, heads, qkv_bias=bias, out_bias=bias),
        *query_key_norms(heads),
        *layer_norms(hidden),
    )
    experts = read_shared_mlp(fields, hidden, correction=True)
    mlps = _after_dense(fields, hidden, count, experts)
    windows = read_windows(fields, count, lambda _: False) if fields.has("layer_types") else None
    return stack(fields, trunk, heads, tensors, mlps, windows=windows)


def read_ernie4_5_moe(fields: Fields) -> Decoder:
    """Read ERNIE 4.5 with experts: one switch for all biases but those of experts."""
    trunk = read_trunk(fields)
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    if fields.flag("use_bias", default=False):
        fields.note(f"{fields.place('use_bias')}: use_bias is true, which ringplan cannot lay out")
    tensors = projections(hidden, heads) + layer_norms(hidden)
    experts = _ernie_mlp(fields, hidden)
    first = fields.integer("moe_layer_start_index", least=0).value
    last = fields.optional("moe_layer_end_index")
    step = fields.optional("moe_layer_interval")
    every, end = step.value if step else 1, last.value if last else count - 1
    dense = read_dense_mlp(fields, hidden)
    mlps = tuple(
        experts if (index + 1) % every == 0 and first <= index <= end else dense
        for index in range(count)
    )
    decoder = stack(fields, trunk, heads, tensors, mlps, tied=True)
    return decoder._replace(not_counted=unmodelled_drafts(fields))


def _ernie_mlp(fields: Fields, hidden_size: int) -> Mlp:
    experts, visited = read_experts(
        fields, "moe_num_experts", "num_experts", visited_keys=("moe_k",)
    )
    width = fields.integer("moe_intermediate_size")
    count = fields.integer("moe_num_shared_experts", least=0)
    shared = fields.derived(count.value * width.value, "shared experts * width", count, width)
    routed = mixture(fields, hidden_size, experts, visited, width, correction=True)
    tensors = routed.tensors + shared_expert("mlp.shared_experts", hidden_size, shared.value)
    return Mlp(active_width(fields, visited, width, shared), tensors, visited)


def _after_dense(fields: Fields, hidden_size: int, layers: int, experts: Mlp) -> tuple[Mlp, ...]:
    """Give a plain MLP to the first few layers, experts to the others."""
    first = min(fields.integer("first_k_dense_replace", least=0).value, layers)
    fields.optional("intermediate_size")
    dense = read_dense_mlp(fields, hidden_size) if first else experts
    return (dense,) * first + (experts,) * (layers - first)
