"""The format of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringplan.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel

    Read = Callable[..., ReadModel]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("llama-3.1-8b", "bf16"), ("deepseek-r1", "fp8"), ("gpt-oss-120b", "mxfp4")],
)
def test_the_format_is_that_of_the_published_weights(read: Read, name: str, expected: str) -> None:
    assert read(name).spec.weights_dtype == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("float16", "fp16"), ("float32", "fp32"), ("torch.bfloat16", "bf16")]
)
def test_torch_names_are_known(read: Read, given: str, expected: str) -> None:
    model = read("llama-3.1-8b", torch_dtype=given)

    assert model.spec.weights_dtype == expected
    assert model.origins["weights_dtype"].kind == "set"


def test_16_bits_are_assumed_and_said(read: Read) -> None:
    model = read("gpt2")

    assert model.spec.weights_dtype == "bf16"
    assert model.origins["weights_dtype"].kind == "derived"
    assert "no torch_dtype" in model.origins["weights_dtype"].where


@pytest.mark.parametrize(("bits", "expected"), [(4, "int4"), ("8", "int8")])
def test_methods_with_bits_are_integers(read: Read, bits: object, expected: str) -> None:
    quantization = {"quant_method": "awq", "bits": bits}

    assert read("qwen3-8b", quantization_config=quantization).spec.weights_dtype == expected


def test_an_unknown_method_is_not_guessed(read: Read) -> None:
    quantization = {"quant_method": "quark"}

    with pytest.raises(SpecError, match=r"'quark', which ringplan cannot size \(give --weights-d"):
        read("qwen3-8b", quantization_config=quantization)


def test_a_format_given_by_hand_answers_for_an_unknown_method(read: Read) -> None:
    quantization = {"quant_method": "quark"}
    model = read("qwen3-8b", quantization_config=quantization, weights_dtype="int8")

    assert model.spec.weights_dtype == "int8"
