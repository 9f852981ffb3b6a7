"""Find what ringplan ships: hardware profiles, models and schedules, by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ringplan.errors import FileError, SpecError, nearest, quote

_PACKAGE: Final = Path(__file__).parent.parent


def _hardware_folder() -> Path:
    """Inside an installed package; beside it in a checkout."""
    inside = _PACKAGE / "hardware_profiles"
    return inside if inside.is_dir() else _PACKAGE.parent / "hardware_profiles"


def folder(shelf: str) -> Path:
    """Return the folder of ``models``, ``hardware`` or ``schedules``."""
    return _hardware_folder() if shelf == "hardware" else _PACKAGE / "data" / shelf


def shown(path: Path) -> str:
    """
    Name a file for people: one that is shipped by its place in the project, others as given.

    >>> shown(folder("models") / "llama-3.1-8b.yaml")
    'ringplan/data/models/llama-3.1-8b.yaml'
    """
    if path.is_relative_to(_hardware_folder()):
        return f"hardware_profiles/{path.relative_to(_hardware_folder())}"
    if path.is_relative_to(_PACKAGE):
        return f"ringplan/{path.relative_to(_PACKAGE)}"
    return str(path)


def names(shelf: str) -> list[str]:
    """
    List what is shipped on a shelf; of hardware, the devices and then the node types.

    >>> "h100-sxm-80gb" in names("hardware"), "aws-p5-48xlarge" in names("hardware")
    (True, True)
    """
    return list(files(shelf))


def files(shelf: str) -> dict[str, Path]:
    """Give the file of each name on a shelf."""
    found = [*sorted(folder(shelf).glob("*.yaml")), *sorted(folder(shelf).glob("nodes/*.yaml"))]
    return {path.stem: path for path in found}


def find(shelf: str, name: str, *, beside: Path | None = None) -> Path:
    """
    Return the file of a shipped name, or of a path the user gave.

    Parameters
    ----------
    shelf
        ``models``, ``hardware`` or ``schedules``.
    name
        A shipped name, or a path: anything with a slash or ending in .json, .yaml or .yml.
    beside
        Folder that a relative path is relative to; the current one if None.

    Raises
    ------
    SpecError
        No such name; says which ones come near.
    FileError
        No such file.
    """
    if "/" in name or "\\" in name or name.endswith((".json", ".yaml", ".yml")):
        path = Path(os.path.expanduser(name))  # noqa: PTH111 - leaves an unknown ~user as it is
        if beside is not None and not path.is_absolute():
            path = beside / path
        if not path.exists():
            known = nearest(Path(name).stem, names(shelf), noun=shelf)
            raise FileError(
                f"there is no file {quote(path)}",
                hint=f"ringplan list {shelf} shows the names; {known}",
            )
        return path
    shipped = files(shelf)
    if name in shipped:
        return shipped[name]
    if name and Path(name).exists():
        raise SpecError(
            f"'{name}' is no name that ringplan ships", hint=f"for the file, write ./{name}"
        )
    noun = shelf.removesuffix("s") if shelf != "hardware" else "hardware profile"
    raise SpecError(f"unknown {noun} {quote(name)}", hint=nearest(name, names(shelf), noun=shelf))
