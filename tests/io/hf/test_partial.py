"""Configs that lack something: caches are counted if they can be, and no tensor is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("llama-3.1-8b", ("vocab_size",)),
        ("qwen3-8b", ("hidden_size", "intermediate_size")),
        ("deepseek-r1", ("moe_intermediate_size", "n_routed_experts")),
        ("qwen3-next-80b-a3b", ("shared_expert_intermediate_size",)),
        ("nemotron-nano-9b-v2", ("intermediate_size",)),
        ("granite-4.0-h-small", ("vocab_size", "num_local_experts")),
        ("glm-4.5", ("attention_bias", "use_qk_norm")),
    ],
)
def test_what_is_missing_is_named_and_caches_are_counted(
    read: Read, name: str, lacking: tuple[str, ...]
) -> None:
    whole, partial = read(name).spec, read(name, without=lacking).spec

    assert set(partial.unknown) == {*lacking}
    assert partial.tensors == ()
    assert partial.num_parameters == 0
    assert partial.pattern == whole.pattern
    assert [kind.num_key_value_heads for kind in partial.kinds] == [
        kind.num_key_value_heads for kind in whole.kinds
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("gpt-oss-120b", {"num_hidden_layers": 40}, "layer_types has 36 items for 40 layers"),
        ("deepseek-v4-pro", {"compress_ratios": [4]}, "compress_ratios has 1 items for 61"),
        ("llama-3.1-8b", {"num_key_value_heads": 5}, "32 is not a multiple of"),
    ],
)
def test_what_is_wrong_is_refused_whatever_is_missing(
    read: Read, name: str, wrong: dict[str, object], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        read(name, without=("vocab_size",), **wrong)


def test_a_number_that_is_missing_is_not_known(read: Read) -> None:
    spec = read("qwen3-8b", without=("hidden_size", "num_attention_heads")).spec

    assert spec.hidden_size is None
    assert spec.kinds[0].num_attention_heads is None
    assert spec.kinds[0].query_heads == 0


@pytest.mark.parametrize(
    ("name", "vital"),
    [
        ("qwen3-8b", "num_key_value_heads"),
        ("qwen3-8b", "head_dim"),
        ("llama-3.1-8b", "hidden_size"),  # its heads follow from it
        ("deepseek-r1", "kv_lora_rank"),
        ("deepseek-v3.2", "index_head_dim"),
        ("deepseek-v4-pro", "compress_ratios"),
        ("deepseek-v4-pro", "sliding_window"),
        ("gpt-oss-120b", "sliding_window"),
        ("qwen3-next-80b-a3b", "linear_num_value_heads"),
        ("nemotron-h-56b", "ssm_state_size"),
        ("nemotron-h-56b", "hybrid_override_pattern"),
        ("granite-4.0-h-small", "layer_types"),
        ("llama-4-scout", "attention_chunk_size"),
        ("step-3.7-flash", "layer_types"),
        ("openelm-270m", "num_kv_heads"),
        ("glm-4-9b", "multi_query_group_num"),
    ],
)
def test_what_a_cache_depends_on_must_be_there(read: Read, name: str, vital: str) -> None:
    with pytest.raises(SpecError, match="is missing"):
        read(name, without=(vital,))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("deepseek-v4-pro", "deepseek_v4"),
        ("step-3.7-flash", "step3p5"),
    ],
)
def test_a_family_of_unknown_layout_says_so(read: Read, name: str, family: str) -> None:
    spec = read(name).spec

    assert spec.unknown[-1] == f"the tensors of {family}, whose layout ringplan does not know"
    assert spec.tensors == ()


def test_the_width_of_nemotron_experts_is_not_assumed(read: Read) -> None:
    given = {"moe_shared_expert_intermediate_size": 10_240}
    told = read("nemotron-3-ultra-550b-a55b", moe_latent_size=2048, **given).spec
    null = read("nemotron-3-ultra-550b-a55b", moe_latent_size=None, **given).spec

    assert read("nemotron-3-ultra-550b-a55b").spec.unknown == (
        "moe_shared_expert_intermediate_size",
        "moe_latent_size",
    )
    assert 0 < told.num_parameters < null.num_parameters
