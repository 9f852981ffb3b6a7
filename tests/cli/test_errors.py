"""What cannot be read as a scenario is exit 2 and one message: the place, the text, the cure."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

    Refused = Callable[..., str]

FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K")
HARDWARE = """\
model: llama-3.1-8b
hardware:
  base: h100-sxm-80gb
  {}
workload: {{seq_len: 128K}}
"""
WHOLE = """\
model: {}
hardware: {}
mesh: {{cp_size: {}}}
workload: {{seq_len: {}}}
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
}


@pytest.fixture
def refused(ringplan: Callable[..., Ran], scenario: str) -> Refused:
    """Run, expect a refusal, and return its message; a bare FILE stands for one that works."""

    def _refused(*arguments: str) -> str:
        ran = ringplan(*(scenario if argument == "FILE" else argument for argument in arguments))
        assert ran.code == 2, ran
        assert ran.out == ""
        assert "Traceback" not in ran.err
        assert ran.err.lower().count("error: ") == 1
        assert len(ran.err) < 2000
        assert len(set(ran.err.splitlines())) == len(ran.err.splitlines()), "said twice"
        return ran.err

    return _refused


def short(value: object) -> str:
    """Name a case by its text."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))[:40]
    return repr(value[:40]) if isinstance(value, (str, bytes)) else str(value)


def contains(message: str, *words: str) -> None:
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "model=lama-3.1-8b"), ("unknown model 'lama-3.1-8b'", "llama-3.1-8b")),
        (("--set", "hardware=h100"), ("'h100'", "h100-sxm-80gb")),
        (("--set", "hardware=h100-sxm"), ("'h100-sxm'", "did you mean h100-sxm-80gb")),
        (("--schedule", "ideel"), ("unknown schedule 'ideel'", "did you mean ideal?")),
        (("--model", ""), ("''", "llama-3.1-8b")),
    ],
    ids=short,
)
def test_unknown_name_offers_the_nearest(
    refused: Refused, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    contains(refused("estimate", "FILE", *arguments), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WHOLE.format("lama-3.1-8b", "h100-sxm-80gb", 8, "1K"), ("line 1", "'lama-3.1-8b'")),
        (WHOLE.format("llama-3.1-8b", "h100-sxm", 8, "1K"), ("line 2", "'h100-sxm'")),
        (
            WHOLE.format("llama-3.1-8b", "h100-sxm-80gb", "8, schedule: ideel", "1K"),
            ("line 3", "'ideel'", "ideal"),
        ),
    ],
    ids=short,
)
def test_unknown_name_in_a_file_names_the_line(
    refused: Refused, text: str, words: tuple[str, ...]
) -> None:
    Path("bad.yaml").write_text(text, encoding="utf-8")

    contains(refused("estimate", "bad.yaml"), "bad.yaml", *words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mesh:", "mash:", ("line 3", "'mash'", "did you mean mesh?")),
        ("  cp_size:", "  cp_sise:", ("line 4", "mesh.cp_sise", "did you mean cp_size")),
        ("  seq_len:", "  seq_length:", ("line 6", "workload.seq_length", "did you mean seq_len")),
        ("128K", "1K\n  batchsize: 2", ("line 7", "workload.batchsize", "batch_size?")),
        (
            "model: llama-3.1-8b",
            "model:\n  base: llama-3.1-8b\n  num_key_value_head: 4",
            ("line 3", "model.num_key_value_head", "num_key_value_heads?"),
        ),
        (
            "hardware: h100-sxm-80gb",
            "hardware:\n  base: h100-sxm-80gb\n  memory:\n    capacty: 80 GB",
            ("line 5", "hardware.memory.capacty", "capacity?"),
        ),
        (
            "hardware: h100-sxm-80gb",
            "hardware:\n  base: h100-sxm-80gb\n  scale_ot:\n    latency: 5 us",
            ("line 4", "hardware.scale_ot", "scale_out"),
        ),
        ("mesh:\n  cp_size: 16", "mesh:", ("line 3", "mesh", "block of keys")),
        ("mesh:\n  cp_size: 16", "mesh: [8]", ("line 3", "mesh", "block of keys")),
        ("model: llama-3.1-8b", "model: {base: [a]}", ("line 1", "model")),
        ("128K", "true", ("line 6", "workload.seq_len", "true")),
        ("128K", "12:30", ("line 6", "'12:30'", "128K")),
        ("128K", "1.5", ("line 6", "'1.5'", "whole")),
        ("128K", "", ("line 6", "workload.seq_len")),
        ("128K", "128K\n  cached_len: 128K", ("seq_len=131072", "cached_len=131072")),
        ("16", "16\n  order: [tp, ring]", ("order", "tp, ulysses, ring, dp")),
        ("16", "16\n  zero_stage: 4", ("line 5", "mesh.zero_stage", "'4'", "3")),
        ("16", "16\n  cp_size: 8", ("line 5", "'cp_size'", "twice")),
    ],
    ids=short,
)
def test_mistake_in_a_file_names_line_key_and_cure(
    refused: Refused, scenario: str, old: str, new: str, words: tuple[str, ...]
) -> None:
    text = Path(scenario).read_text(encoding="utf-8")
    assert old in text
    Path("bad.yaml").write_text(text.replace(old, new), encoding="utf-8")

    message = refused("estimate", "bad.yaml")

    contains(message, *(("bad.yaml",) if words[0].startswith("line") else ()), *words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("scale_out: {bandwidth_per_direction: 50}", ("50 has no unit", "400 Gb/s")),
        ("scale_out: fast", ("'fast'", "block of keys")),
        ("memory: {capacity: 80 GB/s}", ("'80 GB/s' is not in B", "80 GiB")),
        ("efficiency: {matmul: 1.5}", ("efficiency.matmul", "1.5", "at most 1")),
        ("efficiency: {attention_forward: {}}", ("at least one size", "16K")),
        ("efficiency: {attention_forward: {0: 0.5, 1K: 0.6}}", ("attention_forward",)),
        ("efficiency: {attention_forward: {1K: 0.3, 1024: 0.5}}", ("attention_forward",)),
        ("sources: 3", ("hardware.sources", "3")),
    ],
    ids=short,
)
def test_mistake_in_a_profile_names_line_key_and_cure(
    refused: Refused, line: str, words: tuple[str, ...]
) -> None:
    Path("bad.yaml").write_text(HARDWARE.format(line), encoding="utf-8")

    contains(refused("estimate", "bad.yaml"), "bad.yaml line 4", *words)


BANDWIDTH = "hardware.scale_out.bandwidth_per_direction"


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("mash.cp_size", "8", ("did you mean mesh?",)),
        ("mesh.cp_sise", "8", ("did you mean cp_size",)),
        ("workload.seqlen", "8", ("did you mean seq_len",)),
        ("hardware.scale_out.bandwith", "5 GB/s", ("scale_out.bandwith",)),
        ("hardware.scale_uot.latency", "5 us", ("scale_out",)),
        ("model.num_key_value_head", "8", ("did you mean num_key_value_heads?",)),
        ("mesh", "8", ("mesh.cp_size",)),
        ("mesh.cp_size.x", "8", ("mesh.cp_size",)),
        (BANDWIDTH, "50", ("has no unit", "450 GB/s or 400 Gb/s")),
        (BANDWIDTH, "50 GB", ("not in B/s", "450 GB/s")),
        (BANDWIDTH, "400 mb/s", ("m is milli, M is mega",)),
        (BANDWIDTH, "0 GB/s", ("at least 1",)),
        (BANDWIDTH, "-1 GB/s", ("negative",)),
        (BANDWIDTH, "nan GB/s", ("not a number",)),
        (BANDWIDTH, "inf GB/s", ("not a number",)),
        (BANDWIDTH, "1e30 GB/s", ("less than",)),
        (BANDWIDTH, "9999999999 GB/s", ("less than",)),
        (BANDWIDTH, "true", ("450 GB/s",)),
        ("hardware.scale_out.latency", "12:30", ("5 us",)),
        ("hardware.memory.capacity", "1e30 B", ("less than",)),
        ("hardware.peak.bf16", "989e12", ("has no unit", "989 TFLOP/s")),
        ("hardware.peak", "8", ("block of keys",)),
        ("hardware.efficiency.matmul", "nan", ("finite",)),
        ("hardware.price_per_hour", "$2", ("number",)),
        ("hardware.price_per_hour", "-1", ("more than 0",)),
        ("hardware.scale_up.domain_size", "0", ("at least 1",)),
        ("model.num_hidden_layers", "0", ("from 1 to 10,000",)),
        ("model.num_hidden_layers", "1e30", ("from 1 to 10,000",)),
        ("model.num_attention_heads", "0", ("from 1 to",)),
        ("model.model_type", "lama", ("unknown model_type 'lama'", "llama")),
        ("mesh.cp_size", "true", ("whole number",)),
        ("mesh.cp_size", "8.0", ("whole number",)),
        ("mesh.tp_size", "nan", ("whole number",)),
        ("mesh.zero_stage", "4", ("0, 1, 2 or 3",)),
        ("mesh.order", "[tp]", ("tp, ulysses, ring, dp",)),
        ("workload.causal", "maybe", ("true or false",)),
        ("workload.new_tokens", "0", ("more than 0",)),
        ("workload.kv_dtype", "fp9", ("'bf16'", "'fp8'")),
    ],
    ids=short,
)
def test_mistake_in_set_names_the_option_and_the_cure(
    refused: Refused, path: str, text: str, words: tuple[str, ...]
) -> None:
    message = refused("estimate", "FILE", "--set", f"{path}={text}")

    contains(message, f"--set {path}={text}", *words)


@pytest.mark.parametrize("text", ["mesh.cp_size", "=8", "", "mesh.=8", "hardware.=1", ".mesh=1"])
def test_set_without_a_path_or_a_value_shows_the_form(refused: Refused, text: str) -> None:
    contains(refused("estimate", "FILE", "--set", text), f"--set {text}")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--seq-len", "1e30"), ("'1e30'", "128K")),
        (("--seq-len", "1" + 30 * "0"), ("more than",)),
        (("--seq-len", "0"), ("more than 0",)),
        (("--seq-len", "-5"), ("negative",)),
        (("--seq-len", "nan"), ("not a token count",)),
        (("--seq-len", "inf"), ("not a token count",)),
        (("--seq-len", "128KiB"), ("'128KiB'", "131,072")),
        (("--seq-len", "1.0001K"), ("whole number of tokens",)),
        (("--cached-len", "128K"), ("seq_len=131072", "no new token")),
        (("--cached-len", "200K"), ("seq_len=131072", "no new token")),
        (("--cached-len", "-1"), ("negative",)),
        (("--cp", "0"), ("at least 1",)),
        (("--cp", "1000000000"), ("at most 1,048,576",)),
        (("--cp", "8.5"), ("integer",)),
        (("--tp", "true"), ("integer",)),
        (("--batch-size", "-1"), ("at least 1",)),
        (("--ulysses", "3"), ("ulysses_size=3", "cp_size=16", "1, 2, 4, 8")),
        (("--ep", "3"), ("ep_size=3", "dp_size * cp_size = 16")),
        (("--phase", "infer"), ("'prefill', 'decode' or 'train'",)),
        (("--partition", "zigzig"), ("'contiguous', 'zigzag' or 'striped'",)),
        (("--kv-dtype", "fp9"), ("'fp8'",)),
        (("--weights-dtype", "q8"), ("fp8",)),
        (("--format", "xml"), ("xml", "table", "json", "markdown", "csv")),
        (("--explain", "ring.hop_tme"), ("'ring.hop_tme'", "did you mean ring.hop_time")),
        (("--explain", "nonsense"), ("'nonsense'",)),
        (("--explain", ""), ("explain",)),
        (("--seq-lenn", "1K"), ("--seq-lenn", "--seq-len")),
    ],
    ids=short,
)
def test_mistake_in_a_flag_names_the_flag_and_the_cure(
    refused: Refused, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    text = Path("scenario.yaml").read_text(encoding="utf-8")

    message = refused("estimate", "FILE", *flags)

    contains(message, *words)
    assert Path("scenario.yaml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "flags",
    [
        ("--set", "mesh.cp_size=4", "--cp", "8"),
        ("--set", "mesh.cp_size=4", "--set", "mesh.cp_size=8"),
        ("--cp", "4", "--cp", "8"),
        ("--set", "workload.seq_len=1K", "--seq-len", "2K"),
        ("--set", "model=qwen3-8b", "--model", "qwen3-32b"),
        ("--set", "model.base=qwen3-8b", "--model", "qwen3-32b"),
        ("--set", "hardware.base=l40s", "--set", "hardware=mi300x"),
    ],
    ids=short,
)
def test_one_path_twice_is_refused(refused: Refused, flags: tuple[str, ...]) -> None:
    contains(refused("estimate", "FILE", *flags), "twice", flags[1], flags[3])


def test_everything_that_is_missing_is_said_at_once(refused: Refused) -> None:
    contains(refused("estimate"), "no model", "--model", "no hardware", "--hardware", "--seq-len")


def test_all_problems_are_said_at_once(refused: Refused) -> None:
    message = refused("estimate", "FILE", "--cp", "0", "--phase", "x", "--set", f"{BANDWIDTH}=5")

    contains(message, "--cp 0", "--phase x", "has no unit")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("Usage", "estimate", "list")),
        (("estimat",), ("'estimat'", "estimate")),
        (("show",), ("name",)),
        (("show", "nothing"), ("'nothing'", "llama-3.1-8b")),
        (("show", "lama-3.1-8b"), ("did you mean llama-3.1-8b",)),
        (("list", "modells"), ("modells", "models", "hardware")),
        (("schema", "x"), ("scenario", "estimate", "validation")),
    ],
    ids=short,
)
def test_unknown_command_or_name_lists_what_there_is(
    ringplan: Callable[..., Ran], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ran = ringplan(*arguments)

    assert (ran.code, ran.out) == (2, "")
    contains(ran.err, *words)


DEEP = 100_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("model:\n\tbase: x\n", ("line 2", "not YAML")),
        ("model: {base: x\n", ("not YAML",)),
        ("- model\n- hardware\n", ("holds no keys",)),
        ("model", ("holds no keys",)),
        ("", ("holds no keys",)),
        (bytes(range(256)), ("not a text file",)),
        (b"model\0: x", ("not YAML",)),
        ("[" * DEEP, ("not YAML", "nesting")),
        ("a: " + "{a: " * DEEP, ("not YAML", "nesting")),
        (BOMB, ("100,000 values",)),
        ("model: &a\n  base: *a\n", ("line 2", "itself")),
        ("mesh: &a [*a]\n", ("line 1", "itself")),
        ("model: x\nmodel: y\n", ("line 2", "'model'", "twice")),
        ("model: x\n---\nmodel: y\n", ("line 2", "document")),
        ("[a]: 2\n", ("line 1", "word")),
        ("model: !!python/object/apply:os.system [ls]\n", ("line 1", "model")),
        ("mesh: {cp_size: " + "9" * 5000 + "}", ("line 1", "mesh.cp_size")),
        (b"a: " + b"x" * 50_000_000, ("50 MB", "few kB")),
    ],
    ids=short,
)
def test_file_that_is_no_scenario(
    refused: Refused, content: str | bytes, words: tuple[str, ...]
) -> None:
    Path("bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())

    contains(refused("estimate", "bad.yaml"), "bad.yaml", *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"model_type": ', ("config.json", "line 1")),
        ('["llama"]', ("config.json", "holds no keys")),
        ("", ("config.json", "not JSON")),
        ('{"a":' * DEEP, ("config.json", "not JSON")),
        ("{}", ("config.json", "model_type", "llama")),
        ('{"model_type": "llama", "hidden_size": 8}', ("config.json", "vocab_size is missing")),
        ('{"model_type": "lama"}', ("config.json", "'lama'", "llama")),
        ('{"model_type": "llama", "model_type": "qwen3"}', ("config.json", "twice")),
        (json.dumps({**CONFIG, "hidden_size": float("nan")}), ("config.json", "'nan'")),
        (json.dumps({**CONFIG, "hidden_size": -1}), ("config.json", "'-1'", "from 1 to")),
        (json.dumps({**CONFIG, "hidden_size": 1e30}), ("config.json", "'1e+30'")),
        (json.dumps({**CONFIG, "hidden_size": True}), ("config.json", "'true'")),
        (json.dumps({**CONFIG, "num_key_value_heads": 5}), ("32", "num_key_value_heads 5")),
        (json.dumps({**CONFIG, "num_hidden_layers": 0}), ("config.json", "num_hidden_layers")),
        ("{" + " " * 50_000_000, ("config.json", "50 MB")),
    ],
    ids=short,
)
def test_config_that_is_no_model(refused: Refused, content: str, words: tuple[str, ...]) -> None:
    Path("config.json").write_text(content, encoding="utf-8")

    message = refused("estimate", "--model", "config.json", "--hardware", "l40s", "--seq-len", "1K")

    contains(message, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("estimate", "folder"), ("folder is a directory",)),
        (("estimate", "FILE", "--model", "./folder"), ("folder is a directory", "config.json")),
        (("estimate", "FILE", "--hardware", "./folder"), ("folder is a directory",)),
        (("estimate", "none.yaml"), ("none.yaml", "no such file")),
        (("estimate", "FILE", "--model", "none.json"), ("none.json", "list models")),
        (("estimate", "FILE", "--hardware", "none.yaml"), ("none.yaml", "list hardware")),
        (("estimate", "FILE", "--model", "FILE"), ("scenario.yaml", "config")),
        (("estimate", "FILE", "--hardware", "FILE"), ("scenario.yaml", "hardware.memory")),
        (("estimate", "bad\0name"), ("null",)),
    ],
    ids=short,
)
def test_path_that_is_no_such_file(
    refused: Refused, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    Path("folder").mkdir()

    contains(refused(*arguments), *words)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("missing/out.json", ("missing/out.json", "no such file or directory")),
        ("folder", ("folder is a directory",)),
        ("scenario.yaml/out.json", ("scenario.yaml/out.json", "not a directory")),
        ("x" * 300, ("too long",)),
    ],
    ids=short,
)
def test_output_that_cannot_be_written(
    refused: Refused, output: str, words: tuple[str, ...]
) -> None:
    Path("folder").mkdir()

    contains(refused("estimate", "FILE", "--output", output), *words)

    assert sorted(path.name for path in Path().rglob("*")) == ["folder", "scenario.yaml"]


@pytest.mark.parametrize("output", ["scenario.yaml", "folder/../scenario.yaml", "link"])
def test_output_over_what_was_read(refused: Refused, output: str) -> None:
    Path("folder").mkdir()
    Path("link").symlink_to("scenario.yaml")
    before = Path("scenario.yaml").read_text(encoding="utf-8")

    contains(refused("estimate", "FILE", "--output", output), "just read", "another file")

    assert Path("scenario.yaml").read_text(encoding="utf-8") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_into_a_read_only_folder(refused: Refused) -> None:
    Path("folder").mkdir(mode=0o555)

    contains(refused("estimate", "FILE", "--output", "folder/out.json"), "permission denied")


def test_refused_scenario_leaves_an_earlier_output_alone(refused: Refused) -> None:
    Path("out.json").write_text("before", encoding="utf-8")

    refused("estimate", "FILE", "--cp", "0", "--output", "out.json")

    assert Path("out.json").read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in Path().iterdir()) == ["out.json", "scenario.yaml"]


def test_output_never_replaces_a_pipe_or_device(
    ringplan: Callable[..., Ran], scenario: str
) -> None:
    """As root, renaming over ``--output /dev/null`` would leave the machine without it."""
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)

    ringplan("estimate", scenario, "--format", "csv", "--output", "pipe")

    os.close(reader)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
