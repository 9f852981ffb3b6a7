"""Attention kernels on little work: laws of the curve, and what was measured on real devices."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringplan
from ringplan.costs import attention
from ringplan.errors import SpecError
from ringplan.io import library
from ringplan.io.profiles import read_profile
from ringplan.specs.hardware import HardwareProfile

DATA = Path(__file__).parents[1] / "data/attention_kernels.csv"
MEASURED = list(csv.DictReader(DATA.read_text(encoding="utf-8").splitlines()))
SHELF = library.find("hardware", "h100-sxm-80gb").parent
FAMILIES = ["ada", "ampere", "blackwell", "hopper"]
H100: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "seq_len": "32K"}


def share(hardware: str, way: str = "forward", **call: Any) -> Any:
    """Share of the peak that a shipped profile gives a call."""
    values = read_profile(library.find("hardware", hardware)).values
    efficiency = HardwareProfile.model_validate(values).efficiency
    curve = getattr(efficiency, f"{way}_curve")
    ((_, plateau),) = getattr(efficiency, f"attention_{way}")
    queries, causal = call["query_tokens"], call["causal"]
    pairs = queries * (queries + 1) // 2 if causal else queries * call.get("keys", queries)
    tables = {}
    for name in ("fill", "depth", "head"):
        tables[f"{name}_sizes"], tables[f"{name}_shares"] = zip(*getattr(curve, name), strict=True)
    return attention.kernel_efficiency(
        plateau=plateau,
        query_rows=attention.query_rows(
            batch_size=call["batch_size"], num_heads=call["num_heads"], query_tokens=queries
        ),
        keys_met=attention.keys_met(
            pairs=pairs, query_tokens=queries, tile=curve.tile, diagonal_share=int(causal)
        ),
        pairs=pairs,
        query_tokens=queries,
        head_dim=call["head_dim"],
        **tables,
    )


calls = st.fixed_dictionaries(
    {
        "hardware": st.sampled_from(["h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb", "l40s"]),
        "way": st.sampled_from(["forward", "backward"]),
        "batch_size": st.integers(1, 8),
        "num_heads": st.integers(1, 64),
        "head_dim": st.sampled_from([64, 96, 128, 256]),
        "query_tokens": st.integers(1, 2**17),
        "causal": st.booleans(),
    }
)


@given(call=calls, more=st.integers(1, 2**17))
@pytest.mark.parametrize("of", ["query_tokens", "num_heads", "batch_size"])
def test_more_work_is_never_at_a_lower_rate(of: str, call: dict[str, Any], more: int) -> None:
    assert share(**{**call, of: call[of] + more}) >= share(**call) * (1 - 1e-12)


@given(call=calls, keys=st.integers(1, 2**17), more=st.integers(0, 2**17))
def test_more_keys_are_never_at_a_lower_rate(call: dict[str, Any], keys: int, more: int) -> None:
    call |= {"causal": False}

    assert share(**call, keys=keys + more) >= share(**call, keys=keys) * (1 - 1e-12)


@given(call=calls)
def test_no_call_is_above_the_plateau_and_none_at_nothing(call: dict[str, Any]) -> None:
    values = read_profile(library.find("hardware", call["hardware"])).values
    plateau = values["efficiency"][f"attention_{call['way']}"]

    assert 0 < share(**call) <= plateau


@given(call=calls)
def test_a_diagonal_costs_the_hidden_halves_of_its_tiles(call: dict[str, Any]) -> None:
    """A mask never raises the rate of as many queries; with many tokens it hardly lowers it."""
    masked, whole = (share(**{**call, "causal": causal}) for causal in (True, False))

    assert masked <= whole * (1 + 1e-12)
    if call["query_tokens"] >= 2**16:
        assert masked >= 0.98 * whole


def test_a_column_is_its_rows() -> None:
    tokens = np.array([1, 100, 1024, 5000, 2**17])
    call: dict[str, Any] = {"batch_size": 1, "num_heads": 32, "head_dim": 128, "causal": True}

    column = share("h100-sxm-80gb", **call, query_tokens=tokens)

    rows = [share("h100-sxm-80gb", **call, query_tokens=int(n)) for n in tokens]
    assert column == pytest.approx(rows, rel=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_curves_end_at_the_plateau_and_rise(name: str) -> None:
    values = read_profile(library.find("hardware", f"families/{name}.yaml", beside=SHELF)).values
    for way in ("forward", "backward"):
        curve = values["efficiency"][f"{way}_curve"]
        for table in ("fill", "depth", "head"):
            shares = list(curve[table].values())
            assert shares == sorted(shares), (way, table)
            assert shares[-1] == 1, (way, table)
            assert shares[0] > 0, (way, table)


def errors(of: str) -> dict[int, list[float]]:
    """Predicted over measured, less one, by tokens."""
    found: dict[int, list[float]] = {}
    for row in MEASURED:
        if of not in row["source"]:
            continue
        values = read_profile(library.find("hardware", row["hardware"])).values
        peak = HardwareProfile.model_validate(values).peak.bf16
        assert peak is not None
        tokens = int(row["tokens"])
        predicted = share(
            row["hardware"],
            row["pass"],
            batch_size=int(row["batch_size"]),
            num_heads=int(row["num_heads"]),
            head_dim=int(row["head_dim"]),
            query_tokens=tokens,
            causal=row["mask"] == "causal",
        )
        found.setdefault(tokens, []).append(predicted * peak / 1e12 / float(row["tflops"]) - 1)
    return found


@pytest.mark.parametrize(
    ("source", "within"),
    [
        ("flash3_fp16_fwd", 0.10),
        ("digitised: fa3", 0.13),
        ("digitised: fa4", 0.17),
        ("aiconfigurator", 0.21),
    ],
)
def test_measured_kernels_from_4k_on(source: str, within: float) -> None:
    """Kernels of one family differ by as much among themselves: one curve stands for all."""
    found = errors(source)

    assert found
    for tokens, each in found.items():
        if tokens >= 4096:
            assert max(map(abs, each)) <= within + 1e-3, tokens


def test_measured_kernels_in_all() -> None:
    """FlashAttention-4 on 1K and 2K, 3.5 and 1 times too fast here, is the worst."""
    every = [abs(error) for each in errors("").values() for error in each]

    assert len(every) == 140
    assert median(every) <= 0.06
    assert quantiles(every, n=10)[-1] <= 0.20


def test_shapes_that_were_measured_on_h100() -> None:
    """vLLM 0.19, 32 heads, causal: 302 of 739 TFLOP/s at 1K, 481 at 2K, 610 at 4K, 700 at 8K."""
    call: dict[str, Any] = {"batch_size": 1, "num_heads": 32, "head_dim": 128, "causal": True}
    longest = share("h100-sxm-80gb", **call, query_tokens=16384)

    for tokens, rate in ((1024, 302), (2048, 481), (4096, 610), (8192, 700)):
        of = share("h100-sxm-80gb", **call, query_tokens=tokens) / longest
        assert of == pytest.approx(rate / 739, rel=0.01)


def rates(**given: Any) -> float:
    """FLOP/s of a later step."""
    ring = ringplan.estimate(**{**H100, "cp_size": 8, **given}).estimate.ring
    return float(ring.step_flops / ring.step_attention_time)


def test_short_steps_are_slower_and_a_given_number_stands_alone() -> None:
    flat = {"hardware.efficiency.attention_forward": 0.65}

    assert rates() < 0.95 * rates(seq_len="1M")
    assert rates(set=flat) == pytest.approx(0.65 * 989e12)
    assert rates(set=flat, seq_len="1M") == pytest.approx(0.65 * 989e12)


def test_a_table_by_tokens_stands_alone() -> None:
    table = {"hardware.efficiency.attention_forward": "{1K: 0.2, 4K: 0.4}"}

    assert rates(set=table) == pytest.approx(0.4 * 989e12)


def test_a_point_of_a_curve_can_be_set() -> None:
    """A steeper curve is a slower step, and the derivation says whose it is."""
    steep = {"hardware.efficiency.forward_curve.fill": "{32K: 0.1, 512K: 1}"}

    assert rates(set=steep) < rates()


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(SpecError, match="forward_curve"):
        rates(set={"hardware.efficiency.forward_curve.fill": "{32K: 1.2}"})
