"""What one rank works on inside the ring of a layer, and what a hop carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringplan.costs import decode, layout, masks, rank_cache, ring
from ringplan.estimation.leaves import plain

if TYPE_CHECKING:
    from ringplan.costs.numeric import Number
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers


class Shape(NamedTuple):
    """
    Tokens, heads and head sizes that one rank works on inside the ring.

    ``first_gradient_bytes`` is a hop of dK and dV in the first window of a double ring, and
    ``block_gradient_bytes`` a block of them as a step makes it.
    """

    ring_size: Number
    query_tokens: Number
    key_tokens: Number
    num_heads: Number
    num_kv_heads: Number
    ring_query_heads: Number
    head_dim: Number
    v_head_dim: Number
    window: Number | None
    first_pairs: Number
    later_pairs: Number
    hop_bytes: Number
    gradient_bytes: Number
    first_gradient_bytes: Number
    block_gradient_bytes: Number


def shape(x: Numbers, kind: Kind) -> Shape:
    """Work out what one rank holds and what a hop carries."""
    decoding = x.phase == "decode"
    latent = decoding and kind.latent_dim is not None
    ring_size = layout.ring_ranks(cp_size=x.cp_size, ulysses_size=x.ulysses_size)
    keys = layout.ring_tokens(tokens=_block(x, kind), ulysses_size=x.ulysses_size)
    queries = (
        x.tokens.new
        if decoding
        else layout.ring_tokens(tokens=x.tokens.rank, ulysses_size=x.ulysses_size)
    )
    heads = kind.rank_heads
    split = layout.uneven_query_heads if x.schedule.uneven_heads else layout.ring_query_heads
    ring_heads = split(num_heads=heads, ulysses_size=x.ulysses_size)
    first, later = _pairs(x, kind, queries, keys, ring_size)

    made: dict[tuple[Number, Number], Number] = {}

    def hop(key_bytes: Number, value_bytes: Number) -> Number:
        formats = plain(key_bytes), plain(value_bytes)
        if formats not in made:
            made[formats] = _block_bytes(x, kind, keys, ring_heads, key_bytes, value_bytes)
        return made[formats]

    key_bytes, value_bytes = wire_elements(x, kind)
    gradient, first_gradient = x.wire.gradient, x.wire.first_gradient
    return Shape(
        ring_size=ring_size,
        query_tokens=queries,
        key_tokens=keys,
        num_heads=heads,
        num_kv_heads=kind.rank_kv_heads,
        ring_query_heads=ring_heads,
        head_dim=kind.latent_dim if latent and kind.latent_dim is not None else kind.head_dim,
        v_head_dim=kind.latent_v_dim
        if latent and kind.latent_v_dim is not None
        else kind.v_head_dim,
        window=kind.window,
        first_pairs=first,
        later_pairs=later,
        hop_bytes=hop(key_bytes, value_bytes),
        gradient_bytes=hop(gradient, gradient),
        first_gradient_bytes=hop(first_gradient, first_gradient),
        block_gradient_bytes=hop(x.activation_bytes, x.activation_bytes),
    )


def _block_bytes(  # noqa: PLR0917 - what the formulas need
    x: Numbers,
    kind: Kind,
    tokens: Number,
    query_heads: Number,
    key_bytes: Number,
    value_bytes: Number,
) -> Number:
    """Bytes of a block of K and V, of their gradients, or of latents where those travel."""
    if kind.latent_dim is not None and (x.phase == "decode" or x.schedule.latents_on_wire):
        return decode.cache_shard_bytes(
            batch_size=x.attention_batch_size,
            tokens=tokens,
            cached_elements=kind.latent_dim,
            element_bytes=key_bytes,
        )
    heads = layout.ring_kv_heads(num_kv_heads=kind.rank_kv_heads, ulysses_size=x.ulysses_size)
    return ring.kv_block_bytes(
        batch_size=x.attention_batch_size,
        tokens=tokens,
        num_kv_heads=query_heads if x.schedule.heads_on_wire == "query" else heads,
        head_dim=kind.head_dim,
        v_head_dim=kind.v_head_dim,
        key_bytes=key_bytes,
        value_bytes=value_bytes,
    )


def wire_elements(x: Numbers, kind: Kind) -> tuple[Number, Number]:
    """Bytes of K and V on the wire: as cached where the cache travels, else the schedule's."""
    if x.phase == "decode":
        return x.kv_bytes, x.kv_bytes
    if x.cached_wire_bytes is not None and kind.latent_dim is None:
        return x.cached_wire_bytes, x.cached_wire_bytes
    return x.wire.key, x.wire.value


def held_tokens(x: Numbers, kind: Kind) -> Number:
    """Tokens of the context that a layer caches on the rank that holds most of them."""
    if x.schedule.cache_replicated:
        whole = x.tokens.context
        return (
            whole
            if kind.window is None
            else rank_cache.window_tokens(window=kind.window, chunk_tokens=whole)
        )
    if kind.window is None:
        return x.tokens.block
    if x.partition == "striped":
        evenly = layout.shard_tokens(tokens=kind.window, cp_size=x.cp_size)
        return rank_cache.window_tokens(window=evenly, chunk_tokens=x.tokens.block)
    if x.partition == "zigzag" and x.sizes["ring"] > 1:
        return rank_cache.zigzag_window_tokens(
            window=kind.window, block_tokens=x.tokens.block, seq_len=x.tokens.context
        )
    return rank_cache.window_tokens(window=kind.window, chunk_tokens=x.tokens.block)


def _block(x: Numbers, kind: Kind) -> Number:
    """Tokens of one rank that the layer has keys and values for."""
    if kind.window is None or not plain(x.tokens.cached):
        return x.tokens.block
    held = held_tokens(x, kind)
    if x.phase == "decode":
        return held
    return rank_cache.window_block_tokens(
        block_tokens=x.tokens.block, query_tokens=x.tokens.rank, window_tokens=held
    )


def _pairs(
    x: Numbers, kind: Kind, queries: Number, keys: Number, ring_size: Number
) -> tuple[Number, Number]:
    """Count visible pairs of step 0 and of a later step, on the busiest rank."""
    tokens = {"query_tokens": queries, "block_tokens": keys}
    if x.documents is not None and x.causal and x.cuts_documents:
        packed = {
            "lengths": x.documents.sizes,
            "counts": x.documents.shares,
            "ring_size": ring_size,
            "multiple": x.multiple,
        }
        first = masks.document_first_pairs(**packed)
        later = masks.document_later_pairs(**packed) if x.partition == "zigzag" else first
        return _windowed(x, kind.window, tokens, first, later, ring_size)
    full = masks.full_pairs(**tokens)
    if not x.causal or x.phase == "decode":
        first, later = full, full
    else:
        first = masks.diagonal_pairs(**tokens)
        zigzag = masks.zigzag_pairs(**tokens)
        later = {"contiguous": full, "striped": first, "zigzag": zigzag}[x.partition]
    window = kind.window
    if x.documents is not None:  # a token sees no further back than its document
        longest = masks.longest_document(lengths=x.documents.sizes)
        window = longest if window is None else masks.shorter_reach(window=window, longest=longest)
    return _windowed(x, window, tokens, first, later, ring_size)


def _windowed(  # noqa: PLR0917 - what the formulas need
    x: Numbers,
    window: Number | None,
    tokens: dict[str, Number],
    first: Number,
    later: Number,
    ring_size: Number,
) -> tuple[Number, Number]:
    """Leave out the pairs that a window hides."""
    if window is not None and x.phase != "decode":
        first = masks.window_first_pairs(pairs=first, window=window, **tokens)
        later = masks.window_later_pairs(
            pairs=later,
            first_pairs=first,
            query_tokens=tokens["query_tokens"],
            window=window,
            ring_size=ring_size,
        )
    return first, first if x.sizes["ring"] == 1 else later
