"""What a family's reader returns, and the readings that families have in common."""

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


class Mlp(NamedTuple):
    """What follows attention in a layer: width that one token meets, and tensors."""

    active_intermediate_size: Sourced
    tensors: tuple[Tensor, ...]
    num_experts_per_tok: Sourced | None = None


class Layer(NamedTuple):
    """One layer, with the tensors of attention and norms; equal layers are of one kind."""

    heads: Heads
    tensors: tuple[Tensor, ...]
    mlp: Mlp
    window: Sourced | None = None


class Decoder(NamedTuple):
    """A model as its family reads it: sizes, each layer, and the tensors outside of layers."""

    trunk: Trunk
    layers: tuple[Layer, ...]
    ends: tuple[Tensor, ...]


Reader = Callable[[Fields], Decoder]


def read_trunk(fields: Fields) -> Trunk:
    """Read the sizes of the whole model, by today's names or GPT-2's."""
    return Trunk(
        hidden_size=fields.integer("hidden_size", "n_embd"),
        vocab_size=fields.integer("vocab_size"),
        num_hidden_layers=fields.integer("num_hidden_layers", "n_layer", most=10_000),
        max_position_embeddings=fields.optional("max_position_embeddings", "n_positions", "n_ctx"),
    )


def read_heads(
    fields: Fields, *, kv_default: bool = False, head_dim: Callable[[], Sourced] | None = None
) -> Heads:
    """
    Read the heads of multi-head, grouped-query or multi-query attention.

    Parameters
    ----------
    fields
        The config.
    kv_default
        Whether a config without K/V heads has as many as query heads.
    head_dim
        What a config without head_dim means; None if the family always says it.
    """
    heads = fields.integer("num_attention_heads", "n_head")
    size = (fields.optional("head_dim") or head_dim()) if head_dim else fields.integer("head_dim")
    kv_heads = _kv_heads(fields, heads, kv_default=kv_default)
    if heads.value % kv_heads.value:
        fields.conflict(
            f"num_attention_heads {heads.value} is not a multiple of num_key_value_heads "
            f"{kv_heads.value}"
        )
    return Heads(heads, kv_heads, size, size)


def _kv_heads(fields: Fields, heads: Sourced, *, kv_default: bool) -> Sourced:
    single = fields.flag("multi_query", default=False)
    if not single and not kv_default:
        return fields.integer("num_key_value_heads")
    given = fields.optional("num_key_value_heads")
    if given is not None:
        return given
    if single:
        return Sourced(1, fields.origin("multi_query"))
    rule = "num_attention_heads, as the config has no num_key_value_heads"
    return fields.derived(heads.value, rule, heads)


def equal_share(fields: Fields) -> Sourced:
    """Share the hidden size among the heads, for a config without head_dim."""
    hidden = fields.integer("hidden_size", "n_embd")
    heads = fields.integer("num_attention_heads", "n_head")
    if hidden.value % heads.value:
        fields.conflict(
            f"hidden_size {hidden.value} is not a multiple of num_attention_heads {heads.value}, "
            "and head_dim is missing"
        )
    rule = "hidden_size / num_attention_heads, as the config has no head_dim"
    return fields.derived(max(hidden.value // heads.value, 1), rule, hidden, heads)


def read_windows(
    fields: Fields, layers: int, slides: Callable[[int], bool]
) -> tuple[Sourced | None, ...]:
    """
    Read the sliding window of each layer.

    Parameters
    ----------
    fields
        The config.
    layers
        Layers of the model.
    slides
        Whether a layer, by its index, has a window if the config has no layer_types.
    """
    types = fields.words("layer_types")
    sliding = [slides(index) for index in range(layers)]
    if types is not None:
        sliding = _sliding(fields, types, layers)
    size = fields.integer("sliding_window") if any(sliding) else fields.optional("sliding_window")
    return tuple(size if slide else None for slide in sliding)


def _sliding(fields: Fields, types: tuple[str, ...], layers: int) -> list[bool]:
    # draft layers may follow: more types than layers are fine
    if len(types) < layers:
        fields.conflict(f"layer_types has {len(types)} items for {layers} layers")
    for unknown in sorted({*types} - {"full_attention", "sliding_attention"}):
        fields.conflict(
            f"layer_types has '{unknown}', but ringplan knows only full_attention and "
            "sliding_attention"
        )
    sliding = [kind == "sliding_attention" for kind in types[:layers]]
    return sliding + [False] * (layers - len(sliding))
