"""One child process: fed and read at once, in time, and up to a bound."""

import os
import re
import selectors
import subprocess
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rltuned import children
from rltuned.errors import BackendError

_PIECE: Final = 65_536
_COMPLAINTS: Final = 4 * 1024 * 1024
"""Bytes that are kept of standard error."""
LINE_CHARACTERS: Final = 1024 * 1024
"""A longer line of a streamed answer is none of Slurm's."""
_QUOTED: Final = 2_000
"""So much of a long answer is kept, for a message."""
_REMARKS: Final = 20
"""So many lines of one command are handed on."""
_GRAVE: Final = re.compile(r"\b(error|warning|fatal):", re.IGNORECASE)
_LIMITED: Final = re.compile(r"RPC rate limited (?P<times>\d+) time")
"""What a command with -v prints each time slurmctld makes it wait."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One finished command. limited: how often slurmctld made it back off. remarks: what it printed
    beside a good answer, each line once.
    """

    program: str
    seconds: float
    ok: bool
    timed_out: bool = False
    limited: int = 0
    remarks: tuple[str, ...] = ()


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

    def remarks(self, *, verbose: bool = False) -> tuple[str, ...]:
        """The first lines on standard error beside an answer that is good; they change nothing of
        it. verbose: it was asked to say much, so only warnings and errors count.
        """
        if self.failure or self.exit_code != 0:
            return ()
        lines = (one_line(line) for line in self.stderr.splitlines())
        said = (line for line in lines if line and (not verbose or _GRAVE.search(line)))
        return tuple(dict.fromkeys(said))[:_REMARKS]

    def must_be_good(self, program: str) -> None:
        """Raise BackendError when the command did not end by itself and well."""
        if self.failure:
            raise BackendError(self.failure)
        if self.exit_code != 0:
            message = one_line(self.stderr) or one_line(self.stdout) or "no message"
            raise BackendError(f"{program} ended with {self.exit_code}: {message}")


def one_line(text: str, limit: int = 300) -> str:
    """Text as one printable line of at most `limit` characters."""
    joined = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    clean = "".join(c if c.isprintable() else "?" for c in joined)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


class Stream:
    """One run of a command that is fed and read at once: with a full pipe on either side neither
    waits. Nothing is run before the first piece is taken.

    bounds: it is ended when it takes more seconds, or says more bytes. verbose: as of
    Answer.remarks. answer: what became of it,
    without its standard output; None until the pieces are at their end, and for good when the
    reader stops before that.
    """

    def __init__(
        self,
        start: Callable[[], subprocess.Popen[bytes]],
        program: str,
        feed: bytes,
        bounds: tuple[float, int],
        on_call: Callable[[CallRecord], None],
        *,
        verbose: bool = False,
    ) -> None:
        self.answer: Answer | None = None
        self._start = start
        self._program = program
        self._rest = memoryview(feed)
        self._timeout_s, self._most_bytes = bounds
        self._on_call = on_call
        self._verbose = verbose
        self._out, self._err = bytearray(), bytearray()

    @property
    def stderr(self) -> str:
        """What it complained of; empty until the pieces are at their end."""
        return self.answer.stderr if self.answer else ""

    def whole(self) -> Answer:
        """Run it to its end, whatever comes of it."""
        output = b"".join(self.pieces())
        text = output.decode("utf-8", "backslashreplace")
        return replace(self._ended(), stdout=text)

    def __iter__(self) -> Iterator[str]:
        """The text of its standard output; a BackendError when it does not succeed."""
        decoder = getincrementaldecoder("utf-8")("backslashreplace")
        quoted = ""
        for piece in self.pieces():
            text = decoder.decode(piece)
            quoted = quoted or text[:_QUOTED]
            yield text
        replace(self._ended(), stdout=quoted).must_be_good(self._program)

    def lines(self) -> Iterator[str]:
        """Its lines without their ends; one longer than LINE_CHARACTERS is a BackendError."""
        held: list[str] = []
        length = 0
        for piece in self:
            first, *more = piece.split("\n")
            held.append(first)
            length += len(first)
            if more:
                yield "".join(held)
                yield from more[:-1]
                held, length = [more[-1]], len(more[-1])
            if length > LINE_CHARACTERS:
                raise BackendError(f"{self._program}: a line of more than {LINE_CHARACTERS} bytes")
        if length:
            yield "".join(held)

    def pieces(self) -> Iterator[bytes]:
        """Standard output as it comes. A reader that stops listening ends the child."""
        child, began = self._start(), time.monotonic()
        failure = "left"
        try:
            failure = yield from self._until_closed(child, began + self._timeout_s)
        finally:
            exit_code = children.end(child, began + self._timeout_s, broken=bool(failure))
            self._settle(failure or ("late" if exit_code is None else ""), exit_code, began)

    def _ended(self) -> Answer:
        return self.answer or Answer("", "", None, f"{self._program} was not read to the end")

    def _until_closed(
        self, child: subprocess.Popen[bytes], deadline: float
    ) -> Generator[bytes, None, str]:
        """Talk until both ends are closed; "late" or "long" when that did not come about."""
        received = complained = 0
        with selectors.DefaultSelector() as selector:
            self._register(child, selector)
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return "late"
                for key, _ in selector.select(left):
                    if self._is_done(key):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]  # one of the child's pipes
                received += len(self._out) + len(self._err) - complained
                del self._err[_COMPLAINTS:]
                complained = len(self._err)
                if received > self._most_bytes:
                    return "long"
                if self._out:
                    yield bytes(self._out)
                    self._out.clear()
        return ""

    def _register(self, child: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
        for pipe, event, into in (
            (child.stdout, selectors.EVENT_READ, self._out),
            (child.stderr, selectors.EVENT_READ, self._err),
            (child.stdin, selectors.EVENT_WRITE, None),
        ):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, event, into)

    def _is_done(self, key: selectors.SelectorKey) -> bool:
        """Write or read one piece; whether this pipe is at its end."""
        if key.data is not None:
            piece = os.read(key.fd, _PIECE)
            key.data.extend(piece)
            return not piece
        try:
            self._rest = self._rest[os.write(key.fd, self._rest[:_PIECE]) :]
        except BrokenPipeError:  # it stopped listening; what it says counts
            return True
        return not self._rest

    def _settle(self, failure: str, exit_code: int | None, began: float) -> None:
        message = {
            "": "",
            "left": f"{self._program} was not read to the end",
            "late": f"{self._program} gave no answer within {self._timeout_s:g} s",
            "long": f"{self._program} answered more than {self._most_bytes} bytes",
        }[failure]
        errors = self._err.decode("utf-8", "backslashreplace")
        answer = Answer("", errors, None if failure else exit_code, message)
        if failure != "left":
            self.answer = answer
        self._on_call(
            CallRecord(
                self._program,
                time.monotonic() - began,
                answer.exit_code == 0,
                failure == "late",
                answer.limited,
                answer.remarks(verbose=self._verbose),
            )
        )
