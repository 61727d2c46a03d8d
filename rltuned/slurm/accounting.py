"""slurmdbd's history: asking sacct in portions that stay small, and rows -> records.

A job is shown in every portion in which it was pending or running, as it is now, so each record is
taken once. Times are epochs (SLURM_TIME_FORMAT=%s), because a local time is ambiguous for an hour a
year; `--duplicates` keeps the earlier runs of requeued jobs, which held GPUs too. Unknown is not
zero: a row that cannot be read with certainty is left out and counted by its reason.
"""

import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from operator import attrgetter
from sys import intern
from types import MappingProxyType
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import JobRun, Request, RunningJob
from rltuned.domain.kinds import NO_KINDS, WIDTHS, Digester, KindName, Kinds
from rltuned.domain.units import GpuType, JobId, UnixTime
from rltuned.errors import BackendError, TraceError
from rltuned.run import LINE_BYTES
from rltuned.slurm.columns import FIELD
from rltuned.slurm.run import Commands
from rltuned.slurm.values import Tasks, absent, parse_limit_s, parse_tasks, parse_tres

ELAPSED: Final = "ElapsedRaw"
"""Without the time that a job was suspended."""
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Submit", "Eligible", "Start", "End", ELAPSED, "State", "TimelimitRaw",
    "ReqTRES", "AllocTRES", "NodeList", "Partition", "User", "Account", "QOS", "Priority", "Flags",
    "Reservation", "Constraints",
)  # fmt: skip
TEXT_COLUMNS: Final[Mapping[KindName, str]] = MappingProxyType(
    {"name": "JobName", "work_dir": "WorkDir", "submit_line": "SubmitLine"}
)
"""The columns that kinds are made of. sacct has none for the script or the command."""


_OF_USERS: Final = frozenset({"Account", "Constraints", *TEXT_COLUMNS.values()})
"""Texts that users choose: accounts too, where associations are not enforced."""
_LONGEST: Final = max(WIDTHS.values())
"""More of a text makes no difference to its kind."""
SHORTEST_PORTION_S: Final = 60.0
MOST_RECORDS: Final = 400_000
"""About 800 bytes each, with what is remembered of the job. A longer history is refused, not cut:
--since chooses what counts."""


def sacct_words(since: float, until: float, names: tuple[str, ...] = COLUMNS) -> tuple[str, ...]:
    """The words after `sacct` for all records that were pending or running between two moments."""
    first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in (since, until))
    span = f"--starttime={first}", f"--endtime={last}", f"--format={','.join(names)}"
    return ("--allusers", "--allocations", "--duplicates", "--parsable2", "--noheader", *span)


def ask_rows(
    commands: Commands, since: float, until: float, names: tuple[str, ...]
) -> Iterator[list[str]]:
    """Rows of these columns. What users choose is asked for in a call of its own, and matched by
    job id and submit time: sacct takes its delimiter as an argument, which every user can read. A
    row lacks it where it is not known, or in doubt. Where slurmdbd refuses so long a time
    (MaxQueryTimeRange), it is asked for in parts. Raises BackendError; TraceError: there are too
    many records.
    """
    try:
        texts = _texts(commands, since, until, tuple(n for n in names if n in _OF_USERS))
    except BackendError as error:
        if "date range" not in str(error) or until - since <= SHORTEST_PORTION_S:
            raise
        middle = float(round((since + until) / 2))
        yield from ask_rows(commands, since, middle, names)
        yield from ask_rows(commands, middle, until, names)
        return
    own = tuple(name for name in names if name not in _OF_USERS)
    words = (*sacct_words(since, until, own), f"--delimiter={FIELD}")
    for line in commands.call("sacct", *words).lines():
        cells = dict(zip(own, line.split(FIELD), strict=False))
        known = texts.get((cells.get("JobIDRaw", ""), cells.get("Submit", "")))
        if len(cells) == len(own) and known is not None:
            told = iter(known)
            yield [cells[name] if name in cells else next(told) for name in names]
        else:
            yield [*cells.values()]


def _texts(
    commands: Commands, since: float, until: float, names: tuple[str, ...]
) -> dict[tuple[str, str], tuple[str, ...] | None]:
    """The texts of users by job id and submit time; None = in doubt. A text may hold line ends, and
    what looks like a row of another job: then that job has two rows, and neither is believed.
    """
    mark = FIELD + secrets.token_hex(6)
    # the number once more closes a row, which no line end can do
    words = sacct_words(since, until, ("JobIDRaw", "Submit", *names, "JobIDRaw"))
    found: dict[tuple[str, str], tuple[str, ...] | None] = {}
    for row in _rows_of(commands.call("sacct", *words, f"--delimiter={mark}").lines(), mark):
        cells = row.split(mark)
        key = cells[0], cells[1]
        if "." in key[0]:  # a step
            continue
        whole = len(cells) == len(names) + 3 and cells[0] == cells[-1] and key not in found
        found[key] = tuple(intern(cell[:_LONGEST]) for cell in cells[2:-1]) if whole else None
        if len(found) > MOST_RECORDS:
            raise TraceError(f"sacct: more than {MOST_RECORDS} records: choose a later --since")
    return found


def _rows_of(lines: Iterator[str], mark: str) -> Iterator[str]:
    """Each with the lines after it that begin none; of one that is too long the end is lacking."""
    begins = re.compile(f"[0-9][0-9A-Za-z.+]*{mark}[0-9A-Za-z]+{mark}")
    held, length = list[str](), 0
    for line in lines:
        if begins.match(line):
            if held:
                yield "\n".join(held)
            held, length = [line], len(line)
        elif held and length <= LINE_BYTES:
            held.append(line)
            length += len(line) + 1
    if held:
        yield "\n".join(held)


_NEVER: Final = frozenset({"CANCELLED", "DEADLINE", "FAILED", "REVOKED"})
"""How a job may end that never started."""
_OPEN: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING"})
_RAW: Final = re.compile("[0-9]{1,10}")
_NAMED: Final = re.compile(r"[0-9]{1,10}(_([0-9]{1,10}|\[.*\]))?(\+[0-9]{1,10})?")
LATEST_S: Final = 1e11
"""The year 5138. A later time is none of sacct's."""
NOT_ASKED: Final = "*"
"""What NodeList has where sacct was not asked for it."""
RESIZED: Final = "the part of a job before it was resized; the job counts once, as a whole"
AGAIN: Final = "the same record again"
CONTRARY: Final = "rows of this job contradict each other: one is not true"
STEPS: Final = "steps of jobs"
"""A reason to leave a row out that is no fault of the row."""
_BLANK: Final = {name: "" for name in COLUMNS if name != "TimelimitRaw"} | {"NodeList": NOT_ASKED}
"""What a row has where a column was not asked for."""
SHORTEST_S: Final = 1.0
"""sacct counts whole seconds."""
LATE_S: Final = 3_600.0
"""A job that seems to run so long past its limit has ended without slurmdbd knowing it."""


class LeaveOut(Exception):  # noqa: N818 - no error: a row that is left out, with its reason
    """Raised where it is found out; args[0] is the reason."""


@dataclass(frozen=True, slots=True)
class SacctRecord:
    """One record of accounting. start_s, end_s: Unix seconds, None = not yet. limit_s: inf = none.

    gpus, cpus, mem_mib, nodes: what it asked for. priority: the last one that slurmdbd recorded,
    None = not recorded. tasks: of an array that waits undivided. het: a part of a heterogeneous
    job. line: from 1. suspended_s: of the time between start and end. array: number of the array
    that it is a task of; task: which, None = several or none. key: JobIDRaw, or JobID where that is
    all there is. waits: the tasks that wait undivided. looked_s: how long one that has not ended
    had run.
    """

    key: str
    submit_s: float
    eligible_s: float
    start_s: float | None
    end_s: float | None
    state: str
    limit_s: float
    gpus: int
    gpu_types: tuple[str, ...]
    cpus: int
    mem_mib: int | None
    nodes: int | None
    alloc_gpus: int
    alloc_cpus: int
    partition: str
    user: str
    account: str
    qos: str
    where: str
    priority: int | None
    main: bool
    tasks: int = 1
    het: bool = False
    reserved: bool = False
    constrained: bool = False
    line: int = 0
    suspended_s: float = 0.0
    array: str = ""
    task: int | None = None
    kinds: Kinds = NO_KINDS
    waits: tuple[Tasks, ...] = ()
    looked_s: float = 0.0

    @property
    def ran_s(self) -> float | None:
        """How long it ran, without suspensions, at least SHORTEST_S; None = not to its end."""
        if self.start_s is None or self.end_s is None:
            return None
        return max(SHORTEST_S, self.end_s - self.start_s - self.suspended_s)

    @property
    def request(self) -> Request:
        """What it asked for."""
        size = Resources(self.gpus, self.cpus, self.mem_mib or 0)
        return Request(size, self.limit_s, tuple(map(GpuType, self.gpu_types)), self.nodes)

    @property
    def number(self) -> tuple[int, ...]:
        """Its place among jobs of the same moment: number, and task or part."""
        return tuple(map(int, re.findall("[0-9]{1,18}", self.key)))


OF_A_TRACE: Final = ("gpus", "gpu_types", "nodes", "partition", "user", "account", "qos")
"""What a job of a trace has by the same name."""


@dataclass(slots=True)
class SacctAnswer:
    """What a source reported. left_out: reason -> rows. lines: reason -> which lines, from 1.
    missing: columns that the source lacks. zoneless: times that named no time zone.
    """

    records: list[SacctRecord] = field(default_factory=list)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    lines: dict[str, list[int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    zoneless: int = 0

    def leave_out(self, reason: str, line: int) -> None:
        """Count a row that is not used."""
        self.left_out[reason] += 1
        self.lines.setdefault(reason, []).append(line)


_Key = tuple[str, float]
"""A job id, and when it was submitted: a requeued job has several records."""
_Times = tuple[float, float, float | None, float | None]


class Reading:
    """What is known while the rows of a history are read, in whatever order and however often.

    A row with an end says most of its record, and else the one of the later look. names: the
    columns of every row. digester: makes the kinds.
    """

    def __init__(
        self, names: tuple[str, ...], zone: tzinfo, since: float, digester: Digester | None
    ) -> None:
        self._found = SacctAnswer(missing=tuple(c for c in COLUMNS if c not in names))
        self._names, self._zone, self._since, self._digester = names, zone, since, digester
        wanted = () if digester is None else digester.wanted
        self._texts = {k: c for k, c in TEXT_COLUMNS.items() if k in wanted and c in names}
        self._known: dict[_Key, SacctRecord] = {}
        self._gone: set[_Key] = set()
        """Those of which a row with an end is left out: no earlier look at them counts either."""
        self._doubted: set[_Key] = set()

    def take(self, source: str, line: int, cells: Callable[[], list[str]]) -> None:
        """Take a row, or count why not. Raises TraceError: there are too many records."""
        found = self._found
        found.rows += 1
        try:
            self._add(self._row(cells()), line)
        except LeaveOut as why:
            found.leave_out(str(why), line)
        except (ValueError, OverflowError) as error:
            found.leave_out(f"cannot be read: {error}"[:120], line)
        if len(self._known) > MOST_RECORDS:
            raise TraceError(f"{source}: more than {MOST_RECORDS} records: choose a later --since")

    def end(self) -> SacctAnswer:
        """Each job once; there are no more rows."""
        found, waiting = self._found, list[_Key]()
        runs: dict[_Key, list[SacctRecord]] = {}
        tasks: dict[_Key, list[int]] = {}
        for key, record in self._known.items():
            if record.task is not None:
                tasks.setdefault((record.array, record.submit_s), []).append(record.task)
            if key in self._doubted:
                found.leave_out(CONTRARY, record.line)
            elif key in self._gone and record.end_s is None:
                found.leave_out(AGAIN, record.line)
            elif record.start_s is None:
                waiting.append(key)
            else:
                runs.setdefault((record.key, record.start_s), []).append(record)
        records = [one for parts in runs.values() for one in self._joined(parts)]
        for key in waiting:
            record = self._known[key]
            apart = tasks.get((record.array, record.submit_s), []) if record.waits else []
            left = record.tasks - sum(any(u.holds(task) for u in record.waits) for task in apart)
            if left > 0:
                records.append(record if left == record.tasks else replace(record, tasks=left))
            else:
                found.leave_out(AGAIN, record.line)
        found.records = sorted(records, key=attrgetter("line"))
        return found

    def _joined(self, parts: list[SacctRecord]) -> Iterator[SacctRecord]:
        """Records of one id that started at one moment. One that is resized gets a new record, with
        the old start and the moment of the change as its submit time.
        """
        parts.sort(key=attrgetter("submit_s"))
        whole = [part for part in parts if part.submit_s <= (part.start_s or 0.0)]
        *before, last = parts
        if not whole or len(whole) == len(parts):
            yield from whole
            for part in parts[len(whole) :]:
                self._found.leave_out("starts before it is submitted (clocks)", part.line)
            return
        first = whole[-1]
        yield from whole[:-1]
        yield replace(last, submit_s=first.submit_s, eligible_s=first.eligible_s)
        for part in before[len(whole) - 1 :]:
            self._found.leave_out(RESIZED, part.line)

    def _row(self, cells: list[str]) -> dict[str, str]:
        """By column, with those that every row has. Raises LeaveOut, ValueError."""
        if len(cells) != len(self._names):
            raise ValueError(f"{len(cells)} fields instead of {len(self._names)}")
        row = dict(zip(self._names, (c.strip() for c in cells), strict=True))
        name = "JobIDRaw" if "JobIDRaw" in row else "JobID"
        key = row["JobIDRaw"] = row.get("JobIDRaw") or row["JobID"]
        if "." in key.partition("[")[0]:  # not the dots of a list of tasks that is cut
            raise LeaveOut(STEPS)
        if not (_RAW if name == "JobIDRaw" else _NAMED).fullmatch(key):
            raise ValueError(f"{name} is no number")
        return _BLANK | row

    def _add(self, row: Mapping[str, str], line: int) -> None:
        """Take a row, or leave out what it or an earlier one says. Raises LeaveOut, ValueError."""
        record = _record(row, line, self._times(row), self._kinds(row))
        # without JobIDRaw its name changes with the tasks that wait
        key = f"{record.array}_[" if "[" in record.key else record.key, record.submit_s
        before = self._known.get(key)
        if before is not None:
            runs = [(one.start_s, one.end_s, one.user) for one in (before, record)]
            if None not in {record.end_s, before.end_s} and runs[0] != runs[1]:
                self._doubted.add(key)
            mine, other = _said(record), _said(before)
            # which of two came first does not matter
            if mine < other or (mine == other and _bare(record) <= _bare(before)):
                raise LeaveOut(AGAIN)
            self._found.leave_out(AGAIN, before.line)
        self._known[key] = record

    def _kinds(self, row: Mapping[str, str]) -> Kinds:
        if self._digester is None:
            return NO_KINDS
        # a job without a name is shown as "allocation"
        texts = ("" if row[c] == "allocation" else row[c] for c in self._texts.values())
        return self._digester.kinds(tuple(self._texts), *texts)

    def _times(self, row: Mapping[str, str]) -> _Times:
        """Submit, eligible, start and end in Unix seconds; None = not yet. Eligible: dependencies,
        --begin and holds are over then. Raises LeaveOut: they do not fit; ValueError.
        """
        columns = ("Submit", "Eligible", "Start", "End")
        submit_s, eligible_s, start_s, end_s = (self._moment(row[c], c) for c in columns)
        if submit_s is None:
            raise LeaveOut("no submit time")
        # a job that ended waiting has a start as well, and no node
        if absent(row["NodeList"]) and row["NodeList"] != NOT_ASKED:
            start_s = None
        why = _unfit(row["State"].split(" ")[0], start_s, end_s, self._since)
        if why:
            self._gone |= {(row["JobIDRaw"], submit_s)} if end_s is not None else set()
            raise LeaveOut(why)
        known = max(submit_s, submit_s if eligible_s is None else eligible_s)
        return submit_s, known if start_s is None else min(known, start_s), start_s, end_s

    def _moment(self, text: str, name: str) -> float | None:
        """Unix seconds; None = Slurm says that it is not known (yet)."""
        if absent(text) or text in {"0", "None"}:
            return None
        zoneless = False
        try:
            if text.isascii() and text.isdigit():
                found = float(text)
            else:
                when = datetime.fromisoformat(text)
                zoneless = when.tzinfo is None
                found = (when.replace(tzinfo=self._zone) if zoneless else when).timestamp()
        except (ValueError, OverflowError):
            found = -1.0
        if not 0 <= found < LATEST_S:
            raise ValueError(f"{name} is no time")
        self._found.zoneless += zoneless
        return found


def _unfit(state: str, start_s: float | None, end_s: float | None, since: float) -> str:
    """Why a row with these times is left out; empty = it is not."""
    if end_s is not None and end_s < since:
        return "ended before the record begins"
    if start_s is None and state in _NEVER:
        return "ended while it waited (cancelled, or never could start)"
    if start_s is None:
        return "" if state in {"PENDING", ""} else f"state {state} without a start"
    if end_s is None:
        return f"state {state} without an end" if state and state not in _OPEN else ""
    return "ends before it starts (clocks)" if end_s < start_s else ""


def _record(row: Mapping[str, str], line: int, times: _Times, kinds: Kinds) -> SacctRecord:
    """Raises LeaveOut, ValueError."""
    asked, given = parse_tres(row["ReqTRES"]), parse_tres(row["AllocTRES"])
    if not asked and not given:
        raise LeaveOut("neither ReqTRES nor AllocTRES")
    types = {n.partition(":")[2] for n, v in asked.items() if v and n.startswith("gres/gpu:")}
    if len(types) > 1:
        raise LeaveOut("asks for several types of GPUs at once")
    array, _, task = row["JobID"].partition("_")
    waits = _waiting_tasks(row["JobID"]) if times[2] is None else ()
    nodes = [n for n in (asked.get("node", 0), given.get("node", 0)) if n > 1]
    names_gpus = any(name.startswith("gres/gpu") for name in asked)
    return SacctRecord(
        row["JobIDRaw"],
        *times,
        state=intern(row["State"].split(" ")[0]),
        limit_s=_limit_s(row),
        gpus=_gpus_of(asked if names_gpus or not given else given),
        gpu_types=tuple(map(intern, types)),
        cpus=max(1, asked.get("cpu", given.get("cpu", 1))),
        mem_mib=asked.get("mem", given.get("mem")),
        nodes=nodes[0] if nodes else None,
        alloc_gpus=_gpus_of(given),
        alloc_cpus=given.get("cpu", 0),
        partition=intern(row["Partition"].split(",")[0]),
        user=intern(row["User"]),
        account=intern(row["Account"]),
        qos=intern(row["QOS"]),
        where=intern("" if absent(row["NodeList"]) else row["NodeList"].strip(NOT_ASKED)),
        priority=(int(row["Priority"]) if row["Priority"].isdecimal() else 0) or None,
        main="SchedMain" in row["Flags"],
        tasks=max(1, sum(some.count for some in waits)),
        het="+" in row["JobID"],
        reserved=bool(row["Reservation"]),
        constrained=bool(row["Constraints"]),
        line=line,
        suspended_s=_suspended_s(row, *times[2:]),
        array=array if task else "",
        task=int(task) if _RAW.fullmatch(task) else None,
        kinds=kinds,
        waits=waits,
        looked_s=_elapsed_s(row) or 0.0 if times[3] is None else 0.0,
    )


def _gpus_of(tres: Mapping[str, int]) -> int:
    """All GPUs of a TRES list, typed or not."""
    typed = sum(n for name, n in tres.items() if name.startswith("gres/gpu:"))
    return tres.get("gres/gpu", typed)


def _limit_s(row: Mapping[str, str]) -> float:
    """The time limit in seconds; inf = none is known."""
    if "TimelimitRaw" not in row:
        known = parse_limit_s(row["Timelimit"])
        return math.inf if known is None else known
    text = row["TimelimitRaw"]
    if text in {"UNLIMITED", "Partition_Limit", "INVALID", ""}:
        return math.inf
    if not _RAW.fullmatch(text):
        raise ValueError("TimelimitRaw is no number of minutes")
    return max(60.0, 60.0 * int(text))


def _waiting_tasks(job_id: str) -> tuple[Tasks, ...]:
    """Of an array that waits undivided, `17_[1-5]`; cut lists count as far as they go."""
    _, bracket, listed = job_id.partition("_[")
    found = list[Tasks]()
    for part in listed.rstrip("]").partition("%")[0].split(",") if bracket else ():
        if part.endswith("..."):  # where sacct cuts the list (SLURM_BITSTR_LEN)
            break
        found.append(parse_tasks(part))
    return tuple(found)


def _elapsed_s(row: Mapping[str, str]) -> float | None:
    """How long it has run, without suspensions; None = the source does not say."""
    elapsed, shown = row.get(ELAPSED, ""), row.get("Elapsed", "")
    if _RAW.fullmatch(elapsed):
        return float(elapsed)
    return None if absent(shown) else parse_limit_s(shown) or 0.0


def _suspended_s(row: Mapping[str, str], start_s: float | None, end_s: float | None) -> float:
    """By how much sacct's elapsed time is shorter than that between start and end, or what it says
    of it itself; 0 where it says neither.
    """
    if start_s is None or end_s is None:
        return 0.0
    elapsed_s = _elapsed_s(row)
    lost_s = parse_limit_s(row.get("Suspended", "")) or 0.0
    lost_s = lost_s if elapsed_s is None else end_s - start_s - elapsed_s
    return min(end_s - start_s, max(0.0, lost_s))


def _said(one: SacctRecord) -> tuple[float, ...]:
    """More of two rows about one record says the one with the greater."""
    ends, starts = one.end_s is not None, one.start_s is not None
    return ends, starts, one.start_s or 0.0, one.looked_s, -one.tasks


def _bare(record: SacctRecord) -> str:
    return repr(replace(record, line=0))


MOST_ENDED: Final = 50_000
"""So many of the latest are enough: every key forgets with each job that ends."""
PORTION_S: Final = 21_600.0
_BY_ITSELF: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"})
"""How a run may end that says how long the job runs. One that a node's failure, a preemption or a
requeue ended says nothing."""


def ended_jobs(
    commands: Commands,
    since: float,
    until: float,
    digester: Digester | None,
    most: int = MOST_ENDED,
) -> list[JobRun]:
    """Jobs that ran and ended by themselves between two moments, first end first; `most` of the
    latest. commands: with TZ=UTC. Raises BackendError: sacct failed; TraceError: too many records.
    """
    wanted = () if digester is None else digester.wanted
    texts = tuple(column for kind, column in TEXT_COLUMNS.items() if kind in wanted)
    found, end = list[JobRun](), until
    while end > since and len(found) < most:
        begin = max(since, end - PORTION_S)
        # a submit line may be a megabyte long: without the texts the times are still known
        for names, digests in ((texts, digester), ((), None)):
            try:
                reading = Reading((*COLUMNS, *names), UTC, -math.inf, digests)
                for line, row in enumerate(ask_rows(commands, begin, end, (*COLUMNS, *names)), 1):
                    reading.take("sacct", line, row.copy)
                break
            except BackendError:
                if not names:
                    raise
        runs = (run for record in reading.end().records if (run := _ended(record)) is not None)
        found += [run for run in runs if begin <= (run.ended_at or 0.0) < end]
        end = begin
    return sorted(found, key=lambda run: (run.ended_at or 0.0, run.job.job_id))[-most:]


def _ended(record: SacctRecord) -> JobRun | None:
    """None = nothing is learned from it."""
    if record.start_s is None or record.end_s is None or record.state not in _BY_ITSELF:
        return None
    ran_s = record.end_s - record.start_s - record.suspended_s
    if not record.key.isdigit() or not 0 <= ran_s <= record.limit_s + LATE_S:
        return None
    job = RunningJob(
        job_id=JobId(int(record.key)),
        started_at=UnixTime(record.start_s),
        request=record.request,
        shares=(),
        partition=record.partition,
        user=record.user,
        account=record.account,
        submitted_at=UnixTime(record.submit_s),
        array_job_id=JobId(int(record.array)) if record.array.isdigit() else None,
        qos=record.qos,
        kinds=record.kinds,
    )
    return JobRun(job, UnixTime(record.end_s), record.suspended_s)
