"""Mutation testing: which changes of a line do the tests without Slurm let through?

    python -m scripts.tools.mutants run [--package core ...] [--sample 60] [--minutes M] [--again]
    python -m scripts.tools.mutants report

Mutants are drawn in a fixed order, at most one a line: a comparison, `and`/`or`, `not`, `+`/`-`,
`*`/`/`, `min`/`max`, a number, `break`/`continue` or a truth value is exchanged, or a statement
that only calls something is left out. Each is tried in a copy of the checkout, against the tests
that neither drive Slurm nor play the compiled kernel, and is killed when one fails or they take
WALL_S. What has been tried counts until its function changes; `run` fills the sample up, and with
--again tries those that live once more, once there are tests for them. `why` says why one may live.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "data" / "mutants.jsonl"
GOALS = {"core": 0.9, "journal": 0.9, "slurm": 0.8, "daemon": 0.8}
PACKAGES, SEED, WALL_S, WORKERS = tuple(GOALS), 1, 3_600, 2
SHOWN = 160  # characters of a line
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
ASKED = ("tests/unit", "tests/property", "--ignore=tests/unit/cli/test_backtest.py")
"""Tests that need no Slurm, and whose code no mutant has compiled again."""
DOOR = Path("rltuned", "lab", "kernel", "compiler.py")
SOURCES = "digest().encode()"
"""What the name of machine code on disk depends on."""


@dataclass(frozen=True)
class Mutant:
    """One change: file:line as it was and as it is; the digest is of its function and its place
    there, so that it stays when code around the function changes.
    """

    package: str
    path: str
    line: int
    was: str
    now: str
    digest: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is, wherever its line has moved to."""
        return self.path, self.was, self.now, self.digest


@dataclass(frozen=True)
class Tried(Mutant):
    """What came of one. at_first: killed by the tests that there were; by: the test that killed it;
    why: it may live.
    """

    at_first: bool = False
    killed: bool = False
    by: str = ""
    why: str = ""


Change = tuple[Mutant, str]
"""A mutant, and the text of its whole file."""


def mutants_of(path: Path) -> Iterator[Change]:
    """Every mutant of a file."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    for statement, function in _statements(ast.parse(text)):
        place = f"{ast.get_source_segment(text, function)} {statement.lineno - function.lineno}"
        digest = hashlib.sha256(place.encode()).hexdigest()[:12]
        for changed in _changes(statement):
            first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno)
            indent = " " * statement.col_offset
            code = "\n".join(indent + row for row in ast.unparse(changed).splitlines()) + "\n"
            whole = "".join([*lines[:first], code, *lines[last:]])
            relative = path.relative_to(ROOT)
            words = _short(ast.unparse(statement), ast.unparse(changed))
            mutant = Mutant(relative.parts[1], str(relative), first + 1, *words, digest)
            yield mutant, whole


def _short(was: str, now: str) -> tuple[str, str]:
    """The line of each that differs, and of a long one what is around the difference."""
    pairs = zip(was.splitlines(), now.splitlines(), strict=False)
    old, new = next(((a.strip(), b.strip()) for a, b in pairs if a != b), (was, now))
    differ = (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    first = max(0, next(differ, 0) - SHOWN // 2)
    return old[first : first + SHOWN], new[first : first + SHOWN]


def _statements(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Statements inside functions, and the outermost function of each; of compound ones `if` and
    `while`, for their tests.
    """
    seen = set[ast.AST]()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function not in seen:
            for node in ast.walk(function):
                seen.add(node)
                if isinstance(node, ast.If | ast.While) or (
                    isinstance(node, ast.stmt) and not hasattr(node, "body")
                ):
                    yield node, function


def _changes(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.Expr):
        yield from [ast.Pass()] * isinstance(statement.value, ast.Call)
    elif isinstance(statement, ast.Break | ast.Continue):
        yield ast.Continue() if isinstance(statement, ast.Break) else ast.Break()
    else:
        for number, node in enumerate(ast.walk(_head(statement))):
            if _other(node) is not None:
                changed = copy.deepcopy(statement)
                _Exchange(list(ast.walk(_head(changed)))[number]).visit(changed)
                yield changed


def _head(statement: ast.stmt) -> ast.expr | ast.stmt:
    """What of a statement is changed: of a compound one its test."""
    return statement.test if isinstance(statement, ast.If | ast.While) else statement


class _Exchange(ast.NodeTransformer):
    """Puts the other node in the place of one."""

    def __init__(self, old: ast.AST) -> None:
        self._old = old

    def visit(self, node: ast.AST) -> Any:
        return _other(node) if node is self._old else self.generic_visit(node)


def _other(node: ast.AST) -> ast.AST | None:
    """What stands in a node's place; None = it has no other."""
    if type(node) in SWAPS:
        return SWAPS[type(node)]()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Name) and node.id in NAMES:
        return ast.Name(NAMES[node.id], node.ctx)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return ast.Constant(node.value + 1)
    return None


def changes() -> dict[object, Change]:
    """Every mutant by its key, in the order in which they are tried: one for a tree."""
    paths = [path for name in PACKAGES for path in (ROOT / "rltuned" / name).rglob("*.py")]
    found = [change for path in paths for change in mutants_of(path)]
    found.sort(key=lambda change: hashlib.sha256(f"{SEED} {change[0].key}".encode()).digest())
    return {change[0].key: change for change in found}


def drawn(
    every: Iterable[Change], tried: Iterable[Tried], package: str, sample: int
) -> list[Change]:
    """What fills the sample of a package up, at most one a line."""
    lines, found = {(one.path, one.line) for one in tried if one.package == package}, []
    for change in every:
        place = (change[0].path, change[0].line)
        if len(lines) < sample and change[0].package == package and place not in lines:
            lines.add(place)
            found.append(change)
    return found


def failures(tree: Path, *options: str) -> list[str]:
    """The tests of a copy that fail, or why none came to an end."""
    argv = (
        sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-m",
        "not slurm and not prometheus", "-n", str(WORKERS), *options, *ASKED,
    )  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            argv, cwd=tree, env=environ, capture_output=True, text=True, timeout=WALL_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ["time"]
    found: list[str] = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode not in {0, 1, 2}:
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")
    return found or ["collection"] * (done.returncode != 0)


def killed_by(tree: Path, mutant: Mutant, text: str, failing: Sequence[str]) -> str:
    """The first test that notices; empty = none does. failing: those that fail in any copy, as they
    miss the checkout around them.
    """
    target = tree / mutant.path
    before = target.read_text()
    target.write_text(text)
    try:
        return next(iter(failures(tree, "-x", *(f"--deselect={name}" for name in failing))), "")
    finally:
        target.write_text(before)


def run(packages: Sequence[str], sample: int, minutes: float, *, again: bool) -> None:
    """Fill the samples up, or try again those that live."""
    until = time.monotonic() + 60 * minutes
    every = changes()
    tried = known(every)
    if again:
        asked = [every[key] for key, one in tried.items() if not (one.killed or one.why)]
    else:
        fresh = [drawn(every.values(), tried.values(), name, sample) for name in packages]
        asked = [change for changes in zip_longest(*fresh) for change in changes if change]
    with tempfile.TemporaryDirectory(prefix="rltuned-mutants-") as place:
        tree = copied(Path(place) / "tree")
        failing = failures(tree)
        print(f"{len(failing)} tests fail in a copy", flush=True)
        for mutant, text in asked:
            if time.monotonic() > until:
                break
            by = killed_by(tree, mutant, text, failing)
            at_first = tried[mutant.key].at_first if again else bool(by)
            row = Tried(**asdict(mutant), at_first=at_first, killed=bool(by), by=by)
            tried[mutant.key] = row
            RESULTS.write_text("".join(json.dumps(asdict(one)) + "\n" for one in tried.values()))
            words = "killed" if by else "LIVES "
            print(f"{words} {mutant.path}:{mutant.line} {mutant.now}", flush=True)


def copied(tree: Path) -> Path:
    """A copy of what git knows of the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    # machine code of the tree as it was is good enough for tests of everything else
    door = tree / DOOR
    door.write_text(door.read_text().replace(SOURCES, 'b""'))
    return tree


def known(every: Mapping[object, Change]) -> dict[object, Tried]:
    """What has been tried of the functions as they are, by key."""
    rows = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    found = (Tried(**json.loads(row)) for row in rows)
    return {one.key: replace(one, line=every[one.key][0].line) for one in found if one.key in every}


def report() -> Iterator[str]:
    """Kill rates by package, then the survivors, as Markdown."""
    tried = known(changes()).values()
    yield "| package | mutants | killed at first | killed now | goal |\n|---|---|---|---|---|"
    for package in PACKAGES:
        own = [one for one in tried if one.package == package]
        if own:
            rates = (sum(one.at_first for one in own), sum(one.killed for one in own))
            now = " | ".join(f"{100 * count / len(own):.0f}%" for count in rates)
            yield f"| {package} | {len(own)} | {now} | {100 * GOALS[package]:.0f}% |"
    yield "\n| survivor | was | is | why |\n|---|---|---|---|"
    for one in tried:
        if not one.killed:
            yield f"| {one.path}:{one.line} | `{one.was}` | `{one.now}` | {one.why} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.tools.mutants", description=__doc__)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--package", action="append", choices=PACKAGES)
    parser.add_argument("--sample", type=int, default=60, help="mutants a package")
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--again", action="store_true", help="those that live and have no `why`")
    given = parser.parse_args()
    if given.what == "report":
        print("\n".join(report()))
    else:
        run(given.package or PACKAGES, given.sample, given.minutes, again=given.again)


if __name__ == "__main__":
    main()
