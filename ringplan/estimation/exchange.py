"""Buffers of the exchange beside a rank's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import buffers, layout
from ringplan.estimation.activations import attention_at_once
from ringplan.estimation.attention import exchanged, shape
from ringplan.estimation.leaves import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Shape
    from ringplan.estimation.numbers import Numbers
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
        arrived_bytes=qkv, ring_buffer_bytes=_ring_forward(x, scenario, s), leaving_bytes=out
    )
    if x.phase != "train":
        return forward
    backward = buffers.exchange_buffer_bytes(
        arrived_bytes=out, ring_buffer_bytes=_ring_backward(x, scenario, s), leaving_bytes=qkv
    )
    return max(forward, backward, key=plain)


def _ring_forward(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    batch_size, tokens = attention_at_once(x, scenario)
    return buffers.ring_buffer_bytes(
        ring_size=s.ring_size,
        kv_buffers=x.leaf("schedule.kv_buffers", scenario.schedule.kv_buffers),
        hop_bytes=s.hop_bytes,
        batch_size=batch_size,
        query_tokens=layout.ring_tokens(tokens=tokens, ulysses_size=x.ulysses_size),
        num_heads=s.ring_query_heads,
        v_head_dim=s.v_head_dim,
        accumulator_bytes=x.accumulator_bytes,
    )


def _ring_backward(x: Numbers, scenario: Scenario, s: Shape) -> Number:
    schedule = scenario.schedule
    return buffers.ring_backward_buffer_bytes(
        ring_size=s.ring_size,
        kv_buffers=x.leaf("schedule.kv_buffers", schedule.kv_buffers),
        last_blocks=x.leaf.derived(
            "last_blocks",
            int(schedule.reverses),
            f"schedule {schedule.name} starts from {_STARTS[schedule.reverses]}",
        ),
        hop_bytes=s.hop_bytes,
        gradient_bytes=s.gradient_bytes,
        query_gradient_bytes=query_gradient(x, s),
    )


_STARTS = {True: "the last block received", False: "the rank's own block"}


def query_gradient(x: Numbers, s: Shape) -> Number:
    """Bytes of dQ and its statistics inside the ring."""
    return buffers.query_gradient_bytes(
        batch_size=x.attention_batch_size,
        query_tokens=s.query_tokens,
        num_heads=s.ring_query_heads,
        head_dim=s.head_dim,
        accumulator_bytes=x.accumulator_bytes,
    )
