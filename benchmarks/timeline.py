"""
Time of the timeline of a large ring, against a floor.

    python benchmarks/timeline.py [--ranks 4096] [--runs 5]

Every partition, causal, forward and backward: pairs of every rank and step, seconds, and the walk.
The floor is the bare recurrence of the forward pass, of steps that are given and equal: when each
hop and each step is over, and nothing of pairs or of who waits for what. All in one process,
taking turns. Exit code 1: a timeline takes longer than a second, or than so many floors.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from ringplan.specs.mesh import Partition
from ringplan.timeline.events import Array, Traffic, walk
from ringplan.timeline.pairs import Dealt, step_pairs

#: Seconds that a timeline of 4,096 ranks may take, and floors that any may.
SECONDS_LIMIT, FLOOR_LIMIT = 1.0, 25.0
PARTITIONS: Final[tuple[Partition, ...]] = ("contiguous", "zigzag", "striped")
TOKENS: Final = 256
#: Seconds of a visible pair, of a hop of K and V and of one of gradients: some hide, some do not.
PAIR, KV, GRADIENTS = 1e-9, 3e-5, 5e-5


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Time the timeline of a large ring.")
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    size = given.ranks

    programs: dict[str, Callable[[], object]] = {"floor": partial(floor, size)}
    for partition in PARTITIONS:
        dealt = Dealt(partition, size, TOKENS, TOKENS)
        programs[f"{partition}, forward"] = partial(timeline, dealt, forward(size))
        programs[f"{partition}, backward"] = partial(timeline, dealt, backward(size))
    times: dict[str, list[float]] = {name: [] for name in programs}
    for index in range(given.runs):
        for name, program in programs.items():
            times[name].append(seconds(program))
        print(f"run {index + 1} of {given.runs}", file=sys.stderr)
    best = {name: min(each) for name, each in times.items()}

    print(f"{size:,} ranks, {size:,} steps, causal; best of {given.runs}")
    for name, each in best.items():
        print(f"{name:24}{each:>9.3f} s{each / best['floor']:>8.1f} floors")
    slowest = max(best.values())
    limit = SECONDS_LIMIT * max(size / 4096, 1) ** 2
    ok = judge("seconds of the slowest", slowest, limit)
    ok &= judge("floors of the slowest", slowest / best["floor"], FLOOR_LIMIT)
    return int(not ok)


def forward(size: int) -> Traffic:
    """K and V around the ring, every eighth edge slower."""
    return Traffic(edges(size, KV), size - 1)


def backward(size: int) -> Traffic:
    """The same, and gradients that come home, on one communicator."""
    return Traffic(edges(size, KV), size - 1, edges(size, GRADIENTS), size)


def edges(size: int, each: float) -> Array:
    """Seconds of a hop on each edge; one of eight leaves a node."""
    return np.where(np.arange(size) % 8 == 7, 9 * each, each)


def timeline(dealt: Dealt, traffic: Traffic) -> None:
    """Count, time and walk."""
    walk((row for pairs in step_pairs(dealt) for row in pairs * PAIR), traffic)


def floor(size: int) -> Array:
    """Compute, hop, and wait for both neighbours."""
    now, step, hop = np.zeros(size), np.full(size, TOKENS**2 * PAIR), edges(size, KV)
    for _ in range(size):
        over = np.maximum(now, np.concatenate((now[1:], now[:1]))) + hop
        over = np.maximum(over, np.concatenate((over[-1:], over[:-1])))
        now = np.maximum(now + step, over)
    return now


def seconds(program: Callable[[], object]) -> float:
    """Run it once."""
    began = time.perf_counter()
    program()
    return time.perf_counter() - began


def judge(what: str, value: float, limit: float) -> bool:
    """Print a number beside its limit."""
    fine = value <= limit
    print(f"{what:40}{value:>8.2g}  limit {limit:g}{'' if fine else '  OVER'}")
    return fine


if __name__ == "__main__":
    sys.exit(main())
