"""What is run: nothing that matters is scaled away, and nothing is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.api import load
from ringplan.errors import SpecError
from ringplan.estimation.core import estimate
from ringplan.feasibility import reasons
from ringplan.specs.mesh import Partition
from ringplan.validation import selection
from ringplan.validation.counts import Count
from ringplan.validation.dataflows import (
    all_gather,
    decode_step,
    double_ring,
    mesh_passes,
    pass_q,
)
from ringplan.validation.runs import relative_error
from ringplan.validation.scaling import PREFIX, scaled

if TYPE_CHECKING:
    from ringplan.specs.scenario import Scenario

BASE = {"model": "llama-3.1-70b", "hardware": "h100-sxm-80gb", "seq_len": "128K"}


def scenario(**given: Any) -> Scenario:
    return load(**{**BASE, **given}).scenario


def small(asked: Scenario, seq_len: int | None = None) -> Scenario:
    return scaled(asked, asked.model.kinds[0], seq_len)


@given(
    cp_size=st.sampled_from([1, 2, 3, 8, 32]),
    tp_size=st.sampled_from([1, 2, 4, 8, 16]),
    partition=st.sampled_from(get_args(Partition)),
    cached=st.sampled_from([None, "32K", "64K", "96K", "112K"]),
    batch_size=st.integers(1, 4),
)
def test_scaled_scenario_keeps_what_matters(
    cp_size: int, tp_size: int, partition: str, cached: str | None, batch_size: int
) -> None:
    """Ranks, partition, heads of a rank, the share that is cached; and every rank holds as many."""
    asked = scenario(
        cp_size=cp_size,
        tp_size=tp_size,
        partition=partition,
        cached_len=cached,
        batch_size=batch_size,
    )
    made = small(asked)
    (kind,), (old, new) = made.model.kinds, made.workload.split

    assert made.mesh.cp_size == made.mesh.world_size == cp_size
    assert made.mesh.partition == partition
    assert kind.num_attention_heads == 64 // tp_size
    assert kind.num_key_value_heads == max(8 // tp_size, 1)
    assert kind.head_dim == kind.v_head_dim
    here = new / cp_size * asked.workload.split[0] / asked.workload.split[1]
    assert abs(old / cp_size - here) <= 0.5
    assert old % cp_size == 0
    assert reasons(made) == []


@pytest.mark.parametrize(("model", "ratio"), [("deepseek-r1", 192 / 128), ("llama-3.1-8b", 1)])
def test_ratio_of_head_sizes_is_kept(model: str, ratio: float) -> None:
    """MLA's expanded keys are half as wide again as its values; its latent is narrow too."""
    (kind,) = small(scenario(model=model)).model.kinds

    assert kind.head_dim / kind.v_head_dim == ratio
    if model == "deepseek-r1":
        assert (kind.latent_dim or 0) / (kind.latent_v_dim or 1) == 576 / 512


def test_a_window_shrinks_with_the_context() -> None:
    asked = scenario(model="gemma-2-27b", cp_size=4)
    windows = {scaled(asked, kind).model.kinds[0].window for kind in asked.model.kinds}

    assert windows == {None, 64 * 4096 // 131072}


def test_a_long_prefix_is_cut_and_a_short_one_is_not_lost() -> None:
    """A thousand cached tokens for a new one are as many as sixteen; a few are one a rank."""
    for cached, share in (("130944", PREFIX), ("64", 1 / 16)):
        old, new = small(scenario(cached_len=cached, cp_size=4)).workload.split

        assert old / new == share


@given(seq_len=st.integers(1, 3000), cp_size=st.integers(1, 9))
def test_asked_length_is_met_as_nearly_as_the_ranks_allow(seq_len: int, cp_size: int) -> None:
    """Never longer; shorter by less than one more token, or two, for every rank."""
    asked = scenario(cp_size=cp_size, batch_size=1, tp_size=8)
    granule = 2 * cp_size if cp_size > 1 else 1
    if seq_len < granule:
        with pytest.raises(SpecError, match=f"--seq-len {granule} or more"):
            small(asked, seq_len)
    else:
        made = small(asked, seq_len).workload.seq_len

        assert seq_len - granule < made <= seq_len


def test_selection_shows_every_dataflow_partition_and_mask() -> None:
    cases = selection.readable(scenario(), "fp32").cases
    shown = {dataflow for case in cases for dataflow in case.dataflows}

    rows = {row.what for done in selection.readable(scenario(), "fp32").rows() for row in done}

    assert shown == {mesh_passes, all_gather, double_ring, decode_step, pass_q}
    assert rows == {
        "all-gather backward",
        "all-gather forward",
        "decode, K/V rotating",
        "decode, K/V stationary",
        "double ring 3 x 2 forward",
        "pass-KV forward",
        "pass-Q forward",
        "ring backward",
        "ring backward, home",
        "ring forward",
        "ulysses 2 x ring 2 backward",
        "ulysses 2 x ring 2 forward",
        "ulysses backward",
        "ulysses forward",
    }
    assert {case.scenario.mesh.partition for case in cases} == {*get_args(Partition)}
    assert {case.scenario.workload.causal for case in cases} == {True, False}
    assert all(reasons(case.scenario) == [] for case in cases)


def test_everything_agrees() -> None:
    """What ``--full`` runs, and more rows than a person reads."""
    plan = selection.full(scenario(), "fp32")
    rows = [row for done in plan.rows() for row in done]

    assert [row for row in rows if not row.passed] == []
    assert len(rows) > 4000


@pytest.mark.parametrize("phase", ["prefill", "train", "decode"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-r1", "gemma-2-27b", "gpt-oss-120b"])
def test_every_kind_of_layer_agrees_in_every_phase(model: str, phase: str) -> None:
    """MHA, GQA, MLA's expanded heads and latents, global and sliding-window layers."""
    asked = scenario(model=model, phase=phase, cp_size=4, tp_size=4)
    plan = selection.own(asked, "fp32")
    rows = [row for done in plan.rows() for row in done]
    kinds = {row.scenario.model.kinds[0].window is None for row in rows}

    assert [row for row in rows if not row.passed] == []
    assert kinds == {kind.window is None for kind in asked.model.kinds}


def test_every_degree_that_can_run_is_run() -> None:
    """8 KV heads over 2 tensor-parallel ranks are 4: degrees 1, 2 and 4 of 8 ranks."""
    plan = selection.own(scenario(cp_size=8, tp_size=2), "fp32")

    assert [case.scenario.mesh.ulysses_size for case in plan.cases] == [1, 2, 4]
    assert sum(decode_step in case.dataflows for case in plan.cases) == 1


def test_alternatives_of_an_estimate_are_the_meshes_that_are_run() -> None:
    """So that what agrees for a mesh agrees for the row that the table of alternatives shows."""
    for case in selection.own(scenario(cp_size=8), "fp32").cases:
        ring = estimate(case.scenario).ring
        degree = case.scenario.mesh.ulysses_size
        (row,) = (
            row
            for row in estimate(case.scenario).alternatives
            if row.comm_type != "all_gather" and row.ulysses_size == degree
        )

        assert row.bytes_sent_forward == ring.bytes_sent_forward
        assert row.bytes_sent_backward == ring.bytes_sent_backward


def test_counts_agree_when_equal_and_shares_to_the_last_digits() -> None:
    assert Count("bytes_sent", 3, 3).agrees
    assert not Count("bytes_sent", 10**15, 10**15 + 1).agrees
    assert Count("utilization", 0.1 + 0.2, 0.3).agrees
    assert not Count("utilization", 0.3, 0.3001).agrees


def test_error_is_the_largest_and_not_a_number_fails() -> None:
    """A row with a NaN is never within its tolerance."""
    right = np.ones(4)
    row = next(selection.readable(scenario(), "fp32").rows())[0]

    assert relative_error([right, right], [right, 2 * right]) == 0.5
    assert relative_error([right], [0 * right]) == 2
    assert np.isnan(relative_error([right * np.nan, right], [right, right]))
    assert np.isnan(relative_error([right, right * np.nan], [right, right]))
    assert row.passed
    assert not row._replace(error=float("nan")).passed
    assert not row._replace(error=1e-4).passed


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"kv_extra_hops_forward": 0}, {"all-gather forward", "all-gather backward"}),
        ({"gradient_extra_hops": 1}, {"ring forward", "all-gather forward"}),
        ({"kv_extra_hops_backward": 0}, {"ring forward", "all-gather forward"}),
    ],
)
def test_schedule_that_wastes_hops_is_left_out_and_said(
    fields: dict[str, int], left: set[str]
) -> None:
    """The reference sends nothing on after its last use; an estimate that does is not wrong."""
    asked = scenario(cp_size=4)
    schedule = asked.schedule.model_copy(update=fields)
    plan = selection.own(asked.model_copy(update={"schedule": schedule}), "fp32")
    rows = [row for done in plan.rows() for row in done]

    assert all(row.passed for row in rows)
    assert left <= {row.what for row in rows}
    assert "ring backward" not in {row.what for row in rows}
    assert any("without need" in note for note in plan.notes)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_schedule_with_wide_gradients_and_three_latencies_agrees(dtype: str) -> None:
    """Gradients come home in fp32, as in ring-flash-attention: more bytes where K is narrow."""
    asked = scenario(cp_size=4)
    fields = {
        "gradient_extra_hops": 0,
        "gradient_wire_dtype": "fp32",
        "decode_latencies": 3,
        "kv_buffers": 3,
    }
    schedule = asked.schedule.model_copy(update=fields)
    plan = selection.own(asked.model_copy(update={"schedule": schedule}), dtype)
    rows = {row.what: row for done in plan.rows() for row in done}
    forward, backward = rows["ring forward"], rows["ring backward, home"]

    assert all(row.passed for row in rows.values())
    sent = [row.named("bytes_sent") for row in (forward, backward)]
    assert sent[0] is not None
    assert sent[1] is not None
    wide = 2 if dtype == "bf16" else 1
    assert sent[1].counted == sent[0].counted * (3 + wide * 4) / 3


def test_what_is_not_run_as_it_is_is_said() -> None:
    batch = selection.own(scenario(cp_size=2, batch_size=8), "fp32").notes
    queries = selection.own(
        scenario(cp_size=2, phase="decode", new_tokens=4, cached_len=131068), "fp32"
    ).notes
    prefix = selection.own(scenario(cp_size=2, cached_len="126K"), "fp32").notes

    assert batch == ("2 sequences are run in place of 8",)
    assert queries == ("one query a sequence is run in place of 4",)
    assert prefix == ("16 cached tokens for a new one are run, not more",)


def test_long_prefix_on_many_ranks_can_be_run() -> None:
    """Hints agree with one another: what is called too long is not what is called too short."""
    asked = scenario(cp_size=64, cached_len="126K", batch_size=2)
    made = small(asked)

    assert made.workload.split == (64 * 4 * PREFIX, 64 * 4)
    with pytest.raises(SpecError, match="2176 or more"):
        small(asked, 2048)
    with pytest.raises(SpecError, match=r"too long: .* \(--seq-len \d+ or less\)"):
        small(asked, 2**20)


def test_partial_outputs_narrower_than_sums_agree() -> None:
    """Kernels may return partial outputs in 16 bits; their statistics stay in fp32."""
    asked = scenario(cp_size=4, phase="decode")
    schedule = asked.schedule.model_copy(update={"partial_dtype": "bf16"})
    plan = selection.own(asked.model_copy(update={"schedule": schedule}), "bf16")
    rows = [row for done in plan.rows() for row in done]

    assert all(row.passed for row in rows)
    assert len(rows) == 2


def test_ring_of_a_decode_step_is_compared() -> None:
    rows = [row for done in selection.own(scenario(cp_size=4, phase="decode"), "fp32").rows()
            for row in done]  # fmt: skip
    counts = {count.name: count for row in rows for count in row.counts}

    assert {"ring_bytes_sent", "hops", "hop_bytes", "step_flops"} <= counts.keys()
    assert all(count.agrees for count in counts.values())
    with_heads = scenario(cp_size=4, ulysses_size=2, phase="decode")
    assert any("flat ring" in note for note in selection.own(with_heads, "fp32").notes)


def test_training_compares_what_the_way_back_holds() -> None:
    """Rings of two and of four, whichever way round, and the all-gather."""
    rows = [row for done in selection.readable(scenario(), "fp32").rows() for row in done]
    held = {
        (row.what, row.scenario.mesh.cp_size)
        for row in rows
        if "backward" in row.what and row.named("buffer_bytes")
    }

    assert {
        ("ring backward", 2),
        ("ring backward", 4),
        ("all-gather backward", 4),
    } <= held


def test_format_of_a_cache_that_is_not_run_is_said() -> None:
    notes = selection.own(scenario(cp_size=2, kv_dtype="fp8"), "fp32").notes

    assert notes == ("one format is run throughout, not a cache in fp8",)


def test_step_of_a_window_layer_does_less_than_one_of_a_global_layer() -> None:
    """Although its count is a bound."""
    asked = scenario(model="gemma-2-27b", cp_size=4)
    by_window = {
        made.model.kinds[0].window is None: estimate(made).ring.step_flops
        for made in (scaled(asked, kind, 512) for kind in asked.model.kinds)
    }

    assert by_window[False] < by_window[True]
