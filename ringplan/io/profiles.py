"""Profiles, in which every number names its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringplan.errors import SpecError
from ringplan.io import library
from ringplan.io.documents import read_document
from ringplan.io.origins import Origin, Tree
from ringplan.specs.hardware import source_of

if TYPE_CHECKING:
    from pathlib import Path


def read_profile(path: Path) -> Tree:
    """
    Read a hardware profile; the origin of each number names its line and its source.

    A profile may name a ``base``, shipped or a file beside it, and hold what differs.
    """
    profile = read_document(path, kind="profile")
    base = profile.values.pop("base", None)
    if base is not None:
        below = library.find("hardware", str(base), beside=path.parent)
        if below.resolve() == path.resolve():
            raise SpecError(f"{path}: base is the file itself", hint="name another profile")
        profile.origins.pop("base", None)
    read_profiled(profile)
    if base is None:
        return profile
    whole = read_profile(below)
    sources = {**whole.values.get("sources", {}), **profile.values.pop("sources", {})}
    whole.overlay(profile)
    whole.values["sources"] = sources
    return whole


def read_profiled(profile: Tree) -> Tree:
    """Give each number of a profile the source that its file names for it."""
    sources = profile.values.get("sources", {})
    described = {
        key: f"{value.get('kind')}, {value.get('title')}"
        for key, value in sources.items()
        if isinstance(value, dict)
    }
    profile.origins = {
        key: Origin("profile", origin.where, source_of(key, described) or "")
        for key, origin in profile.origins.items()
        if not key.startswith("sources")
    }
    return profile
