"""What lies in memory: of the whole job, and on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs.formula import formula
from ringplan.costs.numeric import Number, ceil_div, divide, floor, maximum, minimum, ratio, where

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTED = "counted"


@formula(equation="G (d_k + d_v)", unit="1", scope="job, layer", source="definition")
def cached_elements(*, num_kv_heads: Number, head_dim: Number, v_head_dim: Number) -> Number:
    """
    Elements that a token leaves in the cache of a layer.

    >>> cached_elements(num_kv_heads=8, head_dim=128, v_head_dim=128)
    2048
    """
    return num_kv_heads * (head_dim + v_head_dim)


@formula(
    equation="sum over growing layers of z e",
    unit="B",
    scope="job, token",
    source="layers that attend to the whole context",
)
def kv_bytes_per_token(
    *,
    layers: Sequence[Number],
    elements: Sequence[Number],
    grows: Sequence[Number],
    element_bytes: Number,
) -> Number:
    """
    Bytes that one more token of context adds to the cache of all layers.

    >>> kv_bytes_per_token(layers=(2, 2), elements=(4, 4), grows=(1, 0), element_bytes=2)
    16
    """
    kinds = zip(layers, elements, grows, strict=True)
    return sum(count * each * growing for count, each, growing in kinds) * element_bytes


@formula(
    equation="sum over window layers of min(S, w) z e",
    unit="B",
    scope="job, sequence",
    source="a sliding window keeps its last w tokens",
)
def kv_constant_bytes(
    *,
    layers: Sequence[Number],
    elements: Sequence[Number],
    windows: Sequence[Number],
    seq_len: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of a sequence in layers that do not grow with the context; a window of 0 is none.

    >>> kv_constant_bytes(
    ...     layers=(2, 2), elements=(4, 4), windows=(0, 8), seq_len=99, element_bytes=2
    ... )
    128
    """
    kinds = zip(layers, elements, windows, strict=True)
    return sum(count * each * minimum(seq_len, w) for count, each, w in kinds) * element_bytes


@formula(equation="dp B (S k + C)", unit="B", scope="job", source="every sequence of every replica")
def kv_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    per_token: Number,
    constant: Number,
) -> Number:
    """
    Bytes of K and V of the whole job, nothing replicated.

    >>> kv_bytes(dp_size=1, batch_size=1, seq_len=1048576, per_token=524288, constant=0)
    549755813888
    """
    return dp_size * batch_size * (seq_len * per_token + constant)


@formula(equation="dp B S z e", unit="B", scope="job, layer", source="2 N d bytes in the article")
def kv_layer_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    seq_len: Number,
    elements: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of K and V of the widest full-attention layer.

    >>> kv_layer_bytes(dp_size=1, batch_size=1, seq_len=1048576, elements=8192, element_bytes=2)
    17179869184
    """
    return dp_size * batch_size * seq_len * elements * element_bytes


@formula(
    equation="B H N S e",
    unit="B",
    scope="job, layer",
    source="what FlashAttention never stores (Dao et al. 2022)",
)
def score_matrix_bytes(
    *,
    dp_size: Number,
    batch_size: Number,
    num_attention_heads: Number,
    new_tokens: Number,
    seq_len: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the attention scores of one layer, if they were stored.

    >>> score_matrix_bytes(
    ...     dp_size=1, batch_size=1, num_attention_heads=32, new_tokens=1048576, seq_len=1048576,
    ...     element_bytes=2
    ... )
    70368744177664
    """
    return dp_size * batch_size * num_attention_heads * new_tokens * seq_len * element_bytes


@formula(
    equation="min(w, tokens of a chunk)",
    unit="token",
    scope="rank, sequence, layer",
    source="the last chunks' ranks hold the window, not all evenly",
)
def window_tokens(*, window: Number, chunk_tokens: Number) -> Number:
    """
    Tokens of a sliding window on the rank that holds most of them.

    >>> window_tokens(window=4096, chunk_tokens=1024)
    1024
    """
    return minimum(window, chunk_tokens)


@formula(
    equation="min(w, n/2) + min(max(w - S/2, 0), n/2)",
    unit="token",
    scope="rank, sequence, layer",
    source="counted: a rank's two chunks lie in opposite halves of the sequence",
)
def zigzag_window_tokens(*, window: Number, block_tokens: Number, seq_len: Number) -> Number:
    """
    Tokens of a sliding window on the zigzag rank that holds most of them.

    >>> zigzag_window_tokens(window=6, block_tokens=4, seq_len=8)
    4
    """
    chunk = divide(block_tokens, 2)
    beyond_half = maximum(window - divide(seq_len, 2), 0)
    return minimum(window, chunk) + minimum(beyond_half, chunk)


@formula(
    equation="B sum over kinds of L n z e",
    unit="B",
    scope="rank",
    source="the fullest rank; MLA's latent is whole on every tensor-parallel rank",
)
def rank_kv_bytes(
    *,
    batch_size: Number,
    layers: Sequence[Number],
    tokens: Sequence[Number],
    elements: Sequence[Number],
    element_bytes: Number,
) -> Number:
    """
    Bytes of the KV cache on one rank.

    >>> rank_kv_bytes(
    ...     batch_size=1, layers=(32,), tokens=(16384,), elements=(2048,), element_bytes=2
    ... )
    2147483648
    """
    kinds = zip(layers, tokens, elements, strict=True)
    return batch_size * sum(count * held * each for count, held, each in kinds) * element_bytes


@formula(
    equation="k U + B h n u/u (4 d_v + 8)",
    unit="B",
    scope="rank, layer",
    source="visiting and arriving K/V, running output and statistics in fp32",
)
def ring_buffer_bytes(
    *,
    ring_size: Number,
    kv_buffers: Number,
    hop_bytes: Number,
    batch_size: Number,
    query_tokens: Number,
    num_heads: Number,
    v_head_dim: Number,
) -> Number:
    """
    Bytes that the ring holds beside the rank's own tensors; none without a ring.

    >>> ring_buffer_bytes(
    ...     ring_size=8, kv_buffers=2, hop_bytes=100, batch_size=1, query_tokens=2, num_heads=3,
    ...     v_head_dim=4
    ... )
    344
    """
    accumulators = batch_size * query_tokens * num_heads * (4 * v_head_dim + 8)
    return where(ring_size > 1, kv_buffers * hop_bytes + accumulators, 0)


@formula(
    equation="B n e (2 D/s + max[(h + g)(d_k + d_v), 3 I/T])",
    unit="B",
    scope="rank, layer",
    source="tensors alive at the widest point of a layer: residual, its norm, and either Q, K, V "
    "and the output of attention, or gate, up and product of the MLP",
)
def working_set_bytes(
    *,
    batch_size: Number,
    query_tokens: Number,
    hidden_size: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    intermediate_size: Number,
    tp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of activations while one layer runs forward.

    >>> working_set_bytes(
    ...     batch_size=1, query_tokens=1, hidden_size=4096, num_heads=32, num_kv_heads=32,
    ...     head_dim=128, v_head_dim=128, intermediate_size=11008, tp_size=1, residual_shards=1,
    ...     element_bytes=2
    ... )
    82432
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    mlp = divide(3 * intermediate_size, tp_size)
    widest = divide(2 * hidden_size, residual_shards) + maximum(attention, mlp)
    return batch_size * query_tokens * element_bytes * widest


@formula(
    equation="L B n D/s e",
    unit="B",
    scope="rank",
    source="full recompute keeps the input of each layer",
)
def boundary_bytes(
    *,
    layers: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the layer inputs that full recompute keeps.

    >>> boundary_bytes(
    ...     layers=60, batch_size=1, tokens=256000, hidden_size=5376, residual_shards=1,
    ...     element_bytes=2
    ... )
    165150720000
    """
    return divide(layers * batch_size * tokens * hidden_size * element_bytes, residual_shards)


@formula(
    equation="L B n (e (4 D/s + (h + g)(d_k + d_v) + 4 I/T) + 4 h)",
    unit="B",
    scope="rank",
    source="inputs of both norms and both blocks; Q, K, V, output and its log-sum-exp; gate, up, "
    "activation and product of the MLP. FlashAttention stores no scores",
)
def kept_activation_bytes(
    *,
    layers: Number,
    batch_size: Number,
    tokens: Number,
    hidden_size: Number,
    num_heads: Number,
    num_kv_heads: Number,
    head_dim: Number,
    v_head_dim: Number,
    intermediate_size: Number,
    tp_size: Number,
    residual_shards: Number,
    element_bytes: Number,
) -> Number:
    """
    Bytes of the activations that training keeps of some layers without recompute.

    >>> kept_activation_bytes(
    ...     layers=1, batch_size=1, tokens=1, hidden_size=8, num_heads=2, num_kv_heads=1,
    ...     head_dim=4, v_head_dim=4, intermediate_size=16, tp_size=1, residual_shards=1,
    ...     element_bytes=2
    ... )
    248
    """
    attention = (num_heads + num_kv_heads) * (head_dim + v_head_dim)
    residual = divide(4 * hidden_size, residual_shards)
    per_token = residual + attention + divide(4 * intermediate_size, tp_size)
    return layers * batch_size * tokens * (per_token * element_bytes + 4 * num_heads)


@formula(
    equation="B n V/T x bytes",
    unit="B",
    scope="rank, last stage",
    source="inference: fp32 logits of the last token; training, unfused: 16-bit logits, fp32 copy "
    "and fp32 gradient, 10 bytes",
)
def logits_bytes(
    *, batch_size: Number, tokens: Number, vocab_size: Number, tp_size: Number, bytes_each: Number
) -> Number:
    """
    Bytes of the logits.

    >>> logits_bytes(batch_size=1, tokens=1, vocab_size=128256, tp_size=8, bytes_each=4)
    64128
    """
    return batch_size * tokens * ceil_div(vocab_size, tp_size) * bytes_each


@formula(
    equation="sum over classes of parameters x share",
    unit="1",
    scope="rank",
    source="the model's tensor list: tensor-parallel slices, at least one KV head, experts spread",
)
def rank_parameters(
    *,
    replicated: Number,
    tensor: Number,
    kv: Sequence[Number],
    expert: Number,
    tp_size: Number,
    ep_size: Number,
    num_key_value_heads: Sequence[Number],
) -> Number:
    """
    Parameters on one rank of a stage, before any ZeRO sharding.

    >>> rank_parameters(
    ...     replicated=10, tensor=80, kv=(16,), expert=160, tp_size=8, ep_size=2,
    ...     num_key_value_heads=(4,)
    ... )
    34
    """
    slices = sum(
        divide(parameters * ceil_div(heads, tp_size), heads)
        for parameters, heads in zip(kv, num_key_value_heads, strict=True)
    )
    return replicated + divide(tensor, tp_size) + slices + divide(expert, tp_size * ep_size)


@formula(
    equation="(q e_q + (a - q) e_16) / N_zero",
    unit="B",
    scope="rank",
    source="quantised weights, the rest in 16 bits; ZeRO stage 3 shards them over dp x cp",
)
def weights_bytes(
    *,
    quantized: Number,
    unquantized: Number,
    quantized_bytes: Number,
    unquantized_bytes: Number,
    shards: Number,
) -> Number:
    """
    Bytes of the weights on one rank.

    >>> weights_bytes(
    ...     quantized=100, unquantized=10, quantized_bytes=1, unquantized_bytes=2, shards=1
    ... )
    120
    """
    return divide(quantized * quantized_bytes + unquantized * unquantized_bytes, shards)


@formula(
    equation="parameters x bytes / N_zero",
    unit="B",
    scope="rank",
    source="ZeRO (Rajbhandari et al. 2020): optimizer from stage 1, gradients from 2",
)
def training_state_bytes(*, parameters: Number, bytes_each: Number, shards: Number) -> Number:
    """
    Bytes of gradients, or of master weights and moments, on one rank.

    >>> training_state_bytes(parameters=1000, bytes_each=12, shards=8)
    1500
    """
    return divide(parameters * bytes_each, shards)


@formula(equation="sum of the parts", unit="B", scope="rank", source="counted")
def total_bytes(*, parts: Sequence[Number]) -> Number:
    """
    Bytes of everything on one rank.

    >>> total_bytes(parts=(1, 2, 3))
    6
    """
    return sum(parts)


@formula(equation="total <= capacity", unit="bool", scope="job", source="every rank must fit")
def fits(*, total: Number, capacity: Number) -> Number:
    """
    Whether the fullest rank fits.

    >>> fits(total=70e9, capacity=85.5e9)
    True
    """
    return total <= capacity


@formula(
    equation="t(S) <= M < t(S + m)",
    unit="token",
    scope="sequence",
    source="searched; the two bills are the proof",
)
def max_seq_len(
    *, seq_len: Number, total_here: Number, total_beyond: Number, capacity: Number
) -> Number:
    """
    Longest context that fits with everything else unchanged; 0 if none does.

    >>> max_seq_len(seq_len=448, total_here=95, total_beyond=105, capacity=100)
    448
    """
    proven = minimum(where(total_here <= capacity, 1, 0), where(total_beyond > capacity, 1, 0))
    return seq_len * proven


@formula(
    equation="t(P) <= M < t(P - 1)",
    unit="rank",
    scope="job",
    source="searched; the two bills are the proof",
)
def min_cp_size(
    *, cp_size: Number, total_here: Number, total_below: Number, capacity: Number
) -> Number:
    """
    Smallest context-parallel size that fits with everything else unchanged.

    >>> min_cp_size(cp_size=2, total_here=95, total_below=105, capacity=100)
    2
    """
    proven = minimum(where(total_here <= capacity, 1, 0), where(total_below > capacity, 1, 0))
    return cp_size * proven


@formula(
    equation="floor((M - (t - kv)) B S / kv)",
    unit="token",
    scope="replica",
    source="what is left beside everything else, in sequences of this length",
)
def kv_tokens(
    *, capacity: Number, total: Number, rank_kv: Number, batch_size: Number, seq_len: Number
) -> Number:
    """
    Tokens of context that the free memory of a replica holds, windows of every sequence included.

    >>> kv_tokens(capacity=100, total=60, rank_kv=20, batch_size=1, seq_len=40)
    120
    """
    free = maximum(capacity - (total - rank_kv), 0)
    return floor(ratio(free * batch_size * seq_len, rank_kv, otherwise=0))


@formula(equation="tokens / S", unit="1", scope="replica", source="definition")
def max_concurrency(*, kv_tokens: Number, seq_len: Number) -> Number:
    """
    Sequences of this context that fit at once.

    >>> max_concurrency(kv_tokens=300, seq_len=100)
    3.0
    """
    return kv_tokens / seq_len


@formula(equation="sum", unit="layer", scope="rank", source="definition")
def total_layers(*, layers: Sequence[Number]) -> Number:
    """
    Layers on a rank, of all kinds.

    >>> total_layers(layers=(3, 58))
    61
    """
    return sum(layers)


@formula(equation="shard x N", unit="B", scope="group", source="definition")
def whole_bytes(*, shard_bytes: Number, shards: Number) -> Number:
    """
    Bytes of something of which a rank holds one of N shards.

    >>> whole_bytes(shard_bytes=10, shards=8)
    80
    """
    return shard_bytes * shards


@formula(
    equation="total - old + new", unit="B", scope="rank", source="the same rank with other buffers"
)
def swapped_bytes(*, total: Number, old: Number, new: Number) -> Number:
    """
    Bytes on the fullest rank with another layout's buffers.

    >>> swapped_bytes(total=100, old=10, new=30)
    120
    """
    return total - old + new
