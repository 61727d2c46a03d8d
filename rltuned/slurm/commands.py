"""The one door to other programs: argument lists, a timeout that holds, bounded answers."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rltuned.errors import BackendError
from rltuned.slurm.talk import Answer, CallRecord, Stream

_KEPT: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ")
_NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})
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

    def __post_init__(self) -> None:
        if not self.timeout_s > 0 or self.max_answer_bytes < 1:
            raise ValueError(f"timeout_s and max_answer_bytes must be positive: {self}")
        if not 1 <= self.chunk <= 200:  # noqa: PLR2004 - facts: a dead controller takes 10 s a line
            raise ValueError(f"chunk must be 1..200, not {self.chunk}")


class Commands:
    """Runs Slurm's commands under one set of knobs.

    Every method that runs a program raises BackendError when it is not installed or cannot be
    started; `ask` and the end of a stream also when it fails, gives no answer in time, or too long
    a one.

    cli: the knobs. on_call: called with every finished call; must not raise. environ: where PATH,
    HOME, LD_LIBRARY_PATH and TZ are taken from. Nothing else passes: with SLURM_JOB_ID some updates
    write files, and SQUEUE_FORMAT and its kin change the answers: a call names its own.
    """

    def __init__(
        self,
        cli: SlurmCli,
        on_call: Callable[[CallRecord], None] = lambda _call: None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.cli = cli
        self._on_call = on_call
        self._env = _environment(cli, environ)

    def ask(self, program: str, *args: str) -> Answer:
        """Run a command that must succeed."""
        answer = self.call(program, *args)
        answer.must_be_good(program)
        return answer

    def call(
        self, program: str, *args: str, feed: str | None = None, at: Path | None = None
    ) -> Answer:
        """Run a command and return whatever came of it; arguments as of `stream`."""
        return self.stream(program, *args, feed=feed, at=at, most_bytes=WHOLE_BYTES).whole()

    def stream(
        self,
        program: str,
        *args: str,
        feed: str | None = None,
        at: Path | None = None,
        most_bytes: int | None = None,
        environ: Mapping[str, str] = _NO_MORE,
    ) -> Stream:
        """A command that may say very much, to be read piece by piece. args: no shell sees them,
        and every user of the machine can read them. feed: its standard input. at: of one that is
        not Slurm's. most_bytes: None = as the knobs say. environ: beside what passes; its owner and
        root alone can read it.
        """
        most = self.cli.max_answer_bytes
        return Stream(
            lambda: self._start(
                program, args, at, subprocess.PIPE if feed else subprocess.DEVNULL, environ
            ),
            program,
            (feed or "").encode(),
            (self.cli.timeout_s, min(most, most_bytes or most)),
            self._on_call,
            verbose="-v" in args,
        )

    def where(self, program: str) -> str | None:
        """Path of a program; None = it is not installed."""
        return shutil.which(program, path=self._place)

    @property
    def _place(self) -> str:
        return str(self.cli.bin_dir) if self.cli.bin_dir else self._env.get("PATH", "")

    def _start(
        self,
        program: str,
        args: Sequence[str],
        at: Path | None,
        stdin: int,
        environ: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        path = self.where(str(at or program))
        why = f"is not installed in {at or self._place}"
        if path is not None:
            try:
                return subprocess.Popen(
                    [path, *args],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**self._env, **environ},
                    cwd="/",
                    start_new_session=True,  # so that what it starts can be ended with it
                )
            except OSError as error:
                why = f"cannot be started: {error}"
        self._on_call(CallRecord(program=program, seconds=0.0, ok=False))
        raise BackendError(f"{program} {why}")


def _environment(cli: SlurmCli, environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: environ[name] for name in _KEPT if name in environ}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env["LC_ALL"] = "C"
    env["SLURM_TIME_FORMAT"] = "%s"  # epochs: no time zone, no daylight saving
    env["SLURM_BITSTR_LEN"] = "0"  # array task lists are cut at 64 characters otherwise
    if cli.conf is not None:
        env["SLURM_CONF"] = str(cli.conf)
    return env
