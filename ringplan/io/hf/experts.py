"""MLPs of routed experts, as several families have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.parts import Mlp
from ringplan.io.hf.tensors import gated_experts, gated_mlp, router

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors
    from ringplan.specs.model import Tensor


#: What families call the number of experts that a token visits.
VISITED: Final = ("num_experts_per_tok", "num_experts_per_token")


def read_experts(
    fields: Fields, *keys: str, visited_keys: tuple[str, ...] = VISITED
) -> tuple[Sourced, Sourced]:
    """Read how many routed experts there are and how many a token visits."""
    experts = fields.integer(*keys)
    visited = fields.integer(*visited_keys)
    if visited.value > experts.value:
        problem = f"{visited_keys[0]} {visited.value} is more than {keys[0]} {experts.value}"
        fields.conflict(problem, visited, experts)
    return experts, visited


def active_width(
    fields: Fields, visited: Sourced, width: Sourced, shared: Sourced | None = None
) -> Sourced:
    """Return the MLP width that one token meets: its routed experts and the shared one."""
    if shared is None or not shared.value:
        rule = "experts per token * width of one"
        return fields.derived(visited.value * width.value, rule, visited, width)
    rule = "experts per token * width of one + width of the shared expert"
    total = visited.value * width.value + shared.value
    return fields.derived(total, rule, visited, width, shared)


def read_dense_mlp(fields: Fields, hidden_size: int, *, bias: bool = False) -> Mlp:
    """Read the plain MLP that some layers of a mixture have."""
    width = fields.integer("intermediate_size")
    return Mlp(width, gated_mlp("mlp", hidden_size, width.value, bias=bias))


def read_routed_mlp(fields: Fields, hidden_size: int, *count_keys: str) -> Mlp:
    """Read a router and its experts, without shared ones."""
    experts, visited = read_experts(fields, *count_keys)
    width = fields.integer("moe_intermediate_size")
    return mixture(fields, hidden_size, experts, visited, width)


def read_shared_mlp(
    fields: Fields,
    hidden_size: int,
    *,
    correction: bool,
    experts_keys: tuple[str, ...] = ("n_routed_experts", "num_experts", "num_local_experts"),
    shared_keys: tuple[str, ...] = ("n_shared_experts", "num_shared_experts"),
) -> Mlp:
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
    experts_keys, shared_keys
        What the family calls the numbers of experts.
    """
    experts, visited = read_experts(fields, *experts_keys)
    width = fields.integer("moe_intermediate_size")
    count = fields.integer(*shared_keys, least=0)
    rule = "shared experts * width of one"
    shared = fields.derived(count.value * width.value, rule, count, width)
    mlp = mixture(fields, hidden_size, experts, visited, width, correction=correction)
    tensors = mlp.tensors + shared_expert("mlp.shared_experts", hidden_size, shared.value)
    return Mlp(active_width(fields, visited, width, shared), tensors, visited)


def mixture(
    fields: Fields,
    hidden_size: int,
    experts: Sourced,
    visited: Sourced,
    width: Sourced,
    *,
    correction: bool = False,
    inside: str = "mlp",
    gate: str = "gate",
) -> Mlp:
    """
    Return a router and its experts.

    Parameters
    ----------
    fields
        The config.
    hidden_size, experts, visited, width
        Size of a token, number of experts, how many a token visits, and the width of one.
    correction
        Whether the router has a bias that balances its experts.
    inside, gate
        What the family calls the module, and the router in it.
    """
    weight = router(f"{inside}.{gate}", experts.value, hidden_size)
    tensors = (
        weight,
        *((correction_bias(weight, experts.value),) if correction else ()),
        *gated_experts(f"{inside}.experts", experts.value, hidden_size, width.value),
    )
    return Mlp(active_width(fields, visited, width), tensors, visited)


def correction_bias(weight: Tensor, experts: int) -> Tensor:
    """Return the bias that balances a router's experts."""
    name = weight.name.replace(".weight", ".e_score_correction_bias")
    return weight._replace(name=name, shape=(experts,))


def shared_expert(name: str, hidden_size: int, width: int) -> Tensors:
    """Return the expert that every token visits; nothing if it has no width."""
    return gated_mlp(name, hidden_size, width) if width else ()
