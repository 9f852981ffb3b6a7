"""One call on columns is one call per row, and counts stay exact integers."""

from __future__ import annotations

import inspect
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ringplan.estimation.core  # noqa: F401 - registers every formula
from ringplan.costs import (
    attention,
    axes,
    cache,
    collectives,
    decode,
    layout,
    masks,
    rank_cache,
    ring,
)
from ringplan.costs.formula import REGISTRY, Formula
from ringplan.costs.symbols import SYMBOLS

if TYPE_CHECKING:
    Column = np.ndarray[Any, np.dtype[np.float64]]

ROWS = 100
KINDS = 3
ROOT = Path(__file__).parents[2]

#: Inputs by unit; tuples of two integers are counts, of two floats are measures.
RANGES: dict[str, tuple[float, float]] = {
    "token": (1, 4096),
    "rank": (1, 64),
    "pair": (1, 10**6),
    "layer": (1, 100),
    "hop": (0, 64),
    "B": (1, 10**9),
    "FLOP": (1, 10**15),
    "FLOP/s": (1e12, 1e15),
    "B/s": (1e9, 1e12),
    "s": (1e-6, 1e-1),
    "1": (1, 128),
    "*": (1.0, 1e9),
}
#: Inputs whose unit says too little.
NAMED: dict[str, tuple[float, float]] = {
    "query_tokens": (1, 2048),
    "block_tokens": (2048, 4096),
    "seq_len": (4096, 10**6),
    "windows": (0, 4096),
    "granule": (1, 4),
    "extra_hops": (-1, 1),
    "element_bytes": (1, 4),
    "wire_bytes_per_token": (256, 65536),
    "grows": (0, 1),
    "inside": (0, 1),
    "pp_size": (1, 4),
    "cp_size": (1, 8),
    "ring_size": (1, 8),
    "ulysses_size": (1, 8),
    "margin": (0.5, 2.0),
    "efficiency": (0.05, 1.0),
    "visible_share": (0.05, 1.0),
    "mask_share": (0.5, 1.0),
    "diagonal_share": (0.0, 0.5),
    "new_tokens": (64, 4096),
}

#: Efficiency tables: sizes that ascend, to shares.
TABLES = {"sizes": "shares", "message_sizes": "link_shares"}

every_formula = pytest.mark.parametrize("made", REGISTRY.values(), ids=lambda made: made.name)


def column(name: str, rng: np.random.Generator) -> Column:
    low, high = NAMED.get(name) or RANGES[SYMBOLS[name].unit]
    if isinstance(low, int):
        return rng.integers(int(low), int(high), size=ROWS, endpoint=True).astype(float)
    return rng.uniform(low, high, size=ROWS)


def table(name: str, rng: np.random.Generator) -> tuple[Column, ...]:
    """One column a kind of layer; efficiency tables ascend."""
    columns = [column(name, rng) for _ in range(KINDS)]
    if name in TABLES:
        return tuple(np.cumsum(columns, axis=0))
    if name in TABLES.values():
        return tuple(np.sort(rng.uniform(0.1, 1, size=(KINDS, ROWS)), axis=0))
    return tuple(columns)


def arguments(made: Formula[Any]) -> dict[str, Any]:
    """Columns for every argument, the same in each run."""
    rng = np.random.default_rng(zlib.crc32(made.name.encode()))
    listed = inspect.get_annotations(made.function)
    return {
        name: table(name, rng) if "Sequence" in listed[name] else column(name, rng)
        for name in made.parameters
    }


def number(value: float) -> float:
    """What a user would have typed: a count is an integer."""
    return int(value) if float(value).is_integer() else float(value)


@every_formula
def test_one_call_on_columns_is_one_call_per_row(made: Formula[Any]) -> None:
    """A sweep says of each scenario what `estimate` says of it alone."""
    given = arguments(made)

    at_once = np.broadcast_to(np.asarray(made(**given), dtype=float), ROWS)
    one_by_one = [
        made(
            **{
                name: tuple(number(each[row]) for each in value)
                if isinstance(value, tuple)
                else number(value[row])
                for name, value in given.items()
            }
        )
        for row in range(ROWS)
    ]

    np.testing.assert_allclose(at_once, np.asarray(one_by_one, dtype=float), rtol=1e-12)
    assert np.isfinite(at_once).all()


@every_formula
def test_columns_are_not_changed(made: Formula[Any]) -> None:
    """A column may be used again by the next formula."""
    given, again = arguments(made), arguments(made)
    made(**given)

    for name, value in given.items():
        np.testing.assert_array_equal(value, again[name])


#: Roots and quotients of measures; an integer only by chance.
NOT_COUNTS = {"min_block_tokens_ideal"}
COUNTS = [
    made
    for made in REGISTRY.values()
    if made.unit in {"B", "FLOP", "token", "pair", "hop", "rank", "layer"}
    and made.name not in NOT_COUNTS
]


@pytest.mark.parametrize("made", COUNTS, ids=lambda made: made.name)
def test_counts_stay_integers_at_any_size(made: Formula[Any]) -> None:
    """No float slips in, so nothing is rounded at 1e20."""
    huge = 64 * (10**20 + 39)
    listed = inspect.get_annotations(made.function)

    def value(name: str) -> Any:
        if name in {*TABLES, *TABLES.values()}:
            return (1,)
        one = 8 if SYMBOLS[name].unit == "rank" else 1 if name == "extra_hops" else huge
        return (one, one) if "Sequence" in listed[name] else one

    assert type(made(**{name: value(name) for name in made.parameters})) is int


N = 10**20 + 39
EXACT: list[tuple[Formula[Any], dict[str, Any], int]] = [
    (
        attention.attention_flops,
        {"batch_size": 3, "pairs": N, "num_heads": 7, "head_dim": 192, "v_head_dim": 128},
        2 * 3 * 7 * 320 * N,
    ),
    (
        attention.attention_backward_flops,
        {"batch_size": 3, "pairs": N, "num_heads": 7, "head_dim": 192, "v_head_dim": 128},
        2 * 3 * 7 * 832 * N,
    ),
    (masks.full_pairs, {"query_tokens": N, "block_tokens": N + 2}, N * (N + 2)),
    (
        masks.diagonal_pairs,
        {"query_tokens": N, "block_tokens": N + 2},
        2 * N + N * (N + 1) // 2,
    ),
    (
        masks.zigzag_pairs,
        {"query_tokens": 2 * N, "block_tokens": 2 * N + 3},
        6 * N + 2 * N * N,
    ),
    (
        masks.visible_pairs,
        {"new_tokens": N, "cached_tokens": 5},
        5 * N + N * (N + 1) // 2,
    ),
    (
        ring.kv_block_bytes,
        {
            "batch_size": 3,
            "tokens": N,
            "num_kv_heads": 5,
            "head_dim": 192,
            "v_head_dim": 128,
            "key_bytes": 2,
            "value_bytes": 2,
        },
        3 * 5 * 320 * 2 * N,
    ),
    (ring.bytes_of_hops, {"hops": 63, "hop_bytes": N}, 63 * N),
    (
        ring.backward_bytes,
        {"kv_sent": 7 * N, "gradients_sent": 8 * 2 * N},
        23 * N,
    ),
    (ring.bytes_of_layers, {"layers": (2, 3), "layer_bytes": (N, N + 1)}, 5 * N + 3),
    (collectives.all_gather_bytes, {"cp_size": 64, "shard_bytes": N}, 63 * N),
    (
        collectives.ulysses_bytes,
        {
            "batch_size": 1,
            "tokens": 8 * N,
            "num_heads": 32,
            "num_kv_heads": 8,
            "head_dim": 128,
            "v_head_dim": 128,
            "element_bytes": 2,
            "ulysses_size": 8,
        },
        7 * 40 * 256 * 2 * N,
    ),
    (
        cache.kv_bytes,
        {
            "dp_size": 2,
            "batch_size": 3,
            "seq_len": N,
            "shared_tokens": 1,
            "per_token": 5,
            "constant": 7,
        },
        2 * (5 * (3 * N - 2) + 21),
    ),
    (
        rank_cache.rank_kv_bytes,
        {
            "layers": (2, 1),
            "growing_tokens": (N, 4),
            "ratios": (1, 4),
            "window_tokens": (0, 7),
            "rows": (5, 6),
        },
        10 * N + 48,
    ),
    (
        axes.tensor_parallel_bytes,
        {
            "layers": 3,
            "tp_size": 8,
            "batch_size": 1,
            "tokens": 8 * N,
            "hidden_size": 5,
            "element_bytes": 2,
            "passes": 1,
        },
        3 * 2 * 2 * 7 * 5 * 2 * N,
    ),
    (
        axes.shard_collective_bytes,
        {"group_size": 8, "gathered_bytes": 8 * N, "passes": 2},
        14 * N,
    ),
    (
        decode.pass_q_bytes,
        {"cp_size": 8, "query_bytes": N, "output_bytes": N + 1},
        7 * (2 * N + 1),
    ),
    (layout.padded_tokens, {"new_tokens": N, "multiple": 128}, -(-N // 128) * 128),
]


@pytest.mark.parametrize(("made", "given", "expected"), EXACT, ids=lambda each: str(each)[:30])
def test_counts_are_exact_at_any_size(
    made: Formula[Any], given: dict[str, Any], expected: int
) -> None:
    """Beyond 2**53, where a float would have rounded."""
    assert made(**given) == expected
    assert type(made(**given)) is int


def run_without_numpy(program: str) -> None:
    code = f"{inspect.cleandoc(program)}\nimport sys\nassert 'numpy' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_scalars_do_not_load_numpy() -> None:
    """One estimate starts fast: every example of every formula runs on plain numbers."""
    run_without_numpy(
        """
        import doctest, ringplan.estimation.core
        from ringplan.costs.formula import REGISTRY

        for made in REGISTRY.values():
            for example in doctest.DocTestParser().get_examples(made.__doc__):
                eval(example.source, made.function.__globals__)
        """
    )


@pytest.mark.skipif(
    not ((ROOT / "hardware_profiles").is_dir() and (ROOT / "ringplan/data/models").is_dir()),
    reason="needs shipped profiles and models",
)
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_an_estimate_does_not_load_numpy(phase: str) -> None:
    """From names to numbers, in every phase."""
    run_without_numpy(
        f"""
        import ringplan

        ringplan.estimate(
            model="llama-3.1-8b", hardware="h100-sxm-80gb", seq_len="128K", cp_size=8,
            phase="{phase}",
        )
        """
    )
