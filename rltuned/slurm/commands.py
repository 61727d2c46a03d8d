"""The one door to other programs: argument lists, a timeout that holds, bounded answers."""

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rltuned.errors import BackendError

_KEPT: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ")
_PIECE: Final = 65_536
_REAP_S: Final = 2.0
_LIMITED: Final = re.compile(r"RPC rate limited (?P<times>\d+) time")
"""What a command told to be talkative (-v) says each time slurmctld sends it to wait."""


@dataclass(frozen=True, slots=True)
class SlurmCli:
    """How Slurm's commands are called.

    Attributes:
        bin_dir: where squeue, sinfo, sprio and scontrol are; None = look through PATH.
        conf: slurm.conf; None = the place Slurm was built with. SLURM_CONF of the surrounding
            environment is never used, so that a stray export cannot point us at another cluster.
        timeout_s: the longest that one command may take, whatever it starts itself.
        chunk: the most updates in one scontrol; a controller that dies costs one chunk's timeout.
        max_answer_bytes: a longer answer is refused instead of filling the memory.
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


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished command, for the metrics. limited: how often slurmctld told it to back off."""

    program: str
    seconds: float
    ok: bool
    timed_out: bool = False
    limited: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said.

    exit_code is None when it did not end by itself; `failure` then says why, else it is empty.
    Bytes that are not UTF-8 appear as backslash escapes: two different names stay different, and
    the text can always be logged, stored as JSON and written to SQLite (lone surrogates cannot).
    """

    stdout: str
    stderr: str
    exit_code: int | None
    failure: str = ""

    @property
    def limited(self) -> int:
        """How often slurmctld told the command to back off, as far as the command says so."""
        return len(_LIMITED.findall(self.stderr))


def _ignore(_: CallRecord) -> None:
    """Nobody counts."""


class Commands:
    """Runs Slurm's commands under one set of knobs.

    Args:
        cli: the knobs.
        on_call: told of every finished call; must not raise.
        environ: where PATH, HOME, LD_LIBRARY_PATH and TZ are taken from. Nothing else passes: with
            SLURM_JOB_ID some updates write files, and SQUEUE_FORMAT and its kin change the answers.
    """

    def __init__(
        self,
        cli: SlurmCli,
        on_call: Callable[[CallRecord], None] = _ignore,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.cli = cli
        self._on_call = on_call
        self._env = _environment(cli, environ)

    def ask(self, program: str, *args: str) -> Answer:
        """Run a command that must succeed.

        Raises:
            BackendError: not installed, exit code other than 0, timed out, or too long an answer.
        """
        answer = self.call(program, *args)
        if answer.failure:
            raise BackendError(answer.failure)
        if answer.exit_code != 0:
            said = one_line(answer.stderr) or one_line(answer.stdout) or "no message"
            raise BackendError(f"{program} ended with {answer.exit_code}: {said}")
        return answer

    def call(
        self, program: str, *args: str, feed: str | None = None, at: Path | None = None
    ) -> Answer:
        """Run a command and return whatever came of it.

        Args:
            program: its bare name.
            args: its arguments, passed as they are; no shell ever sees them.
            feed: text for its standard input; None = an empty one.
            at: where it is, for one that is not Slurm's own.

        Raises:
            BackendError: the program is not installed or cannot be started.
        """
        path = self._find(program, at)
        started = time.monotonic()
        answer = self._run(program, [path, *args], feed, started + self.cli.timeout_s)
        self._on_call(
            CallRecord(
                program=program,
                seconds=time.monotonic() - started,
                ok=answer.exit_code == 0,
                timed_out="gave no answer" in answer.failure,
                limited=answer.limited,
            )
        )
        return answer

    def where(self, program: str) -> str | None:
        """Path of a program; None = it is not installed."""
        return shutil.which(program, path=self._place)

    @property
    def _place(self) -> str:
        return str(self.cli.bin_dir) if self.cli.bin_dir else self._env.get("PATH", "")

    def _find(self, program: str, at: Path | None) -> str:
        path = self.where(str(at or program))
        if path is None:
            self._on_call(CallRecord(program=program, seconds=0.0, ok=False))
            raise BackendError(f"{program} is not installed in {at or self._place}")
        return path

    def _run(self, program: str, argv: list[str], feed: str | None, deadline: float) -> Answer:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._env,
                cwd="/",
                start_new_session=True,  # a group of its own, so that what it starts ends with it
            )
        except OSError as error:
            self._on_call(CallRecord(program=program, seconds=0.0, ok=False))
            raise BackendError(f"{program} cannot be started: {error}") from error
        talk = _Talk(child, (feed or "").encode(), self.cli.max_answer_bytes)
        failure = "late"
        try:
            failure = talk.until(deadline)
        finally:
            exit_code = _end(child, deadline, broken=bool(failure))
        if not failure and exit_code is None:
            failure = "late"
        said = {
            "": "",
            "late": f"{program} gave no answer within {self.cli.timeout_s:g} s",
            "long": f"{program} answered more than {self.cli.max_answer_bytes} bytes",
        }[failure]
        return Answer(
            stdout=talk.out.decode("utf-8", "backslashreplace"),
            stderr=talk.err.decode("utf-8", "backslashreplace"),
            exit_code=None if failure else exit_code,
            failure=said,
        )


class _Talk:
    """Feeds one child and reads it, both at once: with a full pipe on either side neither waits."""

    def __init__(self, child: subprocess.Popen[bytes], feed: bytes, bound: int) -> None:
        self.out = bytearray()
        self.err = bytearray()
        self._rest = memoryview(feed)
        self._bound = bound
        self._selector = selectors.DefaultSelector()
        self._watch(child.stdout, selectors.EVENT_READ, self.out)
        self._watch(child.stderr, selectors.EVENT_READ, self.err)
        if child.stdin is not None:
            self._watch(child.stdin, selectors.EVENT_WRITE, None)

    def _watch(self, pipe: IO[bytes] | None, event: int, into: bytearray | None) -> None:
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event, into)

    def until(self, deadline: float) -> str:
        """Talk until both ends are closed; "late" or "long" when that did not come about."""
        with self._selector as selector:
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return "late"
                for key, _ in selector.select(left):
                    self._serve(key)
                if len(self.out) + len(self.err) > self._bound:
                    return "long"
        return ""

    def _serve(self, key: selectors.SelectorKey) -> None:
        try:
            done = self._write(key.fd) if key.data is None else self._read(key)
        except BrokenPipeError:  # it stopped listening; what it says counts
            done = True
        if done:
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]  # always one of the child's pipes

    def _write(self, fd: int) -> bool:
        sent = os.write(fd, self._rest[:_PIECE])
        self._rest = self._rest[sent:]
        return not self._rest

    def _read(self, key: selectors.SelectorKey) -> bool:
        piece = os.read(key.fd, _PIECE)
        key.data.extend(piece)
        return not piece


def _end(child: subprocess.Popen[bytes], deadline: float, *, broken: bool) -> int | None:
    """Reap a child; one that broke off or does not end is ended with all it started.

    The group is signalled before the child is reaped: until then nobody else can have its number.

    Returns:
        The exit code, or None when it was ended.
    """
    if not broken:
        try:
            return child.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: leave it there
        child.wait(timeout=_REAP_S)
    return None


def _environment(cli: SlurmCli, environ: Mapping[str, str]) -> dict[str, str]:
    env = {name: environ[name] for name in _KEPT if name in environ}
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env["LC_ALL"] = "C"
    env["SLURM_TIME_FORMAT"] = "%s"  # epochs: no time zone, no daylight saving
    env["SLURM_BITSTR_LEN"] = "0"  # array task lists are cut at 64 characters otherwise
    if cli.conf is not None:
        env["SLURM_CONF"] = str(cli.conf)
    return env


def one_line(text: str, limit: int = 300) -> str:
    """Text as one printable line of at most `limit` characters."""
    joined = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    clean = "".join(c if c.isprintable() else "?" for c in joined)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
