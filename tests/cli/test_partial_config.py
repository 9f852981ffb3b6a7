"""A config that says too little: its caches are counted, the rest is not known, and not zero."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from ringplan.cli.app import app
from ringplan.io import library as library_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

ROOT = Path(__file__).parents[2]
FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K")


@cache
def schema(what: str) -> Draft202012Validator:
    made: dict[str, Any] = json.loads(CliRunner().invoke(app, ["schema", what]).stdout)
    return Draft202012Validator(made)


@pytest.fixture
def partial(tmp_path: Path) -> str:
    """A config that tells the caches and not the size of the vocabulary."""
    config = json.loads((ROOT / "tests/data/hf_configs/llama-3.1-8b.json").read_text("utf-8"))
    del config["vocab_size"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


PARTLY: dict[str, tuple[str, ...]] = {
    "prefill": (),
    "ring": ("--cp", "8", "--partition", "contiguous"),
    "decode": ("--phase", "decode", "--cp", "4"),
    "train": ("--phase", "train", "--cp", "2"),
    "stages": ("--pp", "3", "--engine", "sglang"),
}
partly = pytest.mark.parametrize("more", PARTLY.values(), ids=PARTLY)


@partly
@pytest.mark.parametrize("command", ["estimate", "memory"])
def test_config_that_says_too_little_is_told_and_not_made_up(
    ringplan: Callable[..., Ran], partial: str, command: str, more: tuple[str, ...]
) -> None:
    """What is not known is not zero, and nobody says that it fits."""
    flags = ("--model", partial, *FLAGS[2:], *more)
    ran = ringplan(command, *flags)
    made = json.loads(ringplan(command, *flags, "--format", "json").out)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("cannot say whether it fits: the config has no vocab_size")
    assert re.search(r"(?m)^weights +not known +-", ran.out)
    assert re.search(r"(?m)^total +not known +-", ran.out)
    assert not re.search(r"(?m)^\S.* 0 B", ran.out)
    assert "None" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    schema(command).validate(made)
    assert made["summary"]["works"] is True
    assert made["summary"]["fits"] is None
    assert made["estimate"]["memory"]["rank"]["weights_bytes"] is None
    assert "vocab_size" in made["estimate"]["not_counted"]["memory.rank.weights_bytes"]


@partly
@pytest.mark.parametrize("format_", ["markdown", "csv"])
@pytest.mark.parametrize("command", ["estimate", "memory"])
def test_config_that_says_too_little_has_every_format(
    ringplan: Callable[..., Ran], partial: str, command: str, format_: str, more: tuple[str, ...]
) -> None:
    ran = ringplan(command, "--model", partial, *FLAGS[2:], *more, "--format", format_)

    assert (ran.code, ran.err) == (0, "")
    assert "None" not in ran.out


def test_caches_of_such_a_config_are_those_of_the_whole_one(
    ringplan: Callable[..., Ran], partial: str
) -> None:
    made = json.loads(ringplan("memory", "--model", partial, *FLAGS[2:], "--format", "json").out)
    whole = json.loads(ringplan("memory", *FLAGS, "--format", "json").out)

    for key in ("kv_bytes", "kv_bytes_per_token"):
        assert made["estimate"]["memory"][key] == whole["estimate"]["memory"][key]
    grows = {part["part"]: part for part in whole["growth"]}
    assert {part["part"] for part in made["growth"]} == {
        "kv_bytes",
        "state_bytes",
        "overhead_bytes",
    }
    assert all(grows[part["part"]] == part for part in made["growth"])


def test_tensors_of_such_a_config_are_not_known(ringplan: Callable[..., Ran], partial: str) -> None:
    flags = ("--model", partial, *FLAGS[2:], "--tensors")

    assert re.search(
        r"tensors +not known: the config has no vocab_size", ringplan("memory", *flags).out
    )
    assert json.loads(ringplan("memory", *flags, "--format", "json").out)["tensors"] == []


def test_such_a_config_that_cannot_work_is_exit_1(
    ringplan: Callable[..., Ran], partial: str
) -> None:
    ran = ringplan("memory", "--model", partial, *FLAGS[2:], "--tp", "3")

    assert ran.code == 1
    assert ran.out.startswith("does not work: tp_size=3 does not divide 32 query heads; cannot say")


def test_such_a_config_is_not_run(ringplan: Callable[..., Ran], partial: str) -> None:
    scenario = Path(partial).with_name("scenario.yaml")
    blocks = f"model: {partial}\nhardware: l40s\nworkload: {{seq_len: 1K}}\n"
    scenario.write_text(blocks, encoding="utf-8")

    ran = ringplan("validate", str(scenario))

    assert (ran.code, ran.out) == (2, "")
    assert "cannot be run: the config has no vocab_size" in ran.err


def test_such_a_model_can_be_listed_and_shown(
    ringplan: Callable[..., Ran], partial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(Path(partial).read_text(encoding="utf-8"))
    shelf = Path(partial).parent
    (shelf / "small.yaml").write_text(json.dumps({"name": "small", "config": config}), "utf-8")
    folder = library_folder.folder
    monkeypatch.setattr(
        library_folder, "folder", lambda name: shelf if name == "models" else folder(name)
    )

    assert re.search(r"small +- +32 +131 kB +131,072", ringplan("list", "models").out)
    shown = ringplan("show", "small").out
    assert re.search(r"not known +vocab_size", shown)
    assert re.search(r"K/V a token, bf16 +131,072 B", shown)
    assert "parameters  " not in shown
