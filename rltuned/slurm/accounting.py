"""Rows of `sacct` -> records: the one reader of a site's history, for backtest, training, traces.

Every row that is left out is counted by its reason, and a row that cannot be read costs that row.

A file may have a header row (then any order of columns) or none (then those of the documented
command). Unknown is not zero: a row that cannot be read with certainty is left out and counted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from itertools import chain
from sys import intern
from typing import Final, NamedTuple

from rltuned.errors import TraceError
from rltuned.slurm.sacct import COLUMNS, REQUIRED, SAVED
from rltuned.slurm.strings import parse_tasks, parse_tres
from rltuned.slurm.values import absent, parse_limit_s

MOST_RECORDS: Final = 400_000
"""About 800 bytes each, with what is remembered of the job. A longer history is refused, not cut:
--since chooses what counts."""
_NEVER: Final = frozenset({"CANCELLED", "DEADLINE", "FAILED", "REVOKED"})
"""How a job may end that never started."""
_OPEN: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING"})
_OTHER_NAMES: Final = {"JobIDRaw": "JobID", "TimelimitRaw": "Timelimit", "JobID": "JobIDRaw"}
RESIZED: Final = "the part of a job before it was resized; the job counts once, as a whole"
STEPS: Final = "steps of jobs"
"""A reason to leave a row out that is no fault of the row."""
NOT_ASKED: Final = "*"
_BLANK: Final = {name: "" for name in COLUMNS if name != "TimelimitRaw"} | {"NodeList": NOT_ASKED}
"""What a row has where a column was not asked for."""
LATE_S: Final = 3_600.0
"""A job that seems to run so long past its limit has ended without slurmdbd knowing it."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job. start_s, end_s: Unix seconds, None = not yet. limit_s: inf = none.

    gpus, cpus, mem_mib, nodes: what it asked for; whole: it held whole nodes without asking for all
    that is on them. priority: the last one that slurmdbd recorded, None = not recorded.
    tasks: of an array that waits undivided. het: a part of a heterogeneous job. line: from 1.
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


@dataclass(slots=True)
class SacctAnswer:
    """What a source reported.

    left_out: reason -> rows. lines: reason -> which lines, from 1. missing: columns that the
    source lacks. zoneless: times that named no time zone.
    """

    records: list[JobRun] = field(default_factory=list)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    lines: dict[str, list[int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    zoneless: int = 0

    def leave_out(self, reason: str, line: int) -> None:
        """Count a row that is not used."""
        self.left_out[reason] += 1
        self.lines.setdefault(reason, []).append(line)


class _Part(NamedTuple):
    """What a job was before it was resized."""

    submit_s: float
    eligible_s: float | None
    start_s: float


class _Leave(Exception):  # noqa: N818 - no error: a row that is left out, with its reason
    """Raised where it is found out; args[0] is the reason."""


def read_history(
    lines: Iterable[str],
    source: str,
    zone: tzinfo,
    *,
    since: float = -math.inf,
    required: tuple[str, ...] = REQUIRED,
) -> SacctAnswer:
    """Read a history.

    Args:
        lines: with or without a header row.
        source: for messages.
        zone: of times that name none (epochs need none).
        since: records that ended before are left out.
        required: columns that a header row must name. JobID may stand for JobIDRaw, and Timelimit
            for TimelimitRaw.

    Raises:
        TraceError: empty, the columns are others, or there are too many records.
    """
    found = SacctAnswer()
    seen: dict[tuple[str, float], int] = {}
    parts: dict[str, _Part] = {}
    told = ((n, text.split("|")) for n, text in enumerate(lines, 1) if text.strip())
    first = next(told, None)
    if first is None:
        raise TraceError(f"{source}: empty; save it with: {SAVED}")
    names = _names(first[1], source, required)
    found.missing = tuple(c for c in COLUMNS if c not in names)
    rows = told if first[1][0].strip() in names else chain([first], told)
    for line, cells in rows:
        found.rows += 1
        try:
            record = replace(_record(cells, names, zone, found, since, parts=parts), line=line)
            if _goes_on(record, found, seen):
                continue
        except _Leave as why:
            found.leave_out(str(why), line)
            continue
        except ValueError as error:
            found.leave_out(f"cannot be read: {error}"[:120], line)
            continue
        found.records.append(record)
        if len(found.records) > MOST_RECORDS:
            raise TraceError(f"{source}: more than {MOST_RECORDS} records: choose a later --since")
    return found


def _goes_on(record: JobRun, found: SacctAnswer, seen: dict[tuple[str, float], int]) -> bool:
    """Whether it is the rest of a job that was resized, and has taken the place of what was before.

    Raises:
        _Leave: it is there already.
    """
    key = record.key, record.submit_s
    at = seen.setdefault(key, len(found.records))
    if at == len(found.records):
        return False
    before = found.records[at]
    if before.start_s != record.start_s or _end_s(before) >= _end_s(record):
        raise _Leave("the same record again")
    found.leave_out(RESIZED, before.line)
    found.records[at] = record
    return True


def _end_s(record: JobRun) -> float:
    return math.inf if record.end_s is None else record.end_s


def _names(first: list[str], source: str, required: tuple[str, ...]) -> tuple[str, ...]:
    """The columns: from a header row, or those of the documented command where there is none."""
    bare = tuple(c.strip() for c in first)
    if "JobIDRaw" in bare or "JobID" in bare:
        missing = [c for c in required if not {c, _OTHER_NAMES.get(c, c)} & set(bare)]
        if missing:
            raise TraceError(f"{source}:1: header: no column {missing[0]!r}; save it with: {SAVED}")
        return bare
    if len(bare) == len(COLUMNS) and bare[0].partition(".")[0].isdigit():
        return COLUMNS
    raise TraceError(
        f"{source}:1: no header of sacct, and not the {len(COLUMNS)} columns of: {SAVED}"
    )


def _record(
    cells: list[str],
    names: tuple[str, ...],
    zone: tzinfo,
    found: SacctAnswer,
    since: float,
    *,
    parts: dict[str, "_Part"],
) -> JobRun:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} fields instead of {len(names)}")
    row = dict(zip(names, (c.strip() for c in cells), strict=True))
    key = row["JobIDRaw"] if "JobIDRaw" in row else row["JobID"]
    if "." in key:
        raise _Leave(STEPS)
    if "JobIDRaw" in row and not key.isdigit():
        raise ValueError("JobIDRaw is no number")
    row = _BLANK | row
    moments = [_moment(row[n], n, zone, found) for n in ("Submit", "Eligible", "Start", "End")]
    submit_s, eligible_s, start_s, end_s = moments
    if submit_s is None:
        raise _Leave("no submit time")
    if end_s is not None and end_s < since:
        raise _Leave("ended before the record begins")
    state = row["State"].split(" ")[0]
    if start_s is not None:
        began = _joined(key, _Part(submit_s, eligible_s, start_s), parts)
        submit_s, eligible_s = began.submit_s, began.eligible_s
    start_s = _started(row, state, start_s, end_s)
    eligible_s = _eligible(submit_s, eligible_s, start_s)
    asked, given = parse_tres(row["ReqTRES"]), parse_tres(row["AllocTRES"])
    if not asked and not given:
        raise _Leave("neither ReqTRES nor AllocTRES")
    nodes = max(asked.get("node", 0), 0)
    spread = given.get("node", 0)
    return JobRun(
        key=key,
        submit_s=submit_s,
        eligible_s=eligible_s,
        start_s=start_s,
        end_s=end_s,
        state=intern(state),
        limit_s=_limit_s(row),
        gpus=_gpus(asked if any(n.startswith("gres/gpu") for n in asked) or not given else given),
        gpu_types=_types(asked),
        cpus=max(1, asked.get("cpu", given.get("cpu", 1))),
        mem_mib=asked.get("mem", given.get("mem")),
        nodes=nodes if nodes > 1 else spread if spread > 1 else None,
        alloc_gpus=_gpus(given),
        alloc_cpus=given.get("cpu", 0),
        partition=intern(row["Partition"].split(",")[0]),
        user=intern(row["User"]),
        account=intern(row["Account"]),
        qos=intern(row["QOS"]),
        where=intern("" if absent(row["NodeList"]) else row["NodeList"].strip(NOT_ASKED)),
        priority=_priority(row["Priority"]),
        main="SchedMain" in row["Flags"],
        tasks=_tasks(row["JobID"]) if start_s is None else 1,
        het="+" in row["JobID"],
        reserved=bool(row["Reservation"]),
        constrained=bool(row["Constraints"]),
    )


def _joined(key: str, row: _Part, parts: dict[str, _Part]) -> _Part:
    """A job's beginnings. One that is resized gets a new record, with the old start and the moment
    of the change as its submit time.
    """
    known = parts.get(key)
    if known is not None and known.start_s == row.start_s < row.submit_s:
        return known
    parts[key] = row
    return row


def _started(
    row: Mapping[str, str], state: str, start_s: float | None, end_s: float | None
) -> float | None:
    """When it started; None = it still waits. A job that ended waiting is left out."""
    placed = not absent(row["NodeList"]) or row["NodeList"] == NOT_ASKED
    if start_s is None or not placed:
        if state in _NEVER:
            raise _Leave("ended while it waited (cancelled, or never could start)")
        if state not in {"PENDING", ""}:
            raise _Leave(f"state {state} without a start")
        return None
    if end_s is None and state and state not in _OPEN:
        raise _Leave(f"state {state} without an end")
    if end_s is not None and end_s < start_s:
        raise _Leave("ends before it starts (clocks)")
    return start_s


def _eligible(submit_s: float, eligible_s: float | None, start_s: float | None) -> float:
    """From when on it could start: dependencies, --begin and holds are over then."""
    if start_s is not None and start_s < submit_s:
        raise _Leave("starts before it is submitted (clocks)")
    known = submit_s if eligible_s is None else max(submit_s, eligible_s)
    return known if start_s is None else min(known, start_s)


def _moment(text: str, name: str, zone: tzinfo, found: SacctAnswer) -> float | None:
    """Unix seconds; None = Slurm says that it is not known (yet)."""
    if absent(text) or text in {"0", "None"}:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is no time") from None
    if when.tzinfo is None:
        found.zoneless += 1
        when = when.replace(tzinfo=zone)
    return when.timestamp()


def _gpus(tres: Mapping[str, int]) -> int:
    typed = sum(n for name, n in tres.items() if name.startswith("gres/gpu:"))
    return tres.get("gres/gpu", typed)


def _types(tres: Mapping[str, int]) -> tuple[str, ...]:
    found = sorted(n.partition(":")[2] for n, v in tres.items() if v and n.startswith("gres/gpu:"))
    if len(found) > 1:
        raise _Leave("asks for several types of GPUs at once")
    return tuple(map(intern, found))


def _limit_s(row: Mapping[str, str]) -> float:
    if "TimelimitRaw" not in row:
        known = parse_limit_s(row["Timelimit"])
        return math.inf if known is None else known
    text = row["TimelimitRaw"]
    if text in {"UNLIMITED", "Partition_Limit", "INVALID", ""}:
        return math.inf
    if not text.isdigit():
        raise ValueError("TimelimitRaw is no number of minutes")
    return max(60.0, 60.0 * int(text))


def _priority(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def _tasks(job_id: str) -> int:
    """Of an array that waits undivided, `17_[1-5]`; cut lists count as far as they go."""
    _, bracket, listed = job_id.partition("_[")
    if not bracket:
        return 1
    try:
        return max(1, parse_tasks(listed.rstrip("]")).count)
    except ValueError:
        return 1
