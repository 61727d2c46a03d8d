"""Traces in files (version 1), the faults of nodes beside them, and rows of any text file: one that
cannot be read costs itself, and is named by its line.
"""

import codecs
import csv
import gzip
import io
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from rltuned.domain.cluster import expand_hosts
from rltuned.errors import TraceError
from rltuned.files import unpacked
from rltuned.sim.limits import spearman
from rltuned.sim.trace import Bad, Trace, TraceJob
from rltuned.sim.world import Fault, NodeFault

FloatArray = NDArray[np.float64]
COLUMNS = (
    "job_id", "submit_s", "duration_s", "time_limit_s", "gpus", "gpu_type", "cpus", "mem_mib",
    "nodes", "partition", "user", "account", "qos", "exclusive", "status",
)  # fmt: skip
REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")
NAME = "name"
"""A further column, written where a job has one."""
FAULT_COLUMNS = ("at_s", "node", "change")
TYPE_SEPARATOR = "|"
"""Between the GPU types of a job that accepts several: `p100|k80`."""
FLAGS: Final = {"": False, "0": False, "false": False, "no": False} | dict.fromkeys(
    ("1", "true", "yes"), True
)
MOST = 2**40
"""GPUs, CPUs or MiB of a job are fewer: sums of their products with times stay exact."""
UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MOST_LINES: Final = 20
"""Of one row of a CSV."""
LATEST_S: Final = 1e11
"""The year 5138. A later time is in milliseconds, or is not a time."""
SHOWN = 40
"""Characters of a cell that an error shows."""
T = TypeVar("T")
Row = Mapping[str, str]
"""One row of a table, by column."""
Rows = Iterable[tuple[int, Row | Bad]]
"""With their lines."""


# -- Rows of any text file -------------------------------------------------------------------------


@contextmanager
def text_bytes(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a text file, plain or gzip. Raises TraceError: it cannot be read."""
    try:
        with unpacked(path) as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {why}") from error


def read_text(path: Path) -> str:
    """A text file, plain or gzip. Bytes that are not UTF-8 appear as backslash escapes. Raises
    TraceError: it cannot be read.
    """
    with text_bytes(path) as file:
        raw = file.read()
    if raw[:2] in UTF_16:
        raise TraceError(f"{path}: is UTF-16 text; `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it")
    return raw.decode("utf-8-sig", "backslashreplace")


def lines_in(text: str) -> list[str]:
    """Its lines with their ends: a name may hold what other readers take for one."""
    return io.StringIO(text, newline="").readlines()


def table(
    lines: Iterable[str],
    source: str,
    required: Iterable[str],
    *,
    header: tuple[str, ...] = (),
    first: int = 1,
) -> tuple[tuple[str, ...], Rows]:
    """The columns of a CSV, and its rows. header: where the file has none. first: the number of its
    first line. Raises TraceError: a column is missing, or stands twice.
    """
    rows = _csv_rows(lines, first)
    line, names = (first, list(header)) if header else next(rows, (first, []))
    if isinstance(names, Bad):
        raise TraceError(f"{source}:{line}: header: {names.why}")
    columns = tuple(name.strip() for name in names)
    if not columns:
        raise TraceError(f"{source}: empty: no header row")
    missing = [name for name in required if name not in columns]
    if missing:
        raise TraceError(f"{source}: header: no column {missing[0]!r}")
    if len(set(columns)) != len(columns):
        raise TraceError(f"{source}: header: a column stands twice")
    return columns, ((line, _named(line, cells, columns)) for line, cells in rows)


def _named(line: int, cells: list[str] | Bad, columns: tuple[str, ...]) -> Row | Bad:
    if isinstance(cells, Bad):
        return cells
    if len(cells) != len(columns):
        return Bad(line, f"{len(cells)} fields, the header has {len(columns)}")
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}


def _csv_rows(lines: Iterable[str], first: int) -> Iterator[tuple[int, list[str] | Bad]]:
    """Rows of a CSV with the lines at which they begin. A quoted cell may go over MOST_LINES lines;
    a quote that stays open, and a row that cannot be read, cost one line.
    """
    left = deque(enumerate(lines, first))
    while left:
        line, text = left.popleft()
        more, quotes = 0, text.count('"')
        while quotes % 2 and more < min(MOST_LINES, len(left)):
            quotes += left[more][1].count('"')
            more += 1
        if quotes % 2:
            more = 0
        try:
            rest = (following for _, following in islice(left, more))
            row = next(csv.reader([text, *rest], strict=True), [])
        except csv.Error as error:
            yield line, Bad(line, str(error))
            continue
        for _ in range(more):
            left.popleft()
        if row:
            yield line, row


def number(row: Row, name: str) -> float:
    """A finite number of a table. Raises ValueError: it is none."""
    try:
        value = float(row[name])
    except ValueError:
        raise ValueError(f"{name} is not a number: {row[name][:SHOWN]!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number: {row[name][:SHOWN]!r}")
    return value


def whole(row: Row, name: str) -> int:
    """A whole number >= 0 of a table. Raises ValueError: it is none."""
    value = number(row, name)
    if value < 0 or value != int(value):
        raise ValueError(f"{name} is not a whole number >= 0: {row[name][:SHOWN]!r}")
    if value >= MOST:
        raise ValueError(f"{name} is more than any cluster has: {row[name][:SHOWN]!r}")
    return int(value)


def number_text(value: float) -> str:
    """Shortest text that reads back as the same number, without a needless `.0`."""
    return str(int(value)) if value == int(value) else repr(float(value))


def collect(
    source: object,
    rows: Iterable[tuple[int, T | Bad]],
    make: Callable[[T], TraceJob],
    notes: dict[str, str],
) -> Trace:
    """Make a job of every numbered row; one of which there is none (ValueError) costs itself.
    Raises TraceError: there is none at all.
    """
    jobs, bad = dict[str, TraceJob](), list[Bad]()
    for line, row in rows:
        try:
            job = _job_of(row, make, jobs)
        except ValueError as error:
            bad.append(Bad(line, str(error)))
        else:
            jobs[job.job_id] = job
    if not jobs:
        raise TraceError(f"{source}:{bad[0].line}: {bad[0].why}" if bad else f"{source}: no jobs")
    ordered = sorted(jobs.values(), key=lambda job: job.submit_s)
    return Trace(tuple(ordered), notes, tuple(bad))


def _job_of(row: T | Bad, make: Callable[[T], TraceJob], known: Mapping[str, TraceJob]) -> TraceJob:
    if isinstance(row, Bad):
        raise ValueError(row.why)  # noqa: TRY004 - as of every other bad row
    job = make(row)
    for name, seconds in (("submit_s", job.submit_s), ("duration_s", job.duration_s)):
        if not abs(seconds) < LATEST_S:
            raise ValueError(f"{name} is no time in seconds")
    if job.job_id in known:
        raise ValueError(f"job_id {job.job_id} stands twice")
    return job


# -- Trace CSV and fault CSV ----------------------------------------------------------------------


def read_trace(path: Path) -> Trace:
    """Read a trace CSV, plain or gzip. Raises TraceError: names file, line and field, where it is
    no trace or has no usable job.
    """
    return parse_trace(read_text(path), str(path))


def parse_trace(text: str, source: str) -> Trace:
    """As `read_trace`, for the text of a file; source stands in the messages."""
    notes, count, lines = dict[str, str](), 0, lines_in(text)
    for line in lines:
        if not line.startswith("#") and line.strip():
            break
        count += 1
        key, colon, value = line.lstrip("#").strip().partition(":")
        if colon:
            notes[key.strip()] = value.strip()
    header, rows = table(lines[count:], source, (), first=count + 1)
    for name in REQUIRED:
        if name not in header:
            raise TraceError(
                f"{source}: header: no column {name!r}; `rltuned traces convert` makes a trace of "
                "published ones and of sacct's answer"
            )
    unknown = [name for name in header if name not in (*COLUMNS, NAME)]
    if unknown:
        raise TraceError(f"{source}: header: unknown column {unknown[0]!r}")
    return collect(source, rows, _job, notes)


def _job(row: Row) -> TraceJob:
    for name in REQUIRED:
        if not row[name]:
            raise ValueError(f"{name} is empty")
    if row.get("exclusive", "").lower() not in FLAGS:
        raise ValueError(f"exclusive must be 0 or 1, not {row['exclusive']!r}")
    cpus, mem_mib, nodes = (
        whole(row, name) if row.get(name) else None for name in ("cpus", "mem_mib", "nodes")
    )
    return TraceJob(
        job_id=row["job_id"],
        submit_s=number(row, "submit_s"),
        duration_s=number(row, "duration_s"),
        time_limit_s=number(row, "time_limit_s") if row.get("time_limit_s") else math.inf,
        gpus=whole(row, "gpus"),
        gpu_types=tuple(t for t in row.get("gpu_type", "").split(TYPE_SEPARATOR) if t),
        exclusive=FLAGS[row.get("exclusive", "").lower()],
        cpus=cpus,
        mem_mib=mem_mib,
        nodes=nodes,
        **{k: row.get(k, "") for k in ("partition", "user", "account", "qos", "status", NAME)},
    )


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
    columns = (*COLUMNS, NAME) if any(job.name for job in trace.jobs) else COLUMNS
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(job, name) for name in columns] for job in trace.jobs)


def _cell(job: TraceJob, column: str) -> str:
    if column == "gpu_type":
        return TYPE_SEPARATOR.join(job.gpu_types)
    value = getattr(job, column)
    if isinstance(value, float):
        return "" if math.isinf(value) else number_text(value)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def from_zero(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs, one at least, with submit times counted from the first one."""
    first = jobs[0].submit_s
    return tuple(replace(j, submit_s=j.submit_s - first) for j in jobs)


def read_faults(path: Path, bad: list[Bad]) -> tuple[Fault, ...]:
    """A CSV of `at_s,node,change`: the trace's seconds; a hostlist; fail, drain or resume. bad:
    takes rows that are none. Raises TraceError: it cannot be read, or has another header.
    """
    faults: list[Fault] = []
    for line, row in table(lines_in(read_text(path)), str(path), FAULT_COLUMNS)[1]:
        if isinstance(row, Bad):
            bad.append(row)
            continue
        try:
            at_s, change = number(row, "at_s"), NodeFault(row["change"])
            names = expand_hosts(row["node"])
        except ValueError as error:
            bad.append(Bad(line, str(error)))
        else:
            faults += [Fault(at_s, name, change, f"{path}:{line}") for name in names]
    return tuple(faults)


# -- Cut, scale and jitter traces, and say what is in one -----------------------------------------

TOLERANCE: Final = 1e-4
"""Part of the asked load by which a scaled trace may be off."""
MOST_STRETCH: Final = 1e6


def offered_gpus(jobs: Sequence[TraceJob]) -> float:
    """Mean GPU demand over the arrival span, were every job started when submitted. The tails of
    the longest jobs beyond it do not count. Raises TraceError: all are submitted at one instant.
    """
    offered = demand(*_arrays(jobs))
    if math.isinf(offered):
        raise TraceError("all jobs are submitted at one instant: there is no load to speak of")
    return offered


def demand(submit_s: FloatArray, runs_s: FloatArray, gpus: FloatArray) -> float:
    """The same of arrays (n,); infinite where all jobs are submitted at one instant."""
    span_s = float(submit_s[-1] - submit_s[0])
    if not span_s > 0:
        return math.inf
    return float((gpus * np.minimum(runs_s, submit_s[-1] - submit_s)).sum() / span_s)


def scale(trace: Trace, load: float, cluster_gpus: int) -> Trace:
    """Stretch the submits until the trace offers `load` x cluster_gpus GPUs. Raises TraceError."""
    if not load > 0 or cluster_gpus < 1:
        raise TraceError(f"cannot offer a load of {load:g} to {cluster_gpus} GPUs")
    wanted = load * cluster_gpus
    low, high = 1 / MOST_STRETCH, MOST_STRETCH
    submit_s, runs_s, gpus = _arrays(trace.jobs)
    since_s = submit_s - submit_s[0]
    offered_gpus(trace.jobs)  # refuses what has no load
    if demand(since_s * low, runs_s, gpus) < wanted:
        raise TraceError(f"even {len(trace.jobs)} jobs at once do not offer {wanted:g} GPUs")
    while high / low > 1 + TOLERANCE / 10:
        middle = (low * high) ** 0.5
        if demand(since_s * middle, runs_s, gpus) > wanted:
            low = middle
        else:
            high = middle
    first = trace.jobs[0].submit_s
    jobs = tuple(replace(j, submit_s=first + (j.submit_s - first) * high) for j in trace.jobs)
    if abs(offered_gpus(jobs) / wanted - 1) > TOLERANCE:
        raise TraceError(f"no stretching of this trace offers {wanted:g} GPUs")
    notes = trace.notes | {
        "scaled": f"submit times x {high:.6g}: mean demand {load:g} of {cluster_gpus} GPUs"
    }
    return Trace(jobs, notes)


def jittered(trace: Trace, jitter_s: float, seed: int) -> Trace:
    """The same jobs, each submitted up to jitter_s earlier or later, in the new order."""
    rng = np.random.default_rng(seed)
    shift = rng.uniform(-jitter_s, jitter_s, size=len(trace.jobs))
    moved = [
        replace(j, submit_s=round(j.submit_s + float(d), 3))
        for j, d in zip(trace.jobs, shift, strict=True)
    ]
    moved.sort(key=lambda j: j.submit_s)
    notes = trace.notes | {"jitter": f"submit times +-{jitter_s:g} s, seed {seed}"}
    return Trace(from_zero(moved), notes)


def cut(trace: Trace, start: int, count: int) -> Trace:
    """Consecutive jobs from row `start` on, submits from the first. Raises TraceError."""
    if start < 0 or count < 1 or start + count > len(trace.jobs):
        raise TraceError(f"rows {start}..{start + count - 1} of {len(trace.jobs)} do not exist")
    notes = trace.notes | {"window": f"rows {start} to {start + count - 1}, from 0"}
    return Trace(from_zero(trace.jobs[start : start + count]), notes)


def describe(trace: Trace) -> dict[str, Any]:
    """Measure the marginals; GPU jobs only for run times and sizes when there are any. sizes: GPUs
    -> share of jobs; figures of limits None = there are none.
    """
    jobs = [j for j in trace.jobs if j.gpus] or list(trace.jobs)
    submit_s, _, gpus = _arrays(jobs)
    run_s = np.array([j.duration_s for j in jobs])
    gaps = np.diff(np.array([j.submit_s for j in trace.jobs]))
    limit_s = np.array([j.time_limit_s for j in jobs])
    has = np.isfinite(limit_s)
    alike = spearman(run_s[has], limit_s[has]) if has.any() else math.nan
    sizes, counts = np.unique(gpus.astype(np.int64), return_counts=True)
    return {
        "jobs": len(trace.jobs),
        "gpu_jobs": sum(j.gpus > 0 for j in trace.jobs),
        "span_s": trace.jobs[-1].submit_s - trace.jobs[0].submit_s,
        "run_mean_s": float(run_s.mean()),
        "run_median_s": float(np.median(run_s)),
        "gap_mean_s": float(gaps.mean()) if len(gaps) else 0.0,
        "gap_median_s": float(np.median(gaps)) if len(gaps) else 0.0,
        "gap_cv": float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() else 0.0,
        "gpus_mean": float(gpus.mean()),
        "sizes": {int(s): float(c) / len(jobs) for s, c in zip(sizes, counts, strict=True)},
        "offered_gpus": offered_gpus(jobs) if submit_s[-1] > submit_s[0] else None,
        "users": len({j.user for j in trace.jobs}),
        "partitions": len({j.partition for j in trace.jobs}),
        "with_limit": float(has.mean()),
        "use_median": float(np.median(run_s[has] / limit_s[has])) if has.any() else None,
        "limit_spearman": None if np.isnan(alike) else alike,
        "cut_by_limit": float((run_s > limit_s).mean()),
    }


def _arrays(jobs: Sequence[TraceJob]) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        np.array([j.submit_s for j in jobs]),
        np.array([min(j.duration_s, j.time_limit_s) for j in jobs]),
        np.array([j.gpus for j in jobs], dtype=np.float64),
    )
