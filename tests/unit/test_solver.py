"""The solver's one door: limits that hold, nothing left behind, no orphan."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pulp
import pytest

from rltuned.core.milp import Budget
from rltuned.errors import SolverError
from rltuned.solver import Cbc, probe, read_answer
from tests.programs import executable, ran
from tests.waits import ended, is_alive, wait_for

QUICK = Budget(wall_s=0.5)


def knapsack() -> pulp.LpProblem:
    problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
    items = [problem.add_variable(f"x{i}", cat=pulp.LpBinary) for i in range(3)]
    problem += 3 * items[0] + 4 * items[1] + 5 * items[2]
    problem += 2 * items[0] + 3 * items[1] + 4 * items[2] <= 5
    return problem


def script(tmp_path: Path, text: str) -> Cbc:
    """A stand-in for the solver's program: a port's far side, not our own code."""
    path = executable(tmp_path / "solver.sh", f"#!/bin/sh\n{text}\n")
    return Cbc(path)


def written(path: Path) -> str:
    """A line, once it is there."""
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), str(path))
    return path.read_text().strip()


def test_cbc_finds_the_optimum() -> None:
    values = Cbc()(knapsack(), Budget(wall_s=20.0))
    assert {n: round(v) for n, v in values.items() if v > 0.5} == {"x0": 1, "x1": 1}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exec sleep 600", "gave no answer within 0.5 s"),
        ('yes "so much to say"', "answered more than"),
        ('for answer; do :; done; yes Optimal >"$answer"', "answered more than"),
        ("exit 3", "ended with 3"),
        ("kill -KILL $$", "ended with -9"),
        ("exit 0", "no readable answer"),
    ],
)
def test_a_program_that_ends_badly_is_reported(tmp_path: Path, text: str, why: str) -> None:
    budget = QUICK if "sleep" in text else Budget(wall_s=20.0)
    with pytest.raises(SolverError, match=f"cbc .*{why}"):
        script(tmp_path, text)(knapsack(), budget)


def test_a_probe_tells_whether_a_solver_works() -> None:
    probe(Cbc(), Budget(wall_s=20.0))
    with pytest.raises(SolverError, match=r"/nonexistent/cbc|cannot be started"):
        probe(Cbc(Path("/nonexistent/cbc")), QUICK)
    with pytest.raises(SolverError, match=r"answers .* where x1 alone is right"):
        probe(lambda _problem, _budget: {"x0": 1.0}, QUICK)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no readable answer"),
        ("\xff\xfe", "no readable answer"),
        ("Infeasible - objective value 0\n", "no proven optimum"),
        ("Stopped on time - objective value 3\n 0 x0 1 0\n", "no proven optimum"),
        ("Optimal (within gap tolerance) - objective value 3\n", "no proven optimum"),
        ("Optimal - objective value 3\n 0 x0\n", "answered"),
        ("Optimal - objective value 3\n 0 x0 many 0\n", "answered"),
        ("Optimal - objective value 3\n 0 x0 1e999 0\n", "answered"),
        ("Optimal - objective value 3\n 0 x0 1-1 0\n", "answered"),
        ("Optimal - objective value 3\n** 0 x0 1 0\n", "answered"),
    ],
)
def test_garbage_is_not_an_answer(text: str, why: str) -> None:
    with pytest.raises(SolverError, match=why):
        read_answer(text.encode("latin-1"))


def test_memory_is_bounded(tmp_path: Path) -> None:
    limited = "resource.getrlimit(resource.RLIMIT_AS)[0] > 0"  # set once it has been started
    waits = f"import resource, time\nwhile not {limited}: time.sleep(.01)\nbytearray(800 << 20)"
    hungry = f"exec {sys.executable} -S -c '{waits}'"
    with pytest.raises(SolverError, match="cbc ended with"):
        script(tmp_path, hungry)(knapsack(), Budget(wall_s=20.0, memory_mib=300))


_TWICE = """
import os, sys
from pathlib import Path
from rltuned.core.milp import Budget
from rltuned.errors import SolverError
from rltuned.solver import Cbc
from tests.unit.test_solver import QUICK, knapsack, script
def twice():
    Cbc()(knapsack(), Budget(wall_s=20.0))
    try:
        script(Path(sys.argv[1]), "sleep 600")(knapsack(), QUICK)
    except SolverError:
        return os.listdir("/proc/self/fd")
once = twice()
again = twice()
print(len(again) - len(once))
"""


def test_nothing_is_left_on_the_disk_and_no_file_is_open(tmp_path: Path) -> None:
    """In an interpreter of its own, where no other thread opens files."""
    empty = tmp_path / "tmp"
    empty.mkdir()
    done = ran(
        sys.executable,
        "-c",
        _TWICE,
        str(tmp_path),
        code=None,
        env={**os.environ, "TMPDIR": str(empty)},
    )
    assert done.stdout == "0\n", done.stderr
    assert not list(empty.iterdir())


_DAEMON = """
import sys
from rltuned.core.milp import Budget
from tests.unit.test_solver import knapsack, script
from pathlib import Path
folder = Path(sys.argv[1])
script(folder, f"echo $$ > {folder}/pid; sleep 600")(knapsack(), Budget(wall_s=600.0))
"""


def test_a_daemon_that_is_killed_leaves_no_solver_and_no_file_behind(tmp_path: Path) -> None:
    empty = tmp_path / "tmp"
    empty.mkdir()
    daemon = subprocess.Popen(
        [sys.executable, "-c", _DAEMON, str(tmp_path)], env={**os.environ, "TMPDIR": str(empty)}
    )
    solver = int(written(tmp_path / "pid"))
    assert is_alive(solver)
    daemon.send_signal(signal.SIGKILL)
    daemon.wait()
    assert ended(solver)
    assert not list(empty.iterdir())
