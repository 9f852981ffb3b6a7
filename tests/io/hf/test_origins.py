"""Who gave each number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringplan.errors import SpecError
from ringplan.io.hf import read_config
from ringplan.io.origins import Origin, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]


def test_a_number_names_file_line_and_key(read: Read) -> None:
    origins = read("gpt2").origins

    assert origins["kinds.0.num_attention_heads"].kind == "model"
    assert str(origins["kinds.0.num_attention_heads"]).endswith("gpt2.json line 8: n_head")
    assert origins["hidden_size"].source == "n_embd"


WHOLE = (
    "llama-3.1-8b",
    "deepseek-r1",
    "deepseek-v3.2",
    "deepseek-v4-pro",
    "falcon-7b",
    "gemma-2-2b",
    "gpt-oss-120b",
    "granite-4.0-h-small",
    "llama-4-scout",
    "nemotron-h-56b",
    "qwen3-next-80b-a3b",
    "santacoder",
    "step-3.7-flash",
)


def test_every_number_has_an_origin(read: Read) -> None:
    for name in WHOLE:
        model = read(name)
        numbers = {
            f"kinds.{index}.{field}"
            for index, kind in enumerate(model.spec.kinds)
            for field, value in kind
            if value and field != "caches"
        }
        numbers |= {"hidden_size", "vocab_size", "num_hidden_layers", "weights_dtype"}

        assert numbers <= model.origins.keys()


def test_a_derived_head_size_says_what_from(read: Read) -> None:
    origin = read("llama-3.1-8b").origins["kinds.0.head_dim"]

    assert origin.kind == "derived"
    assert origin.where == "hidden_size / num_attention_heads, as the config has no head_dim"
    assert "llama-3.1-8b.json line 5: hidden_size" in origin.source


def test_an_explicit_head_size_wins(read: Read) -> None:
    model = read("llama-3.1-8b", head_dim=64)

    assert model.spec.kinds[0].head_dim == 64
    assert model.origins["kinds.0.head_dim"] == Origin("set", "--set model.head_dim=64")


def test_gemma_2_has_its_class_default_for_a_head_size(read: Read) -> None:
    model = read("gemma-2-2b")

    assert model.spec.kinds[0].head_dim == 256
    assert "default of the class" in model.origins["kinds.0.head_dim"].where


def test_nemotron_h_has_its_class_default_for_a_head_size(read: Read) -> None:
    model = read("nemotron-nano-9b-v2", without=("head_dim",))
    attention = next(i for i, kind in enumerate(model.spec.kinds) if kind.query_heads)

    assert model.spec.kinds[attention].head_dim == 128  # not 4480 / 40
    assert "default of the class" in model.origins[f"kinds.{attention}.head_dim"].where


def test_llama_4_shares_the_hidden_size_only_if_its_head_size_is_null(read: Read) -> None:
    assert read("llama-4-scout", head_dim=None).spec.kinds[0].head_dim == 5120 // 40
    with pytest.raises(SpecError, match="head_dim is missing"):
        read("llama-4-scout", without=("head_dim",))


def test_heads_that_are_absent_are_derived(read: Read) -> None:
    model = read("llama-3.1-8b", without=("num_key_value_heads",))

    assert model.spec.kinds[0].num_key_value_heads == 32
    assert model.origins["kinds.0.num_key_value_heads"].kind == "derived"


def test_a_multi_query_head_is_given_by_the_flag(read: Read) -> None:
    assert read("santacoder").origins["kinds.0.num_key_value_heads"].source == "multi_query"


def test_what_set_gives_as_text_is_a_number(read: Read) -> None:
    model = read("qwen3-8b", num_key_value_heads="4", tie_word_embeddings="false")

    assert model.spec.kinds[0].num_key_value_heads == 4
    assert model.origins["kinds.0.num_key_value_heads"].kind == "set"


def test_keys_are_those_the_family_reads(read: Read) -> None:
    keys = read("llama-3.1-8b").keys

    assert {"head_dim", "num_key_value_heads", "rms_norm_eps"} - keys == {"rms_norm_eps"}
    assert {"use_sliding_window", "max_window_layers", "sliding_window"} <= read("qwen3-8b").keys


def test_a_config_without_lines_names_the_model() -> None:
    values = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}
    model = read_config(Tree({**values, "n_positions": 16}, {}), name="tiny")

    assert str(model.origins["num_hidden_layers"]) == "tiny: n_layer"
