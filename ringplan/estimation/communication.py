"""What each axis of the mesh costs one rank, over all its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import axes, collectives, memory, ring
from ringplan.estimation.attention import peers, ulysses_exchange, ulysses_time
from ringplan.estimation.caches import sequence_state
from ringplan.estimation.leaves import plain
from ringplan.estimation.parameters import gradient_size, training_state, weights
from ringplan.estimation.results import Communication

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Layer, Pass
    from ringplan.estimation.device import Device
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import Stage


def communication(x: Numbers, device: Device, layers: Sequence[Layer]) -> tuple[Communication, ...]:
    """List the axes that have more than one rank, the context axes first."""
    stage = max(x.stages, key=lambda each: sum(plain(count) for count in each.layers))
    rows = [
        _ring(x, device, layers, stage),
        _ulysses(x, device, layers, stage),
        _states(x, device, stage),
        _tensor(x, device, stage),
        _experts(x, device, stage),
        _pipeline(x, device),
        *_replicas(x, device, stage),
    ]
    return tuple(row for row in rows if row is not None)


def attention_layers(x: Numbers, stage: Stage) -> tuple[Number, ...]:
    """Layers of a stage, of each kind with attention."""
    return tuple(count for count, kind in zip(stage.layers, x.kinds, strict=True) if kind.attends)


def directions(x: Numbers) -> int:
    """How many passes move as much as forward: in training backward, and what is recomputed."""
    return 1 if x.phase != "train" else 3 if x.recomputes else 2


def passes(x: Numbers) -> Number:
    """How many times a forward volume is moved."""
    why = f"workload.phase={x.phase}, {'full' if x.recomputes else 'no full'} recompute"
    return x.leaf.derived("passes", directions(x), why)


def _ring(
    x: Numbers, device: Device, layers: Sequence[Layer], stage: Stage
) -> Communication | None:
    if x.sizes["ring"] == 1:
        return None
    runs = passes_of(x, layers)
    counts = attention_layers(x, stage) * (len(runs) // len(layers))
    link = device.link(x, "ring")
    return Communication(
        axis="ring",
        link=link.name,
        bytes=ring.bytes_of_layers(layers=counts, layer_bytes=tuple(r.ring_bytes for r in runs)),
        time=ring.time_of_layers(layers=counts, layer_time=tuple(r.ring_time for r in runs)),
        exposed_time=ring.time_of_layers(
            layers=counts, layer_time=tuple(r.ring_exposure for r in runs)
        ),
        latencies=ring.latencies_of_layers(
            layers=counts, latencies=tuple(r.ring_latencies for r in runs)
        ),
        **link.placement,
    )


def passes_of(x: Numbers, layers: Sequence[Layer]) -> list[Pass]:
    """List the passes of a layer of each kind: forward, in training again, and backward."""
    runs = [layer.forward for layer in layers]
    if x.phase != "train":
        return runs
    again = runs if x.recomputes else []
    return runs + again + [layer.backward for layer in layers if layer.backward is not None]


def _ulysses(
    x: Numbers, device: Device, layers: Sequence[Layer], stage: Stage
) -> Communication | None:
    if x.sizes["ulysses"] == 1:
        return None
    ways = directions(x)
    sent = [ulysses_exchange(x, layer.kind, layer.shape) for layer in layers] * ways
    times = [ulysses_time(x, device, each) for each in sent]
    counts = attention_layers(x, stage) * ways
    time = ring.time_of_layers(
        layers=counts, layer_time=tuple(each for each in times if each is not None)
    )
    rounds = x.of_schedule("all_to_alls")
    link = device.link(x, "ulysses", all_to_all=True)
    return Communication(
        axis="ulysses",
        link=link.name,
        bytes=ring.bytes_of_layers(layers=counts, layer_bytes=tuple(sent)),
        time=time,
        exposed_time=time,
        latencies=ring.latencies_of_layers(layers=counts, latencies=(rounds,) * len(sent)),
        **link.placement,
    )


def _states(x: Numbers, device: Device, stage: Stage) -> Communication | None:
    """States that a context rank hands to the next one: a chain, which nothing hides."""
    stateful = [kind for kind in x.kinds if plain(kind.state.heads) or plain(kind.state.conv)]
    if plain(x.cp_size) == 1 or not stateful or x.phase == "decode":
        return None
    state = sequence_state(x, device.scenario, stage)
    sent = axes.state_pass_bytes(
        batch_size=x.attention_batch_size, sequence_bytes=state, passes=passes(x)
    )
    latencies = axes.state_latencies(
        layers=memory.total_layers(
            layers=tuple(
                count for count, kind in zip(stage.layers, x.kinds, strict=True) if kind in stateful
            )
        ),
        cp_size=x.cp_size,
        passes=passes(x),
    )
    link = device.link(x, "ulysses", "ring")
    chain = axes.state_chain_bytes(bytes_sent=sent, cp_size=x.cp_size)
    time = collectives.collective_time(
        transfer_bytes=chain,
        bandwidth=link.bandwidth(chain, latencies),
        latency=link.latency,
        latencies=latencies,
    )
    return Communication(
        axis="state",
        link=link.name,
        bytes=sent,
        time=time,
        exposed_time=time,
        latencies=latencies,
        **link.placement,
    )


def _row(
    x: Numbers,
    device: Device,
    axis: str,
    over: tuple[str, ...],
    *,
    sent: Number,
    latencies: Number,
    exposed: bool,
    collective: bool = True,
    exchange: int | None = None,
) -> Communication:
    """
    Make the row of an axis.

    A collective is a ring of hops, `latencies` in all, and a hop one message; in all-to-alls of
    `exchange` ranks, `latencies` in all, a rank has a message for each other one.
    """
    link = device.link(
        x, *over, collective=collective, all_to_all=exchange is not None, group_size=exchange
    )
    messages = (latencies,) if exchange is None else (latencies, peers(x, exchange))
    time = collectives.collective_time(
        transfer_bytes=sent,
        bandwidth=link.bandwidth(sent, *messages),
        latency=link.latency,
        latencies=latencies,
    )
    return Communication(
        axis=axis,
        link=link.name,
        bytes=sent,
        time=time,
        exposed_time=time if exposed else None,
        latencies=latencies,
        **link.placement,
    )


def _tensor(x: Numbers, device: Device, stage: Stage) -> Communication | None:
    if x.sizes["tp"] == 1:
        return None
    sent = axes.tensor_parallel_bytes(
        layers=memory.total_layers(layers=stage.layers),
        tp_size=x.tp_size,
        batch_size=x.batch_size,
        tokens=x.tokens.rank,
        hidden_size=x.hidden_size,
        element_bytes=x.activation_bytes,
        passes=passes(x),
    )
    latencies = axes.tensor_parallel_latencies(
        layers=memory.total_layers(layers=stage.layers), tp_size=x.tp_size, passes=passes(x)
    )
    return _row(x, device, "tp", ("tp",), sent=sent, latencies=latencies, exposed=True)


def _experts(x: Numbers, device: Device, stage: Stage) -> Communication | None:
    routed = [i for i, kind in enumerate(x.kinds) if kind.num_experts_per_tok is not None]
    if plain(x.ep_size) == 1 or not routed:
        return None
    layers = memory.total_layers(layers=tuple(stage.layers[i] for i in routed))
    experts = x.kinds[routed[0]].num_experts_per_tok
    assert experts is not None  # noqa: S101 - chosen so
    sent = axes.expert_parallel_bytes(
        layers=layers,
        ep_size=x.ep_size,
        batch_size=x.batch_size,
        tokens=x.tokens.rank,
        experts_per_token=experts,
        hidden_size=x.hidden_size,
        element_bytes=x.activation_bytes,
        passes=passes(x),
    )
    latencies = axes.expert_parallel_latencies(layers=layers, passes=passes(x))
    group = ("ulysses", "ring", "dp")
    return _row(
        x,
        device,
        "ep",
        group,
        sent=sent,
        latencies=latencies,
        exposed=True,
        exchange=device.scenario.mesh.ep_size,
    )


def _pipeline(x: Numbers, device: Device) -> Communication | None:
    if x.sizes["pp"] == 1:
        return None
    ways = x.leaf.derived(
        "passes", 2 if x.phase == "train" else 1, f"workload.phase={x.phase}: stages keep inputs"
    )
    sent = axes.pipeline_bytes(
        pp_size=x.pp_size,
        batch_size=x.batch_size,
        tokens=x.tokens.rank,
        hidden_size=x.hidden_size,
        element_bytes=x.activation_bytes,
        passes=ways,
    )
    return _row(x, device, "pp", ("pp",), sent=sent, latencies=ways, exposed=True, collective=False)


def _replicas(x: Numbers, device: Device, stage: Stage) -> list[Communication]:
    """Parameters under ZeRO-3, and gradients, over data and context ranks."""
    mesh = device.scenario.mesh
    ranks = mesh.dp_size * mesh.cp_size
    if ranks == 1:
        return []
    one = x.leaf.derived("shards", 1, "before ZeRO")
    groups = (
        x.leaf.derived("group_size", ranks, "dp x cp"),
        x.leaf.derived("group_size", ranks // mesh.ep_size, "dp x cp / ep"),
    )

    def row(axis: str, whole: tuple[Number, Number], times: int, why: str) -> Communication:
        moved = x.leaf.derived("passes", times, why)
        sent = tuple(
            axes.shard_collective_bytes(group_size=size, gathered_bytes=each, passes=moved)
            for size, each in zip(groups, whole, strict=True)
        )
        latencies = axes.shard_collective_latencies(
            layers=memory.total_layers(layers=stage.layers), group_size=groups[0], passes=moved
        )
        over = ("ulysses", "ring", "dp")
        total = memory.total_bytes(parts=sent)
        return _row(x, device, axis, over, sent=total, latencies=latencies, exposed=False)

    rows = []
    training = x.phase == "train"
    if mesh.zero_stage == 3:
        times = 2 if training else 1
        rows.append(
            row("fsdp", weights(x, stage.parameters, (one, one)), times, "gathered each direction")
        )
    if training:
        size = gradient_size(x, device.scenario)
        state = training_state(x, stage.parameters, (one, one), size)
        sharded = mesh.zero_stage == 3
        why = "reduce-scatter" if sharded else "all-reduce, or reduce-scatter and all-gather"
        rows.append(row("dp", state, 1 if sharded else 2, why))
    return rows
