"""Where squeue's rows come from: from squeue itself, or for the most part from pyslurm."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rltuned.domain.kinds import Digester, Kinds
from rltuned.domain.snapshot import Unreadable
from rltuned.run import Call
from rltuned.slurm.columns import ASK_COLUMNS, TEXT_COLUMNS, Layout, Marks
from rltuned.slurm.pyslurm import Pyslurm, UnusableError, rows_of
from rltuned.slurm.run import Commands

TEXT: Final = "text"
PYSLURM: Final = "pyslurm"
REST_S: Final = 300.0
"""After a pyslurm that cannot be used text stands in for so long before it is tried again."""


@dataclass(frozen=True, slots=True)
class ReaderChoice:
    """What reads the queue. wanted, reader: TEXT or PYSLURM; detail: which pyslurm, or why none."""

    wanted: str
    reader: str
    detail: str = ""

    @property
    def stands_in(self) -> bool:
        return self.reader != self.wanted


@dataclass(frozen=True, slots=True)
class JobRows:
    """Rows as jobs.read_queue wants them: the columns of Layout.job_columns with these extras.

    unreadable: jobs whose records are no rows; kinds: of each job, by its number as squeue prints
    it. Both are complete when the rows are at their end, and a job's kinds when its row is there.
    """

    rows: Iterable[list[str]]
    extras: tuple[str, ...]
    unreadable: list[Unreadable] = field(default_factory=list)
    kinds: dict[str, Kinds] = field(default_factory=dict)


def squeue(commands: Commands, layout: Layout, columns: str, *args: str) -> Call:
    """One squeue over all records of this cluster, in the order of their numbers. columns: from
    Marks; every user could read them as an argument.
    """
    words = ("--local", "-a", layout.per_record, "-S", "i", *args)
    return commands.call("squeue", *words, environ={"SQUEUE_FORMAT2": columns})


class JobSource:
    """Rows of all jobs: from squeue alone, or from pyslurm with what they ask for from squeue.

    pyslurm is asked first: a job that only it knows has ended, one that only squeue knows is
    younger than the snapshot, and both are left out. Where pyslurm cannot be used, text stands in.

    pyslurm: how it is called; None = text alone. on_reading: called with what reads the jobs,
    whenever that changes and pyslurm is set. digester: makes the kinds, of squeue's texts in either
    case; None = nothing is asked for.
    """

    def __init__(
        self,
        commands: Commands,
        new_marks: Callable[[], Marks],
        pyslurm: Pyslurm | None,
        on_reading: Callable[[ReaderChoice], None],
        digester: Digester | None = None,
    ) -> None:
        self._commands = commands
        self._new_marks = new_marks
        self._pyslurm = pyslurm
        self._on_reading = on_reading
        self._digester = digester
        self._last: ReaderChoice | None = None
        self._rest_until = -float("inf")

    def read(self, layout: Layout, release: tuple[int, int], now: float) -> JobRows:
        """Every job record, now. Raises BackendError, SnapshotError."""
        bad, kinds = list[Unreadable](), dict[str, Kinds]()
        as_text = JobRows(
            self._columns(layout, layout.job_columns, bad, kinds), layout.extras, bad, kinds
        )
        if self._pyslurm is None or 0 < self._rest_until - now <= REST_S:
            return as_text
        try:
            answer = self._pyslurm.jobs(release)
        except UnusableError as error:
            self._rest_until = now + REST_S
            self._note(ReaderChoice(PYSLURM, TEXT, str(error)))
            return as_text
        self._note(ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {answer.version}"))
        more = tuple(name for name in layout.extras if name == "Exclusive")
        names = ("jobid", *ASK_COLUMNS, "accruetime", "deadline", *more)
        asks = self._columns(layout, names, bad, kinds)
        return JobRows(rows_of(answer, asks, bad), ("ExcNodes", *more, "CronJob"), bad, kinds)

    def reading(self, release: tuple[int, int]) -> ReaderChoice:
        """What would read the jobs now; raises as `read`."""
        if self._pyslurm is None:
            return ReaderChoice(TEXT, TEXT, "squeue, sinfo and sprio as text")
        try:
            answer = self._pyslurm.jobs(release)
        except UnusableError as error:
            return ReaderChoice(PYSLURM, TEXT, str(error))
        return ReaderChoice(PYSLURM, PYSLURM, f"pyslurm {answer.version}, {len(answer.jobs)} jobs")

    def _columns(
        self, layout: Layout, names: tuple[str, ...], bad: list[Unreadable], kinds: dict[str, Kinds]
    ) -> Iterator[list[str]]:
        """These columns of every record, or of every task where squeue parts arrays."""
        wanted = () if self._digester is None else self._digester.wanted
        texts = tuple(name for name in TEXT_COLUMNS if name in wanted)
        marks = self._new_marks()
        columns = marks.columns(names, texts)
        answer = squeue(self._commands, layout, columns, "--noconvert")
        broken: list[str] = []
        rows = marks.rows(answer, len(names), broken, len(texts))
        at, width = names.index("jobid"), len(names)
        if self._digester is None or not texts:
            yield from rows
        else:
            for row in rows:
                kinds[row[at]] = self._digester.kinds(texts, *row[width:])
                yield row[:width]
        bad += [Unreadable("job", "", why) for why in broken]

    def _note(self, reading: ReaderChoice) -> None:
        if reading != self._last:
            self._last = reading
            self._on_reading(reading)
