"""Every formula on rings, exchanges, decode and utilization equals what a run's ledgers hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringplan.estimation.core  # noqa: F401 - registers every formula
import tests.reference.witnesses  # noqa: F401 - registers every witness
from ringplan.costs import (
    attention,
    buffers,
    cache,
    collectives,
    decode,
    hiding,
    layout,
    links,
    masks,
    rank_cache,
    ring,
)
from ringplan.costs.formula import REGISTRY
from tests.reference.witnesses.registry import TIE, WITNESSES

#: Modules in which every formula needs a witness, and formulas of the cache that do.
MODULES = (ring, collectives, buffers, masks, decode, hiding, layout, links, attention)
CACHE = (
    cache.kv_layer_bytes,
    cache.score_matrix_bytes,
    rank_cache.window_block_tokens,
    rank_cache.window_tokens,
    rank_cache.zigzag_window_tokens,
)
TENSOR_PARALLEL = "tensor parallelism is outside attention: a rank's heads are what it is given"
LINKS = "which link, how fast: a matter of the machine; tests/costs/test_laws_links.py counts it"
ARITHMETIC = "a sum, product or maximum of numbers that have a witness"
MEMORY = "traffic of a device's memory, which the simulated ranks do not time"
KERNELS = "a curve or table of measured kernels; tests/costs/test_laws_kernels.py has their laws"
BY_HAND = "the simulated ranks do not run it; tests/costs/test_laws_schedules.py counts it by hand"
#: Formulas of these modules that no run can witness, and why.
EXEMPT = {
    "attention_ranks": TENSOR_PARALLEL,
    "cache_replicas": TENSOR_PARALLEL,
    "replica_sequences": TENSOR_PARALLEL,
    **dict.fromkeys(
        (name for name, made in REGISTRY.items() if made.__module__ == links.__name__), LINKS
    ),
    **dict.fromkeys(
        (
            "blocks_bytes",
            "dcp_bytes",
            "decode_time",
            "gather_latencies",
            "gather_slices",
            "layer_time",
            "more_hops",
            "one_after_another",
            "slice_bytes",
            "step_bytes",
            "step_time",
            "time_of_hops",
            "with_home_hop",
        ),
        ARITHMETIC,
    ),
    **dict.fromkeys(("merge_bytes", "rate_beside_communication", "dcp_break_even_tokens"), MEMORY),
    **dict.fromkeys(
        (
            "beside_heads",
            "beside_own_block",
            "dcp_heads",
            "dcp_partial_bytes",
            "dcp_query_bytes",
            "dcp_statistic_bytes",
            "document_first_pairs",
            "document_later_pairs",
            "document_share",
            "double_ring_exposure",
            "double_ring_gradient_bytes",
            "double_ring_time",
            "kept_gathered_bytes",
            "longest_document",
            "needed_bytes",
            "padded_documents",
            "partial_slots",
            "partials_bytes",
            "replicated_kv_heads",
            "shorter_reach",
            "uneven_query_heads",
            "whole_ring_buffer_bytes",
            "window_hops",
        ),
        BY_HAND,
    ),
    "achieved_rate": "a measured share of the peak",
    **dict.fromkeys(("keys_met", "kernel_efficiency", "query_rows", "tile_efficiency"), KERNELS),
    "kv_heads": TENSOR_PARALLEL,
    "query_heads": TENSOR_PARALLEL,
}


@pytest.mark.parametrize("name", WITNESSES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_formula_is_what_the_ledger_counted(name: str, data: st.DataObject) -> None:
    """Counts are integers and equal; times and shares may differ in their last digits."""
    inputs, counted, most = WITNESSES[name](data)
    formula = REGISTRY[name](**inputs)

    if most is not None:
        assert counted * (1 - TIE) <= formula <= most * (1 + TIE)
    elif isinstance(formula, int):
        assert formula == counted
    else:
        assert formula == pytest.approx(counted, rel=1e-9, abs=1e-12)


def test_no_formula_is_without_a_witness() -> None:
    """Of rings, exchanges, buffers, masks, decode, hiding, layout and attention."""
    modules = {module.__name__ for module in MODULES}
    needed = {name for name, made in REGISTRY.items() if made.__module__ in modules}
    needed |= {made.name for made in CACHE}

    assert needed - WITNESSES.keys() - EXEMPT.keys() == set()
    assert WITNESSES.keys() - needed == set()
    assert EXEMPT.keys() <= needed - WITNESSES.keys()
