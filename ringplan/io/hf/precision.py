"""The format of the published weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

from ringplan.io.origins import Origin
from ringplan.specs.dtypes import Dtype

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields

_TORCH: Final[dict[str, Dtype]] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_METHODS: Final[dict[str, Dtype]] = {"fp8": "fp8", "mxfp4": "mxfp4"}
#: Methods that say how many bits they leave.
_BIT_METHODS: Final = ("awq", "gptq")
_BITS: Final[dict[int, Dtype]] = {4: "int4", 8: "int8"}
_CURE: Final = f"give --weights-dtype, one of {', '.join(get_args(Dtype))}"


def read_weights_dtype(fields: Fields) -> tuple[Dtype, Origin]:
    """Read the format: weights_dtype, which is ringplan's own, then quantisation, then dtype."""
    own = fields.text("weights_dtype")
    quantization = fields.block("quantization_config")
    plain = fields.text("torch_dtype", "dtype")
    if own is not None:
        if own.value not in get_args(Dtype):
            fields.wrong("weights_dtype", f"must be one of {', '.join(get_args(Dtype))}")
        return cast("Dtype", own.value), own.origin
    if quantization is not None:
        return _quantized(quantization)
    if plain is None:
        return "bf16", Origin("derived", "bf16, as the config has no torch_dtype", fields.name)
    found = _TORCH.get(plain.value.removeprefix("torch."))
    if found is None:
        fields.note(f"{plain.origin} is '{plain.value}', which ringplan cannot size ({_CURE})")
    return found or "bf16", plain.origin


def _quantized(fields: Fields) -> tuple[Dtype, Origin]:
    method = fields.text("quant_method")
    if method is None:
        fields.note(f"{fields.name}: quant_method is missing ({_CURE})")
        return "bf16", Origin("model", fields.name)
    if method.value in _METHODS:
        return _METHODS[method.value], method.origin
    if method.value not in _BIT_METHODS:
        fields.note(f"{method.origin} is '{method.value}', which ringplan cannot size ({_CURE})")
        return "bf16", method.origin
    bits = fields.integer("bits")
    if bits.value not in _BITS:
        fields.note(f"{bits.origin} is {bits.value}, which ringplan cannot size ({_CURE})")
    return _BITS.get(bits.value, "int4"), bits.origin
