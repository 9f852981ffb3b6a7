"""Print tables; apart from `output`, so that JSON does not import Rich."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType


class Terminal(Console):
    """Prints tables; leaves a closed pipe to whoever runs the command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)
        self.width = max(self.width, 80)  # narrower tables lose their units

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print; what is no terminal gets no blanks at the ends of lines."""
        if self.is_terminal:
            super().print(*objects, **settings)
            return
        with self.capture() as capture:
            super().print(*objects, **settings)
        self.file.write(re.sub(" +\n", "\n", capture.get()))

    def on_broken_pipe(self) -> None:
        """Pass it on: Rich would exit with 1, which means something else here."""
        raise BrokenPipeError


def as_text(renderable: RenderableType) -> str:
    """Return what a pipe would get: 80 columns, no colour."""
    text = io.StringIO()
    Terminal(file=text, width=80, color_system=None).print(renderable)
    return text.getvalue()
