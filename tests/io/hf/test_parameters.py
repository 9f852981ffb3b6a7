"""Parameter totals as published: a missing bias or norm shows in the last digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.io.hf import FAMILIES, read_config
from ringplan.io.origins import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]

#: Made-up configs, and the parameters that transformers gives a model of each.
SMALL = json.loads(
    (Path(__file__).parents[2] / "data/hf_configs/expected/small_models.json").read_text()
)
#: Modules that read caches only.
CACHES_ONLY = ("deepseek_v4.", "gemma3n.", "varied.")

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
    # debaditc/kvfit@bd4ccab scripts/build_registry.py: what the Hub counts in safetensors files
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "granite-4.0-h-small": 32_207_337_984,
    # the count that the Hub shows for Qwen/Qwen3-Coder-480B-A35B-Instruct
    "qwen3-coder-480b-a35b": 480_154_875_392,
}
#: The same of models whose stored config leaves something out.
COMPLETED: dict[str, tuple[int, dict[str, object]]] = {
    # a training log prints 9399951392, of which 32 are rotary frequencies and no parameters
    "glm-4-9b": (9_399_951_360, {"add_qkv_bias": True}),
    # a table of model sizes that has the output head a second time, as the checkpoint does
    "falcon-7b": (7_217_189_760, {"tie_word_embeddings": False}),
    # the count that the Hub shows for apple/OpenELM-270M, whose config has these
    "openelm-270m": (
        271_527_168,
        {
            "vocab_size": 32_000,
            "ffn_dim_divisor": 256,
            "ffn_multipliers": [
                *(0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13),
                *(2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0),
            ],
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(read: Read, name: str) -> None:
    assert read(name).spec.num_parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", COMPLETED)
def test_parameters_are_those_published_once_the_config_is_whole(read: Read, name: str) -> None:
    total, changes = COMPLETED[name]

    assert read(name, **changes).spec.num_parameters == total


@pytest.mark.parametrize("name", SMALL)
def test_parameters_of_small_models_are_those_of_transformers(name: str) -> None:
    small = SMALL[name]
    spec = read_config(Tree(small["config"], {}), name=name).spec

    assert spec.num_parameters == small["parameters"]


def test_every_layout_is_compared_with_transformers() -> None:
    compared = {small["config"]["model_type"] for small in SMALL.values()}
    layouts = {FAMILIES[family] for family in compared}
    # these have no class in transformers; published totals and sums by hand stand in for it
    apart = {
        "chatglm.read_chatglm",
        "llama.read_mimo",
        "nas.read_nemotron_nas",
        "openelm.read_openelm",
    }
    caches = {reader for reader in FAMILIES.values() if reader.startswith(CACHES_ONLY)}

    assert {*FAMILIES.values()} - layouts - caches - apart == set()


def test_tied_embeddings_have_no_output_head(read: Read) -> None:
    tied = read("llama-3.1-8b", tie_word_embeddings="true").spec
    untied = read("llama-3.1-8b").spec

    assert untied.num_parameters - tied.num_parameters == 128_256 * 4096
    assert [t.stage for t in tied.tensors if t.name == "lm_head.weight"] == ["tied"]


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


def test_falcon_has_one_key_value_head_unless_its_architecture_is_new(read: Read) -> None:
    old = read("falcon-7b", num_kv_heads=8).spec.kinds[0]
    new = read("falcon-40b", multi_query=True).spec.kinds[0]

    assert (old.num_attention_heads, old.num_key_value_heads, old.head_dim) == (71, 1, 64)
    assert (new.num_attention_heads, new.num_key_value_heads, new.head_dim) == (128, 8, 64)


def test_blocks_of_nemotron_nas_lack_what_was_found_needless() -> None:
    attention = {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}
    wide = {"ffn_mult": 2.625, "no_op": False, "replace_with_linear": False}
    blocks = [
        {"attention": attention, "ffn": wide},
        {"attention": {"no_op": True}, "ffn": {"intermediate_size": 512}},
        {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        {"attention": attention, "ffn": {"replace_with_linear": True}},
    ]
    config = {
        "model_type": "nemotron-nas",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 100,
        "block_configs": blocks,
    }
    spec = read_config(Tree(config, {}), name="nas").spec
    # 2 * 2.625 * 256 / 3 is 448, which is rounded up to 512
    mlp, weights = 3 * 256 * 512 + 256, 2 * 256 * 256 + 2 * 256 * 64 + 256
    replaced = 256 * 256 + 256

    assert [kind.active_intermediate_size for kind in spec.kinds] == [512, 512, 0, 0]
    assert [kind.num_key_value_heads for kind in spec.kinds] == [2, 0, 0, 2]
    assert spec.num_parameters == (
        2 * 100 * 256 + 256 + (weights + mlp) + mlp + replaced + (weights + replaced)
    )
