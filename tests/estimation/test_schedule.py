"""What a schedule's fields do to an estimate, by hand."""

from __future__ import annotations

import pytest

from ringplan.api import load
from ringplan.estimation.core import estimate

#: 131,072 tokens on 8 ranks, 8 KV heads of 128 and 128, 16 bits.
U = 131072 // 8 * 8 * (128 + 128) * 2


@pytest.mark.parametrize(
    ("fields", "forward", "backward"),
    [
        ({}, 7 * U, 14 * U),
        ({"kv_extra_hops_forward": 0}, 8 * U, 14 * U),
        ({"kv_extra_hops_backward": 0}, 7 * U, 15 * U),
        ({"gradient_extra_hops": 1}, 7 * U, 16 * U),
        ({"gradient_wire_dtype": "fp32", "gradient_extra_hops": 0}, 7 * U, (7 + 2 * 8) * U),
        ({"k_wire_dtype": "fp32", "v_wire_dtype": "fp32"}, 14 * U, (14 + 7) * U),
        ({"k_wire_dtype": "fp32"}, 10.5 * U, (10.5 + 7) * U),
        (
            {
                "kv_extra_hops_forward": 0,
                "kv_extra_hops_backward": 1,
                "gradient_extra_hops": -1,
                "gradient_wire_dtype": "fp32",
            },
            8 * U,
            (9 + 2 * 7) * U,
        ),
    ],
)
def test_each_field_changes_its_own_bytes(
    fields: dict[str, object], forward: int, backward: int
) -> None:
    """K and V forward, K and V again, and their gradients: hops and formats of each apart."""
    scenario = load(
        model="llama-3.1-8b", hardware="h100-sxm-80gb", seq_len="128K", cp_size=8, phase="train"
    ).scenario
    schedule = scenario.schedule.model_copy(update=fields)
    ring = estimate(scenario.model_copy(update={"schedule": schedule})).ring

    assert ring.bytes_sent_forward == forward
    assert ring.bytes_sent_backward == backward
