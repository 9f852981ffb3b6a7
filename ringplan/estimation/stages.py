"""Pipeline stages: layers of each kind, and parameters by how ranks share them."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringplan.costs.numeric import Number
    from ringplan.estimation.leaves import Leaves
    from ringplan.specs.model import ModelSpec, Tensor
    from ringplan.specs.scenario import Scenario


class Stage(NamedTuple):
    """One pipeline stage: how many layers of each kind, and the parameters by how they split."""

    number: int
    memory: Number | None
    layers: tuple[Number, ...]
    parameters: ByFormat
    last: bool


class ByFormat(NamedTuple):
    """Parameters that are quantised when the weights are, embeddings, and the 16-bit rest."""

    quantized: Parameters
    embedding: Parameters
    unquantized: Parameters


class Parameters(NamedTuple):
    """Parameters of a stage by the way ranks share them."""

    replicated: Number
    tensor: Number
    heads: Number
    kv: tuple[Number, ...]
    expert: Number


def stage_slices(
    num_layers: int, pp_size: int, given: tuple[int, ...] | None = None
) -> list[slice]:
    """
    Cut the layers into stages as given, or evenly, the first ones one longer where need be.

    >>> stage_slices(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    if given is not None:
        return [slice(a, b) for a, b in pairwise(accumulate(given, initial=0))]
    each, more = divmod(num_layers, pp_size)
    ends = [each * s + min(s, more) for s in range(pp_size + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def stages_of(leaf: Leaves, scenario: Scenario) -> tuple[Stage, ...]:
    """Build the stages that differ: equal ones are alike in every number."""
    model, mesh = scenario.model, scenario.mesh
    drafts = model.draft_pattern[: scenario.workload.draft_layers]
    stages: dict[tuple[Any, ...], Stage] = {}
    slices = stage_slices(
        len(model.pattern), min(mesh.pp_size, len(model.pattern) + 1), mesh.pp_layers
    )
    for index, part in enumerate(slices):
        counts = Counter(model.pattern[part])
        first, last = index == 0, index == len(slices) - 1
        if last:
            counts.update(drafts)
        room = None if mesh.pp_memory is None else scenario.device_memory(index)
        flying = min(scenario.workload.num_micro_batches, mesh.pp_size - index)
        key = (first, last, room, flying, *sorted(counts.items()))
        if key not in stages:
            stages[key] = _stage(
                leaf, model, index, counts, first=first, last=last, drafts=len(drafts), room=room
            )
    return tuple(stages.values())


_SPLITS = {
    "none": "replicated",
    "tensor": "tensor-parallel",
    "heads": "query-head",
    "kv": "K and V",
    "expert": "expert",
}


def _stage(
    leaf: Leaves,
    model: ModelSpec,
    index: int,
    counts: Mapping[int, int],
    *,
    first: bool,
    last: bool,
    drafts: int,
    room: float | None,
) -> Stage:
    def copies(tensor: Tensor) -> int:
        if tensor.kind is not None:
            return counts.get(tensor.kind, 0)
        return copies_outside(tensor, first=first, last=last, drafts=drafts)

    return Stage(
        number=index,
        memory=None if room is None else leaf("mesh.pp_memory", room),
        layers=tuple(
            leaf.derived(f"layers of kind {i} on stage {index}", counts.get(i, 0), "model.pattern")
            for i in range(len(model.kinds))
        ),
        parameters=_by_format(leaf, model, copies, f"stage {index}"),
        last=last,
    )


def copies_outside(tensor: Tensor, *, first: bool, last: bool, drafts: int) -> int:
    """How often a stage has a tensor that is in no layer."""
    here = {
        "first": int(first),
        "last": int(last),
        "draft": drafts if last else 0,
        "tied": int(last and not first),
    }
    return here[tensor.stage]


def _by_format(
    leaf: Leaves, model: ModelSpec, copies: Callable[[Tensor], int], where: str
) -> ByFormat:
    """Add up the tensors, each as often as it is there, by format and by how ranks share them."""
    sums: Counter[tuple[str, str, int | None]] = Counter()
    for tensor in model.tensors:
        kind = tensor.kind if tensor.split == "kv" else None
        sums[_format_of(tensor), tensor.split, kind] += tensor.parameters * copies(tensor)

    def of(label: str) -> Parameters:
        def total(split: str, kind: int | None = None) -> Number:
            name = f"{label} {_SPLITS[split]} parameters of {where}"
            return leaf.derived(name, sums[label, split, kind], f"tensor list of {model.name}")

        return Parameters(
            replicated=total("none"),
            tensor=total("tensor"),
            heads=total("heads"),
            kv=tuple(total("kv", kind) for kind in range(len(model.kinds))),
            expert=total("expert"),
        )

    return ByFormat(of("quantised"), of("embedding"), of("16-bit"))


def _format_of(tensor: Tensor) -> str:
    if tensor.embeds:
        return "embedding"
    return "quantised" if tensor.quantized else "16-bit"


def layer_parameters(leaf: Leaves, model: ModelSpec, kind: int) -> ByFormat:
    """Parameters of one layer of a kind."""
    return _by_format(leaf, model, lambda tensor: int(tensor.kind == kind), f"a layer of {kind}")


def tensor_parameters(leaf: Leaves, model: ModelSpec, one: Tensor) -> ByFormat:
    """Parameters of one copy of a tensor."""
    return _by_format(leaf, model, lambda tensor: int(tensor is one), one.name)
