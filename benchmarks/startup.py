"""
How long ringplan takes to start, against programs that do nothing with the same libraries.

    python benchmarks/startup.py [--runs 21]

Exit code 1: over a limit, or NumPy or matplotlib was imported. 2: there is nothing to compare, as
a program failed or the numbers of commands differ.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import floor_help

from ringplan.assess import assess
from ringplan.cli.app import COMMANDS
from ringplan.io.scenarios import load

HERE: Final = Path(__file__).parent
SCENARIO: Final = (
    *("--model", "llama-3.1-70b", "--hardware", "h100-sxm-80gb"),
    *("--seq-len", "1M", "--cp", "16", "--tp", "8"),
)
HEAVY: Final = ("numpy", "matplotlib")
ASSESSMENTS: Final = 500


class Program(NamedTuple):
    """One cold start: the module that has ``main``, and its arguments."""

    module: str
    arguments: tuple[str, ...]

    def command(self, *options: str) -> list[str]:
        """Start every program alike: imported, so that its byte code is cached."""
        text = f"from {self.module} import main; main()"
        return [sys.executable, *options, "-c", text, *self.arguments]


class Pair(NamedTuple):
    """A program, the floor below it, and how many times the floor it may take."""

    name: str
    program: Program
    floor: Program
    limit: float


PAIRS: Final = (
    Pair(
        "ringplan estimate",
        Program("ringplan.__main__", ("estimate", *SCENARIO)),
        Program("floor", SCENARIO),
        1.35,
    ),
    Pair(
        "ringplan --help",
        Program("ringplan.__main__", ("--help",)),
        Program("floor_help", ("--help",)),
        1.1,
    ),
)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Time ringplan's start against its floor.")
    parser.add_argument("--runs", type=int, default=21, help="cold starts of each program")
    runs = parser.parse_args().runs
    if len(COMMANDS) != len(floor_help.app.registered_commands):
        print(f"give floor_help.py as many commands as ringplan has: {len(COMMANDS)}")
        return 2

    times = interleaved([each for pair in PAIRS for each in (pair.program, pair.floor)], runs)
    print(f"{runs} cold starts of each, interleaved; milliseconds")
    print(f"{'':24}{'median':>8}{'min':>8}{'quartiles':>16}{'ratio':>8}{'limit':>8}")
    failed = False
    for pair in PAIRS:
        mine, floor = times[pair.program], times[pair.floor]
        ratio = statistics.median(mine) / statistics.median(floor)
        over = ratio > pair.limit
        verdict = "  OVER" if over else ""
        print(f"{pair.name:24}{row(mine)}{ratio:>8.3f}{pair.limit:>8.2f}{verdict}")
        print(f"{f'  {pair.floor.module}.py':24}{row(floor)}")
        failed |= over
    for pair in PAIRS:
        heavy = sorted(imported(pair.program).intersection(HEAVY))
        print(f"{pair.name} imports {' and '.join(heavy) or 'neither NumPy nor matplotlib'}")
        failed |= bool(heavy)
    print(f"assess() in process: {1000 * assessment():.2f} ms (median of {ASSESSMENTS})")
    return int(failed)


def interleaved(programs: list[Program], runs: int) -> dict[Program, list[float]]:
    """Time each program, taking turns; every other round backwards, the first start not counted."""
    times: dict[Program, list[float]] = {program: [] for program in programs}
    for program in programs:
        start(program)
    for index in range(runs):
        for program in programs if index % 2 else reversed(programs):
            times[program].append(start(program))
    return times


def start(program: Program) -> float:
    """Run a program in a process of its own; return its seconds."""
    command, environment = program.command(), {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run(command, cwd=HERE, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def imported(program: Program) -> set[str]:
    """Top-level names of all modules that a program imports."""
    done = subprocess.run(
        program.command("-X", "importtime"), cwd=HERE, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def assessment() -> float:
    """Return the median seconds of one assessment, its scenario already read."""
    names = ("model", "hardware", "workload.seq_len", "mesh.cp_size", "mesh.tp_size")
    sets = [f"{name}={value}" for name, value in zip(names, SCENARIO[1::2], strict=True)]
    scenario = load(sets=sets).scenario
    times = []
    for _ in range(ASSESSMENTS):
        began = time.perf_counter()
        assess(scenario)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def row(times: list[float]) -> str:
    """Lay out one program's milliseconds."""
    low, median, high = (1000 * each for each in statistics.quantiles(times, n=4))
    return f"{median:>8.1f}{1000 * min(times):>8.1f}{f'{low:.1f} to {high:.1f}':>16}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(error)
        sys.exit(2)
