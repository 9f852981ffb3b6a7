"""Rotary position embedding: the reason why a rank must know where its tokens stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringplan.reference.dense import Array
    from ringplan.reference.partition import Positions


def rotate(x: Array, positions: Positions, base: float = 10000.0) -> Array:
    """
    Rotate ``x`` (..., N, D) by its tokens' positions in the sequence.

    The first half of a head is paired with the second (Su et al. 2021, RoFormer, as in GPT-NeoX).

    >>> turned = rotate(np.ones((1, 2)), np.array([0]))
    >>> turned.tolist()
    [[1.0, 1.0]]
    """
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
