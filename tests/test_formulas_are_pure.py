"""A formula takes one path, so that a column and a number take the same one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

COSTS = Path(__file__).parents[1] / "ringplan" / "costs"
MACHINERY = {"__init__.py", "numeric.py", "formula.py", "symbols.py"}
FILES = sorted(path for path in COSTS.glob("*.py") if path.name not in MACHINERY)

BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.While, ast.Try, ast.Match, ast.Assert)
SCALAR_ONLY = {"min", "max", "round", "abs", "int", "float", "bool", "divmod", "pow", "any", "all"}
LIBRARIES = {"math", "numpy", "np", "cmath", "statistics"}


def impurities(source: str) -> list[str]:
    """What breaks the rule, as `line: reason`."""
    found = []
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(map(_is_formula, function.decorator_list)):
            found += [
                f"{statement.lineno}: {reason}"
                for statement in function.body
                for node in ast.walk(statement)
                if (reason := _reason(node))
            ]
    for node in tree.body:
        found += [f"{node.lineno}: imports {name}" for name in _imported(node) & LIBRARIES]
    return found


def _is_formula(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id == "formula"


def _reason(node: ast.AST) -> str:
    reason = type(node).__name__ if isinstance(node, BRANCHES) else ""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            reason = "not"
        case ast.Compare(ops=[_, _, *_]):
            reason = "chained comparison"
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            reason = "a comparison of objects"
        case ast.comprehension(ifs=[_, *_]):
            reason = "filter"
        case ast.Call(func=ast.Name(id=name)) if name in SCALAR_ONLY:
            reason = f"{name}()"
        case ast.Name(id=name) if name in LIBRARIES:
            reason = name
        case ast.Import() | ast.ImportFrom() if _imported(node) & LIBRARIES:
            reason = "import"
    return reason


def _imported(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_formulas_do_not_branch(path: Path) -> None:
    """Only `ringplan.costs.numeric` branches, and it knows columns."""
    assert impurities(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if a > 0:\n        return a\n    return b", "If"),
        ("return a if a > b else b", "IfExp"),
        ("return a and b", "BoolOp"),
        ("return a or b", "BoolOp"),
        ("return not a", "not"),
        ("return 0 < a < b", "chained comparison"),
        ("while a:\n        a = b", "While"),
        ("try:\n        return a\n    finally:\n        pass", "Try"),
        ("match a:\n        case 1:\n            return b", "Match"),
        ("return min(a, b)", "min()"),
        ("return max(a, b)", "max()"),
        ("return round(a)", "round()"),
        ("return abs(a)", "abs()"),
        ("return int(a)", "int()"),
        ("return float(a)", "float()"),
        ("return math.sqrt(a)", "math"),
        ("return np.maximum(a, b)", "np"),
        ("import numpy\n    return a", "import"),
        ("def nested(x):\n        return max(x, 1)\n    return nested(a)", "max()"),
        ("return sum(x if x > 0 else 0 for x in a)", "IfExp"),
        ("return sum(x for x in a if x > 0)", "filter"),
        ("return a is b", "a comparison of objects"),
    ],
)
def test_planted_branch_is_found(body: str, reason: str) -> None:
    """The test of the test."""
    planted = f"@formula(unit='B')\ndef planted(*, a, b):\n    {body}\n"

    assert reason in {found.partition(": ")[2] for found in impurities(planted)}


def test_planted_import_is_found() -> None:
    assert impurities("from math import sqrt\n") == ["1: imports math"]


def test_plain_arithmetic_is_pure() -> None:
    """Sums over kinds of layer and nested conditions are arithmetic."""
    plain = """
@formula(unit="B")
def planted(*, a, b):
    def hides(x):
        return x >= a
    return sum(x * y for x, y in zip(a, b, strict=True)) + where(a > b, a, b)

def helper(a):
    return max(a, 1)
"""
    assert impurities(plain) == []
