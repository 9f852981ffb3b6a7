"""Kinds of layers, as the formulas need them: heads on a rank, caches, states."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import cache, layout
from ringplan.estimation.leaves import Leaves, plain
from ringplan.specs.dtypes import ELEMENT_BYTES, ROTARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringplan.costs.numeric import Number
    from ringplan.specs.model import LayerKind, ModelSpec
    from ringplan.specs.scenario import Scenario


class Kind(NamedTuple):
    """One kind of layer: layers and heads of the whole model, and heads on one rank."""

    layers: Number
    num_attention_heads: Number
    num_key_value_heads: Number
    rank_heads: Number
    rank_kv_heads: Number
    head_dim: Number
    v_head_dim: Number
    latent_dim: Number | None
    latent_v_dim: Number | None
    window: Number | None
    compress_ratio: Number | None
    caches: bool
    cached: Cached
    state: State
    active_intermediate_size: Number
    mixer_width: Number
    num_experts_per_tok: Number | None

    @property
    def attends(self) -> bool:
        """Whether the layer has attention."""
        return bool(plain(self.num_key_value_heads))

    @property
    def grows(self) -> bool:
        """Whether its cache grows with the context."""
        return self.attends and self.caches and (self.window is None or self.compressed)

    @property
    def compressed(self) -> bool:
        """Whether a compressed cache grows beside its window."""
        return self.compress_ratio is not None


class Cached(NamedTuple):
    """What a token leaves in the caches of a layer: of the whole job, and on one rank."""

    elements: Number
    row_bytes: Number
    rank_row_bytes: Number
    indexer_bytes: Number


class State(NamedTuple):
    """What a sequence leaves in a layer whose state does not grow."""

    heads: Number
    conv: Number
    recurrent: Number


def widest_kind(model: ModelSpec) -> int:
    """Index of the full-attention kind with the widest K and V; of any, where none is full."""
    attends = [i for i, kind in enumerate(model.kinds) if kind.num_key_value_heads]
    full = [i for i in attends if model.kinds[i].window is None]
    return max(
        full or attends or range(len(model.kinds)),
        key=lambda i: (
            model.kinds[i].num_key_value_heads
            * (model.kinds[i].head_dim + model.kinds[i].v_head_dim)
        ),
    )


class Formats(NamedTuple):
    """Bytes of a cached element, by what it is."""

    key: Number
    value: Number
    rotary: Number
    wire: Number | None
    indexer: Number
    indexer_scale: Number
    alignment: Number


def cache_formats(leaf: Leaves, scenario: Scenario) -> Formats:
    """Find the formats of the cache: the workload's, else the checkpoint's, else activations'."""
    work, model = scenario.workload, scenario.model
    path, dtype = "workload.activation_dtype", str(work.activation_dtype)
    if model.kv_dtype is not None:
        path, dtype = "model.kv_dtype", model.kv_dtype
    if work.kv_dtype is not None:
        path, dtype = "workload.kv_dtype", work.kv_dtype

    def size(own: str | None, name: str, table: Mapping[str, float]) -> Number:
        where, which = (path, dtype) if own is None else (f"workload.{name}", own)
        return leaf(where, table.get(which, ELEMENT_BYTES[which]))

    given = work.kv_dtype or model.kv_dtype
    return Formats(
        key=size(work.k_dtype, "k_dtype", ELEMENT_BYTES),
        value=size(work.v_dtype, "v_dtype", ELEMENT_BYTES),
        rotary=size(work.k_dtype, "k_dtype", ROTARY_BYTES),
        wire=None if given is None else leaf(path, ELEMENT_BYTES[given]),
        indexer=leaf.derived("element_bytes", 1, "an indexer caches keys in fp8"),
        indexer_scale=leaf.derived("scale_bytes", 4, "and one fp32 scale a key"),
        alignment=leaf("engine.row_alignment", scenario.engine.row_alignment),
    )


def kind_of(
    leaf: Leaves, scenario: Scenario, index: int, tp_size: Number, formats: Formats
) -> Kind:
    """Unpack a kind of layer, with its heads on one rank."""
    model, drafts = scenario.model, scenario.workload.draft_layers
    kind, path = model.kinds[index], f"model.kinds.{index}"
    if not scenario.workload.cache_latents:
        kind = kind.model_copy(update={"latent_dim": None, "latent_v_dim": None})
    of_drafts = f" and {drafts} draft layers" if drafts else ""

    def field(name: str) -> Number:
        return leaf(f"{path}.{name}", getattr(kind, name))

    def optional(name: str) -> Number | None:
        return None if getattr(kind, name) is None else field(name)

    heads, groups = field("num_attention_heads"), field("num_key_value_heads")
    rank_kv_heads = layout.kv_heads(num_key_value_heads=groups, tp_size=tp_size)
    return Kind(
        layers=leaf.derived(
            f"layers of kind {index}",
            (model.pattern + model.draft_pattern[:drafts]).count(index),
            f"of {model.num_hidden_layers} layers{of_drafts} of {model.name}",
        ),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        rank_heads=heads
        if kind.num_attention_heads is None
        else layout.query_heads(num_attention_heads=heads, tp_size=tp_size),
        rank_kv_heads=rank_kv_heads,
        head_dim=field("head_dim"),
        v_head_dim=field("v_head_dim"),
        latent_dim=optional("latent_dim"),
        latent_v_dim=optional("latent_v_dim"),
        window=optional("window"),
        compress_ratio=optional("compress_ratio"),
        caches=kind.caches,
        cached=_cached(leaf, kind, field, rank_kv_heads, formats),
        state=State(field("state_heads"), field("conv_state"), field("recurrent_state")),
        active_intermediate_size=field("active_intermediate_size"),
        mixer_width=field("mixer_width"),
        num_experts_per_tok=field("num_experts_per_tok") if kind.num_experts_per_tok else None,
    )


def _cached(
    leaf: Leaves,
    kind: LayerKind,
    field: Callable[[str], Number],
    rank_kv_heads: Number,
    formats: Formats,
) -> Cached:
    """What a token leaves in the caches of a layer."""
    indexer = cache.indexer_row_bytes(
        indexer_dim=field("indexer_dim"),
        element_bytes=formats.indexer,
        scale_bytes=formats.indexer_scale,
        present=leaf.derived("present", int(kind.indexer_dim > 0), "1 with an indexer"),
    )
    if kind.latent_dim is not None:
        latent = cache.latent_row_bytes(
            latent_dim=field("latent_dim"),
            latent_v_dim=field("latent_v_dim"),
            latent_bytes=formats.key,
            rotary_bytes=formats.rotary,
            alignment=formats.alignment,
        )
        return Cached(field("latent_dim"), latent, latent, indexer)

    def row(num_kv_heads: Number) -> Number:
        return cache.cache_row_bytes(
            num_kv_heads=num_kv_heads,
            head_dim=field("head_dim"),
            v_head_dim=field("v_head_dim"),
            k_bytes=formats.key,
            v_bytes=formats.value,
            alignment=formats.alignment,
        )

    groups = field("num_key_value_heads")
    elements = cache.cached_elements(
        num_kv_heads=groups, head_dim=field("head_dim"), v_head_dim=field("v_head_dim")
    )
    return Cached(elements, row(groups), row(rank_kv_heads), indexer)
