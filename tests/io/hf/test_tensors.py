"""How ranks share each tensor, and which stay in 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel
    from ringplan.specs.model import Tensor

    Read = Callable[..., ReadModel]

NAMES = (
    "llama-3.1-8b",
    "mixtral-8x7b",
    "deepseek-r1",
    "deepseek-v3.2",
    "falcon-7b",
    "glm-4.5",
    "gpt-oss-120b",
    "gemma-2-27b",
    "gpt2",
    "granite-4.0-h-small",
    "llama-4-scout",
    "nemotron-nano-9b-v2",
    "qwen3-next-80b-a3b",
)


def _tensors(model: ReadModel) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in model.spec.tensors}


def test_llama_is_shared_as_tensor_parallelism_cuts_it(read: Read) -> None:
    shares = {tensor.name: tensor.split for tensor in read("llama-3.1-8b").spec.tensors}

    assert shares == {
        "model.embed_tokens.weight": "tensor",
        "model.norm.weight": "none",
        "lm_head.weight": "tensor",
        "self_attn.q_proj.weight": "heads",
        "self_attn.k_proj.weight": "kv",
        "self_attn.v_proj.weight": "kv",
        "self_attn.o_proj.weight": "heads",
        "input_layernorm.weight": "none",
        "post_attention_layernorm.weight": "none",
        "mlp.gate_proj.weight": "tensor",
        "mlp.up_proj.weight": "tensor",
        "mlp.down_proj.weight": "tensor",
    }


def test_latents_are_whole_on_every_rank(read: Read) -> None:
    tensors = _tensors(read("deepseek-r1"))
    whole = {name for name, tensor in tensors.items() if tensor.split == "none"}

    assert {"self_attn.q_a_proj.weight", "self_attn.kv_a_proj_with_mqa.weight"} <= whole
    assert {"self_attn.q_b_proj.weight", "self_attn.kv_b_proj.weight"}.isdisjoint(whole)


def test_every_rank_has_the_whole_indexer(read: Read) -> None:
    indexer = [
        tensor
        for name, tensor in _tensors(read("deepseek-v3.2")).items()
        if name.startswith("self_attn.indexer")
    ]

    assert {tensor.split for tensor in indexer} == {"none"}
    assert sum(tensor.parameters for tensor in indexer) == (
        64 * 128 * 1536 + 128 * 7168 + 2 * 128 + 64 * 7168
    )


@pytest.mark.parametrize(
    ("name", "inside"),
    [("qwen3-next-80b-a3b", "linear_attn"), ("nemotron-h-56b", "mixer"), ("gpt2", "attn")],
)
def test_heads_share_out_what_mixes_tokens(read: Read, name: str, inside: str) -> None:
    matrices = [
        tensor.split
        for key, tensor in _tensors(read(name)).items()
        if key.startswith(f"{inside}.") and len(tensor.shape) > 1 and "_proj" in key
    ]

    assert matrices
    assert {*matrices} <= {"heads", "kv", "tensor"}
    assert "heads" in matrices


def test_experts_are_a_leading_dimension(read: Read) -> None:
    tensors = _tensors(read("mixtral-8x7b"))

    assert tensors["block_sparse_moe.experts.w1.weight"].shape == (8, 14_336, 4096)
    assert tensors["block_sparse_moe.experts.w1.weight"].split == "expert"


def test_gpt_oss_quantises_expert_weights_and_nothing_else(read: Read) -> None:
    quantized = {
        name for name, tensor in _tensors(read("gpt-oss-120b")).items() if tensor.quantized
    }

    assert quantized == {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}


@pytest.mark.parametrize("name", NAMES)
def test_only_matrices_inside_layers_are_quantised(read: Read, name: str) -> None:
    for tensor in read(name).spec.tensors:
        inside = tensor.kind is not None and len(tensor.shape) > 1
        assert inside or not tensor.quantized, tensor.name


@pytest.mark.parametrize("name", NAMES)
def test_final_norm_and_head_are_on_the_last_stage(read: Read, name: str) -> None:
    once = [tensor for tensor in read(name).spec.tensors if tensor.kind is None]
    first = {tensor.name for tensor in once if tensor.stage == "first"}

    assert first <= {
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "transformer.wpe.weight",
    }
    assert len(once) > len(first)
