"""The tensors of ``ringplan memory --tensors``, by kind of layer."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ringplan.assess import lacking
from ringplan.render.explain import exact
from ringplan.render.sections import Section
from ringplan.render.words import layer_words, layers, rank_words
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.estimation.tensors import Listed
    from ringplan.specs.scenario import Scenario


def tensor_sections(scenario: Scenario, tensors: tuple[Listed, ...] | None) -> Iterable[Section]:
    """List the tensors that exist once, then those of each kind of layer, then the totals."""
    if tensors is None:
        return
    if scenario.model.unknown:
        rows = [["tensors", f"not known: {lacking(scenario.model)}"]]
        yield Section("Tensors", ["", "value"], rows)
        return
    words = layer_words(scenario.model)
    for (draft, kind), group in groupby(sorted(tensors, key=_group), key=_group):
        of_kind = list(group)
        yield _of_kind(of_kind, _title(of_kind[0].copies, words, draft=draft, kind=kind))
    yield _totals(scenario, tensors)


def _group(tensor: Listed) -> tuple[bool, int]:
    return tensor.draft, -1 if tensor.kind is None else tensor.kind


def _title(copies: int, words: tuple[str, ...], *, draft: bool, kind: int) -> str:
    """Say which layers have the tensors."""
    noun = "draft layer" if draft else "layer"
    if kind >= 0:
        return f"Tensors of {layers(copies, words[kind], noun)}"
    if not draft:
        return "Tensors that exist once"
    return f"Tensors of {copies} {noun}{'s' * (copies > 1)}, beside those of a layer"


def _of_kind(tensors: list[Listed], title: str) -> Section:
    copies = tensors[0].copies
    total, held = sum(t.parameters for t in tensors), sum(t.rank_bytes for t in tensors)
    rows = [
        [
            each.name.removesuffix(".weight"),
            "x".join(map(str, each.shape)),
            f"{each.parameters:,}",
            each.split,
            show(each.rank_bytes, "B"),
        ]
        for each in tensors
    ]
    rows.append(["all of these", "", f"{total:,}", "", show(held, "B")])
    columns = ["tensor", "shape", "parameters", "split", "on a rank"]
    if copies > 1:
        columns[1:3] = ["shape of one", "all parameters"]
    return Section(title, columns, rows)


def _totals(scenario: Scenario, tensors: tuple[Listed, ...]) -> Section:
    rows = [["parameters", f"{sum(each.parameters for each in tensors):,}"]]
    if (drafts := sum(each.parameters for each in tensors if each.draft)) > 0:
        rows.append(["of them in draft layers", f"{drafts:,}"])
    rows.append(["a token meets", f"{sum(each.active_parameters for each in tensors):,}"])
    held = exact(sum(each.rank_bytes for each in tensors))
    rows.append([f"on {rank_words(scenario)}", held])
    left_out = len(scenario.model.draft_pattern) - scenario.workload.draft_layers
    note = "names are without '.weight'; a token meets all but the experts it is not routed to"
    if left_out > 0:
        note += f"; {left_out} draft layer{'s' * (left_out > 1)} not loaded (workload.draft_layers)"
    return Section("Tensors, all of them", ["", "value"], rows, note)
