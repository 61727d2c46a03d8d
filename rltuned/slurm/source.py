"""Where squeue's rows come from: from squeue itself, or for the most part from pyslurm."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rltuned.domain.snapshot import Unreadable
from rltuned.slurm.columns import ASK_COLUMNS, Layout, Marks
from rltuned.slurm.commands import Commands, Stream
from rltuned.slurm.pyslurm import Pyslurm, UnusableError, rows_of
from rltuned.slurm.site import SlurmSite

TEXT: Final = "text"
PYSLURM: Final = "pyslurm"
REST_S: Final = 300.0
"""After a pyslurm that cannot be used text stands in for so long before it is tried again."""


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """Who reads the queue. wanted, reader: TEXT or PYSLURM; detail: which pyslurm, or why none."""

    wanted: str
    reader: str
    detail: str = ""

    @property
    def stands_in(self) -> bool:
        return self.reader != self.wanted


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as jobs.read_queue wants them: the columns of Layout.job_columns with these extras.

    unreadable: jobs whose records are no rows; complete when the rows are at their end.
    """

    rows: Iterable[list[str]]
    extras: tuple[str, ...]
    unreadable: list[Unreadable]


class Source(Protocol):
    """Who tells of the jobs."""

    def read(self, layout: Layout, site: SlurmSite, now: float) -> Rows:
        """Every job record, now.

        Raises:
            BackendError: nobody answered.
            SnapshotError: an answer could not be read.
        """
        ...

    def reading(self, site: SlurmSite) -> ReaderChoice:
        """Who would read now."""
        ...


def squeue(commands: Commands, layout: Layout, *args: str) -> Stream:
    """One squeue over all records of this cluster, in the order of their numbers."""
    return commands.stream("squeue", "--local", "-a", layout.per_record, "-S", "i", *args)


class Text:
    """All columns from one squeue."""

    def __init__(self, commands: Commands, marks: Marks) -> None:
        self._commands = commands
        self._marks = marks

    def read(self, layout: Layout, site: SlurmSite, now: float) -> Rows:  # noqa: ARG002 - the port's
        bad: list[Unreadable] = []
        return Rows(self.columns(layout, layout.job_columns, bad), layout.extras, bad)

    def columns(
        self, layout: Layout, names: tuple[str, ...], bad: list[Unreadable]
    ) -> Iterator[list[str]]:
        """These columns of every record, or of every task where squeue parts arrays."""
        said = squeue(self._commands, layout, "--noconvert", "-O", self._marks.columns(names))
        broken: list[str] = []
        yield from self._marks.rows("squeue", said, len(names), broken)
        bad += [Unreadable("job", "", why) for why in broken]

    def reading(self, site: SlurmSite) -> ReaderChoice:  # noqa: ARG002 - the port's
        return ReaderChoice(TEXT, TEXT, "squeue, sinfo and sprio as text")


class FromPyslurm:
    """What a job is and how it stands from pyslurm, what it asks for from squeue.

    pyslurm is asked first: a job that only it knows has ended, one that only squeue knows is
    younger than the look, and both are left out. Where pyslurm cannot be used, text stands in.

    Args:
        pyslurm: how it is called.
        text: the stand-in, and the reader of what pyslurm does not tell.
        heard: told who reads, whenever that changes.
    """

    def __init__(self, pyslurm: Pyslurm, text: Text, heard: Callable[[ReaderChoice], None]) -> None:
        self._pyslurm = pyslurm
        self._text = text
        self._heard = heard
        self._last: ReaderChoice | None = None
        self._rest_until = -float("inf")

    def read(self, layout: Layout, site: SlurmSite, now: float) -> Rows:
        if 0 < self._rest_until - now <= REST_S:
            return self._text.read(layout, site, now)
        try:
            told = self._pyslurm.jobs(site.version)
        except UnusableError as error:
            self._rest_until = now + REST_S
            self._say(ReaderChoice(PYSLURM, TEXT, str(error)))
            return self._text.read(layout, site, now)
        self._say(ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {told.version}"))
        more = tuple(name for name in layout.extras if name == "Exclusive")
        bad: list[Unreadable] = []
        names = ("jobid", *ASK_COLUMNS, "accruetime", "deadline", *more)
        asks = self._text.columns(layout, names, bad)
        return Rows(rows_of(told, asks, bad), ("ExcNodes", *more, "CronJob"), bad)

    def reading(self, site: SlurmSite) -> ReaderChoice:
        try:
            told = self._pyslurm.jobs(site.version)
        except UnusableError as error:
            return ReaderChoice(PYSLURM, TEXT, str(error))
        return ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {told.version}, {len(told.jobs)} jobs")

    def _say(self, reading: ReaderChoice) -> None:
        if reading != self._last:
            self._last = reading
            self._heard(reading)
