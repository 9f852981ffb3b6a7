"""What Gemma 4 has around attention: norms, embeddings of each layer, an MLP and experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.experts import active_width, read_experts
from ringplan.io.hf.parts import Mlp
from ringplan.io.hf.tensors import gated_experts, gated_mlp, layer_norms, linear, norm, router
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors


def read_nested(fields: Fields) -> Sourced | None:
    """Read the size of an embedding that each layer has for itself; None for 0."""
    name = "hidden_size_per_layer_input"
    size = fields.integer(name, least=0)
    return size if size.value else None


def surroundings(fields: Fields, trunk: Trunk) -> Tensors:
    """Return norms, the scalar that scales a layer, and what mixes in its own embedding."""
    hidden, nested = trunk.hidden_size.value, read_nested(fields)
    name = "per_layer"
    return (
        *layer_norms(hidden),
        *norm("pre_feedforward_layernorm", hidden),
        *norm("post_feedforward_layernorm", hidden),
        Tensor("layer_scalar", (1,), "none", quantized=False),
        *(linear(f"{name}_input_gate", nested.value, hidden, "none") if nested else ()),
        *(linear(f"{name}_projection", hidden, nested.value, "none") if nested else ()),
        *(norm(f"post_{name}_input_norm", hidden) if nested else ()),
    )


def embeddings(fields: Fields, trunk: Trunk, nested: Sourced | None) -> Tensors:
    """Return the embeddings of all layers, and what makes some of them of the model's own."""
    if nested is None or not nested.known:
        return ()
    words = fields.integer("vocab_size_per_layer_input")
    width = trunk.num_hidden_layers.value * nested.value
    hidden = trunk.hidden_size.value
    return (
        Tensor("embed_tokens_per_layer.weight", (words.value, width), quantized=False),
        Tensor("per_layer_model_projection.weight", (width, hidden), "none", quantized=False),
        *norm("per_layer_projection_norm", nested.value),
    )


def read_mlp(fields: Fields, trunk: Trunk, *, caches: bool) -> Mlp:
    """Read the MLP, which may be twice as wide in layers without a cache, and experts if any."""
    hidden, width = trunk.hidden_size.value, fields.integer("intermediate_size")
    if fields.flag("use_double_wide_mlp", default=False) and not caches:
        rule = "2 * intermediate_size, as use_double_wide_mlp is true"
        width = fields.derived(2 * width.value, rule, width)
    plain = gated_mlp("mlp", hidden, width.value)
    if not fields.flag("enable_moe_block", default=False):
        return Mlp(width, plain)
    experts, visited = read_experts(fields, "num_experts", visited_keys=("top_k_experts",))
    each = fields.integer("moe_intermediate_size")
    gate = router("router.proj", experts.value, hidden)
    tensors = (
        *plain,
        gate,
        gate._replace(name="router.scale", shape=(hidden,)),
        gate._replace(name="router.per_expert_scale", shape=(experts.value,)),
        *gated_experts("experts", experts.value, hidden, each.value),
        *norm("post_feedforward_layernorm_1", hidden),
        *norm("post_feedforward_layernorm_2", hidden),
        *norm("pre_feedforward_layernorm_2", hidden),
    )
    return Mlp(active_width(fields, visited, each, width), tensors, visited)
