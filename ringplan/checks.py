"""
Rules with codes: each looks at one thing of an assessed scenario and returns a finding or nothing.

RP1xx: the layout cannot work. RP2xx: it works, and this is what it costs or what would be better.
Codes are not reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import numbers
from ringplan.feasibility import legal_cp, reasons
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.estimation.results import Alternative, Estimate
    from ringplan.specs.scenario import Scenario


class Finding(NamedTuple):
    """What a rule found, and the cure."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str


def findings(scenario: Scenario, estimate: Estimate) -> list[Finding]:
    """Run all rules; errors first."""
    broken = [Finding(r.code, "error", r.message, r.hint) for r in reasons(scenario)]
    found = [rule(scenario, estimate) for rule in RULES]
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted([*broken, *(f for f in found if f)], key=lambda f: (rank[f.severity], f.code))


def rp110(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The fullest rank does not fit its memory."""
    memory = estimate.memory
    if memory.fits:
        return None
    rank = memory.rank
    over = rank.total_bytes - rank.capacity_bytes
    hint = _room(scenario, memory.min_cp_size)
    if memory.max_seq_len:
        hint += f", or --seq-len {memory.max_seq_len} at this mesh"
    return Finding(
        "RP110",
        "error",
        f"the fullest rank needs {show(rank.total_bytes, 'B')}, {show(over, 'B')} more than the"
        f" {show(rank.capacity_bytes, 'B')} it has",
        hint,
    )


def _room(scenario: Scenario, min_cp_size: int | None) -> str:
    """What makes it fit: more context ranks, or ranks that cut the weights."""
    if min_cp_size is not None:
        ranks = legal_cp(scenario, min_cp_size, up=True)
        least = "" if ranks == min_cp_size else f" ({min_cp_size} is the least)"
        return f"--cp {ranks or min_cp_size} fits{least}"
    mesh = scenario.mesh
    if scenario.workload.phase == "train" and mesh.zero_stage < 3:
        return "context parallelism cuts no weights: --set mesh.zero_stage=3 does"
    for total in (2**k for k in range(1, 11)):
        for tp_size in (t for t in (2**k for k in range(10, -1, -1)) if not total % t):
            size = {"tp_size": mesh.tp_size * tp_size, "pp_size": mesh.pp_size * total // tp_size}
            tried = scenario.model_copy(update={"mesh": mesh.model_copy(update=size)})
            if size["tp_size"] <= scenario.hardware.scale_up.domain_size and _fits(tried):
                return (
                    "context parallelism cuts no weights:"
                    f" --tp {size['tp_size']} --pp {size['pp_size']} fits"
                )
    return "no tensor x pipeline mesh up to 1,024 times this one fits"


def _fits(scenario: Scenario) -> bool:
    if reasons(scenario):
        return False
    bill = fullest_rank(numbers(scenario), scenario)
    return bool(bill.total_bytes <= bill.capacity_bytes)


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


def judged_margin(scenario: Scenario, estimate: Estimate) -> float | None:
    """Margin that the verdict goes by: the worse of the phase's passes; None without a hop."""
    ring = estimate.ring
    margins: list[float | None] = [ring.overlap_margin]
    if scenario.workload.phase == "train":
        margins.append(ring.overlap_margin_backward)
    return min((margin for margin in margins if margin is not None), default=None)


def _bigger_block(scenario: Scenario, estimate: Estimate) -> str:
    ring = estimate.ring
    ranks = legal_cp(scenario, ring.max_cp_size, up=False) or 1
    hint = (
        f"a block of {ring.min_block_tokens_hidden:,} tokens hides it: --cp {ranks} at this context"
    )
    best = _best(estimate)
    if (
        best is not None
        and best.comm_type != "p2p"
        and best.ulysses_size != scenario.mesh.ulysses_size
    ):
        hint += (
            f"; or --ulysses {best.ulysses_size}" if best.ulysses_size > 1 else "; or all-gather"
        )
        hint += f" ({show(best.time_forward, 's')} a layer against {show(ring.time_forward, 's')})"
    return hint


def _best(estimate: Estimate) -> Alternative | None:
    return next((row for row in estimate.alternatives if row.best), None)


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
    used = estimate.utilization.contiguous.exact
    return Finding(
        "RP203",
        "warning",
        f"contiguous blocks use {show(used, '%')} of the attention time under a causal mask",
        "--partition zigzag uses all of it",
    )


def rp204(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The model and its context fit without context parallelism."""
    if scenario.mesh.cp_size == 1 or estimate.memory.min_cp_size != 1:
        return None
    what = (
        "one device"
        if scenario.mesh.tp_size == 1
        else f"{scenario.mesh.tp_size} tensor-parallel ranks"
    )
    return Finding(
        "RP204",
        "info",
        f"all of this fits {what} without context parallelism: a ring buys latency, not room",
        "--cp 1 needs no interconnect; data parallelism serves more sequences",
    )


def rp205(scenario: Scenario, estimate: Estimate) -> Finding | None:  # noqa: ARG001
    """A ring on CPUs hides its transfers and is slow all the same."""
    if scenario.hardware.device_type != "cpu":
        return None
    return Finding(
        "RP205",
        "info",
        "a CPU computes so slowly that any network hides the ring: the bottleneck is still there",
        "on one box: sliding-window attention, a quantised KV cache (--kv-dtype fp8), eviction",
    )


def rp206(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """A ring that rotates the cache to decode one token."""
    if scenario.workload.phase != "decode" or scenario.mesh.cp_size == 1:
        return None
    rotate, stay = estimate.decode.rotate_kv, estimate.decode.stationary_kv
    return Finding(
        "RP206",
        "warning",
        f"rotating the cache costs {show(rotate.time, 's')} a layer and token, leaving it in place"
        f" {show(stay.time, 's')}",
        "keep K/V stationary: broadcast the query, reduce the partial outputs",
    )


def rp207(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """Communication that happens once a pass and is not hidden."""
    ring = estimate.ring
    if ring.verdict not in ("hidden", "marginal") or scenario.workload.phase == "decode":
        return None
    share = ring.exposed_time / ring.time_forward if ring.time_forward else 0
    if share <= 0.05:
        return None
    return Finding(
        "RP207",
        "warning",
        f"{show(share, '%')} of the attention pass is exposed all the same",
        "the first hop, or the all-to-alls: a bigger block, or a smaller --ulysses",
    )


def rp208(scenario: Scenario, estimate: Estimate) -> Finding | None:
    """The order of the mesh gives an axis a slower link than it could have."""
    slow = [
        row.axis for row in estimate.communication if row.axis == "tp" and row.link == "scale_out"
    ]
    if not slow:
        return None
    domain = scenario.hardware.scale_up.domain_size
    cure = (
        "--set 'mesh.order=[tp, ulysses, ring, dp, pp]'"
        if scenario.mesh.order[0] != "tp"
        else f"--tp {domain}"
    )
    return Finding(
        "RP208",
        "warning",
        f"tensor parallelism crosses the {domain}-rank domain: its all-reduces, twice a layer, take"
        " the slow link",
        cure,
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
    return Finding(
        "RP210",
        "info",
        f"sliding-window layers see {min(windows):,} tokens, yet the ring carries whole blocks",
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


RULES: tuple[Callable[[Scenario, Estimate], Finding | None], ...] = (
    rp110,
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
)
