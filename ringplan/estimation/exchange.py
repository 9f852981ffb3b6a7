"""Buffers of the exchange beside a rank's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import buffers, layout, memory
from ringplan.estimation.activations import attention_at_once
from ringplan.estimation.attention import exchanged
from ringplan.estimation.leaves import plain
from ringplan.estimation.shapes import shape

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.shapes import Shape
    from ringplan.specs.scenario import Scenario


def buffer_bytes(x: Numbers, scenario: Scenario, of: Shape | None = None) -> Number:
    """Bytes beside the rank's own tensors, in the pass that holds more; training runs both."""
    if x.phase == "decode":
        return x.leaf.derived("buffers", 0, "decode leaves the cache where it is")
    kind = x.kinds[x.widest]
    s = of or shape(x, kind)
    batch_size, tokens = attention_at_once(x, scenario)
    sizes = exchanged(x, kind, s) | {"batch_size": batch_size, "tokens": tokens}
    qkv = buffers.exchanged_qkv_bytes(**sizes)
    out = buffers.exchanged_out_bytes(
        **{name: size for name, size in sizes.items() if name not in ("num_kv_heads", "head_dim")}
    )
    forward = buffers.exchange_buffer_bytes(
        arrived_bytes=qkv, ring_buffer_bytes=_forward(x, scenario, s), leaving_bytes=out
    )
    if x.phase != "train":
        return forward
    backward = buffers.exchange_buffer_bytes(
        arrived_bytes=out, ring_buffer_bytes=_backward(x, s), leaving_bytes=qkv
    )
    return max(forward, backward, key=plain)


def _forward(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    """Visiting blocks, or all that are gathered, and the output as it comes about."""
    schedule = x.schedule
    batch_size, tokens = attention_at_once(x, scenario)
    queries = layout.ring_tokens(tokens=tokens, ulysses_size=x.ulysses_size)
    if schedule.kv_exchange == "gather":
        gathered = _gathered(x, s, s.hop_bytes)
        if not schedule.holds_block_output:  # one kernel over all keys writes the output itself
            return gathered
        state = _state(x, s, batch_size, queries, s.v_head_dim)
        return memory.total_bytes(parts=(gathered, state))
    state = (
        _partials(x, s, batch_size, queries)
        if schedule.keeps_partials
        else _state(x, s, batch_size, queries, s.v_head_dim)
    )
    common = {"ring_size": s.ring_size, "hop_bytes": s.hop_bytes, "state_bytes": state}
    if schedule.kv_buffers == "all":
        return buffers.whole_ring_buffer_bytes(**common)
    return buffers.ring_buffer_bytes(kv_buffers=x.of_schedule("kv_buffers"), **common)


def _backward(x: Numbers, s: Shape) -> Number:
    """K and V again, their gradients, and those of the queries."""
    schedule = x.schedule
    state = query_gradient(x, s)
    if schedule.holds_block_output:
        state = memory.total_bytes(parts=(state, s.block_gradient_bytes))
    if schedule.kv_exchange == "ring":
        return buffers.ring_backward_buffer_bytes(
            ring_size=s.ring_size,
            kv_buffers=x.of_schedule("kv_buffers_backward"),
            last_blocks=x.leaf.derived(
                "last_blocks",
                int(schedule.reverses),
                f"schedule {schedule.name} starts from {_STARTS[schedule.reverses]}",
            ),
            hop_bytes=s.hop_bytes,
            gradient_buffers=x.of_schedule("gradient_buffers"),
            gradient_bytes=s.gradient_bytes,
            state_bytes=state,
        )
    nothing = x.leaf.derived("gathered", 0, "gathered K and V were kept")
    gathered = nothing if schedule.keeps_gathered else _gathered(x, s, s.hop_bytes)
    if schedule.gradient_exchange == "reduce_scatter":
        gradients = _gathered(x, s, s.gradient_bytes)
    else:
        gradients = buffers.blocks_bytes(
            blocks=x.of_schedule("gradient_buffers"), block_bytes=s.gradient_bytes
        )
    return memory.total_bytes(parts=(gathered, gradients, state))


_STARTS = {True: "the last block received", False: "the rank's own block"}


def _gathered(x: Numbers, s: Shape, shard: Number) -> Number:
    """Bytes of the K and V of all ranks, or of some heads of them, in one copy or more."""
    copies = x.of_schedule("gathered_copies")
    if x.schedule.heads_per_gather is not None:
        slices = layout.gather_slices(
            num_kv_heads=s.num_kv_heads, heads_per_gather=x.of_schedule("heads_per_gather")
        )
        shard = buffers.slice_bytes(shard_bytes=shard, slices=slices)
    return buffers.gathered_buffer_bytes(cp_size=s.ring_size, shard_bytes=shard, copies=copies)


def _state(x: Numbers, s: Shape, batch_size: Number, queries: Number, elements: Number) -> Number:
    """Bytes of sums over steps, and of one step's share beside them."""
    schedule = x.schedule
    return buffers.running_state_bytes(
        batch_size=batch_size,
        query_tokens=queries,
        num_heads=s.ring_query_heads,
        elements=elements,
        accumulator_bytes=x.activation_bytes
        if schedule.accumulator_dtype is None
        else x.accumulator_bytes,
        block_bytes=x.activation_bytes
        if schedule.holds_block_output
        else x.leaf.derived("block_bytes", 0, "a step adds to the sums itself"),
        statistic_bytes=x.accumulator_bytes,
    )


def _partials(x: Numbers, s: Shape, batch_size: Number, queries: Number) -> Number:
    """Bytes of the outputs of all steps on the rank that keeps most, the last."""
    halves = x.causal and x.partition == "zigzag"
    slots = buffers.partial_slots(
        ring_size=s.ring_size,
        rank=x.leaf.derived("rank", x.sizes["ring"] - 1, "the rank that keeps most"),
        later_share=x.leaf.derived(
            "later_share", 0.5 if halves else 1, "half of the queries see a later rank's block"
        ),
    )
    return buffers.partials_bytes(
        slots=slots,
        batch_size=batch_size,
        query_tokens=queries,
        num_heads=s.ring_query_heads,
        v_head_dim=s.v_head_dim,
        element_bytes=x.activation_bytes,
        statistic_bytes=x.accumulator_bytes,
    )


def query_gradient(x: Numbers, s: Shape) -> Number:
    """Bytes of dQ and its statistics inside the ring."""
    return _state(x, s, x.attention_batch_size, s.query_tokens, s.head_dim)
