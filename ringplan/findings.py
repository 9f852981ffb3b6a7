"""A finding: what a rule has found, and the cure."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """What a rule found, and the cure."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str
