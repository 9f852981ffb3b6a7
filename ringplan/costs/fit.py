"""What fits: the memory bill, read backwards."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, floor, maximum, minimum, ratio, where


@formula(equation="total <= capacity", unit="bool", scope="job", source="every rank must fit")
def fits(*, total: Number, capacity: Number) -> Number:
    """
    Whether the fullest rank fits.

    >>> fits(total=70e9, capacity=85.5e9)
    True
    """
    return total <= capacity


@formula(
    equation="t(S) <= M < t(S + m)",
    unit="token",
    scope="sequence",
    source="searched; the two bills are the proof",
)
def max_seq_len(
    *, seq_len: Number, total_here: Number, total_beyond: Number, capacity: Number
) -> Number:
    """
    Longest context that fits with everything else unchanged; 0 if none does.

    >>> max_seq_len(seq_len=448, total_here=95, total_beyond=105, capacity=100)
    448
    """
    proven = minimum(where(total_here <= capacity, 1, 0), where(total_beyond > capacity, 1, 0))
    return seq_len * proven


@formula(
    equation="t(P) <= M < t(P - 1)",
    unit="rank",
    scope="job",
    source="searched; the two bills are the proof",
)
def min_cp_size(
    *, cp_size: Number, total_here: Number, total_below: Number, capacity: Number
) -> Number:
    """
    Smallest context-parallel size that fits with everything else unchanged.

    >>> min_cp_size(cp_size=2, total_here=95, total_below=105, capacity=100)
    2
    """
    proven = minimum(where(total_here <= capacity, 1, 0), where(total_below > capacity, 1, 0))
    return cp_size * proven


@formula(
    equation="dp floor((M - (t - kv)) B S / kv)",
    unit="token",
    scope="job",
    source="what is left beside everything else, in sequences of this length",
)
def kv_tokens(
    *,
    capacity: Number,
    total: Number,
    rank_kv: Number,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
) -> Number:
    """
    Tokens of context that the free memory of the job holds, windows of every sequence included.

    >>> kv_tokens(capacity=100, total=60, rank_kv=20, dp_size=1, batch_size=1, seq_len=40)
    120
    """
    free = maximum(capacity - (total - rank_kv), 0)
    return dp_size * floor(ratio(free * batch_size * seq_len, rank_kv, otherwise=0))


@formula(equation="tokens / S", unit="1", scope="job", source="definition")
def max_concurrency(*, kv_tokens: Number, seq_len: Number) -> Number:
    """
    Sequences of this context that fit at once.

    >>> max_concurrency(kv_tokens=300, seq_len=100)
    3.0
    """
    return kv_tokens / seq_len
