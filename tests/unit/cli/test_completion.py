"""Completion in three shells, on a base install."""

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest

from tests import needs
from tests.programs import ran

WITHOUT = """\
#!{python}
import sys
for name in ("torch", "numba", "matplotlib"):
    sys.modules[name] = None
from rltuned.cli import main
main()
"""
ASKED = [
    ("rltuned ev", ["evaluate"]),
    ("rltuned models v", ["verify"]),
    ("rltuned evaluate --mod", ["--mode", "--model"]),
    ("rltuned plan --backend s", ["sim", "slurm"]),
    ("rltuned status --a", ["--all"]),
    ("rltuned run --no", ["--no-show"]),
]
"""What is typed, and what may follow."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose `rltuned` can import no extra."""
    program = tmp_path / "bin" / "rltuned"
    program.parent.mkdir()
    program.write_text(WITHOUT.format(python=sys.executable))
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb"}


def output(env: dict[str, str], *command: str) -> str:
    done = ran(*command, code=None, env=env)
    assert done.stdout.strip(), done.stderr
    return done.stdout


def script(shell: str, env: dict[str, str], folder: Path) -> Path:
    """The shell's script as the packages have it."""
    path = folder / f"rltuned.{shell}"
    path.write_text(output({**env, "_RLTUNED_COMPLETE": f"source_{shell}"}, "rltuned"))
    return path


@pytest.mark.parametrize(("typed", "expected"), ASKED)
def test_bash(env: dict[str, str], tmp_path: Path, typed: str, expected: list[str]) -> None:
    line = f"COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}"
    shown = "_rltuned_completion rltuned; printf '%s\\n' ${COMPREPLY[@]}"
    asked = f"source {script('bash', env, tmp_path)}; {line}; {shown}"
    assert sorted(output(env, "bash", "--norc", "-c", asked).split()) == expected


@pytest.mark.parametrize(("typed", "expected"), ASKED)
def test_fish(env: dict[str, str], tmp_path: Path, typed: str, expected: list[str]) -> None:
    needs.program("fish")
    asked = f"source {script('fish', env, tmp_path)}; complete -C '{typed}'"
    lines = output(env, "fish", "--no-config", "-c", asked).splitlines()
    assert sorted(line.split("\t")[0] for line in lines) == expected


@pytest.mark.parametrize(
    ("typed", "expected"), [(typed, found) for typed, found in ASKED if len(found) == 1]
)
def test_zsh(env: dict[str, str], tmp_path: Path, typed: str, expected: list[str]) -> None:
    """Typed on a terminal: zsh completes nowhere else."""
    needs.program("zsh")
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-f"], env)  # noqa: S606 - it is the shell
    try:
        setup = f"autoload -Uz compinit; compinit -u -D; source {script('zsh', env, tmp_path)}"
        os.write(terminal, f"{setup}; echo set''up\n".encode())
        _until(terminal, "setup\r\n")
        os.write(terminal, f"{typed}\t".encode())
        _until(terminal, typed.rpartition(" ")[0] + " " + expected[0] + " ")
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)


def _until(terminal: int, wanted: str) -> None:
    text, ends = "", time.monotonic() + 300.0
    while wanted not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x08", "", text):
        left = ends - time.monotonic()
        assert left > 0, repr(text)
        if select.select([terminal], [], [], left)[0]:
            text += os.read(terminal, 65_536).decode(errors="replace")
