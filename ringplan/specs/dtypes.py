"""How many bytes an element takes, scales of block formats included."""

from __future__ import annotations

from typing import Final, Literal

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4", "mxfp4", "nvfp4"]
#: Formats of a cache: those, ggml's blocks of 32 elements, and DeepSeek's mixed latent rows.
KvDtype = Literal[
    "fp32",
    "bf16",
    "fp16",
    "fp8",
    "int8",
    "fp4",
    "int4",
    "nvfp4",
    "q8_0",
    "q5_1",
    "q5_0",
    "q4_1",
    "q4_0",
    "iq4_nl",
    "fp8_ds_mla",
]

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
    # ggml: 32 elements, a 16-bit scale, and in the _1 formats a 16-bit minimum
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
    "fp8_ds_mla": 1 + 4 / 128,  # of the latent: one fp32 scale for 128 elements
}
#: Bytes of an element of MLA's rotary part, where a format keeps it wider than the latent.
ROTARY_BYTES: Final[dict[str, float]] = {"fp8_ds_mla": 2}
#: The rate at which a device multiplies elements of a format.
PEAK_OF: Final[dict[str, str]] = {"mxfp4": "fp4", "nvfp4": "fp4", "int4": "bf16"}
