"""Two processes of one training, with what torchrun gives them to see.

A server that has imported what they need forks them: each would import it for seconds.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
AT_ONCE = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
"""What a process must have in its environment when it begins."""


class Rank:
    """One of them, as subprocess.Popen would show it."""

    def __init__(self, process: ForkServerProcess, out: Path) -> None:
        self._process, self._out = process, out

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What it has printed, at its end."""
        self._process.join(timeout)
        shown = self._out.read_text()
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0, shown)
        return shown, None

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self._process.pid or 0, number)

    def kill(self) -> None:
        self._process.kill()


def start(folder: Path, main: Callable[..., object], *words: str) -> list[Rank]:
    """Both, the first rank first; what they print lies in the folder."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", **AT_ONCE}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm"])
    ranks = []
    with patch.dict(os.environ, AT_ONCE):  # for the server, which starts with the first of all
        for rank in range(2):
            out = folder / f"printed-{rank}"
            given = (out, env | {"RANK": str(rank)}, main, words)
            process = context.Process(target=_begin, args=given)
            process.start()
            ranks.append(Rank(process, out))
    return ranks


def _begin(
    out: Path, env: Mapping[str, str], main: Callable[..., object], words: tuple[str, ...]
) -> None:
    """In a rank: what is its own, and then its work."""
    with out.open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.update(env)
    os.chdir(ROOT)
    warnings.simplefilter("ignore")
    main(*words)


def command(*words: str) -> None:
    """In a rank: `rltuned`."""
    from rltuned.cli import main  # noqa: PLC0415 - of ranks alone

    with patch.object(sys, "argv", ["rltuned", *words]):
        main()


def meet(folder: Path) -> None:
    """In a rank: wait until the other one is here too: imports count for no bound of a test."""
    rank = int(os.environ["RANK"])
    (folder / f"rank-{rank}").touch()
    while not (folder / f"rank-{1 - rank}").exists():
        time.sleep(0.05)
