"""What a command imports before it does anything: nobody waits for a library in vain."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from scripts.tools.reference.commands import commands
from tests.configs import settings_file
from tests.programs import ran

EXTRAS = {"torch", "numba", "llvmlite", "matplotlib", "scipy", "cma", "gymnasium"}
"""No dependency of the base install, and seconds to import."""
LISTED = """
import atexit, sys
atexit.register(lambda: print("imported:", *sorted({m.partition(".")[0] for m in sys.modules})))
from rltuned.cli import main
main()
"""
SEVERAL = f"""
import sys
from rltuned.cli import code_of
for words in sys.argv[1:]:
    code = code_of(words.split())
    found = {EXTRAS} & {{m.partition(".")[0] for m in sys.modules}}
    print("was:", code, *found, ":", words)
"""
WRONG = (
    "train ppo", "train ppo x --base none", "train evolve x --members 1", "train imitate .",
    "train predictor --out .",
    "tune --exam some", "tune --timezone nowhere", "tune --site x --all",
    "backtest --split 2", "backtest --timezone nowhere",
    "evaluate", "evaluate -m x --trace x --cluster testbed --rule none",
    "evaluate -m x --trace x --cluster testbed --part 1 0",
    "evaluate -m x --trace x --cluster testbed --bounds off",
    "simulate", "simulate --trace x --cluster none -p fcfs",
    "simulate --trace x --cluster testbed -p none",
)  # fmt: skip
"""Wrong options of the commands that need the train extra."""


SIMULATED = ["simulate", "--trace", "none.csv", "--cluster", "testbed", "--policy", "fcfs"]


def imported(*args: str) -> set[str]:
    """The packages that a command line has imported when it ends."""
    done = ran(sys.executable, "-c", LISTED, *args)
    (names,) = re.findall(r"^imported: (.*)$", done.stdout, re.MULTILINE)
    return set(names.split())


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_the_overview_imports_no_command(args: list[str]) -> None:
    heavy = {"numpy", "pydantic", "pulp", "jinja2", "prometheus_client", "sqlite3"}
    assert not imported(*args) & (heavy | EXTRAS)


def assert_no_extra(code: int, lines: Iterable[str]) -> None:
    """Command lines, one after the other in one process, end so; none imports what few have."""
    rows = re.findall(
        r"^was: (.*)$", ran(sys.executable, "-c", SEVERAL, *lines).stdout, re.MULTILINE
    )
    assert rows == [f"{code} : {line}" for line in lines]


def test_help_needs_no_extra() -> None:
    every = [one for command in commands() for one in (command, *command.children)]
    assert_no_extra(0, [f"{one.path.removeprefix('rltuned ')} --help" for one in every])


def test_a_wrong_option_is_refused_before_an_extra_is_imported() -> None:
    assert_no_extra(2, WRONG)


def test_a_daemon_without_joint_placement_and_page_imports_neither_solver_nor_templates(
    tmp_path: Path,
) -> None:
    config = settings_file(tmp_path, '[policy]\nname = "delay"\nplacement = "pack"\n')
    flags = ("--backend", "sim", "--dry-run", "--once", "--no-show")
    found = imported("run", "--config", str(config), *flags)
    assert not found & ({"pulp", "jinja2"} | EXTRAS)


def test_a_missing_extra_is_named() -> None:
    program = f"import sys; sys.modules['numba'] = None\n{LISTED}"
    done = ran(sys.executable, "-c", program, *SIMULATED, code=2)
    assert done.stderr == (
        "rltuned: needs the Python package numba, which is not installed; "
        "install rltuned[train], or the package rltuned-train\n"
    )
