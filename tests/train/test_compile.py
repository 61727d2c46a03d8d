"""Machine code: made once, all of it by an install, and none of an older release is read."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.lab.cli.compile import compile_all
from rltuned.lab.kernel import episode, loop, run_times
from rltuned.lab.replay import play
from rltuned.lab.replay.trace_file import write_trace
from rltuned.sim.trace import Trace
from tests.builders import sure
from tests.train.worlds import random_ground

ENTRIES: tuple[Any, ...] = (loop.play, run_times.replay, episode.episode)


def compiled() -> list[int]:
    return [len(entry.signatures) for entry in ENTRIES]


def test_commands_find_what_an_install_compiles(tmp_path: Path) -> None:
    misses = ENTRIES[0].stats.cache_misses.total()
    compile_all()
    play.load()  # what a process beside has compiled, from the disk
    assert ENTRIES[0].stats.cache_misses.total() == misses
    before, trace = compiled(), tmp_path / "t.csv"
    assert min(before) > 0
    write_trace(Trace(random_ground("testbed", 11, 700).jobs), trace)
    given = ["--trace", str(trace), "--cluster", "testbed"]
    small = ("batches=1", "window_jobs=60", "eval_windows=4", "eval_jobs=60")
    learn = ["--epochs", "2", *(word for one in small for word in ("--set", one))]
    for command in (
        ["simulate", *given, "--mode", "cycle", "--policy", "model:rltune", "--policy", "delay"],
        ["simulate", *given, "--policy", "saf"],
        ["train", "ppo", *given, *learn, "--out", str(tmp_path / "mine")],
    ):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
    assert compiled() == before


PROGRAM = """
import numpy as np
from rltuned.lab.kernel.compiler import compiled, entry
import numba

@compiled
def inner(values):
    total = 0.0
    for value in np.sort(values):
        total = total * 0.5 + value
    return total

@compiled
def middle(values):
    if values.size > 3:
        raise ValueError("too many")
    return inner(values) + inner(values[1:])

@entry
def first(values):
    return middle(values)

@entry
def second(values):
    return middle(values) - inner(values)

@numba.njit
def other(values):
    return middle(values)

values = np.array([3.0, 1.0, 2.0])
assert first(values) == inner.py_func(values) + inner.py_func(values[1:]) == other(values)
assert second(values) == first(values) - inner.py_func(values)
for function in (first, second, other):
    try:
        function(np.arange(4.0))
    except ValueError as error:
        assert str(error) == "too many"
    else:
        raise AssertionError(function)
print(*(type(made.library).__name__ for f in (inner, first) for made in f.overloads.values()))
"""


def test_only_an_entry_is_made_into_machine_code(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = []
    for _ in range(2):  # the second time from what is kept on disk
        run = subprocess.run(
            [sys.executable, tmp_path / "program.py"],
            capture_output=True,
            text=True,
            check=True,
            env={"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(Path.cwd())},
        )
        said.append(run.stdout.split())
    assert said == [["_InnerCode", "JITCodeLibrary"]] * 2


ROOT = Path(__file__).resolve().parents[2]
MODULE = """
from rltuned.lab.kernel.compiler import entry

@entry
def double(value):
    return 2 * value
"""


def loaded(path: Path) -> ModuleType:
    spec = sure(importlib.util.spec_from_file_location(path.stem, path))
    module = importlib.util.module_from_spec(spec)
    sure(spec.loader).exec_module(module)
    return module


def test_an_index_that_cannot_be_read_any_more_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "cached.py"
    path.write_text(MODULE)
    assert loaded(path).double(4) == 8
    (index,) = tmp_path.glob("__pycache__/*.nbi")
    index.write_bytes(b"of an older release")
    path.write_text(f"{MODULE}# the next one")
    assert loaded(path).double(4) == 8
    assert len([*tmp_path.glob("__pycache__/*.nbi")]) == 2


@pytest.mark.parametrize("file", ["lab/kernel/loop.py", "core/limits.py", "domain/plan.py"])
def test_a_change_of_what_is_compiled_gives_it_another_name(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "rltuned"
    shutil.copytree(ROOT / "rltuned", folder, ignore=lambda _, names: {"__pycache__"} & {*names})
    program = "from rltuned.lab.kernel import compiler; print(compiler.__file__, compiler.digest())"

    def said() -> list[str]:
        path = {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", program]
        return subprocess.check_output(command, env=path, cwd=tmp_path, text=True).split()

    place, before = said()
    assert Path(place).is_relative_to(folder)
    with (folder / file).open("a") as changed:
        changed.write("\n")
    assert said()[1] != before


def test_a_user_takes_over_what_the_installation_compiled(tmp_path: Path) -> None:
    """Where a package lies, users may not write; their numba keeps its code in their home."""
    package, home = tmp_path / "package", tmp_path / "home"
    package.mkdir()
    (package / "cached.py").write_text(MODULE)
    use = "import cached; cached.double(4); print(sum(cached.double.stats.cache_hits.values()))"
    # root without the right to write everywhere
    as_user = [] if os.getuid() else ["setpriv", "--bounding-set=-dac_override"]

    def hits(before: list[str]) -> str:
        paths = {"HOME": str(home), "PYTHONPATH": f"{package}:{ROOT}", "PATH": os.environ["PATH"]}
        return subprocess.check_output(
            [*before, sys.executable, "-c", use], env=paths, text=True
        ).strip()

    assert hits([]) == "0"  # the installation compiles
    folder = package / "__pycache__"
    folder.chmod(0o555)
    try:
        assert hits(as_user) == "1"
    finally:
        folder.chmod(0o755)
    assert [*home.rglob("*.nbi")]
