"""What is run: how many tokens, how much of them cached, in which formats."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from ringplan.specs.base import GroupSize, Spec, Tokens, TokensOrNone
from ringplan.specs.dtypes import Dtype, KvDtype

Phase = Literal["prefill", "decode", "train"]
Optimizer = Literal["adamw", "adamw_8bit", "adamw_bf16", "sgd"]
Loss = Literal["unfused", "in_place", "chunked", "fused"]


#: Fields that only one of training and serving looks at.
OF_TRAINING: Final = (
    "gradient_dtype",
    "loss",
    "loss_chunk_tokens",
    "num_micro_batches",
    "offload",
    "optimizer",
    "recompute",
)
OF_SERVING: Final = ("chunk_tokens", "k_dtype", "kv_dtype", "shared_len", "state_dtype", "v_dtype")


def _documents(given: object) -> object:
    """Read ``[8K, 8K]`` or ``{8K: 2}`` as pairs of length and count."""
    if not isinstance(given, (dict, list, tuple)) or not given:
        raise ValueError("must be lengths, like [8K, 8K], or lengths and how many, like {8K: 2}")
    if isinstance(given, dict):
        return tuple((length, count) for length, count in given.items())
    if not any(isinstance(each, (list, tuple)) for each in given):
        return tuple(Counter(str(length) for length in given).items())
    return given


Documents = Annotated[
    tuple[tuple[Tokens, GroupSize], ...],
    BeforeValidator(_documents, json_schema_input_type=list[int | str] | dict[str, int]),
]


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
    document_lengths: Documents | None = Field(
        default=None,
        description="Documents packed into the sequence, which do not see one another: lengths, or"
        " lengths and how many of each; they add up to seq_len.",
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
    embedding_dtype: Dtype | None = Field(
        default=None,
        description="Format of embeddings and output head; None keeps them in 16 bits.",
    )
    kv_dtype: KvDtype | None = Field(
        default=None,
        description="Format of the KV cache; None is the checkpoint's, else activation_dtype.",
    )
    k_dtype: KvDtype | None = Field(
        default=None, description="Format of cached keys, where it differs from kv_dtype."
    )
    v_dtype: KvDtype | None = Field(
        default=None, description="Format of cached values, where it differs from kv_dtype."
    )
    cache_latents: bool = Field(
        default=True,
        strict=True,
        description="Whether latent attention caches latents; false is an engine that caches the"
        " heads they expand to.",
    )
    state_dtype: Dtype | None = Field(
        default=None, description="Format of recurrent states; None is the model's or engine's."
    )
    draft_layers: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0,
        description="Draft (multi-token prediction) layers that are loaded; engines leave them out"
        " unless speculative decoding is on.",
    )
    shared_len: TokensOrNone = Field(
        default=0,
        description="First tokens of the context that all sequences have in common, stored once;"
        " at most the context.",
    )
    flash_attention: bool = Field(
        default=True, strict=True, description="Whether attention stores no scores."
    )
    chunk_tokens: Tokens | None = Field(
        default=None,
        description="Tokens of a prefill chunk, of all sequences together; None is the engine's.",
    )
    engine: str | None = Field(
        default=None, description="Whose memory policy; None is the one data/engines names."
    )
    activation_dtype: Literal["bf16", "fp16", "fp32"] = Field(
        default="bf16", description="Format of activations, and of K and V on the wire."
    )
    recompute: Literal["none", "selective", "full"] = Field(
        default="full",
        description="Which activations training rebuilds instead of keeping; FlashAttention stores"
        " no scores, so that selective keeps what none keeps.",
    )
    optimizer: Optimizer = Field(
        default="adamw",
        description="adamw: fp32 gradients, master copy and moments; adamw_8bit: moments in 8 bits;"
        " adamw_bf16: everything in 16 bits, no master copy; sgd: fp32 gradients and master copy.",
    )
    gradient_dtype: Literal["fp32", "bf16"] | None = Field(
        default=None, description="Format of gradients; None is the optimizer recipe's."
    )
    loss: Loss = Field(
        default="unfused",
        description="unfused: 16-bit logits, fp32 copy and fp32 gradient; in_place: the gradient"
        " overwrites the copy; chunked: unfused over loss_chunk_tokens; fused: no logits.",
    )
    loss_chunk_tokens: Tokens = Field(
        default=1024, description="Tokens of a chunk of a chunked loss."
    )
    offload: tuple[Literal["activations", "optimizer"], ...] = Field(
        default=(), description="What lies in host memory: layer inputs, optimizer states."
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
        if cached < 0:
            raise ValueError(
                f"new_tokens={new} is more than seq_len={self.seq_len}"
                " (seq_len counts the new tokens too)"
            )
        if new < 1:
            raise ValueError(
                f"cached_len={cached} leaves no new token of seq_len={self.seq_len}"
                f" (seq_len counts the cached tokens too)"
            )
        if self.document_lengths is not None:
            total = sum(length * count for length, count in self.document_lengths)
            if self.phase == "decode" or cached:
                raise ValueError(
                    "document_lengths are packed into a prefill or a training pass without a cached"
                    " prefix (leave them out)"
                )
            if total != self.seq_len:
                raise ValueError(
                    f"document_lengths add up to {total:,} tokens, but seq_len is"
                    f" {self.seq_len:,} (--seq-len {total})"
                )
        if "activations" in self.offload and self.recompute != "full":
            raise ValueError(
                "offload of activations moves layer inputs, which only recompute: full keeps"
                " (leave one of them out)"
            )
        if cached + new != self.seq_len:
            raise ValueError(
                f"cached_len={cached} + new_tokens={new} is not seq_len={self.seq_len}"
                " (give two of the three)"
            )
        return self

    @property
    def idle(self) -> tuple[str, ...]:
        """Fields that were given and that this phase does not look at."""
        others = OF_SERVING if self.phase == "train" else OF_TRAINING
        return tuple(name for name in others if name in self.model_fields_set)

    @property
    def split(self) -> tuple[int, int]:
        """Cached and new tokens of each sequence."""
        if self.new_tokens is not None:
            cached = self.seq_len - self.new_tokens if self.cached_len is None else self.cached_len
            return cached, self.new_tokens
        if self.cached_len is None:
            return (self.seq_len - 1, 1) if self.phase == "decode" else (0, self.seq_len)
        return self.cached_len, self.seq_len - self.cached_len
