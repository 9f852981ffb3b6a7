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
    hidden_size: int,
    heads: Heads,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    gated: bool = False,
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    inside: str = "self_attn",
) -> Tensors:
    """
    Return Q, K, V and output projection of grouped-query attention.

    Parameters
    ----------
    hidden_size, heads
        Sizes.
    qkv_bias, out_bias
        Which projections have biases.
    gated
        Whether a gate for each element of the output comes with the queries.
    names, inside
        What a family calls the projections, and the module that they are in.
    """
    query, key, value, out = (f"{inside}.{name}" for name in names)
    kv_heads, count = heads.num_key_value_heads.value, heads.num_attention_heads.value
    width = count * heads.head_dim.value * (2 if gated else 1)
    kv_bias: Split | None = "kv" if qkv_bias else None
    bias: Split | None = "heads" if qkv_bias else None
    # summed over ranks first, so that every rank adds the whole bias of the output
    whole: Split | None = "none" if out_bias else None
    return (
        *linear(query, width, hidden_size, "heads", bias=bias),
        *linear(key, kv_heads * heads.head_dim.value, hidden_size, "kv", bias=kv_bias),
        *linear(value, kv_heads * heads.v_head_dim.value, hidden_size, "kv", bias=kv_bias),
        *linear(out, hidden_size, count * heads.v_head_dim.value, "heads", bias=whole),
    )


def query_key_norms(heads: Heads, names: tuple[str, str] = ("q_norm", "k_norm")) -> Tensors:
    """Return the norms of one query and one key head, which all heads share."""
    size = heads.head_dim.value
    return norm(f"self_attn.{names[0]}", size) + norm(f"self_attn.{names[1]}", size)


def wide_query_key_norms(heads: Heads) -> Tensors:
    """Return the norms of all query heads and of all key heads, an element each."""
    query = heads.num_attention_heads.value * heads.head_dim.value
    key = heads.num_key_value_heads.value * heads.head_dim.value
    return (
        *(each._replace(split="heads") for each in norm("self_attn.q_norm", query)),
        *(each._replace(split="kv") for each in norm("self_attn.k_norm", key)),
    )


def gated_mlp(name: str, hidden_size: int, width: int, *, bias: bool = False) -> Tensors:
    """Return gate, up and down projection."""
    return (
        *linear(f"{name}.gate_proj", width, hidden_size, bias="tensor" if bias else None),
        *linear(f"{name}.up_proj", width, hidden_size, bias="tensor" if bias else None),
        *linear(f"{name}.down_proj", hidden_size, width, bias="none" if bias else None),
    )


def plain_mlp(
    hidden_size: int, width: int, names: tuple[str, str] = ("up_proj", "down_proj"), *, bias: bool
) -> Tensors:
    """Return up and down projection of an MLP without a gate."""
    up, down = (f"mlp.{name}" for name in names)
    return (
        *linear(up, width, hidden_size, bias="tensor" if bias else None),
        *linear(down, hidden_size, width, bias="none" if bias else None),
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


def ends(trunk: Trunk, *, tied: bool, norm_bias: bool = False) -> Tensors:
    """Return embeddings, final norm and, unless it is the embeddings again, the output head."""
    last = norm("model.norm", trunk.hidden_size.value, bias=norm_bias)
    shape = (trunk.vocab_size.value, trunk.hidden_size.value)
    return (
        Tensor("model.embed_tokens.weight", shape, quantized=False),
        *(each._replace(stage="last") for each in last),
        output_head(trunk, tied=tied),
    )


def output_head(trunk: Trunk, *, tied: bool) -> Tensor:
    """Return the output head; a tied one is a copy that only a stage without embeddings has."""
    shape = (trunk.vocab_size.value, trunk.hidden_size.value)
    return Tensor("lm_head.weight", shape, quantized=False, stage="tied" if tied else "last")
