"""The one door to other programs: argument lists, a timeout that holds, bounded answers.

A program reads from, and writes to, memory files: neither side can make the other wait, nothing is
left on a disk, and the kernel keeps the bound on an answer (RLIMIT_FSIZE). It runs in a session of
its own, which is ended as a whole when the program has ended, or has had its time.
"""

import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from rltuned.errors import BackendError
from rltuned.text import one_line

LINE_BYTES: Final = 1024 * 1024
"""A longer line of an answer is none of Slurm's."""
_PIECE: Final = 1024 * 1024
_COMPLAINTS: Final = 4 * 1024 * 1024
"""Bytes that are read of standard error."""
_QUOTED: Final = 2_000
_REMARKS: Final = 20
"""So many lines of one command are handed on."""
_REAP_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 0.05
_GRAVE: Final = re.compile(r"\b(error|warning|fatal):", re.IGNORECASE)
_LIMITED: Final = re.compile(r"RPC rate limited (?P<times>\d+) time")
"""What a command with -v prints each time slurmctld makes it wait."""
_NO_LIMITS: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Call:
    """One finished command. exit_code: None = it was not started or was ended; `failure` says why.

    Bytes that are not UTF-8 appear as backslash escapes: two different names stay different, and
    the text can always be logged, stored as JSON and written to SQLite (lone surrogates cannot).
    """

    program: str
    args: Sequence[str] = ()
    seconds: float = 0.0
    exit_code: int | None = None
    stderr: str = ""
    failure: str = ""
    out: int = field(default=-1, repr=False)
    """File descriptor of standard output; closed with this object."""

    def __del__(self) -> None:
        if self.out >= 0:
            os.close(self.out)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def limited(self) -> int:
        """How often slurmctld made the command back off, as far as the command says so."""
        return len(_LIMITED.findall(self.stderr))

    @property
    def remarks(self) -> tuple[str, ...]:
        """The first lines on standard error beside an answer that is good, each once; they change
        nothing of it. With -v only warnings and errors count.
        """
        lines = (one_line(line) for line in self.stderr.splitlines()) if self.ok else ()
        said = (line for line in lines if line and ("-v" not in self.args or _GRAVE.search(line)))
        return tuple(dict.fromkeys(said))[:_REMARKS]

    @property
    def stdout(self) -> str:
        """Whole, whatever came of the command."""
        return _decoded(os.pread(self.out, os.fstat(self.out).st_size, 0))

    def must_be_good(self) -> None:
        """Raise BackendError when the command did not end by itself and well."""
        if self.failure:
            raise BackendError(self.failure)
        if not self.ok:
            said = one_line(self.stderr) or one_line(_decoded(os.pread(self.out, _QUOTED, 0)))
            raise BackendError(
                f"{self.program} ended with {self.exit_code}: {said or 'no message'}"
            )

    def parts(self, end: bytes, most: int) -> Iterator[str]:
        """Standard output parted at every `end`, the last part too, which mostly is empty. Raises
        BackendError: the command failed, or a part has more than `most` bytes.
        """
        self.must_be_good()
        held, at = b"", 0
        while piece := os.pread(self.out, _PIECE, at):
            at += len(piece)
            whole, found, held = (held + piece).rpartition(end)
            if found:
                yield from _decoded(whole).split(end.decode())
            if len(held) > most:
                raise BackendError(f"{self.program}: more than {most} bytes without an end")
        yield _decoded(held)

    def lines(self) -> Iterator[str]:
        """Lines without their ends. Raises BackendError: as `parts`, of LINE_BYTES."""
        last = ""
        for number, line in enumerate(self.parts(b"\n", LINE_BYTES)):
            if number:
                yield last
            last = line
        if last:
            yield last


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    seconds: float,
    most_bytes: int,
    *,
    name: str = "",
    feed: bytes = b"",
    files: Sequence[int] = (),
    limits: Mapping[int, int] = _NO_LIMITS,
    dies_with_us: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Call:
    """Run a program to its end, well or not. Raises OSError: it cannot be started.

    most_bytes: of each file that it writes; more ends it. name: in messages. feed: its standard
    input. files: descriptors of further files that it writes. limits: by the number of a resource.
    dies_with_us: the kernel ends it with the thread that started it, where there is setpriv.
    stopped: asked meanwhile; true = end it now.
    """
    program = name or argv[0]
    keeper = shutil.which("setpriv") if dies_with_us else None
    began = time.monotonic()
    out = _memory_file("out")
    call = Call(program, argv[1:], out=out)
    with os.fdopen(_memory_file("err")) as err, os.fdopen(_memory_file("in"), "wb") as stdin:

        def longest() -> int:
            return max(os.fstat(one).st_size for one in (out, err.fileno(), *files))

        stdin.write(feed)
        stdin.flush()
        os.lseek(stdin.fileno(), 0, os.SEEK_SET)
        child = subprocess.Popen(
            [*((keeper, "--pdeathsig", "KILL", "--") if keeper else ()), *argv],
            stdin=stdin,
            stdout=out,
            stderr=err,
            env=env,
            cwd="/",
            pass_fds=files,
            start_new_session=True,
        )
        in_time = False
        try:
            for which, most in {resource.RLIMIT_FSIZE: most_bytes + 1, **limits}.items():
                with suppress(ProcessLookupError, PermissionError):  # ended, or another user's
                    resource.prlimit(child.pid, which, (most, most))
            # what it started before its limit was set has none
            in_time = _ends(child.pid, began + seconds, lambda: longest() > most_bytes or stopped())
        finally:
            code = _reaped(child)
        call.stderr = _decoded(os.pread(err.fileno(), _COMPLAINTS, 0))
        is_too_long = longest() > most_bytes
        for one in (out, err.fileno(), *files):  # a child in a session of its own may still write
            with suppress(OSError):
                fcntl.fcntl(one, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    call.seconds = time.monotonic() - began
    if is_too_long:
        call.failure = f"{program} answered more than {most_bytes} bytes"
    elif not in_time:
        call.failure = f"{program} gave no answer within {seconds:g} s"
    else:
        call.exit_code = code
    return call


def _memory_file(of: str) -> int:
    return os.memfd_create(f"rltuned-{of}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _ends(pid: int, deadline: float, stopped: Callable[[], bool]) -> bool:
    """Whether it ends by itself in time. It is not reaped yet."""
    pause_s = 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or stopped():
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(1.25 * pause_s, _LONGEST_PAUSE_S)  # waits a quarter too long at most
    return True


def _reaped(child: subprocess.Popen[bytes]) -> int | None:
    """End it and all that it has started; its exit code. The group is signalled before the child
    is reaped: until then no one else can have its number.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: leave it there
        return child.wait(timeout=_REAP_S)
    return None
