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
    equation="M - t(S) >= 0 > M - t(S + m)",
    unit="token",
    scope="sequence",
    source="searched; the two bills are the proof",
)
def max_seq_len(*, seq_len: Number, headroom_here: Number, headroom_beyond: Number) -> Number:
    """
    Longest context that fits with everything else unchanged; 0 if none does.

    >>> max_seq_len(seq_len=448, headroom_here=5, headroom_beyond=-5)
    448
    """
    proven = minimum(where(headroom_here >= 0, 1, 0), where(headroom_beyond < 0, 1, 0))
    return seq_len * proven


@formula(
    equation="M - t(P) >= 0 > M - t(P - 1)",
    unit="rank",
    scope="job",
    source="searched; the two bills are the proof",
)
def min_cp_size(*, cp_size: Number, headroom_here: Number, headroom_below: Number) -> Number:
    """
    Smallest context-parallel size that fits with everything else unchanged.

    >>> min_cp_size(cp_size=2, headroom_here=5, headroom_below=-5)
    2
    """
    proven = minimum(where(headroom_here >= 0, 1, 0), where(headroom_below < 0, 1, 0))
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


@formula(
    equation="r n + (M - t(n)) / (t(n + 1) - t(n))",
    unit="1",
    scope="job",
    source="whole sequences on every replica, and by bytes the part of one more that would fit",
)
def max_concurrency(
    *, sequences: Number, replicas: Number, headroom_here: Number, headroom_beyond: Number
) -> Number:
    """
    Sequences of this context that fit at once, the last of them in part.

    >>> max_concurrency(sequences=10, replicas=1, headroom_here=3, headroom_beyond=-1)
    10.75
    """
    part = ratio(headroom_here, headroom_here - headroom_beyond, otherwise=0)
    return replicas * sequences + minimum(maximum(part, 0), 1)


@formula(
    equation="r n with M - t(n) >= 0 > M - t(n + 1)",
    unit="1",
    scope="job",
    source="searched; the two bills are the proof. Every replica caches whole sequences",
)
def max_sequences(
    *, sequences: Number, replicas: Number, headroom_here: Number, headroom_beyond: Number
) -> Number:
    """
    Whole sequences of this context that fit at once, over all replicas.

    >>> max_sequences(sequences=4, replicas=8, headroom_here=5, headroom_beyond=-5)
    32
    """
    proven = minimum(where(headroom_here >= 0, 1, 0), where(headroom_beyond < 0, 1, 0))
    return replicas * sequences * proven
