"""KV caches, indexer keys and states: of the whole job, and on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.costs import cache, rank_cache
from ringplan.estimation.activations import chunk_of
from ringplan.estimation.leaves import plain
from ringplan.estimation.shapes import held_tokens
from ringplan.specs.dtypes import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number
    from ringplan.estimation.kinds import Kind
    from ringplan.estimation.numbers import Numbers
    from ringplan.estimation.stages import Stage
    from ringplan.specs.scenario import Scenario


def bytes_per_token(x: Numbers, *, full: bool = False) -> Number:
    """Bytes that a token adds to K and V of all layers; ``full`` charges windows in full."""

    def grows(kind: Kind) -> Number:
        if full:
            return x.leaf.derived("grows", int(kind.attends and kind.caches), "charged in full")
        return x.leaf.derived("grows", int(kind.grows), "1 without a sliding window")

    def ratio(kind: Kind) -> Number:
        return _one(x) if full else _ratio(x, kind)

    return cache.kv_bytes_per_token(
        layers=tuple(kind.layers for kind in x.kinds),
        rows=tuple(kind.cached.row_bytes for kind in x.kinds),
        grows=tuple(map(grows, x.kinds)),
        ratios=tuple(map(ratio, x.kinds)),
    )


def indexer_bytes_per_token(x: Numbers) -> Number:
    """Bytes that a token adds to the indexers of all layers."""
    return cache.kv_bytes_per_token(
        layers=tuple(kind.layers for kind in x.kinds),
        rows=tuple(kind.cached.indexer_bytes for kind in x.kinds),
        grows=tuple(
            x.leaf.derived("grows", int(kind.grows), "indexed layers keep every key")
            for kind in x.kinds
        ),
        ratios=tuple(_ratio(x, kind) for kind in x.kinds),
    )


def window_bytes(x: Numbers) -> Number:
    """Bytes of a sequence in layers with a sliding window."""
    return cache.kv_constant_bytes(
        layers=tuple(kind.layers for kind in x.kinds),
        rows=tuple(kind.cached.row_bytes for kind in x.kinds),
        windows=tuple(
            x.leaf.derived("window", 0, "no window")
            if kind.window is None or not kind.caches
            else kind.window
            for kind in x.kinds
        ),
        seq_len=x.tokens.context,
    )


def state_bytes(x: Numbers, scenario: Scenario) -> Number:
    """Bytes of a sequence's states."""
    conv, recurrent = _state_formats(x, scenario)
    return cache.state_bytes(
        layers=tuple(kind.layers for kind in x.kinds),
        conv_state=tuple(kind.state.conv for kind in x.kinds),
        recurrent_state=tuple(kind.state.recurrent for kind in x.kinds),
        conv_bytes=conv,
        recurrent_bytes=recurrent,
    )


def rank_kv(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Bytes of K and V, or latents, on the fullest rank of a stage."""
    if x.schedule.cache_replicated:
        one = x.leaf.derived("cp_size", 1, f"{x.schedule.name}: every rank caches all tokens")
        x = x._replace(tokens=x.tokens._replace(block=x.tokens.context), cp_size=one)
    policy = scenario.engine.window_cache
    full = policy == "full"
    zero = x.leaf.derived("tokens", 0, "none of these")

    def growing(kind: Kind) -> Number:
        if not kind.attends or not kind.caches or not (full or kind.grows):
            return zero
        return _stored(x, scenario, x.tokens.block, slack=None)

    def window(kind: Kind) -> Number:
        if kind.window is None or not kind.caches or (full and not kind.compressed):
            return zero
        held = held_tokens(x, kind)
        if policy == "share":
            share = x.leaf("engine.window_share", scenario.engine.window_share)
            held = rank_cache.pool_share(block_tokens=x.tokens.block, share=share)
        return _stored(x, scenario, held, slack=_slack(x, scenario))

    def of(row: Callable[[Kind], Number], windows: Callable[[Kind], Number]) -> Number:
        return rank_cache.rank_kv_bytes(
            layers=stage.layers,
            growing_tokens=tuple(map(growing, x.kinds)),
            ratios=tuple(_ratio(x, kind) for kind in x.kinds),
            window_tokens=tuple(map(windows, x.kinds)),
            rows=tuple(map(row, x.kinds)),
        )

    keys = of(lambda kind: kind.cached.rank_row_bytes, window)
    if not any(plain(kind.cached.indexer_bytes) for kind in x.kinds):
        return keys
    indexed = of(lambda kind: kind.cached.indexer_bytes, lambda _: zero)
    return rank_cache.with_indexer(kv_bytes=keys, indexer_bytes=indexed)


def sequence_state(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Bytes of a sequence's states on a rank of a stage."""
    conv, recurrent = _state_formats(x, scenario)

    def share(kind: Kind, state: Number) -> Number:
        return rank_cache.rank_state(
            state=state, state_heads=kind.state.heads, tp_size=x.attention_tp_size
        )

    return cache.state_bytes(
        layers=stage.layers,
        conv_state=tuple(share(kind, kind.state.conv) for kind in x.kinds),
        recurrent_state=tuple(share(kind, kind.state.recurrent) for kind in x.kinds),
        conv_bytes=conv,
        recurrent_bytes=recurrent,
    )


def rank_state(x: Numbers, scenario: Scenario, stage: Stage) -> Number:
    """Bytes of the states of all sequences on a rank of a stage; every context rank has them."""
    return rank_cache.rank_state_bytes(
        batch_size=x.attention_batch_size, sequence_bytes=sequence_state(x, scenario, stage)
    )


def elements_on_rank(kind: Kind) -> Number:
    """Cached elements a token and layer on one rank; MLA's latent is whole on each."""
    if kind.latent_dim is not None:
        return kind.latent_dim
    return cache.cached_elements(
        num_kv_heads=kind.rank_kv_heads, head_dim=kind.head_dim, v_head_dim=kind.v_head_dim
    )


def _stored(x: Numbers, scenario: Scenario, tokens: Number, *, slack: Number | None) -> Number:
    """Tokens of all sequences on a rank, as the engine lays them out; with slack, of windows."""
    engine = scenario.engine
    page = x.leaf("engine.page_tokens", engine.page_tokens)
    share = rank_cache.dcp_tokens(tokens=tokens, dcp_size=x.dcp_size)
    block = rank_cache.dcp_tokens(tokens=x.tokens.block, dcp_size=x.dcp_size)
    common = (
        rank_cache.shared_shard(
            shared_tokens=x.shared_tokens,
            seq_len=x.tokens.context,
            cp_size=x.cp_size,
            dcp_size=x.dcp_size,
        )
        if slack is None
        else x.leaf.derived("shared_tokens", 0, "windows are of each sequence")
    )
    if engine.pooled:
        return rank_cache.pooled_tokens(
            batch_size=x.attention_batch_size,
            tokens=share,
            shared_tokens=common,
            slack_tokens=x.leaf.derived("slack_tokens", 0, "no window") if slack is None else slack,
            block_tokens=block,
            page_tokens=page,
        )
    if slack is not None:
        share = rank_cache.beside_slack(tokens=share, slack_tokens=slack, block_tokens=block)
    return rank_cache.paged_tokens(
        batch_size=x.attention_batch_size,
        tokens=share,
        shared_tokens=common,
        page_tokens=page,
    )


def _slack(x: Numbers, scenario: Scenario) -> Number:
    """Tokens in flight that a window layer holds beside its window."""
    given = scenario.engine.window_slack_tokens
    if given is not None:
        return x.leaf("engine.window_slack_tokens", given)
    chunk = chunk_of(x, scenario)
    return x.leaf.derived("slack_tokens", 0, "no chunk") if chunk is None else chunk


def _state_formats(x: Numbers, scenario: Scenario) -> tuple[Number, Number]:
    """Bytes of an element of a convolution's state and of a recurrent one."""
    engine, work, model = scenario.engine, scenario.workload, scenario.model
    conv = (
        x.activation_bytes
        if engine.conv_dtype is None
        else x.leaf("engine.conv_dtype", ELEMENT_BYTES[engine.conv_dtype])
    )
    path, dtype = "engine.state_dtype", engine.state_dtype
    if model.state_dtype is not None:
        path, dtype = "model.state_dtype", model.state_dtype
    if work.state_dtype is not None:
        path, dtype = "workload.state_dtype", work.state_dtype
    return conv, x.leaf(path, ELEMENT_BYTES[dtype])


def _ratio(x: Numbers, kind: Kind) -> Number:
    return _one(x) if kind.compress_ratio is None else kind.compress_ratio


def _one(x: Numbers) -> Number:
    return x.leaf.derived("compress_ratio", 1, "an entry a token")
