"""The memory bill alone: the estimate's own numbers, in every format, and nothing made up."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

import ringplan as library
from ringplan.cli.app import app
from ringplan.costs.memory import rank_total
from ringplan.estimation.memory import PARTS
from ringplan.render.bill import WIDTH
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/memory_table.txt"
FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K")
CASES: dict[str, tuple[str, ...]] = {
    "prefill": FLAGS,
    "vllm": (*FLAGS, "--engine", "vllm", "--tp", "2"),
    "sglang": (*FLAGS, "--engine", "sglang", "--batch-size", "4"),
    "llama.cpp": (*FLAGS, "--engine", "llama.cpp", "--kv-dtype", "q8_0"),
    "train": (*FLAGS, "--cp", "8", "--phase", "train", "--set", "mesh.zero_stage=3"),
    "decode": (*FLAGS, "--phase", "decode", "--cp", "2", "--batch-size", "8"),
    "stages": (*FLAGS, "--pp", "3"),
    "windows": ("--model", "gpt-oss-120b", "--hardware", "mi300x", *FLAGS[4:]),
    "experts": ("--model", "deepseek-r1", "--hardware", "mi300x", *FLAGS[4:], "--tp", "8"),
    "does not fit": ("--model", "deepseek-r1", *FLAGS[2:], "--tp", "8"),
    "cannot work": (*FLAGS, "--tp", "3", "--pp", "40"),
    "one token": (*FLAGS[:-1], "1"),
    "huge": (*FLAGS[:-1], "1024G", "--cp", "1048576"),
}
case = pytest.mark.parametrize("name", CASES)
DRAFTS = ("--set", "workload.draft_layers=1")


@cache
def document(name: str, command: str = "memory", *more: str) -> dict[str, Any]:
    """Parse the whole of stdout; NaN and Infinity are refused."""
    out = CliRunner().invoke(app, [command, *CASES[name], *more, "--format", "json"]).stdout

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    made: dict[str, Any] = json.loads(out, parse_constant=refuse)
    return made


@cache
def schema(what: str) -> Draft202012Validator:
    made = json.loads(CliRunner().invoke(app, ["schema", what]).stdout)
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def numbers(value: Any) -> Iterator[float]:
    """Every number of a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def numerals(text: str) -> set[str]:
    """What a table prints as bytes, as a share, as a big count or as a fraction."""
    forms = (
        r"[\d.]+ (?:k|M|G|T|P|E)?B",
        r"[\d.]+ %",
        r"\d{1,3}(?:,\d{3})+(?:\.\d+)?",
        r"\d+\.\d\d",
    )
    return set(re.findall(rf"(?<![\d.,])(?:{'|'.join(forms)})(?![\d,.]*\d)\b", text))


@case
def test_bill_is_the_one_of_the_estimate(name: str) -> None:
    """One calculation, printed twice."""
    bill, whole = document(name), document(name, "estimate")

    assert bill["estimate"]["memory"] == whole["estimate"]["memory"]
    for key in ("format_version", "ringplan_version", "summary", "scenario", "inputs", "findings"):
        assert bill[key] == whole[key], key
    told = whole["estimate"]["not_counted"].items()
    assert bill["estimate"]["not_counted"] == {k: v for k, v in told if k.startswith("memory.")}


@case
@pytest.mark.parametrize("more", [(), ("--tensors",)], ids=["", "tensors"])
def test_json_validates_against_its_schema(name: str, more: tuple[str, ...]) -> None:
    made = document(name, "memory", *more)

    schema("memory").validate(made)
    assert ("tensors" in made) is bool(more)


@case
def test_parts_that_grow_add_up_to_the_bill(name: str) -> None:
    made = document(name)
    tokens, growth = made["scenario"]["workload"]["seq_len"], made["growth"]

    assert (
        sum(part["bytes"] for part in growth) == made["estimate"]["memory"]["rank"]["total_bytes"]
    )
    for part in growth:
        split = part["constant_bytes"] + part["bytes_per_token"] * tokens
        assert split == pytest.approx(part["bytes"], rel=1e-3), part


@case
def test_lengths_hold_the_asked_context_with_its_bill(name: str) -> None:
    made = document(name)
    bills = {length["seq_len"]: length["rank"] for length in made["lengths"]}

    rank = made["estimate"]["memory"]["rank"]
    assert rank in bills.values()
    assert sorted(bills) == [length["seq_len"] for length in made["lengths"]]


@case
def test_every_number_of_the_table_is_in_the_json(ringplan: Callable[..., Ran], name: str) -> None:
    made = document(name)
    rank = made["estimate"]["memory"]["rank"]
    known = {abs(int(value) if value == int(value) else value) for value in numbers(made)}

    shown = {show(value, "B") for value in known} | {f"{value:,}" for value in known}
    shown |= {show(value / rank["capacity_bytes"], "%") for value in known}
    shown |= {f"{100 * value:g} %" for value in known} | {f"{value:,.2f}" for value in known}
    told = " ".join(finding["message"] + finding["hint"] for finding in made["findings"])
    table = ringplan("memory", *CASES[name]).out.partition("\nFindings")[0]
    table = re.sub(r"(?m)^the same in its log.*$|[\d,]+\s+cached", "", table)
    table = re.sub(r"capacity: (?:.+\n)+", "", table)  # test_memory_words.py follows its sums

    assert len(numerals(table)) > 15
    assert {each for each in numerals(table) - shown if each not in told} == set()


@case
def test_table_stays_within_80_columns(ringplan: Callable[..., Ran], name: str) -> None:
    ran = ringplan("memory", *CASES[name], "--tensors")

    assert ran.err == ""
    assert [line for line in ran.out.splitlines() if len(line) > 80] == []
    assert "\x1b" not in ran.out


@case
def test_bars_pile_up_to_the_total(ringplan: Callable[..., Ran], name: str) -> None:
    """Each part begins where the last one ended; none is invisible."""
    out = ringplan("memory", *CASES[name]).out
    bars = re.findall(rf"(?m)^(\S[^\n█·]*?)  +\S.*?([█·]{{{WIDTH}}}) *$", out)
    parts = [bar for title, bar in bars if title.split()[0] not in ("total", "capacity")]
    ends = [bar.rindex("█") for bar in parts]

    assert {*PARTS.values()} > {title for title, _ in bars} - {"total", "capacity"}
    assert ends == sorted(ends)
    assert dict(bars)["total"].count("█") == pytest.approx(ends[-1] + 1, abs=1)
    assert max(bar.count("█") for _, bar in bars) == WIDTH


def test_table_is_the_golden_one(
    ringplan: Callable[..., Ran], golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN, ringplan("memory", *CASES["vllm"]).out)


def test_every_part_of_a_bill_has_a_name() -> None:
    assert tuple(PARTS) == rank_total.parameters


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("prefill", 0, "fits: the fullest rank needs 50.8 GB of 85.5 GB"),
        ("windows", 0, "fits: "),
        ("does not fit", 1, "does not fit: the fullest rank needs "),
        ("cannot work", 1, "does not work: tp_size=3 does not divide 32 query heads; "),
    ],
)
def test_exit_code_says_whether_it_works(
    ringplan: Callable[..., Ran], name: str, code: int, words: str
) -> None:
    """What does not work is printed all the same, and begins by saying so."""
    ran = ringplan("memory", *CASES[name], columns=400)

    assert (ran.code, ran.err) == (code, "")
    assert ran.out.startswith(words)
    assert ("; change: --" in ran.out.splitlines()[0]) is bool(code)
    assert "Over context lengths" in ran.out
    assert ringplan("memory", *CASES[name], "--format", "json").code == code


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("no model", "--model", "--hardware", "--seq-len")),
        ((*FLAGS, "--engine", "vlm"), ("--engine vlm", "'vlm'", "did you mean vllm?")),
        ((*FLAGS, "--engine", ""), ("''", "vllm")),
        ((*FLAGS, "--set", "engine.page_tokens=0"), ("engine.page_tokens=0", "at least 1")),
        ((*FLAGS, "--set", "engine.pages=8"), ("engine.pages",)),
        ((*FLAGS, "--seq-len", "1K"), ("--seq-len", "given twice")),
        ((*FLAGS[:-1], "1e30"), ("'1e30'", "128K")),
        ((*FLAGS, "--cp", "0"), ("at least 1",)),
        ((*FLAGS, "--format", "xml"), ("xml", "table", "json", "markdown", "csv")),
        ((*FLAGS, "--timeline"), ("--timeline",)),
        ((*FLAGS, "--engine", "vllm", "--set", "workload.engine=none"), ("twice",)),
        (("nothing.yaml",), ("nothing.yaml",)),
    ],
    ids=lambda value: " ".join(value)[-32:],
)
def test_bad_input_is_exit_2_and_one_message(
    ringplan: Callable[..., Ran], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = ringplan("memory", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert [word for word in words if word not in ran.err] == []


def test_output_may_not_be_the_scenario(ringplan: Callable[..., Ran], scenario: str) -> None:
    ran = ringplan("memory", scenario, "--output", scenario)

    assert ran.code == 2
    assert "what was just read" in ran.err


@pytest.mark.parametrize("format_", ["table", "json", "markdown", "csv"])
def test_output_is_what_would_be_printed(
    ringplan: Callable[..., Ran], scenario: str, format_: str
) -> None:
    printed = ringplan("memory", scenario, "--tensors", "--format", format_)

    ran = ringplan("memory", scenario, "--tensors", "--format", format_, "--output", "made")

    assert (ran.code, ran.out, ran.err) == (0, "", "wrote made\n")
    assert Path("made").read_text(encoding="utf-8") == printed.out


def test_options_of_a_scenario_are_those_of_estimate(ringplan: Callable[..., Ran]) -> None:
    def options(command: str) -> dict[str, str]:
        shown = ringplan(command, "--help", columns=400).out
        return dict(re.findall(r"(?m)^  (--[a-z-]+)[ ,](.*)$", shown))

    bill, whole = options("memory"), options("estimate")

    assert whole.keys() - bill.keys() == {"--timeline"}
    assert bill.keys() - whole.keys() == {"--tensors"}
    assert [
        name for name in bill if name in whole and bill[name].split() != whole[name].split()
    ] == []


@pytest.mark.parametrize("command", ["estimate", "memory"])
def test_json_imports_neither_tables_nor_arrays(command: str) -> None:
    """Scripts start it many times."""
    arguments = ["ringplan", command, *FLAGS, "--format", "json"]
    code = (
        f"import sys; sys.argv = {arguments}\n"
        "from ringplan.__main__ import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(ran.stderr.split())

    assert f"ringplan.cli.{command}_command" in modules
    assert modules & {"rich", "numpy", "matplotlib"} == set()


@case
def test_csv_has_the_numbers_of_the_json(ringplan: Callable[..., Ran], name: str) -> None:
    made = document(name, "memory", "--tensors")
    out = ringplan("memory", *CASES[name], "--tensors", "--format", "csv").out
    rows = {row["metric"]: row for row in csv.DictReader(out.splitlines())}
    expected = {f"memory.rank.{k}": v for k, v in made["estimate"]["memory"]["rank"].items()}
    for part in made["growth"]:
        expected |= {f"growth[{part['part']}].{k}": v for k, v in part.items() if k != "part"}
    for length in made["lengths"]:
        expected |= {f"lengths[{length['seq_len']}].rank.{k}": v for k, v in length["rank"].items()}
    for index, tensor in enumerate(made["tensors"]):
        expected |= {f"tensors[{index}].{key}": tensor[key] for key in ("name", "parameters")}

    assert {path: rows[path]["value"] for path in expected} == {
        path: "" if value is None else str(value) for path, value in expected.items()
    }
    assert all(row["scope"] for row in rows.values())
    assert not any(name.startswith("ring.") for name in rows)


@case
def test_markdown_has_a_table_a_section(ringplan: Callable[..., Ran], name: str) -> None:
    out = ringplan("memory", *CASES[name], "--tensors", "--format", "markdown").out
    head, *sections = out.split("\n## ")

    assert head.startswith(("# fits: ", "# does not fit: ", "# does not work: "))
    assert sections[0].startswith("Memory of the fullest rank\n")
    for section in sections:
        assert len(re.findall(r"(?m)^\|(?:---\|)+$", section)) == 1
        rows = [row for row in section.splitlines() if row[:1] == "|"]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


@pytest.mark.parametrize(
    ("engine", "words", "log"),
    [
        ("vllm", r"vLLM: may fill \d+ % of a device; chunks of 8,192 tokens; pages of 16", "GiB"),
        ("sglang", r"SGLang: weights and cache may fill \d+ % of what is free at start", "GB"),
        ("tensorrt-llm", r"TensorRT-LLM: the cache may fill 90 % of what all else", "GiB"),
        ("llama.cpp", r"llama\.cpp: may fill 100 % of a device; chunks of 512 .* 256", "MiB"),
        ("none", r"No engine, .*: may fill 100 % of a device; prefill in one piece", "GiB"),
    ],
)
def test_engine_is_told_with_its_policy_and_its_log(
    ringplan: Callable[..., Ran], engine: str, words: str, log: str
) -> None:
    """A log's GB may be 2^30 bytes: the pool is printed as the log has it, and the unit told."""
    flags = (*FLAGS, "--engine", engine)
    rank = json.loads(ringplan("memory", *flags, "--format", "json").out)["estimate"]["memory"][
        "rank"
    ]
    out = ringplan("memory", *flags, columns=400).out
    size = 2**20 if log == "MiB" else 2**30

    assert re.search(rf"(?m)^{words}", out)
    pool, cache = (f"{rank[name] / size:,.2f} {log}" for name in ("kv_budget_bytes", "kv_bytes"))
    assert re.search(rf"same in its log +{re.escape(f'{pool}, KV cache of it {cache}')}", out)
    assert ("GB are GiB" in out) is (log == "GB")


def test_without_an_engine_no_policy_is_told(ringplan: Callable[..., Ran]) -> None:
    out = ringplan("memory", *FLAGS).out

    assert "its log" not in out
    assert "chunks of" not in out
    assert "capacity: 100 % of 85.5 GB (hardware.memory.utilization)" in out


def test_engine_may_be_changed_field_by_field(ringplan: Callable[..., Ran]) -> None:
    flags = (*FLAGS, "--engine", "vllm", "--set", "engine.utilization=0.5")
    made = json.loads(ringplan("memory", *flags, "--format", "json").out)

    rank, room = made["estimate"]["memory"]["rank"], made["scenario"]["hardware"]["memory"]
    (row,) = [row for row in made["inputs"] if row["path"] == "engine.utilization"]
    assert made["scenario"]["engine"]["name"] == "vllm"
    assert (row["value"], row["origin"]) == (0.5, "--set engine.utilization=0.5")
    assert rank["capacity_bytes"] < 0.55 * room["capacity"]


def test_library_takes_an_engine_and_its_fields() -> None:
    given: Any = {"model": "llama-3.1-8b", "hardware": "h100-sxm-80gb", "seq_len": "100000"}
    loaded = library.load(**given, engine="vllm", set={"engine.page_tokens": 4096})

    assert loaded.scenario.engine.title == "vLLM"
    assert loaded.scenario.engine.page_tokens == 4096
    pages = library.estimate(**given, engine="vllm", set={"engine.page_tokens": 4096})
    exact = library.estimate(**given, engine="vllm", set={"engine.page_tokens": 1})
    held = pages.estimate.memory.rank.kv_bytes / exact.estimate.memory.rank.kv_bytes
    assert held == pytest.approx(25 * 4096 / 100_000)


#: A case, and options that it does not have itself.
SPREAD = [
    (name, more)
    for more in ((), ("--pp", "2"), ("--dp", "2", "--set", "mesh.zero_stage=3"))
    for name in CASES
    if name != "cannot work" and not {*more} & {*CASES[name]} - {"2", "--set"}
]


@pytest.mark.parametrize(("name", "more"), [*SPREAD, ("train", ("--dp", "2"))])
def test_tensors_add_up_to_every_count(name: str, more: tuple[str, ...]) -> None:
    """Parameters, those that a token meets, and the bytes of weights on the fullest rank."""
    made = document(name, "memory", *more, "--tensors")
    counted = made["estimate"]["memory"]

    def total(field: str) -> float:
        return float(sum(tensor[field] for tensor in made["tensors"]))

    assert total("parameters") == counted["num_parameters"]
    assert total("active_parameters") == counted["num_active_parameters"]
    assert total("rank_bytes") == pytest.approx(counted["rank"]["weights_bytes"], rel=1e-12)


@pytest.mark.parametrize("pp", ["1", "2", "61"])
def test_tensors_of_draft_layers_are_marked(ringplan: Callable[..., Ran], pp: str) -> None:
    flags = (*CASES["experts"], "--pp", pp, "--tensors")
    without, loaded = (
        json.loads(ringplan("memory", *flags, *more, "--format", "json").out)
        for more in ((), DRAFTS)
    )
    drafts = [tensor for tensor in loaded["tensors"] if tensor["draft"]]

    assert [tensor for tensor in loaded["tensors"] if not tensor["draft"]] != []
    assert not any(tensor["draft"] for tensor in without["tensors"])
    grown, before = (made["estimate"]["memory"]["num_parameters"] for made in (loaded, without))
    assert sum(tensor["parameters"] for tensor in drafts) == grown - before > 0
    held = sum(tensor["rank_bytes"] for tensor in loaded["tensors"])
    assert held == pytest.approx(loaded["estimate"]["memory"]["rank"]["weights_bytes"], rel=1e-12)
    table = ringplan("memory", *flags, *DRAFTS).out
    assert "Tensors of 1 draft layer, beside those of a layer" in table
    assert "Tensors of 1 draft layer of latent attention, experts 8 of 256" in table
    assert f"{grown - before:,}" in table
    assert "1 draft layer not loaded" in " ".join(ringplan("memory", *flags).out.split())


def test_stages_that_differ_are_told(ringplan: Callable[..., Ran]) -> None:
    table = ringplan("memory", *CASES["stages"]).out
    rows = re.search(r"pipeline stage that differs\n.*\n.*\n((?:\d.*\n)+)", table)

    assert rows is not None
    assert [row.split()[:2] for row in rows[1].splitlines()] == [
        ["0", "11"],
        ["1", "11"],
        ["2", "10"],
    ]
    assert "pipeline stage" not in ringplan("memory", *CASES["prefill"]).out


def test_training_has_no_caches_to_plan(ringplan: Callable[..., Ran]) -> None:
    table = ringplan("memory", *CASES["train"]).out

    assert "KV cache" not in table
    assert "sequences" not in table.partition("What grows")[2]
    assert re.search(r"(?m)^gradients +\d", table)
    assert re.search(r"longest context at this mesh +[\d,]+ tokens", table)


CONFIGS = sorted((ROOT / "tests/data/hf_configs").glob("*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_has_a_bill(ringplan: Callable[..., Ran], path: Path) -> None:
    """Windows, latents, indexers, states, drafts and what is not known: all of it prints."""
    flags = ("--model", str(path), "--hardware", "h200-sxm-141gb", "--seq-len", "8K", "--tensors")
    ran = ringplan("memory", *flags, "--engine", "vllm")
    made = json.loads(ringplan("memory", *flags, "--engine", "vllm", "--format", "json").out)

    counted = made["estimate"]["memory"]
    assert ran.code == (1 if counted["fits"] is False else 0)
    assert ran.err == ""
    assert max(map(len, ran.out.splitlines())) <= 80
    schema("memory").validate(made)
    if counted["fits"] is not None:
        held = sum(tensor["rank_bytes"] for tensor in made["tensors"])
        assert held == pytest.approx(counted["rank"]["weights_bytes"], rel=1e-12)
        assert sum(each["parameters"] for each in made["tensors"]) == counted["num_parameters"]
    for name, words in (("kv_constant_bytes", "windows of a"), ("state_bytes", "states of a")):
        assert (words in ran.out) is bool(counted[name])
    assert ("indexers' keys" in ran.out) is bool(counted["indexer_bytes_per_token"])
