"""A model, as far as its memory and its attention go: kinds of layers, and a list of tensors."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from ringplan.specs.base import Spec
from ringplan.specs.dtypes import Dtype, KvDtype

if TYPE_CHECKING:
    from collections.abc import Callable

Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrNone = Annotated[int, Field(ge=0, le=10**12)]

#: Who holds which part of a tensor: everyone all of it; tensor-parallel ranks a slice; those that
#: share attention a slice of its heads; the same, but at least one KV head; experts over the
#: expert-parallel ranks as well.
Split = Literal["none", "tensor", "heads", "kv", "expert"]


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
        For a tensor that exists once: ``first`` or ``last`` pipeline stage; ``draft`` for one that
        every draft layer has beside its layer, on the last stage; ``tied`` for a copy of what the
        first stage has, which a last stage needs that is not the first.
    """

    name: str
    shape: tuple[int, ...]
    split: Split = "tensor"
    kind: int | None = None
    quantized: bool = True
    stage: Literal["first", "last", "draft", "tied"] = "first"

    @property
    def parameters(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def embeds(self) -> bool:
        """Whether it is an embedding or the output head, a row a word."""
        return self.kind is None and len(self.shape) > 1 and self.stage != "draft"


class LayerKind(Spec):
    """
    One kind of layer: what it attends to, what it caches, how wide its MLP is.

    Layers of one kind differ in nothing that ringplan counts. A number that the config does not
    give is None where no cache depends on it.
    """

    num_attention_heads: CountOrNone | None = Field(
        description="Query heads; 0 is a layer without attention, None is not known."
    )
    num_key_value_heads: CountOrNone
    head_dim: CountOrNone = Field(description="Size of a query and key head.")
    v_head_dim: CountOrNone = Field(description="Size of a value head.")
    latent_dim: Count | None = Field(
        default=None, description="MLA: cached elements per token, in place of K and V heads."
    )
    latent_v_dim: Count | None = Field(
        default=None, description="MLA: elements of a partial output per head; kv_lora_rank."
    )
    indexer_dim: CountOrNone = Field(
        default=0, description="Elements of the indexer's key, cached beside; 0 is no indexer."
    )
    window: Count | None = Field(
        default=None,
        description="Tokens a sliding-window or chunked layer can see; None is all.",
    )
    compress_ratio: Count | None = Field(
        default=None,
        description="Tokens that share an entry of a compressed cache, which grows with the "
        "context beside the window; None is no such cache.",
    )
    caches: bool = Field(
        default=True, description="False for a layer that reads the cache of an earlier one."
    )
    state_heads: CountOrNone = Field(
        default=0, description="Heads of linear attention or a state-space layer; 0 is neither."
    )
    conv_state: CountOrNone = Field(
        default=0, description="Elements a sequence of the short convolution's state."
    )
    recurrent_state: CountOrNone = Field(
        default=0, description="Elements a sequence of the recurrent state."
    )
    mixer_width: CountOrNone = Field(
        default=0, description="Elements a token of a state layer's projections and output."
    )
    active_intermediate_size: CountOrNone | None = Field(
        description="MLP width that one token meets: all routed and shared experts added; 0 is "
        "no MLP, None is not known."
    )
    num_experts_per_tok: int = Field(default=0, ge=0, description="Routed experts; 0 is dense.")

    @property
    def query_heads(self) -> int:
        """Query heads; 0 without attention, and where they are not known."""
        return self.num_attention_heads or 0


class ModelSpec(Spec):
    """A model. Layers are few kinds in a pattern; every parameter is in the tensor list."""

    name: str
    hidden_size: Count | None
    vocab_size: Count | None
    num_hidden_layers: Annotated[int, Field(ge=1, le=10_000)]
    kinds: tuple[LayerKind, ...]
    pattern: tuple[int, ...] = Field(description="Kind of each layer, first layer first.")
    draft_pattern: tuple[int, ...] = Field(
        default=(), description="Kind of each draft (multi-token prediction) layer."
    )
    tensors: tuple[Tensor, ...]
    weights_dtype: Dtype = Field(description="Format of the published weights.")
    scale_bytes: Annotated[float, Field(ge=0, le=4)] = Field(
        default=0, description="Bytes of scales and zero points an element of quantised weights."
    )
    kv_dtype: KvDtype | None = Field(
        default=None, description="Format of the KV cache, where the checkpoint names one."
    )
    state_dtype: Dtype | None = Field(
        default=None, description="Format of recurrent states, where the config names one."
    )
    max_position_embeddings: Count | None = None
    unknown: tuple[str, ...] = Field(
        default=(), description="What the config lacks, so that only caches can be counted."
    )
    not_counted: tuple[str, ...] = Field(default=(), description="Parts that are left out.")

    @property
    def has_sinks(self) -> bool:
        """Whether attention has sinks: a learned share of each head that goes to no token."""
        return any(tensor.name.endswith("sinks") for tensor in self.tensors)

    @property
    def num_parameters(self) -> int:
        """All parameters but those of draft layers and of `not_counted`."""
        return self.parameters(0)

    def parameters(self, draft_layers: int) -> int:
        """All parameters with so many draft layers, but those of `not_counted`."""
        copies = self.copies(draft_layers)
        return sum(tensor.parameters * copies(tensor) for tensor in self.tensors)

    def active_parameters(self, draft_layers: int) -> int:
        """Parameters that one token meets: of routed experts, those it visits."""
        copies = self.copies(draft_layers)
        return sum(self.active(tensor) * copies(tensor) for tensor in self.tensors)

    def active(self, tensor: Tensor) -> int:
        """Parameters of one copy of a tensor that one token meets."""
        if tensor.split != "expert" or tensor.kind is None:
            return tensor.parameters
        visited = self.kinds[tensor.kind].num_experts_per_tok
        return tensor.parameters * visited // tensor.shape[0]

    def copies(self, draft_layers: int) -> Callable[[Tensor], int]:
        """Return how often the model has a tensor; a copy of a tied one is none."""
        layers = Counter(self.pattern + self.draft_pattern[:draft_layers])
        once = {"first": 1, "last": 1, "tied": 0, "draft": draft_layers}
        return lambda tensor: once[tensor.stage] if tensor.kind is None else layers[tensor.kind]
