"""The language model inside of a multimodal config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.origins import DEFAULT, Tree, leaves

if TYPE_CHECKING:
    from ringplan.io.origins import Origin

#: What a wrapper may say once for all its parts; spellings of one thing stand together.
INHERITED: Final = (("tie_word_embeddings",), ("quantization_config",), ("torch_dtype", "dtype"))


def language_model(config: Tree) -> Tree:
    """
    Return text_config, completed from the wrapper around it; a plain config as it is.

    A value of the wrapper that is not from the config's own file, but from ``--set`` or a
    scenario, is meant for the language model and overrides what text_config says.
    """
    if not isinstance(config.values.get("text_config"), dict):
        return config
    text = config.branch("text_config")
    lacking = {
        key
        for spellings in INHERITED
        if text.values.keys().isdisjoint(spellings)
        for key in spellings
    }
    own = _file(config.origins.get("text_config", DEFAULT))
    for path, value in leaves(config.values):
        key = path.partition(".")[0]
        origin = config.origins.get(path, DEFAULT)
        foreign = origin != DEFAULT and _file(origin) != own
        if key in lacking or (foreign and key != "text_config"):
            text.put(path, value, origin)
    return text


def _file(origin: Origin) -> str:
    """Return where a value is from, without the line."""
    return origin.where.rpartition(" line ")[0] or origin.where
