"""The wheel holds everything and runs far away from the checkout. Needs the package index."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.network
def test_wheel_holds_its_data_and_runs_elsewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-w", str(tmp_path)]
    built = subprocess.run([*build, "-q"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("ringplan-*.whl")
    home = tmp_path / "home"
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        archive.extractall(home)

    shelf = ROOT / "hardware_profiles"
    profiles = [path.relative_to(shelf).as_posix() for path in shelf.rglob("*.yaml")]
    models = [path.name for path in ROOT.glob("ringplan/data/models/*.yaml")]
    assert {f"ringplan/hardware_profiles/{name}" for name in profiles} <= held
    assert {f"ringplan/data/models/{name}" for name in models} <= held
    assert {"ringplan/data/schedules/DEFAULT", "ringplan/py.typed"} <= held
    assert not any(name.startswith(("tests/", "docs/")) for name in held)

    # The wheel's folder comes first, then the libraries it depends on.
    libraries = os.pathsep.join([str(home), sysconfig.get_path("purelib")])
    script = "import ringplan; from ringplan.__main__ import main; print(ringplan.__file__); main()"
    for command in (
        "list hardware",
        "estimate --model llama-3.1-8b --hardware l40s --seq-len 8K",
    ):
        ran = subprocess.run(
            [sys.executable, "-S", "-c", script, *command.split()],
            env={"PYTHONPATH": libraries, "PATH": os.environ["PATH"], "COLUMNS": "80"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith(str(home))
        assert "l40s" in ran.stdout
