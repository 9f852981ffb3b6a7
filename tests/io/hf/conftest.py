from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.io.documents import read_document
from ringplan.io.hf import ReadModel, read_config
from ringplan.io.origins import Origin, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringplan.specs.model import ModelSpec

CONFIGS = Path(__file__).parents[2] / "data" / "hf_configs"


@pytest.fixture
def small() -> Callable[[str], ModelSpec]:
    """Read a made-up config of those that are compared with transformers."""
    configs = json.loads((CONFIGS / "expected" / "small_models.json").read_text())
    return lambda name: read_config(Tree(configs[name]["config"], {}), name=name).spec


@pytest.fixture
def read() -> Callable[..., ReadModel]:
    """Read a stored config, some keys taken out and some set as ``--set`` would."""

    def _read(name: str, *, without: tuple[str, ...] = (), **changes: object) -> ReadModel:
        config = read_document(CONFIGS / f"{name}.json", kind="model")
        for key in without:
            del config.values[key]
        for key, value in changes.items():
            config.put(key, value, Origin("set", f"--set model.{key}={value}"))
        return read_config(config, name=name)

    return _read
