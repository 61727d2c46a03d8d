"""The mutation runner draws changes that compile, and knows which tests to ask."""

import ast
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
    made = {mutant.now for mutant, _ in mutants.mutants_of(file)}
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


@pytest.mark.usefixtures("file")
def test_the_draw_is_the_same_again_and_takes_a_line_once() -> None:
    first = mutants.drawn("core", 3)
    assert first == mutants.drawn("core", 3)
    assert len({mutant.line for mutant, _ in first}) == 3
    assert len(mutants.drawn("core", 99)) == 4


def test_tests_that_import_the_module_come_first_and_all_quick_ones_last() -> None:
    near, far, rest = mutants.tests_of("rltuned.core.order")
    assert "tests/unit/test_order.py" in near
    assert "tests/unit/test_mutants.py" in rest
    assert len({*near, *far, *rest}) == len(near) + len(far) + len(rest)
    assert not any(name.startswith("tests/integration") for name in near + far + rest)
    assert not any(name.startswith("tests/sim") for name in far + rest)


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
    found = {
        mutant.now: mutants.is_killed(tmp_path, mutant, text, {})
        for mutant, text in mutants.mutants_of(tmp_path / "rltuned/core/f.py")
    }
    assert found["return 5"] == (False, "")
    assert found["return a - 2"] == (True, "tests/test_f.py::test_f")
