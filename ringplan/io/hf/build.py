"""A decoder, as a family has read it, turned into a ModelSpec and the origins of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.specs.model import LayerKind, ModelSpec

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Sourced
    from ringplan.io.hf.parts import Decoder, Layer
    from ringplan.io.origins import Origin
    from ringplan.specs.dtypes import Dtype


def build(
    decoder: Decoder,
    *,
    name: str,
    weights_dtype: Dtype,
    dtype_origin: Origin,
    not_counted: tuple[str, ...],
) -> tuple[ModelSpec, dict[str, Origin]]:
    """Build the spec; layers that are equal become one kind, in order of first appearance."""
    kinds = list(dict.fromkeys(decoder.layers))
    numbers = [_numbers(kind) for kind in kinds]
    sizes = {key: size for key, size in decoder.trunk._asdict().items() if size is not None}
    spec = ModelSpec.model_construct(  # `Fields` has checked every number
        name=name,
        **{key: size.value for key, size in sizes.items()},
        kinds=tuple(_kind(kind) for kind in numbers),
        pattern=tuple(kinds.index(layer) for layer in decoder.layers),
        tensors=decoder.ends
        + tuple(
            tensor._replace(kind=index)
            for index, kind in enumerate(kinds)
            for tensor in kind.tensors + kind.mlp.tensors
        ),
        weights_dtype=weights_dtype,
        not_counted=not_counted,
    )
    origins = {"weights_dtype": dtype_origin} | {key: size.origin for key, size in sizes.items()}
    for index, kind in enumerate(numbers):
        origins |= {f"kinds.{index}.{key}": number.origin for key, number in kind.items()}
    return spec, origins


def _numbers(layer: Layer) -> dict[str, Sourced]:
    """Collect the numbers of a layer by the names that LayerKind has for them."""
    numbers: dict[str, Sourced | None] = {
        **layer.heads._asdict(),
        "window": layer.window,
        "active_intermediate_size": layer.mlp.active_intermediate_size,
        "num_experts_per_tok": layer.mlp.num_experts_per_tok,
    }
    return {key: number for key, number in numbers.items() if number is not None}


def _kind(numbers: dict[str, Sourced]) -> LayerKind:
    values: dict[str, Any] = {key: number.value for key, number in numbers.items()}
    return LayerKind.model_construct(**values)
