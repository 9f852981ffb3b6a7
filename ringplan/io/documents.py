"""
Read YAML and JSON with the line of every value, and nothing turned into what it does not say.

PyYAML's own constructor reads ``12:30`` as 750, ``NO`` as false and ``989e12`` as text, and
lets a second key silently replace the first; here a plain scalar is null, true, false or a
decimal number, and everything else stays the text that was written.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from ringplan.errors import FileError
from ringplan.io.library import shown
from ringplan.io.origins import Origin, Tree

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 2_000_000
MAX_NODES: Final = 100_000
_INT: Final = re.compile(r"[+-]?(0|[1-9][0-9]*(_[0-9]+)*)")
_FLOAT: Final = re.compile(r"[+-]?(\d[\d_]*\.\d*|\.\d+)")
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def scalar(text: str) -> Any:
    """
    Read a plain scalar: null, a boolean, a decimal number, else the text itself.

    >>> [scalar(text) for text in ("8", "0.9", "true", "NO", "12:30", "1M")]
    [8, 0.9, True, 'NO', '12:30', '1M']
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) < 40:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def read_value(text: str) -> Any:
    """
    Read the value of ``--set``: a scalar, or a list or block in YAML's brackets.

    >>> read_value("[tp, ring]"), read_value("8"), read_value("50 GB/s")
    (['tp', 'ring'], 8, '50 GB/s')
    """
    if not text.startswith(("[", "{")):
        return scalar(text)
    return _yaml(f"value: {text}", f"--set {text}", "set").values["value"]


def read_text(path: Path) -> str:
    """Read a small text file; say what is wrong with one that is none."""
    try:
        if path.is_dir():
            raise FileError(f"{path} is a directory", hint=f"name a file, like {path}/config.json")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            size = max(path.stat().st_size, MAX_BYTES) / 1e6
            raise FileError(
                f"{path} has {size:,.0f} MB; a scenario, profile or config has a few kB",
                hint="name the right file",
            )
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not a text file", hint="name a YAML or JSON file") from error
    except OSError as error:
        raise FileError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}",
            hint="check the path",
        ) from error
    except ValueError as error:  # an embedded null byte
        raise FileError(f"cannot read {str(path)!r}: {error}", hint="check the path") from error


def read_document(path: Path, *, kind: str = "file") -> Tree:
    """
    Read a mapping from a ``.json`` or YAML file.

    Parameters
    ----------
    path
        The file. Names ending in ``.json`` are read as JSON, all others as YAML.
    kind
        The kind of origin that its values get.

    Raises
    ------
    FileError
        Unreadable, too large, not YAML or JSON, or not a mapping; names file and line.
    """
    text, name = read_text(path), shown(path)
    return _json(text, name, kind) if path.suffix == ".json" else _yaml(text, name, kind)


def _yaml(text: str, name: str, kind: str) -> Tree:
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise FileError(f"{name}{line} is not YAML: {problem}", hint="mind the indent") from error
    tree = Tree({}, {})
    if not isinstance(node, yaml.MappingNode):
        raise FileError(f"{name} holds no keys", hint="write 'model: ...' and so on, one a line")
    tree.values = _Walk(name, kind, tree.origins).mapping(node, "")
    return tree


class _Walk:
    """Turns nodes into values and notes the line of each leaf."""

    def __init__(self, name: str, kind: str, origins: dict[str, Origin]) -> None:
        self.name, self.kind, self.origins, self.nodes = name, kind, origins, 0
        self.above: list[yaml.Node] = []

    def mapping(self, node: yaml.MappingNode, prefix: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise FileError(f"{self.name} line {line}: a key must be a word", hint="quote it")
            key = key_node.value
            if key in values:
                raise FileError(
                    f"{self.name} line {line}: '{key}' stands here twice", hint="keep one"
                )
            values[key] = self.value(value_node, f"{prefix}{key}", line)
        return values

    def value(self, node: yaml.Node, path: str, line: int) -> Any:
        """Read one node; a node that an alias puts inside itself has no end."""
        if node in self.above:
            raise FileError(
                f"{self.name} line {line}: '{path}' holds itself", hint="drop the alias"
            )
        self.above.append(node)
        value = self._value(node, path, line)
        self.above.pop()
        return value

    def _value(self, node: yaml.Node, path: str, line: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise FileError(f"{self.name} expands to over {MAX_NODES:,} values", hint="simplify it")
        if isinstance(node, yaml.MappingNode):
            self.origins[path] = Origin(self.kind, f"{self.name} line {line}")
            return self.mapping(node, f"{path}.")
        self.origins[path] = Origin(self.kind, f"{self.name} line {line}")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, f"{path}.{i}", line) for i, item in enumerate(node.value)]
        quoted = bool(node.style) if isinstance(node, yaml.ScalarNode) else False
        return node.value if quoted else scalar(node.value)


def _json(text: str, name: str, kind: str) -> Tree:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        block = dict(pairs)
        if len(block) < len(pairs):
            twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
            raise FileError(f"{name}: '{twice}' stands there twice", hint="keep one")
        return block

    try:
        values = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{name} is not JSON: {error}", hint="name a config.json") from error
    if not isinstance(values, dict):
        raise FileError(f"{name} holds no keys", hint="name a config.json of Hugging Face")
    origins: dict[str, Origin] = {}
    _json_lines(values, text.splitlines(), name, kind, origins)
    return Tree(values, origins)


def _json_lines(
    values: dict[str, Any], lines: list[str], name: str, kind: str, origins: dict[str, Origin]
) -> None:
    """Find the line of each key by looking for it in the text, block by block."""

    def look(block: dict[str, Any], prefix: str, start: int) -> None:
        for key, value in block.items():
            needle = json.dumps(key)
            line = next((i for i in range(start, len(lines)) if needle in lines[i]), start)
            origins[f"{prefix}{key}"] = Origin(kind, f"{name} line {line + 1}")
            if isinstance(value, dict):
                look(value, f"{prefix}{key}.", line)

    look(values, "", 0)
