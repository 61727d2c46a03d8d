"""The doors to the system, looked for in the syntax of every module: few, and known."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.plan import FIELDS, MAX_PRIORITY, Action, Target
from rltuned.domain.units import JobId, UnixTime
from rltuned.slurm.writer import command_lines
from tests.fields import CASES

PACKAGE = Path(__file__).resolve().parents[2] / "rltuned"
RUN = {f"subprocess.{name}" for name in ("Popen", "run", "call", "check_call", "check_output")}
UNPICKLED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return tuple((p.relative_to(PACKAGE).as_posix(), ast.parse(p.read_text())) for p in paths)


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_programs_are_run_in_one_place_and_never_by_a_shell() -> None:
    running = {
        name
        for name, tree in modules()
        if "subprocess" in imported(tree) and any(called in RUN for called, _ in calls(tree))
    }
    assert running == {"run.py"}
    for name, tree in modules():
        for called, call in calls(tree):
            assert not called.startswith(("os.system", "os.popen", "os.exec", "os.spawn")), name
            assert not any(k.arg == "shell" for k in call.keywords), f"{name}: {called}"


def test_nothing_is_unpickled_or_evaluated() -> None:
    for name, tree in modules():
        unpickling = imported(tree) & UNPICKLED
        # What torch raises of a bad file is pickle's; its exception reads nothing.
        only_the_error = "from pickle import UnpicklingError" in map(ast.unparse, ast.walk(tree))
        assert unpickling <= ({"pickle"} if only_the_error else set()), name
        for called, call in calls(tree):
            assert called not in {"eval", "exec", "torch.export.load"}, name
            if called == "torch.load":
                assert name.startswith("lab/train/"), name
                assert any(k.arg == "weights_only" for k in call.keywords), name


ID = r"[1-9][0-9]{0,9}(?:\+[0-9]{1,6}|_[0-9]{1,10}|_\[[0-9,:-]+\])?"
ANY = st.text(max_size=60) | st.from_regex(rf"{ID}( Priority=0)?\n?", fullmatch=True)
WHOLE = st.integers(-(2**40), 2**40)
TARGETS = st.builds(Target, st.integers(1, 2**31).map(JobId), st.just(UnixTime(1.0)), ANY)
WORDS = st.sampled_from(["YES", "NO", "1-4", "4-1", "OK"]) | ANY


@st.composite
def actions(draw: st.DrawFn) -> Action:
    """Actions with any text and any number that the types let through."""
    field = draw(st.sampled_from(FIELDS))
    old, new = (draw(WHOLE) if field.pattern is None else draw(WORDS) for _ in range(2))
    return Action(field, draw(TARGETS), old, new, draw(WHOLE))


GRAMMAR = rf"release {ID}|update JobId={ID} (?:{'|'.join(case.grammar for case in CASES)})"


@given(st.data())
def test_scontrol_is_reported_nothing_but_lines_of_the_table(data: st.DataObject) -> None:
    try:
        action = data.draw(actions())
        lines = command_lines(action, action.target.address)
    except ValueError:
        return  # refused, before anything is sent
    for line in lines:
        assert re.fullmatch(GRAMMAR, line), line
        assert "Priority=0" not in line.split(" ")
    assert MAX_PRIORITY < 2**32


def test_no_test_imports_another_test() -> None:
    tests = Path(__file__).resolve().parents[1]
    imported = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*(test_\w+)", re.MULTILINE)
    found = {
        str(file.relative_to(tests)): set(imported.findall(file.read_text())) - {file.stem}
        for file in tests.rglob("*.py")
    }
    assert {name: others for name, others in found.items() if others} == {}


def test_no_value_of_sql_is_numbered() -> None:
    """Python 3.12.0 to 3.12.3, that of Ubuntu 24.04, warns of every `?1`."""
    texts = (
        (name, node.value)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert [(name, text) for name, text in texts if re.search(r"\?[0-9]", text)] == []
