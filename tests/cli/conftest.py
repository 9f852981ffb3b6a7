from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from ringplan.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCENARIO = """\
model: llama-3.1-8b
hardware: h100-sxm-80gb
mesh:
  cp_size: 16
workload:
  seq_len: 128K
"""


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def ringplan() -> Callable[..., Ran]:
    """Run the command line in this process."""

    def _run(*arguments: str, columns: int = 80) -> Ran:
        env = {"COLUMNS": str(columns), "NO_COLOR": None}
        result = CliRunner().invoke(app, arguments, env=env)
        return Ran(result.exit_code, result.stdout, result.stderr)

    return _run


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario file that works, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    return "scenario.yaml"
