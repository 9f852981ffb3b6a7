"""
Rules with codes: each looks at one thing of an assessed scenario and returns a finding or nothing.

RP1xx: the layout cannot work. RP2xx: it works, and this is what it costs or what would be better.
Codes are not reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import masks
from ringplan.estimation.core import estimate as estimated
from ringplan.estimation.domains import cut
from ringplan.feasibility import legal_cp, reasons
from ringplan.findings import Finding
from ringplan.link_checks import NOTABLE, judged_margin, rp208, rp215, rp216, rp217
from ringplan.memory_checks import rp110, rp114, rp205, rp212, rp214
from ringplan.schedule_checks import rp218, rp219, rp220
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.estimation.results import Alternative, Estimate
    from ringplan.specs.scenario import Scenario


def findings(scenario: Scenario, estimate: Estimate) -> list[Finding]:
    """Run all rules; errors first."""
    broken = [Finding(r.code, "error", r.message, r.hint) for r in reasons(scenario)]
    known = RULES if estimate.ring.verdict is not None else OF_MEMORY
    found = [rule(scenario, estimate) for rule in known]
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted([*broken, *(f for f in found if f)], key=lambda f: (rank[f.severity], f.code))


def rp201(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The ring stalls: a transfer outlasts the step that should hide it."""
    ring = estimate.ring
    if ring.verdict != "stalled" or scenario.workload.phase == "decode":
        return None
    worst = judged_margin(scenario, estimate) or 0.0
    return Finding(
        "RP201",
        "warning",
        f"the ring stalls: a hop over {ring.link} takes {show(ring.hop_time, 's')}, a step"
        f" {show(ring.step_attention_time, 's')} (margin {show(worst, 'x')})",
        _bigger_block(scenario, estimate),
    )


def rp202(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The ring is marginal: a little less compute or bandwidth makes it stall."""
    if estimate.ring.verdict != "marginal":
        return None
    worst = judged_margin(scenario, estimate) or 1.0
    return Finding(
        "RP202",
        "warning",
        f"the ring is marginal: {100 * (1 - 1 / worst):.0f} % less bandwidth makes it stall",
        _bigger_block(scenario, estimate),
    )


def cp_window(scenario: Scenario, made: Estimate) -> tuple[int, int] | None:
    """Smallest and largest legal size that fits and hides; None if there is none, or no ring."""
    least, most = made.memory.min_cp_size, made.ring.max_cp_size
    if least is None or most is None:
        return None
    low, high = legal_cp(scenario, least, up=True), legal_cp(scenario, most, up=False)
    while high is not None and high > scenario.mesh.ulysses_size and _stalls(scenario, high):
        high = legal_cp(scenario, high - 1, up=False)
    return (low, high) if low is not None and high is not None and low <= high else None


def _stalls(scenario: Scenario, cp_size: int) -> bool:
    """Whether a ring of this size stalls because a domain's border cuts it."""
    mesh = scenario.mesh.model_copy(update={"cp_size": cp_size})
    tried = scenario.model_copy(update={"mesh": mesh})
    return cut(tried) and estimated(tried).ring.verdict not in ("hidden", "none")


def _bigger_block(scenario: Scenario, estimate: Estimate) -> str:
    """What to change: another way over the same ranks, or fewer ranks with bigger blocks."""
    ring = estimate.ring
    ways = []
    if (better := _better(scenario, estimate)) is not None:
        ways.append(better)
    window = cp_window(scenario, estimate)
    if window is not None and window[1] < scenario.mesh.cp_size:
        ways.append(f"--cp {window[1]}, whose blocks hide it")
    if not ways and ring.min_block_tokens_hidden is not None:
        hidden = ring.min_block_tokens_hidden * scenario.mesh.cp_size
        ways.append(f"a context of {hidden:,} tokens over these ranks")
    return "; or ".join(ways) or "a faster link: no block hides a transfer on this one"


def _better(scenario: Scenario, estimate: Estimate) -> str | None:
    """Return the fastest way over the same ranks, where it saves a twentieth of the layer."""
    rows, schedule = estimate.alternatives, scenario.schedule
    best = next((r for r in rows if r.best and r.implementation is schedule.implementation), None)
    here = next((row for row in rows if _asked(scenario, row)), None)
    if best is None or here is None or here.time is None:
        return None
    if best.time > (1 - NOTABLE) * here.time:
        return None
    times = f"({show(best.time, 's')} a layer against {show(here.time, 's')})"
    changes = []
    if best.schedule != schedule.name:
        changes.append(f"--schedule {best.schedule}")
    elif best.comm_type == "all_gather" and here.comm_type != "all_gather":
        return f"an implementation that all-gathers K and V {times}"
    if best.ulysses_size != scenario.mesh.ulysses_size:
        changes.append(f"--ulysses {best.ulysses_size}")
    return f"{' '.join(changes)} {times}" if changes else None


def _asked(scenario: Scenario, row: Alternative) -> bool:
    """Whether a row is the layout that was asked for."""
    asked = (scenario.schedule.name, scenario.schedule.comm_type(scenario.mesh))
    same = row.ulysses_size == scenario.mesh.ulysses_size
    return same and (row.schedule, row.comm_type) == asked


def rp203(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """Contiguous blocks under a causal mask leave early ranks idle."""
    mesh, work = scenario.mesh, scenario.workload
    if (
        mesh.partition != "contiguous"
        or not work.causal
        or mesh.ring_size == 1
        or work.phase == "decode"
    ):
        return None
    even = "striped" if work.split[1] % (2 * mesh.cp_size) else "zigzag"
    used = masks.contiguous_utilization(
        seq_len=mesh.cp_size * estimate.ring.block_tokens,
        block_tokens=mesh.ulysses_size * estimate.ring.block_tokens,
    )
    return Finding(
        "RP203",
        "warning",
        f"contiguous blocks use {show(used, '%')} of the attention time under a causal mask",
        f"--partition {even} uses {'all' if even == 'zigzag' else 'nearly all'} of it",
    )


def rp204(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The model and its context fit without context parallelism."""
    if scenario.mesh.cp_size == 1 or estimate.memory.min_cp_size != 1:
        return None
    experts = " --ep 1" if scenario.mesh.dp_size % scenario.mesh.ep_size else ""
    what = (
        "one device"
        if scenario.mesh.tp_size == 1
        else f"{scenario.mesh.tp_size} tensor-parallel ranks"
    )
    return Finding(
        "RP204",
        "info",
        f"all of this fits {what} without context parallelism: a ring buys latency, not room",
        f"--cp 1{experts} needs no interconnect; data parallelism serves more sequences",
    )


def rp206(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A ring that rotates the cache to decode one token."""
    if scenario.workload.phase != "decode" or scenario.mesh.cp_size == 1:
        return None
    rotate, stay = estimate.decode.rotate_kv, estimate.decode.stationary_kv
    return Finding(
        "RP206",
        "info",
        f"rotating the cache would cost {show(rotate.time, 's')} a layer and token, leaving it in"
        f" place {show(stay.time, 's')}",
        "run decode with K/V stationary: the query is broadcast, the partial outputs are reduced",
    )


def rp207(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """Another way over these ranks is faster, or communication is exposed."""
    ring = estimate.ring
    if ring.verdict in ("stalled", "marginal") or scenario.workload.phase == "decode":
        return None
    here = next((row for row in estimate.alternatives if _asked(scenario, row)), None)
    whole = ring.time_forward if here is None or here.time is None else here.time
    share = ring.exposed_time / whole if whole else 0
    better = _better(scenario, estimate)
    if better is None and share <= NOTABLE:
        return None
    return Finding(
        "RP207",
        "warning" if better else "info",
        f"{show(share, '%')} of the attention layer is exposed communication"
        if share > NOTABLE
        else "another way over the same ranks is faster",
        better or "no way over these ranks is faster; bigger blocks lower it",
    )


def rp209(scenario: Scenario, estimate: Estimate) -> Finding | None:  # noqa: ARG001
    """The context is longer than the model was made for."""
    limit = scenario.model.max_position_embeddings
    if limit is None or scenario.workload.seq_len <= limit:
        return None
    return Finding(
        "RP209",
        "info",
        f"{scenario.workload.seq_len:,} tokens exceed the model's {limit:,} positions",
        "costs hold, answers need a model extended that far",
    )


def rp210(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A ring carries whole blocks for layers that see only a window."""
    windows = [kind.window for kind in scenario.model.kinds if kind.window]
    if not windows or scenario.mesh.ring_size == 1 or min(windows) >= estimate.ring.block_tokens:
        return None
    row = next(row for row in estimate.communication if row.axis == "ring")
    return Finding(
        "RP210",
        "info",
        f"sliding-window layers see {min(windows):,} tokens, yet the ring carries whole blocks:"
        f" {show(row.exposed_time, 's')} of the ring is exposed over all layers",
        "an implementation that trims the window sends its tokens to the neighbour only",
    )


def rp211(scenario: Scenario, estimate: Estimate) -> Finding | None:  # noqa: ARG001
    """Queries are cheaper to move than the cached prefix."""
    prefix = estimate.cached_prefix
    if prefix is None or prefix.faster != "pass_q":
        return None
    return Finding(
        "RP211",
        "info",
        f"passing queries takes {show(prefix.pass_q.time, 's')} a layer, passing K/V"
        f" {show(prefix.pass_kv.time, 's')}",
        "use pass-Q below this share of new tokens",
    )


def rp213(scenario: Scenario, estimate: Estimate) -> Finding | None:  # noqa: ARG001
    """A field was given that this phase does not look at."""
    idle = scenario.workload.idle
    if not idle:
        return None
    phase = scenario.workload.phase
    other = "serving" if phase == "train" else "training"
    names = ", ".join(f"workload.{name}" for name in idle)
    return Finding(
        "RP213", "info", f"{names}: of {other} only, and this is {phase}", "leave it out"
    )


RULES: tuple[Callable[[Scenario, Estimate], Finding | None], ...] = (
    rp110,
    rp114,
    rp212,
    rp201,
    rp202,
    rp203,
    rp204,
    rp205,
    rp206,
    rp207,
    rp208,
    rp209,
    rp210,
    rp211,
    rp213,
    rp214,
    rp215,
    rp216,
    rp217,
    rp218,
    rp219,
    rp220,
)
#: Rules about memory alone, for a model of which nothing else is known.
OF_MEMORY = (rp110, rp212, rp209, rp213, rp214)
