"""What else lies on a rank: weights, activations, logits, training state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.costs.numeric import Number


@formula(equation="sum of the parts", unit="B", scope="rank", source="counted")
def total_bytes(*, parts: Sequence[Number]) -> Number:
    """
    Bytes of everything on one rank.

    >>> total_bytes(parts=(1, 2, 3))
    6
    """
    return sum(parts)


@formula(equation="sum", unit="layer", scope="rank", source="definition")
def total_layers(*, layers: Sequence[Number]) -> Number:
    """
    Layers on a rank, of all kinds.

    >>> total_layers(layers=(3, 58))
    61
    """
    return sum(layers)


@formula(
    equation="total - old + new", unit="B", scope="rank", source="the same rank with other buffers"
)
def swapped_bytes(*, total: Number, old: Number, new: Number) -> Number:
    """
    Bytes on the fullest rank with another layout's buffers.

    >>> swapped_bytes(total=100, old=10, new=30)
    120
    """
    return total - old + new


@formula(equation="sum of the parts", unit="B", scope="rank", source="counted")
def rank_total(
    *,
    weights_bytes: Number,
    kv_bytes: Number,
    state_bytes: Number,
    activation_bytes: Number,
    score_bytes: Number,
    logits_bytes: Number,
    ring_buffer_bytes: Number,
    gathered_bytes: Number,
    gradient_bytes: Number,
    optimizer_bytes: Number,
    overhead_bytes: Number,
) -> Number:
    """
    Bytes of everything on one rank.

    >>> rank_total(
    ...     weights_bytes=1, kv_bytes=2, state_bytes=3, activation_bytes=4, score_bytes=5,
    ...     logits_bytes=6, ring_buffer_bytes=7, gathered_bytes=8, gradient_bytes=9,
    ...     optimizer_bytes=10, overhead_bytes=11
    ... )
    66
    """
    caches = kv_bytes + state_bytes
    working = activation_bytes + score_bytes + logits_bytes + ring_buffer_bytes
    training = gathered_bytes + gradient_bytes + optimizer_bytes
    return weights_bytes + caches + working + training + overhead_bytes


@formula(
    equation="runtime + communicators + graphs",
    unit="B",
    scope="rank",
    source="an engine's log names them apart",
)
def runtime_bytes(*, runtime: Number, communicators: Number, graphs: Number) -> Number:
    """
    Bytes of everything that is no tensor of the model's.

    >>> runtime_bytes(runtime=5, communicators=2, graphs=1)
    8
    """
    return runtime + communicators + graphs
