"""The same numbers in every format, on stdout and nowhere else."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from typer.testing import CliRunner

import ringplan as library
from ringplan.cli.app import app
from ringplan.estimation.metrics import nested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/estimate_table.txt"
EXAMPLES = sorted(ROOT.glob("docs/examples/*.yaml"))
FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K", "--cp", "8")
CASES: dict[str, tuple[str, ...]] = {
    "prefill": FLAGS,
    "one rank": FLAGS[:-2],
    "train": (*FLAGS, "--phase", "train", "--set", "mesh.zero_stage=3"),
    "decode": (*FLAGS, "--phase", "decode", "--tp", "2"),
    "cached": (*FLAGS, "--cached-len", "64K"),
    "hybrid": (*FLAGS, "--ulysses", "4", "--pp", "3", "--dp", "2"),
    "pure ulysses": (*FLAGS, "--ulysses", "8"),
    "cannot work": (*FLAGS[:-1], "64", "--ulysses", "64", "--tp", "3", "--pp", "99"),
    "does not fit": ("--model", "deepseek-r1", *FLAGS[2:], "--tp", "8"),
    "huge": (*FLAGS[:5], "1024G", "--cp", "1048576", "--batch-size", "1048576"),
    "one token": (*FLAGS[:5], "1"),
    "windows": ("--model", "gpt-oss-120b", "--hardware", "mi300x", *FLAGS[4:], "--timeline"),
    "train on a clock": (*FLAGS, "--phase", "train", "--timeline"),
}
case = pytest.mark.parametrize("name", CASES)

#: Section 5 of the design, as users' scripts rely on it.
CONTRACT = {
    "memory": "kv_bytes_per_token kv_constant_bytes kv_bytes_per_layer kv_bytes score_matrix_bytes"
    " fits max_seq_len min_cp_size kv_tokens max_concurrency not_counted",
    "memory.rank": "weights_bytes kv_bytes activation_bytes logits_bytes ring_buffer_bytes"
    " gradient_bytes optimizer_bytes overhead_bytes total_bytes capacity_bytes stage",
    "ring": "block_tokens hop_bytes hops_forward hops_backward bytes_sent_forward"
    " bytes_sent_backward bytes_sent_all_layers step_flops step_attention_time hop_time"
    " overlap_margin overlap_margin_nominal overlap_margin_backward verdict min_block_tokens"
    " min_block_tokens_hidden min_block_tokens_ideal max_cp_size time_forward time_backward"
    " exposed_time link",
    "utilization.contiguous": "block_granular exact",
    "utilization.zigzag": "block_granular exact",
    "utilization.striped": "block_granular exact",
    "alternatives.0": "schedule comm_type ring_size ulysses_size partition feasible reasons"
    " bytes_sent_forward bytes_sent_backward memory_bytes fits time_forward exposed_time best",
    "communication.0": "axis link bytes time exposed_time latencies",
    "decode.rotate_kv": "bytes_sent time",
    "decode.stationary_kv": "bytes_sent time latencies",
    "decode": "kv_read_time",
    "time": "total attention linear exposed_communication bubble lower upper tokens_per_second"
    " tokens_per_second_per_device mfu hfu usd_per_million_tokens usd",
}
KEYS = [
    "format_version",
    "ringplan_version",
    "summary",
    "scenario",
    "inputs",
    "estimate",
    "findings",
]


@cache
def document(name: str) -> dict[str, Any]:
    """Parse the whole of stdout; NaN and Infinity are refused."""
    out = CliRunner().invoke(app, ["estimate", *CASES[name], "--format", "json"]).stdout

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    made: dict[str, Any] = json.loads(out, parse_constant=refuse)
    return made


@cache
def schema_document(what: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(CliRunner().invoke(app, ["schema", what]).stdout)
    return made


@cache
def schema(what: str) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema_document(what))
    return Draft202012Validator(schema_document(what))


def label(row: dict[str, Any]) -> str:
    """Name of a row, as dotted metrics write it in brackets."""
    if "label" in row:
        return str(row["label"])
    if "direction" in row:
        return f"{row['direction']}:{row['rank']}"
    if "stage" in row:
        return str(row["stage"])
    return str(row.get("axis") or row["steps"])


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Values of an estimate by dotted name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for row in value:
            yield from leaves(row, f"{name}[{label(row)}]")
    else:
        yield name, value


def answers(name: str) -> dict[str, Any]:
    estimate = dict(document(name)["estimate"])
    del estimate["not_counted"]
    return dict(leaves(estimate))


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does."""
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "ringplan", *arguments],
        env={**env, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


@case
def test_json_has_every_key_of_the_contract(name: str) -> None:
    made = document(name)

    assert list(made)[: len(KEYS)] == KEYS
    assert made["format_version"] == 1
    assert made["ringplan_version"] == library.__version__
    for path, keys in CONTRACT.items():
        block = made["estimate"]
        for part in path.split("."):
            block = block[int(part) if part.isdigit() else part] if block else {}
        if block or name not in ("one rank", "one token", "decode"):
            assert [key for key in keys.split() if key not in block] == [], path


@case
def test_every_input_names_its_origin(name: str) -> None:
    inputs = {row["path"]: row for row in document(name)["inputs"]}

    assert all(set(row) == {"path", "value", "unit", "origin", "source"} for row in inputs.values())
    assert inputs["workload.seq_len"]["origin"].startswith("--seq-len ")
    assert inputs["hardware.memory.capacity"]["source"]
    assert all(row["origin"] for row in inputs.values())


@case
def test_every_null_is_told_with_its_reason(name: str) -> None:
    told = document(name)["estimate"]["not_counted"]

    silent = [
        path
        for path, value in answers(name).items()
        if value is None
        and not any(path == known or path.startswith((f"{known}.", f"{known}[")) for known in told)
    ]

    assert silent == []
    assert all(told.values())


@case
def test_only_nulls_are_called_not_counted(name: str) -> None:
    given = {path for path, value in answers(name).items() if value is not None}

    assert given & set(document(name)["estimate"]["not_counted"]) == set()


@case
def test_json_validates_against_its_schema(name: str) -> None:
    schema("estimate").validate(document(name))


def test_schema_gives_every_number_its_unit_and_scope() -> None:
    def fields(block: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, field in block.get("properties", {}).items():
            yield f"{path}.{key}", field
            for part in (field, field.get("items", {}), *field.get("anyOf", [])):
                yield from fields(part, f"{path}.{key}")

    def is_number(field: dict[str, Any]) -> bool:
        kinds = field.get("type", [])
        return not {"number", "integer"}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)

    estimate = schema_document("estimate")["properties"]["estimate"]
    numbers = {path: field for path, field in fields(estimate, "estimate") if is_number(field)}

    assert len(numbers) > 80
    assert [path for path, field in numbers.items() if not field.get("unit")] == []
    assert [path for path, field in numbers.items() if not field.get("scope")] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_validates_against_the_scenario_schema(path: Path) -> None:
    schema("scenario").validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mash": {}},
        {"mesh": {"cp_sise": 8}},
        {"workload": {"seq_len": 8, "seqlen": 8}},
        {"hardware": {"base": "l40s", "memroy": {}}},
        {"hardware": {"base": "l40s", "memory": {"capacty": "80 GB"}}},
        {"hardware": {"base": "l40s", "memory": {"capacity": 80}}},
        {"mesh": {"cp_size": 0}},
    ],
)
def test_scenario_schema_refuses_what_ringplan_refuses(wrong: dict[str, Any]) -> None:
    whole = {"model": "llama-3.1-8b", "hardware": "l40s", "workload": {"seq_len": "1K"}}
    schema("scenario").validate(whole)

    with pytest.raises(ValidationError):
        schema("scenario").validate(whole | wrong)


@case
def test_csv_has_the_numbers_of_the_json(ringplan: Callable[..., Ran], name: str) -> None:
    rows = csv.DictReader(ringplan("estimate", *CASES[name], "--format", "csv").out.splitlines())

    made = {row["metric"]: row for row in rows}

    for path, value in answers(name).items():
        if isinstance(value, list) or path not in made:
            assert path in made or value in (None, []), path
            continue
        assert made[path]["value"] == ("" if value is None else str(value)), path
        assert made[path]["scope"]


@case
def test_markdown_has_the_headline_and_a_table_a_section(
    ringplan: Callable[..., Ran], name: str
) -> None:
    out = ringplan("estimate", *CASES[name], "--format", "markdown").out
    summary = document(name)["summary"]

    parts = out.split("\n## ")

    assert parts[0].startswith("# works: " if summary["works"] else "# does not work: ")
    assert summary["headline"] in parts[0]
    assert parts[1].startswith("Memory of the fullest rank")
    for part in parts[1:]:
        assert len(re.findall(r"(?m)^\|(?:---\|)+$", part)) == 1
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in part.splitlines() if row[:1] == "|"}
        assert len(widths) == 1


@case
def test_table_stays_within_80_columns(ringplan: Callable[..., Ran], name: str) -> None:
    ran = ringplan("estimate", *CASES[name])

    assert [line for line in ran.out.splitlines() if len(line) > 80] == []
    assert "\x1b" not in ran.out
    assert ran.err == ""
    assert document(name)["summary"]["headline"] in " ".join(ran.out.split())


@pytest.mark.parametrize("columns", [0, 40, 80, 100, 200])
def test_table_fits_any_terminal_but_keeps_its_units(
    ringplan: Callable[..., Ran], columns: int
) -> None:
    """Below 80 columns the terminal wraps the lines: a number without its unit is no number."""
    ran = ringplan("estimate", *FLAGS, columns=columns)

    assert max(map(len, ran.out.splitlines())) <= max(columns, 80)
    assert "16.1 GB" in ran.out


def test_table_is_the_golden_one(
    ringplan: Callable[..., Ran], golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN, ringplan("estimate", *FLAGS).out)


def test_pipe_gets_no_colours() -> None:
    ran = run("estimate", *FLAGS, COLUMNS="80")

    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize("no_color", [True, False])
def test_terminal_gets_colours_unless_they_are_unwanted(*, no_color: bool) -> None:
    out, terminal = os.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"} | {"NO_COLOR": "1" * no_color}
    command = [sys.executable, "-m", "ringplan", "estimate", *FLAGS]
    with subprocess.Popen(command, env=env, stdout=terminal) as program:
        os.close(terminal)
        printed = b""
        try:
            while part := os.read(out, 65536):
                printed += part
        except OSError:  # the terminal is closed at the end
            pass
        os.close(out)

    assert program.returncode == 0
    coloured = re.search(rb"\x1b\[(?:\d+;)*3\d", printed) is not None
    assert coloured is not no_color


@pytest.mark.parametrize("format_", ["table", "json", "csv", "markdown"])
def test_closed_pipe_is_silent(format_: str) -> None:
    """Exit code 1 would say that the layout does not work."""
    command = [sys.executable, "-m", "ringplan", "estimate", *FLAGS, "--format", format_]
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)

    assert ran.stderr == ""
    assert ran.returncode in (0, 141)


def test_head_takes_one_line() -> None:
    command = f"{sys.executable} -m ringplan estimate {' '.join(FLAGS)} --explain all | head -1"
    ran = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)

    assert len(ran.stdout.splitlines()) == 1
    assert ran.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("format_", ["table", "json"])
def test_full_disk_is_no_bug_of_ringplan(format_: str) -> None:
    command = [sys.executable, "-m", "ringplan", "estimate", *FLAGS, "--format", format_]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert "no space left" in ran.stderr.lower()


@pytest.mark.parametrize("format_", ["json", "csv", "markdown"])
def test_output_is_what_would_be_printed(
    ringplan: Callable[..., Ran], scenario: str, format_: str
) -> None:
    printed = ringplan("estimate", scenario, "--format", format_)

    ran = ringplan("estimate", scenario, "--format", format_, "--output", "made")

    assert (ran.code, ran.out, ran.err) == (0, "", "wrote made\n")
    assert Path("made").read_text(encoding="utf-8") == printed.out
    assert sorted(path.name for path in Path().iterdir()) == ["made", "scenario.yaml"]


def test_table_is_written_as_it_is_printed(ringplan: Callable[..., Ran], scenario: str) -> None:
    printed = ringplan("estimate", scenario)

    ringplan("estimate", scenario, "--output", "made")

    assert Path("made").read_text(encoding="utf-8") == printed.out


def test_output_of_what_cannot_work_is_written(ringplan: Callable[..., Ran], scenario: str) -> None:
    ran = ringplan("estimate", scenario, "--tp", "3", "--format", "json", "--output", "made")

    assert ran.code == 1
    assert json.loads(Path("made").read_text(encoding="utf-8"))["summary"]["works"] is False


def test_library_gives_the_numbers_of_the_command_line() -> None:
    made = library.estimate(
        model="llama-3.1-8b", hardware="h100-sxm-80gb", seq_len="128K", cp_size=8, cached_len="64K"
    )

    assert made.works
    assert made.estimate.ring.hop_time == answers("cached")["ring.hop_time"]
    assert json.loads(json.dumps(nested(made.estimate))) == document("cached")["estimate"]


@pytest.mark.parametrize(
    ("flags", "path", "value"),
    [
        (("--set", "model.num_hidden_layers=2"), "model.num_hidden_layers", 2),
        (("--set", "hardware.scale_up.latency=7 us"), "hardware.scale_up.latency", 7e-6),
        (("--set", "model.num_key_value_heads=4"), "model.kinds.0.num_key_value_heads", 4),
    ],
)
def test_set_changes_what_a_flag_names(
    ringplan: Callable[..., Ran], flags: tuple[str, ...], path: str, value: float
) -> None:
    """``--model NAME --set model.…`` builds on the name; nothing typed is dropped in silence."""
    made = json.loads(ringplan("estimate", *FLAGS, *flags, "--format", "json").out)

    (row,) = [row for row in made["inputs"] if row["path"] == path]

    assert row["value"] == pytest.approx(value)
    assert row["origin"] == f"--set {flags[1]}"


def test_flag_wins_over_set_over_file_over_profile(
    ringplan: Callable[..., Ran], scenario: str
) -> None:
    text = Path(scenario).read_text(encoding="utf-8")
    block = "{base: h100-sxm-80gb, scale_out: {latency: 9 us}, memory: {capacity: 70 GB}}"
    Path(scenario).write_text(text.replace("h100-sxm-80gb", block), encoding="utf-8")

    flags = ("--set", "hardware.memory.capacity=60 GB", "--cp", "4", "--set", "mesh.tp_size=2")
    made = json.loads(ringplan("estimate", scenario, *flags, "--format", "json").out)

    origins = {row["path"]: (row["value"], row["origin"]) for row in made["inputs"]}
    assert origins["hardware.scale_out.latency"] == (9e-6, "scenario.yaml line 2")
    assert origins["hardware.memory.capacity"] == (60e9, f"--set {flags[1]}")
    assert origins["mesh.cp_size"] == (4, "--cp 4")
    assert origins["mesh.tp_size"] == (2, "--set mesh.tp_size=2")
    assert origins["workload.seq_len"] == (131072, "scenario.yaml line 6")
    assert origins["hardware.memory.bandwidth"][1].startswith("hardware_profiles/h100")
    assert origins["mesh.pp_size"] == (1, "default")


def test_program_says_its_version() -> None:
    ran = run("--version")

    assert (ran.returncode, ran.stdout) == (0, f"ringplan {library.__version__}\n")


@pytest.mark.parametrize("command", ["", "estimate", "memory", "list", "show", "schema"])
def test_help_goes_to_stdout(ringplan: Callable[..., Ran], command: str) -> None:
    ran = ringplan(*command.split(), "--help")

    assert (ran.code, ran.err) == (0, "")
    assert "Usage:" in ran.out
