from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringplan.io.documents import read_document
from ringplan.io.hf import ReadModel, read_config
from ringplan.io.origins import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGS = Path(__file__).parents[2] / "data" / "hf_configs"


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
