"""
The numbers of a scenario, ready for the formulas: plain, or each with its origin.

This is the only place where specs are unpacked. To explain an estimate, the same wiring runs on
`Known` numbers instead of plain ones.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ringplan.costs import cache, layout, memory
from ringplan.costs.formula import Known
from ringplan.specs.dtypes import ELEMENT_BYTES, ROTARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringplan.costs.numeric import Number
    from ringplan.specs.model import LayerKind, ModelSpec, Tensor
    from ringplan.specs.scenario import Scenario


class Leaves:
    """
    Hands out a scenario's numbers, plain or with their origin.

    Parameters
    ----------
    origin
        Path to origin in words; None for plain numbers.
    """

    def __init__(self, origin: Callable[[str], str] | None = None) -> None:
        self._origin = origin

    def __call__(self, path: str, value: Any) -> Number:
        """Give the value at a path of the scenario."""
        if self._origin is None:
            return cast("Number", value)
        return cast("Number", Known(value, path, self._origin(path)))

    def derived(self, name: str, value: Any, why: str) -> Number:
        """Give a value that a rule derived from the scenario, and the rule."""
        if self._origin is None:
            return cast("Number", value)
        return cast("Number", Known(value, name, why))

    def table(self, path: str, pairs: tuple[tuple[Any, ...], ...]) -> Table:
        """Give an efficiency table as sizes and shares."""
        sizes, shares = zip(*pairs, strict=True)
        return Table(self(path, sizes), self(path, shares))


class Table(NamedTuple):
    """An efficiency by size of the work."""

    sizes: Any
    shares: Any


class Kind(NamedTuple):
    """One kind of layer: layers and heads of the whole model, and heads on one rank."""

    layers: Number
    num_attention_heads: Number
    num_key_value_heads: Number
    rank_heads: Number
    rank_kv_heads: Number
    head_dim: Number
    v_head_dim: Number
    latent_dim: Number | None
    latent_v_dim: Number | None
    window: Number | None
    compress_ratio: Number | None
    caches: bool
    cached: Cached
    state: State
    active_intermediate_size: Number
    mixer_width: Number
    num_experts_per_tok: Number | None

    @property
    def attends(self) -> bool:
        """Whether the layer has attention."""
        return bool(plain(self.num_key_value_heads))

    @property
    def grows(self) -> bool:
        """Whether its cache grows with the context."""
        return self.attends and self.caches and (self.window is None or self.compressed)

    @property
    def compressed(self) -> bool:
        """Whether a compressed cache grows beside its window."""
        return self.compress_ratio is not None


class Cached(NamedTuple):
    """What a token leaves in the caches of a layer: of the whole job, and on one rank."""

    elements: Number
    row_bytes: Number
    rank_row_bytes: Number
    indexer_bytes: Number


class State(NamedTuple):
    """What a sequence leaves in a layer whose state does not grow."""

    heads: Number
    conv: Number
    recurrent: Number


class Stage(NamedTuple):
    """One pipeline stage: how many layers of each kind, and the parameters by how they split."""

    number: int
    memory: Number | None
    layers: tuple[Number, ...]
    parameters: ByFormat
    last: bool


class ByFormat(NamedTuple):
    """Parameters that are quantised when the weights are, embeddings, and the 16-bit rest."""

    quantized: Parameters
    embedding: Parameters
    unquantized: Parameters


class Parameters(NamedTuple):
    """Parameters of a stage by the way ranks share them."""

    replicated: Number
    tensor: Number
    heads: Number
    kv: tuple[Number, ...]
    expert: Number


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


class Numbers(NamedTuple):
    """Everything that the formulas of one estimate need."""

    leaf: Leaves
    sizes: dict[str, int]
    phase: str
    causal: bool
    partition: str
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
    dcp_size: Number
    pp_size: Number
    dp_size: Number
    ep_size: Number
    world_size: Number
    tokens: Tokens
    batch_size: Number
    attention_batch_size: Number
    shared_tokens: Number
    activation_bytes: Number
    kv_bytes: Number
    wire_bytes: Number
    cached_wire_bytes: Number
    gradient_wire_bytes: Number
    partial_bytes: Number
    accumulator_bytes: Number
    weights_bytes: Number
    unquantized_bytes: Number
    embedding_bytes: Number


def widest_kind(model: ModelSpec) -> int:
    """Index of the full-attention kind with the widest K and V; of any, where none is full."""
    attends = [i for i, kind in enumerate(model.kinds) if kind.num_key_value_heads]
    full = [i for i in attends if model.kinds[i].window is None]
    return max(
        full or attends or range(len(model.kinds)),
        key=lambda i: (
            model.kinds[i].num_key_value_heads
            * (model.kinds[i].head_dim + model.kinds[i].v_head_dim)
        ),
    )


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
    schedule = scenario.schedule
    cached, new = work.split
    multiple = leaf.derived(
        "multiple", token_multiple(scenario), f"{mesh.partition} over mesh.cp_size={mesh.cp_size}"
    )
    new_tokens = layout.padded_tokens(
        new_tokens=leaf("workload.new_tokens" if work.new_tokens else "workload.seq_len", new),
        multiple=multiple,
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
    formats = _formats(leaf, scenario)
    kinds = tuple(
        _kind(leaf, scenario, i, attention_tp_size, formats) for i in range(len(model.kinds))
    )
    widest = widest_kind(model)
    weights_bytes = memory.quantized_bytes(
        element_bytes=size(
            "workload.weights_dtype" if work.weights_dtype else "model.weights_dtype",
            work.weights_dtype or model.weights_dtype,
        ),
        scale_bytes=leaf("model.scale_bytes", model.scale_bytes),
    )
    sixteen = leaf.derived(
        "unquantized_bytes",
        max(2, plain(weights_bytes)),
        "embeddings, head, norms and routers stay in 16 bits",
    )

    return Numbers(
        leaf=leaf,
        sizes={
            "tp": mesh.tp_size,
            "ulysses": mesh.ulysses_size,
            "ring": mesh.ring_size,
            "dp": mesh.dp_size,
            "pp": mesh.pp_size,
        },
        phase=work.phase,
        causal=work.causal,
        partition=mesh.partition,
        kinds=kinds,
        widest=widest,
        stages=_stages(leaf, scenario),
        unknown=bool(model.unknown) or not any(kind.attends for kind in kinds),
        hidden_size=leaf("model.hidden_size", model.hidden_size),
        vocab_size=leaf("model.vocab_size", model.vocab_size),
        cp_size=cp_size,
        ulysses_size=leaf("mesh.ulysses_size", mesh.ulysses_size),
        tp_size=tp_size,
        attention_tp_size=attention_tp_size,
        attention_dp_size=replicas,
        dcp_size=leaf("mesh.dcp_size", mesh.dcp_size),
        pp_size=leaf("mesh.pp_size", mesh.pp_size),
        dp_size=leaf("mesh.dp_size", mesh.dp_size),
        ep_size=leaf("mesh.ep_size", mesh.ep_size),
        world_size=leaf.derived("world_size", mesh.world_size, "tp x cp x pp x dp"),
        tokens=tokens_of(new_tokens, cached_tokens, cp_size, decoding=work.phase == "decode"),
        batch_size=batch_size,
        attention_batch_size=layout.replica_sequences(
            batch_size=batch_size, attention_dp_size=replicas
        ),
        shared_tokens=cached_tokens
        if work.shared_prefix
        else leaf.derived("shared_tokens", 0, f"workload.shared_prefix={work.shared_prefix}"),
        activation_bytes=size("workload.activation_dtype", work.activation_dtype),
        kv_bytes=cache.mean_element_bytes(
            row_bytes=kinds[widest].cached.row_bytes, elements=kinds[widest].cached.elements
        )
        if kinds[widest].attends
        else formats.key,
        wire_bytes=size("schedule.wire_dtype", schedule.wire_dtype),
        cached_wire_bytes=formats.wire
        if cached and formats.wire is not None
        else size("schedule.wire_dtype", schedule.wire_dtype),
        gradient_wire_bytes=size("schedule.gradient_wire_dtype", schedule.gradient_wire_dtype),
        partial_bytes=size("schedule.partial_dtype", schedule.partial_dtype),
        accumulator_bytes=leaf.derived("accumulator_bytes", 4, "kernels accumulate in fp32"),
        weights_bytes=weights_bytes,
        unquantized_bytes=sixteen,
        embedding_bytes=sixteen
        if work.embedding_dtype is None
        else size("workload.embedding_dtype", work.embedding_dtype),
    )


def token_multiple(scenario: Scenario) -> int:
    """New tokens of a sequence must be a multiple of this for every rank to hold as many."""
    mesh = scenario.mesh
    if scenario.workload.phase == "decode" or mesh.cp_size == 1:
        return 1
    return mesh.cp_size * (2 if mesh.partition == "zigzag" and mesh.ring_size > 1 else 1)


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
    return x._replace(tokens=tokens_of(new, cached, x.cp_size, decoding=decoding))


def with_rings(x: Numbers, ring_size: int, why: str) -> Numbers:
    """Return the numbers with another ring size, the exchange of heads unchanged."""
    ranks = x.leaf.derived("cp_size", ring_size * x.sizes["ulysses"], why)
    return x._replace(
        sizes={**x.sizes, "ring": ring_size},
        cp_size=ranks,
        tokens=tokens_of(x.tokens.new, x.tokens.cached, ranks, decoding=x.phase == "decode"),
    )


def with_ulysses(x: Numbers, ulysses_size: int) -> Numbers:
    """Return the numbers of a candidate: the same ranks, another share of them exchanging heads."""
    sizes = dict(x.sizes)
    sizes["ring"] = sizes["ring"] * sizes["ulysses"] // ulysses_size
    sizes["ulysses"] = ulysses_size
    candidate = x.leaf.derived("ulysses_size", ulysses_size, "a candidate layout")
    return x._replace(sizes=sizes, ulysses_size=candidate)


def plain(value: Any) -> Any:
    """Return the number itself, for a decision that no formula takes."""
    return value.value if isinstance(value, Known) else value


class _Formats(NamedTuple):
    """Bytes of a cached element, by what it is."""

    key: Number
    value: Number
    rotary: Number
    wire: Number | None
    indexer: Number
    indexer_scale: Number
    alignment: Number


def _formats(leaf: Leaves, scenario: Scenario) -> _Formats:
    """Find the formats of the cache: the workload's, else the checkpoint's, else activations'."""
    work, model = scenario.workload, scenario.model
    path, dtype = "workload.activation_dtype", str(work.activation_dtype)
    if model.kv_dtype is not None:
        path, dtype = "model.kv_dtype", model.kv_dtype
    if work.kv_dtype is not None:
        path, dtype = "workload.kv_dtype", work.kv_dtype

    def size(own: str | None, name: str, table: Mapping[str, float]) -> Number:
        where, which = (path, dtype) if own is None else (f"workload.{name}", own)
        return leaf(where, table.get(which, ELEMENT_BYTES[which]))

    given = work.kv_dtype or model.kv_dtype
    return _Formats(
        key=size(work.k_dtype, "k_dtype", ELEMENT_BYTES),
        value=size(work.v_dtype, "v_dtype", ELEMENT_BYTES),
        rotary=size(work.k_dtype, "k_dtype", ROTARY_BYTES),
        wire=None if given is None else leaf(path, ELEMENT_BYTES[given]),
        indexer=leaf.derived("element_bytes", 1, "an indexer caches keys in fp8"),
        indexer_scale=leaf.derived("scale_bytes", 4, "and one fp32 scale a key"),
        alignment=leaf("engine.row_alignment", scenario.engine.row_alignment),
    )


def _kind(leaf: Leaves, scenario: Scenario, index: int, tp_size: Number, formats: _Formats) -> Kind:
    model, drafts = scenario.model, scenario.workload.draft_layers
    kind, path = model.kinds[index], f"model.kinds.{index}"
    if not scenario.workload.cache_latents:
        kind = kind.model_copy(update={"latent_dim": None, "latent_v_dim": None})
    of_drafts = f" and {drafts} draft layers" if drafts else ""

    def field(name: str) -> Number:
        return leaf(f"{path}.{name}", getattr(kind, name))

    def optional(name: str) -> Number | None:
        return None if getattr(kind, name) is None else field(name)

    heads, groups = field("num_attention_heads"), field("num_key_value_heads")
    rank_kv_heads = layout.kv_heads(num_key_value_heads=groups, tp_size=tp_size)
    return Kind(
        layers=leaf.derived(
            f"layers of kind {index}",
            (model.pattern + model.draft_pattern[:drafts]).count(index),
            f"of {model.num_hidden_layers} layers{of_drafts} of {model.name}",
        ),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        rank_heads=heads
        if kind.num_attention_heads is None
        else layout.query_heads(num_attention_heads=heads, tp_size=tp_size),
        rank_kv_heads=rank_kv_heads,
        head_dim=field("head_dim"),
        v_head_dim=field("v_head_dim"),
        latent_dim=optional("latent_dim"),
        latent_v_dim=optional("latent_v_dim"),
        window=optional("window"),
        compress_ratio=optional("compress_ratio"),
        caches=kind.caches,
        cached=_cached(leaf, kind, field, rank_kv_heads, formats),
        state=State(field("state_heads"), field("conv_state"), field("recurrent_state")),
        active_intermediate_size=field("active_intermediate_size"),
        mixer_width=field("mixer_width"),
        num_experts_per_tok=field("num_experts_per_tok") if kind.num_experts_per_tok else None,
    )


def _cached(
    leaf: Leaves,
    kind: LayerKind,
    field: Callable[[str], Number],
    rank_kv_heads: Number,
    formats: _Formats,
) -> Cached:
    """What a token leaves in the caches of a layer."""
    indexer = cache.indexer_row_bytes(
        indexer_dim=field("indexer_dim"),
        element_bytes=formats.indexer,
        scale_bytes=formats.indexer_scale,
        present=leaf.derived("present", int(kind.indexer_dim > 0), "1 with an indexer"),
    )
    if kind.latent_dim is not None:
        latent = cache.latent_row_bytes(
            latent_dim=field("latent_dim"),
            latent_v_dim=field("latent_v_dim"),
            latent_bytes=formats.key,
            rotary_bytes=formats.rotary,
            alignment=formats.alignment,
        )
        return Cached(field("latent_dim"), latent, latent, indexer)

    def row(num_kv_heads: Number) -> Number:
        return cache.cache_row_bytes(
            num_kv_heads=num_kv_heads,
            head_dim=field("head_dim"),
            v_head_dim=field("v_head_dim"),
            k_bytes=formats.key,
            v_bytes=formats.value,
            alignment=formats.alignment,
        )

    groups = field("num_key_value_heads")
    elements = cache.cached_elements(
        num_kv_heads=groups, head_dim=field("head_dim"), v_head_dim=field("v_head_dim")
    )
    return Cached(elements, row(groups), row(rank_kv_heads), indexer)


def stage_slices(
    num_layers: int, pp_size: int, given: tuple[int, ...] | None = None
) -> list[slice]:
    """
    Cut the layers into stages as given, or evenly, the first ones one longer where need be.

    >>> stage_slices(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    if given is not None:
        return [slice(a, b) for a, b in pairwise(accumulate(given, initial=0))]
    each, more = divmod(num_layers, pp_size)
    ends = [each * s + min(s, more) for s in range(pp_size + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def _stages(leaf: Leaves, scenario: Scenario) -> tuple[Stage, ...]:
    """Build the stages that differ: equal ones are alike in every number."""
    model, mesh = scenario.model, scenario.mesh
    drafts = model.draft_pattern[: scenario.workload.draft_layers]
    stages: dict[tuple[Any, ...], Stage] = {}
    slices = stage_slices(
        len(model.pattern), min(mesh.pp_size, len(model.pattern) + 1), mesh.pp_layers
    )
    for index, part in enumerate(slices):
        counts = Counter(model.pattern[part])
        first, last = index == 0, index == len(slices) - 1
        if last:
            counts.update(drafts)
        room = None if mesh.pp_memory is None else mesh.pp_memory[min(index, mesh.pp_size - 1)]
        key = (first, last, room, *sorted(counts.items()))
        if key not in stages:
            stages[key] = _stage(
                leaf, model, index, counts, first=first, last=last, drafts=len(drafts), room=room
            )
    return tuple(stages.values())


_SPLITS = {
    "none": "replicated",
    "tensor": "tensor-parallel",
    "heads": "query-head",
    "kv": "K and V",
    "expert": "expert",
}


def _stage(
    leaf: Leaves,
    model: ModelSpec,
    index: int,
    counts: Mapping[int, int],
    *,
    first: bool,
    last: bool,
    drafts: int,
    room: float | None,
) -> Stage:
    here = {"first": int(first), "last": int(last), "draft": drafts if last else 0}

    def copies(tensor: Tensor) -> int:
        return here[tensor.stage] if tensor.kind is None else counts.get(tensor.kind, 0)

    return Stage(
        number=index,
        memory=None if room is None else leaf("mesh.pp_memory", room),
        layers=tuple(
            leaf.derived(f"layers of kind {i} on stage {index}", counts.get(i, 0), "model.pattern")
            for i in range(len(model.kinds))
        ),
        parameters=_by_format(leaf, model, copies, f"stage {index}"),
        last=last,
    )


def _by_format(
    leaf: Leaves, model: ModelSpec, copies: Callable[[Tensor], int], where: str
) -> ByFormat:
    """Add up the tensors, each as often as it is there, by format and by how ranks share them."""
    sums: Counter[tuple[str, str, int | None]] = Counter()
    for tensor in model.tensors:
        kind = tensor.kind if tensor.split == "kv" else None
        sums[_format_of(tensor), tensor.split, kind] += tensor.parameters * copies(tensor)

    def of(label: str) -> Parameters:
        def total(split: str, kind: int | None = None) -> Number:
            name = f"{label} {_SPLITS[split]} parameters of {where}"
            return leaf.derived(name, sums[label, split, kind], f"tensor list of {model.name}")

        return Parameters(
            replicated=total("none"),
            tensor=total("tensor"),
            heads=total("heads"),
            kv=tuple(total("kv", kind) for kind in range(len(model.kinds))),
            expert=total("expert"),
        )

    return ByFormat(of("quantised"), of("embedding"), of("16-bit"))


def _format_of(tensor: Tensor) -> str:
    if tensor.embeds:
        return "embedding"
    return "quantised" if tensor.quantized else "16-bit"


def layer_parameters(leaf: Leaves, model: ModelSpec, kind: int | None) -> ByFormat:
    """Parameters of one layer of a kind; of None, those that exist once."""
    return _by_format(leaf, model, lambda tensor: int(tensor.kind == kind), f"a layer of {kind}")
