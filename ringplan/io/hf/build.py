"""A decoder, as a family has read it, turned into a ModelSpec and the origins of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringplan.errors import SpecError
from ringplan.io.hf.fields import Sourced
from ringplan.io.hf.kept import Kept
from ringplan.io.hf.parts import Heads, Mlp
from ringplan.io.origins import Origin
from ringplan.specs.model import LayerKind, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.io.hf.parts import Decoder, Layer
    from ringplan.io.hf.precision import Precision
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Tensor

#: Kinds of layers that are told apart; published models have dozens.
MOST_KINDS: Final = 250
_NONE: Final = Sourced(0, Origin("derived", "a layer without one"))


def build(
    decoder: Decoder,
    *,
    name: str,
    precision: Precision,
    lacking: tuple[str, ...],
    outside: tuple[str, ...],
) -> tuple[ModelSpec, dict[str, Origin]]:
    """Build the spec; layers that are equal become one kind, in order of first appearance."""
    unknown = lacking + ((decoder.unknown,) if decoder.unknown else ())
    if not unknown:
        decoder = _marked(decoder, precision.kept)
    index = {layer: i for i, layer in enumerate(dict.fromkeys(decoder.layers + decoder.drafts))}
    kinds = list(index)
    if len(kinds) > MOST_KINDS:
        raise SpecError(
            f"{name}: {len(kinds):,} layers differ from one another, but ringplan takes"
            f" {MOST_KINDS:,} kinds at most",
            hint="lists a layer in the config should repeat",
        )
    numbers = [_numbers(kind) for kind in kinds]
    sizes = {key: size for key, size in decoder.trunk._asdict().items() if size is not None}
    values: dict[str, Any] = {key: _value(size) for key, size in sizes.items()}
    spec = ModelSpec.model_construct(  # `Fields` has checked every number
        name=name,
        **values,
        kinds=tuple(
            _kind(each, caches=kind.caches) for kind, each in zip(kinds, numbers, strict=True)
        ),
        pattern=tuple(index[layer] for layer in decoder.layers),
        draft_pattern=tuple(index[layer] for layer in decoder.drafts),
        tensors=() if unknown else tuple(_tensors(decoder, kinds)),
        weights_dtype=precision.weights_dtype,
        scale_bytes=precision.scale_bytes,
        kv_dtype=precision.kv_dtype,
        state_dtype=precision.state_dtype,
        unknown=unknown,
        not_counted=outside + decoder.not_counted,
    )
    origins = {"weights_dtype": precision.origin}
    origins |= {key: size.origin for key, size in sizes.items()}
    for i, kind in enumerate(numbers):
        origins |= {f"kinds.{i}.{key}": number.origin for key, number in kind.items()}
    return spec, origins


def complete(decoder: Decoder) -> bool:
    """Whether everything is known that a cache depends on."""
    free = {"num_attention_heads", "active_intermediate_size", "num_experts_per_tok", "mixer_width"}
    return decoder.trunk.num_hidden_layers.known and all(
        number.known or key in free
        for kind in dict.fromkeys(decoder.layers + decoder.drafts)
        for key, number in _numbers(kind).items()
    )


def _marked(decoder: Decoder, kept: Kept) -> Decoder:
    """Mark what the published quantisation leaves alone; layers that differ in it are two kinds."""
    if kept == Kept():
        return decoder

    def mark(index: int, tensors: Tensors) -> Tensors:
        return tuple(
            tensor._replace(quantized=tensor.quantized and not kept.keeps(index, tensor.name))
            for tensor in tensors
        )

    def marked(index: int, layer: Layer) -> Layer:
        mlp = layer.mlp and layer.mlp._replace(tensors=mark(index, layer.mlp.tensors))
        return layer._replace(tensors=mark(index, layer.tensors), mlp=mlp)

    count = len(decoder.layers)
    made = [marked(index, each) for index, each in enumerate(decoder.layers + decoder.drafts)]
    return decoder._replace(layers=tuple(made[:count]), drafts=tuple(made[count:]))


def _tensors(decoder: Decoder, kinds: list[Layer]) -> Iterator[Tensor]:
    """List every tensor, those of a layer once for each kind."""
    yield from decoder.ends
    for tensor in decoder.draft_tensors:
        yield tensor._replace(stage="draft")
    for index, kind in enumerate(kinds):
        for tensor in kind.tensors + (kind.mlp.tensors if kind.mlp else ()):
            yield tensor._replace(kind=index)


def _numbers(layer: Layer) -> dict[str, Sourced]:
    """Collect the numbers of a layer by the names that LayerKind has for them."""
    heads = layer.heads or Heads(_NONE, _NONE, _NONE, _NONE)
    mlp = layer.mlp or Mlp(_NONE, ())
    numbers: dict[str, Sourced | None] = {
        **heads._asdict(),
        "window": layer.window,
        "compress_ratio": layer.compress_ratio,
        **(layer.state._asdict() if layer.state else {}),
        "active_intermediate_size": mlp.active_intermediate_size,
        "num_experts_per_tok": mlp.num_experts_per_tok,
    }
    return {key: number for key, number in numbers.items() if number is not None}


def _kind(numbers: dict[str, Sourced], *, caches: bool) -> LayerKind:
    values: dict[str, Any] = {
        key: _value(number)
        for key, number in numbers.items()
        if number.known or key != "num_experts_per_tok"
    }
    return LayerKind.model_construct(**values, caches=caches)


def _value(number: Sourced) -> int | None:
    return number.value if number.known else None
