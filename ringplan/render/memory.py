"""What ``ringplan memory`` says: the bill of the fullest rank, what grows, what else would fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ringplan.assess import lacking
from ringplan.estimation.memory import PARTS
from ringplan.estimation.stages import stage_slices
from ringplan.render.bill import bar, columns_of, parts
from ringplan.render.capacity import limit, policy
from ringplan.render.documents import cell
from ringplan.render.explain import exact
from ringplan.render.fits import over_lengths, what_fits
from ringplan.render.sections import Page, Section, without_zeros
from ringplan.render.tensors import tensor_sections
from ringplan.render.words import (
    cache_format,
    in_one_pass,
    layer_words,
    rank_words,
    sequences,
    state_format,
    subtitle,
)
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.assess import Assessment
    from ringplan.estimation.results import RankMemory
    from ringplan.render.bill import Bill
    from ringplan.specs.scenario import Scenario


def page(bill: Bill, *, end: bool = True) -> Page:
    """Return what ``ringplan memory`` says; ``end`` is a line on how to ask why."""
    assessment = bill.assessment
    scenario, summary = assessment.scenario, assessment.summary
    lines = [subtitle(scenario)]
    if scenario.workload.engine is not None:
        lines.append(policy(scenario))
    made = [
        _rank(assessment),
        _stages(assessment),
        _growth(bill),
        _facts(assessment),
        what_fits(bill),
        over_lengths(bill),
        *tensor_sections(scenario, bill.tensors),
        _findings(assessment),
    ]
    return Page(
        verdict=headline(assessment),
        mood="bad" if not summary.works else "fair" if summary.fits is None else "good",
        lines=lines,
        sections=[section for section in made if section.rows],
        end=_why(assessment) if end else "",
    )


def _why(assessment: Assessment) -> str:
    """Teach how a number is explained, by one of this bill."""
    part = "kv_bytes" if assessment.estimate.memory.rank.kv_bytes else "total_bytes"
    return f"why: --explain memory.rank.{part} (names: --format csv)"


def headline(assessment: Assessment) -> str:
    """Return the first line: does it fit, with how much left, and what to change."""
    errors = [finding for finding in assessment.findings if finding.severity == "error"]
    broken = [finding.message for finding in errors if finding.code != "RP110"]
    cures = " and ".join(finding.hint for finding in errors)
    room = _room(assessment)
    if broken:
        apart = "" if assessment.summary.fits is None else "memory "
        room = f"does not work: {'; '.join(broken)}; {apart}{room}"
    return f"{room}; change: {cures}" if cures else room


def _room(assessment: Assessment) -> str:
    """Whether the rank fits, and how often its sequences do."""
    memory, scenario = assessment.estimate.memory, assessment.scenario
    rank: Any = memory.rank
    total, capacity = cell(rank.total_bytes, "B"), show(rank.capacity_bytes, "B")
    if memory.fits is None:
        caches = ", ".join(_caches(rank))
        room = f"cannot say whether it fits: {lacking(scenario.model)}"
        return f"{room}; of {capacity} a rank, {caches}" if caches else room
    needs = f"{rank_words(scenario)} needs {total}"
    if not memory.fits:
        over = show(-rank.headroom_bytes, "B")
        return f"does not fit: {needs}, {over} more than its {capacity}"
    room = f"fits: {needs} of {capacity}, {show(rank.headroom_bytes, 'B')} left"
    if rank.kv_budget_bytes is None or memory.max_sequences is None:
        return room
    tokens = scenario.workload.seq_len
    count = sequences(memory.max_sequences)
    context = f"{tokens:,} token{'s' * (tokens != 1)}{in_one_pass(scenario)}"
    return f"{room}; room for {count} of {context}"


def _caches(rank: RankMemory) -> list[str]:
    """Each cache of a rank and its bytes, where it is not zero."""
    pairs = (("KV cache", rank.kv_bytes), ("states", rank.state_bytes))
    return [f"{name} {show(value, 'B')}" for name, value in pairs if value]


def _rank(assessment: Assessment) -> Section:
    scenario = assessment.scenario
    rank = assessment.estimate.memory.rank
    bill = list(parts(rank, training=scenario.workload.phase == "train"))
    known = sum(value or 0 for _, value in bill)
    scale, start = max(known, rank.capacity_bytes), 0.0
    rows: list[list[str]] = []
    for name, value in bill:
        rows.append(
            [name, *_amounts(value, rank), "" if value is None else bar(start, value, scale)]
        )
        start += value or 0
    for name, value in (("total", rank.total_bytes), ("capacity", rank.capacity_bytes)):
        rows.append([name, *_amounts(value, rank), "" if value is None else bar(0, value, scale)])
    if rank.headroom_bytes is not None:
        rows.append(["left", *_amounts(rank.headroom_bytes, rank), ""])
    columns = ["part", "bytes", "share", ""]
    return Section(f"Memory of {rank_words(scenario)}", columns, rows, limit(scenario, rank))


def _amounts(value: float | None, rank: RankMemory) -> list[str]:
    if value is None:
        return ["not known", "-"]
    return [show(value, "B"), show(value / rank.capacity_bytes, "%")]


def _stages(assessment: Assessment) -> Section:
    scenario, stages = assessment.scenario, assessment.estimate.memory.stages
    columns = ["stage", "layers", "weights", "KV cache", "states", "total", "capacity", "left"]
    differ = len({show(each.capacity_bytes, "B") for each in stages}) > 1
    rows = [
        [
            str(each.stage),
            _layers(scenario, each.stage or 0),
            *columns_of(each, "weights_bytes", "kv_bytes", "state_bytes", "total_bytes"),
            show(each.capacity_bytes, "B") if differ else "-",
            *columns_of(each, "headroom_bytes"),
        ]
        for each in stages
    ]
    title = "A rank of each pipeline stage that differs"
    return without_zeros(Section(title, columns, rows if len(stages) > 1 else []))


def _layers(scenario: Scenario, stage: int) -> str:
    """Layers of a stage, draft layers named."""
    mesh, pattern = scenario.mesh, scenario.model.pattern
    slices = stage_slices(len(pattern), min(mesh.pp_size, len(pattern) + 1), mesh.pp_layers)
    count = str(len(pattern[slices[stage]]))
    drafts = scenario.workload.draft_layers
    return f"{count} + {drafts} draft" if drafts and stage == len(slices) - 1 else count


def _growth(bill: Bill) -> Section:
    rows = [
        [PARTS[part.part], _nonzero(part.constant_bytes), _nonzero(part.bytes_per_token)]
        for part in bill.report.growth
        if part.bytes
    ]
    note = f"between this context and twice it, on {rank_words(bill.assessment.scenario)}"
    columns = ["part", "constant", "each token more"]
    return Section("What grows with the context", columns, rows, note)


def _nonzero(value: float) -> str:
    return show(value, "B") if value else "-"


def _facts(assessment: Assessment) -> Section:
    memory, scenario = assessment.estimate.memory, assessment.scenario
    rows = [*_parameters(assessment), *_of_layers(scenario)]
    if scenario.workload.phase != "train":
        windows = any(kind.window for kind in scenario.model.kinds)
        facts = [
            ("K/V a token", memory.kv_bytes_per_token),
            ("K/V a token, windows charged in full", windows and memory.kv_bytes_per_token_full),
            ("windows of a sequence", memory.kv_constant_bytes),
            ("indexers' keys a token", memory.indexer_bytes_per_token),
            ("states of a sequence", memory.state_bytes),
            ("K/V of the job", memory.kv_bytes),
        ]
        if memory.kv_bytes:
            rows.append(["format of K/V", cache_format(scenario)])
        if memory.state_bytes:
            rows.append(["format of states", state_format(scenario)])
        rows += [[name, exact(value)] for name, value in facts if value]
    rows += [["not counted", part] for part in scenario.model.not_counted]
    return Section("Of the whole job, each token and sequence once", ["", "value"], rows)


def _parameters(assessment: Assessment) -> Iterator[list[str]]:
    """Count the parameters, and those that a token meets; nothing where they are not known."""
    memory, drafts = assessment.estimate.memory, assessment.scenario.workload.draft_layers
    if memory.num_parameters is None:
        return
    beside = f", {drafts} draft layer{'s' * (drafts > 1)} among them" if drafts else ""
    yield ["parameters", f"{memory.num_parameters:,}{beside}"]
    if memory.num_active_parameters != memory.num_parameters:
        yield ["of them, a token meets", f"{memory.num_active_parameters:,}"]


def _of_layers(scenario: Scenario) -> Iterator[list[str]]:
    """List the layers by what they are."""
    model = scenario.model
    words = layer_words(model)
    loaded = {
        "layers": model.pattern,
        "draft layers": model.draft_pattern[: scenario.workload.draft_layers],
    }
    for name, pattern in loaded.items():
        if pattern:
            counts = sorted(Counter(pattern).items())
            yield [name, "; ".join(f"{count:,} {words[kind]}" for kind, count in counts)]


#: Rules beside the errors that say something of memory.
_OF_MEMORY: Final = ("RP204", "RP205", "RP209", "RP212", "RP213", "RP214")


def _findings(assessment: Assessment) -> Section:
    rows = [
        [found.code, found.severity, f"{found.message}: {found.hint}"]
        for found in assessment.findings
        if found.severity == "error" or found.code in _OF_MEMORY
    ]
    return Section("Findings", ["code", "", "what, and the cure"], rows)
