"""The mutation runner draws changes that compile, and asks the tests that run the line."""

import ast
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from scripts.tools import mutants

SOURCE = '''
def f(a, b):
    """Add."""
    if not a < b and True:
        g(a)
    for one in b:
        break
    return min(a, b) + 2
'''


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rltuned" / "core" / "f.py"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return path


def test_each_kind_of_change_is_made_once(file: Path) -> None:
    made = {mutant.now for mutant, *_ in mutants.mutants_of(file)}
    assert made == {
        "if not a < b or True:",
        "if a < b and True:",
        "if not a <= b and True:",
        "if not a < b and False:",
        "pass",
        "continue",
        "return max(a, b) + 2",
        "return min(a, b) - 2",
        "return min(a, b) + 3",
    }


def test_all_but_the_statement_stays(file: Path) -> None:
    for mutant, text in mutants.mutants_of(file):
        ast.parse(text)
        rows = zip(SOURCE.splitlines(), text.splitlines(), strict=False)
        assert next(n for n, (a, b) in enumerate(rows, 1) if a != b) == mutant.line


def tried(change: mutants.Change, *, killed: bool = False) -> mutants.Tried:
    return mutants.Tried(**asdict(change[0]), killed=killed)


@pytest.mark.usefixtures("file")
def test_the_draw_is_the_same_again_takes_a_line_once_and_goes_on() -> None:
    every = mutants.changes()
    first = mutants.drawn(every.values(), (), "core", 3)
    assert first == mutants.drawn(mutants.changes().values(), (), "core", 3)
    assert len({mutant.line for mutant, *_ in first}) == 3
    assert len(mutants.drawn(every.values(), (), "core", 99)) == 4
    rest = mutants.drawn(every.values(), map(tried, first), "core", 99)
    assert {mutant.line for mutant, *_ in (*first, *rest)} == {4, 5, 7, 8}
    assert mutants.drawn(every.values(), map(tried, first), "core", 3) == []


def test_what_was_tried_counts_until_its_function_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "RESULTS", file.parent / "tried.jsonl")
    assert mutants.known(mutants.changes()) == {}
    one = tried(next(iter(mutants.changes().values())), killed=True)
    mutants.RESULTS.write_text(json.dumps(asdict(one)) + "\n")
    file.write_text("def e():\n    return 1\n\n" + SOURCE)
    assert mutants.known(mutants.changes()) == {one.key: replace(one, line=one.line + 3)}
    file.write_text(SOURCE.replace("Add.", "Subtract."))
    assert mutants.known(mutants.changes()) == {}


def test_a_copy_takes_machine_code_as_it_is(tmp_path: Path) -> None:
    copied = mutants.copied(tmp_path)
    assert (copied / "pyproject.toml").is_file()
    changed = (copied / mutants.DOOR).read_text()
    before = (mutants.ROOT / mutants.DOOR).read_text()
    assert before.count(mutants.SOURCES) == 1
    assert changed == before.replace(mutants.SOURCES, 'b""')


def test_a_change_is_killed_by_the_test_that_fails_and_one_that_always_fails_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "ASKED", ("tests",))
    for name, text in {
        "pytest.ini": "[pytest]\nmarkers =\n slurm: x\n prometheus: x\n",
        "rltuned/core/f.py": "def f(a):\n    return a + 2\n\n\ndef g():\n    return 4\n",
        "tests/test_f.py": "from rltuned.core.f import f\ndef test_f():\n    assert f(1) == 3\n",
        "tests/test_n.py": "def test_n():\n    assert False\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    failing = mutants.failures(tmp_path)
    assert failing == ["tests/test_n.py::test_n"]
    found = {
        mutant.now: mutants.killed_by(tmp_path, mutant, text, failing)
        for mutant, text in mutants.mutants_of(tmp_path / "rltuned/core/f.py")
    }
    assert found["return 5"] == ""
    assert found["return a - 2"] == "tests/test_f.py::test_f"
