"""What training keeps of a parameter or a logit, by recipe."""

from __future__ import annotations

from typing import Final, NamedTuple


class Recipe(NamedTuple):
    """Bytes of a parameter's gradient and optimizer state, and why."""

    gradient: float
    state: float
    why: str


#: Rajbhandari et al. 2020, section 3, for mixed precision; Dettmers et al. 2022 for moments in 8
#: bits, each with an fp32 maximum a block of 256.
OPTIMIZERS: Final[dict[str, Recipe]] = {
    "adamw": Recipe(4, 12, "fp32 gradient; master copy and two moments in fp32"),
    "adamw_8bit": Recipe(
        4, 4 + 2 * (1 + 4 / 256), "fp32 gradient and master copy; two moments in 8 bits, scaled"
    ),
    "adamw_bf16": Recipe(2, 4, "gradient and two moments in 16 bits, no master copy"),
    "sgd": Recipe(4, 4, "fp32 gradient and master copy"),
}

#: Bytes of a logit that training holds.
LOGITS: Final[dict[str, tuple[int, str]]] = {
    "unfused": (10, "16-bit logits, fp32 copy and fp32 gradient"),
    "in_place": (6, "16-bit logits and an fp32 copy that the gradient overwrites"),
    "chunked": (10, "16-bit logits, fp32 copy and fp32 gradient of one chunk"),
    "fused": (0, "a fused loss stores no logits"),
}
