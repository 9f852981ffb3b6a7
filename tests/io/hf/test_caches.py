"""What published models leave in their caches, against numbers counted apart from ringplan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.io.hf import read_config
from ringplan.io.origins import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringplan.io.hf import ReadModel
    from ringplan.specs.model import LayerKind, ModelSpec

    Read = Callable[..., ReadModel]

#: By hand, from the sources that the README beside it names.
EXPECTED = json.loads(
    (Path(__file__).parents[2] / "data/hf_configs/expected/caches.json").read_text()
)
#: Bytes of an element, by the end of a key.
FORMATS = {"bf16": 2, "fp16": 2, "fp8": 1}


def _entry(kind: LayerKind) -> int:
    return kind.latent_dim or kind.num_key_value_heads * (kind.head_dim + kind.v_head_dim)


def _layers(spec: ModelSpec) -> Iterator[LayerKind]:
    for index in spec.pattern:
        if spec.kinds[index].caches:
            yield spec.kinds[index]


def _whole(spec: ModelSpec) -> int:
    """Elements a token leaves if every layer keeps all tokens."""
    return sum(_entry(kind) for kind in _layers(spec))


def _growing(spec: ModelSpec) -> float:
    """Elements a token leaves for good: in layers without a window, or compressed."""
    lasting = [kind for kind in _layers(spec) if kind.compress_ratio or not kind.window]
    return sum(_entry(kind) / (kind.compress_ratio or 1) for kind in lasting)


def _constant(spec: ModelSpec) -> int:
    """Elements of all windows when they are full."""
    return sum(_entry(kind) * (kind.window or 0) for kind in _layers(spec))


def _indexed(spec: ModelSpec) -> float:
    return sum(kind.indexer_dim / (kind.compress_ratio or 1) for kind in _layers(spec))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_token_leaves_what_is_known(read: Read, name: str) -> None:
    spec, expected = read(name).spec, EXPECTED[name]
    found = {
        **{f"bytes_per_token_{key}": size * _whole(spec) for key, size in FORMATS.items()},
        "bytes_per_token_bf16_naive": 2 * _whole(spec),
        "bytes_per_token_bf16_growing": 2 * _growing(spec),
        "bytes_window_constant": 2 * _constant(spec),
        "bytes_cap_with_rolling_buffer": 2 * _constant(spec),
        "latent_elems_per_token_growing": _growing(spec),
        "window_constant_elems": _constant(spec),
        "indexer_elems_per_token": _indexed(spec),
        # a key in 8 bits and its scale in 32
        "indexer_extra_bytes_per_token_fp8": sum(
            kind.indexer_dim + 4 for kind in _layers(spec) if kind.indexer_dim
        ),
        "compress_ratio_counts": _ratios(spec),
        "full_layers": sum(kind.window is None for kind in _layers(spec)),
        "windowed_layers": sum(kind.window is not None for kind in _layers(spec)),
        "window": max((kind.window or 0 for kind in _layers(spec)), default=0),
    }

    assert expected
    assert {key: found[key] for key in expected} == expected


def _ratios(spec: ModelSpec) -> dict[str, int]:
    ratios = [str(kind.compress_ratio) for kind in _layers(spec)]
    return {ratio: ratios.count(ratio) for ratio in dict.fromkeys(ratios)}


def test_layers_of_deepseek_v4_keep_a_window_and_a_compressed_past(read: Read) -> None:
    spec = read("deepseek-v4-pro").spec
    heavy, sparse, draft = spec.kinds

    assert {kind.window for kind in spec.kinds} == {128}
    assert (heavy.compress_ratio, heavy.indexer_dim) == (128, 0)
    assert (sparse.compress_ratio, sparse.indexer_dim) == (4, 128)
    assert (draft.compress_ratio, draft.indexer_dim, spec.draft_pattern) == (None, 0, (2,))


def test_drafts_beyond_the_list_of_ratios_are_left_out_and_named(read: Read) -> None:
    spec = read("deepseek-v4-pro", num_nextn_predict_layers=2).spec

    assert spec.draft_pattern == ()
    assert spec.not_counted == ("draft layers, of which there are 2",)


def test_some_layers_of_glm_5_3_use_the_choice_of_an_indexer_before_them(read: Read) -> None:
    listed = read("glm-5.3").spec
    # layers_with_indexer_weights of teilomillet/kvfit@ee9453e glm53-indexer-evidence.json
    own = [0, 1, 2, *range(6, 78, 4)]

    assert [i for i, kind in enumerate(listed.pattern) if listed.kinds[kind].indexer_dim] == own
    assert read("glm-5.3", indexer_types=None).spec == listed
    pattern = "".join("F" if index in own else "S" for index in range(78))
    assert read("glm-5.3", indexer_types=None, index_topk_pattern=pattern).spec == listed


def test_global_layers_of_gemma_4_have_heads_of_their_own(read: Read) -> None:
    sliding, whole = read("gemma-4-31b").spec.kinds

    assert (sliding.num_key_value_heads, sliding.head_dim, sliding.window) == (16, 256, 1024)
    assert (whole.num_key_value_heads, whole.head_dim, whole.window) == (4, 512, None)
    _, alike = read("gemma-4-31b", attention_k_eq_v=False).spec.kinds
    assert alike.num_key_value_heads == 16


def test_the_last_layers_of_gemma_4_can_read_the_cache_of_others(read: Read) -> None:
    spec = read("gemma-4-31b", num_kv_shared_layers=20).spec

    assert [spec.kinds[kind].caches for kind in spec.pattern] == [True] * 40 + [False] * 20


def test_windowed_layers_of_step_3_7_can_have_heads_of_their_own(read: Read) -> None:
    other = {"num_attention_heads": 96, "num_attention_groups": 4}
    whole, cut = read("step-3.7-flash", attention_other_setting=other).spec.kinds

    assert (whole.num_attention_heads, whole.num_key_value_heads) == (64, 8)
    assert (cut.num_attention_heads, cut.num_key_value_heads, cut.head_dim) == (96, 4, 128)


def test_draft_layers_of_step_3_7_are_known_if_the_types_go_on(read: Read) -> None:
    types = ["full_attention"] * 45 + ["sliding_attention"] * 3
    spec = read("step-3.7-flash", layer_types=types).spec

    assert [spec.kinds[kind].window for kind in spec.draft_pattern] == [512] * 3
    assert read("step-3.7-flash").spec.draft_pattern == ()
    assert "draft layers" in read("step-3.7-flash").spec.not_counted[0]


def test_windowed_layers_of_mimo_v2_have_heads_of_their_own() -> None:
    spec = _made_up(
        "mimo_v2_flash",
        hybrid_layer_pattern=[0, 1, 1, 0],
        head_dim=192,
        v_head_dim=128,
        swa_num_attention_heads=8,
        swa_num_key_value_heads=4,
        swa_head_dim=96,
        swa_v_head_dim=64,
    )
    whole, cut = spec.kinds

    assert spec.pattern == (0, 1, 1, 0)
    assert (whole.num_key_value_heads, whole.head_dim, whole.v_head_dim) == (2, 192, 128)
    assert (cut.num_key_value_heads, cut.head_dim, cut.v_head_dim, cut.window) == (4, 96, 64, 16)


def test_query_heads_of_laguna_differ_from_layer_to_layer() -> None:
    types = ["full_attention", "sliding_attention"] * 2
    heads = [8, 12, 8, 12]
    spec = _made_up("laguna", head_dim=16, layer_types=types, num_attention_heads_per_layer=heads)

    assert [spec.kinds[kind].num_attention_heads for kind in spec.pattern] == heads
    assert [kind.window for kind in spec.kinds] == [None, 16]


def test_the_last_layers_of_gemma_3n_cache_nothing() -> None:
    spec = _made_up("gemma3n_text", num_hidden_layers=10, num_kv_shared_layers=4)

    assert [spec.kinds[kind].caches for kind in spec.pattern] == [True] * 6 + [False] * 4
    assert [spec.kinds[kind].window for kind in spec.pattern] == [16, 16, 16, 16, None] * 2


def _made_up(family: str, **more: object) -> ModelSpec:
    config = {
        "model_type": family,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "sliding_window": 16,
    }
    spec = read_config(Tree(config | more, {}), name=family).spec
    assert spec.tensors == ()
    assert spec.unknown
    return spec
