"""How the ranks are arranged."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from ringplan.specs.base import Bytes, GroupSize, Spec

Partition = Literal["contiguous", "zigzag", "striped"]
DEFAULT_PARTITION: Final = "zigzag"
Axis = Literal["tp", "ulysses", "ring", "dp", "pp"]


class Mesh(Spec):
    """Sizes of the parallel groups, and which rank sits beside which."""

    cp_size: GroupSize = Field(default=1, description="Ranks that share a sequence.")
    ulysses_size: GroupSize = Field(
        default=1, description="Of cp_size, ranks that exchange heads; the rest is the ring."
    )
    tp_size: GroupSize = Field(default=1, description="Tensor-parallel ranks.")
    pp_size: GroupSize = Field(default=1, description="Pipeline stages.")
    dp_size: GroupSize = Field(default=1, description="Data-parallel replicas.")
    ep_size: GroupSize = Field(
        default=1, description="Expert-parallel ranks, taken from dp_size x cp_size."
    )
    dcp_size: GroupSize = Field(
        default=1,
        description="Decode context parallelism: of tp_size, ranks that share the tokens of a KV "
        "head instead of each holding all of them.",
    )
    attention_dp_size: GroupSize = Field(
        default=1,
        description="Data-parallel attention: of tp_size, ranks that each serve other sequences in"
        " attention and hold its weights; the MLP stays tensor-parallel.",
    )
    pp_layers: tuple[GroupSize, ...] | None = Field(
        default=None, description="Layers of each pipeline stage; None cuts them evenly."
    )
    pp_memory: tuple[Bytes, ...] | None = Field(
        default=None,
        description="Memory of a device of each stage, where the cards differ; None is the"
        " hardware's.",
    )
    order: tuple[Axis, ...] = Field(
        default=("tp", "ulysses", "ring", "dp", "pp"),
        description="Axes, innermost first: neighbours on the first axis are neighbours in a box.",
    )
    inner_ring_size: GroupSize | None = Field(
        default=None,
        description="Of ring_size, neighbours inside which blocks of a double ring go round; None"
        " is as many as the fast domain holds.",
    )
    partition: Partition = Field(
        default=DEFAULT_PARTITION, description="Which tokens of the sequence a rank holds."
    )
    schedule: str | None = Field(
        default=None, description="Whose ring; None is the schedule that data/schedules names."
    )
    sequence_parallel: bool = Field(
        default=False,
        strict=True,
        description="Whether tensor-parallel ranks also share norms and the residual stream.",
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(
        default=0, description="What is sharded over dp x cp: optimizer, gradients, parameters."
    )

    @field_validator("order")
    @classmethod
    def _every_axis_once(cls, order: tuple[Axis, ...]) -> tuple[Axis, ...]:
        if sorted(order) != ["dp", "pp", "ring", "tp", "ulysses"]:
            raise ValueError("must name tp, ulysses, ring, dp and pp, each once")
        return order

    @model_validator(mode="after")
    def _consistent(self) -> Mesh:
        if self.cp_size % self.ulysses_size:
            divisors = [
                str(u) for u in range(1, min(self.cp_size, 512) + 1) if not self.cp_size % u
            ]
            raise ValueError(
                f"ulysses_size={self.ulysses_size} does not divide cp_size={self.cp_size}"
                f" (use one of {', '.join(divisors[:12])})"
            )
        if self.ring_size % (self.inner_ring_size or 1):
            raise ValueError(
                f"inner_ring_size={self.inner_ring_size} does not divide cp_size / ulysses_size"
                f" = {self.ring_size} (a double ring has whole windows)"
            )
        if self.dp_size * self.cp_size % self.ep_size:
            raise ValueError(
                f"ep_size={self.ep_size} does not divide dp_size * cp_size"
                f" = {self.dp_size * self.cp_size} (experts are spread over those ranks)"
            )
        for name in ("pp_layers", "pp_memory"):
            given = getattr(self, name)
            if given is not None and len(given) != self.pp_size:
                raise ValueError(f"{name} has {len(given)} items for pp_size={self.pp_size}")
        for name in ("dcp_size", "attention_dp_size"):
            if self.tp_size % getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} does not divide tp_size={self.tp_size}"
                    " (it is taken from the tensor-parallel ranks)"
                )
        return self

    @property
    def attention_tp_size(self) -> int:
        """Ranks that share the heads of a sequence."""
        return self.tp_size // self.attention_dp_size

    @property
    def ring_size(self) -> int:
        """Ranks in one ring."""
        return self.cp_size // self.ulysses_size

    @property
    def world_size(self) -> int:
        """All ranks of the job."""
        return self.tp_size * self.cp_size * self.pp_size * self.dp_size
