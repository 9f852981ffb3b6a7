"""A scenario made small enough to run: same ratios, ranks, partition and heads, fewer tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ringplan.errors import SpecError
from ringplan.specs.model import LayerKind, ModelSpec

if TYPE_CHECKING:
    from ringplan.specs.mesh import Mesh
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.workload import Workload

#: New tokens of a rank, where nobody asks for more; many ranks make do with few.
TOKENS, FEW_TOKENS, MANY_RANKS = 16, 4, 16
#: A head is made this many times the smallest that keeps the ratio of its sizes.
WIDTH: Final = 4
#: Cached tokens for a new one, at most; a longer prefix would repeat itself.
PREFIX: Final = 16
#: Ranks that a process simulates, and scores of dense attention that it computes, at most.
MOST_RANKS, MOST_SCORES = 256, 2**32


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
    if scenario.mesh.cp_size > MOST_RANKS:
        raise SpecError(
            f"cp_size={scenario.mesh.cp_size:,} is more ranks than can be simulated",
            hint=f"a copy of the scenario with {MOST_RANKS} or fewer",
        )
    workload = _workload(scenario, seq_len)
    tp_size = scenario.mesh.tp_size
    heads, groups = (
        -(-number // tp_size) for number in (kind.num_attention_heads, kind.num_key_value_heads)
    )
    most = math.isqrt(MOST_SCORES // (workload.batch_size * heads))
    if workload.seq_len > most:
        raise SpecError(
            f"seq_len={workload.seq_len:,} is too long: dense attention is quadratic",
            hint=f"--seq-len {most} or less",
        )
    head_dim, v_head_dim = _widths(kind.head_dim, kind.v_head_dim)
    latent_dim = latent_v_dim = None
    if kind.latent_dim is not None and kind.latent_v_dim is not None:
        latent_dim, latent_v_dim = _widths(kind.latent_dim, kind.latent_v_dim)
    window = kind.window and max(kind.window * workload.seq_len // scenario.workload.seq_len, 2)
    return scenario.model_copy(
        update={
            "model": ModelSpec(
                name=scenario.model.name,
                hidden_size=heads * head_dim,
                vocab_size=1,
                num_hidden_layers=1,
                kinds=(
                    LayerKind(
                        num_attention_heads=heads,
                        num_key_value_heads=groups,
                        head_dim=head_dim,
                        v_head_dim=v_head_dim,
                        latent_dim=latent_dim,
                        latent_v_dim=latent_v_dim,
                        window=window,
                        active_intermediate_size=1,
                    ),
                ),
                pattern=(0,),
                tensors=(),
                weights_dtype="bf16",
            ),
            "mesh": scenario.mesh.model_copy(
                update={"tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1}
            ),
            "workload": workload,
        }
    )


def _workload(scenario: Scenario, seq_len: int | None) -> Workload:
    """Scale the tokens so that every rank holds as many new ones, and as many cached ones."""
    mesh, work = scenario.mesh, scenario.workload
    cached, new = work.split
    decoding = work.phase == "decode"
    granule = 1 if decoding else token_granule(mesh)
    prefix = 0 if decoding else min(round(cached / new), PREFIX)
    if cached and not decoding:
        prefix = max(prefix, 1)
    parts = mesh.cp_size * (1 + prefix)
    tokens = TOKENS if mesh.cp_size <= MANY_RANKS else FEW_TOKENS
    if seq_len is not None:
        tokens = seq_len // parts // granule * granule
    if tokens < granule:
        raise SpecError(
            f"seq_len={seq_len} is too short for {mesh.cp_size} ranks",
            hint=f"--seq-len {parts * granule} or more",
        )
    return work.model_copy(
        update={
            "seq_len": tokens * parts,
            "cached_len": None if decoding else tokens * mesh.cp_size * prefix,
            "new_tokens": None,
            "batch_size": min(work.batch_size, 2),
            "kv_dtype": None,
        }
    )


def token_granule(mesh: Mesh) -> int:
    """New tokens of a rank must be a multiple of this."""
    return 2 if mesh.partition == "zigzag" and mesh.ring_size > 1 else 1


def _widths(first: int, second: int) -> tuple[int, int]:
    common = math.gcd(first, second)
    return first // common * WIDTH, second // common * WIDTH
