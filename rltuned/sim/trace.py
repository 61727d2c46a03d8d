"""Traces: jobs with their true run times, and the one file format that holds them (version 1).

A job's true run time lives here and in nothing that a policy can see.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.units import GpuType
from rltuned.errors import TraceError

COLUMNS = (
    "job_id", "submit_s", "duration_s", "time_limit_s", "gpus", "gpu_type", "cpus", "mem_mib",
    "nodes", "partition", "user", "account", "qos", "exclusive", "status",
)  # fmt: skip
REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
NAME = "name"
"""A further column, written where a job has one."""
TYPE_SEPARATOR = "|"
"""Between the GPU types of a job that accepts several: `p100|k80`."""
Row = Mapping[str, str]
"""One row of a table, by column."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. submit_s: since its epoch. duration_s: true run time without a limit.
    gpu_types: empty = any. cpus, mem_mib: None = unknown; such a job takes none. nodes: None = the
    fewest. status: in the source's words; never used to simulate. name: without digits.
    """

    job_id: str
    submit_s: float
    duration_s: float
    gpus: int
    time_limit_s: float = math.inf
    gpu_types: tuple[str, ...] = ()
    cpus: int | None = None
    mem_mib: int | None = None
    nodes: int | None = None
    partition: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    status: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.submit_s):
            raise ValueError(f"submit_s must be a number of seconds, not {self.submit_s}")
        if not (self.duration_s > 0 and math.isfinite(self.duration_s)):
            raise ValueError(f"duration_s must be seconds > 0, not {self.duration_s}")
        if not self.time_limit_s > 0:
            raise ValueError(f"time_limit_s must be seconds > 0 or empty, not {self.time_limit_s}")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"nodes must be at least 1 or empty, not {self.nodes}")
        if self.gpus < 0 or (self.cpus or 0) < 0 or (self.mem_mib or 0) < 0:
            raise ValueError("gpus, cpus and mem_mib cannot be negative; unknown is empty")

    def request(self) -> Request:
        """What it asks of a cluster. CPUs and memory that are not known never bind; a job without
        GPUs takes at least the one CPU that Slurm gives every job.
        """
        return _request(
            self.gpus,
            self.gpu_types,
            self.cpus or 0,
            self.mem_mib or 0,
            self.nodes,
            self.exclusive,
            self.time_limit_s,
        )


@lru_cache(maxsize=65_536)
def _request(  # noqa: PLR0917 - the cache is keyed by place
    gpus: int,
    gpu_types: tuple[str, ...],
    cpus: int,
    mem_mib: int,
    nodes: int | None,
    exclusive: bool,
    time_limit_s: float,
) -> Request:
    """Jobs that ask for the same share one object: most traces have few different ones."""
    return Request(
        total=Resources(gpus, cpus if gpus else max(1, cpus), mem_mib),
        time_limit_s=time_limit_s,
        gpu_types=tuple(GpuType(t) for t in gpu_types),
        nodes=nodes,
        exclusive=exclusive,
    )


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in submit order, and the notes (source, licence, what is synthetic, seed ...)."""

    jobs: tuple[TraceJob, ...]
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for earlier, later in zip(self.jobs, self.jobs[1:], strict=False):
            if later.submit_s < earlier.submit_s:
                raise ValueError(f"job {later.job_id} is submitted before the job above it")


def read_trace(path: Path) -> Trace:
    """Read a trace CSV, plain or gzip. Raises TraceError: names file, line and field."""
    return parse_trace(read_text(path), str(path))


def read_text(path: Path) -> str:
    """A text file, plain or gzip. Raises TraceError: it cannot be read."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error


def parse_trace(text: str, source: str) -> Trace:
    """As `read_trace`, for the text of a file; source stands in the messages."""
    notes, lines = _split_notes(text)
    rows = _rows(lines, source, len(notes.lines))
    header = [name.strip() for name in next(rows, ("", []))[1]]
    _check_header(header, source)
    jobs: list[TraceJob] = []
    seen: set[str] = set()
    for where, row in rows:
        try:
            job = _job(_cells(header, row))
        except ValueError as error:
            raise TraceError(f"{where}: {error}") from error
        if jobs and job.submit_s < jobs[-1].submit_s:
            raise TraceError(f"{where}: submit_s goes back: the rows must be in submit order")
        if job.job_id in seen:
            raise TraceError(f"{where}: job_id {job.job_id} stands twice")
        seen.add(job.job_id)
        jobs.append(job)
    if not jobs:
        raise TraceError(f"{source}: no jobs")
    return Trace(tuple(jobs), notes.values)


def _rows(lines: Iterable[str], source: str, offset: int) -> Iterator[tuple[str, list[str]]]:
    """Each row and where it ends. A quote that stays open is reported where its row begins."""
    reader, begins = csv.reader(lines, strict=True), offset + 1
    try:
        for row in reader:
            if row:
                yield f"{source}:{reader.line_num + offset}", row
            begins = reader.line_num + offset + 1
    except csv.Error as error:
        raise TraceError(f"{source}:{begins}: {error}") from error


@dataclass(slots=True)
class _Notes:
    values: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def _split_notes(text: str) -> tuple[_Notes, Iterator[str]]:
    notes = _Notes()
    lines = text.splitlines(keepends=True)
    for line in lines:
        if not line.startswith("#") and line.strip():
            break
        notes.lines.append(line)
        key, colon, value = line.lstrip("#").strip().partition(":")
        if colon:
            notes.values[key.strip()] = value.strip()
    return notes, iter(lines[len(notes.lines) :])


def _check_header(header: list[str], source: str) -> None:
    if not header:
        raise TraceError(f"{source}: empty: no header row")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise TraceError(
            f"{source}: header: no column {missing[0]!r}; `rltuned traces convert` makes a trace "
            "of published ones and of sacct's answer"
        )
    unknown = [name for name in header if name not in (*COLUMNS, NAME)]
    if unknown:
        raise TraceError(f"{source}: header: unknown column {unknown[0]!r}")
    if len(set(header)) != len(header):
        raise TraceError(f"{source}: header: a column stands twice")


def _cells(header: list[str], row: list[str]) -> dict[str, str]:
    if len(row) != len(header):
        raise ValueError(f"{len(row)} fields, the header has {len(header)}")
    return {name: cell.strip() for name, cell in zip(header, row, strict=True)}


def _job(cells: dict[str, str]) -> TraceJob:
    for name in REQUIRED:
        if not cells[name]:
            raise ValueError(f"{name} is empty")
    cpus, mem_mib, nodes = (
        whole(cells, name) if cells.get(name) else None for name in ("cpus", "mem_mib", "nodes")
    )
    types = cells.get("gpu_type", "")
    return TraceJob(
        job_id=cells["job_id"],
        submit_s=number(cells, "submit_s"),
        duration_s=number(cells, "duration_s"),
        time_limit_s=number(cells, "time_limit_s") if cells.get("time_limit_s") else math.inf,
        gpus=whole(cells, "gpus"),
        gpu_types=tuple(t for t in types.split(TYPE_SEPARATOR) if t),
        exclusive=_flag(cells, "exclusive"),
        cpus=cpus,
        mem_mib=mem_mib,
        nodes=nodes,
        **{k: cells.get(k, "") for k in ("partition", "user", "account", "qos", "status", NAME)},
    )


def number(row: Row, name: str) -> float:
    """A finite number of a table. Raises ValueError: it is none."""
    try:
        value = float(row[name])
    except ValueError:
        raise ValueError(f"{name} is not a number: {row[name]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number: {row[name]!r}")
    return value


def whole(row: Row, name: str) -> int:
    """A whole number >= 0 of a table. Raises ValueError: it is none."""
    value = number(row, name)
    if value < 0 or value != int(value):
        raise ValueError(f"{name} is not a whole number >= 0: {row[name]!r}")
    return int(value)


def _flag(cells: dict[str, str], name: str) -> bool:
    cell = cells.get(name, "").lower()
    if cell in {"", "0", "false", "no"}:
        return False
    if cell in {"1", "true", "yes"}:
        return True
    raise ValueError(f"{name} must be 0 or 1, not {cell!r}")


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace CSV, .gz compressed; same trace, same bytes. Raises TraceError."""
    text = io.StringIO(newline="")
    dump_trace(trace, text)
    data = text.getvalue().encode("utf-8")
    try:
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def dump_trace(trace: Trace, out: TextIO) -> None:
    """Write the text of a trace CSV."""
    for key, value in trace.notes.items():
        out.write(f"# {key}: {value}\n")
    writer = csv.writer(out, lineterminator="\n")
    named = any(job.name for job in trace.jobs)
    writer.writerow((*COLUMNS, NAME) if named else COLUMNS)
    writer.writerows((*_row(job), job.name) if named else _row(job) for job in trace.jobs)


def _row(job: TraceJob) -> Sequence[str]:
    return (
        job.job_id,
        number_text(job.submit_s),
        number_text(job.duration_s),
        "" if math.isinf(job.time_limit_s) else number_text(job.time_limit_s),
        str(job.gpus),
        TYPE_SEPARATOR.join(job.gpu_types),
        "" if job.cpus is None else str(job.cpus),
        "" if job.mem_mib is None else str(job.mem_mib),
        "" if job.nodes is None else str(job.nodes),
        job.partition,
        job.user,
        job.account,
        job.qos,
        "1" if job.exclusive else "0",
        job.status,
    )


def number_text(value: float) -> str:
    """Shortest text that reads back as the same number, without a needless `.0`."""
    return str(int(value)) if value == int(value) else repr(float(value))


def from_zero(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs with submit times counted from the first one."""
    listed = tuple(jobs)
    first = listed[0].submit_s if listed else 0.0
    return tuple(replace(j, submit_s=j.submit_s - first) for j in listed)
