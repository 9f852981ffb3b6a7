"""What layers without attention keep of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf import ReadModel
    from ringplan.specs.model import LayerKind, ModelSpec

    Read = Callable[..., ReadModel]


def _state(kind: LayerKind) -> tuple[int, int, int]:
    return kind.state_heads, kind.conv_state, kind.recurrent_state


def test_a_gated_delta_net_keeps_a_matrix_for_each_value_head(read: Read) -> None:
    linear, full = read("qwen3-next-80b-a3b").spec.kinds

    assert _state(linear) == (32, 3 * (2 * 16 * 128 + 32 * 128), 32 * 128 * 128)
    assert linear.mixer_width == 2 * 16 * 128 + 2 * 32 * 128 + 2 * 32 + 32 * 128
    assert (linear.query_heads, linear.num_key_value_heads) == (0, 0)
    assert _state(full) == (0, 0, 0)


def test_full_attention_comes_every_fourth_layer(read: Read) -> None:
    assert read("qwen3-next-80b-a3b").spec.pattern == (0, 0, 0, 1) * 12
    assert read("qwen3-next-80b-a3b", full_attention_interval=3).spec.pattern == (0, 0, 1) * 16
    assert read("qwen3.5-35b-a3b").spec.pattern == (0, 0, 0, 1) * 10


def test_a_mamba_2_layer_keeps_a_matrix_for_each_head(read: Read) -> None:
    spec = read("nemotron-h-56b").spec
    mamba, mlp, attention = spec.kinds

    assert _state(mamba) == (256, 3 * (256 * 64 + 2 * 8 * 256), 256 * 64 * 256)
    assert (mamba.query_heads, mamba.active_intermediate_size) == (0, 0)
    assert (mlp.query_heads, mlp.active_intermediate_size, mlp.state_heads) == (0, 32_768, 0)
    assert (attention.num_attention_heads, attention.head_dim) == (64, 128)
    assert [spec.pattern.count(kind) for kind in range(3)] == [54, 54, 10]


def test_a_pattern_says_how_many_layers_there_are(read: Read) -> None:
    spec = read("nemotron-3-ultra-550b-a55b").spec

    assert spec.num_hidden_layers == len(spec.pattern) == 108
    assert [spec.pattern.count(kind) for kind in range(3)] == [48, 48, 12]
    assert read("nemotron-h-56b", num_hidden_layers=9).spec.pattern == (0, 1) * 3 + (0, 2, 1)


def test_granite_has_mamba_and_an_mlp_in_one_layer(read: Read) -> None:
    mamba, attention = read("granite-4.0-h-small").spec.kinds

    assert _state(mamba) == (128, 3 * (128 * 64 + 2 * 128), 128 * 64 * 128)
    assert mamba.active_intermediate_size == 10 * 768 + 1536
    assert (attention.state_heads, attention.num_key_value_heads) == (0, 8)


def test_a_short_convolution_keeps_a_few_tokens(small: Callable[[str], ModelSpec]) -> None:
    conv, attention = small("lfm2").kinds

    # each channel stands for a head
    assert _state(conv) == (64, 2 * 64, 0)
    assert (conv.query_heads, attention.state_heads) == (0, 0)


def test_every_channel_of_mamba_1_has_a_state(small: Callable[[str], ModelSpec]) -> None:
    spec = small("jamba")

    assert _state(spec.kinds[0]) == (128, 3 * 128, 128 * 16)
    assert [spec.kinds[kind].query_heads for kind in spec.pattern] == [0, 8, 0, 0]
    assert [spec.kinds[kind].num_experts_per_tok for kind in spec.pattern] == [0, 2, 0, 2]
    assert [kind.query_heads for kind in small("mamba").kinds] == [0]


def test_mamba_and_attention_can_be_side_by_side(small: Callable[[str], ModelSpec]) -> None:
    (both,) = small("falcon_h1").kinds

    assert _state(both) == (8, 3 * (8 * 12 + 2 * 2 * 16), 8 * 12 * 16)
    assert both.num_key_value_heads == 2


def test_layers_of_kimi_linear_are_counted_from_one(small: Callable[[str], ModelSpec]) -> None:
    spec = small("kimi_linear")
    whole = spec.kinds[spec.pattern[3]]

    assert [spec.kinds[kind].latent_dim for kind in spec.pattern] == [None, None, None, 40]
    assert _state(spec.kinds[0]) == (4, 3 * 3 * 64, 4 * 16 * 16)
    assert whole.state_heads == 0


def test_the_format_of_states_is_that_of_the_config(read: Read) -> None:
    assert read("nemotron-h-56b").spec.state_dtype is None
    assert read("nemotron-h-56b", mamba_ssm_cache_dtype="float32").spec.state_dtype == "fp32"
    assert read("qwen3.5-35b-a3b", mamba_ssm_dtype="float32").spec.state_dtype == "fp32"
