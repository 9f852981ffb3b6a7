"""Who may import whom, and who may touch the world."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "ringplan"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Layer to the layers it may import; modules of the same layer see one another.
#: `catalogue` and `listings` answer `show` and `list`: they read shelves and compute nothing.
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "costs": set(),
    "reference": set(),
    "specs": {"errors", "units"},
    "findings": set(),
    "schedule_rules": {"findings", "specs"},
    "feasibility": {"findings", "schedule_rules", "specs"},
    "io": {"errors", "units", "specs"},
    "estimation": {"costs", "specs", "errors", "units", "feasibility"},
    "timeline": {"costs", "estimation", "specs"},
    "validation": {"reference", "costs", "estimation", "feasibility", "specs", "errors"},
    "remedies": {"estimation", "feasibility", "specs"},
    "memory_checks": {"findings", "remedies", "estimation", "specs", "units"},
    "schedule_checks": {"feasibility", "findings", "estimation", "specs", "units"},
    "link_checks": {"findings", "estimation", "feasibility", "specs", "costs", "units"},
    "checks": {
        "findings", "memory_checks", "schedule_checks", "link_checks", "estimation",
        "feasibility", "specs", "costs", "units",
    },
    "assess": {
        "feasibility", "findings", "checks", "link_checks", "estimation", "specs", "timeline",
        "units",
    },
    "render": {
        "errors", "units", "costs", "specs", "feasibility", "estimation", "remedies", "findings",
        "checks",
        "assess", "validation",
    },
    "api": {
        "assess", "io", "estimation", "costs", "errors", "specs", "units", "validation",
        "reference",
    },
    "catalogue": {
        "errors", "units", "costs", "specs", "feasibility", "io", "estimation", "checks",
    },
    "listings": {"catalogue", "errors", "units", "specs", "io", "estimation"},
}  # fmt: skip
LAYERS["__init__"] = {"api", "assess", "errors"}
LAYERS["cli"] = {*LAYERS}
LAYERS["__main__"] = {"cli"}

#: Library to where it may be imported.
LIBRARIES: dict[str, set[str]] = {
    "rich": {"render", "cli"},
    "typer": {"cli"},
    "yaml": {"io"},
    "pydantic": {"specs", "io"},
    "quantiphy": {"units"},
    "numpy": {"costs/numeric.py", "reference", "timeline", "validation"},
    "ml_dtypes": {"reference"},
    "threadpoolctl": {"validation"},
    "regex": {"io"},
}

#: Method or function to where it may be called.
CALLS: dict[str, set[str]] = {
    "open": {"io"},
    ".open": {"io"},
    ".fdopen": {"io"},
    ".read_text": {"io"},
    ".read_bytes": {"io"},
    ".write_text": {"io"},
    ".write_bytes": {"io"},
    "print": set(),
    "typer.echo": {"cli"},
}


class Import(NamedTuple):
    """One name, imported at a line."""

    line: int
    name: str


def imports(tree: ast.Module) -> list[Import]:
    """Every import, wherever it stands; those for types only count too."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = (
                [f".{alias.name}" for alias in node.names] if node.module == "ringplan" else [""]
            )
            dots = "." * node.level
            found += [Import(node.lineno, f"{dots}{node.module or ''}{name}") for name in names]
    return found


def misplaced_imports(where: str, tree: ast.Module) -> list[str]:
    """Imports that the tables do not allow in the file `where`, relative to the package."""
    layer = layer_of(where)
    found = []
    for line, name in imports(tree):
        root, _, rest = name.partition(".")
        if root == "ringplan":
            other = rest.partition(".")[0]
            fine = other in {layer, "__version__"} or other in LAYERS[layer]
        else:
            allowed = LIBRARIES.get(root, set())
            fine = root in sys.stdlib_module_names or bool(allowed & {layer, where})
        if not fine:
            found.append(f"{where}:{line}: {layer} may not import {name}")
    return found


def misplaced_calls(where: str, tree: ast.Module) -> list[str]:
    """Calls that read, write or print where the table does not allow it."""
    return [
        f"{where}:{node.lineno}: {name}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and not _opens_nothing(node)
        for name in _names(node.func)
        if name in CALLS and layer_of(where) not in CALLS[name]
    ]


def _names(function: ast.expr) -> set[str]:
    match function:
        case ast.Name(id=name):
            return {name}
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return {f".{name}", f"{owner}.{name}"}
        case ast.Attribute(attr=name):
            return {f".{name}"}
    return set()


def _opens_nothing(call: ast.Call) -> bool:
    """`os.open(os.devnull, ...)` silences a closed pipe and reads no file."""
    return bool(call.args) and ast.unparse(call.args[0]) == "os.devnull"


def layer_of(where: str) -> str:
    return where.partition("/")[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_layer_imports_only_what_the_design_allows(path: Path) -> None:
    """Arrows point one way, as docs/architecture.md draws them."""
    where = path.relative_to(PACKAGE).as_posix()

    assert misplaced_imports(where, ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_io_opens_files_and_only_cli_prints(path: Path) -> None:
    """Estimating reads nothing and says nothing."""
    where = path.relative_to(PACKAGE).as_posix()

    assert misplaced_calls(where, ast.parse(path.read_text(encoding="utf-8"))) == []


def test_layers_have_no_cycle() -> None:
    """Each layer can be understood, and tested, without those above it."""
    below = dict(LAYERS)
    while below:
        free = {layer for layer, needs in below.items() if not needs & below.keys() - {layer}}

        assert free, f"a cycle among {sorted(below)}"
        below = {layer: needs for layer, needs in below.items() if layer not in free}


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("costs/ring.py", "import numpy as np"),
        ("costs/ring.py", "from ringplan.specs.mesh import Mesh"),
        ("reference/ring.py", "from ringplan.costs.masks import zigzag_pairs"),
        ("estimation/core.py", "from rich.table import Table"),
        ("estimation/core.py", "from ringplan import io"),
        ("specs/mesh.py", "def f():\n    import yaml"),
        ("specs/mesh.py", "if TYPE_CHECKING:\n    from ringplan.estimation.core import estimate"),
        ("render/terminal.py", "from ringplan.io import documents"),
        ("render/figures.py", "import matplotlib.pyplot as plt"),
        ("units.py", "from ringplan import specs"),
        ("io/documents.py", "from . import library"),
    ],
)
def test_planted_import_is_found(where: str, source: str) -> None:
    assert len(misplaced_imports(where, ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("estimation/core.py", "open('x')"),
        ("specs/mesh.py", "Path('x').read_text()"),
        ("specs/mesh.py", "path.open()"),
        ("cli/app.py", "print('x')"),
        ("cli/app.py", "os.open('x', 0)"),
        ("render/terminal.py", "typer.echo('x')"),
    ],
)
def test_planted_call_is_found(where: str, source: str) -> None:
    assert len(misplaced_calls(where, ast.parse(source))) == 1
