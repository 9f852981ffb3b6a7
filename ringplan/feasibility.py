"""Why a layout cannot run, and the nearest that can."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ringplan.findings import Reason
from ringplan.schedule_rules import refusals
from ringplan.specs.dtypes import ROTARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.specs.model import LayerKind
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import Schedule


#: What each rule looks at.
CODES: Final = {
    "RP101": "New tokens, or documents, divide evenly over the ranks.",
    "RP102": "Tensor parallelism divides the query heads.",
    "RP103": "Tensor parallelism divides the KV heads, or is a multiple of them.",
    "RP104": "Ulysses divides the query heads of a rank.",
    "RP105": "Ulysses divides the KV heads of a rank, or replicates them.",
    "RP106": "Every pipeline stage has a layer.",
    "RP107": "Expert parallelism divides the experts.",
    "RP108": "The layers of the pipeline stages add up to the model's.",
    "RP109": "Decode context parallelism divides the ranks that hold the same KV head.",
    "RP111": "The model has as many draft layers as are asked for.",
    "RP112": "A cache has the format of latents only where latents are cached.",
    "RP113": "Data-parallel attention and decode context parallelism are for serving.",
    "RP115": "The schedule runs the phase, on this kind of device.",
    "RP116": "The schedule shares a sequence as the mesh does.",
    "RP117": "The schedule deals tokens as the partition says.",
    "RP118": "The schedule runs the model's attention: masks, windows, sinks.",
    "RP119": "The schedule runs the batch: sequences, documents, pipeline stages.",
}


def reasons(scenario: Scenario) -> list[Reason]:
    """List every rule across blocks that the layout breaks; memory is judged by the estimate."""
    rules = (
        _tokens,
        _tensor_parallel,
        _ulysses,
        _pipeline,
        _stage_layers,
        _decode_context,
        _drafts,
        _formats,
        _serving,
        _experts,
        refusals,
    )
    return [reason for rule in rules for reason in rule(scenario)]


def divisors(number: int, most: int) -> list[int]:
    """
    List the divisors up to a bound.

    >>> divisors(32, 10)
    [1, 2, 4, 8]
    """
    small = [d for d in range(1, math.isqrt(number) + 1) if not number % d]
    return sorted(d for d in {*small, *(number // d for d in small)} if d <= most)


def _closest(number: int, wanted: int) -> int:
    """Divisor of a number that is nearest to a wanted one, the larger of two."""
    return min(divisors(number, number), key=lambda d: (abs(d - wanted), -d))


def legal_cp(scenario: Scenario, wanted: int, *, up: bool) -> int | None:
    """Return the nearest legal cp_size, from a wanted one up or down: it divides the tokens."""
    mesh, exchange, new = scenario.mesh, scenario.mesh.ulysses_size, scenario.workload.split[1]
    if scenario.workload.phase == "decode":
        sizes = range(wanted, wanted + exchange * mesh.ep_size) if up else range(wanted, 0, -1)
        fair = (n for n in sizes if not n % exchange and not mesh.dp_size * n % mesh.ep_size)
        return next(fair, None)
    lengths = [length for length, _ in scenario.workload.document_lengths or ((new, 1),)]

    def whole(ranks: int) -> bool:
        multiple = scenario.schedule.multiple(ranks, ranks // exchange, mesh.partition)
        return not any(length % multiple for length in lengths)

    able = [
        ranks
        for ranks in divisors(math.gcd(*lengths), new)
        if not ranks % exchange and whole(ranks) and not mesh.dp_size * ranks % mesh.ep_size
    ]
    near = [ranks for ranks in able if (ranks >= wanted if up else ranks <= wanted)]
    return (min(near) if up else max(near)) if near else None


def _tokens(scenario: Scenario) -> Iterator[Reason]:
    mesh, work = scenario.mesh, scenario.workload
    if work.phase == "decode" or mesh.cp_size == 1:
        return
    multiple = scenario.schedule.multiple(mesh.cp_size, mesh.ring_size, mesh.partition)
    each = multiple // mesh.cp_size
    name = f"{each} x cp_size = {multiple}" if each > 1 else f"cp_size = {multiple}"
    if each > 1:
        zigzag = mesh.partition == "zigzag" and mesh.ring_size > 1 and each == 2
        name += f" ({mesh.partition if zigzag else scenario.schedule.name})"
    new, uneven = work.split[1], _uneven_documents(scenario, multiple)
    if uneven:
        yield Reason(
            "RP101",
            f"{uneven:,} documents are not a multiple of {name} tokens",
            f"pad each document to a multiple of {multiple} tokens",
            f"no: pad documents to {multiple}",
        )
    elif new % multiple and not scenario.cuts_documents:
        padded = -(-new // multiple) * multiple
        yield Reason(
            "RP101",
            f"{new:,} new tokens are not a multiple of {name}",
            _padding(scenario, padded - new),
            f"no: pad to a multiple of {multiple}",
        )


def _uneven_documents(scenario: Scenario, multiple: int) -> int:
    """Documents that must be padded, where each is cut over all ranks."""
    if not scenario.cuts_documents:
        return 0
    pairs = scenario.workload.document_lengths or ()
    return sum(count for length, count in pairs if length % multiple)


def _padding(scenario: Scenario, missing: int) -> str:
    new = scenario.workload.split[1]
    pad = f"pad by {missing:,} to --seq-len {scenario.workload.seq_len + missing}"
    if scenario.workload.new_tokens is not None:
        pad = f"--set workload.new_tokens={new + missing}"
    fewer = legal_cp(scenario, scenario.mesh.cp_size, up=False)
    if missing * 10 > new and fewer is not None:
        return f"--cp {fewer}, or {pad}"
    return pad


def _tensor_parallel(scenario: Scenario) -> Iterator[Reason]:
    mesh, kinds = scenario.mesh, _kinds(scenario)
    tp_size, copies = mesh.attention_tp_size, mesh.attention_dp_size
    for kind in kinds:
        heads, groups = kind.query_heads, kind.num_key_value_heads
        if _shares(kind, tp_size):
            continue
        able = [t for t in divisors(heads, heads) if all(_shares(each, t) for each in kinds)]
        u = scenario.mesh.ulysses_size
        both = [t for t in able if not heads // t % u and not -(-groups // t) % u]
        hint = f"--tp {copies * min(both or able, key=lambda t: (abs(t - tp_size), -t))}"
        name = f"tp_size={tp_size}"
        if copies > 1:
            name = f"tp_size / attention_dp_size = {tp_size}"
        if heads % tp_size:
            what, brief = f"does not divide {heads} query heads", f"{heads} heads"
            yield Reason("RP102", f"{name} {what}", hint, f"no: {brief} over tp {tp_size}")
        else:
            what = f"neither divides {groups} KV heads nor is a multiple of them"
            brief = f"no: {groups} KV heads over tp {tp_size}"
            yield Reason("RP103", f"{name} {what}", hint, brief)


def _shares(kind: LayerKind, tp_size: int) -> bool:
    """Whether tensor parallelism can share the heads; a latent is not shared at all."""
    heads, groups = kind.query_heads, kind.num_key_value_heads
    return not heads % tp_size and (
        kind.latent_dim is not None or not groups % tp_size or not tp_size % groups
    )


def _ulysses(scenario: Scenario) -> Iterator[Reason]:
    mesh = scenario.mesh
    if mesh.ulysses_size == 1:
        return
    for kind in _kinds(scenario):
        heads = -(-kind.query_heads // mesh.attention_tp_size)
        groups = -(-kind.num_key_value_heads // mesh.attention_tp_size)
        schedule, degree = scenario.schedule, mesh.ulysses_size
        able = [u for u in divisors(mesh.cp_size, 4096) if _exchanges(schedule, heads, groups, u)]
        nearest = min(able, key=lambda u: (abs(u - degree), -u))
        hint = f"--ulysses {nearest}, the rest of cp_size={mesh.cp_size} a ring"
        if schedule.comm_types == ("a2a",):
            whole = [u for u in range(1, heads + 1) if _exchanges(schedule, heads, groups, u)]
            hint = f"--cp {min(whole, key=lambda u: (abs(u - degree), -u))}"
        if _exchanges(schedule, heads, groups, degree):
            continue
        if heads % degree and (not schedule.uneven_heads or degree > heads):
            many = "exceeds" if mesh.ulysses_size > heads else "does not divide"
            yield Reason(
                "RP104",
                f"ulysses_size={mesh.ulysses_size} {many} the {heads} query heads of a rank"
                f" (tp_size x ulysses_size = {mesh.tp_size * mesh.ulysses_size}"
                f" over {kind.query_heads} heads)",
                hint,
                f"no: {heads} heads by {mesh.ulysses_size}",
            )
        else:
            shared = " nor is a multiple of them" if schedule.replicates_kv_heads else ""
            verb = "neither divides" if shared else "does not divide"
            yield Reason(
                "RP105",
                f"ulysses_size={mesh.ulysses_size} {verb} the {groups} KV heads of a rank{shared}",
                hint,
                f"no: {groups} KV head{'s' * (groups > 1)} by {mesh.ulysses_size}",
            )


def _exchanges(schedule: Schedule, heads: int, groups: int, degree: int) -> bool:
    """Whether ranks can trade tokens for heads: evenly, or as unevenly as the schedule takes."""
    if schedule.uneven_heads:
        return degree <= min(heads, groups) or degree == 1
    if heads % degree:
        return False
    return not groups % degree or (schedule.replicates_kv_heads and not degree % groups)


def _pipeline(scenario: Scenario) -> Iterator[Reason]:
    layers = scenario.model.num_hidden_layers
    if scenario.mesh.pp_size > layers:
        yield Reason(
            "RP106",
            f"pp_size={scenario.mesh.pp_size} is more than {layers} layers",
            f"--pp {layers}",
            "too many stages",
        )


def _stage_layers(scenario: Scenario) -> Iterator[Reason]:
    given, layers = scenario.mesh.pp_layers, scenario.model.num_hidden_layers
    if given is not None and sum(given) != layers:
        each, more = divmod(layers, len(given))
        even = [each + (stage < more) for stage in range(len(given))]
        yield Reason(
            "RP108",
            f"pp_layers add up to {sum(given)}, but {scenario.model.name} has {layers} layers",
            f"--set 'mesh.pp_layers={even}'",
            f"no: stages of {layers} layers",
        )


def _decode_context(scenario: Scenario) -> Iterator[Reason]:
    """Ranks can share the tokens of a KV head only where several hold the same one."""
    mesh = scenario.mesh
    if mesh.dcp_size == 1:
        return
    for kind in _kinds(scenario):
        groups = 1 if kind.latent_dim is not None else kind.num_key_value_heads
        copies = max(mesh.attention_tp_size // groups, 1)
        if copies % mesh.dcp_size:
            what = "copy" if copies == 1 else "copies"
            yield Reason(
                "RP109",
                f"dcp_size={mesh.dcp_size} does not divide the {copies} {what} of a KV head"
                f" ({groups} over {mesh.attention_tp_size} tensor-parallel ranks)",
                f"--set mesh.dcp_size={_closest(copies, mesh.dcp_size)}",
                f"no: {copies} {what} of a KV head",
            )
            return


def _serving(scenario: Scenario) -> Iterator[Reason]:
    """Ways to share attention that engines have and training has not."""
    mesh = scenario.mesh
    for name in ("attention_dp_size", "dcp_size"):
        if scenario.workload.phase == "train" and getattr(mesh, name) > 1:
            yield Reason(
                "RP113",
                f"{name}={getattr(mesh, name)} is for serving, and this is training",
                f"--set mesh.{name}=1",
                "no: for serving only",
            )


def _formats(scenario: Scenario) -> Iterator[Reason]:
    """A format of latents needs latents."""
    work, kinds = scenario.workload, scenario.model.kinds
    latent = work.cache_latents and any(kind.latent_dim is not None for kind in kinds)
    asked = [work.kv_dtype, work.k_dtype, work.v_dtype]
    if not latent and any(dtype in ROTARY_BYTES for dtype in asked):
        yield Reason(
            "RP112",
            f"{next(d for d in asked if d in ROTARY_BYTES)} is a format of latents, and"
            f" {scenario.model.name} caches none",
            "--kv-dtype fp8",
            "no: a format of latents",
        )


def _drafts(scenario: Scenario) -> Iterator[Reason]:
    asked, known = scenario.workload.draft_layers, len(scenario.model.draft_pattern)
    if asked > known:
        yield Reason(
            "RP111",
            f"draft_layers={asked}, but {scenario.model.name} has {known}",
            f"--set workload.draft_layers={known}",
            f"no: {known} draft layers",
        )


def _experts(scenario: Scenario) -> Iterator[Reason]:
    ep_size = scenario.mesh.ep_size
    ranks = scenario.mesh.dp_size * scenario.mesh.cp_size
    experts = next((t.shape[0] for t in scenario.model.tensors if t.split == "expert"), 0)
    if scenario.model.unknown:
        return
    if ep_size > 1 and experts == 0:
        yield Reason(
            "RP107", f"ep_size={ep_size}, but the model has no experts", "--ep 1", "no experts"
        )
    elif ep_size > 1 and experts % ep_size:
        yield Reason(
            "RP107",
            f"ep_size={ep_size} does not divide {experts} experts",
            f"--ep {_closest(math.gcd(experts, ranks), ep_size)}",
            f"{experts} experts over ep {ep_size}",
        )


def _kinds(scenario: Scenario) -> list[LayerKind]:
    """Kinds that differ in their heads; rules are told once for each."""
    seen: dict[tuple[int, int], LayerKind] = {}
    for kind in scenario.model.kinds:
        if kind.query_heads:
            seen.setdefault((kind.query_heads, kind.num_key_value_heads), kind)
    return list(seen.values())
