"""A layout that cannot work is exit 1 with the finding, its cure and the whole result."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

Flags = dict[str, str]

LLAMA: Flags = {"--model": "llama-3.1-8b", "--hardware": "h100-sxm-80gb", "--seq-len": "128K"}
MIXTRAL: Flags = {
    "--model": "mixtral-8x7b",
    "--hardware": "b200-sxm-180gb",
    "--seq-len": "32K",
}
#: What is wrong: flags, code of the finding, what its hint says.
BROKEN: dict[str, tuple[Flags, str, str]] = {
    "ulysses over the query heads": (
        {**LLAMA, "--cp": "64", "--ulysses": "64"},
        "RP104",
        "--ulysses 8",
    ),
    "ulysses over the KV heads": ({**LLAMA, "--cp": "16", "--ulysses": "16"}, "RP105", "--ulysses"),
    "ulysses not dividing the heads": (
        {**LLAMA, "--seq-len": "122880", "--cp": "12", "--ulysses": "6"},
        "RP104",
        "--ulysses 4",
    ),
    "sequence for zigzag": (
        {**LLAMA, "--seq-len": "100001", "--cp": "8"},
        "RP101",
        "pad by 15 to --seq-len 100016",
    ),
    "sequence for contiguous": (
        {**LLAMA, "--seq-len": "100001", "--cp": "8", "--partition": "contiguous"},
        "RP101",
        "pad by 7 to --seq-len 100008",
    ),
    "new tokens over a cache": (
        {**LLAMA, "--seq-len": "100001", "--cached-len": "50000", "--cp": "8"},
        "RP101",
        "pad by 15 to --seq-len 100016",
    ),
    "context too long": ({**LLAMA, "--seq-len": "16M", "--cp": "8"}, "RP110", "--cp"),
    "weights too big": ({**LLAMA, "--model": "llama-3.1-405b", "--cp": "8"}, "RP110", "--tp"),
    "training state too big": (
        {**LLAMA, "--cp": "8", "--phase": "train"},
        "RP110",
        "mesh.zero_stage=3",
    ),
    "context too long for one rank": ({**LLAMA, "--seq-len": "1G"}, "RP110", "--cp"),
    "tp not dividing the heads": ({**LLAMA, "--tp": "3"}, "RP102", "--tp 4"),
    "tp over the heads": ({**LLAMA, "--tp": "64"}, "RP102", "--tp 32"),
    "tp between the KV heads": (
        {**LLAMA, "--set": "model.num_attention_heads=24 model.head_dim=128", "--tp": "6"},
        "RP103",
        "--tp",
    ),
    "tp near no good divisor": (
        {**LLAMA, "--set": "model.num_attention_heads=24 model.head_dim=128", "--tp": "5"},
        "RP102",
        "--tp",
    ),
    "more stages than layers": ({**LLAMA, "--pp": "33"}, "RP106", "--pp 32"),
    "experts of a dense model": ({**LLAMA, "--ep": "2", "--dp": "2"}, "RP107", "--ep 1"),
    "ep not dividing the experts": ({**MIXTRAL, "--ep": "3", "--dp": "3"}, "RP107", "--ep"),
    "ep over the experts": ({**MIXTRAL, "--ep": "16", "--dp": "16"}, "RP107", "--ep 8"),
}
#: What works and could be better: flags, code of the finding.
COSTLY: dict[str, tuple[Flags, str]] = {
    "stalled": ({**LLAMA, "--seq-len": "32K", "--cp": "32"}, "RP201"),
    "contiguous": ({**LLAMA, "--cp": "8", "--partition": "contiguous"}, "RP203"),
    "fits without": ({**LLAMA, "--cp": "8"}, "RP204"),
    "tp over the domain": ({**LLAMA, "--tp": "16"}, "RP208"),
    "order of the mesh": (
        {**LLAMA, "--cp": "8", "--tp": "8", "--set": "mesh.order=[ring,ulysses,tp,dp,pp]"},
        "RP208",
    ),
}
broken = pytest.mark.parametrize(("flags", "code", "hint"), BROKEN.values(), ids=BROKEN)
costly = pytest.mark.parametrize(("flags", "code"), COSTLY.values(), ids=COSTLY)


def arguments(flags: Flags) -> list[str]:
    """Model and hardware go in by their paths, so that --set can change them."""
    sets = [f"{name[2:]}={flags[name]}" for name in ("--model", "--hardware")]
    sets += flags.get("--set", "").split()
    rest = {k: v for k, v in flags.items() if k not in ("--model", "--hardware", "--set")}
    pairs = [*(("--set", value) for value in sets), *rest.items()]
    return ["estimate", *(part for pair in pairs for part in pair)]


def findings(made: dict[str, Any], *severities: str) -> dict[str, str]:
    """Hints by code."""
    return {f["code"]: f["hint"] for f in made["findings"] if f["severity"] in severities}


def cures(hint: str) -> list[Flags]:
    """Flags that a hint tells the user to type, each a cure of its own."""
    sets = re.findall(r"--set ('[^']+'|[^\s,;]+)", hint)
    ways = (
        dict(re.findall(r"(--(?!set)[a-z-]+) (\d\w*|fp8|zigzag)", way))
        for way in re.split(r"[,;] or ", hint)
    )
    return [{"--set": shlex.split(each)[0].replace(" ", "")} for each in sets] + [
        way for way in ways if way
    ]


def applied(flags: Flags, cure: Flags) -> Flags:
    """Flags with a cure typed; a cure by --set replaces one of the same path."""
    if "--set" not in cure:
        return {**flags, **cure}
    path = cure["--set"].partition("=")[0]
    kept = [each for each in flags.get("--set", "").split() if not each.startswith(f"{path}=")]
    return {**flags, "--set": " ".join([*kept, cure["--set"]])}


@broken
def test_layout_that_cannot_work_is_exit_1(
    ringplan: Callable[..., Ran], flags: Flags, code: str, hint: str
) -> None:
    ran = ringplan(*arguments(flags), "--format", "json")

    made = json.loads(ran.out)

    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert made["summary"]["works"] is False
    assert hint in findings(made, "error")[code]
    assert made["estimate"]["memory"]["rank"]["total_bytes"] > 0
    assert made["estimate"]["alternatives"] or flags.get("--cp") is None


@broken
def test_table_of_what_cannot_work_is_whole(
    ringplan: Callable[..., Ran], flags: Flags, code: str, hint: str
) -> None:
    ran = ringplan(*arguments(flags), columns=400)

    assert ran.code == 1
    assert ran.out.startswith("does not work: ")
    assert "Memory of the fullest rank" in ran.out
    assert re.search(rf"{code} +error +.*{re.escape(hint)}", ran.out)


@broken
def test_following_the_hint_of_an_error_makes_it_work(
    ringplan: Callable[..., Ran], flags: Flags, code: str, hint: str
) -> None:
    """The hint is the nearest layout that works: no error is left, each cure is enough."""
    told = findings(json.loads(ringplan(*arguments(flags), "--format", "json").out), "error")[code]
    assert hint in told
    assert cures(told)

    for cure in cures(told):
        ran = ringplan(*arguments(applied(flags, cure)), "--format", "json")

        assert ran.code == 0, (cure, ran.err, ran.out and findings(json.loads(ran.out), "error"))


def test_hints_of_several_errors_cure_each_its_own(ringplan: Callable[..., Ran]) -> None:
    flags = {**LLAMA, "--seq-len": "100001", "--cp": "64", "--tp": "3", "--pp": "99"}
    told = findings(json.loads(ringplan(*arguments(flags), "--format", "json").out), "error")

    for code, hint in told.items():
        for cure in cures(hint):
            made = ringplan(*arguments(applied(flags, cure)), "--format", "json").out
            assert code not in findings(json.loads(made), "error"), cure
    assert set(told) == {"RP101", "RP102", "RP106"}


@costly
def test_layout_that_costs_is_exit_0(ringplan: Callable[..., Ran], flags: Flags, code: str) -> None:
    ran = ringplan(*arguments(flags), "--format", "json")

    assert ran.code == 0, ran.err
    assert code in findings(json.loads(ran.out), "warning", "info")


@costly
def test_following_the_hint_of_a_warning_removes_it_or_saves_time(
    ringplan: Callable[..., Ran], flags: Flags, code: str
) -> None:
    before = json.loads(ringplan(*arguments(flags), "--format", "json").out)
    told = findings(before, "warning", "info")[code]
    assert cures(told)

    for cure in cures(told):
        ran = ringplan(*arguments(applied(flags, cure)), "--format", "json")

        assert ran.code in (0, 1), (cure, ran.err)
        after = json.loads(ran.out)
        faster = (
            after["estimate"]["ring"]["time_forward"],
            before["estimate"]["ring"]["time_forward"],
        )
        assert code not in findings(after, "warning", "info") or faster[0] < faster[1], cure


def test_stalled_ring_is_an_answer(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan(*arguments(COSTLY["stalled"][0]))

    assert ran.code == 0
    assert ran.out.startswith("works: ")
    assert "ring stalled" in ran.out


def test_sequence_that_does_not_divide_is_estimated_padded(ringplan: Callable[..., Ran]) -> None:
    """100,001 over 8 ranks with two chunks each is 100,016: 12,502 tokens a rank."""
    flags = BROKEN["sequence for zigzag"][0]
    padded = {**flags, "--seq-len": "100016"}

    odd, even = (
        json.loads(ringplan(*arguments(f), "--format", "json").out)["estimate"]
        for f in (flags, padded)
    )

    assert odd["ring"]["block_tokens"] == 12_502
    for block in ("memory", "ring", "utilization", "communication", "decode"):
        assert odd[block] == even[block]


def test_missing_link_is_told_with_a_value_to_type(ringplan: Callable[..., Ran]) -> None:
    """The L40S has no network of its own; the hint leads to one message after the other."""
    flags = {**LLAMA, "--hardware": "l40s", "--cp": "16"}
    ran = ringplan(*arguments(flags))
    assert ran.code == 2
    assert "hardware.scale_out.bandwidth_per_direction" in ran.err

    sets = [
        part for each in re.findall(r'--set (\S+="[^"]+")', ran.err) for part in ("--set", each)
    ]
    cured = [part.replace('"', "") for part in sets]

    assert ringplan(*arguments(flags), *cured).code in (0, 1)
