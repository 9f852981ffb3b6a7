"""Multimodal configs: the language model is in text_config."""

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


def test_the_language_model_inside_is_read(read: Read) -> None:
    inside, plain = read("qwen3-vl-8b").spec, read("qwen3-8b").spec

    assert inside.kinds == plain.kinds
    assert inside.num_parameters == plain.num_parameters
    assert inside.max_position_embeddings == 262_144


def test_what_is_left_out_is_named(read: Read) -> None:
    assert read("qwen3-8b").spec.not_counted == ()
    assert "image encoder" in read("qwen3-vl-8b").spec.not_counted[0]


def test_the_wrapper_says_whether_embeddings_are_tied(read: Read) -> None:
    tied = read("qwen3-vl-8b", tie_word_embeddings=True).spec

    assert read("qwen3-vl-8b").spec.num_parameters - tied.num_parameters == 151_936 * 4096


def test_the_wrapper_says_how_all_its_parts_are_quantised(read: Read) -> None:
    model = read("qwen3-vl-8b", quantization_config={"quant_method": "fp8"})

    assert model.spec.weights_dtype == "fp8"


def test_set_reaches_the_language_model(read: Read) -> None:
    model = read("qwen3-vl-8b", num_key_value_heads=4)

    assert model.spec.kinds[0].num_key_value_heads == 4
    assert model.origins["kinds.0.num_key_value_heads"].kind == "set"


def test_what_the_wrapper_says_of_itself_does_not_reach_it() -> None:
    inner = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}
    here = Origin("model", "config.json line 1")
    values = {"hidden_size": 8, "text_config": {**inner, "n_positions": 16}}
    wrapper = Tree(values, {"hidden_size": here, "text_config": here})

    assert read_config(wrapper, name="wrapped").spec.hidden_size == 64


def test_a_language_model_without_model_type_is_named() -> None:
    wrapper = Tree({"model_type": "gpt2", "text_config": {"n_embd": 64}}, {})

    with pytest.raises(SpecError, match="wrapped text_config: model_type is missing"):
        read_config(wrapper, name="wrapped")


@pytest.mark.parametrize("part", ["llm_config", "language_config"])
def test_other_names_of_the_language_model_are_known(part: str) -> None:
    inner = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}
    wrapper = Tree({"model_type": "some_vl", part: {**inner, "n_positions": 16}}, {})
    spec = read_config(wrapper, name="wrapped").spec

    assert spec.hidden_size == 64
    assert spec.not_counted == (f"what stands outside {part}, such as an image encoder",)


def test_a_wrapper_can_have_a_wrapper_inside() -> None:
    text = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}
    nested = Tree({"thinker_config": {"text_config": {**text, "n_positions": 16}}}, {})

    assert read_config(nested, name="omni").spec.hidden_size == 64


def test_a_known_wrapper_names_the_family_of_a_language_model_that_does_not(read: Read) -> None:
    model = read("gemma-4-31b")

    assert model.spec.num_hidden_layers == 60


def test_an_image_encoder_beside_a_flat_config_is_named(read: Read) -> None:
    flat = read("kimi-k2", model_type="kimi_k25", vision_config={"vt_num_hidden_layers": 27})

    assert flat.spec.not_counted == ("what vision_config describes, the image encoder",)
    assert flat.spec.num_parameters == read("kimi-k2").spec.num_parameters
