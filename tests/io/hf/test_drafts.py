"""Draft layers: counted apart from the model, and with it when drafting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]

#: Parameters with one draft layer as Hugging Face counts those of the safetensors files.
PUBLISHED = {
    # debaditc/kvfit@bd4ccab scripts/build_registry.py
    "glm-5.3": (753_329_940_480, 0),
    "qwen3-next-80b-a3b": (81_324_862_720, 0),
    # the same, where drafts store the embeddings and the head a second time
    "glm-4.5": (358_337_791_296, 2 * 151_552 * 5120),
    "glm-4.5-air": (110_468_824_832, 2 * 151_552 * 4096),
    # the count that the Hub shows for XiaomiMiMo/MiMo-7B-Base
    "mimo-7b": (7_833_409_536, 0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_with_a_draft_are_those_published(read: Read, name: str) -> None:
    total, stored_twice = PUBLISHED[name]
    spec = read(name, num_nextn_predict_layers=1).spec

    assert spec.parameters(1) == total - stored_twice
    assert spec.num_parameters == read(name, num_nextn_predict_layers=0).spec.num_parameters


def test_a_draft_of_deepseek_is_a_layer_with_experts_and_what_joins_it(read: Read) -> None:
    spec = read("deepseek-r1").spec
    joint = [tensor for tensor in spec.tensors if tensor.stage == "draft"]
    routed = sum(t.parameters for t in spec.tensors if t.kind == spec.pattern[-1])

    assert spec.draft_pattern == spec.pattern[-1:]
    assert {tensor.name: tensor.shape for tensor in joint} == {
        "eh_proj.weight": (7168, 2 * 7168),
        "enorm.weight": (7168,),
        "hnorm.weight": (7168,),
        "shared_head.norm.weight": (7168,),
    }
    drafting = routed + sum(tensor.parameters for tensor in joint)
    assert spec.parameters(1) - spec.num_parameters == drafting


@pytest.mark.parametrize("name", ["deepseek-r1", "mimo-7b", "glm-5.2", "qwen3-next-80b-a3b"])
def test_a_config_without_drafts_has_none(read: Read, name: str) -> None:
    spec = read(name, num_nextn_predict_layers=0).spec

    assert spec.draft_pattern == ()
    assert not [tensor for tensor in spec.tensors if tensor.stage == "draft"]
    assert spec.parameters(1) == spec.num_parameters


def test_a_draft_of_qwen_3_5_is_full_attention(read: Read) -> None:
    spec = read("qwen3.5-35b-a3b", mtp_num_hidden_layers=1).spec

    assert spec.draft_pattern == (1,)
    assert spec.kinds[1].num_attention_heads == 16


def test_a_draft_of_nemotron_h_is_attention_and_experts_in_one(read: Read) -> None:
    spec = read("nemotron-3-ultra-550b-a55b").spec
    draft = spec.kinds[spec.draft_pattern[0]]

    assert (draft.num_key_value_heads, draft.num_experts_per_tok) == (2, 22)
    other = read("nemotron-3-ultra-550b-a55b", mtp_hybrid_override_pattern="M-").spec
    assert other.draft_pattern == ()
    assert "draft layers" in other.not_counted[0]


def test_a_draft_of_glm_5_3_has_an_indexer(read: Read) -> None:
    spec = read("glm-5.3").spec

    assert spec.kinds[spec.draft_pattern[0]].indexer_dim == 128
