"""Other programs, and `rltuned` as one of them."""

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from rltuned.cli import code_of
from rltuned.run import Call

WITHIN_S = 300.0
"""For what hangs."""


def executable(path: Path, text: str) -> Path:
    """A program of a test's own."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def answer(text: str, stderr: str = "", program: str = "squeue") -> Call:
    """What a command of Slurm's has said, as it is read."""
    out = os.memfd_create("answer")
    with open(out, "wb", closefd=False) as file:
        file.write(text.encode())
    return Call(program, exit_code=0, stderr=stderr, out=out)


def ran(
    *argv: str | Path, code: int | None = 0, timeout: float = WITHIN_S, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """A program at its end. code: with which it must have ended; None = any."""
    done = subprocess.run(
        [*map(str, argv)], capture_output=True, text=True, check=False, timeout=timeout, **more
    )
    assert code in {None, done.returncode}, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


def rltuned(
    *words: str | Path, config: Path | None = None, code: int | None = None
) -> "subprocess.CompletedProcess[str]":
    """A command in this process, which spares the time to start one; what it prints and its code.

    Not where a signal, other surroundings or what it imports is the point: `process`.
    """
    named = () if config is None else ("--config", config)
    argv = [*map(str, (*words, *named))]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        ended = code_of(argv) or 0
    assert code in {None, ended}, f"{ended}: {out.getvalue()}{err.getvalue()}"
    return subprocess.CompletedProcess(argv, ended, out.getvalue(), err.getvalue())


def process(
    *words: str | Path, config: Path | None = None, code: int | None = None, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """A command as a user types it."""
    named = () if config is None else ("--config", config)
    return ran(sys.executable, "-m", "rltuned", *words, *named, code=code, **more)
