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
HEADINGS = ("name", "devices", "node")
FORMULAS = ["kv_block_bytes", "attention_flops", "min_block_tokens", "overlap_margin", "pass_time"]


@pytest.mark.parametrize("shelf", ["models", "hardware", "schedules", "engines"])
def test_list_names_everything_on_the_shelf(ringplan: Callable[..., Ran], shelf: str) -> None:
    ran = ringplan("list", shelf)

    assert (ran.code, ran.err) == (0, "")
    found = re.findall(r"(?m)^([a-z]\S+)", ran.out)
    assert [name for name in found if name not in HEADINGS] == library.names(shelf)
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("shelf", "row"),
    [
        ("models", r"llama-3\.1-70b +70\.6 B +80 +328 kB +131,072"),
        ("models", r"deepseek-r1 +671\.0 B +61 +70\.3 kB +163,840"),
        ("hardware", r"h100-sxm-80gb +85\.5 GB +3\.35 TB/s +989 TFLOP/s +450 GB/s +50\.0 GB/s +8"),
        ("hardware", r"v100-sxm2-32gb +32\.0 GB +900 GB/s +- +50\.0 GB/s +- +8"),
        ("hardware", r"aws-p4d-24xlarge +a100-sxm-40gb +8 +4 +6\.25 GB/s +50\.0 GB/s"),
        ("schedules", r"megatron-p2p +prefill\+train +p2p +7.00 U +14.00 U"),
        ("engines", r"vllm +total +\d+ % +16 +8,192 +capped"),
        ("engines", r"none +total +- +1 +- +capped"),
        ("checks", r"RP110 +The fullest rank does not fit"),
    ],
)
def test_list_shows_the_facts(ringplan: Callable[..., Ran], shelf: str, row: str) -> None:
    assert re.search(row, ringplan("list", shelf).out)


@pytest.mark.parametrize(
    ("shelf", "key", "first"),
    [
        ("hardware", "memory", "cpu-25gbe mi355x gb300-nvl72"),
        ("hardware", "bandwidth", "b300-sxm-288gb gb200-nvl72 gb300-nvl72"),
        ("hardware", "bf16", "gb200-nvl72 gb300-nvl72 mi355x"),
        ("hardware", "pair", "b200-sxm-180gb b300-sxm-288gb gb200-nvl72"),
        ("hardware", "scale-out", "b300-sxm-288gb gb300-nvl72 gaudi3"),
        ("hardware", "name", "a100-pcie-40gb a100-pcie-80gb a100-sxm-40gb"),
        ("engines", "page", "llama.cpp tensorrt-llm vllm"),
        ("schedules", "name", library.names("schedules")[0]),
    ],
)
def test_list_sorts_numbers_down_and_names_up(
    ringplan: Callable[..., Ran], shelf: str, key: str, first: str
) -> None:
    ran = ringplan("list", shelf, "--sort", key)
    names = re.findall(r"(?m)^([a-z]\S+)", ran.out)
    names = [name for name in names if name not in HEADINGS]

    assert (ran.code, ran.err) == (0, "")
    assert " ".join(names).startswith(first)
    assert sorted(names) == sorted(library.names(shelf))


def test_what_lacks_a_number_stands_last(ringplan: Callable[..., Ran]) -> None:
    devices = ringplan("list", "hardware", "--sort", "bf16").out.split("\n\n")[0]

    assert devices.splitlines()[-1].startswith("v100-sxm2-32gb")


@pytest.mark.parametrize(
    ("shelf", "words", "expected"),
    [
        ("hardware", "gaudi", {"gaudi2", "gaudi3"}),
        (
            "hardware",
            "AMD instinct",
            {"mi250x", "mi300x", "mi325x", "mi355x", "azure-nd-mi300x-v5"},
        ),
        ("hardware", "google cloud", {"gcp-a3-high", "gcp-a3-mega", "gcp-a3-ultra", "gcp-a4"}),
        ("hardware", "h20-", {"h20-96gb"}),
        ("models", "llama-3.1", {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"}),
        ("engines", "vllm", {"vllm"}),
    ],
)
def test_list_keeps_the_rows_with_the_words(
    ringplan: Callable[..., Ran], shelf: str, words: str, expected: set[str]
) -> None:
    """In names, titles (they say the vendor) and cells, in any case; no empty table is printed."""
    ran = ringplan("list", shelf, "--filter", words)

    assert (ran.code, ran.err) == (0, "")
    assert set(re.findall(r"(?m)^([a-z]\S+)", ran.out)) - set(HEADINGS) == expected


def test_list_keeps_devices_and_node_types_apart(ringplan: Callable[..., Ran]) -> None:
    devices, nodes = ringplan("list", "hardware", "--filter", "h100").out.split("\n\n")

    assert devices.startswith("devices\n")
    assert re.findall(r"(?m)^h100\S+", devices) == [
        "h100-nvl-94gb",
        "h100-pcie-80gb",
        "h100-sxm-80gb",
    ]
    assert nodes.startswith("node types\n")
    assert re.findall(r"(?m)^\S+ +h100-sxm-80gb", nodes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("hardware", "--sort", "price"),
            (
                "error: hardware cannot be sorted by 'price'\n"
                "hint: by name, memory, bandwidth, bf16, pair, scale-out\n"
            ),
        ),
        (
            ("schedules", "--sort", "memory"),
            "error: schedules cannot be sorted by 'memory'\nhint: by name\n",
        ),
        (
            ("hardware", "--filter", "h1000"),
            "error: no hardware with 'h1000'\nhint: ringplan list hardware shows all\n",
        ),
    ],
)
def test_list_says_what_it_cannot_do(
    ringplan: Callable[..., Ran], arguments: tuple[str, ...], said: str
) -> None:
    ran = ringplan("list", *arguments)

    assert (ran.code, ran.out, ran.err) == (2, "", said)


@pytest.mark.parametrize("name", ["h100", "l40", "a10", "p5"])
def test_part_of_a_name_is_no_device(ringplan: Callable[..., Ran], name: str) -> None:
    """A plan for another device is worse than none; the names that come near are told."""
    ran = ringplan("estimate", "--model", "llama-3.1-8b", "--hardware", name, "--seq-len", "8K")

    assert (ran.code, ran.out) == (2, "")
    assert re.match(rf"error: unknown hardware profile '{name}'\nhint: did you mean \S+", ran.err)


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
    assert re.search(r"peak\.(bf16|fp16) +[\d.]+ TFLOP/s +\d+", fields)
    cited = {int(n) for n in re.findall(r"(?m)^[a-z_]+\.\S+ .*? (\d+) *$", fields)}
    listed = {
        int(n) for n in re.findall(r"(?m)^(\d+) +(?:datasheet|measured|derived|assumed)", sources)
    }
    assert cited == listed


def test_show_a_node_type_has_its_own_numbers_and_those_of_its_device(
    ringplan: Callable[..., Ran],
) -> None:
    """Each with the source that its own file names, and with what that source remarks."""
    out = ringplan("show", "gcp-a3-high", columns=400).out

    def source(field: str) -> str:
        number = re.search(rf"(?m)^{re.escape(field)} .* (\d+) *$", out)
        assert number
        found = re.search(rf"(?m)^{number[1]} +(\w.*)$", out)
        assert found
        return found[1]

    assert re.search(r"(?m)^base +h100-sxm-80gb", out)
    assert "81559 MiB" in source("memory.capacity")
    assert "GPUDirect-TCPX" in source("scale_out.bandwidth_per_direction")
    assert "headline counts the frontend card" in source("scale_out.cards_per_node")
    assert "calculon" in source("scale_out.latency")


def test_show_a_table_by_size_with_its_units(ringplan: Callable[..., Ran]) -> None:
    out = ringplan("show", "h100-sxm-80gb", columns=200).out

    assert re.search(r"efficiency\.forward_curve\.fill +32K: 0\.\d+, 64K", out)
    assert re.search(r"efficiency\.scale_up +128 KiB: 0\.\d+, 512 KiB", out)


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
