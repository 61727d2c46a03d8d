"""What a command imports before it does anything: nobody waits for a library in vain."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rltuned.cli import COMMANDS
from tests.programs import ran

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = {"torch", "numba", "llvmlite", "matplotlib", "scipy", "cma", "gymnasium"}
"""No dependency of the base install, and seconds to import."""
LISTED = """
import atexit, sys
atexit.register(lambda: print("imported:", *sorted({m.partition(".")[0] for m in sys.modules})))
from rltuned.cli import main
main()
"""
SEVERAL = """
import sys
from rltuned.cli import code_of
codes = [code_of(words.split()) for words in sys.argv[1:]]
print("codes:", *codes)
print("imported:", *sorted({m.partition(".")[0] for m in sys.modules}))
"""
WORDS = json.loads((ROOT / "rltuned" / "cli" / "words.json").read_text())
WRONG = {
    "train": (
        "train ppo", "train ppo x --base none", "train evolve x --members 1",
        "train imitate .", "train predictor --out .",
    ),
    "tune": ("tune --exam some", "tune --timezone nowhere", "tune --site x --all"),
    "backtest": ("backtest --split 2", "backtest --timezone nowhere"),
    "evaluate": (
        "evaluate", "evaluate -m x --trace x --cluster testbed --rule none",
        "evaluate -m x --trace x --cluster testbed --part 1 0",
        "evaluate -m x --trace x --cluster testbed --bounds off",
    ),
    "simulate": (
        "simulate", "simulate --trace x --cluster none -p fcfs",
        "simulate --trace x --cluster testbed -p none",
    ),
}  # fmt: skip
"""Wrong options of the commands that need the train extra."""


BUNDLE = ROOT / "models" / "rltune"
SIMULATED = ["simulate", "--trace", "none.csv", "--cluster", "testbed", "--policy", "fcfs"]


def run(program: str, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *args]
    return ran(*command, code=None)


def imported(*args: str) -> set[str]:
    """The packages that a command line has imported when it ends."""
    done = run(LISTED, *args)
    assert done.returncode == 0, done.stderr
    (names,) = re.findall(r"^imported: (.*)$", done.stdout, re.MULTILINE)
    return set(names.split())


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_the_overview_imports_no_command(args: list[str]) -> None:
    heavy = {"numpy", "pydantic", "pulp", "jinja2", "prometheus_client", "sqlite3"}
    assert not imported(*args) & (heavy | EXTRAS)


def of_several(*lines: str) -> tuple[list[str], set[str]]:
    """The exit codes of command lines, one after the other, and what all of them import."""
    done = run(SEVERAL, *lines)
    assert done.returncode == 0, done.stderr
    *_, codes, names = done.stdout.splitlines()
    return codes.split()[1:], set(names.split()[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_extra(name: str) -> None:
    lines = [f"{name} --help", *(f"{name} {c} --help" for c in WORDS[name].get("commands", {}))]
    codes, found = of_several(*lines)
    assert codes == ["0"] * len(lines)
    assert not found & EXTRAS


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused_before_an_extra_is_imported(name: str) -> None:
    codes, found = of_several(*WRONG[name])
    assert codes == ["2"] * len(WRONG[name])
    assert not found & EXTRAS


def test_a_daemon_without_joint_placement_and_page_imports_neither_solver_nor_templates(
    tmp_path: Path,
) -> None:
    config = tmp_path / "rltuned.toml"
    config.write_text('[policy]\nname = "delay"\nplacement = "pack"\n')
    flags = ("--backend", "sim", "--dry-run", "--once", "--no-show")
    found = imported("run", "--config", str(config), *flags)
    assert not found & ({"pulp", "jinja2"} | EXTRAS)


@pytest.mark.parametrize(
    ("args", "missing"),
    [(SIMULATED, "numba"), (["models", "verify", "--torch", str(BUNDLE)], "torch")],
)
def test_a_missing_extra_is_named(args: list[str], missing: str) -> None:
    done = run(f"import sys; sys.modules['{missing}'] = None\n{LISTED}", *args)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"rltuned: needs the Python package {missing}, which is not installed; "
        "install rltuned[train], or the package rltuned-train\n"
    )
