"""What is run: how many tokens, how much of them cached, in which formats."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ringplan.specs.base import GroupSize, Spec, Tokens, TokensOrNone
from ringplan.specs.dtypes import Dtype

Phase = Literal["prefill", "decode", "train"]


class Workload(Spec):
    """One pass over one batch."""

    phase: Phase = Field(default="prefill", description="What the pass is.")
    seq_len: Tokens = Field(description="Tokens of the whole context after the pass.")
    cached_len: TokensOrNone | None = Field(
        default=None,
        description="Of seq_len, tokens already cached. None: none in prefill and training,"
        " all but new_tokens in decode.",
    )
    new_tokens: Tokens | None = Field(
        default=None,
        description="Tokens of the pass. None: seq_len - cached_len, or 1 in decode.",
    )
    batch_size: GroupSize = Field(
        default=1, description="Sequences per data-parallel replica in one pass (micro-batch)."
    )
    num_micro_batches: GroupSize = Field(
        default=1, description="Passes per training step; whole steps are not timed yet."
    )
    causal: bool = Field(
        default=True, strict=True, description="Whether a token sees only earlier ones."
    )
    weights_dtype: Dtype | None = Field(
        default=None, description="Format of the weights; None is the published one."
    )
    kv_dtype: Dtype | None = Field(
        default=None, description="Format of the KV cache; None is activation_dtype."
    )
    activation_dtype: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16", description="Format of activations, and of K and V on the wire."
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="full",
        description="Which activations training rebuilds instead of keeping; FlashAttention stores"
        " no scores, so that selective keeps what none keeps.",
    )
    optimizer: Literal["adamw", "sgd"] = Field(
        default="adamw", description="adamw keeps an fp32 master copy and two fp32 moments."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        cached, new = self.split
        if self.phase == "train" and cached:
            raise ValueError("a training pass has no cached prefix (leave cached_len out)")
        if self.phase == "decode" and new > cached > 0:
            raise ValueError(
                f"a decode pass of {new:,} new tokens over {cached:,} cached ones is a prefill"
                " (leave cached_len out, or say phase: prefill)"
            )
        if new < 1:
            raise ValueError(
                f"cached_len={cached} leaves no new token of seq_len={self.seq_len}"
                f" (seq_len counts the cached tokens too)"
            )
        if cached + new != self.seq_len:
            raise ValueError(
                f"cached_len={cached} + new_tokens={new} is not seq_len={self.seq_len}"
                " (give two of the three)"
            )
        return self

    @property
    def split(self) -> tuple[int, int]:
        """Cached and new tokens of each sequence."""
        if self.new_tokens is not None:
            cached = self.seq_len - self.new_tokens if self.cached_len is None else self.cached_len
            return cached, self.new_tokens
        if self.cached_len is None:
            return (self.seq_len - 1, 1) if self.phase == "decode" else (0, self.seq_len)
        return self.cached_len, self.seq_len - self.cached_len
