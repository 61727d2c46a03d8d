"""Rows of `sacct` -> records, one by one, with every row that is left out counted by its reason.

A file may have a header row (then any order of columns) or none (then those of the documented
command). Unknown is not zero: a row that cannot be read with certainty is left out and counted.
"""

import gzip
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Final

from rltuned.errors import TraceError
from rltuned.slurm.accounting import COLUMNS, FORMAT, REQUIRED
from rltuned.slurm.strings import parse_tasks, parse_tres
from rltuned.slurm.values import absent

MOST_RECORDS: Final = 500_000
"""About 400 bytes each. A longer history is refused, not cut: --since chooses what counts."""
FEW_SHOWN: Final = 5
SAVED: Final = f"sacct -a -X -D -P -o {FORMAT}"
_NEVER: Final = frozenset({"CANCELLED", "DEADLINE", "FAILED", "REVOKED"})
"""How a job may end that never started."""
_OPEN: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING"})
LATE_S: Final = 3_600.0
"""A job that seems to run so long past its limit has ended without slurmdbd being told."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a job. start_s, end_s: Unix seconds, None = not yet. limit_s: inf = none.

    gpus, cpus, mem_mib, nodes: what it asked for; whole: it held whole nodes without asking for all
    that is on them. priority: the last one that slurmdbd was told, None = not recorded.
    tasks: of an array that waits undivided. het: a part of a heterogeneous job.
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


@dataclass(slots=True)
class History:
    """What a source told.

    left_out: reason -> rows. examples: reason -> the first lines of it. missing: columns that the
    source lacks. zoneless: times that named no time zone.
    """

    records: list[Record] = field(default_factory=list)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    zoneless: int = 0

    def leave_out(self, reason: str, line: int) -> None:
        """Count a row that is not used."""
        self.left_out[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < FEW_SHOWN:
            shown.append(line)


class _Leave(Exception):  # noqa: N818 - no error: a row that is left out, with its reason
    """Raised where it is found out; args[0] is the reason."""


def lines_of(path: Path) -> Iterator[str]:
    """Lines of a text file, plain or gzip, never all at once.

    Raises:
        TraceError: it cannot be read, or breaks off.
    """
    try:
        with path.open("rb") as probe:
            packed = probe.read(2) == b"\x1f\x8b"
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", errors="backslashreplace") as file:
            for line in file:
                yield line.rstrip("\n")
    except (OSError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {why}") from error


def read_history(
    lines: Iterable[str], source: str, zone: tzinfo, *, since: float = -math.inf
) -> History:
    """Read a history.

    Args:
        lines: with or without a header row.
        source: for messages.
        zone: of times that name none (epochs need none).
        since: records that ended before are left out.

    Raises:
        TraceError: empty, the columns are others, or there are too many records.
    """
    found = History()
    seen: set[tuple[str, float]] = set()
    told = ((n, text.split("|")) for n, text in enumerate(lines, 1) if text.strip())
    first = next(told, None)
    if first is None:
        raise TraceError(f"{source}: empty; save it with: {SAVED}")
    names = _names(first[1], source)
    found.missing = tuple(c for c in COLUMNS if c not in names)
    rows = told if first[1][0].strip() in names else chain([first], told)
    for line, cells in rows:
        found.rows += 1
        try:
            record = _record(cells, names, zone, found, since)
            _once(record, seen)
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


def _once(record: Record, seen: set[tuple[str, float]]) -> None:
    if (record.key, record.submit_s) in seen:
        raise _Leave("the same record again")
    seen.add((record.key, record.submit_s))


def _names(first: list[str], source: str) -> tuple[str, ...]:
    """The columns: from a header row, or those of the documented command where there is none."""
    bare = tuple(c.strip() for c in first)
    if "JobIDRaw" in bare or "JobID" in bare:
        missing = [c for c in REQUIRED if c not in bare]
        if missing:
            raise TraceError(f"{source}:1: header: no column {missing[0]!r}; save it with: {SAVED}")
        return bare
    if len(bare) == len(COLUMNS) and bare[0].partition(".")[0].isdigit():
        return COLUMNS
    raise TraceError(
        f"{source}:1: no header of sacct, and not the {len(COLUMNS)} columns of: {SAVED}"
    )


def _record(
    cells: list[str], names: tuple[str, ...], zone: tzinfo, found: History, since: float
) -> Record:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} fields instead of {len(names)}")
    row = dict(zip(names, (c.strip() for c in cells), strict=True))
    if "." in row["JobIDRaw"]:
        raise _Leave("steps of jobs")
    if not row["JobIDRaw"].isdigit():
        raise ValueError("JobIDRaw is no number")
    moments = [_moment(row[n], n, zone, found) for n in ("Submit", "Eligible", "Start", "End")]
    submit_s, eligible_s, start_s, end_s = moments
    if submit_s is None:
        raise _Leave("no submit time")
    if end_s is not None and end_s < since:
        raise _Leave("ended before the record begins")
    state = row["State"].split(" ")[0]
    start_s = _started(row, state, start_s, end_s)
    eligible_s = _eligible(submit_s, eligible_s, start_s)
    asked, given = parse_tres(row["ReqTRES"]), parse_tres(row["AllocTRES"])
    if not asked and not given:
        raise _Leave("neither ReqTRES nor AllocTRES")
    nodes = max(asked.get("node", 0), 0)
    spread = given.get("node", 0)
    return Record(
        key=row["JobIDRaw"],
        submit_s=submit_s,
        eligible_s=eligible_s,
        start_s=start_s,
        end_s=end_s,
        state=intern(state),
        limit_s=_limit_s(row["TimelimitRaw"]),
        gpus=_gpus(asked if "gres/gpu" in asked or not given else given),
        gpu_types=_types(asked),
        cpus=max(1, asked.get("cpu", given.get("cpu", 1))),
        mem_mib=asked.get("mem", given.get("mem")),
        nodes=nodes if nodes > 1 else spread if spread > 1 else None,
        alloc_gpus=_gpus(given),
        alloc_cpus=given.get("cpu", 0),
        partition=intern(row["Partition"].split(",")[0]),
        user=intern(row["User"]),
        account=intern(row.get("Account", "")),
        qos=intern(row.get("QOS", "")),
        where=intern("" if absent(row["NodeList"]) else row["NodeList"]),
        priority=_priority(row.get("Priority", "")),
        main="SchedMain" in row.get("Flags", ""),
        tasks=_tasks(row["JobID"]) if start_s is None else 1,
        het="+" in row["JobID"],
        reserved=bool(row.get("Reservation", "")),
        constrained=bool(row.get("Constraints", "")),
    )


def _started(
    row: Mapping[str, str], state: str, start_s: float | None, end_s: float | None
) -> float | None:
    """When it started; None = it still waits. A job that ended waiting is left out."""
    placed = not absent(row["NodeList"])
    if start_s is None or not placed:
        if state in _NEVER:
            raise _Leave("ended while it waited (cancelled, or never could start)")
        if state != "PENDING":
            raise _Leave(f"state {state} without a start")
        return None
    if end_s is None and state not in _OPEN:
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


def _moment(text: str, name: str, zone: tzinfo, found: History) -> float | None:
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


def _limit_s(text: str) -> float:
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
