"""How Slurm's commands are run, and the last look before a batch of updates is sent."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rltuned.errors import BackendError
from rltuned.run import Call, run

_KEPT: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ")
_NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})
NEEDED: Final = ("squeue", "sinfo", "sprio", "scontrol", "sdiag")
"""Slurm's programs that a cycle runs."""
WHOLE_BYTES: Final = 8 * 1024 * 1024
"""A longer answer is refused where it is held as a whole: configuration, statistics, partitions."""


@dataclass(frozen=True, slots=True)
class SlurmCli:
    """How Slurm's commands are called. bin_dir: None = look through PATH. conf: None = the place
    Slurm was built with; SLURM_CONF is never used, so a stray export cannot point rltuned at
    another cluster.

    timeout_s: of one command, whatever it starts. chunk: the most updates in one scontrol; a
    controller that dies costs one chunk's timeout. max_answer_bytes: see also WHOLE_BYTES.
    """

    bin_dir: Path | None = None
    conf: Path | None = None
    timeout_s: float = 20.0
    chunk: int = 200
    max_answer_bytes: int = 256 * 1024 * 1024


class Commands:
    """Runs Slurm's commands under one set of knobs.

    Every method that runs a program raises BackendError when it is not installed or cannot be
    started; `ask`, and what reads a Call, also when it fails, gives no answer in time, or too long
    a one.

    on_call: called with every finished call; must not raise. environ: where PATH, HOME,
    LD_LIBRARY_PATH and TZ are taken from. Nothing else passes: with SLURM_JOB_ID some updates write
    files, and SQUEUE_FORMAT and its kin change the answers: a call names its own.
    """

    def __init__(
        self,
        cli: SlurmCli,
        on_call: Callable[[Call], None] = lambda _call: None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.cli = cli
        self._on_call = on_call
        env = {name: environ[name] for name in _KEPT if name in environ}
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env["LC_ALL"] = "C"
        env["SLURM_TIME_FORMAT"] = "%s"  # epochs: no time zone, no daylight saving
        env["SLURM_BITSTR_LEN"] = "0"  # array task lists are cut at 64 characters otherwise
        if cli.conf is not None:
            env["SLURM_CONF"] = str(cli.conf)
        self._env = env
        self._place = str(cli.bin_dir) if cli.bin_dir else env["PATH"]

    def ask(self, program: str, *args: str) -> str:
        """The standard output of a command that must succeed."""
        call = self.call(program, *args, most_bytes=WHOLE_BYTES)
        call.must_be_good()
        return call.stdout

    def call(
        self,
        program: str,
        *args: str,
        feed: str = "",
        at: Path | None = None,
        most_bytes: int | None = None,
        environ: Mapping[str, str] = _NO_MORE,
    ) -> Call:
        """Run a command to its end, whatever comes of it. args: no shell sees them, and every user
        of the machine can read them. feed: its standard input. at: of one that is not Slurm's.
        most_bytes: None = as the knobs say. environ: beside what passes; its owner and root alone
        can read it.
        """
        path, most = self.where(str(at or program)), self.cli.max_answer_bytes
        call = Call(program, failure=f"{program} is not installed in {at or self._place}")
        if path is not None:
            try:
                call = run(
                    [path, *args],
                    {**self._env, **environ},
                    self.cli.timeout_s,
                    min(most, most_bytes or most),
                    name=program,
                    feed=feed.encode(),
                )
            except OSError as error:
                call.failure = f"{program} cannot be started: {error}"
        self._on_call(call)
        if call.out < 0:
            raise BackendError(call.failure)
        return call

    def where(self, program: str) -> str | None:
        """Path of a program; None = it is not installed."""
        return shutil.which(program, path=self._place)


Readings = Callable[[], tuple[float, ...]]
"""Reads several clocks at once, always the same ones: seconds of each."""


def longest_s(since: Sequence[float], now: Sequence[float]) -> float:
    """Seconds gone by, as the clock says that counted most; for what must not be too old."""
    return max(b - a for a, b in zip(since, now, strict=True))


class Fence:
    """Shuts when the last look at the cluster is too long ago.

    A process that was stopped (SIGSTOP), a machine that slept and one whose clock was set all wake
    up with an old plan in hand. Each of these shows on one of the clocks, so the longest counts.

    readings: the clocks: one that stops in sleep, one that does not, and the wall clock. max_age_s:
    oldest view that may be acted on. holds: asked last; why this daemon may not write, empty = it
    may.
    """

    def __init__(
        self, readings: Readings, max_age_s: float, holds: Callable[[], str] = lambda: ""
    ) -> None:
        self._readings = readings
        self._max_age_s = max_age_s
        self._holds = holds
        self._looked: tuple[float, ...] | None = None

    def look(self) -> None:
        self._looked = self._readings()

    def shut(self) -> str:
        """Why nothing may be sent; empty = send."""
        if self._looked is None:
            return "not sent: the cluster was not looked at yet"
        age_s = longest_s(self._looked, self._readings())
        if age_s > self._max_age_s:
            return (
                f"not sent: the queue was seen {age_s:.0f} s ago, and max_snapshot_age_s is "
                f"{self._max_age_s:g}"
            )
        return self._holds()
