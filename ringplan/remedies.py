"""What makes a layout fit that does not: changes, cheapest first, each with its new total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import numbers
from ringplan.feasibility import legal_cp, reasons
from ringplan.specs.dtypes import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.estimation.results import Memory, RankMemory
    from ringplan.specs.scenario import Scenario


class Remedy(NamedTuple):
    """A change that makes it fit: what to type, and the bytes of the fullest rank then."""

    flags: str
    total_bytes: float
    num_devices: int


#: Tokens of a prefill chunk that serving engines use.
CHUNK = 8192
#: Numbers of devices that are tried.
POWERS = tuple(2**k for k in range(14))


def remedies(scenario: Scenario, memory: Memory) -> list[Remedy]:
    """List single changes over the same devices; if none is enough, all of them; then meshes."""
    free = list(_free(scenario))
    found = [made for flags, tried in free if (made := _tried(flags, scenario, tried))]
    if not found and len(free) > 1:
        found = _together(scenario)
    mesh = smallest_mesh(scenario, least=scenario.mesh.world_size)
    if mesh is not None:
        found.append(mesh)
    ranks = memory.min_cp_size and legal_cp(scenario, memory.min_cp_size, up=True)
    if ranks:
        wider = _changed(scenario, "mesh", cp_size=ranks)
        if (made := _tried(f"--cp {ranks}", scenario, wider)) and made not in found:
            found.append(made)
    return found


def smallest_mesh(scenario: Scenario, *, least: int = 1) -> Remedy | None:
    """
    Search powers of two for the fewest devices that fit, with as few stages as that allows.

    Parameters
    ----------
    scenario
        The question; its mesh gives the replicas, and what is not asked.
    least
        Devices below which nothing is tried.

    Returns
    -------
    Remedy or None
        None where no mesh fits, or where the model's config does not tell.
    """
    if scenario.model.unknown:
        return None
    mesh, domain = scenario.mesh, scenario.hardware.scale_up.domain_size
    replicas = mesh.dp_size * mesh.attention_dp_size
    for world in POWERS:
        if world * replicas < least:
            continue
        for pp_size in POWERS:
            for tp_size in reversed(POWERS):
                if world % (pp_size * tp_size) or (tp_size > 1 and tp_size > domain):
                    continue
                sizes = {
                    "tp_size": tp_size * mesh.attention_dp_size,
                    "cp_size": world // (pp_size * tp_size),
                    "pp_size": pp_size,
                }
                if sizes["cp_size"] % mesh.ulysses_size or tp_size % mesh.dcp_size:
                    continue
                tried = _changed(scenario, "mesh", **sizes, pp_layers=None, pp_memory=None)
                changed = [n for n, size in sizes.items() if size != getattr(mesh, n)]
                flags = " ".join(f"--{name[:2]} {sizes[name]}" for name in changed)
                if (made := _tried(flags or "this mesh", scenario, tried)) is not None:
                    return made
    return None


def _free(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """Changes that need no more devices, those that change least first."""
    work, mesh = scenario.workload, scenario.mesh
    if work.phase == "train":
        yield from _training(scenario)
    elif _kv_bytes(scenario) > 1:
        coarse = {"kv_dtype": "fp8", "k_dtype": None, "v_dtype": None}
        yield "--kv-dtype fp8", _changed(scenario, "workload", **coarse)
    if work.phase == "prefill" and work.chunk_tokens is None and work.split[1] > CHUNK:
        flag = f"--set workload.new_tokens={CHUNK}"
        if work.cached_len is not None:
            flag = f"--cached-len {work.seq_len - CHUNK}"
        chunk = {"new_tokens": CHUNK, "cached_len": None}
        yield f"prefill in chunks, the last with {flag}", _changed(scenario, "workload", **chunk)
    if mesh.tp_size > 1 and not mesh.sequence_parallel and work.phase != "decode":
        yield (
            "--set mesh.sequence_parallel=true",
            _changed(scenario, "mesh", sequence_parallel=True),
        )


def _training(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    work, mesh = scenario.workload, scenario.mesh
    if work.loss in ("unfused", "in_place"):
        yield "--set workload.loss=chunked", _changed(scenario, "workload", loss="chunked")
    if work.recompute != "full":
        yield "--set workload.recompute=full", _changed(scenario, "workload", recompute="full")
    if mesh.zero_stage < 3 and mesh.dp_size * mesh.cp_size > 1:
        yield "--set mesh.zero_stage=3", _changed(scenario, "mesh", zero_stage=3)
    for part in ("activations", "optimizer"):
        if part not in work.offload:
            kept = (*work.offload, part)
            yield (
                f"--set 'workload.offload=[{', '.join(kept)}]'",
                _changed(scenario, "workload", offload=kept),
            )


def _together(scenario: Scenario) -> list[Remedy]:
    """Take one change after another until it fits."""
    flags: list[str] = []
    tried = scenario
    while step := next(((f, t) for f, t in _free(tried) if f not in flags), None):
        flags, tried = [*flags, step[0]], step[1]
        made = _tried(" and ".join(flags), scenario, tried)
        if made is not None:
            return [made]
    return []


def _tried(flags: str, scenario: Scenario, tried: Scenario) -> Remedy | None:
    """Bill another scenario; None if it does not fit, or breaks a rule that this one keeps."""
    if {r.code for r in reasons(tried)} - {r.code for r in reasons(scenario)}:
        return None
    bill = _bill(tried)
    if bill.headroom_bytes < 0:
        return None
    return Remedy(flags, bill.total_bytes, tried.mesh.world_size)


def _bill(scenario: Scenario) -> RankMemory:
    return fullest_rank(numbers(scenario), scenario)


def _changed(scenario: Scenario, block: str, **fields: Any) -> Scenario:
    made = getattr(scenario, block).model_copy(update=fields)
    return scenario.model_copy(update={block: made})


def _kv_bytes(scenario: Scenario) -> float:
    """Bytes of a cached element, the wider of keys and values."""
    work = scenario.workload
    base = work.kv_dtype or scenario.model.kv_dtype or work.activation_dtype
    return max(ELEMENT_BYTES[work.k_dtype or base], ELEMENT_BYTES[work.v_dtype or base])
