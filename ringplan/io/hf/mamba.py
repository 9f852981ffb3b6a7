"""Mamba 2: a state-space layer with a short convolution and a state of a matrix per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.parts import State
from ringplan.io.hf.tensors import linear, norm
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Split


class Mamba(NamedTuple):
    """Sizes of a Mamba 2 mixer."""

    heads: Sourced
    head_dim: Sourced
    groups: Sourced
    state_size: Sourced
    kernel: Sourced

    @property
    def inner(self) -> int:
        """Elements of the output, and of its gate."""
        return self.heads.value * self.head_dim.value

    @property
    def mixed(self) -> int:
        """Elements that the convolution mixes: input, and B and C of each group."""
        return self.inner + 2 * self.groups.value * self.state_size.value

    @property
    def projected(self) -> int:
        """Elements of the projection: gate, what is mixed, and a time step per head."""
        return self.inner + self.mixed + self.heads.value


def read_mamba(fields: Fields) -> Mamba:
    """Read the sizes by the names of Nemotron-H."""
    return Mamba(
        heads=fields.integer("mamba_num_heads"),
        head_dim=fields.integer("mamba_head_dim"),
        groups=fields.integer("n_groups", "mamba_n_groups"),
        state_size=fields.integer("ssm_state_size"),
        kernel=fields.integer("conv_kernel", "mamba_d_conv"),
    )


def read_bamba_mamba(fields: Fields, inner: Sourced) -> Mamba:
    """Read the sizes by the names of Bamba and Granite; a head's size may be ``auto``."""
    heads = fields.integer("mamba_n_heads")
    auto = fields.has("mamba_d_head") and fields.config.values["mamba_d_head"] == "auto"
    rule = "elements of the mixer / mamba_n_heads"
    share = fields.derived(max(inner.value // heads.value, 1), rule, inner, heads)
    size = None if auto else fields.optional("mamba_d_head")
    return Mamba(
        heads=heads,
        head_dim=size or share,
        groups=fields.integer("mamba_n_groups"),
        state_size=fields.integer("mamba_d_state"),
        kernel=fields.integer("mamba_d_conv"),
    )


def mamba_state(fields: Fields, mamba: Mamba) -> State:
    """Count what a Mamba 2 mixer keeps of a sequence."""
    heads, _, _, size, kernel = mamba
    mixed = "heads * head size + 2 * groups * state size"
    return State(
        state_heads=heads,
        conv_state=fields.derived(
            (kernel.value - 1) * mamba.mixed, f"(kernel - 1) * ({mixed})", *mamba
        ),
        recurrent_state=fields.derived(
            mamba.inner * size.value, "heads * head size * state size", heads, mamba.head_dim, size
        ),
        mixer_width=fields.derived(
            mamba.projected + mamba.inner, "projection and output of the mixer", *mamba
        ),
    )


def mamba_tensors(
    hidden_size: int, mamba: Mamba, *, name: str, bias: bool, conv_bias: bool, normed: bool = True
) -> Tensors:
    """
    Return the tensors of a mixer, which heads share out.

    Parameters
    ----------
    hidden_size, mamba
        Sizes.
    name
        What the family calls the module.
    bias, conv_bias
        Whether the projections and the convolution have biases.
    normed
        Whether the output is normed before it is projected.
    """
    heads = mamba.heads.value
    per_head = (f"{name}.dt_bias", f"{name}.A_log", f"{name}.D")
    conv = Tensor(
        f"{name}.conv1d.weight", (mamba.mixed, 1, mamba.kernel.value), "heads", quantized=False
    )
    one_each = conv._replace(name=f"{name}.conv1d.bias", shape=(mamba.mixed,))
    gated = tuple(t._replace(split="heads") for t in norm(f"{name}.norm", mamba.inner))
    whole: Split | None = "none" if bias else None
    cut: Split | None = "heads" if bias else None
    return (
        *linear(f"{name}.in_proj", mamba.projected, hidden_size, "heads", bias=cut),
        conv,
        *((one_each,) if conv_bias else ()),
        *(Tensor(each, (heads,), "heads", quantized=False) for each in per_head),
        *(gated if normed else ()),
        *linear(f"{name}.out_proj", hidden_size, mamba.inner, "heads", bias=whole),
    )
