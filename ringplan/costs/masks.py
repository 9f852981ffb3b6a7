"""
How many (query, key) pairs a causal mask lets through, by rank and step of the ring.

A rank holds q new tokens of each sequence and c tokens of its cached prefix, n = q + c. At step 0
it works on its own block, at every later step on a visiting one. Counts are of one sequence and
exact, but for sliding windows; where ranks differ they are the busiest rank's, which paces the
step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTED = "counted; tests enumerate the pairs"


@formula(equation="pairs = q n", unit="pair", scope="rank, sequence, layer, step", source=COUNTED)
def full_pairs(*, query_tokens: Number, block_tokens: Number) -> Number:
    """
    Pairs of one step without a mask.

    >>> full_pairs(query_tokens=4, block_tokens=4)
    16
    """
    return query_tokens * block_tokens


@formula(
    equation="pairs = q (n - q) + q (q + 1) / 2",
    unit="pair",
    scope="rank, sequence, layer, step",
    source=COUNTED,
)
def diagonal_pairs(*, query_tokens: Number, block_tokens: Number) -> Number:
    """
    Pairs of step 0 under a causal mask, whatever the partition.

    >>> diagonal_pairs(query_tokens=4, block_tokens=4)
    10
    """
    return query_tokens * (block_tokens - query_tokens) + query_tokens * (query_tokens + 1) // 2


@formula(
    equation="pairs = q (n - q) + q^2 / 2",
    unit="pair",
    scope="rank, sequence, layer, step",
    source=COUNTED,
)
def zigzag_pairs(*, query_tokens: Number, block_tokens: Number) -> Number:
    """
    Pairs of a later step under a causal mask, zigzag: the same on every rank.

    All queries meet the first half of an earlier rank's block, or the second half of the queries
    meets all of a later rank's.

    >>> zigzag_pairs(query_tokens=4, block_tokens=4)
    8
    """
    return query_tokens * (block_tokens - query_tokens) + query_tokens * (query_tokens // 2)


@formula(equation="max(l)", unit="token", scope="sequence", source="definition")
def longest_document(*, lengths: Sequence[Number]) -> Number:
    """
    Length of the longest packed document: no token sees further back.

    >>> longest_document(lengths=(7, 8))
    8
    """
    longest = lengths[0]
    for length in lengths[1:]:
        longest = maximum(longest, length)
    return longest


@formula(equation="min(w, max(l))", unit="token", scope="sequence", source="definition")
def shorter_reach(*, window: Number, longest: Number) -> Number:
    """
    Tokens that a sliding-window layer sees of a packed document.

    >>> shorter_reach(window=4096, longest=1024)
    1024
    """
    return minimum(window, longest)


@formula(
    equation="sum of c n_i (n_i + 1) / 2, n_i = l / R",
    unit="pair",
    scope="rank, sequence, layer, step",
    source=COUNTED,
)
def document_first_pairs(
    *, lengths: Sequence[Number], counts: Sequence[Number], ring_size: Number, multiple: Number
) -> Number:
    """
    Pairs of step 0 when each packed document is cut over all ranks.

    >>> document_first_pairs(lengths=(16, 8), counts=(1, 2), ring_size=4, multiple=8)
    16
    """
    shards = [ceil_div(length, multiple) * multiple // ring_size for length in lengths]
    return sum(c * (n * (n + 1) // 2) for n, c in zip(shards, counts, strict=True))


@formula(
    equation="sum of c n_i^2 / 2, n_i = l / R",
    unit="pair",
    scope="rank, sequence, layer, step",
    source=COUNTED,
)
def document_later_pairs(
    *, lengths: Sequence[Number], counts: Sequence[Number], ring_size: Number, multiple: Number
) -> Number:
    """
    Pairs of a later step when each packed document is dealt in zigzag chunks.

    >>> document_later_pairs(lengths=(16, 8), counts=(1, 2), ring_size=4, multiple=8)
    12
    """
    shards = [ceil_div(length, multiple) * multiple // ring_size for length in lengths]
    return sum(c * (n * n // 2) for n, c in zip(shards, counts, strict=True))


@formula(
    equation="m sum of c l^2 / (sum of c l)^2",
    unit="1",
    scope="sequence, layer, step",
    source="counted: tokens of a document see only its own; what hides a transfer is the length"
    " sum l^2 / sum l",
)
def document_share(
    *, mask_share: Number, lengths: Sequence[Number], counts: Sequence[Number]
) -> Number:
    """
    Visible share of a later step's pairs when documents are packed.

    >>> document_share(mask_share=0.5, lengths=(8,), counts=(4,))
    0.125
    """
    pairs = list(zip(lengths, counts, strict=True))
    return mask_share * sum(c * n * n for n, c in pairs) / sum(c * n for n, c in pairs) ** 2


@formula(
    equation="min(pairs, q min(w, n) - v (v - 1) / 2), v = min(w, q)",
    unit="pair",
    scope="rank, sequence, layer, step",
    source="counted for contiguous blocks, a bound for the others",
)
def window_first_pairs(
    *, pairs: Number, query_tokens: Number, block_tokens: Number, window: Number
) -> Number:
    """
    Pairs of step 0 in a sliding-window layer, at most.

    >>> window_first_pairs(pairs=10, query_tokens=4, block_tokens=4, window=2)
    7
    """
    seen = minimum(window, query_tokens)
    reach = query_tokens * minimum(window, block_tokens)
    return minimum(pairs, reach - seen * (seen - 1) // 2)


@formula(
    equation="min(pairs, (q w - first) / (R - 1))",
    unit="pair",
    scope="rank, sequence, layer, step",
    source="a mean, not a count: what the window sees beyond the own block, spread over all steps",
)
def window_later_pairs(
    *, pairs: Number, first_pairs: Number, query_tokens: Number, window: Number, ring_size: Number
) -> Number:
    """
    Pairs of a later step in a sliding-window layer, on average.

    >>> window_later_pairs(pairs=16, first_pairs=8, query_tokens=4, window=4, ring_size=3)
    4
    """
    beyond = maximum(query_tokens * window - first_pairs, 0)
    return minimum(pairs, divide(beyond, maximum(ring_size - 1, 1)))


@formula(
    equation="pairs = C N + N (N + 1) / 2", unit="pair", scope="sequence, layer", source=COUNTED
)
def visible_pairs(*, new_tokens: Number, cached_tokens: Number) -> Number:
    """
    Pairs of a whole pass under a causal mask.

    >>> visible_pairs(new_tokens=4, cached_tokens=2)
    18
    """
    return new_tokens * cached_tokens + new_tokens * (new_tokens + 1) // 2


@formula(
    equation="phi = f (1 - f) + m f^2",
    unit="1",
    scope="rank, sequence, layer, step",
    source=COUNTED,
)
def visible_share(*, new_tokens: Number, seq_len: Number, mask_share: Number) -> Number:
    """
    Visible share of a later step's n x n pairs, with f = N/S and m = 1 or, if balanced, 1/2.

    >>> visible_share(new_tokens=8, seq_len=8, mask_share=0.5)
    0.5
    """
    new = new_tokens / seq_len
    return new * (1 - new) + mask_share * new**2


@formula(
    equation="(S + 1) / (2 S - n + 1)",
    unit="1",
    scope="job, layer",
    source="counted; the limit P/(2P - 1) is in zhuzilin/ring_flash_attn's README as .53 at P = 8",
)
def contiguous_utilization(*, seq_len: Number, block_tokens: Number) -> Number:
    """
    Useful share of the work slots when the tokens are dealt in contiguous blocks.

    The busiest rank needs n(n + 1)/2 pairs at step 0 and n^2 at each later one.

    >>> contiguous_utilization(seq_len=1048576, block_tokens=16384)
    0.503937
    """
    return (seq_len + 1) / (2 * seq_len - block_tokens + 1)


@formula(
    equation="(P + 1) / (2 P)",
    unit="1",
    scope="job, layer",
    source="the article; Brandon et al. 2023 (Striped Attention) start from the same count",
)
def contiguous_utilization_blocks(*, cp_size: Number) -> Number:
    """
    Contiguous utilization in whole blocks, the diagonal counted as full work.

    >>> contiguous_utilization_blocks(cp_size=64)
    0.5078125
    """
    return (cp_size + 1) / (2 * cp_size)


@formula(
    equation="1 for n even or P = 1",
    unit="1",
    scope="job, layer",
    source="counted: every rank has P n^2/2 + n/2 pairs, n^2/2 of them at each later step",
)
def zigzag_utilization(*, seq_len: Number, block_tokens: Number, cp_size: Number) -> Number:
    """
    Useful share of the work slots when each rank holds an early and a late chunk, n even.

    >>> zigzag_utilization(seq_len=64, block_tokens=8, cp_size=8)
    1.0
    """
    first = block_tokens * (block_tokens + 1) / 2
    later = (cp_size - 1) * block_tokens * block_tokens / 2
    return seq_len * (seq_len + 1) / 2 / (cp_size * (first + later))


@formula(
    equation="(S + 1) / (P (n + 1))",
    unit="1",
    scope="job, layer",
    source="counted; Brandon et al. 2023 (Striped Attention)",
)
def striped_utilization(*, seq_len: Number, block_tokens: Number, cp_size: Number) -> Number:
    """
    Useful share of the work slots when token i sits on rank i mod P.

    >>> striped_utilization(seq_len=64, block_tokens=8, cp_size=8)
    0.90277
    """
    return (seq_len + 1) / (cp_size * (block_tokens + 1))


@formula(
    equation="1",
    unit="1",
    scope="job, layer",
    source="counted: every rank touches as many blocks at every step",
)
def balanced_utilization_blocks(*, cp_size: Number) -> Number:
    """
    Zigzag or striped utilization in whole blocks.

    >>> balanced_utilization_blocks(cp_size=64)
    1.0
    """
    return cp_size / cp_size
