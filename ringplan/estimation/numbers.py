"""
The numbers of a scenario, ready for the formulas: plain, or each with its origin.

This is the only place where specs are unpacked. To explain an estimate, the same wiring runs on
`Known` numbers instead of plain ones.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ringplan.costs import layout
from ringplan.costs.formula import Known
from ringplan.specs.dtypes import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ringplan.costs.numeric import Number
    from ringplan.specs.model import ModelSpec, Tensor
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
    active_intermediate_size: Number
    num_experts_per_tok: Number | None


class Stage(NamedTuple):
    """One pipeline stage: how many layers of each kind, and the parameters by how they split."""

    number: int
    layers: tuple[Number, ...]
    quantized: Parameters
    unquantized: Parameters
    last: bool


class Parameters(NamedTuple):
    """Parameters of a stage by the way ranks share them."""

    replicated: Number
    tensor: Number
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
    hidden_size: Number
    vocab_size: Number
    cp_size: Number
    ulysses_size: Number
    tp_size: Number
    pp_size: Number
    dp_size: Number
    ep_size: Number
    world_size: Number
    tokens: Tokens
    batch_size: Number
    activation_bytes: Number
    kv_bytes: Number
    wire_bytes: Number
    cached_wire_bytes: Number
    gradient_wire_bytes: Number
    partial_bytes: Number
    accumulator_bytes: Number
    weights_bytes: Number


def widest_kind(model: ModelSpec) -> int:
    """Index of the full-attention kind with the widest K and V; of any, where none is full."""
    full = [i for i, kind in enumerate(model.kinds) if kind.window is None]
    return max(
        full or range(len(model.kinds)),
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
        kinds=tuple(_kind(leaf, model, i, tp_size) for i in range(len(model.kinds))),
        widest=widest_kind(model),
        stages=_stages(leaf, model, mesh.pp_size),
        hidden_size=leaf("model.hidden_size", model.hidden_size),
        vocab_size=leaf("model.vocab_size", model.vocab_size),
        cp_size=cp_size,
        ulysses_size=leaf("mesh.ulysses_size", mesh.ulysses_size),
        tp_size=tp_size,
        pp_size=leaf("mesh.pp_size", mesh.pp_size),
        dp_size=leaf("mesh.dp_size", mesh.dp_size),
        ep_size=leaf("mesh.ep_size", mesh.ep_size),
        world_size=leaf.derived("world_size", mesh.world_size, "tp x cp x pp x dp"),
        tokens=tokens_of(new_tokens, cached_tokens, cp_size, decoding=work.phase == "decode"),
        batch_size=leaf("workload.batch_size", work.batch_size),
        activation_bytes=size("workload.activation_dtype", work.activation_dtype),
        kv_bytes=size("workload.kv_dtype", work.kv_dtype),
        wire_bytes=size("schedule.wire_dtype", schedule.wire_dtype),
        cached_wire_bytes=size("workload.kv_dtype", work.kv_dtype)
        if cached and work.kv_dtype
        else size("schedule.wire_dtype", schedule.wire_dtype),
        gradient_wire_bytes=size("schedule.gradient_wire_dtype", schedule.gradient_wire_dtype),
        partial_bytes=size("schedule.partial_dtype", schedule.partial_dtype),
        accumulator_bytes=leaf.derived("accumulator_bytes", 4, "kernels accumulate in fp32"),
        weights_bytes=size(
            "workload.weights_dtype" if work.weights_dtype else "model.weights_dtype",
            work.weights_dtype or model.weights_dtype,
        ),
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


def _kind(leaf: Leaves, model: ModelSpec, index: int, tp_size: Number) -> Kind:
    kind, path = model.kinds[index], f"model.kinds.{index}"

    def field(name: str) -> Number:
        return leaf(f"{path}.{name}", getattr(kind, name))

    heads, groups = field("num_attention_heads"), field("num_key_value_heads")
    return Kind(
        layers=leaf.derived(
            f"layers of kind {index}",
            model.pattern.count(index),
            f"of {model.num_hidden_layers} layers of {model.name}",
        ),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        rank_heads=layout.query_heads(num_attention_heads=heads, tp_size=tp_size),
        rank_kv_heads=layout.kv_heads(num_key_value_heads=groups, tp_size=tp_size),
        head_dim=field("head_dim"),
        v_head_dim=field("v_head_dim"),
        latent_dim=None if kind.latent_dim is None else field("latent_dim"),
        latent_v_dim=None if kind.latent_v_dim is None else field("latent_v_dim"),
        window=None if kind.window is None else field("window"),
        active_intermediate_size=field("active_intermediate_size"),
        num_experts_per_tok=field("num_experts_per_tok") if kind.num_experts_per_tok else None,
    )


def stage_slices(num_layers: int, pp_size: int) -> list[slice]:
    """
    Cut the layers into stages, the first ones one longer where it does not come out even.

    >>> stage_slices(7, 3)
    [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    each, more = divmod(num_layers, pp_size)
    ends = [each * s + min(s, more) for s in range(pp_size + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def _stages(leaf: Leaves, model: ModelSpec, pp_size: int) -> tuple[Stage, ...]:
    """Build the stages that differ: equal ones are alike in every number."""
    stages: dict[tuple[Any, ...], Stage] = {}
    slices = stage_slices(len(model.pattern), min(pp_size, len(model.pattern) + 1))
    for index, part in enumerate(slices):
        counts = Counter(model.pattern[part])
        first, last = index == 0, index == len(slices) - 1
        key = (first, last, *sorted(counts.items()))
        if key not in stages:
            stages[key] = _stage(leaf, model, index, counts, first=first, last=last)
    return tuple(stages.values())


_SPLITS = {"none": "replicated", "tensor": "tensor-parallel", "kv": "K and V", "expert": "expert"}


def _stage(
    leaf: Leaves,
    model: ModelSpec,
    index: int,
    counts: Mapping[int, int],
    *,
    first: bool,
    last: bool,
) -> Stage:
    def copies(tensor: Tensor) -> int:
        if tensor.kind is not None:
            return counts.get(tensor.kind, 0)
        return int(first if tensor.stage == "first" else last)

    def of(*, quantized: bool) -> Parameters:
        label = "quantised" if quantized else "16-bit"

        def total(split: str, kind: int | None = None) -> Number:
            value = sum(
                tensor.parameters * copies(tensor)
                for tensor in model.tensors
                if tensor.quantized == quantized
                and tensor.split == split
                and (split != "kv" or tensor.kind == kind)
            )
            name = f"{label} {_SPLITS[split]} parameters of stage {index}"
            return leaf.derived(name, value, f"tensor list of {model.name}")

        return Parameters(
            replicated=total("none"),
            tensor=total("tensor"),
            kv=tuple(total("kv", kind) for kind in range(len(model.kinds))),
            expert=total("expert"),
        )

    return Stage(
        number=index,
        layers=tuple(
            leaf.derived(f"layers of kind {i} on stage {index}", counts.get(i, 0), "model.pattern")
            for i in range(len(model.kinds))
        ),
        quantized=of(quantized=True),
        unquantized=of(quantized=False),
        last=last,
    )
