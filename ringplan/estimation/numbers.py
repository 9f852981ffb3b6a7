"""
The numbers of a scenario, ready for the formulas: plain, or each with its origin.

Here, in `kinds` and in `stages`, and nowhere else, specs are unpacked. To explain an estimate, the
same wiring runs on `Known` numbers instead of plain ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ringplan.costs import cache, layout, model_state
from ringplan.estimation.domains import inner_ring
from ringplan.estimation.kinds import Kind, cache_formats, kind_of, widest_kind
from ringplan.estimation.leaves import Leaves, plain
from ringplan.estimation.placement import sizes_of
from ringplan.estimation.stages import Stage, stages_of
from ringplan.specs.dtypes import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number
    from ringplan.estimation.leaves import Table
    from ringplan.specs.mesh import Partition
    from ringplan.specs.scenario import Scenario
    from ringplan.specs.schedule import Schedule


class Tokens(NamedTuple):
    """
    Tokens of one sequence.

    Attributes
    ----------
    new, cached, context
        Of the pass, cached before it, and both together.
    block, rank
        Of the context on one rank, and of the pass on one rank.
    """

    new: Number
    cached: Number
    context: Number
    block: Number
    rank: Number


class Wire(NamedTuple):
    """
    Bytes of an element on the wire.

    Attributes
    ----------
    key, value, gradient
        Of K, of V, of dK and dV.
    first_gradient
        Of dK and dV in the first window of a double ring.
    partial, latent_partial
        Of the partial outputs that decode returns, and of those of latents.
    """

    key: Number
    value: Number
    gradient: Number
    first_gradient: Number
    partial: Number
    latent_partial: Number


class Numbers(NamedTuple):
    """Everything that the formulas of one estimate need."""

    leaf: Leaves
    schedule: Schedule
    asked_schedule: str
    sizes: dict[str, int]
    phase: str
    multiple: Number
    documents: Table | None
    cuts_documents: bool
    recomputes: bool
    causal: bool
    partition: Partition
    kinds: tuple[Kind, ...]
    widest: int
    stages: tuple[Stage, ...]
    unknown: bool
    hidden_size: Number
    vocab_size: Number
    cp_size: Number
    ulysses_size: Number
    tp_size: Number
    attention_tp_size: Number
    attention_dp_size: Number
    inner_ring_size: Number
    dcp_size: Number
    pp_size: Number
    dp_size: Number
    ep_size: Number
    world_size: Number
    tokens: Tokens
    asked_tokens: Number
    batch_size: Number
    attention_batch_size: Number
    shared_tokens: Number
    activation_bytes: Number
    kv_bytes: Number
    cached_wire_bytes: Number | None
    wire: Wire
    accumulator_bytes: Number
    weights_bytes: Number
    unquantized_bytes: Number
    embedding_bytes: Number

    def of_schedule(self, name: str, value: Any = None) -> Number:
        """Give a field of the schedule, or what a rule makes of it."""
        value = getattr(self.schedule, name) if value is None else value
        if self.schedule.name == self.asked_schedule:
            return self.leaf(f"schedule.{name}", value)
        return self.leaf.derived(name, value, f"schedule {self.schedule.name}")


def numbers(scenario: Scenario, origin: Callable[[str], str] | None = None) -> Numbers:
    """
    Unpack a scenario.

    Parameters
    ----------
    scenario
        The question.
    origin
        Path to origin in words; with it every number is a `Known`.
    """
    leaf = Leaves(origin)
    model, mesh, work = scenario.model, scenario.mesh, scenario.workload
    cached, new = work.split
    multiple = leaf.derived(
        "multiple", token_multiple(scenario), f"{mesh.partition} over mesh.cp_size={mesh.cp_size}"
    )
    asked = leaf("workload.new_tokens" if work.new_tokens else "workload.seq_len", new)
    documents = None
    new_tokens = layout.padded_tokens(new_tokens=asked, multiple=multiple)
    if work.document_lengths is not None:
        documents = leaf.table("workload.document_lengths", work.document_lengths)
        if scenario.cuts_documents:
            new_tokens = layout.padded_documents(
                lengths=documents.sizes, counts=documents.shares, multiple=multiple
            )

    def size(path: str, dtype: str | None) -> Number:
        """Bytes of an element; where a format is not given, it is the activations'."""
        if dtype is None:
            path, dtype = "workload.activation_dtype", work.activation_dtype
        return leaf(path, ELEMENT_BYTES[dtype])

    cached_tokens = leaf("workload.cached_len", cached)
    cp_size = leaf("mesh.cp_size", mesh.cp_size)
    tp_size = leaf("mesh.tp_size", mesh.tp_size)
    replicas = leaf("mesh.attention_dp_size", mesh.attention_dp_size)
    attention_tp_size = layout.attention_ranks(tp_size=tp_size, attention_dp_size=replicas)
    batch_size = leaf("workload.batch_size", work.batch_size)
    sequences = layout.replica_sequences(batch_size=batch_size, attention_dp_size=replicas)
    formats = cache_formats(leaf, scenario)
    kinds = tuple(
        kind_of(leaf, scenario, i, attention_tp_size, formats) for i in range(len(model.kinds))
    )
    widest = widest_kind(model)
    weights_bytes, sixteen = _weight_formats(leaf, scenario, size)

    made = Numbers(
        leaf=leaf,
        schedule=scenario.schedule,
        asked_schedule=scenario.schedule.name,
        sizes=sizes_of(mesh),
        phase=work.phase,
        multiple=multiple,
        documents=documents,
        cuts_documents=scenario.cuts_documents,
        recomputes=work.phase == "train" and work.recompute == "full",
        causal=work.causal,
        partition=mesh.partition,
        kinds=kinds,
        widest=widest,
        stages=stages_of(leaf, scenario),
        unknown=bool(model.unknown) or not any(kind.attends for kind in kinds),
        hidden_size=leaf("model.hidden_size", model.hidden_size),
        vocab_size=leaf("model.vocab_size", model.vocab_size),
        cp_size=cp_size,
        ulysses_size=leaf("mesh.ulysses_size", mesh.ulysses_size),
        tp_size=tp_size,
        attention_tp_size=attention_tp_size,
        attention_dp_size=replicas,
        inner_ring_size=leaf.derived(
            "inner_ring_size", inner_ring(scenario), "neighbours in one fast domain"
        )
        if mesh.inner_ring_size is None
        else leaf("mesh.inner_ring_size", mesh.inner_ring_size),
        dcp_size=leaf("mesh.dcp_size", mesh.dcp_size),
        pp_size=leaf("mesh.pp_size", mesh.pp_size),
        dp_size=leaf("mesh.dp_size", mesh.dp_size),
        ep_size=leaf("mesh.ep_size", mesh.ep_size),
        world_size=leaf.derived("world_size", mesh.world_size, "tp x cp x pp x dp"),
        tokens=tokens_of(new_tokens, cached_tokens, cp_size, decoding=work.phase == "decode"),
        asked_tokens=asked,
        batch_size=batch_size,
        attention_batch_size=sequences,
        shared_tokens=leaf("workload.shared_len", work.shared_len),
        activation_bytes=size("workload.activation_dtype", work.activation_dtype),
        kv_bytes=cache.mean_element_bytes(
            row_bytes=kinds[widest].cached.row_bytes, elements=kinds[widest].cached.elements
        )
        if kinds[widest].attends
        else formats.key,
        cached_wire_bytes=formats.wire if cached else None,
        wire=NOTHING,
        accumulator_bytes=leaf.derived("accumulator_bytes", 4, "kernels accumulate in fp32"),
        weights_bytes=weights_bytes,
        unquantized_bytes=sixteen,
        embedding_bytes=sixteen
        if work.embedding_dtype is None
        else size("workload.embedding_dtype", work.embedding_dtype),
    )
    return with_schedule(made, scenario.schedule)


NOTHING = Wire(0, 0, 0, 0, 0, 0)


def with_schedule(x: Numbers, schedule: Schedule) -> Numbers:
    """Return the numbers under the rules of a schedule."""
    x = x._replace(schedule=schedule)

    def size(name: str, other: str = "") -> Number:
        """Bytes of an element; a format that a schedule does not name is the activations'."""
        for field in (name, other):
            dtype = getattr(schedule, field, None)
            if dtype is not None:
                return x.of_schedule(field, ELEMENT_BYTES[dtype])
        return x.activation_bytes

    return x._replace(
        wire=Wire(
            key=size("k_wire_dtype"),
            value=size("v_wire_dtype"),
            gradient=size("gradient_wire_dtype"),
            first_gradient=size("first_window_gradient_dtype", "gradient_wire_dtype"),
            partial=size("partial_dtype"),
            latent_partial=size("latent_partial_dtype", "partial_dtype"),
        )
    )


def _weight_formats(
    leaf: Leaves, scenario: Scenario, size: Callable[[str, str | None], Number]
) -> tuple[Number, Number]:
    """Bytes of a quantised parameter and of another; training runs in the activations' format."""
    model, work = scenario.model, scenario.workload
    training = work.phase == "train"
    weights_bytes = model_state.quantized_bytes(
        element_bytes=size("workload.weights_dtype", work.weights_dtype)
        if work.weights_dtype or training
        else size("model.weights_dtype", model.weights_dtype),
        scale_bytes=leaf.derived("scale_bytes", 0, "training has none")
        if training
        else leaf("model.scale_bytes", model.scale_bytes),
    )
    sixteen = leaf.derived(
        "unquantized_bytes",
        max(2, plain(weights_bytes)),
        "embeddings, head, norms and routers stay in 16 bits",
    )
    return weights_bytes, sixteen


def token_multiple(scenario: Scenario) -> int:
    """New tokens of a sequence must be a multiple of this for every rank to hold as many."""
    mesh = scenario.mesh
    if scenario.workload.phase == "decode":
        return 1
    return scenario.schedule.multiple(mesh.cp_size, mesh.ring_size, mesh.partition)


def tokens_of(new: Number, cached: Number, cp_size: Number, *, decoding: bool) -> Tokens:
    """Divide a sequence over the ranks; in decode every rank has the queries."""
    context = layout.context_tokens(cached_tokens=cached, new_tokens=new)
    return Tokens(
        new=new,
        cached=cached,
        context=context,
        block=layout.shard_tokens(tokens=context, cp_size=cp_size),
        rank=new if decoding else layout.shard_tokens(tokens=new, cp_size=cp_size),
    )


def with_tokens(x: Numbers, tokens: int, why: str) -> Numbers:
    """Return the numbers with other new tokens or, in decode, with other cached ones."""
    new, cached, decoding = x.tokens.new, x.tokens.cached, x.phase == "decode"
    if decoding:
        cached = x.leaf.derived("cached_tokens", tokens, why)
    else:
        new = x.leaf.derived("new_tokens", tokens, why)
    return x._replace(asked_tokens=new, tokens=tokens_of(new, cached, x.cp_size, decoding=decoding))


def with_cached(x: Numbers, tokens: int, why: str) -> Numbers:
    """Return the numbers with other cached tokens, the pass unchanged."""
    cached = x.leaf.derived("cached_tokens", tokens, why)
    decoding = x.phase == "decode"
    return x._replace(tokens=tokens_of(x.tokens.new, cached, x.cp_size, decoding=decoding))


def with_rings(x: Numbers, ring_size: int, why: str) -> Numbers:
    """Return the numbers with another ring size, the exchange of heads unchanged."""
    decoding, exchange = x.phase == "decode", x.sizes["ulysses"]
    ranks = x.leaf.derived("cp_size", ring_size * exchange, why)
    others = x.sizes["tp"] * x.sizes["pp"] * x.sizes["dp"]
    new = x.tokens.new
    if not decoding:
        multiple = x.schedule.multiple(ring_size * exchange, ring_size, x.partition)
        new = layout.padded_tokens(
            new_tokens=x.asked_tokens,
            multiple=x.leaf.derived("multiple", multiple, f"{x.partition} over so many ranks"),
        )
    return x._replace(
        sizes={**x.sizes, "ring": ring_size},
        inner_ring_size=_whole_windows(x, ring_size),
        cp_size=ranks,
        world_size=x.leaf.derived("world_size", ring_size * exchange * others, why),
        tokens=tokens_of(new, x.tokens.cached, ranks, decoding=decoding),
    )


def with_sequences(x: Numbers, sequences: int, why: str) -> Numbers:
    """Return the numbers with another batch on every replica of the model."""
    batch = x.leaf.derived("batch_size", sequences, why)
    dealt = layout.replica_sequences(batch_size=batch, attention_dp_size=x.attention_dp_size)
    return x._replace(batch_size=batch, attention_batch_size=dealt)


def with_ulysses(x: Numbers, ulysses_size: int) -> Numbers:
    """Return the numbers of a candidate: the same ranks, another share of them exchanging heads."""
    sizes = dict(x.sizes)
    sizes["ring"] = sizes["ring"] * sizes["ulysses"] // ulysses_size
    sizes["ulysses"] = ulysses_size
    candidate = x.leaf.derived("ulysses_size", ulysses_size, "a candidate layout")
    return x._replace(
        sizes=sizes, ulysses_size=candidate, inner_ring_size=_whole_windows(x, sizes["ring"])
    )


def _whole_windows(x: Numbers, ring_size: int) -> Number:
    inner = plain(x.inner_ring_size)
    if not ring_size % inner:
        return x.inner_ring_size
    return x.leaf.derived("inner_ring_size", math.gcd(inner, ring_size), "divides the ring")
