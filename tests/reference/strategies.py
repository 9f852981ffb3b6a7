"""Random problems for Hypothesis."""

from __future__ import annotations

from math import gcd

import numpy as np
from hypothesis import strategies as st

from ringplan.reference import masks, partition
from ringplan.reference.local import Setup
from ringplan.reference.masks import Mask
from tests.reference.cases import DATAFLOWS, STATES, Case, layout_of, tensors

seeds = st.integers(0, 2**32 - 1)


@st.composite
def cases(draw: st.DrawFn, name: str) -> Case:
    """Any ranks, heads, sizes, partition, mask and packing that the dataflow can have."""
    dataflow = DATAFLOWS[name]
    num_ranks = draw(st.sampled_from([size for size in range(1, 9) if dataflow.sizes(size)]))
    inner = draw(st.sampled_from(dataflow.sizes(num_ranks)))
    group = inner if dataflow.trades_heads else 1

    lengths = [2 * num_ranks * draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    tokens = sum(lengths)
    partition_name = draw(st.sampled_from(list(partition.PARTITIONS)))
    each_document = draw(st.booleans())
    layout = layout_of(partition_name, lengths if each_document else tokens, num_ranks, group)
    mask = Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(2, tokens + 1)),
        documents=masks.documents(lengths) if draw(st.booleans()) else None,
    )

    kv_heads = draw(st.sampled_from([g for g in range(1, 9) if g % group == 0 or group % g == 0]))
    share = group // gcd(group, kv_heads)
    given = tensors(
        tokens,
        heads=(kv_heads * share * draw(st.integers(1, 2)), kv_heads),
        sizes=(draw(st.integers(1, 6)), draw(st.integers(1, 6))),
        batch=draw(st.integers(1, 2)),
        seed=draw(seeds),
    )
    state = STATES[draw(st.sampled_from(list(STATES)))]
    return Case(dataflow, Setup(mask, layout, layout, state), given, inner)


@st.composite
def uneven_cases(draw: st.DrawFn, name: str) -> Case:
    """Any token on any rank, in any order; some hold no query or no key, some rows see nothing."""
    dataflow = DATAFLOWS[name]
    num_ranks = draw(st.sampled_from([size for size in range(1, 6) if dataflow.sizes(size)]))
    inner = draw(st.sampled_from(dataflow.sizes(num_ranks)))
    tokens = draw(st.integers(2, 16))

    def scattered() -> partition.Layout:
        held = draw(st.lists(st.integers(0, num_ranks), min_size=tokens, max_size=tokens))
        order = np.array(draw(st.permutations(range(tokens))))
        owner = np.array(held)[order]  # the number after the last rank's is nobody's
        return tuple((order[owner == rank],) for rank in range(num_ranks))

    mask = Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 6)),
        documents=masks.documents([tokens // 2, tokens - tokens // 2]),
    )
    state = STATES[draw(st.sampled_from(list(STATES)))]
    heads = inner if dataflow.trades_heads else 2
    given = tensors(tokens, heads=(2 * heads, heads), sizes=(3, 2), batch=1, seed=draw(seeds))
    return Case(dataflow, Setup(mask, scattered(), scattered(), state), given, inner)
