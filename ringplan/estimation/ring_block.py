"""The ring of the widest layer: what it sends, what hides it, and the blocks that would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.costs import ring
from ringplan.estimation.attention import margin, of_step, verdict
from ringplan.estimation.blocks import smallest_blocks
from ringplan.estimation.communication import attention_layers, passes_of
from ringplan.estimation.leaves import plain
from ringplan.estimation.results import Ring
from ringplan.estimation.transfers import hides

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.numbers import Numbers


def widest_layer(x: Numbers, layers: list[Layer]) -> Layer:
    """Pick the layer of the widest kind out of those with attention."""
    return next(each for each in layers if each.kind is x.kinds[x.widest])


def ring_block(x: Numbers, dev: Device, layers: list[Layer], missing: dict[str, str]) -> Ring:
    """Describe the widest layer of the layout; what it has no answer for goes to ``missing``."""
    widest = widest_layer(x, layers)
    s, forward = widest.shape, widest.forward
    every = [each.bytes_sent for each in passes_of(x, layers)]
    stage = max(x.stages, key=lambda each: sum(plain(count) for count in each.layers))
    counts = attention_layers(x, stage) * (len(every) // len(layers))
    fields: dict[str, Any] = {
        "block_tokens": x.tokens.block,
        "hop_bytes": s.hop_bytes,
        "hops_forward": forward.hops,
        "bytes_sent_forward": forward.bytes_sent,
        "bytes_sent_all_layers": ring.bytes_of_layers(layers=counts, layer_bytes=tuple(every)),
        "step_flops": forward.flops,
        "step_attention_time": forward.compute_time,
        "merge_time": forward.merge_time,
        "time_forward": forward.time,
        "exposed_time": forward.exposed_time,
        "verdict": "none",
    }
    fields |= _backward(x, widest, missing)
    if x.sizes["ring"] > 1 and forward.hop_time is None:
        fields |= {"verdict": "exposed", "link": dev.link(x, "ring").name}
        for name in _NEEDS_HOP:
            if name not in fields:
                missing[f"ring.{name}"] = "K and V are gathered at once: there is no hop"
    elif x.sizes["ring"] > 1:
        fields |= _overlap(x, dev, widest, missing)
    else:
        for name in _NEEDS_HOP:
            missing[f"ring.{name}"] = "one rank in the ring: there is no hop"
    return Ring(**fields)


def _backward(x: Numbers, widest: Layer, missing: dict[str, str]) -> dict[str, Any]:
    """Describe the way back, and a whole training step."""
    forward, backward = widest.forward, widest.backward
    fields: dict[str, Any] = {}
    if backward is None:
        for name in _WAY_BACK:
            missing[f"ring.{name}"] = "a decode step has no backward pass"
    else:
        fields = dict(
            zip(
                _WAY_BACK,
                (backward.hops, backward.bytes_sent, backward.flops, backward.time),
                strict=True,
            )
        )
    if x.phase != "train" or backward is None:
        for name in ("bytes_sent_recompute", "bytes_sent_step"):
            missing[f"ring.{name}"] = "only training has steps"
        return fields
    again = forward.bytes_sent
    if not x.recomputes:
        again = x.leaf.derived("bytes_sent_recompute", 0, "activations are kept")
    whole = ring.step_bytes(
        forward=forward.bytes_sent, recomputed=again, backward=backward.bytes_sent
    )
    return {
        **fields,
        "bytes_sent_recompute": again,
        "bytes_sent_step": whole,
        "exposed_time": of_step(x, forward.exposed_time, backward.exposed_time),
    }


_WAY_BACK = ("hops_backward", "bytes_sent_backward", "step_flops_backward", "time_backward")
_BLOCKS = ("min_block_tokens", "min_block_tokens_hidden", "min_block_tokens_ideal", "max_cp_size")
_NEEDS_HOP = (
    "hop_time",
    "overlap_margin",
    "overlap_margin_nominal",
    "overlap_margin_backward",
    "link",
    *_BLOCKS,
)


def _overlap(x: Numbers, dev: Device, widest: Layer, missing: dict[str, str]) -> dict[str, Any]:
    """Margins, verdict, and the smallest blocks."""
    s, forward, backward = widest.shape, widest.forward, widest.backward
    link = dev.link(x, "ring")
    margins: dict[str, Number | None] = {
        "overlap_margin": margin(forward, dev, link, s.hop_bytes, nominal=False),
        "overlap_margin_nominal": margin(forward, dev, link, s.hop_bytes, nominal=True),
        "overlap_margin_backward": None
        if backward is None
        else margin(backward, dev, link, s.hop_bytes, nominal=False),
    }
    judged = [margins["overlap_margin"]]
    if x.phase == "train":
        judged.append(margins["overlap_margin_backward"])
    if backward is None:
        missing["ring.overlap_margin_backward"] = "a decode step has no backward pass"
    fields: dict[str, Any] = {
        **margins,
        "hop_time": forward.hop_time,
        "verdict": verdict(hides(x), judged),
        "link": link.name,
    }
    if x.phase == "decode" or not hides(x):
        for name in _BLOCKS:
            missing[f"ring.{name}"] = (
                "in decode compute and transfer both grow with the block: no block hides the ring"
                if x.phase == "decode"
                else f"{x.schedule.name} does not overlap: no block hides the ring"
            )
        return fields
    blocks = smallest_blocks(x, dev, widest)
    for name in (name for name, block in blocks.items() if block is None):
        missing[f"ring.{name}"] = "no block of up to 2^32 tokens hides its transfer on this link"
    return fields | blocks
