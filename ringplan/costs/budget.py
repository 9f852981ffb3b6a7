"""What a rank may fill: the share of its memory that an engine budgets."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, maximum, minimum


@formula(
    equation="M = min(M_driver, limit M_driver + outside)",
    unit="B",
    scope="rank",
    source="everything must stay inside the limit, but for what is allotted after the cache",
)
def usable_bytes(*, capacity: Number, utilization: Number, outside_bytes: Number) -> Number:
    """
    Bytes that may be used where the limit is a share of the whole device.

    >>> usable_bytes(capacity=80, utilization=0.5, outside_bytes=0)
    40.0
    """
    return minimum(capacity, capacity * utilization + outside_bytes)


@formula(
    equation="M = min(M_driver, limit (M_driver - r) + rest)",
    unit="B",
    scope="rank",
    source="weights and cache get a share of what was free at start; the rest is beside it",
)
def usable_of_free_bytes(
    *, capacity: Number, runtime: Number, utilization: Number, rest_bytes: Number
) -> Number:
    """
    Bytes that may be used where weights and cache share a part of what was free at start.

    >>> usable_of_free_bytes(capacity=80, runtime=0, utilization=0.75, rest_bytes=10)
    70.0
    """
    return minimum(capacity, (capacity - runtime) * utilization + rest_bytes)


@formula(
    equation="M = t' + limit max(M_driver - t', 0)",
    unit="B",
    scope="rank",
    source="the cache gets a share of what is free beside everything else, t'",
)
def usable_beside_bytes(*, capacity: Number, beside_bytes: Number, utilization: Number) -> Number:
    """
    Bytes that may be used where the cache gets a share of what everything else leaves free.

    >>> usable_beside_bytes(capacity=80, beside_bytes=40, utilization=0.9)
    76.0
    """
    return minimum(capacity, beside_bytes + utilization * maximum(capacity - beside_bytes, 0))


@formula(
    equation="M = min(M_driver, t' + kv)",
    unit="B",
    scope="rank",
    source="the cache gets what it is given, if the device has it",
)
def usable_with_cache_bytes(
    *, capacity: Number, beside_bytes: Number, cache_bytes: Number
) -> Number:
    """
    Bytes that may be used where the cache's are given.

    >>> usable_with_cache_bytes(capacity=80, beside_bytes=40, cache_bytes=30)
    70
    """
    return minimum(capacity, beside_bytes + cache_bytes)


@formula(equation="t - kv", unit="B", scope="rank", source="counted")
def beside_bytes(*, total: Number, kept_bytes: Number) -> Number:
    """
    Bytes of everything but some parts.

    >>> beside_bytes(total=70, kept_bytes=20)
    50
    """
    return total - kept_bytes


@formula(equation="M - t", unit="B", scope="rank", source="every rank must fit")
def headroom_bytes(*, capacity: Number, total: Number) -> Number:
    """
    Bytes that are left; negative where it does not fit.

    >>> headroom_bytes(capacity=80, total=70)
    10
    """
    return capacity - total


@formula(
    equation="M - t + kv",
    unit="B",
    scope="rank",
    source="what everything else leaves of the usable memory",
)
def kv_budget_bytes(*, capacity: Number, total: Number, cache_bytes: Number) -> Number:
    """
    Bytes that caches may fill.

    >>> kv_budget_bytes(capacity=80, total=70, cache_bytes=20)
    30
    """
    return maximum(capacity - total + cache_bytes, 0)
