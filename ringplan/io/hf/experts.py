"""MLPs of routed experts, as several families have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.parts import Mlp
from ringplan.io.hf.tensors import gated_experts, gated_mlp, router

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.specs.model import Tensor


def read_experts(fields: Fields, *keys: str) -> tuple[Sourced, Sourced]:
    """Read how many routed experts there are and how many a token visits."""
    experts = fields.integer(*keys)
    visited = fields.integer("num_experts_per_tok")
    if visited.value > experts.value:
        fields.conflict(
            f"num_experts_per_tok {visited.value} is more than {keys[0]} {experts.value}"
        )
    return experts, visited


def active_width(
    fields: Fields, visited: Sourced, width: Sourced, shared: Sourced | None = None
) -> Sourced:
    """Return the MLP width that one token meets: its routed experts and the shared ones."""
    if shared is None or not shared.value:
        rule = "experts per token * width of one"
        return fields.derived(visited.value * width.value, rule, visited, width)
    rule = "(experts per token + shared experts) * width of one"
    total = (visited.value + shared.value) * width.value
    return fields.derived(total, rule, visited, shared, width)


def read_dense_mlp(fields: Fields, hidden_size: int) -> Mlp:
    """Read the plain MLP that some layers of a mixture have."""
    width = fields.integer("intermediate_size")
    return Mlp(width, gated_mlp("mlp", hidden_size, width.value))


def read_routed_mlp(fields: Fields, hidden_size: int, *count_keys: str) -> Mlp:
    """Read a router and its experts, without shared ones."""
    experts, visited = read_experts(fields, *count_keys)
    width = fields.integer("moe_intermediate_size")
    tensors = (
        router("mlp.gate", experts.value, hidden_size),
        *gated_experts("mlp.experts", experts.value, hidden_size, width.value),
    )
    return Mlp(active_width(fields, visited, width), tensors, visited)


def read_shared_mlp(fields: Fields, hidden_size: int, *, correction: bool) -> Mlp:
    """
    Read routed experts and the shared ones beside them, as DeepSeek has them.

    Parameters
    ----------
    fields
        The config.
    hidden_size
        Size of a token.
    correction
        Whether the router has a bias that balances its experts.
    """
    experts, visited = read_experts(fields, "n_routed_experts")
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("n_shared_experts", least=0)
    gate = router("mlp.gate", experts.value, hidden_size)
    name, shape = "mlp.gate.e_score_correction_bias", (experts.value,)
    balance = gate._replace(name=name, shape=shape)
    tensors = (
        gate,
        *((balance,) if correction else ()),
        *gated_experts("mlp.experts", experts.value, hidden_size, width.value),
        *_shared(hidden_size, width.value * shared.value),
    )
    return Mlp(active_width(fields, visited, width, shared), tensors, visited)


def _shared(hidden_size: int, width: int) -> tuple[Tensor, ...]:
    return gated_mlp("mlp.shared_experts", hidden_size, width) if width else ()
