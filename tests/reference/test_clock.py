"""A run on a clock: what can be hidden, and what cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringplan.reference.clock import Rates, replay
from tests.reference.rings import EITHER, smalls

if TYPE_CHECKING:
    from tests.reference.rings import Small

FAST_LINK = Rates(flops_per_second=0.1, bandwidth=1e3, latency=0.0)
rates = st.builds(
    Rates,
    flops_per_second=st.floats(1e3, 1e6),
    bandwidth=st.floats(1e3, 1e6),
    latency=st.floats(0, 1e-2),
    read_bandwidth=st.just(float("inf")),
)


@given(small=smalls(), speed=rates, backward=EITHER)
def test_overlap_can_hide_time_but_neither_make_nor_destroy_it(
    small: Small, speed: Rates, *, backward: bool
) -> None:
    """Between all the compute, or all the wire, and both one after the other."""
    ranks = small.backward() if backward else small.forward()
    hidden, plain = (replay(ranks, speed, overlaps=each) for each in (True, False))

    assert hidden.computing == plain.computing
    assert hidden.total <= plain.total * (1 + 1e-9)
    assert hidden.total >= max(plain.computing, plain.exposed) * (1 - 1e-9)


@given(small=smalls(ring_size=st.integers(2, 6)))
def test_last_hop_home_of_the_gradients_is_never_hidden(small: Small) -> None:
    """There is no step left to hide it, however slow the steps are."""
    exposed = replay(small.backward(), FAST_LINK, overlaps=True).exposed

    assert exposed == pytest.approx(small.gradient_bytes / FAST_LINK.bandwidth, rel=1e-6)


@given(small=smalls(ring_size=st.integers(2, 6)))
def test_reversed_ring_has_nothing_left_to_bring_home(small: Small) -> None:
    exposed = replay(small.backward(reverse=True), FAST_LINK, overlaps=True).exposed

    assert exposed == pytest.approx(0, abs=1e-9)
