"""Hugging Face's config.json, as downloaded, read into a ModelSpec."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ringplan.errors import SpecError, nearest
from ringplan.io.hf.build import build, complete
from ringplan.io.hf.families import CLASSES, ENCODERS, FAMILIES, SUFFIXES, WRAPPERS
from ringplan.io.hf.fields import Fields, Text
from ringplan.io.hf.precision import read_precision
from ringplan.io.hf.wrapper import language_model

__all__ = ["FAMILIES", "ReadModel", "read_config"]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringplan.io.hf.parts import Reader
    from ringplan.io.origins import Origin, Tree
    from ringplan.specs.model import ModelSpec

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
    text, part = language_model(config)
    fields = Fields(text, f"{where} {part}".rstrip())
    whole = Fields(config, where, fields.problems, keys=fields.keys)
    _refuse_encoders(whole, fields)
    family = _family(fields, whole)
    decoder = _reader(family)(fields)
    precision = read_precision(fields)
    fields.stop(family, complete=complete(decoder))
    spec, origins = build(
        decoder,
        name=name,
        precision=precision,
        lacking=tuple(fields.lacking),
        outside=tuple(_outside(fields, part)),
    )
    return ReadModel(spec, origins, frozenset(fields.keys))


def _outside(fields: Fields, part: str) -> Iterator[str]:
    """Name the parts of the checkpoint that are not of the language model."""
    if part:
        yield f"what stands outside {part}, such as an image encoder"
    elif fields.block("vision_config"):
        yield "what vision_config describes, the image encoder"


def _refuse_encoders(whole: Fields, fields: Fields) -> None:
    if whole.flag("is_encoder_decoder", default=False):
        raise _encoder_error(whole, "is_encoder_decoder is true")
    given = fields.text("model_type")
    if given is not None and given.value in ENCODERS:
        raise _encoder_error(fields, f"model_type '{given.value}' has an encoder", "model_type")


def _encoder_error(fields: Fields, what: str, key: str = "is_encoder_decoder") -> SpecError:
    return SpecError(
        f"{fields.place(key)}: {what}, but ringplan plans decoders only",
        hint="name the config of a decoder-only model",
    )


def _family(fields: Fields, whole: Fields) -> str:
    """Return the model_type, or what class or wrapper say instead, if its layout is known."""
    given = fields.text("model_type") or _class_family(fields) or _wrapped_family(whole)
    known = f"known are {', '.join(FAMILIES)}; most need {_USUAL}"
    if given is None:
        raise SpecError(
            f"{fields.name}: model_type is missing, which says how the tensors are laid out",
            hint=known,
        )
    if given.value not in FAMILIES:
        raise SpecError(
            f"{fields.place('model_type')}: unknown model_type '{given.value}'",
            hint=f"{nearest(given.value, list(FAMILIES), noun='model_types')}; {known}",
        )
    return given.value


def _class_family(fields: Fields) -> Text | None:
    """Tell the family by the class, as configs of TensorRT-LLM name it, or by the first of some."""
    single = fields.config.values.get("architecture")
    several = fields.config.values.get("architectures")
    fields.keys.update(("architecture", "architectures"))
    named = single or (several[0] if isinstance(several, list) and several else None)
    name = str(named)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    key = "architecture" if single else "architectures"
    return Text(CLASSES[name], fields.origin(key)) if name in CLASSES else None


def _wrapped_family(whole: Fields) -> Text | None:
    given = whole.text("model_type")
    if given is None or given.value not in WRAPPERS:
        return None
    return Text(WRAPPERS[given.value], given.origin)


def _reader(family: str) -> Reader:
    module, _, name = FAMILIES[family].partition(".")
    reader: Reader = getattr(import_module(f"ringplan.io.hf.{module}"), name)
    return reader
