"""The format of quantised weights and the bytes of their scales, by method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from ringplan.io.origins import Origin
from ringplan.specs.dtypes import Dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields

CURE: Final = f"give --weights-dtype, one of {', '.join(get_args(Dtype))}"
#: Weights that share a scale, if AwqConfig or GPTQConfig is not told, and in TensorRT-LLM.
DEFAULT_GROUP: Final = 128
#: Bytes of one scale: 16 bits, or those of 32 that DeepSeek and bitsandbytes keep.
HALF, SINGLE = 2, 4
#: Weights that share a scale in bitsandbytes, and scales that share one when quantised again.
BNB_BLOCK, BNB_SCALES = 64, 256

_INTEGERS: Final[dict[int, Dtype]] = {4: "int4", 8: "int8"}
#: What TensorRT-LLM and modelopt call a format.
_ALGORITHMS: Final[dict[str, Dtype]] = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "W4A16": "int4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W8A16": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A8_SQ_PER_TENSOR_PLUGIN": "int8",
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": "int8",
}


class Quantized(NamedTuple):
    """The format of quantised weights, who gave it, and bytes of scales an element."""

    dtype: Dtype
    origin: Origin
    scale_bytes: float = 0


def read_quantization(fields: Fields) -> Quantized | None:
    """Read a block that says how weights are quantised; None if it says that they are not."""
    method = fields.text("quant_method")
    if method is None and fields.has("quant_algo"):
        return _by_algorithm(fields)
    if method is None:
        fields.note(f"{fields.name}: quant_method is missing ({CURE})")
        return Quantized("bf16", Origin("model", fields.name))
    if method.value in _METHODS:
        return _METHODS[method.value](fields)
    return _unknown(fields, "quant_method")


def _unknown(fields: Fields, key: str, more: str = "") -> Quantized:
    """Note that a format is unknown: the value of a key, and what makes it so."""
    origin, value = fields.origin(key), fields.config.values[key]
    said = f"'{value}' with {more}" if more else f"'{value}'"
    fields.note(f"{origin} is {said}, which ringplan cannot size ({CURE})")
    return Quantized("bf16", origin)


def _fp8(fields: Fields) -> Quantized:
    """Read FP8: a scale of 32 bits a block of weights, or one for a whole tensor or row."""
    block = fields.integers("weight_block_size")
    origin = fields.origin("quant_method")
    if not block:
        return Quantized("fp8", origin)
    size = 1
    for side in block:
        size *= side.value
    return Quantized("fp8", origin, SINGLE / size)


def _mxfp4(fields: Fields) -> Quantized:
    return Quantized("mxfp4", fields.origin("quant_method"))


def _grouped(fields: Fields) -> Quantized:
    """Read AWQ, GPTQ or AutoRound: a scale of 16 bits and a zero point for a group of weights."""
    bits = fields.integer("bits", "w_bit")
    if not bits.known:
        return _unknown(fields, "quant_method", "no bits")
    if bits.value not in _INTEGERS:
        fields.note(f"{bits.origin} is {bits.value}, which ringplan cannot size ({CURE})")
    group = _group(fields, "group_size", "q_group_size")
    scale = (HALF + bits.value / 8) / group if group else 0
    return Quantized(_INTEGERS.get(bits.value, "int4"), bits.origin, scale)


def _group(fields: Fields, *keys: str, default: int = DEFAULT_GROUP) -> int:
    """Read how many weights share a scale; 0 for a whole row, which configs write as -1."""
    if any(fields.config.values.get(key) in (-1, "-1") for key in keys):
        return 0
    size = fields.optional(*keys)
    return size.value if size else default


def _bitsandbytes(fields: Fields) -> Quantized:
    """Read bitsandbytes: in 4 bits a scale of 32 for 64 weights, itself in 8 if quantised."""
    if fields.flag("load_in_8bit", default=False):
        return Quantized("int8", fields.origin("load_in_8bit"))
    if not fields.flag("load_in_4bit", default=False):
        return _unknown(fields, "quant_method", "neither load_in_4bit nor load_in_8bit")
    twice = fields.flag("bnb_4bit_use_double_quant", default=False)
    scale = 1 + SINGLE / BNB_SCALES if twice else SINGLE
    return Quantized("int4", fields.origin("load_in_4bit"), scale / BNB_BLOCK)


def _by_algorithm(fields: Fields) -> Quantized | None:
    """Read what TensorRT-LLM or modelopt name; null is weights that are not quantised."""
    named = fields.text("quant_algo")
    if named is None:
        return None
    if named.value == "FP8_PB_WO":
        return Quantized("fp8", named.origin, SINGLE / 128**2)
    if named.value not in _ALGORITHMS:
        return _unknown(fields, "quant_algo")
    grouped = named.value.endswith("_AWQ")
    group = _group(fields, "group_size") if grouped else 0
    return Quantized(_ALGORITHMS[named.value], named.origin, HALF / group if group else 0)


def _compressed(fields: Fields) -> Quantized:
    """Read compressed-tensors, if all that it quantises has one format."""
    groups = fields.block("config_groups")
    names = list(groups.config.values) if groups else []
    group = groups.block(names[0]) if groups and len(names) == 1 else None
    weights = group.block("weights") if group else None
    if weights is None:
        return _unknown(fields, "quant_method", f"{len(names)} config_groups")
    bits, kind = weights.optional("num_bits"), weights.text("type")
    name = f"{bits.value if bits else 'no'} bits of type {kind.value if kind else 'none'}"
    return _sized(fields, weights, name, _group(weights, "group_size", default=0))


def _sized(fields: Fields, weights: Fields, name: str, group: int) -> Quantized:
    origin = fields.origin("quant_method")
    if name == "4 bits of type float":
        blocks: dict[int, Dtype] = {16: "nvfp4", 32: "mxfp4"}
        if group in blocks:
            return Quantized(blocks[group], origin)
    if name == "8 bits of type float":
        block = weights.integers("block_structure")
        return Quantized("fp8", origin, HALF / (block[0].value * block[-1].value) if block else 0)
    if name in ("4 bits of type int", "8 bits of type int"):
        bits = int(name[0])
        zero = 0 if weights.flag("symmetric", default=True) else bits / 8
        return Quantized(_INTEGERS[bits], origin, (HALF + zero) / group if group else 0)
    return _unknown(fields, "quant_method", name)


_METHODS: Final[dict[str, Callable[[Fields], Quantized | None]]] = {
    "auto-round": _grouped,
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _by_algorithm,
    "modelopt_fp4": _by_algorithm,
    "mxfp4": _mxfp4,
}
