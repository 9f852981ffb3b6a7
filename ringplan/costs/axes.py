"""Bytes of the other parallel axes, per rank and pass, with ring algorithms."""

from __future__ import annotations

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, divide, where


@formula(
    equation="2 L (T - 1)/T x 2 B n D e x passes",
    unit="B",
    scope="rank, pass",
    source="two all-reduces a layer and direction (Shoeybi et al. 2019, Megatron-LM)",
)
def tensor_parallel_bytes(
    *,
    layers: Number,
    tp_size: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    element_bytes: Number,
    passes: Number,
) -> Number:
    """
    Bytes that one rank sends in the tensor-parallel all-reduces of all layers.

    >>> tensor_parallel_bytes(
    ...     layers=1, tp_size=8, batch_size=1, tokens=8192, hidden_size=4096, element_bytes=2,
    ...     passes=1
    ... )
    234881024
    """
    activation = batch_size * tokens * hidden_size * element_bytes
    return divide(2 * layers * 2 * (tp_size - 1) * activation * passes, tp_size)


@formula(
    equation="2 L x 2 (T - 1) x passes",
    unit="1",
    scope="rank, pass",
    source="a ring all-reduce is 2 (T - 1) hops",
)
def tensor_parallel_latencies(*, layers: Number, tp_size: Number, passes: Number) -> Number:
    """
    Hops, one after another, of the tensor-parallel all-reduces of all layers.

    >>> tensor_parallel_latencies(layers=1, tp_size=8, passes=1)
    28
    """
    return 2 * layers * 2 * (tp_size - 1) * passes


@formula(
    equation="B n D e x passes, none for one stage",
    unit="B",
    scope="rank, micro-batch",
    source="activations to the next stage, their gradients back",
)
def pipeline_bytes(
    *,
    pp_size: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    element_bytes: Number,
    passes: Number,
) -> Number:
    """
    Bytes that a rank of a middle stage sends per micro-batch.

    >>> pipeline_bytes(
    ...     pp_size=2, batch_size=1, tokens=4, hidden_size=8, element_bytes=2, passes=1
    ... )
    64
    """
    return where(pp_size > 1, batch_size * tokens * hidden_size * element_bytes * passes, 0)


@formula(
    equation="(N - 1)/N W_g x passes",
    unit="B",
    scope="rank, pass",
    source="an all-gather or a reduce-scatter over N ranks (ZeRO, Rajbhandari et al. 2020)",
)
def shard_collective_bytes(*, group_size: Number, gathered_bytes: Number, passes: Number) -> Number:
    """
    Bytes that one rank sends to gather, or reduce-scatter, something N ranks share.

    An all-reduce is two passes.

    >>> shard_collective_bytes(group_size=8, gathered_bytes=800, passes=2)
    1400
    """
    return divide((group_size - 1) * gathered_bytes * passes, group_size)


@formula(equation="L passes (N - 1)", unit="1", scope="rank, pass", source="ring algorithm")
def shard_collective_latencies(*, layers: Number, group_size: Number, passes: Number) -> Number:
    """
    Hops, one after another, of all-gathers and reduce-scatters, one a layer.

    >>> shard_collective_latencies(layers=1, group_size=8, passes=2)
    14
    """
    return layers * passes * (group_size - 1)


@formula(
    equation="2 L (E - 1)/E B n k D e x passes",
    unit="B",
    scope="rank, pass",
    source="tokens to their top-k experts and back (Lepikhin et al. 2020, GShard)",
)
def expert_parallel_bytes(
    *,
    layers: Number,
    ep_size: Number,
    batch_size: Number,
    tokens: Number,
    experts_per_token: Number,
    hidden_size: Number,
    element_bytes: Number,
    passes: Number,
) -> Number:
    """
    Bytes that one rank sends in the expert all-to-alls of its MoE layers, tokens spread evenly.

    >>> expert_parallel_bytes(
    ...     layers=1, ep_size=2, batch_size=1, tokens=4, experts_per_token=2, hidden_size=8,
    ...     element_bytes=2, passes=1
    ... )
    128
    """
    routed = batch_size * tokens * experts_per_token * hidden_size * element_bytes
    return divide(2 * layers * routed * (ep_size - 1) * passes, ep_size)


@formula(equation="2 L x passes", unit="1", scope="rank, pass", source="two all-to-alls a layer")
def expert_parallel_latencies(*, layers: Number, passes: Number) -> Number:
    """
    All-to-alls, one after another, of the MoE layers.

    >>> expert_parallel_latencies(layers=58, passes=1)
    116
    """
    return 2 * layers * passes


@formula(
    equation="passes B state",
    unit="B",
    scope="rank",
    source="counted: a rank starts from the state that the tokens before its own have left, and "
    "hands its own on",
)
def state_pass_bytes(*, batch_size: Number, sequence_bytes: Number, passes: Number) -> Number:
    """
    Bytes of linear-attention and state-space states that one rank sends, all its layers.

    >>> state_pass_bytes(batch_size=1, sequence_bytes=2**20, passes=2)
    2097152
    """
    return passes * batch_size * sequence_bytes


@formula(
    equation="(P - 1) bytes",
    unit="B",
    scope="job",
    source="the states pass from rank to rank, one after another",
)
def state_chain_bytes(*, bytes_sent: Number, cp_size: Number) -> Number:
    """
    Bytes of states that are sent one after another.

    >>> state_chain_bytes(bytes_sent=10, cp_size=8)
    70
    """
    return (cp_size - 1) * bytes_sent


@formula(
    equation="passes L (P - 1)",
    unit="1",
    scope="job",
    source="a hop between any two neighbours, in every layer with a state",
)
def state_latencies(*, layers: Number, cp_size: Number, passes: Number) -> Number:
    """
    Start-ups of the hops of states, one after another.

    >>> state_latencies(layers=30, cp_size=8, passes=1)
    210
    """
    return passes * layers * (cp_size - 1)
