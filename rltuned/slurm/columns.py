"""What rltuned asks Slurm to print, pinned, and the reading of tables that cannot be forged.

Every table is asked for with a control character between fields, a mark of this call at the end of
each record, and its header: that proves that an answer came at all, and that Slurm knows every
column (for a name it does not know it prints an error, leaves the column empty, and ends with 0).
The mark is random, and squeue and sprio take it from their environment, which no other user can
read: whoever puts separators, newlines or a forged row into an account, a job's name or its folder
cannot know it. sinfo, which prints no text of a user's, takes it as an argument. The account comes
last of the fields, and job names, commands and folders behind it, parted by a second mark and cut
to a width; they are asked for where a Digester takes them, a comment of a job that is explained.
"""

import secrets
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Final, NamedTuple

from rltuned.domain.kinds import WIDTHS, KindName
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.values import absent, expand_hosts, parse_epoch
from rltuned.text import one_line

FIELD: Final = "\x1f"
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one record: an array of four million tasks, every other one of them, takes half of it."""


NodeRow = namedtuple(
    "NodeRow",
    "nodelist statecomplete cpusstate memory allocmem gres gresused features_act partition "
    "available time defaulttime prioritytier priorityjobfactor oversubscribe",
)
"""The columns of sinfo -N -O, all texts: one row per node and partition."""
PriorityRow = namedtuple(
    "PriorityRow", "job_id priority site age fairshare jobsize partition qos assoc tres nice"
)
"""The columns of sprio -o, which has letters and no names."""
PRIORITY_LETTERS: Final = "iYSAFJPQBTN"


ASK_COLUMNS: Final = (
    "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task",
    "cpus-per-tres", "mem-per-tres", "minmemory", "mincpus", "numcpus", "numtasks", "numnodes",
    "feature", "oversubscribe", "timelimit", "licenses", "contiguous", "corespec", "mintmpdisk",
    "partition",
)  # fmt: skip
"""What makes up a request, as squeue -O spells it; equal ones share one Request object."""
UNDO_COLUMNS: Final = (
    "jobid", "arrayjobid", "arraytaskid", "statecompact", "reason", "prioritylong", "nice",
    "submittime", "hetjobid", "hetjoboffset", "oversubscribe", "partition",
)  # fmt: skip
"""What a restore asks for; partitions last, as people name them."""
WATCH_COLUMNS: Final = UNDO_COLUMNS[:-1]
"""What the look back after writing asks for."""


@lru_cache(maxsize=1024)
def text(value: str) -> str:
    """A word of Slurm's; empty where it says that there is none. Jobs share the same words."""
    return "" if absent(value) else intern(value)


@lru_cache(maxsize=1024)
def word_list(words: str) -> tuple[str, ...]:
    """Words with commas between; jobs share equal ones."""
    return tuple(words.split(","))


FIELDS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = MappingProxyType(
    {
        "reason": ("reason", text),
        "eligibletime": ("eligible_at", parse_epoch),
        "username": ("user", intern),
        "qos": ("qos", text),
        "reqnodes": ("required_nodes", expand_hosts),
        "dependency": ("dependency", text),
        "reservation": ("reservation", text),
        "accruetime": ("accrue_at", parse_epoch),
        "deadline": ("deadline_at", parse_epoch),
        "account": ("account", text),
        "oversubscribe": ("oversubscribe", intern),
        "ExcNodes": ("excluded_nodes", expand_hosts),
        "CronJob": ("cron", lambda word: word.lower() in {"yes", "1", "true"}),
    }
)
"""By column the field of a job that it gives, and how it is read. One more column of a job is one
more line here; squeue.py reads what names a job, and what its standing follows from."""
_IN_ORDER: Final = (
    *ASK_COLUMNS, "jobid", "arrayjobid", "arraytaskid", "statecompact", "reason", "prioritylong",
    "nice", "submittime", "eligibletime", "starttime", "username", "qos", "reqnodes", "dependency",
    "reservation", "hetjobid", "hetjoboffset", "nodelist", "accruetime", "deadline",
)  # fmt: skip
EXTRA_COLUMNS: Final = ("ExcNodes", "Exclusive", "CronJob")
"""Columns of newer releases only (excluded nodes since 24.11, the other two in 26.05); before that
excluded nodes and scrontab jobs are not known, and OverSubscribe tells of whole nodes."""
_LAST: Final = "account"
JOB_COLUMNS: Final = (
    *_IN_ORDER, *(n for n in FIELDS if n not in {*_IN_ORDER, *EXTRA_COLUMNS, _LAST}), _LAST
)  # fmt: skip
NODE_COLUMNS: Final = NodeRow._fields
TEXT_COLUMNS: Final[Mapping[KindName, str]] = MappingProxyType(
    {"name": "name", "command": "command", "work_dir": "workdir"}
)
"""The columns of squeue -O that kinds are made of. No release has one for the submit line."""


ROW_PER_TASK: Final = "-r"


class Layout(NamedTuple):
    """How this release's squeue is asked. per_record: the option for a row per record of an array;
    where --array-unique is gone, -r prints a row per task, without the throttle.
    """

    per_record: str
    job_columns: tuple[str, ...]


def read_layout(usage: str, known_columns: str) -> Layout:
    """The layout that fits a release, by `squeue --help` and --helpFormat, "" = lacking."""
    names = {name.lower() for name in known_columns.split()}
    extras = (name for name in EXTRA_COLUMNS if name.lower() in names)
    per_record = "--array-unique" if "--array-unique" in usage.split() else ROW_PER_TASK
    return Layout(per_record, (*JOB_COLUMNS[:-1], *extras, _LAST))


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one call: at the end of each record, and in front of each user's text."""

    record: str = field(default_factory=lambda: "\x1e" + secrets.token_hex(6))
    text: str = field(default_factory=lambda: FIELD + secrets.token_hex(6))

    def columns(self, names: tuple[str, ...], texts: tuple[KindName, ...] = ()) -> str:
        """As SQUEUE_FORMAT2 and sinfo -O take it; texts: columns of TEXT_COLUMNS to come last."""
        wide = [f"{names[-1]}:", *(f"{TEXT_COLUMNS[t]}:{WIDTHS[t]}" for t in texts)]
        last = f"{self.text},".join(wide) + self.record
        return ",".join([*(f"{n}:{FIELD}" for n in names[:-1]), last])

    def letters(self, letters: str) -> str:
        """As SPRIO_FORMAT takes it."""
        return FIELD.join(f"%{letter}" for letter in letters) + self.record

    def rows(
        self,
        answer: Call,
        width: int,
        broken: list[str] | None = None,
        texts: int = 0,
    ) -> Iterator[list[str]]:
        """The records of an answer, without the header; each has `width` fields, then the texts.

        broken: takes what is wrong with records of another width; None = there may be none. texts:
        the number of columns of TEXT_COLUMNS behind them. Raises BackendError: the command failed;
        SnapshotError: the answer is empty or cut, a column is unknown, a record is broken that may
        not be, or all records are. A whole answer is used whatever the command says beside it.
        """
        answer.must_be_good()
        try:
            yield from self._rows(answer, width, broken, texts)
        except SnapshotError as error:  # what it complains of says more
            complaint = _complaint(answer)
            raise SnapshotError(f"{complaint}: {error}" if complaint else str(error)) from None

    def _rows(
        self, answer: Call, width: int, broken: list[str] | None, texts: int
    ) -> Iterator[list[str]]:
        wrong, good = "", 0
        for number, record in enumerate(self._records(answer)):
            fields, *last = record.rsplit(self.text, texts) if texts else [record]
            row = [*fields.split(FIELD, width - 1 if number else -1), *last]
            if len(row) == width + texts == width + len(last) and (number or all(row)):
                good += number > 0
                if number:
                    yield row
                continue
            # without the texts: they are never quoted
            shown = one_line(" ".join(fields.split(FIELD)), 120)
            if not number:
                raise SnapshotError(
                    f"{answer.program}: the header has not the {width + texts} columns that were "
                    f"asked for: {shown}"
                )
            wrong = (
                f"{answer.program}: record {number} has {len(row)} of {width + texts} columns: "
                f"{shown}"
            )
            if broken is None:
                raise SnapshotError(wrong)
            broken.append(wrong)
        if wrong and not good:
            raise SnapshotError(wrong)

    def _records(self, answer: Call) -> Iterator[str]:
        """What stands before each mark."""
        count, held = -1, ""
        try:
            for count, record in enumerate(answer.parts(f"{self.record}\n".encode(), MOST_BYTES)):
                if count:
                    yield held
                held = record
        except BackendError as error:
            why = "" if count >= 0 else ": the answer has no header"
            raise SnapshotError(f"{error}{why}") from None
        if not count:
            raise SnapshotError(
                f"{answer.program}: the answer has no header: {one_line(held, 80)!r}"
            )
        if held:
            raise SnapshotError(f"{answer.program}: the answer is cut after {count - 1} records")


def _complaint(answer: Call) -> str:
    lines = [line for line in answer.stderr.splitlines() if "error" in line.lower()]
    return f"{answer.program} complained: {one_line(lines[0])}" if lines else ""
