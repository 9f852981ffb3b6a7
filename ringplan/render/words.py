"""A scenario in words: its line, its layers, the formats of its caches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringplan.units import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringplan.specs.mesh import Mesh
    from ringplan.specs.model import LayerKind, ModelSpec
    from ringplan.specs.scenario import Scenario


def subtitle(scenario: Scenario) -> str:
    """Return the scenario in one line, with the exact integers, and what is not as by default."""
    s = scenario
    mesh, work = s.mesh, s.workload
    parts = [
        f"{s.model.name} on {mesh.world_size} x {s.hardware.name}",
        *_sizes(mesh),
        ", ".join([f"{work.phase} of {work.seq_len:,} tokens", *_of_the_pass(scenario)]),
        f"batch {work.batch_size}",
        *_formats(scenario),
        *(_training(scenario) if work.phase == "train" else ()),
    ]
    mask = "causal" if work.causal else "no mask"
    if mesh.cp_size > 1:
        parts += [f"{mesh.partition}, {mask}", f"schedule {s.schedule.name}"]
    else:
        parts.append(mask)
    if not work.flash_attention:
        parts.append("scores are stored")
    if work.engine is not None:
        parts.append(f"engine {s.engine.name}")
    return "; ".join(parts)


def _sizes(mesh: Mesh) -> Iterator[str]:
    """Groups of the mesh, and how a group differs from the plain one."""
    inside = {"tp": _in_brackets(_tensor_parallel(mesh)), "pp": _in_brackets(_stages(mesh))}
    sizes = [
        f"{name} {getattr(mesh, f'{name}_size')}{inside.get(name, '')}"
        for name in ("cp", "ulysses", "tp", "pp", "dp", "ep")
        if getattr(mesh, f"{name}_size") > 1 or inside.get(name)
    ]
    yield " x ".join(sizes) or "one rank"
    if mesh.zero_stage:
        yield f"ZeRO {mesh.zero_stage}"


def _in_brackets(parts: Iterable[str]) -> str:
    text = ", ".join(parts)
    return f" ({text})" if text else ""


def _tensor_parallel(mesh: Mesh) -> Iterator[str]:
    if mesh.dcp_size > 1:
        yield f"dcp {mesh.dcp_size}"
    if mesh.attention_dp_size > 1:
        yield f"attention dp {mesh.attention_dp_size}"
    if mesh.sequence_parallel:
        yield "sequence-parallel"


def _stages(mesh: Mesh) -> Iterator[str]:
    if mesh.pp_layers is not None:
        yield f"{' + '.join(map(str, mesh.pp_layers))} layers"
    if mesh.pp_memory is not None:
        yield " + ".join(show(memory, "B") for memory in mesh.pp_memory)


def _of_the_pass(scenario: Scenario) -> Iterator[str]:
    work = scenario.workload
    if work.split[0]:
        yield f"{work.split[0]:,} cached"
    if work.shared_len:
        yield f"{work.shared_len:,} shared by all sequences"
    if work.chunk_tokens is not None:
        yield f"in chunks of {work.chunk_tokens:,}"


def _formats(scenario: Scenario) -> Iterator[str]:
    """Formats that are not those that a model has by default."""
    work, model = scenario.workload, scenario.model
    if work.weights_dtype is not None:
        yield f"weights {work.weights_dtype}"
    if work.embedding_dtype is not None:
        yield f"embeddings {work.embedding_dtype}"
    if work.activation_dtype != "bf16":
        yield f"activations {work.activation_dtype}"
    usual = {model.kv_dtype or work.activation_dtype}
    if {*_of_cache(scenario)} != usual:
        keys, values = _of_cache(scenario)
        yield f"K/V {keys}" if keys == values else f"K {keys}, V {values}"
    if not work.cache_latents:
        yield "latents cached as heads"
    if work.state_dtype is not None:
        yield f"states {work.state_dtype}"
    if work.draft_layers:
        yield f"{work.draft_layers} draft layer{'s' * (work.draft_layers > 1)}"


def _training(scenario: Scenario) -> Iterator[str]:
    """What a training pass does that it does not do by default."""
    work = scenario.workload
    if work.recompute != "full":
        yield f"recompute {work.recompute}"
    if work.optimizer != "adamw":
        yield f"optimizer {work.optimizer}"
    if work.gradient_dtype is not None:
        yield f"gradients {work.gradient_dtype}"
    if work.loss == "chunked":
        yield f"loss chunked by {work.loss_chunk_tokens:,}"
    elif work.loss != "unfused":
        yield f"loss {work.loss}"
    if work.offload:
        yield f"{' and '.join(work.offload)} offloaded"
    if work.num_micro_batches > 1:
        yield f"{work.num_micro_batches} micro-batches"


def cache_format(scenario: Scenario) -> str:
    """
    Return the format of cached keys and values.

    In words it is ``fp8``, or ``k q8_0, v q4_0``.
    """
    keys, values = _of_cache(scenario)
    return keys if keys == values else f"k {keys}, v {values}"


def _of_cache(scenario: Scenario) -> tuple[str, str]:
    """Formats of keys and of values: the workload's, the checkpoint's, the activations'."""
    work = scenario.workload
    base = work.kv_dtype or scenario.model.kv_dtype or work.activation_dtype
    return work.k_dtype or base, work.v_dtype or base


def state_format(scenario: Scenario) -> str:
    """Return the format of states, and that of convolutions where it is another one."""
    work, engine = scenario.workload, scenario.engine
    states = work.state_dtype or scenario.model.state_dtype or engine.state_dtype
    convolutions = engine.conv_dtype or work.activation_dtype
    return states if states == convolutions else f"{states}, of convolutions {convolutions}"


def rank_words(scenario: Scenario) -> str:
    """Name the rank that is billed: where cards differ, the fullest need not be the worst."""
    even = scenario.mesh.pp_memory is None
    return "the fullest rank" if even else "the rank with the least left"


def sequences(count: int) -> str:
    """
    Count sequences.

    >>> sequences(1), sequences(1200)
    ('1 sequence', '1,200 sequences')
    """
    return f"{count:,} sequence{'s' * (count != 1)}"


def in_one_pass(scenario: Scenario) -> str:
    """Say that sequences are held at once by a prefill that is not cut into chunks."""
    chunk = scenario.workload.chunk_tokens or scenario.engine.chunk_tokens
    return " in one pass" if scenario.workload.phase == "prefill" and not chunk else ""


def layer_words(model: ModelSpec) -> tuple[str, ...]:
    """
    Describe each kind of layer, to stand behind a number of layers.

    Where two kinds would read the same, heads and width of the MLP are added.
    """
    words = [_layer(model, index) for index in range(len(model.kinds))]
    for detail in (_heads, _width):
        twice = {each for each, times in Counter(words).items() if times > 1}
        words = [
            f"{each}, {detail(kind)}" if each in twice and detail(kind) else each
            for each, kind in zip(words, model.kinds, strict=True)
        ]
    return tuple(words)


def layers(count: int, words: str, noun: str = "layer") -> str:
    """
    Say how many layers of a kind there are.

    >>> layers(10, "of full attention"), layers(1, "of an MLP alone", "draft layer")
    ('10 layers of full attention', '1 draft layer of an MLP alone')
    """
    return f"{count:,} {noun}{'s' * (count != 1)} {words}"


def _layer(model: ModelSpec, index: int) -> str:
    kind = model.kinds[index]
    attends, states = kind.num_key_value_heads > 0, kind.state_heads > 0 or kind.conv_state > 0
    without_mlp = kind.active_intermediate_size == 0 and not kind.num_experts_per_tok
    has_mlp = bool(model.unknown) or not without_mlp
    words = [_attention(kind)] if attends else []
    if states:
        recurrent = kind.recurrent_state > 0
        words.append(
            "with states (Mamba, linear attention)" if recurrent else "of short convolutions"
        )
    if not words and not has_mlp:
        return "that do nothing"
    if not kind.num_experts_per_tok:
        mlp = "" if has_mlp else ", no MLP"
        return f"{' and '.join(words)}{mlp}" if words else "of an MLP alone"
    experts = f"{kind.num_experts_per_tok}{_of_experts(model, index)}"
    return f"{' and '.join(words)}, experts {experts}" if words else f"of experts alone, {experts}"


def _attention(kind: LayerKind) -> str:
    """What a layer sees and keeps."""
    text, more = "of latent attention" if kind.latent_dim is not None else "", []
    if kind.window is not None:
        more.append(f"a window of {kind.window:,} token{'s' * (kind.window > 1)}")
    if kind.compress_ratio is not None:
        more.append(f"an entry for each {kind.compress_ratio:,} tokens")
    if kind.indexer_dim:
        more.append("an indexer")
    if kind.window is None and not text:
        text = "of full attention"
    if more:
        text = f"{text} with {' and '.join(more)}".strip()
    return text if kind.caches else f"{text}, K/V of an earlier layer"


def _of_experts(model: ModelSpec, index: int) -> str:
    experts = {t.shape[0] for t in model.tensors if t.split == "expert" and t.kind == index}
    return f" of {max(experts):,}" if experts else " a token"


def _heads(kind: LayerKind) -> str:
    if not kind.num_attention_heads:
        return ""
    return f"{kind.num_attention_heads:,} heads, {kind.num_key_value_heads:,} of K/V"


def _width(kind: LayerKind) -> str:
    width = kind.active_intermediate_size
    return f"MLP {width:,} wide" if width else ""
