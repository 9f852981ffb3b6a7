"""Write files that are whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from ringplan.errors import FileError, quote


def write_text(path: Path, text: str) -> None:
    """
    Write a text file beside its place and rename it there.

    Raises
    ------
    FileError
        The folder is missing, not writable or full; nothing is left behind.
    """
    beside: Path | None = None
    try:
        if path.is_dir():
            example = path / "estimate.json"
            raise FileError(f"{path} is a directory", hint=f"name a file, like {example}")
        path = path.resolve()  # a link is followed
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "permission denied")
        if path.exists() and not path.is_file():  # a pipe or a device: nothing to rename
            path.write_text(text, encoding="utf-8")
            return
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        beside = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        beside.chmod(mode)
        beside.replace(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(
            f"cannot write {quote(path, 400)}: {reason.lower()}",
            hint="choose another --output",
        ) from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
