"""Every number of an estimate shows its work, and the work gives the number."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

import ringplan as library
from ringplan.estimation.metrics import Metric, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringplan.costs.formula import Known
    from tests.cli.conftest import Ran

SCENARIOS: dict[str, dict[str, Any]] = {
    "prefill": {
        "model": "llama-3.1-70b",
        "hardware": "h100-sxm-80gb",
        "seq_len": "1M",
        "cp_size": 16,
        "tp_size": 8,
    },
    "train": {
        "model": "gemma-2-27b",
        "hardware": "b200-sxm-180gb",
        "seq_len": "128K",
        "phase": "train",
        "cp_size": 8,
        "zero_stage": 3,
    },
    "decode": {
        "model": "deepseek-r1",
        "hardware": "h200-sxm-141gb",
        "seq_len": "128K",
        "phase": "decode",
        "cp_size": 4,
        "tp_size": 8,
    },
    "cached": {
        "model": "qwen3-235b-a22b",
        "hardware": "mi300x",
        "seq_len": "256K",
        "cached_len": "192K",
        "cp_size": 8,
        "pp_size": 2,
        "ep_size": 8,
        "set": {"hardware.scale_out.latency": "30 us"},
    },
    "ulysses": {
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "seq_len": "128K",
        "cp_size": 8,
        "ulysses_size": 8,
    },
}
#: Numbers that name a part of the layout or count the tensor list: nothing computes them.
LABELS = re.compile(r".*\.(ring_size|ulysses_size|stage|num_steps|num_(active_)?parameters)")
GIVEN = re.compile(r"(argument|--|\S+\.(yaml|json) line \d+|default$)")
FLAGS = ("--model", "llama-3.1-70b", "--hardware", "h100-sxm-80gb", "--seq-len", "1M")
ARGUMENTS = ("estimate", *FLAGS, "--cp", "16", "--tp", "8")


@cache
def explained(name: str) -> dict[str, Known]:
    return library.explain(**SCENARIOS[name])


@cache
def numbers(name: str) -> list[Metric]:
    """Metrics of the plain estimate that are numbers."""
    made = library.estimate(**SCENARIOS[name]).estimate
    return [m for m in metrics(made) if type(m.value) in (int, float)]


def nodes(known: Known) -> Iterator[Known]:
    yield known
    for _, given in known.inputs:
        yield from nodes(given)


def every_node(name: str) -> list[Known]:
    """All steps and leaves of all metrics, each object once."""
    return list({id(n): n for k in explained(name).values() for n in nodes(k)}.values())


def recomputed(known: Known) -> Any:
    """What the formula gives for the recorded inputs."""
    values: dict[str, Any] = {}
    for label, given in known.inputs:
        name, bracket, _ = label.partition("[")
        values[name] = (*values.get(name, ()), given.value) if bracket else given.value
    assert known.formula is not None
    return known.formula.function(**values)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_number_is_explained(name: str) -> None:
    made = explained(name)

    silent = [m.name for m in numbers(name) if m.name not in made and not LABELS.fullmatch(m.name)]

    assert silent == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_explained_value_is_the_plain_one(name: str) -> None:
    made = explained(name)

    expected = {m.name: m.value for m in numbers(name) if m.name in made}

    assert {key: made[key].value for key in expected} == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_explained_that_the_estimate_lacks(name: str) -> None:
    plain = library.estimate(**SCENARIOS[name]).estimate

    assert set(explained(name)) <= {m.name for m in metrics(plain) if m.value is not None}


@pytest.mark.parametrize("name", SCENARIOS)
def test_formula_is_one_that_the_metric_declares(name: str) -> None:
    """The schema and the docs show the declared formula; the work must be that one, or a leaf."""
    made = explained(name)

    stray = {
        m.name: known.formula.name
        for m in numbers(name)
        if (known := made.get(m.name)) is not None
        and known.formula is not None
        and known.formula not in m.declared.formulas
    }

    assert stray == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_unit_of_the_work_is_the_unit_of_the_metric(name: str) -> None:
    """919 ms must not be shown as 919 mB."""
    made = explained(name)

    wrong = {
        m.name: (known.formula.unit, m.declared.unit)
        for m in numbers(name)
        if (known := made.get(m.name)) is not None
        and known.formula is not None
        and known.formula.unit != m.declared.unit
    }

    assert wrong == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_leaf_names_its_origin(name: str) -> None:
    leaves = [node for node in every_node(name) if node.formula is None]

    assert [leaf.name for leaf in leaves if not leaf.origin.strip()] == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_leaf_with_a_path_says_who_gave_it(name: str) -> None:
    """File and line, flag or argument, or default; a rule's own leaves have no path."""
    leaves = [node for node in every_node(name) if node.formula is None]
    paths = [leaf for leaf in leaves if re.match(r"(model|hardware|mesh|workload)\.", leaf.name)]

    assert paths
    assert {leaf.name: leaf.origin for leaf in paths if not GIVEN.search(leaf.origin)} == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_number_of_the_profile_names_its_source(name: str) -> None:
    leaves = [node for node in every_node(name) if node.formula is None]
    shipped = [leaf for leaf in leaves if leaf.origin.startswith(("hardware_profiles", "ringplan"))]

    assert any(leaf.name.startswith("hardware.") for leaf in shipped)
    bare = r"\S+ line \d+"
    assert {leaf.name: leaf.origin for leaf in shipped if re.fullmatch(bare, leaf.origin)} == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_step_recomputes_to_its_value(name: str) -> None:
    steps = [node for node in every_node(name) if node.formula is not None]

    wrong = {step.name: step.value for step in steps if recomputed(step) != step.value}

    assert len(steps) > 50
    assert wrong == {}


def test_explain_all_adds_every_derivation_to_the_table(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--explain", "all")

    assert ran.code == 0
    assert "Memory of the fullest rank" in ran.out
    for m in numbers("prefill"):
        assert LABELS.fullmatch(m.name) or re.search(rf"(?m)^{re.escape(m.name)} = ", ran.out), m


def test_explain_shows_one_metric_and_nothing_else(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--explain", "ring.hop_time")

    assert ran.code == 0
    assert ran.out.startswith("ring.hop_time = ")
    assert re.findall(r"(?m)^\S+", ran.out) == ["ring.hop_time"]
    assert re.search(r"latency: hardware_profiles/h100-sxm-80gb.yaml line \d+: assumed", ran.out)
    assert "--cp 16" in ran.out


def test_explain_a_block_shows_its_metrics(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--explain", "ring")

    shown = set(re.findall(r"(?m)^(\S+?)(?: =|:)", ran.out))

    assert ran.code == 0
    assert {m.name for m in numbers("prefill") if m.name.startswith("ring.")} <= shown
    assert all(name.startswith("ring.") for name in shown)


def test_explain_says_why_a_number_is_missing(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--explain", "time.total")

    assert ran.code == 0
    assert re.fullmatch(r"time\.total: not counted, \w[^\n]+\n+", ran.out)


def test_json_carries_the_derivation(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--explain", "ring.hop_time", "--format", "json")

    made = json.loads(ran.out)

    assert list(made["explain"]) == ["ring.hop_time"]
    tree = made["explain"]["ring.hop_time"]
    assert tree["value"] == made["estimate"]["ring"]["hop_time"]
    assert tree["unit"] == "s"
    assert tree["equation"]
    assert tree["source"]
    assert tree["inputs"]


def test_layout_that_cannot_work_is_explained_all_the_same(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*ARGUMENTS, "--pp", "99", "--explain", "ring.hop_bytes")

    assert ran.code == 1
    assert ran.out.startswith("ring.hop_bytes = ")
