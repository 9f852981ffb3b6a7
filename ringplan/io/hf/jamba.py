"""Mamba 1, whose channels have a state each: alone, and in Jamba with attention and experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.io.hf.experts import mixture, read_dense_mlp, read_experts
from ringplan.io.hf.parts import Decoder, Layer, Mlp, State, read_trunk
from ringplan.io.hf.readings import equal_share, read_heads
from ringplan.io.hf.tensors import ends, linear, norm, projections
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.parts import Trunk
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Split


class _Mixer(NamedTuple):
    inner: Sourced
    state_size: Sourced
    kernel: Sourced
    rank: Sourced


def read_jamba(fields: Fields) -> Decoder:
    """Read Jamba: attention in every n-th layer, experts in every m-th."""
    trunk = read_trunk(fields)
    hidden, count = trunk.hidden_size.value, trunk.num_hidden_layers.value
    attends = _every(fields, "attn_layer")
    routed = _every(fields, "expert_layer")
    heads = read_heads(fields, head_dim=lambda: equal_share(fields))
    norms = norm("input_layernorm", hidden) + norm("pre_ff_layernorm", hidden)
    full = Layer(heads, projections(hidden, heads) + norms)
    mixer = _read_mixer(fields, trunk, ("mamba_d_state", "mamba_d_conv", "mamba_dt_rank"))
    bias = fields.flag("mamba_proj_bias", default=False)
    conv_bias = fields.flag("mamba_conv_bias", default=True)
    tensors = _tensors(hidden, mixer, "mamba", bias=bias, conv_bias=conv_bias)
    state = Layer(None, tensors + _inner_norms(mixer) + norms, state=_state(fields, mixer))
    dense, experts = read_dense_mlp(fields, hidden), _experts(fields, hidden)
    layers = tuple(
        (full if attends(index) else state)._replace(mlp=experts if routed(index) else dense)
        for index in range(count)
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    return Decoder(trunk, layers, ends(trunk, tied=tied))


def read_mamba(fields: Fields) -> Decoder:
    """Read Mamba 1: no attention, no MLP."""
    trunk = read_trunk(fields)
    hidden = trunk.hidden_size.value
    mixer = _read_mixer(fields, trunk, ("state_size", "conv_kernel", "time_step_rank"))
    bias = fields.flag("use_bias", default=False)
    conv_bias = fields.flag("use_conv_bias", default=True)
    tensors = _tensors(hidden, mixer, "mixer", bias=bias, conv_bias=conv_bias)
    layer = Layer(None, tensors + norm("norm", hidden), state=_state(fields, mixer))
    tied = fields.flag("tie_word_embeddings", default=True)
    return Decoder(trunk, (layer,) * trunk.num_hidden_layers.value, ends(trunk, tied=tied))


def _every(fields: Fields, name: str) -> Callable[[int], bool]:
    """Read of which layers something is: every so many, from an offset on."""
    period = fields.integer(f"{name}_period").value
    offset = fields.integer(f"{name}_offset", least=0).value
    for key in (f"{name}_period", f"{name}_offset"):
        if not fields.has(key):
            fields.vital(key)
    return lambda index: index % period == offset


def _experts(fields: Fields, hidden_size: int) -> Mlp:
    experts, visited = read_experts(fields, "num_experts")
    width = fields.integer("intermediate_size")
    inside = "feed_forward"
    return mixture(fields, hidden_size, experts, visited, width, inside=inside, gate="router")


def _read_mixer(fields: Fields, trunk: Trunk, keys: tuple[str, str, str]) -> _Mixer:
    """Read the sizes; the rank of time steps is a 16th of a token unless it is a number."""
    state_size, kernel, rank = keys
    hidden, expand = trunk.hidden_size, fields.integer("mamba_expand", "expand")
    auto = fields.config.values.get(rank) in ("auto", None)
    fields.keys.add(rank)
    share = fields.derived(-(-hidden.value // 16), "hidden_size / 16, rounded up", hidden)
    rule = "expand * hidden_size"
    return _Mixer(
        inner=fields.derived(expand.value * hidden.value, rule, expand, hidden),
        state_size=fields.integer(state_size),
        kernel=fields.integer(kernel),
        rank=share if auto else fields.integer(rank),
    )


def _state(fields: Fields, mixer: _Mixer) -> State:
    inner, size, kernel, rank = mixer
    width = 3 * inner.value + rank.value + 2 * size.value
    return State(
        state_heads=inner,
        conv_state=fields.derived(
            (kernel.value - 1) * inner.value, "(kernel - 1) * channels", kernel, inner
        ),
        recurrent_state=fields.derived(
            inner.value * size.value, "channels * state size", inner, size
        ),
        mixer_width=fields.derived(width, "projections and output of the mixer", *mixer),
    )


def _tensors(hidden_size: int, mixer: _Mixer, name: str, *, bias: bool, conv_bias: bool) -> Tensors:
    inner, size, rank = mixer.inner.value, mixer.state_size.value, mixer.rank.value
    conv = Tensor(f"{name}.conv1d.weight", (inner, 1, mixer.kernel.value), "heads", quantized=False)
    one_each = conv._replace(name=f"{name}.conv1d.bias", shape=(inner,))
    whole: Split | None = "none" if bias else None
    cut: Split | None = "heads" if bias else None
    return (
        *linear(f"{name}.in_proj", 2 * inner, hidden_size, "heads", bias=cut),
        conv,
        *((one_each,) if conv_bias else ()),
        *linear(f"{name}.x_proj", rank + 2 * size, inner, "heads"),
        *linear(f"{name}.dt_proj", inner, rank, "heads", bias="heads"),
        Tensor(f"{name}.A_log", (inner, size), "heads", quantized=False),
        Tensor(f"{name}.D", (inner,), "heads", quantized=False),
        *linear(f"{name}.out_proj", hidden_size, inner, "heads", bias=whole),
    )


def _inner_norms(mixer: _Mixer) -> Tensors:
    """Return the norms of time steps, of B and of C."""
    return (
        *norm("mamba.dt_layernorm", mixer.rank.value),
        *norm("mamba.b_layernorm", mixer.state_size.value),
        *norm("mamba.c_layernorm", mixer.state_size.value),
    )
