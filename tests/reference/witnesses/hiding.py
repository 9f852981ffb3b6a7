"""The smallest block that hides its transfer."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from ringplan.costs import hiding
from ringplan.reference.clock import Rates
from tests.reference.rings import Small, smalls
from tests.reference.witnesses.registry import TIE, Claim, rings, witness

if TYPE_CHECKING:
    from collections.abc import Callable


#: Rates at which blocks of some tens of tokens hide their transfer.
SLOW = st.builds(
    Rates,
    flops_per_second=st.floats(2e3, 6e3),
    bandwidth=st.floats(50, 100),
    latency=st.floats(0, 0.05),
    read_bandwidth=st.just(float("inf")),
)


#: A kernel that is as fast on any call.
FLAT: dict[str, Any] = {
    **dict.fromkeys(("fill_sizes", "depth_sizes", "head_sizes"), (1,)),
    **dict.fromkeys(("fill_shares", "depth_shares", "head_shares"), (1,)),
    "tile": 0,
    "head_size": 1,
}


class Hiding(NamedTuple):
    """A model on rates, and the margin that a ring of three has with blocks of some tokens."""

    small: Small
    speed: Rates

    @property
    def rates(self) -> dict[str, Any]:
        return {"bandwidth": self.speed.bandwidth, "latency": self.speed.latency}

    @property
    def shape(self) -> dict[str, Any]:
        small = self.small
        return {
            "batch_size": small.batch,
            "num_heads": small.heads,
            "head_dim": small.head_dim,
            "v_head_dim": small.v_head_dim,
            "visible_share": 0.5 if small.causal else 1,
            "ulysses_size": 1,
            "wire_bytes_per_token": small.hop_bytes // small.batch // small.tokens,
        }

    def margin(self, tokens: int) -> float:
        """Compute over transfer of a step on a visiting block."""
        ranks = dataclasses.replace(self.small, tokens=tokens).forward()
        step = ranks[0].ledger.steps[1]
        hop = step.exchanges * self.speed.latency + step.sent.total() / self.speed.bandwidth
        flops = max(rank.ledger.steps[2].work.flops for rank in ranks)
        return flops / self.speed.flops_per_second / hop


@st.composite
def hidings(draw: st.DrawFn) -> Hiding:
    small = draw(smalls(ring_size=st.just(3), partition=st.just("zigzag")))
    return Hiding(small, draw(SLOW))


def smallest(hides: Callable[[int], float], margin: float) -> tuple[int, int]:
    """Smallest legal block of enough margin, by trying; both that may be, should one just tie."""
    enough = 2
    while hides(enough) < margin * (1 + TIE):
        enough *= 2
    legal = range(2, enough + 1, 2)
    first, last = (bisect_left(legal, margin * each, key=hides) for each in (1 - TIE, 1 + TIE))
    return legal[first], legal[last]


@witness(hiding.wire_bytes_per_token)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ring_size=rings, ulysses_size=st.integers(1, 4)))
    hop = small.forward()[0].ledger.sent("kv") // (small.ring_size - 1)
    shape = {name: size for name, size in small.kv_shape.items() if name != "batch_size"}
    per_token = hop // small.batch // small.tokens
    each = {"key_bytes": small.kv_bytes, "value_bytes": small.kv_bytes}
    inputs = {**shape, **each, "ulysses_size": small.ulysses_size}
    return Claim(inputs, per_token)


@witness(hiding.min_block_tokens)
def _(data: st.DataObject) -> Claim:
    case, margin = data.draw(hidings()), data.draw(st.sampled_from([1, 1.25]))
    return Claim(
        {
            "margin": margin,
            "granule": 2,
            **case.shape,
            "diagonal_share": 0,
            "new_tokens": 1,
            "seq_len": 1,
            "peak": case.speed.flops_per_second,
            "sizes": (1,),
            "shares": (1,),
            **FLAT,
            "message_sizes": (1,),
            "link_shares": (1,),
            "messages": 1,
            "latencies": 1,
            "merge_time": 0,
            **case.rates,
        },
        *smallest(case.margin, margin),
    )


@witness(hiding.min_block_tokens_ideal)
def _(data: st.DataObject) -> Claim:
    """Between the largest legal block that stalls and the smallest that hides."""
    case = data.draw(hidings())
    inputs = {**case.shape, "flops_per_second": case.speed.flops_per_second, **case.rates}
    first, last = smallest(case.margin, 1)
    return Claim(inputs, first - 2, last)


@witness(hiding.larger_block)
def _(data: st.DataObject) -> Claim:
    case, other = data.draw(hidings()), data.draw(SLOW)
    passes = (case, case._replace(speed=other))
    forward, backward = (smallest(each.margin, 1)[0] for each in passes)
    both = smallest(lambda n: min(each.margin(n) for each in passes), 1)
    return Claim({"forward": forward, "backward": backward}, *both)


@witness(hiding.max_cp_size)
def _(data: st.DataObject) -> Claim:
    """Try every size on the link that it would use: inside a domain, or beyond."""
    case, other = data.draw(hidings()), data.draw(SLOW)
    inside, outside = (smallest(each.margin, 1)[1] for each in (case, case._replace(speed=other)))
    domain, degree = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    seq_len = 2 * data.draw(st.integers(1, 200))

    def hides(size: int) -> bool:
        return seq_len / size >= (inside if size <= domain else outside)

    sizes = range(degree, max(seq_len, domain) + 1, degree)
    return Claim(
        {
            "seq_len": seq_len,
            "min_block_inside": inside,
            "min_block_outside": outside,
            "inside_ranks": domain,
            "ulysses_size": degree,
        },
        max(filter(hides, sizes), default=degree),
    )
