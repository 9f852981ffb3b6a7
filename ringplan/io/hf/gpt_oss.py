"""gpt-oss: alternating windows, attention sinks, experts with biases and fused projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import active_width, read_experts
from ringplan.io.hf.parts import Decoder, Heads, Layer, Mlp, read_trunk
from ringplan.io.hf.readings import read_heads, read_windows
from ringplan.io.hf.tensors import ends, layer_norms, projections, router
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.tensors import Tensors


def read_gpt_oss(fields: Fields) -> Decoder:
    """Read gpt-oss; a config without layer_types alternates, the first layer with a window."""
    trunk = read_trunk(fields)
    heads = read_heads(fields)
    hidden = trunk.hidden_size.value
    windows = read_windows(fields, trunk.num_hidden_layers.value, lambda index: index % 2 == 0)
    bias = fields.flag("attention_bias", default=True)
    tensors = _attention(hidden, heads, bias=bias) + layer_norms(hidden)
    mlp = _mlp(fields, hidden)
    tied = fields.flag("tie_word_embeddings", default=False)
    layers = tuple(Layer(heads, tensors, mlp, window) for window in windows)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def _attention(hidden_size: int, heads: Heads, *, bias: bool) -> Tensors:
    """Return attention, which the published quantisation leaves in 16 bits, and its sinks."""
    weights = projections(hidden_size, heads, qkv_bias=bias, out_bias=bias)
    sinks = Tensor("self_attn.sinks", (heads.num_attention_heads.value,), "heads")
    return tuple(each._replace(quantized=False) for each in (*weights, sinks))


def _mlp(fields: Fields, hidden_size: int) -> Mlp:
    experts, visited = read_experts(fields, "num_local_experts")
    width = fields.integer("intermediate_size")
    tensors = _experts(experts.value, hidden_size, width.value)
    return Mlp(active_width(fields, visited, width), tensors, visited)


def _experts(count: int, hidden_size: int, width: int) -> Tensors:
    gate = router("mlp.router", count, hidden_size)
    name = "mlp.experts"
    return (
        gate,
        gate._replace(name="mlp.router.bias", shape=(count,)),
        Tensor(f"{name}.gate_up_proj", (count, hidden_size, 2 * width), "expert"),
        Tensor(f"{name}.gate_up_proj_bias", (count, 2 * width), "expert", quantized=False),
        Tensor(f"{name}.down_proj", (count, width, hidden_size), "expert"),
        Tensor(f"{name}.down_proj_bias", (count, hidden_size), "expert", quantized=False),
    )
