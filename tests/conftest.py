from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Rewrite the golden outputs; review the diff.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "network: needs the package index; -m 'not network' skips.")


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[Path, str], None]:
    """Compare an output with its golden file, or rewrite the file."""

    def _compare(path: Path, made: str) -> None:
        if pytestconfig.getoption("--update-golden"):
            path.write_text(made, encoding="utf-8")
        assert made == path.read_text(encoding="utf-8"), f"pytest --update-golden rewrites {path}"

    return _compare
