"""Heads, windows and kinds of layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.io.documents import read_document
from ringplan.io.hf import read_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel
    from ringplan.specs.model import LayerKind

    Read = Callable[..., ReadModel]

CONFIGS = Path(__file__).parents[2] / "data" / "hf_configs"

#: Bytes that a token leaves in the caches of all layers, 16 bits an element.
CACHED = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-235b-a22b": 192_512,
    "qwen3-vl-8b": 147_456,
    "mistral-7b-v0.1": 131_072,
    "mixtral-8x7b": 131_072,
    "deepseek-r1": 70_272,
    "kimi-k2": 70_272,
    "gpt-oss-120b": 73_728,
    "gemma-2-27b": 376_832,
    "gemma-2-2b": 106_496,
    "gpt2-large": 184_320,
    "santacoder": 12_288,
}


def _cached(kind: LayerKind) -> int:
    return kind.latent_dim or kind.num_key_value_heads * (kind.head_dim + kind.v_head_dim)


@pytest.mark.parametrize("name", CACHED)
def test_a_token_leaves_the_bytes_that_are_known(read: Read, name: str) -> None:
    spec = read(name).spec

    assert 2 * sum(_cached(spec.kinds[kind]) for kind in spec.pattern) == CACHED[name]


def test_latent_attention_expands_to_all_heads_and_caches_the_latent(read: Read) -> None:
    kind = read("deepseek-r1").spec.kinds[0]

    assert (kind.num_attention_heads, kind.num_key_value_heads) == (128, 128)
    assert (kind.head_dim, kind.v_head_dim, kind.latent_dim) == (192, 128, 576)


def test_deepseek_starts_with_dense_layers(read: Read) -> None:
    spec = read("deepseek-r1").spec
    dense, routed = spec.kinds

    assert spec.pattern == (0,) * 3 + (1,) * 58
    assert (dense.active_intermediate_size, dense.num_experts_per_tok) == (18_432, 0)
    assert (routed.active_intermediate_size, routed.num_experts_per_tok) == (9 * 2048, 8)


def test_gpt_oss_alternates_as_layer_types_say(read: Read) -> None:
    spec = read("gpt-oss-120b").spec

    assert [kind.window for kind in spec.kinds] == [128, None]
    assert spec.pattern == (0, 1) * 18


def test_gemma_2_alternates_without_being_told(read: Read) -> None:
    spec = read("gemma-2-27b").spec

    assert [kind.window for kind in spec.kinds] == [4096, None]
    assert spec.pattern == (0, 1) * 23


def test_mistral_has_its_window_in_every_layer_unless_it_is_null(read: Read) -> None:
    assert [kind.window for kind in read("mistral-7b-v0.1").spec.kinds] == [4096]
    assert read("mistral-7b-v0.1", sliding_window=None).spec.kinds[0].window is None


def test_llama_does_not_use_a_window_it_mentions(read: Read) -> None:
    assert read("llama-3.1-8b", sliding_window=4096).spec.kinds[0].window is None


def test_qwen_uses_its_window_only_when_told(read: Read) -> None:
    window = {"sliding_window": 4096, "max_window_layers": 30}
    unused = read("qwen3-8b", **window).spec
    used = read("qwen3-8b", use_sliding_window=True, **window).spec

    assert [kind.window for kind in unused.kinds] == [None]
    assert [kind.window for kind in used.kinds] == [None, 4096]
    assert used.pattern == (0,) * 30 + (1,) * 6


def test_three_layers_of_four_of_llama_4_see_a_chunk(read: Read) -> None:
    spec = read("llama-4-scout").spec

    assert [kind.window for kind in spec.kinds] == [8192, None]
    assert spec.pattern == (0, 0, 0, 1) * 12
    assert read("llama-4-scout", no_rope_layers=[1, 0] * 24).spec.pattern == (0, 1) * 24
    assert [k.window for k in read("llama-4-scout", attention_chunk_size=None).spec.kinds] == [None]


def test_every_other_layer_of_llama_4_can_have_experts(read: Read) -> None:
    spec = read("llama-4-scout", interleave_moe_layer_step=2).spec
    widths = [spec.kinds[kind].active_intermediate_size for kind in spec.pattern]

    assert widths == [16_384, 2 * 8192] * 24
    assert [spec.kinds[kind].num_experts_per_tok for kind in spec.pattern] == [0, 1] * 24
    listed = read("llama-4-scout", moe_layers=list(range(1, 48, 2))).spec
    assert listed == spec


def test_one_layer_of_six_of_gemma_3_sees_everything(read: Read) -> None:
    spec = read("gemma-3-27b", without=("sliding_window_pattern",)).spec

    assert [kind.window for kind in spec.kinds] == [1024, None]
    assert spec.pattern == ((0,) * 5 + (1,)) * 10 + (0, 0)
    assert read("gemma-3-27b", sliding_window_pattern=2).spec.pattern == (0, 1) * 31


def test_phi_3_has_its_window_in_every_layer(read: Read) -> None:
    assert [kind.window for kind in read("phi-3-mini").spec.kinds] == [2047]
    assert [kind.window for kind in read("phi-4").spec.kinds] == [None]


def test_heads_of_openelm_grow_from_layer_to_layer(read: Read) -> None:
    kinds = read("openelm-270m").spec.kinds

    assert [kind.num_key_value_heads for kind in kinds] == [3, 4, 5]
    assert [kind.num_attention_heads for kind in kinds] == [12, 16, 20]


@pytest.mark.parametrize(("name", "given"), [("glm-5.2", 192), ("glm-4.7-flash", 64)])
def test_latent_attention_does_not_mean_head_dim(read: Read, name: str, given: int) -> None:
    spec = read(name, head_dim=given + 1).spec

    assert spec == read(name, head_dim=given).spec
    assert (spec.kinds[0].head_dim, spec.kinds[0].latent_dim) == (256, 576)


def test_fewer_layers_keep_the_start_of_the_pattern(read: Read) -> None:
    assert read("gpt-oss-120b", num_hidden_layers=3).spec.pattern == (0, 1, 0)


def test_qwen_moe_layers_can_be_dense(read: Read) -> None:
    spec = read("qwen3-235b-a22b", mlp_only_layers=[0], decoder_sparse_step=2).spec

    assert [kind.num_experts_per_tok for kind in spec.kinds] == [0, 8]
    assert spec.pattern == (0, 1) * 47


def test_multi_query_has_one_key_value_head(read: Read) -> None:
    assert read("santacoder").spec.kinds[0].num_key_value_heads == 1
    assert read("santacoder", multi_query=False).spec.kinds[0].num_key_value_heads == 16


def test_gpt2_is_read_by_its_own_names(read: Read) -> None:
    spec = read("gpt2").spec
    kind = spec.kinds[0]

    assert (spec.hidden_size, spec.num_hidden_layers, spec.max_position_embeddings) == (
        768,
        12,
        1024,
    )
    assert (kind.num_attention_heads, kind.num_key_value_heads, kind.head_dim) == (12, 12, 64)
    assert kind.active_intermediate_size == 4 * 768


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_name_of_a_model_changes_nothing_else(path: Path) -> None:
    model = read_config(read_document(path), name=path.stem)
    renamed = read_config(read_document(path), name="my-model")

    assert renamed.spec.name == "my-model"
    assert renamed.spec.model_copy(update={"name": path.stem}) == model.spec
    assert renamed.keys == model.keys


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_fields_that_no_reader_knows_change_nothing(path: Path) -> None:
    config, more = read_document(path), read_document(path)
    for key in ("rope_scaling", "some_new_field", "n_embedding_heads"):
        more.values[key] = {"factor": 4}

    assert read_config(more, name="x").spec == read_config(config, name="x").spec
