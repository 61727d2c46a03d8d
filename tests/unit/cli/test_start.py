"""What a command imports before it does anything: a controller waits for no library in vain."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rltuned.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = {"torch", "numba", "llvmlite", "matplotlib"}
"""No dependency of the base install."""
COMPILED = {"train", "simulate", "evaluate", "backtest", "tune"}
"""Commands that need the train extra."""
LISTED = """
import atexit, sys
atexit.register(lambda: print("imported:", *sorted({m.partition(".")[0] for m in sys.modules})))
from rltuned.cli import main
main()
"""


BUNDLE = ROOT / "models" / "rltune"


def run(program: str, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


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


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - COMPILED))
def test_help_needs_no_extra(name: str) -> None:
    assert not imported(name, "--help") & EXTRAS


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
    [(["simulate", "--help"], "numba"), (["models", "verify", "--torch", str(BUNDLE)], "torch")],
)
def test_a_missing_extra_is_named(args: list[str], missing: str) -> None:
    done = run(f"import sys; sys.modules['{missing}'] = None\n{LISTED}", *args)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"rltuned: needs the Python package {missing}, which is not installed; "
        "install rltuned[train], or the package rltuned-train\n"
    )
