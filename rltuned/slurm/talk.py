"""One child process: fed and read at once, in time, and up to a bound."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import IO, Final

_PIECE: Final = 65_536
_REAP_S: Final = 2.0
_COMPLAINTS: Final = 4 * 1024 * 1024
"""Bytes that are kept of standard error."""
_LIMITED: Final = re.compile(r"RPC rate limited (?P<times>\d+) time")
"""What a command with -v prints each time slurmctld makes it wait."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished command, for the metrics. limited: how often slurmctld made it back off."""

    program: str
    seconds: float
    ok: bool
    timed_out: bool = False
    limited: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answered.

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
        """How often slurmctld made the command back off, as far as the command says so."""
        return len(_LIMITED.findall(self.stderr))


class Talk:
    """Feeds one child and reads it, both at once: with a full pipe on either side neither waits.

    Attributes:
        answer: what became of it, without its standard output; set when the pieces are at their
            end.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        program: str,
        feed: bytes,
        bounds: tuple[float, int],
        on_call: Callable[[CallRecord], None],
    ) -> None:
        self.answer = Answer("", "", None, f"{program} was not read to the end")
        self._child = child
        self._program = program
        self._timeout_s, self._most_bytes = bounds
        self._on_call = on_call
        self._started = time.monotonic()
        self._deadline = self._started + self._timeout_s
        self.out = bytearray()
        self.err = bytearray()
        self._heard = self._complained = 0
        self._rest = memoryview(feed)
        self._selector = selectors.DefaultSelector()
        self._watch(child.stdout, selectors.EVENT_READ, self.out)
        self._watch(child.stderr, selectors.EVENT_READ, self.err)
        if child.stdin is not None:
            self._watch(child.stdin, selectors.EVENT_WRITE, None)

    def _watch(self, pipe: IO[bytes] | None, event: int, into: bytearray | None) -> None:
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event, into)

    def pieces(self) -> Iterator[bytes]:
        """Standard output as it comes. A reader that stops listening ends the child."""
        failure = "left"
        try:
            failure = yield from self._until_closed()
        finally:
            exit_code = _end(self._child, self._deadline, broken=bool(failure))
            self._settle(failure or ("late" if exit_code is None else ""), exit_code)

    def _until_closed(self) -> Generator[bytes, None, str]:
        """Talk until both ends are closed; "late" or "long" when that did not come about."""
        with self._selector as selector:
            while selector.get_map():
                left = self._deadline - time.monotonic()
                if left <= 0:
                    return "late"
                for key, _ in selector.select(left):
                    self._serve(key)
                self._heard += len(self.out) + len(self.err) - self._complained
                del self.err[_COMPLAINTS:]
                self._complained = len(self.err)
                if self._heard > self._most_bytes:
                    return "long"
                if self.out:
                    yield bytes(self.out)
                    self.out.clear()
        return ""

    def _settle(self, failure: str, exit_code: int | None) -> None:
        said = {
            "": "",
            "left": f"{self._program} was not read to the end",
            "late": f"{self._program} gave no answer within {self._timeout_s:g} s",
            "long": f"{self._program} answered more than {self._most_bytes} bytes",
        }[failure]
        self.answer = Answer(
            stdout="",
            stderr=self.err.decode("utf-8", "backslashreplace"),
            exit_code=None if failure else exit_code,
            failure=said,
        )
        self._on_call(
            CallRecord(
                program=self._program,
                seconds=time.monotonic() - self._started,
                ok=self.answer.exit_code == 0,
                timed_out=failure == "late",
                limited=self.answer.limited,
            )
        )

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

    The group is signalled before the child is reaped: until then no one else can have its number.

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
