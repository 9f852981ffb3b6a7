"""Readings that families have in common: heads, windows, types of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.fields import Sourced
from ringplan.io.hf.parts import Heads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields


def read_heads(
    fields: Fields,
    *,
    kv_default: bool = False,
    head_dim: Callable[[], Sourced] | None = None,
    kv_keys: tuple[str, ...] = ("num_key_value_heads",),
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
    kv_keys
        What the family calls the number of K/V heads.
    """
    heads = fields.integer("num_attention_heads", "n_head")
    size = (fields.optional("head_dim") or head_dim()) if head_dim else fields.integer("head_dim")
    kv_heads = _kv_heads(fields, heads, kv_keys, kv_default=kv_default)
    if heads.value % kv_heads.value:
        fields.conflict(
            f"num_attention_heads {heads.value} is not a multiple of num_key_value_heads "
            f"{kv_heads.value}",
            heads,
            kv_heads,
        )
    return Heads(heads, kv_heads, size, size)


def _kv_heads(
    fields: Fields, heads: Sourced, keys: tuple[str, ...], *, kv_default: bool
) -> Sourced:
    single = fields.flag("multi_query", default=False)
    if not single and not kv_default:
        return fields.integer(*keys)
    given = fields.optional(*keys)
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
            "and head_dim is missing",
            hidden,
            heads,
        )
    rule = "hidden_size / num_attention_heads, as the config has no head_dim"
    return fields.derived(max(hidden.value // heads.value, 1), rule, hidden, heads)


def share_if_null(fields: Fields) -> Sourced:
    """Share the hidden size where head_dim is null, for a family that always mentions it."""
    return equal_share(fields) if fields.has("head_dim") else fields.integer("head_dim")


def class_default(fields: Fields, key: str, default: int) -> Sourced:
    """Read a number for which transformers has a default in the family's config class."""
    rule = f"{default}, the default of the class, as the config has no {key}"
    return fields.optional(key) or fields.derived(default, rule)


def read_windows(
    fields: Fields, layers: int, slides: Callable[[int], bool], *, default: int | None = None
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
    default
        The window that the family's config class has, for a config that does not mention it.
    """
    known = ("full_attention", "sliding_attention")
    types = read_layer_types(fields, layers, known, lambda index: known[slides(index)])
    sliding = [kind == "sliding_attention" for kind in types]
    if default is not None and not fields.has("sliding_window"):
        size: Sourced | None = class_default(fields, "sliding_window", default)
    elif any(sliding):
        size = fields.integer("sliding_window")
    else:
        size = fields.optional("sliding_window")
    return tuple(size if slide else None for slide in sliding)


def read_layer_types(
    fields: Fields, layers: int, known: tuple[str, ...], default: Callable[[int], str]
) -> list[str]:
    """
    Read of what type each layer is.

    Parameters
    ----------
    fields
        The config.
    layers
        Layers of the model.
    known
        The types that the family has; the first stands in for what is wrong.
    default
        The type of a layer, by its index, if the config has no layer_types.
    """
    types = fields.words("layer_types")
    if types is None:
        return [default(index) for index in range(layers)]
    # draft layers may follow: more types than layers are fine
    fields.count("layer_types", len(types), layers)
    for unknown in sorted({*types} - {*known}):
        fields.conflict(
            f"layer_types has '{unknown}', but ringplan knows only {' and '.join(known)}"
        )
    return [*types[:layers], *[known[0]] * (layers - len(types))]
