"""
Time and memory of the reference ring against plain dense attention, and against a floor.

    python benchmarks/reference.py [--runs 3]

8,192 tokens on 8 ranks, 8 heads of 64, causal, fp32, zigzag; options change that. Dense attention
is the plain NumPy form with a mask: one matrix of scores. The floor is the ring's own matrix
products and nothing else. All in one process on one thread, taking turns; the peak of memory is
NumPy's own count of what it allocated, in a run that is not timed. Exit code 1: over a limit, or
the two disagree.
"""

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ringplan.reference import ring
from ringplan.reference.blocks import KEY_TILE, QUERY_TILE
from ringplan.reference.dense import Array
from ringplan.reference.local import Setup, collect, place
from ringplan.reference.masks import Mask
from ringplan.reference.network import Network
from ringplan.reference.partition import zigzag

#: What the ring may take of dense attention's time, and of its memory.
TIME_LIMIT, MEMORY_LIMIT = 0.35, 0.1
#: Distance between the two answers, relative to the norm.
TOLERANCE: Final = 1e-5


class Tensors(NamedTuple):
    """Q, K and V, ``B H S D``."""

    q: Array
    k: Array
    v: Array


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Time the reference ring against dense attention.")
    for name, default in (
        ("seq-len", 8192),
        ("ranks", 8),
        ("heads", 8),
        ("head-dim", 64),
        ("runs", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    shape = (1, given.heads, given.seq_len, given.head_dim)
    tensors = Tensors(*(rng.standard_normal(shape, dtype=np.float32) for _ in range(3)))

    programs: dict[str, Callable[[], Array | None]] = {
        "dense, with a mask": lambda: dense(tensors),
        "ring": lambda: ringed(tensors, given.ranks),
        "matrix products alone": lambda: products(tensors),
    }
    with threadpool_limits(1):  # threads that wait for a busy core would decide otherwise
        peaks = {name: peak(program) for name, program in programs.items()}
        times: dict[str, list[float]] = {name: [] for name in programs}
        for index in range(given.runs):
            for name, program in programs.items():
                times[name].append(seconds(program))
            print(f"run {index + 1} of {given.runs}", file=sys.stderr)
    best = {name: min(each) for name, each in times.items()}

    print(
        f"{given.seq_len:,} tokens, {given.ranks} ranks, {given.heads} heads of {given.head_dim},"
        f" fp32, causal, zigzag; one thread, best of {given.runs}"
    )
    for name in programs:
        print(f"{name:24}{best[name]:>9.3f} s{peaks[name] / 1e6:>11.1f} MB")
    whole, mine, floor = programs
    ok = judge("time of the ring over dense", best[mine] / best[whole], TIME_LIMIT)
    ok &= judge("memory of the ring over dense", peaks[mine] / peaks[whole], MEMORY_LIMIT)
    print(f"{'time of the ring over its products':40}{best[mine] / best[floor]:>8.2f}")
    exact = dense(tensors)
    error = np.linalg.norm(ringed(tensors, given.ranks) - exact) / np.linalg.norm(exact)
    ok &= judge("distance of the answers", float(error), TOLERANCE)
    return int(not ok)


def dense(tensors: Tensors) -> Array:
    """Plain attention: every score, a mask over them, a softmax, a product."""
    q, k, v = tensors
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=q.dtype)
    visible = np.tri(q.shape[2], dtype=bool)
    scores = np.where(visible, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    answer: Array = weights / weights.sum(axis=-1, keepdims=True) @ v
    return answer


def ringed(tensors: Tensors, num_ranks: int) -> Array:
    """The same from a ring: dealt to ranks, passed round, put together."""
    layout = zigzag(np.arange(tensors.q.shape[2]), num_ranks)
    setup = Setup(Mask(), layout, layout)
    ranks = place(setup, *tensors)
    ring.forward(Network(), ranks, setup)
    return collect([rank["out"][0] for rank in ranks], layout)


def products(tensors: Tensors) -> None:
    """As many tiles of Q K^T and P V as a causal mask leaves, nothing between them."""
    q, k, v = (array[:, :, :size] for array, size in zip(tensors, _TILES, strict=True))
    tokens = tensors.q.shape[2]
    weights = np.ones((*q.shape[:3], k.shape[2]), np.float32)
    out = np.empty_like(q)
    for _ in range(tokens * (tokens + 1) // 2 // (q.shape[2] * k.shape[2])):
        np.matmul(q, k.swapaxes(-1, -2), out=weights)
        np.matmul(weights, v, out=out)


_TILES = (QUERY_TILE, KEY_TILE, KEY_TILE)


def seconds(program: Callable[[], Array | None]) -> float:
    """Run it once."""
    began = time.perf_counter()
    program()
    return time.perf_counter() - began


def peak(program: Callable[[], Array | None]) -> int:
    """Most bytes that it had allocated at one moment, its input not counted."""
    tracemalloc.start()
    program()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def judge(what: str, share: float, limit: float) -> bool:
    """Print a share beside its limit."""
    fine = share <= limit
    print(f"{what:40}{share:>8.2g}  limit {limit:g}{'' if fine else '  OVER'}")
    return fine


if __name__ == "__main__":
    sys.exit(main())
