"""Questions that the laws are held against, and short ways to ask them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ringplan.api import load
from ringplan.estimation import core

if TYPE_CHECKING:
    from ringplan.estimation.results import Alternative, Communication, Estimate
    from ringplan.specs.scenario import Scenario

Given = dict[str, Any]

H100, B200, MI300X = "h100-sxm-80gb", "b200-sxm-180gb", "mi300x"
ETHERNET = {"hardware.scale_out.bandwidth_per_direction": "25 Gb/s"}
#: The backward pass, elsewhere the slower one, is so fast that its hops do not keep up.
SLOW_FORWARD = {
    "hardware.efficiency.attention_forward": 0.3,
    "hardware.efficiency.attention_backward": 1.0,
}

#: A kernel as fast on any call: seconds are FLOPs at a rate, and can be counted.
FLAT = {
    "hardware.efficiency.attention_forward": 0.6,
    "hardware.efficiency.attention_backward": 0.5,
}

SCENARIOS: dict[str, Given] = {
    "llama prefill": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "32K",
        "cp_size": 8,
    },
    "llama over a prefix": {
        "model": "llama-3.1-70b",
        "hardware": H100,
        "seq_len": "128K",
        "cached_len": "96K",
        "cp_size": 8,
        "tp_size": 8,
        "kv_dtype": "fp8",
        "partition": "striped",
    },
    "llama hybrid": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "64K",
        "cp_size": 16,
        "ulysses_size": 8,
        "partition": "contiguous",
    },
    "llama train": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "128K",
        "phase": "train",
        "cp_size": 8,
        "dp_size": 2,
        "zero_stage": 1,
    },
    "llama decode": {
        "model": "llama-3.1-70b",
        "hardware": H100,
        "seq_len": "128K",
        "phase": "decode",
        "cp_size": 4,
        "tp_size": 8,
        "batch_size": 2,
    },
    "article striped": {
        "model": "article-mha",
        "hardware": H100,
        "seq_len": "1M",
        "cp_size": 64,
        "partition": "striped",
    },
    "article plain": {
        "model": "article-mha",
        "hardware": MI300X,
        "seq_len": "8K",
        "causal": False,
        "cp_size": 4,
        "batch_size": 3,
    },
    "one rank": {"model": "llama-3.1-8b", "hardware": "l40s", "seq_len": "16K"},
    "r1 prefill": {
        "model": "deepseek-r1",
        "hardware": B200,
        "seq_len": "128K",
        "cp_size": 8,
        "tp_size": 8,
        "pp_size": 4,
    },
    "r1 decode": {
        "model": "deepseek-r1",
        "hardware": "h200-sxm-141gb",
        "seq_len": "32K",
        "phase": "decode",
        "tp_size": 8,
        "pp_size": 4,
        "cp_size": 2,
        "batch_size": 32,
    },
    "gemma train": {
        "model": "gemma-2-27b",
        "hardware": B200,
        "seq_len": "64K",
        "phase": "train",
        "cp_size": 8,
        "zero_stage": 3,
    },
    "gemma short": {
        "model": "gemma-2-27b",
        "hardware": B200,
        "seq_len": "8K",
        "cp_size": 8,
        "batch_size": 3,
    },
    "gemma decode": {
        "model": "gemma-2-27b",
        "hardware": H100,
        "seq_len": "64K",
        "phase": "decode",
        "cp_size": 4,
        "partition": "contiguous",
    },
    "gpt-oss prefill": {
        "model": "gpt-oss-120b",
        "hardware": B200,
        "seq_len": "512K",
        "cp_size": 8,
    },
    "gpt-oss decode": {
        "model": "gpt-oss-120b",
        "hardware": H100,
        "seq_len": "128K",
        "phase": "decode",
        "cp_size": 8,
        "batch_size": 4,
    },
    "qwen experts train": {
        "model": "qwen3-235b-a22b",
        "hardware": B200,
        "seq_len": "64K",
        "phase": "train",
        "tp_size": 8,
        "cp_size": 8,
        "ep_size": 8,
        "zero_stage": 3,
    },
    "qwen experts ZeRO-1": {
        "model": "qwen3-235b-a22b",
        "hardware": MI300X,
        "seq_len": "32K",
        "phase": "train",
        "tp_size": 4,
        "cp_size": 2,
        "dp_size": 8,
        "ep_size": 4,
        "pp_size": 4,
        "zero_stage": 1,
    },
    "qwen stages train": {
        "model": "qwen3-8b",
        "hardware": H100,
        "seq_len": "8K",
        "phase": "train",
        "cp_size": 8,
        "pp_size": 5,
        "zero_stage": 2,
    },
    "l40s over Ethernet": {
        "model": "qwen3-8b",
        "hardware": "l40s",
        "seq_len": "256K",
        "cp_size": 16,
        "set": ETHERNET,
    },
    "slow forward train": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "128K",
        "phase": "train",
        "cp_size": 16,
        "zero_stage": 3,
        "set": SLOW_FORWARD,
    },
    "r1 stages": {
        "model": "deepseek-r1",
        "hardware": "h200-sxm-141gb",
        "seq_len": "128K",
        "tp_size": 8,
        "pp_size": 4,
        "cp_size": 8,
    },
    "llama stages": {
        "model": "llama-3.1-8b",
        "hardware": H100,
        "seq_len": "128K",
        "cp_size": 2,
        "pp_size": 2,
        "dp_size": 3,
        "batch_size": 2,
        "partition": "contiguous",
    },
    "tpu": {
        "model": "llama-3.1-70b",
        "hardware": "tpu-v5p",
        "seq_len": "256K",
        "cp_size": 16,
        "tp_size": 4,
    },
}


def scenario(**given: Any) -> Scenario:
    return load(**given).scenario


def made(**given: Any) -> Estimate:
    """Estimate without findings, which cost a search where something does not fit."""
    return core.estimate(scenario(**given))


@cache
def named(name: str) -> tuple[Scenario, Estimate]:
    read = scenario(**SCENARIOS[name])
    return read, core.estimate(read)


def having(**wanted: Any) -> list[str]:
    """Names of the scenarios with these fields; those not given are at their default."""
    defaults = {"phase": "prefill", "ulysses_size": 1, "pp_size": 1, "cp_size": 1, "ep_size": 1}
    return [
        name
        for name, given in SCENARIOS.items()
        if all(({**defaults, **given}).get(key) == value for key, value in wanted.items())
    ]


def row(of: Estimate, axis: str) -> Communication:
    return next(each for each in of.communication if each.axis == axis)


def chosen(read: Scenario, of: Estimate) -> Alternative:
    """Return the alternative that is the layout itself."""
    return next(
        each
        for each in of.alternatives
        if each.ulysses_size == read.mesh.ulysses_size and each.comm_type != "all_gather"
    )
