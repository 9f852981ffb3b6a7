"""All-gather and the exchange of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from ringplan.costs import buffers, collectives
from ringplan.reference.clock import replay
from tests.reference.rings import sent, smalls
from tests.reference.witnesses.registry import Claim, rates, witness

if TYPE_CHECKING:
    from ringplan.reference.network import Rank


@witness(collectives.all_gather_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(cached=st.integers(0, 3)))
    inputs = {"cp_size": small.ranks, "shard_bytes": small.hop_bytes}
    return Claim(inputs, sent(small.gather()))


@witness(buffers.gathered_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small, training = data.draw(smalls()).plain_wire(), data.draw(st.booleans())
    ranks = small.gather_backward() if training else small.gather()
    held = max(rank.ledger.peak("gathered", "gradients") for rank in ranks)
    shard = small.hop_bytes + (small.gradient_bytes if training else 0)
    return Claim({"cp_size": small.ranks, "shard_bytes": shard, "copies": 1}, held)


@witness(collectives.ulysses_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 4)))
    backward = data.draw(st.booleans())
    ranks = small.backward() if backward else small.forward()
    return Claim(small.exchange, sent(ranks, "heads"))


@witness(collectives.hybrid_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(1, 4)))
    ranks = small.forward()
    heads, blocks = sent(ranks, "heads"), sent(ranks, "kv")
    return Claim({"ulysses_bytes": heads, "ring_bytes": blocks}, sent(ranks))


def by_head(rank: Rank, *names: str) -> int:
    """Bytes of arrays of a rank, heads exchanged."""
    inner = rank.scope("by_head")
    return sum(array.nbytes for name in names for array in inner[name])


@witness(buffers.exchanged_qkv_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4)))
    return Claim(small.exchange, by_head(small.forward()[0], "q", "kv"))


@witness(buffers.exchanged_out_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4)))
    backward = data.draw(st.booleans())
    rank = small.backward()[0] if backward else small.forward()[0]
    unused = ("num_kv_heads", "head_dim")
    inputs = {name: size for name, size in small.exchange.items() if name not in unused}
    return Claim(inputs, by_head(rank, "dout" if backward else "out"))


@witness(buffers.exchange_buffer_bytes)
def _(data: st.DataObject) -> Claim:
    small = data.draw(smalls(ulysses_size=st.integers(2, 4))).plain_wire()
    ranks = small.forward()
    ring_names = ("by_head.visiting", "by_head.state")
    around = ranks[0].ledger.peak(*ring_names) if small.ring_size > 1 else 0
    names = ("by_head.q", "by_head.kv", "by_head.out")
    counted = ranks[0].ledger.peak(*names, *(ring_names if small.ring_size > 1 else ()))
    return Claim(
        {
            "arrived_bytes": by_head(ranks[0], "q", "kv"),
            "ring_buffer_bytes": around,
            "leaving_bytes": by_head(ranks[0], "out"),
        },
        counted,
    )


@witness(collectives.collective_time)
def _(data: st.DataObject) -> Claim:
    small, speed = data.draw(smalls()), data.draw(rates)
    ranks = small.gather()
    return Claim(
        {
            "transfer_bytes": sent(ranks),
            "bandwidth": speed.bandwidth,
            "latency": speed.latency,
            "latencies": small.ranks - 1,
        },
        replay(ranks, speed, overlaps=False).exposed,
    )
