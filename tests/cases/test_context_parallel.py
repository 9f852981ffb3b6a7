"""Public questions about context parallelism, asked through the public API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import ringplan

FILE = Path(__file__).parents[1] / "data/cases/context_parallel.yaml"
VALIDATION = Path(__file__).parents[2] / "docs/validation.md"
ROWS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))

QWEN_7B = {
    "model.num_attention_heads": 28,
    "model.num_key_value_heads": 4,
    "model.head_dim": 128,
}
BASE: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "seq_len": "128K"}


def at(made: Any, metric: str) -> Any:
    """Look up a dotted metric; ``communication[ring]`` is the row with that label."""
    for part in metric.split("."):
        name, _, label = part.removesuffix("]").partition("[")
        made = getattr(made, name)
        if label:
            made = next(row for row in made if row.label == label)
    return made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['row']} {row['what'][:40]}")
def test_row_has_its_number(row: dict[str, Any]) -> None:
    made = ringplan.estimate(**row["given"]).estimate
    value = at(made, row["metric"])
    if "over" in row:
        value /= at(made, row["over"])
    value = value / row["divide"] if "divide" in row else value

    if "tolerance" in row:
        assert value == pytest.approx(row["number"], rel=row["tolerance"])
    else:
        assert value == row["number"]
    assert row["thread"]
    assert row["from"]


def codes(**given: Any) -> set[str]:
    return {
        f.code for f in ringplan.estimate(**{**BASE, **given}).findings if f.severity == "error"
    }


def finding(code: str, **given: Any) -> Any:
    found = ringplan.estimate(**{**BASE, **given}).findings
    return next(each for each in found if each.code == code)


def test_zigzag_is_at_most_2_less_1_over_p_faster() -> None:
    """B23, mlc-ai/pith-train PR#39: 1.75 at cp 4, of which 1.67 was measured."""
    used = ringplan.estimate(**{**BASE, "seq_len": "1M", "cp_size": 4}).estimate.utilization
    assert used.zigzag.exact / used.contiguous.exact == pytest.approx(1.75, rel=1e-5)


@pytest.mark.parametrize("ranks", [2, 4, 8, 12, 13, 16])
def test_bytes_favour_the_ring_up_to_13_ranks(ranks: int) -> None:
    """B25, PrimeIntellect-ai/prime-rl PR#2418: 96 query and 8 KV heads, P < 1 + H/G."""
    heads = {"model.num_attention_heads": 96, "model.head_dim": 128}
    rows = ringplan.estimate(
        **{**BASE, "seq_len": 2 * 16 * 13 * 96 * 64, "cp_size": ranks, "set": heads}
    ).estimate.alternatives
    sent = {row.label: row.bytes_sent_forward for row in rows}
    if 8 % ranks == 0 or ranks % 8 == 0:
        assert (sent["p2p"] < sent["hf-ulysses"]) is (ranks * 8 < 96 + max(8, ranks))


def test_degrees_that_28_and_4_heads_allow() -> None:
    """B31, verl-project/verl#901: P divides 28, and 4 or P the other."""
    able = {
        ranks
        for ranks in range(1, 33)
        if not codes(
            seq_len=2**17,
            cp_size=ranks,
            schedule="hf-ulysses",
            set=QWEN_7B,
        )
        & {"RP104", "RP105"}
    }
    assert able == {1, 2, 4, 28}


def test_hierarchical_sizes_are_required() -> None:
    """B37, NVIDIA-NeMo/Megatron-Bridge#2667: a2a+p2p without them is refused, with a degree."""
    found = finding("RP116", cp_size=8, schedule="megatron-a2a-p2p")
    assert "--ulysses 2" in found.hint
    assert codes(cp_size=8, schedule="megatron-a2a-p2p", ulysses_size=2) == set()


@pytest.mark.parametrize(
    ("schedule", "refused"), [("megatron-a2a", True), ("usp", True), ("hf-ulysses", False)]
)
def test_fewer_kv_heads_than_ranks(schedule: str, refused: bool) -> None:  # noqa: FBT001
    """C43, verl-project/verl PR#850: refused, unless heads are repeated to max(G, P)."""
    given = {"cp_size": 16, "ulysses_size": 16, "schedule": schedule}
    assert ("RP105" in codes(**given)) is refused
    if not refused:
        sent = ringplan.estimate(**{**BASE, **given}).estimate.ring.bytes_sent_forward
        assert sent == 15 * 8192 * (32 + 16) * 256 * 2 // 16


@pytest.mark.parametrize(
    ("heads", "ranks", "most", "used"),
    [(12, 4, 3, None), (7, 4, 2, "87.5 %"), (20, 8, 3, "83.3 %")],
)
def test_uneven_heads(heads: int, ranks: int, most: int, used: str | None) -> None:
    """C45, deepspeedai/DeepSpeed#8291 and PR#6392: shares that differ by one, and what they use."""
    fields = {
        "model.num_attention_heads": heads,
        "model.num_key_value_heads": heads,
        "model.head_dim": 128,
    }
    made = ringplan.estimate(
        **{**BASE, "cp_size": ranks, "schedule": "deepspeed-ulysses", "set": fields}
    )
    pairs = 131072 * 131073 // 2
    assert made.estimate.ring.step_flops == 2 * most * 256 * pairs
    said = [each.message for each in made.findings if each.code == "RP218"]
    assert bool(said) is (used is not None)
    assert used is None or used in said[0]


def test_seven_tokens_over_two_ranks() -> None:
    """C47, NVIDIA/TransformerEngine#1929: a multiple of 4, 7 becomes 8."""
    found = finding("RP101", seq_len=7, cp_size=2, schedule="megatron-p2p")
    assert "2 x cp_size = 4" in found.message
    assert "--seq-len 8" in found.hint


@pytest.mark.parametrize(
    ("tp_size", "dcp_size", "refused"),
    [(4, 2, True), (8, 2, False), (8, 4, True), (16, 4, False), (16, 8, True)],
)
def test_ranks_that_can_share_a_kv_head(tp_size: int, dcp_size: int, refused: bool) -> None:  # noqa: FBT001
    """C53, vllm-project/vllm#41623: 4 KV heads; N divides TP / G, so TP 4 shares nothing."""
    given = {"model": "qwen3-235b-a22b", "phase": "decode", "schedule": "vllm-dcp"}
    found = codes(**given, tp_size=tp_size, dcp_size=dcp_size)
    assert ("RP109" in found) is refused


def test_every_row_is_tested_or_listed_with_its_reason() -> None:
    """Rows of sections B to E; those of A are about memory, and stand with the public logs."""
    page = FILE.with_suffix(".md").read_text(encoding="utf-8")
    rows = {
        letter + number
        for letter, body in re.findall(
            r"^## ([B-E])\.(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL
        )
        for number in re.findall(r"^\| (\d+) \|", body, re.MULTILINE)
    }
    listed = re.findall(
        r"^\| ([A-Z]\d+) \|",
        VALIDATION.read_text(encoding="utf-8").partition("## Questions about")[2].split("\n## ")[0],
        re.MULTILINE,
    )
    own = Path(__file__).read_text(encoding="utf-8")
    asked = {row["row"] for row in ROWS} | set(re.findall(r"\b[B-E]\d\d\b", own))

    assert rows
    assert rows - asked - set(listed) == set()
    assert set(listed) <= rows - {row["row"] for row in ROWS}
