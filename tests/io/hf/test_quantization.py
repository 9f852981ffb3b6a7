"""Scales of quantised weights, tensors that are left alone, and formats of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]


def _compressed(targets: tuple[str, ...] = ("Linear",), **weights: object) -> dict[str, Any]:
    group = {"targets": list(targets), "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("quantization", "dtype", "scale_bytes"),
    [
        # DeepSeek: a scale of 32 bits for 128 * 128 weights
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 4 / 128**2),
        ({"quant_method": "fp8"}, "fp8", 0),
        # a scale of 16 bits and a zero point of 4 for a group
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "int8", 3 / 32),
        ({"quant_method": "gptq", "bits": 4}, "int4", 2.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", 0),
        (_compressed(num_bits=4, type="int", group_size=32), "int4", 2 / 32),
        (_compressed(num_bits=4, type="int", group_size=32, symmetric=False), "int4", 2.5 / 32),
        (_compressed(num_bits=8, type="int", group_size=None, strategy="channel"), "int8", 0),
        (_compressed(num_bits=8, type="float", strategy="channel"), "fp8", 0),
        (_compressed(num_bits=8, type="float", block_structure=[128, 128]), "fp8", 2 / 128**2),
        (_compressed(num_bits=4, type="float", group_size=16), "nvfp4", 0),
        (_compressed(num_bits=4, type="float", group_size=32), "mxfp4", 0),
        # a scale of 32 bits for 64 weights; quantised again, one of 8 and 32 bits for 256 of them
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 4 / 64),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
            },
            "int4",
            (1 + 4 / 256) / 64,
        ),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, "nvfp4", 0),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 0),
        ({"quant_algo": "W4A16_AWQ", "group_size": 64}, "int4", 2 / 64),
        ({"quant_algo": "FP8_PB_WO"}, "fp8", 4 / 128**2),
        ({"quant_algo": None, "kv_cache_quant_algo": "FP8"}, "bf16", 0),
    ],
)
def test_scales_take_the_bytes_that_a_method_stores(
    read: Read, quantization: dict[str, Any], dtype: str, scale_bytes: float
) -> None:
    spec = read("qwen3-8b", quantization_config=quantization).spec

    assert (spec.weights_dtype, spec.scale_bytes) == (dtype, scale_bytes)


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({"quant_method": "gptq", "bits": 3}, "bits is 3, which ringplan cannot size"),
        ({"quant_method": "gptq"}, "'gptq' with no bits, which"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {}, "group_1": {}}},
            "'compressed-tensors' with 2 config_groups, which",
        ),
        ({"quant_method": "compressed-tensors"}, "'compressed-tensors' with 0 config_groups"),
        (_compressed(num_bits=3, type="int"), "'compressed-tensors' with 3 bits of type int"),
        ({"quant_method": "bitsandbytes"}, "with neither load_in_4bit nor load_in_8bit"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "'MIXED_PRECISION', which"),
    ],
)
def test_what_is_unclear_is_not_guessed(
    read: Read, quantization: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read("qwen3-8b", quantization_config=quantization)

    assert said in caught.value.message
    assert "give --weights-dtype" in caught.value.message
    given = read("qwen3-8b", quantization_config=quantization, weights_dtype="int4")
    assert (given.spec.weights_dtype, given.spec.scale_bytes) == ("int4", 0)


def test_a_block_of_tensorrt_llm_is_read_too(read: Read) -> None:
    spec = read("falcon-180b-trtllm").spec

    assert (spec.weights_dtype, spec.kv_dtype) == ("fp8", "fp8")


@pytest.mark.parametrize(
    ("named", "kv_dtype"),
    [
        ({"kv_cache_quant_algo": "INT8"}, "int8"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": None}, None),
        ({}, None),
    ],
)
def test_the_format_of_the_cache_is_that_of_the_checkpoint(
    read: Read, named: dict[str, Any], kv_dtype: str | None
) -> None:
    quantization = {"quant_method": "fp8", **named}

    assert read("qwen3-8b", quantization_config=quantization).spec.kv_dtype == kv_dtype


def _quantized(read: Read, name: str, **quantization: object) -> set[str]:
    block = {"quant_method": "fp8", **quantization}
    spec = read(name, quantization_config=block).spec
    assert spec.not_counted == ()
    return {tensor.name.removesuffix(".weight") for tensor in spec.tensors if tensor.quantized}


ATTENTION = {f"self_attn.{name}_proj" for name in "qkvo"}
MLP = {f"mlp.{name}_proj" for name in ("gate", "up", "down")}


@pytest.mark.parametrize(
    ("listed", "left"),
    [
        ({"ignore": ["lm_head"]}, ATTENTION | MLP),
        ({"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, MLP),
        ({"exclude_modules": ["*self_attn*"]}, MLP),
        ({"ignored_layers": ["self_attn"]}, MLP),
        ({"ignore": ["re:.*self_attn.*"]}, MLP),
        ({"ignore": ["re:.*gate$"]}, ATTENTION | MLP),
        (
            {"ignore": ["re:.*q_proj$", "mlp.up_proj"]},
            (ATTENTION | MLP) - {"self_attn.q_proj", "mlp.up_proj"},
        ),
        ({"ignore": [f"model.layers.{index}.mlp" for index in range(36)]}, ATTENTION),
        ({"ignore": [f"model.language_model.layers.{i}.mlp" for i in range(36)]}, ATTENTION),
        ({"ignore": [f"vision_tower.encoder.layers.{i}.mlp" for i in range(36)]}, ATTENTION | MLP),
    ],
)
def test_listed_modules_stay_in_16_bits(read: Read, listed: dict[str, Any], left: set[str]) -> None:
    assert _quantized(read, "qwen3-8b", **listed) == left


def test_only_targets_are_quantised_if_those_are_named(read: Read) -> None:
    block = _compressed(("re:.*mlp.*",), num_bits=4, type="int", group_size=32)
    spec = read("qwen3-8b", quantization_config=block).spec

    assert {t.name.removesuffix(".weight") for t in spec.tensors if t.quantized} == MLP


def test_a_layer_that_keeps_a_module_is_a_kind_of_its_own(read: Read) -> None:
    block = {"quant_method": "fp8", "ignore": ["model.layers.7.self_attn.q_proj"]}
    spec = read("qwen3-8b", quantization_config=block).spec
    sixteen = {t.kind for t in spec.tensors if "q_proj" in t.name and not t.quantized}

    assert [i for i, kind in enumerate(spec.pattern) if kind in sixteen] == [7]
    assert spec.num_parameters == read("qwen3-8b").spec.num_parameters
    assert spec.not_counted == ()


def test_layers_of_one_kind_are_told_from_those_of_another(read: Read) -> None:
    spec = read("nemotron-h-56b").spec
    attention = [i for i, kind in enumerate(spec.pattern) if spec.kinds[kind].query_heads]
    listed = [f"backbone.layers.{index}.mixer" for index in attention]
    left = _quantized(read, "nemotron-h-56b", ignore=listed)

    assert left == {"mixer.in_proj", "mixer.out_proj", "mixer.up_proj", "mixer.down_proj"}
