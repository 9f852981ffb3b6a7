"""The documentation tells the truth: commands run, outputs are current, pages are generated."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ringplan.cli.app import app

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *ROOT.glob("hardware_profiles/*.md")]
CONFIG = ROOT / "tests/data/hf_configs/qwen3-8b.json"


def commands() -> list[tuple[str, str]]:
    """Every ringplan command in a shell block, with the page it stands on."""
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line) for line in lines if line.startswith("ringplan ")]
    return found


def generator() -> ModuleType:
    """Load docs/generate.py, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


@pytest.mark.parametrize(("page", "command"), commands())
def test_command_in_the_docs_runs(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = shlex.split(command.replace("path/to/config.json", str(CONFIG)), comments=True)[1:]
    arguments = [str(tmp_path / a) if a == "review.md" else a for a in arguments]
    monkeypatch.chdir(ROOT)

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, (page, result.stderr)


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_generated_page_is_current(name: str) -> None:
    """`python docs/generate.py` rewrites the pages."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == GENERATOR.PAGES[name]()


def test_readme_shows_what_make_estimate_prints() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"\$\(BIN\)/ringplan (estimate .*)", (ROOT / "Makefile").read_text())
    assert command is not None
    printed = subprocess.run(
        [sys.executable, "-m", "ringplan", *shlex.split(command[1])],
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    shown = "\n".join(line.rstrip() for line in printed.splitlines())

    assert f"```text\n{shown}\n```" in readme
    assert f"ringplan {command[1]}" in readme


def test_python_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)

    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - our own page

    assert "ring hidden" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/examples/*.yaml")), ids=lambda p: p.name)
def test_example_scenario_works(path: Path) -> None:
    assert CliRunner().invoke(app, ["estimate", str(path)]).exit_code == 0


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
