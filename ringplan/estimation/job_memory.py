"""What the whole job keeps in memory, and what would fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringplan.costs import cache, fit
from ringplan.estimation import caches
from ringplan.estimation.capacity import answers
from ringplan.estimation.leaves import plain
from ringplan.estimation.memory import stages
from ringplan.estimation.numbers import token_multiple
from ringplan.estimation.results import Memory, RankMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.costs.numeric import Number
    from ringplan.estimation.numbers import Numbers
    from ringplan.specs.scenario import Scenario


def job_memory(x: Numbers, scenario: Scenario, bill: RankMemory, missing: dict[str, str]) -> Memory:
    """Say what lies where and what would fit; each null is named in `missing`, with the reason."""
    model, widest = scenario.model, x.kinds[x.widest]
    per_token, constant = caches.bytes_per_token(x), caches.window_bytes(x)
    inverse = answers(x, scenario, bill, token_multiple(scenario))
    _say_why(x, scenario, inverse, missing)
    return Memory(
        num_parameters=_of_tensors(x, scenario, "num_parameters", model.parameters),
        num_active_parameters=_of_tensors(
            x, scenario, "num_active_parameters", model.active_parameters
        ),
        kv_bytes_per_token=per_token,
        kv_bytes_per_token_full=caches.bytes_per_token(x, full=True),
        indexer_bytes_per_token=caches.indexer_bytes_per_token(x),
        kv_constant_bytes=constant,
        state_bytes=caches.state_bytes(x, scenario),
        kv_bytes_per_layer=cache.kv_layer_bytes(
            dp_size=x.dp_size,
            batch_size=x.batch_size,
            seq_len=x.tokens.context,
            row_bytes=widest.cached.row_bytes,
        ),
        kv_bytes=cache.kv_bytes(
            dp_size=x.dp_size,
            batch_size=x.batch_size,
            seq_len=x.tokens.context,
            shared_tokens=x.shared_tokens,
            per_token=per_token,
            constant=constant,
        ),
        score_matrix_bytes=None
        if plain(widest.num_attention_heads) is None
        else cache.score_matrix_bytes(
            dp_size=x.dp_size,
            batch_size=x.batch_size,
            num_attention_heads=widest.num_attention_heads,
            new_tokens=x.tokens.new,
            seq_len=x.tokens.context,
            element_bytes=x.activation_bytes,
        ),
        fits=None
        if bill.total_bytes is None
        else fit.fits(total=bill.total_bytes, capacity=bill.capacity_bytes),
        not_counted=model.not_counted + model.unknown,
        rank=bill,
        stages=tuple(stages(x, scenario)),
        **inverse,
    )


def _of_tensors(
    x: Numbers, scenario: Scenario, name: str, count: Callable[[int], int]
) -> Number | None:
    """Give a count over the tensor list, with the draft layers that are loaded."""
    if scenario.model.unknown:
        return None
    why = f"tensor list of {scenario.model.name}: ringplan memory --tensors"
    return x.leaf.derived(name, count(scenario.workload.draft_layers), why)


def _say_why(
    x: Numbers, scenario: Scenario, inverse: dict[str, Any], missing: dict[str, str]
) -> None:
    """Name each answer about memory that is null, and why."""
    model = scenario.model
    if model.unknown:
        why = f"{model.name} lacks {', '.join(model.unknown)}"
        names = [name for name in RankMemory._fields if name not in _OF_CACHES]
        missing |= {f"memory.{rank}.{name}": why for rank in _ranks(x) for name in names}
        missing |= {f"memory.{name}": why for name in (*_OF_TENSORS, *inverse)}
        if plain(x.kinds[x.widest].num_attention_heads) is None:
            missing["memory.score_matrix_bytes"] = why
        return
    if inverse["max_seq_len"] is None:
        missing["memory.max_seq_len"] = "memory does not bound it up to 2^40 tokens"
    if inverse["min_cp_size"] is None:
        missing["memory.min_cp_size"] = (
            "no cp_size is enough: weights and training state are not cut by context parallelism"
        )
    if inverse["max_sequences"] is None:
        missing["memory.max_sequences"] = "memory does not bound it up to 2^30 sequences a rank"
    if x.phase == "train":
        budgets = [f"{rank}.kv_budget_bytes" for rank in _ranks(x)]
        for name in (*_OF_SERVING, *budgets):
            missing[f"memory.{name}"] = "training keeps no cache"


def _ranks(x: Numbers) -> list[str]:
    """Names of the bills of an estimate: of the fullest rank, and of each stage."""
    return ["rank", *(f"stages[{stage.number}]" for stage in x.stages)]


_OF_SERVING = ("kv_tokens", "max_concurrency", "max_sequences")
_OF_TENSORS = ("num_parameters", "num_active_parameters", "fits")
#: What is known of a rank whose model is known by its caches only.
_OF_CACHES = ("kv_bytes", "state_bytes", "overhead_bytes", "capacity_bytes", "stage")
