"""
What a deployment review reads, as titled tables of text.

The terminal and the Markdown page print the same sections; each is a pure reading of the
assessment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ringplan import __version__
from ringplan.render.bill import parts
from ringplan.render.documents import cell
from ringplan.render.words import in_one_pass, rank_words, sequences, subtitle
from ringplan.units import show

if TYPE_CHECKING:
    from ringplan.assess import Assessment
    from ringplan.estimation.results import Alternative


class Section(NamedTuple):
    """A titled table; the first column names the row, `note` stands below."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


def without_zeros(section: Section) -> Section:
    """Leave out the columns that are zero, or nothing, in every row."""
    kept = [
        index
        for index in range(len(section.columns))
        if not section.rows or any(row[index] not in ("0 B", "-") for row in section.rows)
    ]
    return section._replace(
        columns=[section.columns[index] for index in kept],
        rows=[[row[index] for index in kept] for row in section.rows],
    )


class Page(NamedTuple):
    """
    A whole answer: the verdict, whether it is good news, lines below it, and sections.

    ``end`` stands below all of it on a terminal.
    """

    verdict: str
    mood: Literal["good", "fair", "bad"]
    lines: list[str]
    sections: list[Section]
    end: str = ""


#: Verdicts on a ring that are no reason for concern.
_GOOD = ("hidden", "none")


def page(assessment: Assessment, *, timeline: bool = False) -> Page:
    """Return what ``ringplan estimate`` says."""
    summary = assessment.summary
    fine = summary.verdict in _GOOD and summary.fits is not None
    mood: Literal["good", "fair", "bad"] = "good" if fine else "fair"
    if not summary.works or summary.verdict == "stalled":
        mood = "bad"
    made = sections(assessment, timeline=timeline)
    return Page(headline(assessment), mood, [subtitle(assessment.scenario)], made)


def headline(assessment: Assessment) -> str:
    """Return the first line: does it work, is it hidden, by what margin, what to change."""
    summary = assessment.summary
    change = "" if summary.change == "nothing" else f"; change: {summary.change}"
    if summary.works and summary.fits is None:
        return f"{summary.headline}{change}"
    word = "works" if summary.works else "does not work"
    return f"{word}: {summary.headline}{change}"


def sections(assessment: Assessment, *, timeline: bool = False) -> list[Section]:
    """List the sections that apply."""
    made = [
        _memory(assessment),
        _budget(assessment),
        _alternatives(assessment),
        _implementations(assessment),
        _communication(assessment),
        _utilization(assessment),
        _decode(assessment),
    ]
    if timeline:
        from ringplan.render.timeline import timeline as of_ranks  # noqa: PLC0415 - it needs Section

        made += of_ranks(assessment.estimate)
    made.append(_findings(assessment))
    return [section for section in made if section.rows]


def _memory(assessment: Assessment) -> Section:
    memory, phase = assessment.estimate.memory, assessment.scenario.workload.phase
    rank = memory.rank
    bill = [*parts(rank, training=phase == "train"), ("total", rank.total_bytes)]
    rows = [
        [name, _bytes(value), cell(value and value / rank.capacity_bytes, "%")]
        for name, value in (*bill, ("capacity", rank.capacity_bytes))
    ]
    every, token = show(memory.kv_bytes, "B"), show(memory.kv_bytes_per_token, "B")
    facts = [f"K/V of the job {every}, {token} a token"] if memory.kv_bytes else []
    if memory.max_seq_len:
        facts.append(f"longest context here {memory.max_seq_len:,} tokens")
    if memory.min_cp_size:
        others = assessment.scenario.mesh.world_size // assessment.scenario.mesh.cp_size
        devices = memory.min_cp_size * others
        plural = "" if devices == 1 else "s"
        facts.append(f"fits from cp {memory.min_cp_size} on ({devices:,} device{plural})")
    if memory.kv_tokens:
        room = f"room for {memory.kv_tokens:,} cached tokens"
        if memory.max_sequences is not None:
            room += f", {sequences(memory.max_sequences)}{in_one_pass(assessment.scenario)}"
        facts.append(room)
    if memory.score_matrix_bytes:
        scores = show(memory.score_matrix_bytes, "B")
        facts.append(f"scores that FlashAttention never stores {scores} a layer")
    facts += [f"not counted: {part}" for part in memory.not_counted]
    title = f"Memory of {rank_words(assessment.scenario)}"
    return Section(title, ["part", "bytes", "share"], rows, "; ".join(facts))


def _bytes(value: float | None) -> str:
    return "not known" if value is None else show(value, "B")


def _budget(assessment: Assessment) -> Section:
    ring = assessment.estimate.ring
    if ring.hop_time is None:
        return Section("Step budget", [], [])
    margins = [
        f"{show(ring.overlap_margin, 'x')} achieved",
        f"{show(ring.overlap_margin_nominal, 'x')} nominal",
    ]
    if assessment.scenario.workload.phase == "train":
        margins.append(f"{show(ring.overlap_margin_backward, 'x')} backward")
    work, hop = show(ring.step_flops, "FLOP"), show(ring.hop_bytes, "B")
    rows = [
        ["block of a rank", f"{ring.block_tokens:,} tokens"],
        ["compute of a step", f"{show(ring.step_attention_time, 's')} ({work})"],
        ["transfer of a step", f"{show(ring.hop_time, 's')} ({hop} over {ring.link})"],
        ["margin", ", ".join(margins)],
        ["layer", f"{show(ring.time_forward, 's')}, {show(ring.exposed_time, 's')} exposed"],
    ]
    if ring.min_block_tokens is not None:
        least, hidden = ring.min_block_tokens, ring.min_block_tokens_hidden
        rows.append(["smallest block", f"{least:,} tokens at margin 1, {hidden:,} at 1.25"])
        rows.append(["cp sizes that fit and hide", _window(assessment)])
    return Section(f"Step budget: {ring.verdict}", ["widest full-attention layer", "value"], rows)


def _window(assessment: Assessment) -> str:
    window = assessment.summary.cp_sizes
    if window:
        return f"{window[0]:,} to {window[1]:,}"
    least = assessment.estimate.memory.min_cp_size
    fits = "none fits" if least is None else f"fits from {least:,}"
    return f"none: {fits}, hides to {assessment.estimate.ring.max_cp_size:,}"


#: The ways to share a sequence, in the words of the README.
_WAYS = {
    "p2p": "ring",
    "all_gather": "all-gather",
    "a2a": "ulysses",
    "a2a+p2p": "ulysses {u} x ring {r}",
    "decode": "{label}",
}


def _alternatives(assessment: Assessment) -> Section:
    own = assessment.scenario.schedule.name
    mine = [row for row in assessment.estimate.alternatives if row.schedule == own]
    every = [set(row.reasons) for row in mine]
    shared = set.intersection(*every) if every else set()
    rows = []
    for row in mine:
        alone = "; ".join(reason for reason in row.reasons if reason not in shared)
        why = alone or ("see findings" if row.reasons else "" if row.fits else "does not fit")
        shape = _WAYS[row.comm_type]
        rows.append(
            [
                shape.format(u=row.ulysses_size, r=row.ring_size, label=row.label),
                show(row.bytes_sent_forward, "B"),
                cell(row.bytes_sent_backward, "B"),
                show(row.memory_bytes, "B"),
                cell(row.time_forward, "s"),
                cell(row.exposed_time, "s"),
                "best" if row.best else why,
            ]
        )
    columns = ["way", "sent", "backward", "memory", "layer", "exposed", ""]
    return Section(f"Ways to share the sequence, per rank and layer: {own}", columns, rows)


#: Implementations in the table; the others are in the JSON.
SHOWN = 6


def _implementations(assessment: Assessment) -> Section:
    own = assessment.scenario.schedule.name
    rows = [row for row in assessment.estimate.alternatives if row.implementation]
    able = sorted((row for row in rows if row.time is not None), key=lambda row: row.time)
    shown = [row for i, row in enumerate(able) if i < SHOWN or row.schedule == own or row.best]
    made = [
        [
            row.label,
            show(row.bytes_sent_forward, "B"),
            show(row.memory_bytes, "B"),
            show(row.time, "s"),
            cell(row.exposed_time, "s"),
            "best" if row.best else "" if row.fits else "does not fit",
        ]
        for row in shown
    ]
    hidden, unable = len(able) - len(shown), len(rows) - len(able)
    notes = [f"{hidden} slower ones"] if hidden else []
    notes += [f"{unable} that cannot run here"] if unable else []
    note = f"{' and '.join(notes)}: --format json says which and why" if notes else ""
    note = "; ".join(part for part in (_why(able), note) if part)
    columns = ["implementation", "sent", "memory", _LAYER[assessment.scenario.workload.phase]]
    title = "What implementations would take, per rank and layer"
    return Section(title, [*columns, "exposed", ""], made, note)


def _why(able: list[Alternative]) -> str:
    """Say by what the fastest implementation wins; nothing where it is alone, or one of equals."""
    best = next((row for row in able if row.best), None)
    others = [row for row in able if best is not None and row.time > 1.001 * best.time]
    if best is None or not others:
        return ""
    second = others[0]
    exposed = second.exposed_time - best.exposed_time
    saved = second.time - best.time
    by, seconds = "computes and merges", saved - exposed
    if exposed > saved / 2:
        by, seconds = "exposes", exposed
    return f"{best.label} {by} {show(seconds, 's')} less than {second.label}"


_LAYER = {"prefill": "layer", "train": "step", "decode": "layer"}


def _communication(assessment: Assessment) -> Section:
    cards = assessment.scenario.hardware.scale_out.cards
    rows = [
        [
            row.axis,
            row.link,
            f"{row.crossing_hops} of {row.ranks}" if row.crossing_hops else "none",
            f"{row.cards_busy} of {cards}" if row.cards_busy else "-",
            show(row.bytes, "B"),
            cell(row.time, "s"),
            cell(row.exposed_time, "s"),
            show(row.latencies, "1"),
        ]
        for row in assessment.estimate.communication
    ]
    return Section(
        "Communication of one rank, all its layers",
        ["axis", "link", "leaving", "cards", "bytes", "time", "exposed", "latencies"],
        rows,
    )


def _utilization(assessment: Assessment) -> Section:
    used, mesh = assessment.estimate.utilization, assessment.scenario.mesh
    attends = assessment.estimate.ring.verdict is not None
    if mesh.cp_size == 1 or assessment.scenario.workload.phase == "decode" or not attends:
        return Section("Causal mask", [], [])
    rows = [
        [name, show(part.exact, "%"), show(part.block_granular, "%")]
        for name, part in (
            ("contiguous", used.contiguous),
            ("zigzag", used.zigzag),
            ("striped", used.striped),
        )
    ]
    return Section(
        "Causal mask: useful attention time", ["partition", "exact pairs", "whole blocks"], rows
    )


def _decode(assessment: Assessment) -> Section:
    decode = assessment.estimate.decode
    if assessment.scenario.workload.phase == "train" or decode.kv_read_time is None:
        return Section("Decode", [], [])
    stay, rotate = decode.stationary_kv, decode.rotate_kv
    rows = [
        ["read the rank's cache", "-", show(decode.kv_read_time, "s")],
        [
            f"K/V stationary ({stay.latencies} latencies)",
            show(stay.bytes_sent, "B"),
            show(stay.time, "s"),
        ],
        ["K/V rotating", show(rotate.bytes_sent, "B"), show(rotate.time, "s")],
    ]
    prefix = assessment.estimate.cached_prefix
    if prefix is not None:
        rows += [
            [
                "prefill, pass-KV",
                show(prefix.pass_kv.bytes_sent, "B"),
                show(prefix.pass_kv.time, "s"),
            ],
            ["prefill, pass-Q", show(prefix.pass_q.bytes_sent, "B"), show(prefix.pass_q.time, "s")],
        ]
    if assessment.scenario.mesh.cp_size == 1:
        rows = rows[:1]
    return Section(
        "A decode step over this context, per rank and layer", ["", "sent", "time"], rows
    )


def _findings(assessment: Assessment) -> Section:
    rows = [[f.code, f.severity, f"{f.message}: {f.hint}"] for f in assessment.findings]
    return Section("Findings", ["code", "", "what, and the cure"], rows)


def given(inputs: list[dict[str, Any]]) -> Section:
    """List what the user gave, as file, ``--set`` or flag; the rest is defaults and profiles."""
    rows = [
        [row["path"], str(row["value"]), row["origin"]]
        for row in inputs
        if row["origin"] not in ("default", "missing")
        and not row["source"]
        and not row["origin"].startswith(("hardware_profiles/", "ringplan/data/"))
    ]
    note = f"ringplan {__version__}; every other value is a default, or has its source in a profile"
    return Section("Given", ["path", "value", "origin"], rows, note)
