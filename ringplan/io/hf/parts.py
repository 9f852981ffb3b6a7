"""What a family's reader returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.fields import Fields, Sourced

if TYPE_CHECKING:
    from ringplan.specs.model import Tensor


class Trunk(NamedTuple):
    """Sizes of the whole model."""

    hidden_size: Sourced
    vocab_size: Sourced
    num_hidden_layers: Sourced
    max_position_embeddings: Sourced | None


class Heads(NamedTuple):
    """Heads of an attention layer."""

    num_attention_heads: Sourced
    num_key_value_heads: Sourced
    head_dim: Sourced
    v_head_dim: Sourced
    latent_dim: Sourced | None = None
    latent_v_dim: Sourced | None = None
    indexer_dim: Sourced | None = None


class Mlp(NamedTuple):
    """What follows attention in a layer: width that one token meets, and tensors."""

    active_intermediate_size: Sourced
    tensors: tuple[Tensor, ...]
    num_experts_per_tok: Sourced | None = None


class State(NamedTuple):
    """What a layer of linear attention or a state-space layer keeps of a sequence."""

    state_heads: Sourced
    conv_state: Sourced
    recurrent_state: Sourced
    mixer_width: Sourced


class Layer(NamedTuple):
    """
    One layer, with the tensors of all but its MLP; equal layers are of one kind.

    Attributes
    ----------
    heads, mlp, state
        What the layer has; None for what it lacks.
    tensors
        Tensors of attention or state, and norms.
    window, compress_ratio
        What it caches of the context, where that is not all.
    caches
        Whether it has a cache of its own.
    """

    heads: Heads | None
    tensors: tuple[Tensor, ...]
    mlp: Mlp | None = None
    window: Sourced | None = None
    compress_ratio: Sourced | None = None
    state: State | None = None
    caches: bool = True


class Decoder(NamedTuple):
    """
    A model as its family reads it.

    Attributes
    ----------
    trunk, layers
        Sizes, and each layer.
    ends
        Tensors outside of layers.
    drafts, draft_tensors
        Draft layers, and what each of them has beside its layer.
    unknown
        Why the tensors are not known; empty where they are.
    not_counted
        Parts of the model that are left out.
    """

    trunk: Trunk
    layers: tuple[Layer, ...]
    ends: tuple[Tensor, ...]
    drafts: tuple[Layer, ...] = ()
    draft_tensors: tuple[Tensor, ...] = ()
    unknown: str = ""
    not_counted: tuple[str, ...] = ()


Reader = Callable[[Fields], Decoder]


def read_trunk(fields: Fields) -> Trunk:
    """Read the sizes of the whole model, by today's names or GPT-2's."""
    return Trunk(
        hidden_size=fields.integer("hidden_size", "n_embd"),
        vocab_size=fields.integer("vocab_size", "padded_vocab_size"),
        num_hidden_layers=fields.integer("num_hidden_layers", "n_layer", most=10_000),
        max_position_embeddings=fields.optional("max_position_embeddings", "n_positions", "n_ctx"),
    )
