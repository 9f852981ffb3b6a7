"""Draft layers: a layer that predicts one token more, and what joins it to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.io.hf.tensors import linear, norm

if TYPE_CHECKING:
    from ringplan.io.hf.fields import Fields
    from ringplan.io.hf.parts import Decoder, Layer
    from ringplan.io.hf.tensors import Tensors


def count_drafts(fields: Fields) -> int:
    """Read how many draft layers the checkpoint has; none if the config does not say."""
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    given = fields.optional(*names, least=0, most=1000)
    return given.value if given else 0


def unmodelled_drafts(fields: Fields) -> tuple[str, ...]:
    """Say that draft layers are left out, for a family whose drafts ringplan does not know."""
    count = count_drafts(fields)
    return (f"draft layers, of which there are {count}",) if count else ()


def with_drafts(fields: Fields, decoder: Decoder, layer: Layer, joint: Tensors) -> Decoder:
    """Add as many draft layers as the config says, each with what joins it to the model."""
    count = count_drafts(fields)
    return decoder._replace(drafts=(layer,) * count, draft_tensors=joint if count else ())


def with_deepseek_drafts(fields: Fields, decoder: Decoder, layer: Layer) -> Decoder:
    """Add drafts as DeepSeek V3 has them; embeddings and head are those of the model."""
    hidden = decoder.trunk.hidden_size.value
    joint = (*_joining("eh_proj", ("enorm", "hnorm"), hidden), *norm("shared_head.norm", hidden))
    return with_drafts(fields, decoder, layer, joint)


def with_mimo_drafts(fields: Fields, decoder: Decoder) -> Decoder:
    """Add drafts as MiMo has them: a layer of the model, and a final norm."""
    hidden = decoder.trunk.hidden_size.value
    norms = ("token_layernorm", "hidden_layernorm")
    joint = (*_joining("input_proj", norms, hidden), *norm("final_layernorm", hidden))
    return with_drafts(fields, decoder, decoder.layers[-1], joint)


def with_qwen_drafts(fields: Fields, decoder: Decoder, layer: Layer) -> Decoder:
    """Add drafts as Qwen 3 Next has them: a layer of full attention, and a final norm."""
    hidden = decoder.trunk.hidden_size.value
    norms = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden")
    joint = (*_joining("mtp.fc", norms, hidden), *norm("mtp.norm", hidden))
    return with_drafts(fields, decoder, layer, joint)


def with_nemotron_drafts(fields: Fields, decoder: Decoder, layer: Layer) -> Decoder:
    """Add drafts as Nemotron-H has them: attention and experts in one, and a final norm."""
    hidden = decoder.trunk.hidden_size.value
    joint = (*_joining("eh_proj", ("enorm", "hnorm"), hidden), *norm("final_layernorm", hidden))
    return with_drafts(fields, decoder, layer, joint)


def _joining(name: str, norms: tuple[str, str], hidden_size: int) -> Tensors:
    """Return the projection of a token and a hidden state to one, and a norm for each."""
    weight = linear(name, hidden_size, 2 * hidden_size, "none")
    joined = tuple(each._replace(quantized=False) for each in weight)
    return joined + norm(norms[0], hidden_size) + norm(norms[1], hidden_size)
