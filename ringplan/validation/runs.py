"""A scaled scenario set up to run: arrays, layouts, the dense answer, and the estimate of it."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ringplan.estimation.core import estimate_numbers
from ringplan.estimation.numbers import Wire, numbers
from ringplan.reference import dense, ulysses
from ringplan.reference.blocks import DTYPES, LogSumExp, Running, accumulator
from ringplan.reference.local import Setup, collect, place
from ringplan.reference.masks import Mask
from ringplan.reference.network import Network
from ringplan.reference.partition import PARTITIONS, contiguous, joined, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.estimation.results import Estimate
    from ringplan.reference.dense import Array
    from ringplan.reference.network import Rank
    from ringplan.reference.partition import Layout, Positions
    from ringplan.specs.model import LayerKind
    from ringplan.specs.scenario import Scenario

#: Error that a run may show against dense attention in fp64, relative to the norm.
TOLERANCES: Final = {"fp64": 1e-12, "fp32": 1e-5}
#: Largest relative error of one rounding to a 16-bit format.
ROUNDOFF: Final = {"bf16": 2.0**-8, "fp16": 2.0**-11}


def tolerance(dtype: str, num_ranks: int, *, backward: bool) -> float:
    """
    Error that a run may show against dense attention in fp64, relative to the norm.

    In 16 bits an output is rounded once by its block and once at the end. The gradients of K and V
    are rounded at every rank they visit, and such errors add up like the square root of the ranks.

    >>> tolerance("fp32", 8, backward=True), tolerance("bf16", 16, backward=True) * 2**8
    (1e-05, 4.0)
    """
    if dtype in TOLERANCES:
        return TOLERANCES[dtype]
    return ROUNDOFF[dtype] * (2 + (math.sqrt(num_ranks) / 2 if backward else 0))


#: Scores of dense attention held at one time; 2**18 of them in fp64 are 2 MiB, and stay in a cache.
MOST_SCORES_AT_ONCE: Final = 2**18


class Tensors(NamedTuple):
    """Q, K and V of the whole context, and a gradient of the output."""

    q: Array
    k: Array
    v: Array
    dout: Array


class Run:
    """
    Arrays and layouts of a scaled scenario in one format.

    Parameters
    ----------
    scenario
        What `scaled` made.
    dtype
        fp64, fp32, bf16 or fp16: of all arrays, and on the wires for which the schedule names no
        wider one.
    """

    def __init__(self, scenario: Scenario, dtype: str) -> None:
        self.scenario = scenario
        self.dtype = DTYPES[dtype]
        self.accumulator = accumulator(np.empty(0, self.dtype))
        schedule = scenario.schedule
        self.wire = self._wider(schedule.k_wire_dtype)
        self.gradient = self._wider(schedule.gradient_wire_dtype)
        self.partial = self._wider(schedule.partial_dtype)

    def _wider(self, named: str | None) -> np.dtype[Any]:
        """The run's format, or a schedule's that is wider."""
        other = DTYPES.get(named or "", self.dtype)
        return max(self.dtype, other, key=lambda dtype: dtype.itemsize)

    @property
    def network(self) -> Network:
        """A network with the formats of the schedule's wires."""
        return Network(self.wire)

    @property
    def kind(self) -> LayerKind:
        """The one kind of layer."""
        return self.scenario.model.kinds[0]

    @cached_property
    def estimate(self) -> Estimate:
        """What ringplan says of the scenario, in the run's formats."""
        x, wire = numbers(self.scenario), self.wire.itemsize
        run = x._replace(
            activation_bytes=self.dtype.itemsize,
            kv_bytes=wire,
            cached_wire_bytes=wire,
            wire=Wire(
                key=wire,
                value=wire,
                gradient=self.gradient.itemsize,
                first_gradient=self.gradient.itemsize,
                partial=self.partial.itemsize,
                latent_partial=self.partial.itemsize,
            ),
            accumulator_bytes=self.accumulator.itemsize,
        )
        return estimate_numbers(self.scenario, run)

    @cached_property
    def setup(self) -> Setup:
        """The mask, and who holds which tokens, of a pass over the new tokens."""
        work, mesh = self.scenario.workload, self.scenario.mesh
        cached, _ = work.split
        partition = contiguous if mesh.ring_size == 1 else PARTITIONS[mesh.partition]
        new = spread(partition(self.new, mesh.ring_size), mesh.ulysses_size)
        old = contiguous(np.arange(cached), mesh.ring_size)
        by_head = mesh.ulysses_size > 1
        return Setup(
            Mask(work.causal, self.kind.window),
            queries=new,
            keys=new if by_head else joined(old, new),
            cached=old if by_head and cached else (),
            state=LogSumExp if self.dtype.itemsize == 2 else Running,
            gradient_dtype=self.gradient,
        )

    @cached_property
    def new(self) -> Positions:
        """Positions of the new tokens."""
        cached, new = self.scenario.workload.split
        return np.arange(cached, cached + new)

    @property
    def last(self) -> Positions:
        """Position of the token that a decode step adds."""
        return np.array([self.scenario.workload.seq_len - 1])

    @cached_property
    def tensors(self) -> Tensors:
        """Tensors of a pass over the new tokens."""
        kind = self.kind
        return self._random(kind.num_key_value_heads, kind.head_dim, kind.v_head_dim)

    @cached_property
    def decode_setup(self) -> Setup:
        """The setup of a decode step: one query, which every rank may see, over the context."""
        mesh, seq_len = self.scenario.mesh, self.scenario.workload.seq_len
        last: Layout = ((self.last,),) * mesh.cp_size
        return Setup(
            Mask(window=self.kind.window),
            queries=last,
            keys=contiguous(np.arange(seq_len), mesh.cp_size),
            partial_dtype=self.partial,
            latent_v_dim=self.kind.latent_v_dim,
        )

    @cached_property
    def decode_tensors(self) -> Tensors:
        """Tensors of a decode step; with MLA one latent is K, and its leading columns V."""
        kind = self.kind
        if kind.latent_dim is None or kind.latent_v_dim is None:
            return self.tensors
        made = self._random(1, kind.latent_dim, kind.latent_v_dim)
        return made._replace(v=made.k[..., : kind.latent_v_dim])

    def _random(self, groups: int, head_dim: int, v_head_dim: int) -> Tensors:
        rng = np.random.default_rng(0)
        work, heads = self.scenario.workload, self.kind.query_heads

        def some(heads: int, width: int) -> Array:
            shape = (work.batch_size, heads, work.seq_len, width)
            return rng.standard_normal(shape).astype(self.dtype)

        return Tensors(
            some(heads, head_dim),
            some(groups, head_dim),
            some(groups, v_head_dim),
            some(heads, v_head_dim),
        )

    def place(self) -> list[Rank]:
        """Make ranks that hold their tokens of a pass."""
        q, k, v, dout = self.tensors
        ranks = place(self.setup, q, k, v, dout)
        if self.setup.cached:
            ulysses.place_cache(ranks, self.setup, self.scenario.mesh.ulysses_size, k, v)
        return ranks

    def place_cache(self) -> list[Rank]:
        """Make ranks that hold their shards of the cache, and the query of a decode step."""
        q, k, v, _ = self.decode_tensors
        ranks = place(self.decode_setup, q, k, v)
        if self.decode_setup.latent_v_dim is not None:
            for rank in ranks:
                rank["kv"] = rank["kv"][:1]
        return ranks

    @cached_property
    def exact(self) -> Array:
        """Dense output of the new tokens, in fp64."""
        return _dense(self.tensors, self.setup.mask, self.new)

    @cached_property
    def exact_decode(self) -> Array:
        """Dense output of the token that a decode step adds, in fp64."""
        return _dense(self.decode_tensors, self.decode_setup.mask, self.last)

    @cached_property
    def exact_gradients(self) -> tuple[Array, Array, Array]:
        """Dense gradients of Q, K and V, in fp64."""
        q, k, v, dout = (array.astype(np.float64) for array in self.tensors)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        for some in _slices(q, self.new):
            dq[:, :, some], more_dk, more_dv = dense.gradients(
                q[:, :, some], k, v, dout[:, :, some], self.setup.mask, queries=some, keys=self.new
            )
            dk += more_dk
            dv += more_dv
        return dq, dk, dv


def _dense(tensors: Tensors, mask: Mask, queries: Positions) -> Array:
    q, k, v, _ = (array.astype(np.float64) for array in tensors)
    keys = np.arange(k.shape[2])
    return np.concatenate(
        [
            dense.attention(q[:, :, some], k, v, mask, queries=some, keys=keys)[0]
            for some in _slices(q, queries)
        ],
        axis=2,
    )


def _slices(q: Array, queries: Positions) -> list[Positions]:
    """Cut queries so that the scores of a part stay small."""
    rows = max(MOST_SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * q.shape[2]), 1)
    return np.array_split(queries, -(-len(queries) // rows))


def gathered(ranks: Sequence[Rank], name: str, layout: Layout) -> list[Array]:
    """Whole arrays of what every rank holds a share of."""
    return [collect(parts, layout) for parts in zip(*(rank[name] for rank in ranks), strict=True)]


def relative_error(made: Sequence[Array], exact: Sequence[Array]) -> float:
    """
    Largest distance of an array from the exact one, relative to the exact one's norm.

    An array that should be zero is measured by its own norm; NaN anywhere is the answer.
    """
    return float(
        np.max([_distance(a.astype(np.float64), b) for a, b in zip(made, exact, strict=True)])
    )


def _distance(made: Array, exact: Array) -> float:
    norm = np.linalg.norm(exact)
    return float(np.linalg.norm(made - exact) / (norm or 1.0))
