"""What ``ringplan memory`` says: the bill of the fullest rank, what grows, what else would fit."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ringplan.assess import lacking
from ringplan.estimation.numbers import stage_slices
from ringplan.render.bill import PARTS, bar, parts
from ringplan.render.documents import cell
from ringplan.render.explain import number
from ringplan.render.sections import Page, Section, subtitle
from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringplan.assess import Assessment
    from ringplan.estimation.growth import Length
    from ringplan.estimation.results import RankMemory
    from ringplan.estimation.tensors import Listed
    from ringplan.render.bill import Bill
    from ringplan.specs.scenario import Scenario


def page(bill: Bill) -> Page:
    """Return what ``ringplan memory`` says."""
    assessment = bill.assessment
    scenario, summary = assessment.scenario, assessment.summary
    lines = [subtitle(assessment)]
    if scenario.workload.engine is not None:
        lines.append(_engine(scenario))
    made = [
        _rank(assessment),
        _stages(assessment),
        _growth(bill),
        _facts(assessment),
        _budget(bill),
        _lengths(bill),
        *_tensors(scenario, bill.tensors),
        _findings(assessment),
    ]
    return Page(
        verdict=headline(assessment),
        mood="bad" if not summary.works else "fair" if summary.fits is None else "good",
        lines=lines,
        sections=[section for section in made if section.rows],
    )


def headline(assessment: Assessment) -> str:
    """Return the first line: does it fit, with how much left, and what to change."""
    memory, model = assessment.estimate.memory, assessment.scenario.model
    errors = [finding for finding in assessment.findings if finding.severity == "error"]
    rank: Any = memory.rank
    total, capacity = cell(rank.total_bytes, "B"), show(rank.capacity_bytes, "B")
    if memory.fits is None:
        caches = ", ".join(_caches(rank))
        room = f"cannot say whether it fits: {lacking(model)}"
        room += f"; of {capacity} a rank, {caches}" if caches else ""
    elif memory.fits:
        left = show(rank.headroom_bytes, "B")
        room = f"fits: the fullest rank needs {total} of {capacity}, {left} left"
    else:
        over = show(-rank.headroom_bytes, "B")
        room = f"does not fit: the fullest rank needs {total}, {over} more than its {capacity}"
    broken = [finding.message for finding in errors if finding.code != "RP110"]
    cures = " and ".join(finding.hint for finding in errors)
    if broken:
        room = f"does not work: {'; '.join(broken)}; {room}"
    return f"{room}; change: {cures}" if cures else room


def _caches(rank: RankMemory) -> list[str]:
    """Each cache of a rank and its bytes, where it is not zero."""
    pairs = (("KV cache", rank.kv_bytes), ("states", rank.state_bytes))
    return [f"{name} {show(value, 'B')}" for name, value in pairs if value]


#: What may be filled, by what an engine's utilization is a share of.
_SHARES: Final = {
    "total": "may fill {share} of {device}",
    "free_at_start": "weights and cache may fill {share} of what is free at start on {device}",
    "free_after_load": "the cache may fill {share} of what all else leaves free on {device}",
}
_WINDOWS: Final = {
    "capped": "sliding-window layers cache their window",
    "full": "sliding-window layers are charged in full",
    "share": "sliding-window layers have {share:g} % of a full layer's pool",
}


def _engine(scenario: Scenario) -> str:
    """Return the policy of the engine in one line."""
    engine = scenario.engine
    chunk = scenario.workload.chunk_tokens or engine.chunk_tokens
    policy = [
        _share(scenario, "a device"),
        f"chunks of {chunk:,} tokens" if chunk else "prefill in one piece",
        f"pages of {engine.page_tokens:,} token{'s' * (engine.page_tokens > 1)}",
        _WINDOWS[engine.window_cache].format(share=100 * engine.window_share),
    ]
    return f"{engine.title}: {'; '.join(policy)}"


def _share(scenario: Scenario, device: str) -> str:
    engine, room = scenario.engine, scenario.hardware.memory
    share = room.utilization if engine.utilization is None else engine.utilization
    return _SHARES[engine.budget].format(share=f"{100 * share:g} %", device=device)


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
    return Section("Memory of the fullest rank", columns, rows, _limit(scenario, rank))


def _amounts(value: float | None, rank: RankMemory) -> list[str]:
    if value is None:
        return ["not known", "-"]
    return [show(value, "B"), show(value / rank.capacity_bytes, "%")]


def _limit(scenario: Scenario, rank: RankMemory) -> str:
    """Say what the capacity is a part of, and who says so."""
    engine, mesh, room = scenario.engine, scenario.mesh, scenario.hardware.memory
    device = room.capacity
    if mesh.pp_memory is not None and rank.stage is not None:
        device = mesh.pp_memory[min(rank.stage, mesh.pp_size - 1)]
    owner = "hardware.memory" if engine.utilization is None else "engine"
    text = f"capacity: {_share(scenario, show(device, 'B'))} ({owner}.utilization)"
    if engine.outside_budget:
        text += f", {' and '.join(engine.outside_budget)} beside it"
    if scenario.model.unknown:
        text += f"; not known: {lacking(scenario.model)}"
    return text


def _stages(assessment: Assessment) -> Section:
    scenario, stages = assessment.scenario, assessment.estimate.memory.stages
    columns = ["stage", "layers", "weights", "KV cache", "states", "total", "left"]
    rows = [
        [
            str(each.stage),
            _layers(scenario, each.stage or 0),
            *_columns(each, "weights_bytes", "kv_bytes", "state_bytes"),
            *_columns(each, "total_bytes", "headroom_bytes"),
        ]
        for each in stages
    ]
    title = "A rank of each pipeline stage that differs"
    return _without_zeros(Section(title, columns, rows if len(stages) > 1 else []))


def _columns(rank: RankMemory, *names: str) -> list[str]:
    return [cell(getattr(rank, name), "B") for name in names]


def _layers(scenario: Scenario, stage: int) -> str:
    """Layers of a stage, draft layers named."""
    mesh, pattern = scenario.mesh, scenario.model.pattern
    slices = stage_slices(len(pattern), min(mesh.pp_size, len(pattern) + 1), mesh.pp_layers)
    count = str(len(pattern[slices[stage]]))
    drafts = scenario.workload.draft_layers
    return f"{count} + {drafts} draft" if drafts and stage == len(slices) - 1 else count


def _without_zeros(section: Section) -> Section:
    """Leave out the columns that are zero in every row."""
    kept = [
        index
        for index in range(len(section.columns))
        if not section.rows or any(row[index] not in ("0 B", "-") for row in section.rows)
    ]
    return section._replace(
        columns=[section.columns[index] for index in kept],
        rows=[[row[index] for index in kept] for row in section.rows],
    )


def _growth(bill: Bill) -> Section:
    rows = [
        [PARTS[part.part], _nonzero(part.constant_bytes), _nonzero(part.bytes_per_token)]
        for part in bill.report.growth
        if part.bytes
    ]
    note = "between this context and twice it, on the fullest rank"
    columns = ["part", "constant", "each token more"]
    return Section("What grows with the context", columns, rows, note)


def _exact(value: float) -> str:
    return number(int(value) if value == int(value) else value, "B")


def _nonzero(value: float) -> str:
    return show(value, "B") if value else "-"


def _facts(assessment: Assessment) -> Section:
    memory, scenario = assessment.estimate.memory, assessment.scenario
    windows = any(kind.window for kind in scenario.model.kinds)
    facts = [
        ("K/V a token", memory.kv_bytes_per_token),
        ("K/V a token, windows charged in full", windows and memory.kv_bytes_per_token_full),
        ("windows of a sequence", memory.kv_constant_bytes),
        ("indexers' keys a token", memory.indexer_bytes_per_token),
        ("states of a sequence", memory.state_bytes),
        ("K/V of the job", memory.kv_bytes),
    ]
    caches = scenario.workload.phase != "train"
    rows = [[name, _exact(value)] for name, value in facts if value and caches]
    if memory.num_parameters is not None:
        drafts = scenario.workload.draft_layers
        beside = f", {drafts} draft layer{'s' * (drafts > 1)} among them" if drafts else ""
        parameters = [["parameters", f"{memory.num_parameters:,}{beside}"]]
        if memory.num_active_parameters != memory.num_parameters:
            parameters.append(["of them, a token meets", f"{memory.num_active_parameters:,}"])
        rows[:0] = parameters
    rows += [["not counted", part] for part in scenario.model.not_counted]
    return Section("Of the whole job, each token and sequence once", ["", "value"], rows)


def _budget(bill: Bill) -> Section:
    """List what would fit, or why a question has no answer."""
    estimate, scenario = bill.assessment.estimate, bill.assessment.scenario
    memory, rank, world = estimate.memory, estimate.memory.rank, scenario.mesh.world_size
    if memory.fits is None:
        return Section("What fits", [], [])
    rows = []
    if rank.kv_budget_bytes is not None:
        rows.append(["caches of a rank may fill", show(rank.kv_budget_bytes, "B")])
        if scenario.workload.engine is not None:
            rows.append(["the same in its log", _as_logged(scenario, rank)])
        rows.append(["tokens of context that fit", f"{memory.kv_tokens:,}"])
        rows.append(["sequences of this context", f"{memory.max_concurrency:,.2f}"])
    why = estimate.not_counted
    longest, least = memory.max_seq_len, memory.min_cp_size
    tokens = why.get("memory.max_seq_len") if longest is None else f"{longest:,} tokens"
    rows.append(["longest context at this mesh", str(tokens)])
    devices = 0 if least is None else world // scenario.mesh.cp_size * least
    ranks = f"{least} ({devices:,} device{'s' * (devices != 1)})"
    rows.append(
        ["smallest cp that fits", str(why.get("memory.min_cp_size")) if least is None else ranks]
    )
    mesh = bill.smallest_mesh
    if mesh is not None:
        count = f"{mesh.num_devices:,} device{'s' * (mesh.num_devices != 1)}"
        rows.append(["fewest devices", f"{count}: {mesh.flags}, {show(mesh.total_bytes, 'B')}"])
    return Section("What fits", ["", "value"], rows)


#: What a log calls its unit: bytes of it.
_UNITS: Final = {"GiB": 2**30, "GB": 2**30, "MiB": 2**20}


def _as_logged(scenario: Scenario, rank: RankMemory) -> str:
    """Write the budget, and what of it is filled, in the unit of the engine's log."""
    unit = scenario.engine.prints_gib_as
    budget, filled = (
        f"{value / _UNITS[unit]:,.2f} {unit}" for value in (rank.kv_budget_bytes, rank.kv_bytes)
    )
    note = " (its GB are GiB)" if unit == "GB" else ""
    return f"{budget}, KV cache of it {filled}{note}"


def _lengths(bill: Bill) -> Section:
    lengths = bill.report.lengths
    columns = ["context", "KV cache", "states", "total", "left", "sequences", "fits"]
    rows = [
        [
            f"{each.seq_len:,}",
            *_columns(each.rank, "kv_bytes", "state_bytes", "total_bytes", "headroom_bytes"),
            "-" if each.max_concurrency is None else f"{each.max_concurrency:,.2f}",
            _fits(each),
        ]
        for each in lengths
    ]
    made = _without_zeros(Section("Over context lengths, the fullest rank", columns, rows))
    return made if len(made.columns) > 1 else made._replace(rows=[])


def _fits(length: Length) -> str:
    left = length.rank.headroom_bytes
    return "-" if left is None else "yes" if left >= 0 else "no"


def _tensors(scenario: Scenario, tensors: tuple[Listed, ...] | None) -> Iterable[Section]:
    """List the tensors that exist once, then those of each kind of layer, then the totals."""
    if tensors is None:
        return
    if scenario.model.unknown:
        rows = [["tensors", f"not known: {lacking(scenario.model)}"]]
        yield Section("Tensors", ["", "value"], rows)
        return
    ordered = sorted(tensors, key=_group)
    for (draft, kind), group in groupby(ordered, key=_group):
        yield _group_section(list(group), draft=draft, kind=kind)
    yield _totals(scenario, tensors)


def _group(tensor: Listed) -> tuple[bool, int]:
    return tensor.draft, -1 if tensor.kind is None else tensor.kind


def _group_section(tensors: list[Listed], *, draft: bool, kind: int) -> Section:
    copies, word = tensors[0].copies, "draft layer" if draft else "layer"
    where = f"each of {copies} {word}s" if copies > 1 else f"one {word}"
    title = f"Tensors of {where} of kind {kind}" if kind >= 0 else "Tensors that exist once"
    if draft and kind < 0:
        title = f"Tensors of {where}, beside its layer"
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
    return Section(title, columns, rows)


def _totals(scenario: Scenario, tensors: tuple[Listed, ...]) -> Section:
    rows = [["parameters", f"{sum(each.parameters for each in tensors):,}"]]
    if (drafts := sum(each.parameters for each in tensors if each.draft)) > 0:
        rows.append(["of them in draft layers", f"{drafts:,}"])
    rows.append(["a token meets", f"{sum(each.active_parameters for each in tensors):,}"])
    rows.append(["on the fullest rank", _exact(sum(each.rank_bytes for each in tensors))])
    left_out = len(scenario.model.draft_pattern) - scenario.workload.draft_layers
    note = "names are without '.weight'; a token meets all but the experts it is not routed to"
    if left_out > 0:
        note += f"; {left_out} draft layer{'s' * (left_out > 1)} not loaded (workload.draft_layers)"
    return Section("Tensors, all of them", ["", "value"], rows, note)


#: Rules beside the errors that say something of memory.
_OF_MEMORY: Final = ("RP204", "RP209", "RP212")


def _findings(assessment: Assessment) -> Section:
    rows = [
        [found.code, found.severity, f"{found.message}: {found.hint}"]
        for found in assessment.findings
        if found.severity == "error" or found.code in _OF_MEMORY
    ]
    return Section("Findings", ["code", "", "what, and the cure"], rows)
