"""
What a formula may do beyond plain arithmetic, on one number or on a column of them.

A scalar stays what it is: counts are Python integers, exact at any size, and NumPy is not
imported. A column is a float64 array. Formulas may not branch, so that both take one path;
the branching is done here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: An int, a float, or a NumPy column of float64; typed as the scalar that most callers have.
Number: TypeAlias = float


_SCALAR = (int, float)


def maximum(a: Any, b: Any) -> Number:
    """
    Return the larger of the two.

    >>> maximum(2, 3)
    3
    """
    if isinstance(a, _SCALAR) and isinstance(b, _SCALAR):
        return a if a >= b else b
    import numpy as np  # noqa: PLC0415 - columns only

    return np.maximum(a, b)  # type: ignore[no-any-return]


def minimum(a: Any, b: Any) -> Number:
    """
    Return the smaller of the two.

    >>> minimum(2, 3)
    2
    """
    if isinstance(a, _SCALAR) and isinstance(b, _SCALAR):
        return a if a <= b else b
    import numpy as np  # noqa: PLC0415 - columns only

    return np.minimum(a, b)  # type: ignore[no-any-return]


def where(condition: Any, a: Any, b: Any) -> Number:
    """
    Return ``a`` where the condition holds, else ``b``; both are already computed.

    >>> where(3 > 2, 1, 0)
    1
    """
    if isinstance(condition, bool) and isinstance(a, _SCALAR) and isinstance(b, _SCALAR):
        return a if condition else b
    import numpy as np  # noqa: PLC0415 - columns only

    return np.where(condition, a, b)  # type: ignore[no-any-return]


def ceil_div(a: Any, b: Any) -> Number:
    """
    Return how many groups of ``b`` hold ``a`` things.

    >>> ceil_div(7, 2)
    4
    """
    return -(-a // b)  # type: ignore[no-any-return]


def ratio(a: Any, b: Any, *, otherwise: Any) -> Number:
    """
    Return a / b, or ``otherwise`` where b is zero.

    >>> ratio(1, 4, otherwise=0), ratio(1, 0, otherwise=0)
    (0.25, 0)
    """
    if isinstance(a, _SCALAR) and isinstance(b, _SCALAR):
        return a / b if b else otherwise
    import numpy as np  # noqa: PLC0415 - columns only

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(b, 0), otherwise, np.divide(a, b))  # type: ignore[no-any-return]


def divide(a: Any, b: Any) -> Number:
    """
    Return a / b; of two integers an integer, where it is one.

    >>> divide(32, 8), divide(8, 32)
    (4, 0.25)
    """
    if isinstance(a, int) and isinstance(b, int) and not a % b:
        return a // b
    return a / b  # type: ignore[no-any-return]


def floor(a: Any) -> Number:
    """
    Round down to a whole number.

    >>> floor(2.9)
    2
    """
    if isinstance(a, _SCALAR):
        return math.floor(a)
    import numpy as np  # noqa: PLC0415 - columns only

    return np.floor(a)  # type: ignore[no-any-return]


def log2(a: Any) -> Number:
    """
    Return the binary logarithm.

    >>> log2(8)
    3.0
    """
    if isinstance(a, _SCALAR):
        return math.log2(a)
    import numpy as np  # noqa: PLC0415 - columns only

    return np.log2(a)  # type: ignore[no-any-return]


def sqrt(a: Any) -> Number:
    """
    Return the square root.

    >>> sqrt(9)
    3.0
    """
    if isinstance(a, _SCALAR):
        return math.sqrt(a)
    import numpy as np  # noqa: PLC0415 - columns only

    return np.sqrt(a)  # type: ignore[no-any-return]


def interpolate(size: Any, sizes: Sequence[Any], values: Sequence[Any]) -> Number:
    """
    Read a table at a size: straight lines over the logarithm of the size, flat beyond the ends.

    >>> interpolate(2048, (1024, 4096), (0.25, 0.75)), interpolate(1, (1024, 4096), (0.25, 0.75))
    (0.5, 0.25)
    """
    return interpolation(sizes, values)(size)


def interpolation(sizes: Sequence[Any], values: Sequence[Any]) -> Callable[[Any], Number]:
    """
    Prepare a table to be read at many sizes; two equal sizes in a row are one.

    >>> at = interpolation((1024, 4096), (0.25, 0.75))
    >>> at(2048), at(9999)
    (0.5, 0.75)
    """
    if len(sizes) == 1:
        return lambda _: values[0]
    logs = [log2(each) for each in sizes]
    pieces = [
        (low, high, ratio(there - here, high - low, otherwise=0))
        for low, high, here, there in zip(logs, logs[1:], values, values[1:], strict=False)
    ]

    def at(size: Any) -> Number:
        result, log = values[0], log2(size)
        for low, high, slope in pieces:
            result = result + slope * (minimum(maximum(log, low), high) - low)
        return result  # type: ignore[no-any-return]

    return at


def smallest(holds: Callable[[Any], Any], *, step: Any, bits: int) -> Number:
    """
    Return the smallest positive multiple of ``step`` for which a monotone condition holds.

    Searches ``step`` times 1 to 2**(bits + 1) - 1; where it never holds, the next one is returned.

    >>> smallest(lambda n: n * n >= 50, step=2, bits=10)
    8
    """
    below = 0 * step
    for bit in reversed(range(bits + 1)):
        candidate = below + step * 2**bit
        below = where(holds(candidate), below, candidate)
    return below + step  # type: ignore[no-any-return]
