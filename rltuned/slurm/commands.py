"""The one door to other programs: argument lists, a timeout that holds, bounded answers."""

import os
import shutil
import subprocess
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rltuned.errors import BackendError
from rltuned.slurm.talk import Answer, CallRecord, Talk

_KEPT: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ")
WHOLE_BYTES: Final = 8 * 1024 * 1024
"""A longer answer is refused where it is held as a whole: configuration, statistics, partitions."""
LINE_CHARACTERS: Final = 1024 * 1024
"""A longer line of a streamed answer is none of Slurm's."""
_QUOTED: Final = 2_000
"""So much of a long answer is kept, for a message."""


@dataclass(frozen=True, slots=True)
class SlurmCli:
    """How Slurm's commands are called.

    Attributes:
        bin_dir: where squeue, sinfo, sprio and scontrol are; None = look through PATH.
        conf: slurm.conf; None = the place Slurm was built with. SLURM_CONF of the surrounding
            environment is never used, so that a stray export cannot point rltuned at another
            cluster.
        timeout_s: the longest that one command may take, whatever it starts itself.
        chunk: the most updates in one scontrol; a controller that dies costs one chunk's timeout.
        max_answer_bytes: a longer answer is refused, even one that is read as it comes; see also
            WHOLE_BYTES.
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

    Args:
        cli: the knobs.
        on_call: called with every finished call; must not raise.
        environ: where PATH, HOME, LD_LIBRARY_PATH and TZ are taken from. Nothing else passes: with
            SLURM_JOB_ID some updates write files, and SQUEUE_FORMAT and its kin change the answers.
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
        _must_succeed(program, answer)
        return answer

    def stream(
        self,
        program: str,
        *args: str,
        feed: str | None = None,
        at: Path | None = None,
        most_bytes: int | None = None,
    ) -> "Stream":
        """Run a command that must succeed and may say very much; arguments as of `open`.

        Nothing is run before the first piece is taken.
        """
        return Stream(
            lambda: self.open(program, *args, feed=feed, at=at, most_bytes=most_bytes), program
        )

    def call(
        self, program: str, *args: str, feed: str | None = None, at: Path | None = None
    ) -> Answer:
        """Run a command and return whatever came of it, WHOLE_BYTES at most.

        Args:
            program: its bare name.
            args: its arguments, passed as they are; no shell ever sees them.
            feed: text for its standard input; None = an empty one.
            at: where it is, for one that is not Slurm's own.
        """
        talk = self.open(program, *args, feed=feed, at=at, most_bytes=WHOLE_BYTES)
        said = bytearray()
        for piece in talk.pieces():
            said += piece
        return replace(talk.answer, stdout=said.decode("utf-8", "backslashreplace"))

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

    def open(
        self,
        program: str,
        *args: str,
        feed: str | None = None,
        at: Path | None = None,
        most_bytes: int | None = None,
    ) -> Talk:
        """Start a command; as `call`. most_bytes: of the answer; None = as the knobs say."""
        path = self._find(program, at)
        try:
            child = subprocess.Popen(
                [path, *args],
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
        most = self.cli.max_answer_bytes
        bounds = self.cli.timeout_s, min(most, most_bytes or most)
        return Talk(child, program, (feed or "").encode(), bounds, self._on_call)


def _must_succeed(program: str, answer: Answer) -> None:
    if answer.failure:
        raise BackendError(answer.failure)
    if answer.exit_code != 0:
        said = one_line(answer.stderr) or one_line(answer.stdout) or "no message"
        raise BackendError(f"{program} ended with {answer.exit_code}: {said}")


class Stream:
    """What a command says, piece by piece, so that a long answer is never in memory as a whole.

    Attributes:
        answer: what became of it, without its standard output; None until the pieces are at their
            end.
    """

    def __init__(self, start: Callable[[], Talk], program: str) -> None:
        self._start = start
        self._program = program
        self.answer: Answer | None = None

    @property
    def stderr(self) -> str:
        """What it complained of; empty until the pieces are at their end."""
        return self.answer.stderr if self.answer else ""

    def __iter__(self) -> Iterator[str]:
        """The text of its standard output."""
        decoder = getincrementaldecoder("utf-8")("backslashreplace")
        talk = self._start()
        said = ""
        for piece in talk.pieces():
            text = decoder.decode(piece)
            said = said or text[:_QUOTED]
            yield text
        self.answer = talk.answer
        _must_succeed(self._program, replace(talk.answer, stdout=said))

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
