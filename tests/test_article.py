"""
The article, number by number: golden/article.csv against the JSON that a user gets.

Each row is asserted twice: what the article's formula gives, and what ringplan says by default
where the article is loose. Then again with N, P and the KV width doubled, by hand arithmetic.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from ringplan.cli.app import app

ROOT = Path(__file__).parent.parent
ARTICLE = str(ROOT / "docs/examples/article.yaml")
GQA = "model.num_key_value_heads=8"
#: The scenarios that the golden file names, as arguments.
SCENARIOS = {
    "mha-ib": (),
    "mha-nvlink": ("--set", "hardware.scale_out.bandwidth_per_direction=900 GB/s"),
    "gqa-ib": ("--set", GQA),
    "causal-ib": ("--set", "workload.causal=true", "--partition", "zigzag"),
}
#: One direction of the profile's own NVLink, where the article adds both.
NVLINK = ("--set", "hardware.scale_up.domain_size=64", "--set", "hardware.scale_up.latency=0 s")
ELEMENT_BYTES = 2


def golden() -> dict[str, dict[str, str]]:
    """Rows of the golden file by their number."""
    lines = (ROOT / "tests/golden/article.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {row["id"]: row for row in rows}


ROWS = golden()


@cache
def estimate(*arguments: str) -> dict[str, Any]:
    """Run ``ringplan estimate`` on the article and return what it printed."""
    result = CliRunner().invoke(app, ["estimate", ARTICLE, *arguments, "--format", "json"])
    assert result.exit_code in (0, 1), result.stderr
    made: dict[str, Any] = json.loads(result.stdout)["estimate"]
    return made


def at(made: dict[str, Any], path: str) -> Any:
    """Look up a metric; ``alternatives[a2a]`` is the row with that comm_type."""
    value: Any = made
    for part in path.split("."):
        name, _, label = part.removesuffix("]").partition("[")
        value = value[name]
        if label:
            value = next(row for row in value if row["comm_type"] == label)
    return value


DIRECT = {
    "A01", "A02", "A03", "A06", "A07", "A08", "A09", "A10", "A11", "A12", "A13", "A14", "A15",
    "A16", "A17", "A25", "A37",
}  # fmt: skip


@pytest.mark.parametrize("number", sorted(DIRECT))
def test_row_as_the_article_computes_it(number: str) -> None:
    row = ROWS[number]

    value = at(estimate(*SCENARIOS[row["scenario"]]), row["metric"])

    assert value == pytest.approx(float(row["expected"]), rel=1e-12)


@pytest.mark.parametrize("number", ["A10", "A11"])
def test_nvlink_is_one_direction_by_default(number: str) -> None:
    """900 GB/s is both directions added; a hop uses one."""
    row = ROWS[number]

    value = at(estimate(*NVLINK), row["metric"])

    assert value == pytest.approx(float(row["ringplan_default"]), rel=1e-9)


def test_a05_eight_kv_heads_do_not_fit_one_device() -> None:
    arguments = ["estimate", ARTICLE, "--set", GQA, "--cp", "1", "--format", "json"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 1
    assert json.loads(result.stdout)["estimate"]["memory"]["fits"] is False


def test_a18_ring_elements() -> None:
    sent = at(estimate(), ROWS["A18"]["metric"])

    assert sent == int(ROWS["A18"]["expected"]) * ELEMENT_BYTES


def test_a19_a20_ulysses_sends_what_leaves_the_rank() -> None:
    """Only (P - 1)/P of the article's 4 b d elements is sent, so the ratio is 32 and not 31.5."""
    made = estimate()
    ulysses = at(made, "alternatives[a2a].bytes_sent_forward")

    assert ulysses == int(ROWS["A19"]["ringplan_default"]) * ELEMENT_BYTES
    assert ulysses == int(ROWS["A19"]["expected"]) * ELEMENT_BYTES * 63 // 64
    assert made["ring"]["bytes_sent_forward"] / ulysses == float(ROWS["A20"]["ringplan_default"])


def test_a21_ring_over_ulysses_under_gqa() -> None:
    made = estimate(*SCENARIOS["gqa-ib"])
    ulysses = at(made, "alternatives[a2a].bytes_sent_forward")

    ratio = made["ring"]["bytes_sent_forward"] / ulysses

    assert ratio == pytest.approx(float(ROWS["A21"]["expected"]), rel=1e-12)


@pytest.mark.parametrize("ranks", [8, 32])
def test_a22_a36_ulysses_needs_a_head_a_rank(ranks: int) -> None:
    """The article's own example breaks P <= H: 64 ranks, 32 heads."""
    assert at(estimate(), "alternatives[a2a].feasible") is False
    assert at(estimate(), "alternatives[a2a].reasons") != []

    assert at(estimate("--cp", str(ranks)), "alternatives[a2a].feasible") is True


def test_a23_a24_causal_utilization_both_ways() -> None:
    used = estimate()["utilization"]["contiguous"]

    assert used["block_granular"] == float(ROWS["A24"]["expected"])
    assert used["exact"] == pytest.approx(float(ROWS["A24"]["ringplan_default"]), abs=5e-10)


def test_a26_margin_grows_with_the_block() -> None:
    doubled = estimate("--seq-len", "2M")["ring"]["overlap_margin"]

    assert doubled == pytest.approx(2 * estimate()["ring"]["overlap_margin"], rel=1e-12)


def test_a27_decode_ratio_does_not_grow_with_the_block() -> None:
    margins = [
        estimate("--phase", "decode", "--seq-len", size)["ring"]["overlap_margin"]
        for size in ("1M", "2M")
    ]

    assert margins[0] == pytest.approx(margins[1], rel=1e-9)


def test_a30_training_moves_three_times_the_bytes() -> None:
    ring = estimate()["ring"]
    total = ring["bytes_sent_forward"] + ring["bytes_sent_backward"]

    assert total / ring["bytes_sent_forward"] == float(ROWS["A30"]["ringplan_default"])


def test_a31_buffers_do_not_grow_with_the_ranks() -> None:
    """Same block, twice the ranks and the context: the ring holds as much."""
    held = estimate()["memory"]["rank"]["ring_buffer_bytes"]

    assert estimate("--seq-len", "2M", "--cp", "128")["memory"]["rank"]["ring_buffer_bytes"] == held


def test_a32_a33_the_cpu_rule() -> None:
    arguments = ["estimate", str(ROOT / "docs/examples/cpu.yaml"), "--format", "json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)

    block = document["estimate"]["ring"]["min_block_tokens_ideal"]

    assert block == pytest.approx(float(ROWS["A33"]["expected"]), rel=1e-4)
    assert "RP205" in [finding["code"] for finding in document["findings"]]


def test_a28_a38_mesh_of_eight_by_eight() -> None:
    made = estimate("--cp", "8", "--tp", "8")
    row = next(row for row in made["communication"] if row["axis"] == "tp")
    tokens, hidden, layers, hops = 2**20 // 8, 4096, 32, 7

    assert row["bytes"] == 2 * layers * 2 * hops * tokens * hidden * ELEMENT_BYTES // 8
    assert row["latencies"] == 2 * layers * 2 * hops


class Case(NamedTuple):
    """The article's symbols: tokens, ranks, query width, KV width."""

    n: int
    p: int
    d: int
    d_kv: int

    @property
    def b(self) -> int:
        """Tokens of a block."""
        return self.n // self.p


def by_hand(c: Case) -> dict[str, float]:
    """The article's formulas, written out."""
    flops, card = 400e12, 50e9
    step, hop = 4 * c.b**2 * c.d, 2 * c.b * c.d_kv * ELEMENT_BYTES
    layer = 2 * c.n * c.d_kv * ELEMENT_BYTES
    return {
        "memory.kv_bytes_per_layer": layer,
        "memory.kv_bytes": 32 * layer,
        "memory.score_matrix_bytes": 32 * c.n**2 * ELEMENT_BYTES,
        "ring.block_tokens": c.b,
        "ring.step_flops": step,
        "ring.step_attention_time": step / flops,
        "ring.hop_bytes": hop,
        "ring.hop_time": hop / card,
        "ring.overlap_margin": (step / flops) / (hop / card),
        "ring.bytes_sent_forward": 2 * c.d_kv * (c.n - c.b) * ELEMENT_BYTES,
        "ring.min_block_tokens_ideal": c.d_kv / c.d * flops / card,
        "utilization.contiguous.block_granular": (c.p + 1) / (2 * c.p),
        "utilization.contiguous.exact": (c.n + 1) / (2 * c.n - c.b + 1),
    }


N, P, D = 2**20, 64, 4096
CASES = {
    "as printed": (Case(N, P, D, D), ()),
    "N doubled": (Case(2 * N, P, D, D), ("--seq-len", "2M")),
    "P doubled": (Case(N, 2 * P, D, D), ("--cp", "128")),
    "d and d_kv doubled": (Case(N, P, 2 * D, 2 * D), ("--set", "model.head_dim=256")),
    "GQA": (Case(N, P, D, 1024), ("--set", GQA)),
    "GQA, d_kv doubled": (Case(N, P, D, 2048), ("--set", "model.num_key_value_heads=16")),
}


@pytest.mark.parametrize("name", CASES)
def test_formulas_of_the_article_by_hand(name: str) -> None:
    case, arguments = CASES[name]

    made = estimate(*arguments)

    for metric, expected in by_hand(case).items():
        assert at(made, metric) == pytest.approx(expected, rel=1e-12), metric


def test_every_row_with_a_metric_is_asserted() -> None:
    """A row that nothing asserts is a row that nobody reads."""
    named = {
        "A05", "A18", "A19", "A20", "A21", "A22", "A24", "A33", "A36", "A38",
    }  # fmt: skip
    elsewhere = {"A34", "A35"}  # the reference ring, and the findings of the mesh order

    with_metric = {n for n, row in ROWS.items() if row["metric"] != "-"}

    assert with_metric == DIRECT | (named - {"A20", "A21"}) | elsewhere
