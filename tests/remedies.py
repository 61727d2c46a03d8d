"""What `rltuned check` tells people to do: every remedy in its code, with {} for what is filled in.

A remedy is the last argument of an `Answer` of the table, or of a `Check` made beside it. Read from
the code, so that none can be forgotten.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import rltuned

HOME = Path(rltuned.__file__).parent
MODULES = (
    "cli/check.py",
    "cli/check_slurm.py",
    "slurm/config_checks.py",
    "slurm/worth.py",
)
SHORTAGE = "core/numbers.py"
"""Has the remedy that a finding takes as an attribute."""
FIXES = "trusted.py"
"""Whose flaws end with `fix with: COMMAND`, which check takes for the remedy."""
_PLACES = {"Answer": 3, "Check": 3, "_warn": 1}
"""Of the remedy among the arguments; what is in order has none."""
_MAKERS = {"answers", "_warn"}
"""Make checks of the texts that others give them."""


def remedies() -> frozenset[str]:
    """Every remedy."""
    found = {text for name in MODULES for text in _of_module(HOME / name)}
    nodes = ast.walk(ast.parse((HOME / FIXES).read_text()))
    texts = (text for node in nodes if isinstance(node, ast.JoinedStr) for text in _literal(node))
    return frozenset(found | {t.partition("fix with: ")[2] for t in texts if "fix with: " in t})


def says(remedy: str, text: str) -> bool:
    """Whether a text is this remedy with its gaps filled in."""
    pattern = re.escape(remedy).replace(re.escape("{}"), ".+")
    return re.fullmatch(pattern, text, re.DOTALL) is not None


def _of_module(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for function in tree.body:
        if getattr(function, "name", "") in _MAKERS:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (place := _PLACES.get(ast.unparse(node.func))):
                if len(node.args) <= place and "OK" in ast.unparse(node):
                    continue
                assert len(node.args) > place, f"line {node.lineno}: a finding without a remedy"
                yield from _remedy(node.args[place], function, tree)


def _remedy(given: ast.expr, function: ast.stmt, tree: ast.Module) -> Iterator[str]:
    found = list(_texts(given, function, tree))
    assert found, f"line {given.lineno}: {ast.unparse(given)} is no text that is known"
    yield from (text for text in found if text != FIXES)


def _texts(node: ast.expr, function: ast.stmt, tree: ast.Module) -> Iterator[str]:
    if isinstance(node, ast.IfExp | ast.BoolOp):
        both = (node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values
        for either in both:
            yield from _texts(either, function, tree)
    elif isinstance(node, ast.Call):
        made = next(f for f in tree.body if getattr(f, "name", "") == ast.unparse(node.func))
        for part in ast.walk(made):
            if isinstance(part, ast.Return) and part.value is not None:
                yield from _texts(part.value, function, tree)
    elif isinstance(node, ast.Name):
        yield from _assigned(node.id, function, tree)
    else:
        yield from _literal(node)


def _assigned(name: str, function: ast.stmt, tree: ast.Module) -> Iterator[str]:
    for part in (*ast.walk(function), *tree.body):
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Tuple):
            names = [ast.unparse(target) for target in part.targets[0].elts]
            if name in names and "fix with: " in ast.unparse(part.value):
                yield FIXES  # they are read there
        elif isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
            target = part.targets[0] if isinstance(part, ast.Assign) else part.target
            if ast.unparse(target) == name:
                yield from _texts(part.value, function, tree)


def _literal(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = re.sub(r"\{[^{}]*\}", "{}", node.value)
        yield FIXES if text == "{}" else text
    elif isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Attribute):
        for made in ast.walk(ast.parse((HOME / SHORTAGE).read_text())):
            if isinstance(made, ast.FunctionDef) and made.name == node.attr:
                returned = (p.value for p in ast.walk(made) if isinstance(p, ast.Return))
                yield from (text for value in returned if value for text in _literal(value))
