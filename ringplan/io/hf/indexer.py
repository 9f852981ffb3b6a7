"""The indexer of DeepSeek's sparse attention: it has keys of its own, cached beside the latent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.hf.tensors import linear, norm

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields, Sourced
    from ringplan.io.hf.tensors import Tensors

#: What GlmMoeDsaConfig has for a config without index_skip_topk_offset.
DEFAULT_OFFSET: Final = 2
_OWN: Final = ("full", "F")


def read_indexer(fields: Fields, hidden_size: int) -> tuple[Sourced, Tensors]:
    """Read the size of an indexer's key, and its tensors, which every rank has."""
    heads = fields.integer("index_n_heads")
    size = fields.integer("index_head_dim")
    rank = fields.integer("q_lora_rank")
    name = "self_attn.indexer"
    tensors = (
        *linear(f"{name}.wq_b", heads.value * size.value, rank.value, "none"),
        *linear(f"{name}.wk", size.value, hidden_size, "none"),
        *norm(f"{name}.k_norm", size.value, bias=True),
        *(
            each._replace(quantized=False)
            for each in linear(f"{name}.weights_proj", heads.value, hidden_size, "none")
        ),
    )
    return size, tensors


def indexed_layers(fields: Fields, layers: int) -> list[bool]:
    """Tell which layers have an indexer; the others use what the one before them has chosen."""
    types = fields.words("indexer_types")
    pattern = fields.text("index_topk_pattern")
    every = fields.optional("index_topk_freq")
    offset = fields.optional("index_skip_topk_offset", least=0)
    if types is None and pattern is not None:
        types = tuple(pattern.value)
    if types is not None:
        fields.count("indexer_types", len(types), layers)
        return [index >= len(types) or types[index] in _OWN for index in range(layers)]
    skipped = (offset.value if offset else DEFAULT_OFFSET) - 1
    step = every.value if every else 1
    return [max(index - skipped, 0) % step == 0 for index in range(layers)]
