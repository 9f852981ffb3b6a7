"""A scenario made small enough to run: same ratios, ranks, partition and heads, fewer tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ringplan.errors import SpecError
from ringplan.specs.model import LayerKind, ModelSpec

if TYPE_CHECKING:
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.workload import Workload

#: New tokens of a rank, where nobody asks for more; many ranks make do with few.
TOKENS, FEW_TOKENS, MANY_RANKS = 16, 4, 16
#: A head is made this many times the smallest that keeps the ratio of its sizes.
WIDTH: Final = 4
#: Cached tokens for a new one, at most; a longer prefix would repeat itself.
PREFIX: Final = 16
#: Sequences of a batch, at most.
SEQUENCES: Final = 2
#: Ranks that a process simulates, and scores of dense attention in a length asked for, at most.
MOST_RANKS, MOST_SCORES = 256, 2**29


def scaled(scenario: Scenario, kind: LayerKind, seq_len: int | None = None) -> Scenario:
    """
    Scale a scenario down to one attention layer on one tensor-parallel rank's heads.

    Parameters
    ----------
    scenario
        The question.
    kind
        The kind of layer to keep.
    seq_len
        Tokens of the scaled context, about; None is a few for each rank.

    Raises
    ------
    SpecError
        There are fewer tokens than the ranks need, or more than can be run.
    """
    mesh, tp_size = scenario.mesh, scenario.mesh.tp_size
    heads, groups = (
        -(-number // tp_size) for number in (kind.query_heads, kind.num_key_value_heads)
    )
    _bound(scenario, seq_len, heads)
    workload = _workload(scenario, seq_len)
    head_dim, v_head_dim = _widths(kind.head_dim, kind.v_head_dim)
    latent_dim = latent_v_dim = None
    if kind.latent_dim is not None and kind.latent_v_dim is not None:
        latent_dim, latent_v_dim = _widths(kind.latent_dim, kind.latent_v_dim)
    window = kind.window and max(kind.window * workload.seq_len // scenario.workload.seq_len, 2)
    layer = LayerKind(
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        latent_dim=latent_dim,
        latent_v_dim=latent_v_dim,
        window=window,
        active_intermediate_size=1,
    )
    model = ModelSpec(
        name=scenario.model.name,
        hidden_size=heads * head_dim,
        vocab_size=1,
        num_hidden_layers=1,
        kinds=(layer,),
        pattern=(0,),
        tensors=(),
        weights_dtype="bf16",
    )
    one = {"tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1}
    return scenario.model_copy(
        update={
            "model": model,
            "mesh": mesh.model_copy(update=one),
            "workload": workload,
            "rivals": (),
        }
    )


def least_tokens(scenario: Scenario) -> int:
    """Tokens of the shortest context that a scenario can be scaled to."""
    ratio, granule = _prefix(scenario), _granule(scenario)
    return scenario.mesh.cp_size * (granule + _cached(granule, ratio))


def _workload(scenario: Scenario, seq_len: int | None) -> Workload:
    """Scale the tokens so that every rank holds as many new ones, and as many cached ones."""
    mesh, work = scenario.mesh, scenario.workload
    ratio, granule = _prefix(scenario), _granule(scenario)
    tokens = TOKENS if mesh.cp_size <= MANY_RANKS else FEW_TOKENS
    if seq_len is not None:
        if seq_len < (least := least_tokens(scenario)):
            raise SpecError(
                f"seq_len={seq_len} is too short for {mesh.cp_size} ranks",
                hint=f"--seq-len {least} or more",
            )
        share = seq_len // mesh.cp_size
        tokens = max(int(share / (1 + ratio)) // granule * granule, granule)
        tokens -= granule if tokens + _cached(tokens, ratio) > share else 0
    cached = _cached(tokens, ratio)
    return work.model_copy(
        update={
            "seq_len": (tokens + cached) * mesh.cp_size,
            "cached_len": None if work.phase == "decode" else cached * mesh.cp_size,
            "new_tokens": None,
            "batch_size": min(work.batch_size, SEQUENCES),
            "kv_dtype": None,
        }
    )


def _prefix(scenario: Scenario) -> float:
    """Cached tokens for a new one; a decode step counts its whole context as held."""
    cached, new = scenario.workload.split
    return 0 if scenario.workload.phase == "decode" else min(cached / new, PREFIX)


def _granule(scenario: Scenario) -> int:
    """New tokens of a rank must be a multiple of this."""
    mesh = scenario.mesh
    halves = mesh.partition == "zigzag" and mesh.ring_size > 1
    return 2 if halves and scenario.workload.phase != "decode" else 1


def _cached(tokens: int, ratio: float) -> int:
    """Cached tokens beside some new ones: where there is a prefix, at least one."""
    return max(round(tokens * ratio), 1) if ratio else 0


def _bound(scenario: Scenario, seq_len: int | None, heads: int) -> None:
    """Refuse more ranks than can be simulated, and lengths at which dense attention takes long."""
    ranks = scenario.mesh.cp_size
    if ranks > MOST_RANKS:
        raise SpecError(
            f"cp_size={ranks:,} is more ranks than can be simulated",
            hint=f"a copy of the scenario with {MOST_RANKS} or fewer",
        )
    if seq_len is None:
        return
    sheets = min(scenario.workload.batch_size, SEQUENCES) * heads
    most = math.isqrt(int(MOST_SCORES * (1 + _prefix(scenario)) / sheets))
    if seq_len > most:
        least = least_tokens(scenario)
        raise SpecError(
            f"seq_len={seq_len:,} is too long: dense attention is quadratic",
            hint=f"--seq-len {most} or less" if least <= most else "leave --seq-len out",
        )


def _widths(first: int, second: int) -> tuple[int, int]:
    common = math.gcd(first, second)
    return first // common * WIDTH, second // common * WIDTH
