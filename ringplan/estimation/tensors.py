"""The tensors that every count of parameters and of bytes of weights is the sum of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import fullest_rank
from ringplan.estimation.numbers import numbers
from ringplan.estimation.parameters import shards, weights
from ringplan.estimation.stages import copies_outside, tensor_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import Stage
    from ringplan.specs.model import Tensor
    from ringplan.specs.scenario import Scenario


class Listed(NamedTuple):
    """
    A tensor of the model, or one that each layer of a kind has.

    Attributes
    ----------
    name, shape, kind, split, quantized
        As in the model's tensor list.
    draft
        Whether draft layers have it.
    copies
        How often the model has it.
    parameters, active_parameters
        Of all copies, and those of them that one token meets; a draft layer is not counted there.
    rank_bytes
        What the fullest rank holds of it.
    """

    name: str
    shape: tuple[int, ...]
    kind: int | None
    split: str
    quantized: bool
    draft: bool
    copies: int
    parameters: int
    active_parameters: int
    rank_bytes: float


def tensor_list(scenario: Scenario) -> tuple[Listed, ...]:
    """List the tensors that are loaded; none of a model whose tensors are not known."""
    x = numbers(scenario)
    fullest = fullest_rank(x, scenario).stage
    (stage,) = (each for each in x.stages if each.number == fullest)
    return tuple(_rows(x, scenario, stage))


def _rows(x: Numbers, scenario: Scenario, stage: Stage) -> Iterator[Listed]:
    """List a tensor once for the model's layers, and once for its draft layers; a tied copy too."""
    model, loaded = scenario.model, scenario.workload.draft_layers
    alone, drafted = model.copies(0), model.copies(loaded)
    for tensor in model.tensors:
        own = alone(tensor)
        drafts = drafted(tensor) - own
        drafts_here = drafts if stage.last else 0
        if tensor.stage == "tied" and _on_stage(tensor, stage):
            yield _row(x, scenario, tensor, 0, 1, draft=False)
        if own:
            here = _on_stage(tensor, stage) - (0 if tensor.kind is None else drafts_here)
            yield _row(x, scenario, tensor, own, here, draft=False)
        if drafts:
            yield _row(x, scenario, tensor, drafts, drafts_here, draft=True)


def _on_stage(tensor: Tensor, stage: Stage) -> int:
    """How often a stage has a tensor."""
    if tensor.kind is not None:
        return int(plain(stage.layers[tensor.kind]))
    return copies_outside(tensor, first=stage.number == 0, last=stage.last, drafts=0)


def _row(
    x: Numbers, scenario: Scenario, tensor: Tensor, copies: int, here: int, *, draft: bool
) -> Listed:
    one = tensor_parameters(x.leaf, scenario.model, tensor)
    held = weights(x, one, shards(x, scenario, 3))
    return Listed(
        name=tensor.name,
        shape=tensor.shape,
        kind=tensor.kind,
        split=tensor.split,
        quantized=tensor.quantized,
        draft=draft,
        copies=copies,
        parameters=copies * tensor.parameters,
        active_parameters=copies * scenario.model.active(tensor),
        rank_bytes=here * float(sum(map(plain, held))),
    )
