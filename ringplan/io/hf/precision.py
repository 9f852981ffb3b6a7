"""The formats that a checkpoint is published in: of weights, of the cache, of states."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, cast, get_args

from ringplan.io.hf.kept import Kept, check, read_kept
from ringplan.io.hf.quantization import CURE, Quantized, read_quantization
from ringplan.io.origins import Origin
from ringplan.specs.dtypes import Dtype

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.specs.dtypes import KvDtype

_TORCH: Final[dict[str, Dtype]] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_KV_ALGORITHMS: Final[dict[str, KvDtype]] = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}
_KV_SCHEMES: Final[dict[tuple[int, str], KvDtype]] = {(8, "float"): "fp8", (8, "int"): "int8"}


class Precision(NamedTuple):
    """
    Formats that the checkpoint is published in.

    Attributes
    ----------
    weights_dtype, origin
        Format of quantised weights, or of all, and who gave it.
    scale_bytes
        Bytes of scales and zero points an element of quantised weights.
    kv_dtype, state_dtype
        Formats of the cache and of recurrent states, where the config names them.
    kept
        What the quantisation leaves in 16 bits.
    """

    weights_dtype: Dtype
    origin: Origin
    scale_bytes: float = 0
    kv_dtype: KvDtype | None = None
    state_dtype: Dtype | None = None
    kept: Kept = Kept()


def read_precision(fields: Fields) -> Precision:
    """Read the formats: weights_dtype, which is ringplan's own, then quantisation, then dtype."""
    own = fields.text("weights_dtype")
    block = fields.block("quantization_config") or fields.block("quantization")
    plain = _plain(fields, quiet=own is not None)
    kept = Kept()
    if own is not None:
        if own.value not in get_args(Dtype):
            fields.wrong("weights_dtype", f"must be one of {', '.join(get_args(Dtype))}")
        weights = Quantized(cast("Dtype", own.value), own.origin)
    else:
        quantized = read_quantization(block) if block else None
        weights = quantized or plain
        kept = _kept(block) if block and quantized else kept
    kv_dtype = _kv_dtype(block) if block else None
    return Precision(*weights, kv_dtype, _state_dtype(fields), kept)


def _plain(fields: Fields, *, quiet: bool) -> Quantized:
    """Read the format of weights that are not quantised."""
    plain = fields.text("torch_dtype", "dtype")
    if plain is None:
        rule = "bf16, as the config has no torch_dtype"
        return Quantized("bf16", Origin("derived", rule, fields.name))
    found = _torch(plain.value)
    if found is None and not quiet:
        fields.note(f"{plain.origin} is '{plain.value}', which ringplan cannot size ({CURE})")
    return Quantized(found or "bf16", plain.origin)


def _kept(block: Fields) -> Kept:
    """Read what the quantisation leaves alone, and what it is of, if that is not all."""
    groups = block.block("config_groups")
    names = list(groups.config.values) if groups else []
    group = groups.block(names[0]) if groups and len(names) == 1 else None
    targets = (group.words("targets") or ()) if group else ()
    for pattern in targets:
        check(block, "config_groups", pattern)
    return replace(read_kept(block), targets=() if "Linear" in targets else targets)


def _kv_dtype(block: Fields) -> KvDtype | None:
    """Read the format of the cache by modelopt's name, or as bits and a type."""
    named = block.text("kv_cache_quant_algo")
    if named is not None:
        if named.value.upper() not in _KV_ALGORITHMS:
            block.note(f"{named.origin} is '{named.value}', which ringplan cannot size")
        return _KV_ALGORITHMS.get(named.value.upper())
    scheme = block.block("kv_cache_scheme")
    if scheme is None:
        return None
    bits, kind = scheme.optional("num_bits"), scheme.text("type")
    return _KV_SCHEMES.get((bits.value, kind.value)) if bits and kind else None


def _state_dtype(fields: Fields) -> Dtype | None:
    named = fields.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return _torch(named.value) if named else None


def _torch(name: str) -> Dtype | None:
    return _TORCH.get(name.removeprefix("torch."))
