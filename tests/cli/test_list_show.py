"""What ringplan ships can be listed and shown, each number with its source."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ringplan import feasibility
from ringplan.checks import RULES
from ringplan.costs.formula import REGISTRY
from ringplan.estimation.core import estimate  # noqa: F401 - registers every formula
from ringplan.io import library

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

CODES = sorted([*feasibility.CODES, *(rule.__name__.upper() for rule in RULES)])
FORMULAS = ["kv_block_bytes", "attention_flops", "min_block_tokens", "overlap_margin", "pass_time"]


@pytest.mark.parametrize("shelf", ["models", "hardware", "schedules", "engines"])
def test_list_names_everything_on_the_shelf(ringplan: Callable[..., Ran], shelf: str) -> None:
    ran = ringplan("list", shelf)

    assert (ran.code, ran.err) == (0, "")
    assert re.findall(r"(?m)^([a-z]\S+)", ran.out)[1:] == library.names(shelf)
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("shelf", "row"),
    [
        ("models", r"llama-3\.1-70b +70\.6 B +80 +328 kB +131,072"),
        ("models", r"deepseek-r1 +671\.0 B +61 +70\.3 kB +163,840"),
        ("hardware", r"h100-sxm-80gb +\S+ G?B +989 TFLOP/s +450 GB/s +50.0 GB/s +8"),
        ("schedules", r"megatron-p2p +prefill\+train +p2p +7.00 U +14.00 U"),
        ("engines", r"vllm +total +\d+ % +16 +8,192 +capped"),
        ("engines", r"none +total +- +1 +- +capped"),
        ("checks", r"RP110 +The fullest rank does not fit"),
    ],
)
def test_list_shows_the_facts(ringplan: Callable[..., Ran], shelf: str, row: str) -> None:
    assert re.search(row, ringplan("list", shelf).out)


def test_list_checks_names_every_code(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan("list", "checks")

    assert (ran.code, ran.err) == (0, "")
    assert sorted(re.findall(r"(?m)^RP\d+", ran.out)) == CODES
    assert len(set(CODES)) == len(CODES)


def test_memory_is_listed_in_units_that_people_read(ringplan: Callable[..., Ran]) -> None:
    """`85.5 GB`, not `85520809984 B`: people see three digits."""
    assert re.findall(r"\d{7,} B", ringplan("list", "hardware").out) == []


@pytest.mark.parametrize("name", library.names("models"))
def test_show_a_model(ringplan: Callable[..., Ran], name: str) -> None:
    ran = ringplan("show", name, columns=200)

    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"parameters +\d{1,3}(,\d{3}){2,}\n", re.sub(r" +\n", "\n", ran.out))
    assert re.search(r"num_hidden_layers +\d+ +1\b", ran.out)
    assert re.search(r"(?m)^sources", ran.out)
    assert re.search(r"(?m)^1 +\S", ran.out)


@pytest.mark.parametrize("name", library.names("hardware"))
def test_show_a_profile_with_the_source_of_each_number(
    ringplan: Callable[..., Ran], name: str
) -> None:
    ran = ringplan("show", name, columns=200)

    assert (ran.code, ran.err) == (0, "")
    fields, sources = ran.out.split("\nsources")
    assert re.search(r"memory\.capacity +\d+ G?B +\d+", fields)
    assert re.search(r"peak\.bf16 +[\d.]+ TFLOP/s +\d+", fields)
    cited = {int(n) for n in re.findall(r"(?m)^[a-z_]+\.\S+ .*? (\d+) *$", fields)}
    listed = {
        int(n) for n in re.findall(r"(?m)^(\d+) +(?:datasheet|measured|derived|assumed)", sources)
    }
    assert cited == listed


@pytest.mark.parametrize("name", library.names("schedules"))
def test_show_a_schedule(ringplan: Callable[..., Ran], name: str) -> None:
    ran = ringplan("show", name, columns=200)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name}: ")
    assert re.search(r"(?m)^phases +\w+", ran.out)
    assert re.search(r"(?m)^title +\S+", ran.out)
    if library.find("schedules", name).read_text(encoding="utf-8").count("comm_types: "):
        assert re.search(r"(?m)^8 +[\d.]+ U +([\d.]+ U|-) +[\d.]+ U", ran.out)


@pytest.mark.parametrize("name", library.names("engines"))
def test_show_an_engine_with_the_source_of_each_field(
    ringplan: Callable[..., Ran], name: str
) -> None:
    ran = ringplan("show", name, columns=200)

    assert (ran.code, ran.err) == (0, "")
    fields, sources = ran.out.split("\nsources")
    assert re.search(r"(?m)^budget +\w+ +1 *$", fields)
    cited = {int(n) for n in re.findall(r"(?m)^[a-z_]+ .*? (\d+) *$", fields)}
    assert cited == {int(n) for n in re.findall(r"(?m)^(\d+) +\w+, ", sources)}


def test_show_a_model_lists_the_caches_that_it_has(ringplan: Callable[..., Ran]) -> None:
    """Windows, indexers and states are told where they are, and only there."""
    windows, full = ringplan("show", "gpt-oss-120b").out, ringplan("show", "llama-3.1-8b").out

    assert re.search(r"windows of a sequence, bf16 +4,718,592 B", windows)
    assert re.search(r"of them, a token meets +5,711,982,912", windows)
    assert "windows" not in full
    assert "a token meets" not in full
    assert "0 B" not in full


@pytest.mark.parametrize("code", CODES)
def test_show_a_check(ringplan: Callable[..., Ran], code: str) -> None:
    ran = ringplan("show", code)

    assert (ran.code, ran.err) == (0, "")
    assert re.match(rf"{code}: \w.*\.", ran.out)
    assert ringplan("show", code.lower()).out == ran.out


@pytest.mark.parametrize("name", FORMULAS)
def test_show_a_formula(ringplan: Callable[..., Ran], name: str) -> None:
    ran = ringplan("show", name, columns=200)
    formula = REGISTRY[name]

    assert (ran.code, ran.err) == (0, "")
    for fact in (formula.equation, formula.unit, formula.scope, formula.source):
        assert fact in ran.out
    for argument in formula.parameters:
        assert re.search(rf"(?m)^{argument}\b", ran.out)


def test_every_formula_can_be_shown(ringplan: Callable[..., Ran]) -> None:
    for name in REGISTRY:
        assert ringplan("show", name).code == 0, name
