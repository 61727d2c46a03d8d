"""The mutation runner draws changes that compile, and asks the tests that run the line."""

import ast
import json
from dataclasses import asdict, replace
from pathlib import Path

import coverage
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
    for mutant, text, lines in mutants.mutants_of(file):
        ast.parse(text)
        assert lines == range(mutant.line, mutant.line + 1)
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


def test_asked_are_the_tests_that_run_the_line() -> None:
    data = coverage.CoverageData(no_disk=True)
    for context, lines in {
        "elsewhere": [1, 2, 9],
        "elsewhere|tests/unit/test_f.py::test_f[a|b c]|run": [2, 4],
        "elsewhere|tests/unit/test_g.py::test_g|setup": [5],
        "tests/e/test_h.py::test_h (call)|": [4],
    }.items():
        data.set_context(context)
        data.add_lines({"rltuned/core/f.py": lines})
    f, g, h = (
        f"tests/{n}::test_{n[-4]}" for n in ("unit/test_f.py", "unit/test_g.py", "e/test_h.py")
    )

    def asked(*lines: int) -> list[str]:
        return mutants.tests_of(data, "rltuned/core/f.py", range(lines[0], lines[-1] + 1))

    assert asked(2) == [f]
    assert asked(4) == [h, f]
    assert asked(4, 5) == [h, f, g]
    assert asked(6, 8) == []
    assert asked(9) == [h, f, g]  # at import, or in a process that knows no test


def test_a_failure_that_the_tests_before_it_cause_kills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file fails alone with the change, or the change is not what it notices."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "rltuned" / "core").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    for name, text in {
        "rltuned/core/f.py": "def f(a):\n    return a + 2\n\n\ndef g():\n    return 4\n",
        "tests/test_f.py": "from rltuned.core.f import f\ndef test_f():\n    assert f(1) == 3\n",
        "tests/test_m.py": "import sys\n\n\ndef test_m():\n    sys.spoilt = True\n",
        "tests/test_n.py": "import sys\n\n\ndef test_n():\n    assert not hasattr(sys, 'spoilt')\n",
    }.items():
        (tmp_path / name).write_text(text)
    tests = [f"tests/test_{name}.py::test_{name}" for name in "fmn"]
    found = {
        mutant.now: mutants.is_killed(tmp_path, mutant, text, tests, {})
        for mutant, text, _ in mutants.mutants_of(tmp_path / "rltuned/core/f.py")
    }
    assert found["return 5"] == (False, "")
    assert found["return a - 2"] == (True, "tests/test_f.py::test_f")


def test_a_file_that_cannot_be_read_any_more_kills_and_a_name_that_is_not_there_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    for name, text in {
        "rltuned/core/f.py": "def f():\n    return 4\n",
        "tests/test_f.py": "from rltuned.core.f import f\nassert f() == 4\ndef test_f(): ...\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    ((mutant, text, _),) = mutants.mutants_of(tmp_path / "rltuned/core/f.py")
    killed = mutants.is_killed(tmp_path, mutant, text, ["tests/test_f.py::test_f"], {})
    assert killed == (True, "tests/test_f.py")
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        mutants.is_killed(tmp_path, mutant, text, ["tests/test_g.py::test_g"], {})
