"""What makes a layout fit that does not: changes, cheapest first, each with its new total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.estimation.memory import fullest_rank, stages
from ringplan.estimation.numbers import numbers
from ringplan.estimation.stages import stage_slices
from ringplan.feasibility import legal_cp, reasons
from ringplan.specs.dtypes import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.estimation.results import Memory
    from ringplan.specs.scenario import Scenario


class Remedy(NamedTuple):
    """A change that makes it fit: what to type, and the bytes of the fullest rank then."""

    flags: str
    total_bytes: float
    num_devices: int


#: Fields to change by their path; one path has one value.
Changes = dict[str, Any]

#: Tokens of a prefill chunk that serving engines use.
CHUNK = 8192
#: Numbers of devices that are tried.
POWERS = tuple(2**k for k in range(14))
#: Options of fields that have one; others are typed as ``--set PATH=VALUE``.
_OPTIONS = {
    "workload.kv_dtype": "--kv-dtype",
    "mesh.cp_size": "--cp",
    "mesh.tp_size": "--tp",
    "mesh.pp_size": "--pp",
}


def remedies(scenario: Scenario, memory: Memory) -> list[Remedy]:
    """List single changes over the same devices; if none is enough, all of them; then meshes."""
    found = [made for change in _free(scenario) if (made := _tried(scenario, change))]
    if not found and (made := _together(scenario)):
        found = [made]
    mesh = smallest_mesh(scenario, least=scenario.mesh.world_size)
    if mesh is not None:
        found.append(mesh)
    ranks = memory.min_cp_size and legal_cp(scenario, memory.min_cp_size, up=True)
    if ranks and (made := _tried(scenario, {"mesh.cp_size": ranks})) and made not in found:
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
    mesh, domain = scenario.mesh, scenario.hardware.scale_up.domain_size
    if scenario.model.unknown:
        return None
    uneven = mesh.pp_layers is not None or mesh.pp_memory is not None
    cuts = (mesh.pp_size,) if uneven else POWERS
    for world in POWERS:
        for pp_size in cuts:
            for tp_size in reversed(POWERS):
                ranks = pp_size * tp_size * mesh.attention_dp_size
                if world % ranks or (tp_size > 1 and tp_size > domain):
                    continue
                change = {
                    "mesh.tp_size": tp_size * mesh.attention_dp_size,
                    "mesh.cp_size": world // ranks,
                    "mesh.pp_size": pp_size,
                }
                if world * mesh.dp_size < least or not _whole(scenario, change):
                    continue
                if (made := _tried(scenario, change)) is not None:
                    here = _tried(scenario, {}) if mesh.world_size <= made.num_devices else None
                    return here or made
    return None


def _whole(scenario: Scenario, change: Changes) -> bool:
    """Whether the sizes that are not changed divide those that are."""
    mesh = scenario.mesh
    return not (
        change["mesh.cp_size"] % mesh.ulysses_size
        or change["mesh.tp_size"] % mesh.dcp_size
        or mesh.dp_size * change["mesh.cp_size"] % mesh.ep_size
    )


def _free(scenario: Scenario) -> Iterator[Changes]:
    """Changes that need no more devices, those that change least first."""
    work, mesh = scenario.workload, scenario.mesh
    if work.phase == "train":
        yield from _training(scenario)
    elif _kv_bytes(scenario) > ELEMENT_BYTES[scenario.engine.quantized_kv_dtype]:
        coarse = {"workload.kv_dtype": scenario.engine.quantized_kv_dtype}
        yield coarse | {
            f"workload.{name}": None for name in ("k_dtype", "v_dtype") if getattr(work, name)
        }
    if work.phase == "prefill" and work.chunk_tokens is None and work.split[1] > CHUNK:
        yield {"workload.chunk_tokens": CHUNK}
    if mesh.dcp_size == 1 and work.phase != "train" and (copies := _head_copies(scenario)) > 1:
        yield {"mesh.dcp_size": copies}
    if mesh.tp_size > 1 and not mesh.sequence_parallel and work.phase != "decode":
        yield {"mesh.sequence_parallel": True}
    if mesh.pp_size > 1 and (layers := _balanced(scenario)) is not None:
        yield {"mesh.pp_layers": layers}


def _training(scenario: Scenario) -> Iterator[Changes]:
    work, mesh = scenario.workload, scenario.mesh
    if work.loss in ("unfused", "in_place"):
        yield {"workload.loss": "chunked"}
    if work.recompute != "full":
        yield {"workload.recompute": "full"}
    if mesh.zero_stage < 3 and mesh.dp_size * mesh.cp_size > 1:
        yield {"mesh.zero_stage": 3}
    for part in ("activations", "optimizer"):
        if part not in work.offload:
            yield {"workload.offload": (*work.offload, part)}


def _head_copies(scenario: Scenario) -> int:
    """How many tensor-parallel ranks hold the same KV head, of the kind with the fewest copies."""
    ranks = scenario.mesh.attention_tp_size
    kinds = [kind for kind in scenario.model.kinds if kind.query_heads]
    return min(
        (
            ranks // (1 if kind.latent_dim is not None else min(kind.num_key_value_heads, ranks))
            for kind in kinds
        ),
        default=1,
    )


def _balanced(scenario: Scenario) -> tuple[int, ...] | None:
    """Move layers from the stage with the least left to the one with the most, until it fits."""
    mesh, layers = scenario.mesh, scenario.model.num_hidden_layers
    if mesh.pp_size > layers:
        return None
    cuts = stage_slices(layers, mesh.pp_size, mesh.pp_layers)
    counts = [part.stop - part.start for part in cuts]
    for _ in range(layers):
        tried = _changed(scenario, {"mesh.pp_layers": tuple(counts)})
        left = _left_by_stage(tried)
        if min(left) >= 0:
            return tuple(counts)
        tight, roomy = left.index(min(left)), left.index(max(left))
        if counts[tight] == 1 or tight == roomy:
            return None
        counts[tight] -= 1
        counts[roomy] += 1
    return None


def _left_by_stage(scenario: Scenario) -> list[float]:
    """Bytes left on a rank of each stage; like stages share a bill."""
    bills = {bill.stage: bill.headroom_bytes for bill in stages(numbers(scenario), scenario)}
    left: list[float] = []
    for stage in range(scenario.mesh.pp_size):
        left.append(bills.get(stage, left[-1] if left else 0.0))
    return left


def _together(scenario: Scenario) -> Remedy | None:
    """Take one change after another until it fits."""
    changes: Changes = {}
    while step := next(
        (c for c in _free(_changed(scenario, changes)) if not _has(changes, c)), None
    ):
        changes |= step
        made = _tried(scenario, changes)
        if made is not None:
            return made
    return None


def _has(changes: Changes, step: Changes) -> bool:
    return all(path in changes and changes[path] == value for path, value in step.items())


def _tried(scenario: Scenario, change: Changes) -> Remedy | None:
    """Bill another scenario; None if it does not fit, or breaks a rule that this one keeps."""
    tried = _changed(scenario, change)
    if {r.code for r in reasons(tried)} - {r.code for r in reasons(scenario)}:
        return None
    if tried.mesh.dp_size * tried.mesh.cp_size % tried.mesh.ep_size or not _connected(tried):
        return None
    bill = fullest_rank(numbers(tried), tried)
    if bill.headroom_bytes < 0:
        return None
    return Remedy(_typed(scenario, change), bill.total_bytes, tried.mesh.world_size)


def _connected(scenario: Scenario) -> bool:
    """Whether the hardware has the links that so many devices need."""
    hardware, devices = scenario.hardware, scenario.mesh.world_size
    if devices > hardware.scale_up.domain_size:
        return hardware.scale_out.bandwidth_per_direction is not None
    return devices == 1 or hardware.scale_up.bandwidth_per_direction is not None


def _changed(scenario: Scenario, change: Changes) -> Scenario:
    blocks: dict[str, dict[str, Any]] = {}
    for path, value in change.items():
        block, _, field = path.partition(".")
        blocks.setdefault(block, {})[field] = value
    made = {
        name: getattr(scenario, name).model_copy(update=fields) for name, fields in blocks.items()
    }
    return scenario.model_copy(update=made)


def _typed(scenario: Scenario, change: Changes) -> str:
    """Write what differs from the scenario as options."""
    words = []
    for path, value in change.items():
        block, _, field = path.partition(".")
        if value == getattr(getattr(scenario, block), field):
            continue
        option = _OPTIONS.get(path)
        words.append(f"{option} {value}" if option else f"--set {_assigned(path, value)}")
    return " ".join(words) or "this mesh"


def _assigned(path: str, value: Any) -> str:
    if isinstance(value, tuple):
        return f"'{path}=[{', '.join(map(str, value))}]'"
    if isinstance(value, bool):
        value = str(value).lower()
    return f"{path}={'null' if value is None else value}"


def _kv_bytes(scenario: Scenario) -> float:
    """Bytes of a cached element, the wider of keys and values."""
    work = scenario.workload
    base = work.kv_dtype or scenario.model.kv_dtype or work.activation_dtype
    return max(ELEMENT_BYTES[work.k_dtype or base], ELEMENT_BYTES[work.v_dtype or base])
