"""Shapes of the tensors that families have in common, by Hugging Face's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.parts import Heads, Trunk
    from ringplan.specs.model import Split

Tensors = tuple[Tensor, ...]


def linear(
    name: str, outputs: int, inputs: int, split: Split = "tensor", *, bias: Split | None = None
) -> Tensors:
    """
    Return the weight of a linear layer and, if it says how ranks share it, its bias.

    >>> [tensor.shape for tensor in linear("o_proj", 4096, 8192, bias="none")]
    [(4096, 8192), (4096,)]
    """
    weight = Tensor(f"{name}.weight", (outputs, inputs), split)
    if bias is None:
        return (weight,)
    return (weight, Tensor(f"{name}.bias", (outputs,), bias, quantized=False))


def norm(name: str, size: int, *, bias: bool = False) -> Tensors:
    """Return the weight of a norm, and its bias if it is a LayerNorm with one."""
    parts = ("weight", "bias") if bias else ("weight",)
    return tuple(Tensor(f"{name}.{part}", (size,), "none", quantized=False) for part in parts)


def layer_norms(hidden_size: int) -> Tensors:
    """Return the two norms of a layer."""
    return norm("input_layernorm", hidden_size) + norm("post_attention_layernorm", hidden_size)


def projections(
    hidden_size: int, heads: Heads, *, qkv_bias: bool = False, out_bias: bool = False
) -> Tensors:
    """Return Q, K, V and output projection of grouped-query attention."""
    width = heads.num_attention_heads.value * heads.head_dim.value
    kv_width = heads.num_key_value_heads.value * heads.head_dim.value
    kv_bias: Split | None = "kv" if qkv_bias else None
    return (
        *linear("self_attn.q_proj", width, hidden_size, bias="tensor" if qkv_bias else None),
        *linear("self_attn.k_proj", kv_width, hidden_size, "kv", bias=kv_bias),
        *linear("self_attn.v_proj", kv_width, hidden_size, "kv", bias=kv_bias),
        # summed over ranks first, so that every rank adds the whole bias
        *linear("self_attn.o_proj", hidden_size, width, bias="none" if out_bias else None),
    )


def query_key_norms(heads: Heads) -> Tensors:
    """Return the norms of one query and one key head, which all heads share."""
    size = heads.head_dim.value
    return norm("self_attn.q_norm", size) + norm("self_attn.k_norm", size)


def gated_mlp(name: str, hidden_size: int, width: int, *, bias: bool = False) -> Tensors:
    """Return gate, up and down projection."""
    return (
        *linear(f"{name}.gate_proj", width, hidden_size, bias="tensor" if bias else None),
        *linear(f"{name}.up_proj", width, hidden_size, bias="tensor" if bias else None),
        *linear(f"{name}.down_proj", hidden_size, width, bias="none" if bias else None),
    )


def router(name: str, experts: int, hidden_size: int) -> Tensor:
    """Return the gate that chooses experts; every rank has it, in 16 bits."""
    return Tensor(f"{name}.weight", (experts, hidden_size), "none", quantized=False)


def gated_experts(
    name: str,
    count: int,
    hidden_size: int,
    width: int,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Tensors:
    """Return gate, up and down projection of all routed experts."""
    gate, up, down = names
    return (
        Tensor(f"{name}.{gate}.weight", (count, width, hidden_size), "expert"),
        Tensor(f"{name}.{up}.weight", (count, width, hidden_size), "expert"),
        Tensor(f"{name}.{down}.weight", (count, hidden_size, width), "expert"),
    )


def ends(trunk: Trunk, *, tied: bool) -> Tensors:
    """Return embeddings, final norm and, unless it is the embeddings again, the output head."""
    shape = (trunk.vocab_size.value, trunk.hidden_size.value)
    head = Tensor("lm_head.weight", shape, quantized=False, stage="last")
    return (
        Tensor("model.embed_tokens.weight", shape, quantized=False),
        *(each._replace(stage="last") for each in norm("model.norm", trunk.hidden_size.value)),
        *(() if tied else (head,)),
    )
