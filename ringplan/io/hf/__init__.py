"""Hugging Face's config.json, as downloaded, read into a ModelSpec."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.errors import SpecError
from ringplan.io.hf.build import build
from ringplan.io.hf.fields import Fields
from ringplan.io.hf.precision import read_weights_dtype
from ringplan.io.hf.wrapper import language_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.io.hf.parts import Reader
    from ringplan.io.origins import Origin, Tree
    from ringplan.specs.model import ModelSpec

#: How the tensors of a model_type are laid out: the reader and its module, imported when needed.
#: Every number comes from the config.
FAMILIES: Final = {
    "deepseek_v2": "deepseek.read_deepseek_v2",
    "deepseek_v3": "deepseek.read_deepseek_v3",
    "gemma2": "gemma2.read_gemma2",
    "glm4_moe_lite": "deepseek.read_deepseek_v3",
    "gpt2": "gpt2.read_gpt2",
    "gpt_bigcode": "gpt2.read_gpt_bigcode",
    "gpt_oss": "gpt_oss.read_gpt_oss",
    "kimi_k2": "deepseek.read_deepseek_v3",
    "llama": "llama.read_llama",
    "mimo": "llama.read_qwen2",
    "mistral": "llama.read_mistral",
    "mixtral": "moe.read_mixtral",
    "qwen2": "llama.read_qwen2",
    "qwen2_5_vl": "llama.read_qwen2",
    "qwen2_5_vl_text": "llama.read_qwen2",
    "qwen2_vl": "llama.read_qwen2",
    "qwen2_vl_text": "llama.read_qwen2",
    "qwen3": "llama.read_qwen3",
    "qwen3_moe": "moe.read_qwen3_moe",
    "qwen3_vl_moe_text": "moe.read_qwen3_moe",
    "qwen3_vl_text": "llama.read_qwen3",
}
_USUAL: Final = "hidden_size, intermediate_size, num_attention_heads, num_hidden_layers, vocab_size"


class ReadModel(NamedTuple):
    """
    A model as read.

    Attributes
    ----------
    spec
        The model.
    origins
        Who gave each number, by its path in the spec: ``kinds.0.head_dim``.
    keys
        The keys that the family's reader knows.
    """

    spec: ModelSpec
    origins: dict[str, Origin]
    keys: frozenset[str]


def read_config(config: Tree, *, name: str, where: str = "") -> ReadModel:
    """
    Read a config.json; of a multimodal one, the language model.

    Parameters
    ----------
    config
        The config, with what the scenario changes already merged.
    name
        What to call the model.
    where
        What to call the config in messages: its file; the name if that is not given.

    Raises
    ------
    SpecError
        An encoder-decoder, an unknown family, or fields that are missing or wrong: all at once.
    """
    where = where or name
    text = language_model(config)
    fields = Fields(text, where if text is config else f"{where} text_config")
    whole = Fields(config, where, fields.problems, keys=fields.keys)
    if whole.flag("is_encoder_decoder", default=False):
        raise SpecError(
            f"{whole.place('is_encoder_decoder')}: is_encoder_decoder is true, but ringplan plans "
            "decoders only",
            hint="name the config of a decoder-only model",
        )
    family = _family(fields)
    decoder = _reader(family)(fields)
    weights_dtype, origin = read_weights_dtype(fields)
    not_counted = tuple(_not_counted(fields, wrapped=text is not config))
    fields.stop(family)
    spec, origins = build(
        decoder,
        name=name,
        weights_dtype=weights_dtype,
        dtype_origin=origin,
        not_counted=not_counted,
    )
    return ReadModel(spec, origins, frozenset(fields.keys))


def _not_counted(fields: Fields, *, wrapped: bool) -> Iterator[str]:
    """Name the parts of the checkpoint that a ModelSpec has no place for."""
    if wrapped:
        yield "what stands outside text_config, such as an image encoder"
    drafts = fields.optional("num_nextn_predict_layers", least=0)
    if drafts and drafts.value:
        yield f"draft layers: num_nextn_predict_layers is {drafts.value}"


def _family(fields: Fields) -> str:
    """Return the model_type, if its layout is known."""
    given = fields.text("model_type")
    known = f"known are {', '.join(FAMILIES)}; most need {_USUAL}"
    if given is None:
        raise SpecError(
            f"{fields.name}: model_type is missing, which says how the tensors are laid out",
            hint=known,
        )
    if given.value not in FAMILIES:
        raise SpecError(
            f"{fields.place('model_type')}: unknown model_type '{given.value}'", hint=known
        )
    return given.value


def _reader(family: str) -> Reader:
    module, _, name = FAMILIES[family].partition(".")
    reader: Reader = getattr(import_module(f"ringplan.io.hf.{module}"), name)
    return reader
