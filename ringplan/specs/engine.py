"""How one serving engine budgets memory and lays out its cache."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ringplan.specs.base import BytesOrNone, Spec, TokensOrNone
from ringplan.specs.dtypes import Dtype, KvDtype
from ringplan.specs.hardware import Share, Source

#: What `utilization` is a share of: the device's memory, and everything must stay inside; the
#: memory that was free at start, for weights and cache; or what is free beside everything else,
#: for the cache.
Budget = Literal["total", "free_at_start", "free_after_load"]
PageSize = Annotated[int, Field(strict=True, ge=1, le=2**20)]


class Engine(Spec):
    """A policy as data: every budget is computed from these fields, never from the name."""

    name: str
    title: str
    budget: Budget = Field(description="What `utilization` is a share of.")
    utilization: Share | None = Field(
        default=None, description="That share; None is hardware.memory.utilization."
    )
    outside_budget: tuple[Literal["runtime", "communicators", "graphs"], ...] = Field(
        default=(), description="What the budget does not count, so that it lies beside it."
    )
    page_tokens: PageSize = Field(
        default=1, description="Tokens of a page of cache; a sequence fills whole pages."
    )
    pooled: bool = Field(
        default=False,
        description="Whether pages are shared by all sequences, as llama.cpp's cells.",
    )
    row_alignment: PageSize = Field(
        default=1, description="Bytes to a multiple of which a token's row of a layer is padded."
    )
    window_cache: Literal["capped", "full", "share"] = Field(
        default="capped",
        description="Whether sliding-window layers keep their window, are charged in full, or as"
        " `window_share` of that.",
    )
    window_share: Share = Field(
        default=1.0, description="Tokens of a window layer's pool over those of a full layer's."
    )
    window_slack_tokens: TokensOrNone | None = Field(
        default=0,
        description="Tokens in flight that window layers hold beside windows; None is a chunk.",
    )
    chunk_tokens: TokensOrNone | None = Field(
        default=None, description="Tokens of a prefill chunk; None is the whole pass at once."
    )
    logit_rows: TokensOrNone | None = Field(
        default=None, description="Rows of logits held at once; None is one a sequence."
    )
    gathers_logits: bool = Field(
        default=False, description="Whether every tensor-parallel rank gets whole rows of logits."
    )
    state_dtype: Dtype = Field(default="fp32", description="Recurrent states, unless the model's.")
    conv_dtype: Dtype | None = Field(
        default=None, description="States of short convolutions; None is activation_dtype."
    )
    runtime: BytesOrNone | None = Field(
        default=None,
        description="Context and libraries; None is hardware.memory.overhead, which has "
        "communicators and graphs in it.",
    )
    communicators: BytesOrNone | None = Field(
        default=None, description="Buffers of communicators, where there is more than one rank."
    )
    graphs: BytesOrNone | None = Field(default=None, description="Captured graphs.")
    quantized_kv_dtype: KvDtype = Field(
        default="fp8", description="The 8-bit format of the cache that the engine offers."
    )
    prints_gib_as: Literal["GiB", "GB", "MiB"] = Field(
        default="GiB", description="What the engine's log calls 2^30 bytes (MiB: it prints 2^20)."
    )
    kv_cache: BytesOrNone | None = Field(
        default=None,
        description="Bytes of a rank's cache, where they are given; then no share is taken.",
    )
    sources: dict[str, Source] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Engine:
        beside = [name for name in ("communicators", "graphs") if getattr(self, name)]
        if beside and self.runtime is None:
            raise ValueError(
                f"{' and '.join(beside)} without a runtime: hardware.memory.overhead has them in it"
                " (give engine.runtime as well)"
            )
        return self
