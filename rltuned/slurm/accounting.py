"""Rows of `sacct` -> records: the one reader of a site's history, for backtest, training, traces.

Every row that is left out is counted by its reason, and a row that cannot be read costs that row.

Unknown is not zero: a row that cannot be read with certainty is left out and counted.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import partial
from sys import intern
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.kinds import NO_KINDS, Digester, Kinds
from rltuned.domain.units import GpuType
from rltuned.errors import TraceError
from rltuned.slurm import sacct_values
from rltuned.slurm.sacct import COLUMNS, TEXT_COLUMNS
from rltuned.slurm.strings import parse_tres
from rltuned.slurm.values import absent

MOST_RECORDS: Final = 400_000
"""About 800 bytes each, with what is remembered of the job. A longer history is refused, not cut:
--since chooses what counts."""
RESIZED: Final = "the part of a job before it was resized; the job counts once, as a whole"
STEPS: Final = "steps of jobs"
"""A reason to leave a row out that is no fault of the row."""
_BLANK: Final = {name: "" for name in COLUMNS if name != "TimelimitRaw"} | {
    "NodeList": sacct_values.NOT_ASKED
}
"""What a row has where a column was not asked for."""
SHORTEST_S: Final = 1.0
"""sacct counts whole seconds."""
LATE_S: Final = 3_600.0
"""A job that seems to run so long past its limit has ended without slurmdbd knowing it."""


@dataclass(frozen=True, slots=True)
class SacctRecord:
    """One record of accounting. start_s, end_s: Unix seconds, None = not yet. limit_s: inf = none.

    gpus, cpus, mem_mib, nodes: what it asked for; whole: it held whole nodes without asking for all
    that is on them. priority: the last one that slurmdbd recorded, None = not recorded.
    tasks: of an array that waits undivided. het: a part of a heterogeneous job. line: from 1.
    suspended_s: of the time between start and end. array: number of the array that it is a task of.
    key: JobIDRaw, or JobID where that is all there is.
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
    kinds: Kinds = NO_KINDS

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
        return tuple(map(int, sacct_values.NUMBERS.findall(self.key)))


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


def read_rows(
    rows: Iterable[tuple[int, list[str]]],
    source: str,
    names: tuple[str, ...],
    zone: tzinfo = UTC,
    *,
    since: float = -math.inf,
    digester: Digester | None = None,
) -> SacctAnswer:
    """Read numbered rows of these columns; digester: makes the kinds. Else as read_history."""
    reading = Reading(names, zone, since, digester)
    for line, cells in rows:
        reading.take(source, line, partial(list, cells))
    return reading.found


class Reading:
    """What is known while the rows of a history are read, one after the other."""

    def __init__(
        self, names: tuple[str, ...], zone: tzinfo, since: float, digester: Digester | None
    ) -> None:
        self.found = SacctAnswer(missing=tuple(c for c in COLUMNS if c not in names))
        self._names = names
        self._zone = zone
        self._since = since
        self._digester = digester
        wanted = () if digester is None else digester.wanted
        self._texts = {k: c for k, c in TEXT_COLUMNS.items() if k in wanted and c in names}
        self._seen: dict[tuple[str, float], int] = {}
        self._parts: dict[str, tuple[float, float | None, float]] = {}
        """When a job before it was resized was submitted, eligible and started."""

    def take(self, source: str, line: int, cells: Callable[[], list[str]]) -> None:
        """Take a row, or count why not. Raises TraceError: there are too many records."""
        found = self.found
        found.rows += 1
        try:
            self._add(cells(), line)
        except sacct_values.LeaveOut as why:
            found.leave_out(str(why), line)
        except (ValueError, OverflowError) as error:
            found.leave_out(f"cannot be read: {error}"[:120], line)
        if len(found.records) > MOST_RECORDS:
            raise TraceError(f"{source}: more than {MOST_RECORDS} records: choose a later --since")

    def _add(self, cells: list[str], line: int) -> None:
        """Take a row; the rest of a resized job replaces it. Raises LeaveOut, ValueError."""
        record, records = self._record(cells, line), self.found.records
        at = self._seen.setdefault((record.key, record.submit_s), len(records))
        if at == len(records):
            records.append(record)
            return
        before = records[at]
        if before.start_s != record.start_s or _end_s(before) >= _end_s(record):
            raise sacct_values.LeaveOut("the same record again")
        self.found.leave_out(RESIZED, before.line)
        records[at] = record

    def _record(self, cells: list[str], line: int) -> SacctRecord:
        if len(cells) != len(self._names):
            raise ValueError(f"{len(cells)} fields instead of {len(self._names)}")
        row = dict(zip(self._names, (c.strip() for c in cells), strict=True))
        key = row["JobIDRaw"] if "JobIDRaw" in row else row["JobID"]
        if "." in key.partition("[")[0]:  # not the dots of a list of tasks that is cut
            raise sacct_values.LeaveOut(STEPS)
        sacct_values.check_key(key, raw="JobIDRaw" in row)
        row = _BLANK | row
        state = row["State"].split(" ")[0]
        submit_s, eligible_s, start_s, end_s = self._times(row, key, state)
        asked, given = parse_tres(row["ReqTRES"]), parse_tres(row["AllocTRES"])
        if not asked and not given:
            raise sacct_values.LeaveOut("neither ReqTRES nor AllocTRES")
        nodes = [n for n in (asked.get("node", 0), given.get("node", 0)) if n > 1]
        names_gpus = any(name.startswith("gres/gpu") for name in asked)
        return SacctRecord(
            key=key,
            submit_s=submit_s,
            eligible_s=eligible_s,
            start_s=start_s,
            end_s=end_s,
            state=intern(state),
            limit_s=sacct_values.limit_s_of(row),
            gpus=sacct_values.gpus_of(asked if names_gpus or not given else given),
            gpu_types=sacct_values.types_of(asked),
            cpus=max(1, asked.get("cpu", given.get("cpu", 1))),
            mem_mib=asked.get("mem", given.get("mem")),
            nodes=nodes[0] if nodes else None,
            alloc_gpus=sacct_values.gpus_of(given),
            alloc_cpus=given.get("cpu", 0),
            partition=intern(row["Partition"].split(",")[0]),
            user=intern(row["User"]),
            account=intern(row["Account"]),
            qos=intern(row["QOS"]),
            where=intern(
                "" if absent(row["NodeList"]) else row["NodeList"].strip(sacct_values.NOT_ASKED)
            ),
            priority=sacct_values.priority_of(row["Priority"]),
            main="SchedMain" in row["Flags"],
            tasks=sacct_values.waiting_tasks(row["JobID"]) if start_s is None else 1,
            het="+" in row["JobID"],
            reserved=bool(row["Reservation"]),
            constrained=bool(row["Constraints"]),
            line=line,
            suspended_s=sacct_values.suspended_s_of(row, start_s, end_s),
            array=row["JobID"].partition("_")[0] if "_" in row["JobID"] else "",
            kinds=self._kinds(row),
        )

    def _kinds(self, row: Mapping[str, str]) -> Kinds:
        if self._digester is None:
            return NO_KINDS
        # a job without a name is shown as "allocation"
        texts = ("" if row[c] == "allocation" else row[c] for c in self._texts.values())
        return self._digester.kinds(tuple(self._texts), *texts)

    def _times(
        self, row: Mapping[str, str], key: str, state: str
    ) -> tuple[float, float, float | None, float | None]:
        """Submit, eligible, start and end in Unix seconds; None = not yet."""
        submit_s, eligible_s, start_s, end_s = (
            self._moment(row[name], name) for name in ("Submit", "Eligible", "Start", "End")
        )
        if submit_s is None:
            raise sacct_values.LeaveOut("no submit time")
        if end_s is not None and end_s < self._since:
            raise sacct_values.LeaveOut("ended before the record begins")
        if start_s is not None:
            # one that is resized gets a new record, with the old start and the moment of the
            # change as its submit time
            known = self._parts.get(key)
            if known is not None and known[2] == start_s < submit_s:
                submit_s, eligible_s, _ = known
            else:
                self._parts[key] = submit_s, eligible_s, start_s
        start_s = sacct_values.started_at(row, state, start_s, end_s)
        return submit_s, sacct_values.eligible_at(submit_s, eligible_s, start_s), start_s, end_s

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
            raise ValueError(f"{name} is no time") from None
        if not 0 <= found < sacct_values.LATEST_S:
            raise ValueError(f"{name} is no time")
        self.found.zoneless += zoneless
        return found


def _end_s(record: SacctRecord) -> float:
    return math.inf if record.end_s is None else record.end_s
