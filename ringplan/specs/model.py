"""A model, as far as its memory and its attention go: kinds of layers, and a list of tensors."""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from ringplan.specs.base import Spec
from ringplan.specs.dtypes import Dtype

Count = Annotated[int, Field(ge=1, le=10**9)]

#: Who holds which part of a tensor: everyone all of it; tensor-parallel ranks a slice; the same,
#: but a slice is at least one KV head; experts over the expert-parallel ranks as well.
Split = Literal["none", "tensor", "kv", "expert"]


class Tensor(NamedTuple):
    """
    One parameter tensor, or one of every layer of a kind.

    Attributes
    ----------
    name
        Where it sits, in Hugging Face's words.
    shape
        Its size; experts are a leading dimension.
    split
        How ranks share it.
    kind
        Index of the layer kind that has one each; None for a tensor that exists once.
    quantized
        False for a tensor that stays in 16 bits when the model's weights are quantised.
    stage
        For a tensor that exists once: ``first`` or ``last`` pipeline stage.
    """

    name: str
    shape: tuple[int, ...]
    split: Split = "tensor"
    kind: int | None = None
    quantized: bool = True
    stage: Literal["first", "last"] = "first"

    @property
    def parameters(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


class LayerKind(Spec):
    """
    One kind of layer: what it attends to, what it caches, how wide its MLP is.

    Layers of one kind differ in nothing that ringplan counts.
    """

    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count = Field(description="Size of a query and key head.")
    v_head_dim: Count = Field(description="Size of a value head.")
    latent_dim: Count | None = Field(
        default=None, description="MLA: cached elements per token, in place of K and V heads."
    )
    latent_v_dim: Count | None = Field(
        default=None, description="MLA: elements of a partial output per head; kv_lora_rank."
    )
    window: Count | None = Field(
        default=None, description="Tokens a sliding-window layer can see; None is all."
    )
    active_intermediate_size: Count = Field(
        description="MLP width that one token meets: all routed and shared experts added."
    )
    num_experts_per_tok: int = Field(default=0, ge=0, description="Routed experts; 0 is dense.")


class ModelSpec(Spec):
    """A model. Layers are few kinds in a pattern; every parameter is in the tensor list."""

    name: str
    hidden_size: Count
    vocab_size: Count
    num_hidden_layers: Annotated[int, Field(ge=1, le=10_000)]
    kinds: tuple[LayerKind, ...]
    pattern: tuple[int, ...] = Field(description="Kind of each layer, first layer first.")
    tensors: tuple[Tensor, ...]
    weights_dtype: Dtype = Field(description="Format of the published weights.")
    max_position_embeddings: Count | None = None
    not_counted: tuple[str, ...] = Field(default=(), description="Parts that are left out.")

    @property
    def num_parameters(self) -> int:
        """All parameters but those of `not_counted`."""
        return sum(
            tensor.parameters * (1 if tensor.kind is None else self.pattern.count(tensor.kind))
            for tensor in self.tensors
        )
