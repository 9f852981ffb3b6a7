"""``ringplan validate``: what it prints, and that it can fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from ringplan.api import validate
from ringplan.costs import attention, ring
from ringplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONFIGS = Path(__file__).parents[1] / "data" / "hf_configs"
ROW = {
    "what",
    "ranks",
    "ring_size",
    "ulysses_size",
    "partition",
    "causal",
    "seq_len",
    "cached_len",
    "batch_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "v_head_dim",
    "window",
    "dtype",
    "error",
    "tolerance",
    "bytes_predicted",
    "bytes_counted",
    "flops_predicted",
    "flops_counted",
    "counts",
    "passed",
}


def rows_of(ran: Ran) -> list[dict[str, Any]]:
    document = json.loads(ran.out)
    assert document.keys() == {
        "format_version",
        "ringplan_version",
        "passed",
        "blocked",
        "notes",
        "rows",
    }
    rows: list[dict[str, Any]] = document["rows"]
    assert rows
    assert all(row.keys() == ROW for row in rows)
    assert document["passed"] == (ran.code == 0)
    return rows


def test_table_has_a_line_a_run_in_80_columns(ringplan: Callable[..., Ran]) -> None:
    """One verdict, one header, and under each scenario its runs."""
    ran = ringplan("validate")
    lines = ran.out.splitlines()

    assert ran.code == 0
    assert ran.err == ""
    assert lines[0].startswith("45 of 45 runs agree; errors within ")
    assert sum(line.rstrip().endswith(" ok") for line in lines) == 45
    assert "6 ranks, zigzag, causal; 8/2 heads of 4; 2 x 96 tokens; fp32" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
def test_selection_agrees_in_every_format(ringplan: Callable[..., Ran], dtype: str) -> None:
    rows = rows_of(ringplan("validate", "--dtype", dtype, "--format", "json"))

    assert all(row["passed"] for row in rows)
    assert {row["dtype"] for row in rows} == {dtype, "bf16"} - (
        {"bf16"} if dtype == "fp16" else set()
    )
    assert all(row["error"] <= row["tolerance"] for row in rows)
    assert all(row["bytes_predicted"] == row["bytes_counted"] for row in rows)


def test_bytes_and_flops_of_a_row_are_those_of_hand_arithmetic(
    ringplan: Callable[..., Ran],
) -> None:
    """Four ranks of 16 tokens, two sequences, 8/2 heads of 4: three hops of 2 x 16 x 2 x 8 x 4."""
    first, *_ = rows_of(ringplan("validate", "--format", "json"))
    pairs = 64 * 65 // 2

    assert (first["what"], first["partition"]) == ("ring forward", "contiguous")
    assert first["bytes_counted"] == 3 * (2 * 16 * 2 * (4 + 4) * 4)
    assert first["flops_counted"] == 2 * 2 * 8 * (4 + 4) * pairs


def test_json_validates_against_its_schema(ringplan: Callable[..., Ran]) -> None:
    """Rows without a closed form, and with, and a plan that is blocked."""
    schema = Draft202012Validator(json.loads(ringplan("schema", "validation").out))
    document = json.loads(ringplan("validate", "--format", "json").out)

    schema.validate(document)
    assert {row["flops_predicted"] is None for row in document["rows"]} == {True, False}
    with pytest.raises(ValidationError):
        schema.validate({**document, "rows": [{**document["rows"][0], "error": "small"}]})


def test_seq_len_makes_longer_sequences(ringplan: Callable[..., Ran]) -> None:
    """Rounded down to what the ranks can share; the cached share stays."""
    rows = rows_of(ringplan("validate", "--seq-len", "128", "--format", "json"))

    assert {row["seq_len"] for row in rows} == {128, 120, 126}
    assert {row["cached_len"] for row in rows} == {0, 96, 64, 63}
    assert all(row["passed"] for row in rows)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_example_agrees_when_scaled_down(ringplan: Callable[..., Ran], path: Path) -> None:
    rows = rows_of(ringplan("validate", str(path), "--format", "json"))

    assert all(row["passed"] for row in rows)


def test_scenario_keeps_its_ranks_partition_and_heads(ringplan: Callable[..., Ran]) -> None:
    """64 ranks, 32 heads of equal sizes, no mask; and every way to share them that can be."""
    path = EXAMPLES / "article.yaml"
    rows = rows_of(ringplan("validate", str(path), "--format", "json"))

    assert {row["ranks"] for row in rows} == {64}
    assert {(row["num_heads"], row["num_kv_heads"]) for row in rows} == {(32, 32)}
    assert {(row["partition"], row["causal"]) for row in rows} == {("contiguous", False)}
    assert {row["ulysses_size"] for row in rows} == {1, 2, 4, 8, 16, 32}


def slips() -> list[Any]:
    """Formulas with a plausible slip, and what is then said of the first row."""
    return [
        pytest.param(
            ring.ring_hops,
            lambda *, ring_size, extra_hops: ring_size,  # noqa: ARG005
            "hops 4 estimated, 3 counted",
            id="P for P - 1",
        ),
        pytest.param(
            ring.kv_block_bytes,
            lambda *, batch_size, tokens, num_kv_heads, head_dim, key_bytes, **_: (
                batch_size * tokens * num_kv_heads * head_dim * key_bytes
            ),
            "bytes_sent 3,072 estimated, 6,144 counted",
            id="K without V",
        ),
        pytest.param(
            attention.attention_flops,
            lambda *, batch_size, pairs, num_heads, head_dim, v_head_dim: (
                batch_size * num_heads * (head_dim + v_head_dim) * pairs
            ),
            "flops 266,240 estimated, 532,480 counted",
            id="a multiply-add counted once",
        ),
    ]


@pytest.mark.parametrize(("made", "slip", "said"), slips())
def test_slip_in_a_formula_is_found(
    ringplan: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    made: Any,
    slip: Callable[..., float],
    said: str,
) -> None:
    """Exit code 1, the rows marked, and the two numbers written out."""
    monkeypatch.setattr(made, "function", slip)
    ran = ringplan("validate", columns=200)

    assert ran.code == 1
    assert "FAIL" in ran.out
    assert f"ring forward: {said}" in ran.out


def test_mesh_that_breaks_a_rule_is_said_and_fails(
    ringplan: Callable[..., Ran], tmp_path: Path
) -> None:
    """What can run all the same is run."""
    path = tmp_path / "uneven.yaml"
    path.write_text(
        "model: llama-3.1-70b\nhardware: h100-sxm-80gb\n"
        "mesh: {cp_size: 4, ulysses_size: 2, tp_size: 8}\nworkload: {seq_len: 32K}\n",
        encoding="utf-8",
    )
    ran = ringplan("validate", str(path), columns=200)

    assert ran.code == 1
    assert ran.out.startswith("the mesh cannot run; ")
    assert "RP105: ulysses_size=2 does not divide the 1 KV heads of a rank" in ran.out
    assert "ring forward" in ran.out


@pytest.mark.parametrize(
    ("mesh", "seq_len", "message"),
    [
        ("{cp_size: 4, tp_size: 3}", "128K", "RP102: tp_size=3 does not divide 32 query heads"),
        ("{cp_size: 4, tp_size: 64}", "128K", "RP102: tp_size=64 does not divide"),
        ("{cp_size: 4}", "131073", "RP101: 131,073 new tokens are not a multiple of"),
        ("{cp_size: 4, pp_size: 100}", "128K", "RP106: pp_size=100 is more than 32 layers"),
    ],
)
def test_what_estimate_refuses_is_not_agreed_to(
    ringplan: Callable[..., Ran], tmp_path: Path, mesh: str, seq_len: str, message: str
) -> None:
    """Scaled down it might run, but it is not what was asked; exit code 1 as of `estimate`."""
    path = tmp_path / "refused.yaml"
    path.write_text(
        f"model: llama-3.1-8b\nhardware: h100-sxm-80gb\nmesh: {mesh}\n"
        f"workload: {{seq_len: {seq_len}}}\n",
        encoding="utf-8",
    )
    ran = ringplan("validate", str(path), columns=200)

    assert ran.code == ringplan("estimate", str(path)).code == 1
    assert ran.out.startswith("the mesh cannot run; ")
    assert message in ran.out


def test_nothing_to_run_is_no_agreement(ringplan: Callable[..., Ran], tmp_path: Path) -> None:
    """A model of sliding windows alone, over a prefix."""
    path = tmp_path / "windows.yaml"
    path.write_text(
        f"model: {CONFIGS / 'mistral-7b-v0.1.json'}\nhardware: h100-sxm-80gb\n"
        "mesh: {cp_size: 4}\nworkload: {seq_len: 128K, cached_len: 96K}\n",
        encoding="utf-8",
    )
    ran = ringplan("validate", str(path), columns=200)

    assert ran.code == 1
    assert ran.out.startswith("nothing was run")
    assert "are left out" in ran.out
    with pytest.raises(SpecError, match="are left out"):
        validate(path)


def test_closed_stderr_is_no_reason_to_fail(
    ringplan: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringplan.cli.validate_command.sys", SimpleNamespace(stderr=None))

    assert ringplan("validate").code == 0


def test_full_prints_a_line_a_dataflow(
    ringplan: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of runs are told apart only where they differ."""
    monkeypatch.setattr("ringplan.validation.selection.FULL_RANKS", (1, 4))
    ran = ringplan("validate", "--full")

    assert ran.code == 0
    assert len(ran.out.splitlines()) < 30
    assert "ulysses 2 x ring 2 forward" in ran.out
    monkeypatch.setattr(ring.ring_hops, "function", lambda *, ring_size, **_: ring_size)
    assert "FAIL" in ringplan("validate", "--full").out


def test_sliding_windows_over_a_prefix_are_left_out_and_said(
    ringplan: Callable[..., Ran], tmp_path: Path
) -> None:
    path = tmp_path / "windows.yaml"
    path.write_text(
        "model: gpt-oss-120b\nhardware: h100-sxm-80gb\nmesh: {cp_size: 4}\n"
        "workload: {seq_len: 128K, cached_len: 96K}\n",
        encoding="utf-8",
    )
    ran = ringplan("validate", str(path), columns=200)

    assert ran.code == 0
    assert "sliding-window layers over a cached prefix are left out" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--seq-len", "2"], "seq_len=2 is too short", "--seq-len 32 or more"),
        (["--seq-len", "1M"], "seq_len=1,048,576 is too long", "--seq-len 5792 or less"),
        (["--seq-len", "many"], "'many' is not a token count", "write 131072"),
        (["--full", "x.yaml"], "--full runs ringplan's own cases", "a scenario, or --full"),
        (["nowhere.yaml"], "nowhere.yaml", "hint: "),
    ],
)
def test_bad_input_is_one_error_with_its_cure(
    ringplan: Callable[..., Ran], arguments: list[str], message: str, hint: str
) -> None:
    ran = ringplan("validate", *arguments)

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert hint in ran.err


def test_more_ranks_than_can_be_simulated_are_refused(
    ringplan: Callable[..., Ran], tmp_path: Path
) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(
        "model: llama-3.1-8b\nhardware: h100-sxm-80gb\nmesh: {cp_size: 512}\n"
        "workload: {seq_len: 1M}\n",
        encoding="utf-8",
    )
    ran = ringplan("validate", str(path))

    assert ran.code == 2
    assert "cp_size=512 is more ranks than can be simulated" in ran.err
    assert "256 or fewer" in ran.err
