"""What a config can have wrong, and what is said."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.errors import SpecError
from ringplan.io.hf import FAMILIES, read_config
from ringplan.io.origins import Tree
from ringplan.specs.model import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]

CONFIGS = Path(__file__).parents[2] / "data" / "hf_configs"


def _complaint(read: Read, name: str, **changes: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read(name, **changes)
    return caught.value


def test_an_unknown_family_is_refused_with_those_known(read: Read) -> None:
    error = _complaint(read, "llama-3.1-8b", model_type="rwkv")

    assert error.message == "--set model.model_type=rwkv: unknown model_type 'rwkv'"
    assert all(family in error.hint for family in FAMILIES)
    assert error.hint.endswith(
        "most need hidden_size, intermediate_size, num_attention_heads, num_hidden_layers, "
        "vocab_size"
    )


def test_a_missing_family_is_not_guessed(read: Read) -> None:
    error = _complaint(read, "llama-3.1-8b", without=("model_type", "architectures"))

    assert error.message.startswith("llama-3.1-8b: model_type is missing")
    assert "deepseek_v2, deepseek_v3, deepseek_v32" in error.hint


def test_a_class_that_ringplan_does_not_know_is_not_guessed(read: Read) -> None:
    changes = {"without": ("model_type",), "architectures": ["LlavaForCausalLM"]}

    assert "model_type is missing" in _complaint(read, "llama-3.1-8b", **changes).message


@pytest.mark.parametrize(
    "named",
    [
        {"architectures": ["LlamaForCausalLM"]},
        {"architecture": "LlamaForCausalLM", "architectures": None},
    ],
)
def test_the_class_names_the_family_if_model_type_does_not(
    read: Read, named: dict[str, object]
) -> None:
    model = read("llama-3.1-8b", without=("model_type",), **named)

    assert model.spec == read("llama-3.1-8b").spec


def test_missing_fields_are_named_all_at_once_with_what_is_needed(read: Read) -> None:
    error = _complaint(read, "qwen3-8b", without=("vocab_size", "head_dim"))

    assert error.message == "qwen3-8b: vocab_size is missing\nqwen3-8b: head_dim is missing"
    assert error.hint == (
        "a qwen3 config needs hidden_size, vocab_size, num_hidden_layers, num_attention_heads, "
        "head_dim, num_key_value_heads, intermediate_size"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_an_empty_config_is_refused_whatever_its_family(family: str) -> None:
    with pytest.raises(SpecError, match=r"nothing: (hidden_size|model_dim) is missing"):
        read_config(Tree({"model_type": family}, {}), name="nothing")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("eight", "eight"),
        (-1, "-1"),
        (0, "0"),
        (True, "true"),
        (1.5, "1.5"),
        ("8.0", "8.0"),
        ([8], "[8]"),
        (10**9 + 1, "1000000001"),
        ("9" * 50, "9" * 37 + "..."),
    ],
)
def test_a_bad_number_is_quoted_with_its_place_and_the_cure(
    read: Read, given: object, shown: str
) -> None:
    error = _complaint(read, "llama-3.1-8b", num_key_value_heads=given)

    assert error.message == (
        f"--set model.num_key_value_heads={given}: num_key_value_heads is '{shown}', but must be "
        "a whole number from 1 to 1,000,000,000"
    )


def test_a_bad_number_in_a_file_names_its_line() -> None:
    from ringplan.io.origins import Origin

    origins = {"n_layer": Origin("model", "my/config.json line 3")}
    config = Tree({"model_type": "gpt2", "n_layer": 10**6}, origins)

    with pytest.raises(
        SpecError, match=r"my/config.json line 3: n_layer is '1000000', but must be"
    ):
        read_config(config, name="deep")


def test_an_encoder_decoder_is_refused(read: Read) -> None:
    error = _complaint(read, "llama-3.1-8b", is_encoder_decoder=True)

    assert error.message == (
        "--set model.is_encoder_decoder=True: is_encoder_decoder is true, but ringplan plans "
        "decoders only"
    )


@pytest.mark.parametrize("family", ["t5", "bart", "whisper"])
def test_a_family_with_an_encoder_is_refused_even_if_the_config_is_silent(
    read: Read, family: str
) -> None:
    error = _complaint(read, "llama-3.1-8b", model_type=family)

    assert error.message == (
        f"--set model.model_type={family}: model_type '{family}' has an encoder, but ringplan "
        "plans decoders only"
    )
    assert error.hint == "name the config of a decoder-only model"


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        (
            "llama-3.1-8b",
            {"num_key_value_heads": 5},
            "32 is not a multiple of num_key_value_heads 5",
        ),
        ("llama-3.1-8b", {"hidden_size": 4100}, "4100 is not a multiple of num_attention_heads 32"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "9 is more than num_local_experts 8"),
        ("gpt-oss-120b", {"num_hidden_layers": 40}, "layer_types has 36 items for 40 layers"),
        ("gpt-oss-120b", {"layer_types": ["mamba"] * 36}, "layer_types has 'mamba'"),
        ("gpt-oss-120b", {"layer_types": "full"}, "layer_types is 'full', but must be a list"),
        ("gpt2", {"n_embd": 10**9 - 4}, "4 * hidden_size"),
        ("llama-3.1-8b", {"tie_word_embeddings": "maybe"}, "must be true or false"),
        ("llama-3.1-8b", {"quantization_config": 8}, "must be a block of keys in braces"),
        (
            "llama-3.1-8b",
            {"weights_dtype": "int3"},
            "weights_dtype is 'int3', but must be one of fp32",
        ),
        ("mistral-7b-v0.1", {"without": ("sliding_window",)}, "sliding_window is missing"),
        ("gemma-2-2b", {"sliding_window": None}, "sliding_window is missing"),
        ("deepseek-r1", {"without": ("q_lora_rank",)}, "q_lora_rank is missing"),
        ("santacoder", {"without": ("multi_query",)}, "multi_query is missing"),
        ("deepseek-v4-pro", {"compress_ratios": [4]}, "compress_ratios has 1 items for 61 layers"),
        ("deepseek-v4-pro", {"compress_ratios": ["x"]}, "must be a list of whole numbers from 0"),
        ("glm-5.3", {"indexer_types": ["full"]}, "indexer_types has 1 items for 78 layers"),
        ("openelm-270m", {"num_kv_heads": [3]}, "num_kv_heads has 1 items for 16 layers"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M?"}, "hybrid_override_pattern has '?'"),
        ("nemotron-h-56b", {"num_hidden_layers": 119}, "has 118 items for 119 layers"),
        ("llama-4-scout", {"no_rope_layers": [1]}, "no_rope_layers has 1 items for 48 layers"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(
    read: Read, name: str, changes: dict[str, object], said: str
) -> None:
    assert said in _complaint(read, name, **changes).message


def test_fields_that_ringplan_does_not_know_are_ignored(read: Read) -> None:
    assert read("qwen3-8b", rope_scaling={"factor": 4}, extra=[1]).spec == read("qwen3-8b").spec


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_whatever_stands_in_a_field_a_config_is_read_or_refused(path: Path) -> None:
    config = json.loads(path.read_text())
    blocks = [config, *(block for block in config.values() if isinstance(block, dict))]
    for part, key in [(block, key) for block in blocks for key in block]:
        given = part[key]
        for odd in (None, -1, "x", [], {}, 10**12, ["a"], [1, 2], {"a": 1}):
            part[key] = odd
            with contextlib.suppress(SpecError):
                spec = read_config(Tree(config, {}), name="odd").spec
                assert ModelSpec.model_validate(spec.model_dump()) == spec
                assert len(spec.pattern) == spec.num_hidden_layers
                assert bool(spec.unknown) == (spec.tensors == ())
        part[key] = given
