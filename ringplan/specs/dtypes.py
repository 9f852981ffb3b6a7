"""How many bytes an element takes, scales of block formats included."""

from __future__ import annotations

from typing import Final, Literal

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4", "mxfp4", "nvfp4"]

#: Bytes of one element. Whole bytes are integers, so that sums of bytes stay exact.
ELEMENT_BYTES: Final[dict[str, float]] = {
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "fp4": 0.5,
    "int4": 0.5,
    "mxfp4": 0.5 + 1 / 32,  # OCP MX: one 8-bit scale for 32 elements
    "nvfp4": 0.5 + 1 / 16,  # one 8-bit scale for 16 elements
}
#: The rate at which a device multiplies elements of a format.
PEAK_OF: Final[dict[str, str]] = {"mxfp4": "fp4", "nvfp4": "fp4", "int4": "bf16"}
