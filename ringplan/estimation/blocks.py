"""The smallest blocks that hide their transfer, and the largest ring that has such blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ringplan.costs import hiding, masks, ring
from ringplan.estimation.attention import HIDDEN, call_of, merge_seconds, slowed
from ringplan.estimation.domains import rings_inside
from ringplan.estimation.leaves import plain
from ringplan.estimation.shapes import wire_elements
from ringplan.estimation.transfers import ring_link

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.attention import Layer
    from ringplan.estimation.device import Device
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.link import Link
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.scenario import Scenario


#: No block is this long: where even such a one does not hide its transfer, none does.
LONGEST = 2**32


def smallest_blocks(x: Numbers, device: Device, widest: Layer) -> dict[str, Number | None]:
    """Answer for the ring of the widest layer, at its own link's rates; None where none does."""
    link = ring_link(x, device)
    both = x.schedule.bidirectional
    common = _common(x, widest)
    just = x.leaf.derived("margin", 1, "the transfer just fits")
    hidden = {
        "scale_up": _hidden(x, device, common, device.hop_link(x, inside=True, both_ways=both)),
        "scale_out": _hidden(x, device, common, device.hop_link(x, inside=False, both_ways=both)),
    }
    blocks = {
        "min_block_tokens": _smallest(x, device, common, link, just),
        "min_block_tokens_hidden": hidden[link.name],
    }
    found = {name: None if plain(n) > LONGEST else n for name, n in blocks.items()}
    return {
        **found,
        "min_block_tokens_ideal": hiding.min_block_tokens_ideal(
            flops_per_second=device.flops_per_second(
                call_of(x, widest.shape, widest.shape.later_pairs, first=False)
            ),
            bandwidth=link.bandwidth(widest.shape.hop_bytes, x.of_schedule("messages_per_hop")),
            latency=link.latency,
            **common,
        ),
        "max_cp_size": _max_cp_size(x, device.scenario, **hidden),
    }


def _common(x: Numbers, widest: Layer) -> dict[str, Number]:
    """Numbers that do not depend on the link."""
    kind, s = widest.kind, widest.shape
    balanced = x.causal and x.partition != "contiguous"
    share = x.leaf.derived("mask_share", 0.5 if balanced else 1, _why(x))
    if x.documents is not None:
        share = masks.document_share(
            mask_share=share, lengths=x.documents.sizes, counts=x.documents.shares
        )
    visible = masks.visible_share(
        new_tokens=x.tokens.new, seq_len=x.tokens.context, mask_share=share
    )
    return {
        "batch_size": x.batch_size,
        "num_heads": s.num_heads,
        "head_dim": kind.head_dim,
        "v_head_dim": kind.v_head_dim,
        "visible_share": visible,
        "ulysses_size": x.ulysses_size,
        "wire_bytes_per_token": _wire(x, kind, *wire_elements(x, kind)),
    }


def _wire(x: Numbers, kind: Kind, key_bytes: Number, value_bytes: Number) -> Number:
    """Bytes of a token on the wire of one hop."""
    expanded = x.schedule.heads_on_wire == "query"
    return hiding.wire_bytes_per_token(
        num_kv_heads=kind.rank_heads if expanded else kind.rank_kv_heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        ulysses_size=x.ulysses_size,
    )


def _why(x: Numbers) -> str:
    return f"workload.causal={x.causal}, mesh.partition={x.partition}"


def _smallest(
    x: Numbers, device: Device, common: dict[str, Number], link: Link, margin: Number
) -> Number:
    """Smallest block of the phase's passes on a link."""
    forward = _of_pass(x, common, link, margin, device)
    if x.phase != "train":
        return forward
    kind = x.kinds[x.widest]
    gradients = _wire(x, kind, x.wire.gradient, x.wire.gradient)
    sizes = {
        "head_dim": x.leaf.derived("head_dim", 3 * plain(kind.head_dim), "scores, dQ, dK"),
        "v_head_dim": x.leaf.derived("v_head_dim", 2 * plain(kind.v_head_dim), "dP, dV"),
        "wire_bytes_per_token": ring.backward_hop_bytes(
            kv_bytes=common["wire_bytes_per_token"], gradient_bytes=gradients
        ),
    }
    backward = _of_pass(x, common | sizes, link, margin, device, backward=True)
    return hiding.larger_block(forward=forward, backward=backward)


def _of_pass(
    x: Numbers,
    common: dict[str, Any],
    link: Link,
    margin: Number,
    device: Device,
    *,
    backward: bool = False,
) -> Number:
    striped = x.causal and x.partition == "striped"
    table = device.backward if backward else device.forward
    serial = backward and x.schedule.streams == 1 and not x.schedule.joins_gradients
    return hiding.min_block_tokens(
        margin=margin,
        granule=x.leaf.derived("granule", 2 if x.partition == "zigzag" else 1, _why(x)),
        diagonal_share=x.leaf.derived("diagonal_share", 0.5 if striped else 0, _why(x)),
        new_tokens=x.tokens.new,
        seq_len=x.tokens.context,
        peak=device.beside_communication(device.peak) if slowed(x) else device.peak,
        sizes=table.sizes,
        shares=table.shares,
        **_curve(x, device, backward=backward),
        bandwidth=link.nominal,
        message_sizes=link.table.sizes,
        link_shares=link.table.shares,
        messages=x.of_schedule("messages_per_hop"),
        latency=link.latency,
        latencies=x.leaf.derived("latencies", 2 if serial else 1, "hops beside a step, in line"),
        merge_time=merge_seconds(x, device, backward=backward),
        **common,
    )


def _curve(x: Numbers, device: Device, *, backward: bool) -> dict[str, Any]:
    """Curve of the kernel; flat where there is none."""
    curve = device.curve(backward=backward)
    path = f"hardware.efficiency.{'back' if backward else 'for'}ward_curve"
    flat = ((1, 1),)
    fill = x.leaf.table(f"{path}.fill", curve.fill if curve else flat)
    depth = x.leaf.table(f"{path}.depth", curve.depth if curve else flat)
    head = x.leaf.table(f"{path}.head", curve.head if curve else flat)
    return {
        "fill_sizes": fill.sizes,
        "fill_shares": fill.shares,
        "depth_sizes": depth.sizes,
        "depth_shares": depth.shares,
        "tile": x.leaf(f"{path}.tile", curve.tile if curve else 0),
        "head_size": x.kinds[x.widest].head_dim,
        "head_sizes": head.sizes,
        "head_shares": head.shares,
    }


def _hidden(x: Numbers, device: Device, common: dict[str, Number], link: Link | None) -> Number:
    if link is None:
        return x.leaf.derived("min_block_tokens", math.inf, "the profile has no such link")
    margin = x.leaf.derived("margin", HIDDEN, "a margin of 1.25 counts as hidden")
    return _smallest(x, device, common, link, margin)


def _max_cp_size(x: Numbers, scenario: Scenario, scale_up: Number, scale_out: Number) -> Number:
    """Largest ring whose blocks hide, from the smallest hidden block on either link."""
    longest = int(plain(x.tokens.context) / plain(scale_up)) // x.sizes["ulysses"]
    domain = scenario.hardware.scale_up.domain_size
    return hiding.max_cp_size(
        seq_len=x.tokens.context,
        min_block_inside=scale_up,
        min_block_outside=scale_out,
        inside_ranks=x.leaf.derived(
            "inside_ranks",
            rings_inside(scenario, longest) * x.sizes["ulysses"],
            f"rings that no border of scale_up.domain_size={domain} cuts",
        ),
        ulysses_size=x.ulysses_size,
    )
