"""Gated DeltaNet: linear attention with a short convolution and a state of a matrix per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.parts import State
from ringplan.io.hf.tensors import linear, norm
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors


class Delta(NamedTuple):
    """Sizes of Gated DeltaNet."""

    key_heads: Sourced
    value_heads: Sourced
    key_dim: Sourced
    value_dim: Sourced
    kernel: Sourced

    @property
    def mixed(self) -> int:
        """Elements of queries, keys and values, which the convolution mixes."""
        return 2 * self.key_heads.value * self.key_dim.value + self.out

    @property
    def out(self) -> int:
        """Elements of the output, and of its gate."""
        return self.value_heads.value * self.value_dim.value


def read_delta(fields: Fields) -> Delta:
    """Read the sizes of Gated DeltaNet."""
    return Delta(
        key_heads=fields.integer("linear_num_key_heads"),
        value_heads=fields.integer("linear_num_value_heads"),
        key_dim=fields.integer("linear_key_head_dim"),
        value_dim=fields.integer("linear_value_head_dim"),
        kernel=fields.integer("linear_conv_kernel_dim"),
    )


def delta_state(fields: Fields, delta: Delta) -> State:
    """Count what Gated DeltaNet keeps of a sequence."""
    heads, kernel = delta.value_heads, delta.kernel
    size = heads.value * delta.key_dim.value * delta.value_dim.value
    width = delta.mixed + 2 * delta.out + 2 * heads.value
    mixed = "2 * key heads * key head + value heads * value head"
    return State(
        state_heads=heads,
        conv_state=fields.derived(
            (kernel.value - 1) * delta.mixed, f"(kernel - 1) * ({mixed})", *delta
        ),
        recurrent_state=fields.derived(
            size, "value heads * key head * value head", heads, delta.key_dim, delta.value_dim
        ),
        mixer_width=fields.derived(
            width, "projections of query, key, value, gate, decay and rate, and the output", *delta
        ),
    )


def delta_tensors(hidden_size: int, delta: Delta) -> Tensors:
    """Return the projections, which heads share out, the convolution and the output."""
    heads, name = delta.value_heads.value, "linear_attn"
    per_head = (f"{name}.dt_bias", f"{name}.A_log")
    conv = (delta.mixed, 1, delta.kernel.value)
    return (
        *linear(f"{name}.in_proj_qkvz", delta.mixed + delta.out, hidden_size, "heads"),
        *linear(f"{name}.in_proj_ba", 2 * heads, hidden_size, "heads"),
        Tensor(f"{name}.conv1d.weight", conv, "heads", quantized=False),
        *(Tensor(each, (heads,), "heads", quantized=False) for each in per_head),
        *norm(f"{name}.norm", delta.value_dim.value),
        *linear(f"{name}.out_proj", hidden_size, delta.out, "heads"),
    )
