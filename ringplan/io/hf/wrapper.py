"""The language model inside of a multimodal config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringplan.io.origins import DEFAULT, Tree, leaves

if TYPE_CHECKING:
    from ringplan.io.origins import Origin

#: What a wrapper may say once for all its parts; spellings of one thing stand together.
INHERITED: Final = (("tie_word_embeddings",), ("quantization_config",), ("torch_dtype", "dtype"))


#: Where wrappers keep the language model.
PARTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")


def language_model(config: Tree) -> tuple[Tree, str]:
    """
    Return the language model's config and where it was: at the top of a plain config.

    It is completed from the wrapper around it. A value of the wrapper that is not from the
    config's own file, but from ``--set`` or a scenario, is meant for the language model and
    overrides what that says.
    """
    part = next((key for key in PARTS if isinstance(config.values.get(key), dict)), "")
    if not part:
        return config, ""
    text = _completed(config, part)
    inner, deeper = language_model(text)
    return inner, f"{part} {deeper}".rstrip()


def _completed(config: Tree, part: str) -> Tree:
    text = config.branch(part)
    lacking = {
        key
        for spellings in INHERITED
        if text.values.keys().isdisjoint(spellings)
        for key in spellings
    }
    own = _file(config.origins.get(part, DEFAULT))
    for path, value in leaves(config.values):
        key = path.partition(".")[0]
        origin = config.origins.get(path, DEFAULT)
        foreign = origin != DEFAULT and _file(origin) != own
        if key in lacking or (foreign and key != part):
            text.put(path, value, origin)
    return text


def _file(origin: Origin) -> str:
    """Return where a value is from, without the line."""
    return origin.where.rpartition(" line ")[0] or origin.where
