"""Which keys a query sees, decided from positions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.reference.partition import Positions


class Mask(NamedTuple):
    """
    A rule on positions in the sequence.

    Attributes
    ----------
    causal
        A query sees no later key.
    window
        A query sees keys fewer than this many tokens before it; None is all.
    documents
        Number of the document at each position; a query sees its own document only.
    """

    causal: bool = True
    window: int | None = None
    documents: npt.NDArray[np.int64] | None = None

    def between(self, queries: Positions, keys: Positions) -> bool | npt.NDArray[np.bool_]:
        """
        Visible pairs as a matrix ``N K``; True or False where it is all or nothing.

        >>> Mask().between(np.arange(4, 8), np.arange(4))
        True
        >>> Mask().between(np.arange(2), np.arange(2)).tolist()
        [[True, False], [True, True]]
        """
        if not queries.size or not keys.size:
            return False
        distance_min = int(queries.min() - keys.max())
        distance_max = int(queries.max() - keys.min())
        limit = np.inf if self.window is None else self.window
        if (self.causal and distance_max < 0) or distance_min >= limit:
            return False
        inside = (not self.causal or distance_min >= 0) and distance_max < limit
        if inside and self.documents is None:
            return True
        distance = queries[:, None] - keys
        visible = distance < limit
        if self.causal:
            visible &= distance >= 0
        if self.documents is not None:
            visible &= self.documents[queries][:, None] == self.documents[keys]
        if not visible.any():
            return False
        return True if visible.all() else visible


def documents(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """
    Number of the document at each position of a packed sequence.

    >>> documents([2, 3]).tolist()
    [0, 0, 1, 1, 1]
    """
    return np.repeat(np.arange(len(lengths)), lengths)
