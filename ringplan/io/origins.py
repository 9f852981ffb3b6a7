"""Where a value came from, and the merging of profile, file, ``--set`` and flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """
    Who gave a value.

    Attributes
    ----------
    kind
        ``file``, ``set``, ``flag``, ``argument``, ``profile``, ``model``, ``derived``, ``default``.
    where
        File and line, the option as typed, or the rule that derived it.
    source
        For a profile's or a model's number: its kind and title.
    """

    kind: str
    where: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.source}" if self.source else self.where


DEFAULT = Origin("default", "default")


@dataclass(slots=True)
class Tree:
    """
    A nested dictionary and, beside it, the origin of each leaf by dotted path.

    Later layers are merged over earlier ones with `overlay`.
    """

    values: dict[str, Any]
    origins: dict[str, Origin]

    def put(self, path: str, value: object, origin: Origin) -> None:
        """Set one path, replacing whatever was there or below."""
        *parents, last = path.split(".")
        node = self.values
        for depth, parent in enumerate(parents, 1):
            child = node.get(parent)
            if not isinstance(child, dict):
                child = node[parent] = {}
                self.origins.pop(".".join(parents[:depth]), None)
            node = child
        node[last] = value
        self.drop_origins(path)
        self.origins[path] = origin

    def overlay(self, other: Tree) -> None:
        """Merge another tree over this one, leaf by leaf."""
        for path, value in leaves(other.values):
            self.put(path, value, other.origins.get(path, DEFAULT))
        for path, origin in other.origins.items():
            self.origins.setdefault(path, origin)

    def drop_origins(self, path: str) -> None:
        """Forget the origins of a path and of all below it."""
        for known in [p for p in self.origins if p == path or p.startswith(f"{path}.")]:
            del self.origins[known]

    def branch(self, name: str) -> Tree:
        """Take one block of the tree as a tree of its own, paths relative to it."""
        prefix = f"{name}."
        block = self.values.get(name)
        return Tree(
            dict(block) if isinstance(block, dict) else {},
            {p.removeprefix(prefix): o for p, o in self.origins.items() if p.startswith(prefix)},
        )


def leaves(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """
    List the paths and values of a nested dictionary; a table by size, ``{1K: ...}``, is one value.

    >>> leaves({"mesh": {"cp_size": 8}, "model": "llama-3.1-8b"})
    [('mesh.cp_size', 8), ('model', 'llama-3.1-8b')]
    """
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict) and value and all(map(str.isidentifier, value)):
            found += leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found
