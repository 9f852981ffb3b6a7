"""Parameter totals as published: a missing bias or norm shows in the last digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]

PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-235b-a22b": 235_093_634_560,
    "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-r1": 671_026_419_200,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(read: Read, name: str) -> None:
    assert read(name).spec.num_parameters == PUBLISHED[name]


def test_tied_embeddings_have_no_output_head(read: Read) -> None:
    tied = read("llama-3.1-8b", tie_word_embeddings="true").spec
    untied = read("llama-3.1-8b").spec

    assert untied.num_parameters - tied.num_parameters == 128_256 * 4096
    assert "lm_head.weight" not in {tensor.name for tensor in tied.tensors}


def test_qwen2_has_biases_on_queries_keys_and_values_only(read: Read) -> None:
    qwen2 = read("llama-3.1-8b", model_type="qwen2").spec
    llama = read("llama-3.1-8b").spec

    assert qwen2.num_parameters - llama.num_parameters == 32 * (4096 + 1024 + 1024)


def test_llama_has_biases_where_the_config_says_so(read: Read) -> None:
    plain = read("llama-3.1-8b").spec.num_parameters
    attention = read("llama-3.1-8b", attention_bias=True).spec.num_parameters
    mlp = read("llama-3.1-8b", mlp_bias=True).spec.num_parameters

    assert attention - plain == 32 * (4096 + 1024 + 1024 + 4096)
    assert mlp - plain == 32 * (14_336 + 14_336 + 4096)


def test_draft_layers_are_left_out(read: Read) -> None:
    with_drafts = read("deepseek-r1").spec
    without = read("deepseek-r1", num_nextn_predict_layers=0).spec

    assert with_drafts.tensors == without.tensors
    assert with_drafts.not_counted == ("draft layers: num_nextn_predict_layers is 1",)
    assert without.not_counted == ()


def test_deepseek_v2_has_no_correction_bias(read: Read) -> None:
    v2 = read("deepseek-r1", model_type="deepseek_v2").spec

    assert PUBLISHED["deepseek-r1"] - v2.num_parameters == 58 * 256


def test_queries_without_a_latent_have_one_projection(read: Read) -> None:
    names = {tensor.name for tensor in read("deepseek-r1", q_lora_rank=None).spec.tensors}

    assert "self_attn.q_proj.weight" in names
    assert "self_attn.q_a_proj.weight" not in names


def test_a_router_and_its_experts_are_as_many_as_the_config_says(read: Read) -> None:
    few = read("qwen3-235b-a22b", num_experts=64).spec
    expert_and_its_row = 3 * 4096 * 1536 + 4096

    assert PUBLISHED["qwen3-235b-a22b"] - few.num_parameters == 94 * 64 * expert_and_its_row
