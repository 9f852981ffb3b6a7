"""What a rule has found, and the cure."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """What a rule found, and the cure."""

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str


class Reason(NamedTuple):
    """One rule that a layout breaks: code, what is broken, what to type instead, and in brief."""

    code: str
    message: str
    hint: str
    brief: str
