"""Nemotron-H: each layer is one of Mamba 2, attention, an MLP or experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.drafts import count_drafts, with_nemotron_drafts
from ringplan.io.hf.experts import active_width, correction_bias, read_experts
from ringplan.io.hf.fields import Sourced
from ringplan.io.hf.mamba import mamba_state, mamba_tensors, read_mamba
from ringplan.io.hf.parts import Decoder, Layer, Mlp, Trunk
from ringplan.io.hf.readings import class_default, read_heads
from ringplan.io.hf.tensors import ends, linear, norm, projections, router
from ringplan.specs.model import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.tensors import Tensors

#: What the letters of a pattern and the words of a list stand for.
KINDS: Final = {
    "M": "mamba",
    "mamba": "mamba",
    "linear_attention": "mamba",
    "*": "attention",
    "attention": "attention",
    "full_attention": "attention",
    "-": "mlp",
    "mlp": "mlp",
    "E": "moe",
    "moe": "moe",
}
#: What NemotronHConfig of transformers has for a config without head_dim, and for a draft layer.
DEFAULT_HEAD_DIM: Final = 128
DEFAULT_DRAFT: Final = ("attention", "moe")


def read_nemotron_h(fields: Fields) -> Decoder:
    """Read Nemotron-H; without num_hidden_layers, the model is as long as its pattern."""
    pattern = _pattern(fields, "hybrid_override_pattern", "layers_block_type")
    if pattern is None:
        fields.vital("layers_block_type")
    trunk = _trunk(fields, pattern or [])
    layers = (pattern or [])[: trunk.num_hidden_layers.value]
    readers: dict[str, Callable[[], Layer]] = {
        "mamba": lambda: _mamba_layer(fields, trunk),
        "attention": lambda: _attention_layer(fields, trunk),
        "mlp": lambda: Layer(None, _norm(trunk), _mlp(fields, trunk)),
        "moe": lambda: Layer(None, _norm(trunk), _experts(fields, trunk)),
    }
    made = {kind: readers[kind]() for kind in dict.fromkeys(layers)}
    tied = fields.flag("tie_word_embeddings", default=False)
    decoder = Decoder(trunk, tuple(made[kind] for kind in layers), ends(trunk, tied=tied))
    return _drafts(fields, decoder) if count_drafts(fields) else decoder


def _drafts(fields: Fields, decoder: Decoder) -> Decoder:
    """Add drafts: one layer of attention and one of experts, which draft a token together."""
    kinds = _pattern(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if tuple(kinds or DEFAULT_DRAFT) != DEFAULT_DRAFT:
        said = "draft layers that are not of attention and experts"
        return decoder._replace(not_counted=(said,))
    trunk = decoder.trunk
    attention = _attention_layer(fields, trunk)
    layer = attention._replace(
        tensors=attention.tensors + norm("mlp.norm", trunk.hidden_size.value),
        mlp=_experts(fields, trunk),
    )
    return with_nemotron_drafts(fields, decoder, layer)


def _pattern(fields: Fields, letters: str, words: str) -> list[str] | None:
    """Read of what kind each layer is, from letters in a row or from a list of words."""
    listed, row = fields.words(words), fields.text(letters)
    given = listed or (tuple(row.value) if row else None)
    key = words if listed else letters
    if given is None:
        return None
    for unknown in sorted({*given} - {*KINDS}):
        fields.note(
            f"{fields.place(key)}: {key} has '{unknown}', which is no kind of layer that "
            f"ringplan knows"
        )
    return [KINDS.get(kind, "mlp") for kind in given]


def _trunk(fields: Fields, pattern: list[str]) -> Trunk:
    key = "layers_block_type" if fields.words("layers_block_type") else "hybrid_override_pattern"
    given = fields.optional("num_hidden_layers", most=10_000)
    if given and pattern:
        fields.count(key, len(pattern), given.value)
    length = Sourced(min(len(pattern), 10_000), fields.origin(key))
    return Trunk(
        hidden_size=fields.integer("hidden_size"),
        vocab_size=fields.integer("vocab_size"),
        num_hidden_layers=given or (length if pattern else fields.missing("num_hidden_layers")),
        max_position_embeddings=fields.optional("max_position_embeddings"),
    )


def _norm(trunk: Trunk) -> Tensors:
    return norm("norm", trunk.hidden_size.value)


def _mamba_layer(fields: Fields, trunk: Trunk) -> Layer:
    mamba = read_mamba(fields)
    tensors = mamba_tensors(
        trunk.hidden_size.value,
        mamba,
        name="mixer",
        bias=fields.flag("use_bias", default=False),
        conv_bias=fields.flag("use_conv_bias", default=True),
    )
    return Layer(None, _norm(trunk) + tensors, state=mamba_state(fields, mamba))


def _attention_layer(fields: Fields, trunk: Trunk) -> Layer:
    heads = read_heads(
        fields,
        head_dim=lambda: (
            fields.optional("attention_head_dim")
            or class_default(fields, "head_dim", DEFAULT_HEAD_DIM)
        ),
    )
    tensors = projections(trunk.hidden_size.value, heads, inside="mixer")
    return Layer(heads, _norm(trunk) + tensors, window=fields.optional("sliding_window"))


def _mlp(fields: Fields, trunk: Trunk) -> Mlp:
    width = fields.integer("intermediate_size")
    return Mlp(width, _ungated(fields, "mixer", trunk.hidden_size.value, width.value))


def _ungated(fields: Fields, name: str, hidden_size: int, width: int) -> Tensors:
    bias = fields.flag("mlp_bias", default=False)
    return (
        *linear(f"{name}.up_proj", width, hidden_size, bias="tensor" if bias else None),
        *linear(f"{name}.down_proj", hidden_size, width, bias="none" if bias else None),
    )


def _experts(fields: Fields, trunk: Trunk) -> Mlp:
    """Read experts; those with a latent size meet tokens that are projected to it."""
    hidden = trunk.hidden_size
    experts, visited = read_experts(fields, "n_routed_experts")
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("moe_shared_expert_intermediate_size")
    latent = fields.optional("moe_latent_size")
    if not fields.has("moe_latent_size"):  # null is an answer: experts meet the token itself
        latent = fields.integer("moe_latent_size")
    size = latent or hidden
    gate = router("mixer.gate", experts.value, hidden.value)
    shape = (experts.value, width.value, size.value)
    tensors = (
        gate,
        correction_bias(gate, experts.value),
        Tensor("mixer.experts.up_proj.weight", shape, "expert"),
        Tensor("mixer.experts.down_proj.weight", (shape[0], shape[2], shape[1]), "expert"),
        *_ungated(fields, "mixer.shared_experts", hidden.value, shared.value),
        *(_latent(hidden.value, latent.value) if latent else ()),
    )
    return Mlp(active_width(fields, visited, width, shared), tensors, visited)


def _latent(hidden_size: int, latent_size: int) -> Tensors:
    return (
        *linear("mixer.fc1_latent_proj", latent_size, hidden_size, "none"),
        *linear("mixer.fc2_latent_proj", hidden_size, latent_size, "none"),
    )
