"""What the memory bill says in words: layers, formats, what was changed, where limits come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ringplan as library
from ringplan.render.words import layer_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

ROOT = Path(__file__).parents[2]
FLAGS = ("--model", "llama-3.1-8b", "--hardware", "h100-sxm-80gb", "--seq-len", "128K")
UNEVEN = (
    *("--model", "llama-3.1-70b", *FLAGS[2:-1], "32K", "--pp", "3"),
    *("--set", "mesh.pp_layers=[30,30,20]", "--set", "mesh.pp_memory=[80 GB,80 GB,48 GB]"),
)


def config(name: str, *more: str) -> tuple[str, ...]:
    """Flags of a config as published."""
    return ("--model", str(ROOT / f"tests/data/hf_configs/{name}.json"), *FLAGS[2:], *more)


def value(table: str, row: str) -> str:
    """What stands behind the name of a row, on as many lines as it takes."""
    found = re.search(rf"(?m)^{re.escape(row)}  +(\S.*(?:\n +\S.*)*)", table)
    assert found is not None, row
    return " ".join(found[1].split())


@pytest.fixture
def bill(ringplan: Callable[..., Ran]) -> Callable[..., str]:
    """Print a bill; its lines are wrapped at 80 columns."""

    def _bill(*flags: str, columns: int = 80) -> str:
        ran = ringplan("memory", *flags, columns=columns)
        assert (ran.err, max(map(len, ran.out.splitlines())) <= columns) == ("", True)
        return ran.out

    return _bill


WINDOW = "a window of 128 tokens"
LAYERS = {
    "gemma-3-27b": ["with a window of 1,024 tokens", "of full attention"],
    "nemotron-h-56b": [
        "with states (Mamba, linear attention), no MLP",
        "of an MLP alone",
        "of full attention, no MLP",
    ],
    "deepseek-r1": ["of latent attention", "of latent attention, experts 8 of 256"],
    "deepseek-v3.2": [
        "of latent attention with an indexer",
        "of latent attention with an indexer, experts 8 of 256",
    ],
    "deepseek-v4-pro": [
        f"of latent attention with {WINDOW} and an entry for each 128 tokens",
        f"of latent attention with {WINDOW} and an entry for each 4 tokens and an indexer",
        f"of latent attention with {WINDOW}",
    ],
    "granite-4.0-h-small": [
        "with states (Mamba, linear attention), experts 10 of 72",
        "of full attention, experts 10 of 72",
    ],
    "openelm-270m": [
        "of full attention, 12 heads, 3 of K/V",
        "of full attention, 16 heads, 4 of K/V",
        "of full attention, 20 heads, 5 of K/V",
    ],
    "llama-3.1-70b": ["of full attention"],
}


@pytest.mark.parametrize("name", LAYERS)
def test_kinds_of_layers_are_told_in_words(name: str) -> None:
    model = library.load(
        model=ROOT / f"tests/data/hf_configs/{name}.json", hardware="mi300x", seq_len="8K"
    ).scenario.model

    assert [*layer_words(model)][: len(LAYERS[name])] == LAYERS[name][: len(model.kinds)]


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/data/hf_configs/*.json")), ids=str)
def test_no_two_kinds_of_layers_read_the_same(path: Path) -> None:
    model = library.load(model=path, hardware="mi300x", seq_len="8K").scenario.model
    words = layer_words(model)

    assert len({*words}) == len(words) == len(model.kinds)


def test_tensors_stand_below_what_their_layers_are(bill: Callable[..., str]) -> None:
    """One layer's shape, the parameters of all: the headings say so."""
    table = bill(*config("gemma-3-27b", "--tensors"))
    section = table.partition("\nTensors of 52 layers with a window of 1,024 tokens\n")[2]
    head, _, *rows = section.partition("\n\n")[0].splitlines()

    assert "Tensors of 10 layers of full attention\n" in table
    assert "kind" not in table
    assert re.split("  +", head) == [
        "tensor",
        "shape of one",
        "all parameters",
        "split",
        "on a rank",
    ]
    cells = {row.split()[0]: row.split() for row in rows}
    rows_, columns = map(int, cells["mlp.up_proj"][1].split("x"))
    assert cells["mlp.up_proj"][2] == f"{52 * rows_ * columns:,}"
    once = table.partition("Tensors that exist once\n")[2].splitlines()[0]
    assert "shape " in once
    assert " parameters " in once


@pytest.mark.parametrize("name", ["gemma-3-27b", "kimi-k2", "qwen3-next-80b-a3b", "llama-3.1-405b"])
def test_long_tensors_leave_the_headings_whole(bill: Callable[..., str], name: str) -> None:
    heads = re.findall(r"(?m)^tensor .*$", bill(*config(name, "--tensors", "--tp", "16")))

    assert len(heads) > 1
    assert [head for head in heads if not head.endswith("on a rank")] == []


def test_layers_and_formats_are_facts(bill: Callable[..., str]) -> None:
    gemma = bill(*config("gemma-3-27b"))
    assert value(gemma, "layers") == "52 with a window of 1,024 tokens; 10 of full attention"
    assert value(gemma, "format of K/V") == "bf16"
    assert "format of states" not in gemma

    mixed = ("--kv-dtype", "q8_0", "--set", "workload.v_dtype=q4_0")
    hybrid = bill(*config("nemotron-h-56b", *mixed, "--engine", "sglang"))
    assert value(hybrid, "format of K/V") == "k q8_0, v q4_0"
    assert value(hybrid, "format of states") == "fp32, of convolutions bf16"

    drafts = bill(*config("deepseek-r1", "--tp", "8", "--set", "workload.draft_layers=1"))
    assert value(drafts, "draft layers") == "1 of latent attention, experts 8 of 256"
    assert "format of K/V" not in bill(*FLAGS, "--phase", "train")


TRAIN = ("--phase", "train")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "1 x h100-sxm-80gb; one rank; prefill of 131,072 tokens; batch 1; causal"),
        (("--cp", "2"), "; batch 1; zigzag, causal; schedule ideal"),
        (("--kv-dtype", "fp8"), "; K/V fp8;"),
        (("--kv-dtype", "q8_0", "--set", "workload.v_dtype=q4_0"), "; K q8_0, V q4_0;"),
        (("--weights-dtype", "int4"), "; weights int4;"),
        (("--set", "workload.embedding_dtype=fp8"), "; embeddings fp8;"),
        (("--set", "workload.activation_dtype=fp32"), "; activations fp32;"),
        (("--set", "workload.state_dtype=bf16"), "; states bf16;"),
        (("--set", "workload.cache_latents=false"), "; latents cached as heads;"),
        (("--set", "workload.flash_attention=false"), "; scores are stored"),
        (("--set", "workload.chunk_tokens=8K"), "tokens, in chunks of 8,192;"),
        (("--cached-len", "64K"), "tokens, 65,536 cached;"),
        (
            ("--cached-len", "64K", "--set", "workload.shared_len=4K"),
            "tokens, 65,536 cached, 4,096 shared by all sequences;",
        ),
        (("--tp", "16", "--set", "mesh.dcp_size=2"), "; tp 16 (dcp 2);"),
        (
            ("--tp", "4", "--set", "mesh.attention_dp_size=4", "--batch-size", "4"),
            "; tp 4 (attention dp 4);",
        ),
        (("--tp", "2", "--set", "mesh.sequence_parallel=true"), "; tp 2 (sequence-parallel);"),
        (("--pp", "2", "--set", "mesh.pp_layers=[20,12]"), "; pp 2 (20 + 12 layers);"),
        (("--pp", "2", "--set", "mesh.pp_memory=[80 GB,48 GB]"), "; pp 2 (80.0 GB + 48.0 GB);"),
        ((*TRAIN, "--dp", "2", "--set", "mesh.zero_stage=3"), "; dp 2; ZeRO 3; train of"),
        ((*TRAIN, "--set", "workload.recompute=none"), "; recompute none;"),
        ((*TRAIN, "--set", "workload.optimizer=adamw_8bit"), "; optimizer adamw_8bit;"),
        ((*TRAIN, "--set", "workload.gradient_dtype=bf16"), "; gradients bf16;"),
        ((*TRAIN, "--set", "workload.loss=fused"), "; loss fused;"),
        ((*TRAIN, "--set", "workload.loss=chunked"), "; loss chunked by 1,024;"),
        (
            (*TRAIN, "--set", "workload.offload=[activations, optimizer]"),
            "; activations and optimizer offloaded;",
        ),
        ((*TRAIN, "--set", "workload.num_micro_batches=8"), "; 8 micro-batches;"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("command", ["memory", "estimate"])
def test_scenario_line_says_what_was_changed(
    ringplan: Callable[..., Ran], command: str, more: tuple[str, ...], words: str
) -> None:
    """And nothing of what is as by default, or does not matter on one rank."""
    plain = ringplan(command, *FLAGS, columns=400).out.splitlines()[1]
    line = ringplan(command, *FLAGS, *more, columns=400).out.splitlines()[1]

    assert line.startswith("llama-3.1-8b on ")
    assert words in line
    assert ("zigzag" in line, "schedule" in line) == (("--cp" in more),) * 2
    if more:
        assert words not in plain


@pytest.mark.parametrize(
    ("more", "once"),
    [
        ((), " in one pass"),
        (("--set", "workload.chunk_tokens=8K"), ""),
        (("--engine", "vllm", "--dp", "2"), ""),
        (("--phase", "decode", "--batch-size", "2"), ""),
    ],
    ids=lambda value: " ".join(value)[-30:] if isinstance(value, tuple) else "",
)
def test_room_is_told_in_whole_sequences(
    ringplan: Callable[..., Ran], more: tuple[str], once: str
) -> None:
    made = json.loads(ringplan("memory", *FLAGS, *more, "--format", "json").out)
    memory = made["estimate"]["memory"]
    most, tokens = memory["max_sequences"], memory["max_concurrency"]
    wide = ringplan("memory", *FLAGS, *more, columns=400).out

    head = wide.splitlines()[0]
    assert head.endswith(f" left; room for {most:,} sequences of 131,072 tokens{once}")
    assert value(wide, "sequences of this context") == f"{most:,}{once} ({tokens:,.2f} by tokens)"
    assert value(wide, "cached tokens beside this pass") == f"{memory['kv_tokens']:,}"
    assert value(wide, "longest context at this mesh") == (
        f"{memory['max_seq_len']:,} tokens (the model: 131,072)"
    )
    assert re.search(r"(?m)^fewest devices, powers of two  +\d", wide)
    assert "\nsequences: by tokens\n" in wide
    assert (
        f"cached tokens, {most:,} sequences{once};"
        in ringplan("estimate", *FLAGS, *more, columns=400).out
    )
    (row,) = [line.split() for line in wide.splitlines() if line.startswith("131,072  ")]
    assert row[-2] == f"{tokens:,.2f}"


def test_training_and_what_does_not_fit_have_no_room_for_sequences(
    bill: Callable[..., str],
) -> None:
    for flags in ((*FLAGS, "--cp", "8", *TRAIN), (*FLAGS, "--batch-size", "64")):
        head = bill(*flags, columns=400).splitlines()[0]
        assert "fit" in head
        assert "room for" not in head


def test_smallest_cp_that_no_layout_has_comes_with_the_next_that_one_has(
    bill: Callable[..., str],
) -> None:
    more = ("--set", "mesh.zero_stage=3", "--set", "workload.recompute=selective")
    table = bill(*FLAGS, "--cp", "32", *TRAIN, *more)
    found = re.fullmatch(
        r"(\d+) \(\1 devices; (\d+) divides the tokens\)", value(table, "smallest cp that fits")
    )

    assert found is not None
    least, legal = int(found[1]), int(found[2])
    assert least < legal
    assert 131072 % (2 * legal) == 0
    assert all(131072 % (2 * ranks) for ranks in range(least, legal))
    assert re.fullmatch(r"1 \(1 device\)", value(bill(*FLAGS), "smallest cp that fits"))


def test_uneven_cards_name_the_rank_with_the_least_left(bill: Callable[..., str]) -> None:
    table = bill(*UNEVEN)
    stages = table.partition("pipeline stage that differs\n")[2].splitlines()

    assert "\nMemory of the rank with the least left\n" in table
    assert "Over context lengths, the rank with the least left\n" in table
    assert table.startswith("does not fit: the rank with the least left needs 49.9 GB, ")
    assert "capacity: 100 % of 48.0 GB (hardware.memory.utilization of mesh.pp_memory)" in table
    assert re.split("  +", stages[0])[-2:] == ["capacity", "left"]
    assert [" ".join(row.split()[-4:-2]) for row in stages[2:5]] == [
        "80.0 GB",
        "80.0 GB",
        "48.0 GB",
    ]
    even = bill(*UNEVEN[:-2])
    assert "the rank with the least left" not in even
    assert "\nMemory of the fullest rank\n" in even
    assert re.search(r"(?m)^stage .* total +left$", even)


def test_stage_is_told_where_it_changes_with_the_context(bill: Callable[..., str]) -> None:
    flags = config("nemotron-h-56b", "--tp", "2", "--pp", "3")
    moving = bill(*flags).partition("\nOver context lengths")[2].splitlines()

    assert moving[1].split()[:2] == ["context", "stage"]
    assert {row.split()[1] for row in moving[3:10]} == {"0", "1"}
    fixed = bill(*UNEVEN).partition("\nOver context lengths")[2].splitlines()
    assert "stage" not in fixed[1]


#: What the words of the limit add up to, for each policy.
LIMITS = {
    "vllm": r"capacity: (?P<share>92) % of (?P<device>85\.5 GB) is (?P<limit>\S+ GB)"
    r" \(engine\.utilization\); runtime and communicators, (?P<beside>\S+ GB), lie beside it",
    "sglang": r"capacity: (?P<device>85\.5 GB) less runtime and communicators leaves"
    r" (?P<free>\S+ GB) free at start; (?P<share>83) % of that, (?P<limit>\S+ GB), is for weights"
    r" and cache \(engine\.utilization\); all else, (?P<beside>\S+ GB), lies beside it",
    "tensorrt-llm": r"capacity: all but the cache is (?P<beside>\S+ GB) and leaves"
    r" (?P<free>\S+ GB) of (?P<device>85\.5 GB); the cache may fill (?P<share>90) % of that,"
    r" (?P<limit>\S+ GB) \(engine\.utilization\)",
}


@pytest.mark.parametrize("engine", LIMITS)
def test_limit_is_a_sum_that_can_be_followed(
    ringplan: Callable[..., Ran], bill: Callable[..., str], engine: str
) -> None:
    flags = (*FLAGS, "--tp", "2", "--engine", engine)
    made = json.loads(ringplan("memory", *flags, "--format", "json").out)
    found = re.search(f"(?m)^{LIMITS[engine]}$", bill(*flags, columns=400))

    assert found is not None
    said = found.groupdict()
    share = float(said.pop("share")) / 100
    sizes = {name: float(size.removesuffix(" GB")) for name, size in said.items()}
    base = sizes.get("free", sizes["device"])
    assert sizes["limit"] == pytest.approx(share * base, abs=0.1)
    capacity = made["estimate"]["memory"]["rank"]["capacity_bytes"] / 1e9
    assert sizes["limit"] + sizes["beside"] == pytest.approx(capacity, abs=0.11)


def test_limit_of_one_rank_has_no_communicators(bill: Callable[..., str]) -> None:
    table = bill(*FLAGS, "--engine", "vllm", columns=400)

    assert "(engine.utilization); runtime, 1.92 GB, lies beside it\n" in table


NO_RUNTIME = ("engine.runtime=null", "engine.communicators=null", "engine.graphs=null")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("engine.runtime=0 B",), "capacity: 85.5 GB is free at start; 83 % of that, 71.0 GB, is"),
        (NO_RUNTIME, "capacity: 85.5 GB less overhead leaves 81.4 GB free at"),
        (("engine.utilization=0.999",), "lies beside it, as far as it has room\n"),
    ],
    ids=str,
)
def test_limit_of_what_is_free_at_start_names_what_is_taken(
    bill: Callable[..., str], more: tuple[str], words: str
) -> None:
    sets = [word for each in more for word in ("--set", each)]

    assert words in bill(*FLAGS, "--engine", "sglang", *sets, columns=400)


@pytest.mark.parametrize(("given", "more"), [("20 GB", ""), ("80 GB", "; the device has 85.5 GB")])
def test_limit_of_a_cache_whose_bytes_are_given(
    bill: Callable[..., str], given: str, more: str
) -> None:
    flags = (*FLAGS, "--engine", "vllm", "--set", f"engine.kv_cache={given}")
    table = bill(*flags, columns=400)
    size = f"{given[:2]}.0 GB"

    assert f"\nvLLM: the cache gets {size} a rank; chunks of" in table
    found = re.search(
        r"(?m)^capacity: all but the cache is (\S+) GB, and the cache gets .*$", table
    )
    assert found is not None
    assert found[0].endswith(f" gets {size} (engine.kv_cache){more}")
    total, cache = (float(value(table, row).split()[0]) for row in ("total", "KV cache"))
    assert float(found[1]) == pytest.approx(total - cache, abs=0.11)


def test_limit_of_a_cache_that_has_no_room_is_told(bill: Callable[..., str]) -> None:
    flags = ("--model", "llama-3.1-405b", *FLAGS[2:], "--engine", "tensorrt-llm")

    assert re.search(
        r"capacity: all but the cache is \d+ GB, more than the 85\.5 GB of the device",
        bill(*flags, columns=400),
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_windows_are_told_of_models_that_have_some(bill: Callable[..., str], engine: str) -> None:
    assert "sliding-window" not in bill(*FLAGS, "--engine", engine)
    assert "sliding-window layers" in bill(*config("gemma-3-27b", "--engine", engine))


@pytest.mark.parametrize(
    ("more", "words"),
    [((), "memory fits"), (("--batch-size", "64"), "memory does not fit")],
    ids=["fits", "does not fit"],
)
@pytest.mark.parametrize("command", ["memory", "estimate"])
def test_what_cannot_work_and_fits_is_no_contradiction(
    ringplan: Callable[..., Ran], command: str, more: tuple[str, ...], words: str
) -> None:
    head = ringplan(command, *FLAGS, "--tp", "3", *more, columns=900).out.splitlines()[0]

    assert head.startswith(f"does not work: tp_size=3 does not divide 32 query heads; {words}")


@pytest.mark.parametrize("command", ["memory", "estimate"])
def test_help_names_formats_and_a_metric(ringplan: Callable[..., Ran], command: str) -> None:
    text = " ".join(ringplan(command, "--help").out.split())

    for option, kind, words in (
        (
            "--kv-dtype",
            "DTYPE",
            "bf16, fp16, fp8, int8, fp4, int4, nvfp4, q8_0, q5_1, q5_0, q4_1, q4_0,",
        ),
        ("--weights-dtype", "DTYPE", "bf16, fp16, fp8, int8, fp4, int4, mxfp4, nvfp4."),
        ("--explain", "all|METRIC", "memory.rank.kv_bytes"),
    ):
        assert words in text.partition(f" {option} {kind}")[2].partition(" --")[0], option


@pytest.mark.parametrize(
    "arguments",
    [
        ("memory", *FLAGS, "--tensors", "--engine", "vllm"),
        ("estimate", *FLAGS, "--cp", "8"),
        ("list", "models"),
        ("show", "h100-sxm-80gb"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_lines_end_without_blanks(ringplan: Callable[..., Ran], arguments: tuple[str]) -> None:
    lines = ringplan(*arguments).out.splitlines()

    assert len(lines) > 10
    assert [line for line in lines if line != line.rstrip()] == []


def explained(ran: Ran) -> list[str]:
    """Metrics whose work is shown."""
    assert (ran.code, ran.err) == (0, "")
    return re.findall(r"(?m)^(memory\.\S+?)(?: =|: not counted)", ran.out)


def test_metric_of_the_bill_is_explained_as_estimate_explains_it(
    ringplan: Callable[..., Ran],
) -> None:
    for wanted in ("memory.rank.kv_bytes", "memory.rank", "memory"):
        bill, whole = (
            ringplan(command, *FLAGS, "--explain", wanted) for command in ("memory", "estimate")
        )
        assert bill.out == whole.out
        assert len(explained(bill)) > (0 if "kv" in wanted else 10)


def test_all_is_the_bill_and_the_work_of_each_of_its_numbers(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan("memory", *FLAGS, "--explain", "all")
    page = ringplan("memory", *FLAGS).out.rpartition("\nwhy: ")[0]

    assert ran.out.startswith(page)
    work = ran.out.removeprefix(page)
    assert "memory.rank.kv_bytes" in explained(ran)
    assert {name.partition(".")[0] for name in re.findall(r"(?m)^(\w\S+) = ", work)} == {"memory"}


def test_last_line_teaches_how_to_ask_why(ringplan: Callable[..., Ran]) -> None:
    """What it says to type works."""
    for more in ((), (*TRAIN, "--cp", "8", "--set", "mesh.zero_stage=3"), ("--tensors",)):
        last = ringplan("memory", *FLAGS, *more).out.splitlines()[-1]
        found = re.fullmatch(r"why: --explain (\S+) \(names: --format csv\)", last)
        assert found is not None
        assert found[1] in explained(ringplan("memory", *FLAGS, *more, "--explain", found[1]))
        names = ringplan("memory", *FLAGS, *more, "--format", "csv").out
        assert f"\n{found[1]}," in names
    assert "why:" not in ringplan("memory", *FLAGS, "--format", "markdown").out


def test_work_has_its_place_in_json_and_markdown(ringplan: Callable[..., Ran]) -> None:
    flags = ("memory", *FLAGS, "--explain", "memory.rank.kv_bytes", "--format")
    made: dict[str, Any] = json.loads(ringplan(*flags, "json").out)

    assert [*made["explain"]] == ["memory.rank.kv_bytes"]
    tree = made["explain"]["memory.rank.kv_bytes"]
    assert tree["value"] == made["estimate"]["memory"]["rank"]["kv_bytes"]
    assert (
        "\n## Derivations\n\n```text\nmemory.rank.kv_bytes = " in ringplan(*flags, "markdown").out
    )


@pytest.mark.parametrize(
    ("wanted", "format_", "words"),
    [
        ("ring.hop_bytes", "table", "ringplan estimate --explain ring.hop_bytes"),
        ("memory.rank.kv_byte", "table", "did you mean memory.rank.kv_bytes"),
        ("", "json", "there is no metric ''"),
        ("all", "csv", "--explain has no CSV form"),
    ],
)
def test_what_has_no_work_here_is_exit_2(
    ringplan: Callable[..., Ran], wanted: str, format_: str, words: str
) -> None:
    ran = ringplan("memory", *FLAGS, "--explain", wanted, "--format", format_)

    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_bill_that_does_not_fit_is_explained_all_the_same(ringplan: Callable[..., Ran]) -> None:
    ran = ringplan("memory", *FLAGS, "--batch-size", "64", "--explain", "memory.fits")

    assert ran.code == 1
    assert ran.out.startswith("memory.fits = False")
