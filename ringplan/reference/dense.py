"""
Attention as the definition has it: one matrix of scores, nothing shared, nothing clever.

This is what every other module of the package is held against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ringplan.reference.masks import Mask
    from ringplan.reference.partition import Positions

Array: TypeAlias = npt.NDArray[np.floating]


def attention(
    q: Array, k: Array, v: Array, mask: Mask, *, queries: Positions, keys: Positions
) -> tuple[Array, Array]:
    """
    Softmax attention; a query that sees nothing gets zeros and a log-sum-exp of -inf.

    Parameters
    ----------
    q, k, v
        ``B H N D``, ``B G K D`` and ``B G K E``; H is a multiple of G.
    mask
        Which pairs are visible.
    queries, keys
        Positions in the sequence, ``N`` and ``K``.

    Returns
    -------
    tuple
        Output ``B H N E`` and log-sum-exp of the scores ``B H N``.

    Examples
    --------
    >>> from ringplan.reference.masks import Mask
    >>> one = np.ones((1, 1, 2, 4))
    >>> out, lse = attention(one, one, one, Mask(), queries=np.arange(2), keys=np.arange(2))
    >>> out[0, 0, :, 0].tolist(), lse[0, 0, 0].item()
    ([1.0, 1.0], 2.0)
    """
    scores = _scores(q, k, mask, queries, keys)
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    some = total > 0
    out = (weights / np.where(some, total, 1)) @ _per_query_head(v, q)
    lse = np.where(some, top + np.log(np.where(some, total, 1)), -np.inf)
    return out, lse[..., 0]


def gradients(
    q: Array, k: Array, v: Array, dout: Array, mask: Mask, *, queries: Positions, keys: Positions
) -> tuple[Array, Array, Array]:
    """
    Gradients of ``sum(out * dout)`` with respect to q, k and v, by the chain rule.

    Examples
    --------
    >>> from ringplan.reference.masks import Mask
    >>> one = np.ones((1, 1, 2, 4))
    >>> two = np.arange(2)
    >>> dq, dk, dv = gradients(one, one, one, one, Mask(), queries=two, keys=two)
    >>> dv[0, 0, :, 0].tolist()  # the second key is seen by one query, at weight 1/2
    [1.5, 0.5]
    """
    _, lse = attention(q, k, v, mask, queries=queries, keys=keys)
    lse = np.where(np.isneginf(lse), np.inf, lse)
    weights = np.exp(_scores(q, k, mask, queries, keys) - lse[..., None])
    dweights = dout @ _per_query_head(v, q).swapaxes(-1, -2)
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    dscores /= np.sqrt(q.shape[-1])
    dq = dscores @ _per_query_head(k, q)
    dk = _per_kv_head(dscores.swapaxes(-1, -2) @ q, k)
    dv = _per_kv_head(weights.swapaxes(-1, -2) @ dout, v)
    return dq, dk, dv


def _scores(q: Array, k: Array, mask: Mask, queries: Positions, keys: Positions) -> Array:
    scores = q @ _per_query_head(k, q).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return np.where(mask.between(queries, keys), scores, -np.inf)


def _per_query_head(x: Array, q: Array) -> Array:
    return np.repeat(x, q.shape[1] // x.shape[1], axis=1)


def _per_kv_head(x: Array, kv: Array) -> Array:
    batch, heads, tokens, size = x.shape
    summed: Array = x.reshape(batch, kv.shape[1], heads // kv.shape[1], tokens, size).sum(axis=2)
    return summed
