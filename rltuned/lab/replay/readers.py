"""What all readers share: rows, bad rows, times, and the way into one trace."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import (
    LATEST_S,
    Row,
    csv_rows,
    from_zero,
    lines_in,
    number,
    number_text,
    read_text,
    whole,
)
from rltuned.sim.limits import Strength, draw_limits
from rltuned.sim.trace import Bad, Trace, TraceJob


@dataclass(slots=True)
class ParsedTrace:
    """What came out of a file. passed_over: rows that are not meant to be jobs (steps ...)."""

    jobs: list[TraceJob] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    passed_over: int = 0
    notes: dict[str, str] = field(default_factory=dict)


def table(
    path: Path, *, required: Iterable[str], header: tuple[str, ...] | None = None
) -> Iterator[tuple[int, Row | Bad]]:
    """Rows of a table with line numbers. header: where the file has none. Raises TraceError."""
    rows = csv_rows(lines_in(read_text(path)))
    line, first = (1, list(header)) if header else next(rows, (1, []))
    if isinstance(first, Bad):
        raise TraceError(f"{path}:{line}: header: {first.why}")
    names = tuple(name.strip() for name in first)
    missing = [name for name in required if name not in names]
    if missing:
        raise TraceError(f"{path}: header: no column {missing[0]!r}")
    return _named(rows, names)


def _named(
    rows: Iterator[tuple[int, list[str] | Bad]], names: tuple[str, ...]
) -> Iterator[tuple[int, Row | Bad]]:
    for line, cells in rows:
        if isinstance(cells, Bad):
            yield line, cells
        elif len(cells) != len(names):
            yield line, Bad(line, f"{len(cells)} fields instead of {len(names)}")
        else:
            yield line, {n: c.strip() for n, c in zip(names, cells, strict=True)}


def collect(
    rows: Iterable[tuple[int, Row | Bad]], make: Callable[[Row], TraceJob | None]
) -> ParsedTrace:
    """Make a job of every row; a ValueError makes it a bad row, None passes it over."""
    reading = ParsedTrace()
    seen: set[str] = set()
    for line, row in rows:
        if isinstance(row, Bad):
            reading.bad.append(row)
            continue
        try:
            job = make(row)
        except ValueError as error:
            reading.bad.append(Bad(line, str(error)))
            continue
        if job is None:
            reading.passed_over += 1
        elif not abs(job.submit_s) < LATEST_S:
            reading.bad.append(Bad(line, "its submit time is no Unix time in seconds"))
        elif job.job_id in seen:
            reading.bad.append(Bad(line, f"job {job.job_id} stands twice"))
        else:
            seen.add(job.job_id)
            reading.jobs.append(job)
    return reading


def finish(reading: ParsedTrace, path: Path, *, limits: Strength | None, seed: int) -> Trace:
    """Sort by submit time, from 0 on. limits: None = the source's. Raises TraceError."""
    if not reading.jobs:
        first = f": line {reading.bad[0].line}: {reading.bad[0].why}" if reading.bad else ""
        raise TraceError(f"{path}: no usable job{first}")
    ordered = sorted(reading.jobs, key=lambda j: j.submit_s)
    notes = {
        "source": f"{path.name}; {reading.notes.get('source', '')}".rstrip("; "),
        **{k: v for k, v in reading.notes.items() if k != "source"},
        "epoch": datetime.fromtimestamp(ordered[0].submit_s, UTC).isoformat(),
        "bad_rows": str(len(reading.bad)),
    }
    jobs = from_zero(ordered)
    if limits is not None:
        rng = np.random.default_rng(seed)
        run_s = np.array([j.duration_s for j in jobs])
        drawn = draw_limits(run_s, limits, rng, [j.user for j in jobs])
        jobs = tuple(
            replace(j, time_limit_s=float(limit)) for j, limit in zip(jobs, drawn, strict=True)
        )
        notes["synthetic"] = f"time_limit_s ({limits}, seed {seed})"
    return Trace(jobs, notes)


def moment(text: str, name: str) -> float:
    """ISO date and time as Unix seconds; without a zone it counts as UTC. Raises ValueError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is not a date and time: {text!r}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


# Microsoft Philly and SenseTime Helios.


PHILLY_SOURCE = "Microsoft Philly (Jeon et al., ATC'19), CC BY 4.0"
_ID = "jobid"
PHILLY_COLUMNS = ("job_id", "submit_epoch", "num_gpus", "run_time")
HELIOS_COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")


def read_philly_csv(path: Path) -> ParsedTrace:
    """The merged table: job_id, submit_epoch, num_gpus, run_time, vc, final_status, user ... The vc
    becomes the account; it is missing for jobs that did not pass, so it is no class.
    """

    def make(row: Row) -> TraceJob:
        return TraceJob(
            job_id=row["job_id"],
            submit_s=number(row, "submit_epoch"),
            duration_s=number(row, "run_time"),
            gpus=whole(row, "num_gpus"),
            user=row.get("user", ""),
            account=row.get("vc", ""),
            status=row.get("final_status", ""),
        )

    reading = collect(table(path, required=PHILLY_COLUMNS), make)
    reading.notes["source"] = PHILLY_SOURCE
    return reading


def read_philly_log(path: Path) -> ParsedTrace:
    """The original cluster_job_log: run time over all attempts, GPUs of the last one."""
    text = read_text(path)
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        records = list(_whole_records(text))
        if not any(isinstance(record, dict) for record in records):
            raise TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError:
        raise TraceError(f"{path}: not JSON: nested too deeply") from None
    if not isinstance(records, list):
        raise TraceError(f"{path}: not a JSON list of jobs")
    reading = collect(_flat(records), _philly_job)
    reading.notes["source"] = PHILLY_SOURCE
    return reading


def _whole_records(text: str) -> Iterator[dict[str, Any] | str]:
    """The jobs of a list that is no JSON as a whole; a text for each that cannot be read."""
    decoder, at, is_odd = json.JSONDecoder(), text.find("{"), False
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found, end, is_odd = {}, at + 1, True
        if _ID in found:
            if is_odd:
                yield "no JSON"
            yield found
            is_odd = False
        at = text.find("{", end)
    if is_odd:
        yield "no JSON"


def _flat(records: list[Any]) -> Iterator[tuple[int, Row | Bad]]:
    for position, record in enumerate(records, 1):
        try:
            yield position, _flat_job(record)
        except (KeyError, TypeError, AttributeError) as error:
            yield position, Bad(position, f"not a job as in cluster_job_log: {error!r}")
        except ValueError as error:
            yield position, Bad(position, str(error))


def _flat_job(record: Mapping[str, Any]) -> Row:
    gpus, run_s = 0, 0.0
    for attempt in record["attempts"]:
        if attempt.get("start_time") and attempt.get("end_time"):
            began, ended = attempt["start_time"], attempt["end_time"]
            run_s += moment(ended, "end_time") - moment(began, "start_time")
        gpus = sum(len(d["gpus"]) for d in attempt.get("detail", [])) or gpus
    return {
        "jobid": str(record["jobid"]),
        "submitted_time": str(record["submitted_time"]),
        "gpus": str(gpus),
        "run_time": str(run_s),
        "user": str(record.get("user") or ""),
        "vc": str(record.get("vc") or ""),
        "status": str(record.get("status") or ""),
    }


def _philly_job(row: Row) -> TraceJob:
    if not float(row["run_time"]) > 0:
        raise ValueError("no attempt with a start and a later end")
    if row["gpus"] == "0":
        raise ValueError("no attempt names its GPUs")
    return TraceJob(
        job_id=row["jobid"],
        submit_s=moment(row["submitted_time"], "submitted_time"),
        duration_s=float(row["run_time"]),
        gpus=int(row["gpus"]),
        user=row["user"],
        account=row["vc"],
        status=row["status"],
    )


def read_helios(path: Path) -> ParsedTrace:
    """cluster_log.csv of one Helios cluster; jobs without GPUs are kept."""

    def make(row: Row) -> TraceJob:
        gpus, cpus = whole(row, "gpu_num"), whole(row, "cpu_num")
        nodes = whole(row, "node_num") if row.get("node_num") else 0
        return TraceJob(
            job_id=row["job_id"],
            submit_s=moment(row["submit_time"], "submit_time"),
            duration_s=number(row, "duration"),
            gpus=gpus,
            cpus=cpus or None,
            nodes=nodes if nodes > 1 else None,
            user=row["user"],
            account=row["vc"],
            status=row.get("state", ""),
        )

    reading = collect(table(path, required=HELIOS_COLUMNS), make)
    reading.notes["source"] = "SenseTime Helios (Hu et al., SC'21), CC BY 4.0"
    return reading


# -- The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line ----------


FIELDS = (
    "job", "submit", "wait", "run", "allocated", "cpu_used", "mem_used", "processors",
    "requested_s", "mem_kib", "status", "user", "group", "executable", "queue", "partition",
    "preceding", "think",
)  # fmt: skip
UNKNOWN = -1.0
STATUS = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}


def read_swf(path: Path, *, processors_are: str = "gpus") -> ParsedTrace:
    """An SWF file; -1 (-1.0) is unknown, never a value. processors_are: `gpus` or `cpus`."""

    def make(row: Row) -> TraceJob:
        asked = "allocated" if number(row, "processors") == UNKNOWN else "processors"
        if number(row, asked) == UNKNOWN:
            raise ValueError(f"job {row['job']} names no processors")
        count = whole(row, asked)
        memory, limit_s = number(row, "mem_kib"), number(row, "requested_s")
        on_gpus = processors_are == "gpus"
        return TraceJob(
            job_id=row["job"],
            submit_s=number(row, "submit"),
            duration_s=number(row, "run"),
            time_limit_s=math.inf if limit_s == UNKNOWN else limit_s,
            gpus=count if on_gpus else 0,
            cpus=None if on_gpus else count,
            mem_mib=None if memory < 0 else math.ceil(memory * count / 1024),
            user=_known(row, "user"),
            account=_known(row, "group"),
            status=STATUS.get(status := _known(row, "status"), status),
        )

    reading = collect(_lines(path), make)
    reading.notes["source"] = "Standard Workload Format"
    reading.notes["processors"] = f"read as {processors_are}"
    return reading


def _known(row: Row, name: str) -> str:
    """A user, a group or a state, which are numbers as a rule; empty = unknown."""
    try:
        value = number(row, name)
    except ValueError:
        return row[name]
    return "" if value == UNKNOWN else number_text(value)


def _lines(path: Path) -> Iterator[tuple[int, Row | Bad]]:
    for line, text in enumerate(lines_in(read_text(path)), 1):
        cells = text.split()
        if not cells or cells[0].startswith(";"):
            continue
        if len(cells) != len(FIELDS):
            yield line, Bad(line, f"{len(cells)} fields instead of {len(FIELDS)}")
        else:
            yield line, dict(zip(FIELDS, cells, strict=True))


# Alibaba PAI 2020 (three tables without header rows) and the openb pods of 2023.


JOB_TABLE = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_TABLE = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
    "plan_gpu", "gpu_type",
)  # fmt: skip
INSTANCE_TABLE = (
    "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time",
    "end_time", "machine",
)  # fmt: skip
POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
GIB_MIB = 1024


@dataclass(slots=True)
class _AlibabaJob:
    """What the task and instance tables say of one job."""

    gpus: float = 0.0
    cpus: float = 0.0
    mem_gib: float = 0.0
    types: set[str] = field(default_factory=set)
    begin_s: float = math.inf
    end_s: float = -math.inf


def read_pai(path: Path) -> ParsedTrace:
    """A folder with pai_job_table.csv, pai_task_table.csv and pai_instance_table.csv.

    The job table's start is the submit time. The run goes from the first start to the last end of
    the job's instances, or of its tasks where there is no instance table. Plans are in hundredths
    of a GPU and of a CPU; sums over all instances are rounded up to whole ones.
    """
    if not path.is_dir():
        raise TraceError(f"{path}: not a folder with the PAI tables")
    found: dict[str, _AlibabaJob] = {}
    bad: list[Bad] = []
    instances = _find(path, "pai_instance_table", needed=False)
    for line, row in _pai(_find(path, "pai_task_table"), TASK_TABLE):
        _note(bad, line, row, "task table", lambda r: _task(found, r, times=instances is None))
    for line, row in _pai(instances, INSTANCE_TABLE):
        _note(bad, line, row, "instance table", lambda r: _instance(found, r))
    reading = collect(
        _pai(_find(path, "pai_job_table"), JOB_TABLE), lambda row: _pai_job(found, row)
    )
    reading.bad = bad + reading.bad
    reading.notes["source"] = "Alibaba PAI 2020 (Weng et al., NSDI'22), CC BY 4.0"
    reading.notes["rounded"] = "GPU shares and CPUs rounded up to whole ones per job"
    return reading


def _find(folder: Path, name: str, *, needed: bool = True) -> Path | None:
    for suffix in (".csv", ".csv.gz"):
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    if needed:
        raise TraceError(f"{folder}: no {name}.csv")
    return None


def _pai(path: Path | None, names: tuple[str, ...]) -> Iterator[tuple[int, Row | Bad]]:
    if path is None:
        return
    for line, row in table(path, required=names, header=names):
        if not isinstance(row, Bad) and row["job_name"] == "job_name":
            continue  # some copies do carry a header row
        yield line, row


def _note(
    bad: list[Bad], line: int, row: Row | Bad, where: str, use: Callable[[Row], None]
) -> None:
    if isinstance(row, Bad):
        bad.append(Bad(line, f"{where}: {row.why}"))
        return
    try:
        use(row)
    except ValueError as error:
        bad.append(Bad(line, f"{where}: {error}"))


def _task(found: dict[str, _AlibabaJob], row: Row, *, times: bool) -> None:
    count = number(row, "inst_num")
    job = found.setdefault(row["job_name"], _AlibabaJob())
    job.gpus += count * (number(row, "plan_gpu") / 100 if row["plan_gpu"] else 0.0)
    job.cpus += count * (number(row, "plan_cpu") / 100 if row["plan_cpu"] else 0.0)
    job.mem_gib += count * (number(row, "plan_mem") if row["plan_mem"] else 0.0)
    if row["gpu_type"] and row["gpu_type"] != "CPU":
        job.types.add(row["gpu_type"])
    if times:
        _span(job, row)


def _instance(found: dict[str, _AlibabaJob], row: Row) -> None:
    if row["job_name"] not in found:
        raise ValueError(f"no task of job {row['job_name']}")
    _span(found[row["job_name"]], row)


def _span(job: _AlibabaJob, row: Row) -> None:
    if row["start_time"] and row["end_time"]:
        job.begin_s = min(job.begin_s, number(row, "start_time"))
        job.end_s = max(job.end_s, number(row, "end_time"))


def _pai_job(found: dict[str, _AlibabaJob], row: Row) -> TraceJob:
    job = found.get(row["job_name"])
    if job is None:
        raise ValueError(f"no task of job {row['job_name']}")
    if not job.end_s > job.begin_s:
        raise ValueError(f"job {row['job_name']} has no start with a later end")
    return TraceJob(
        job_id=row["job_name"],
        submit_s=number(row, "start_time"),
        duration_s=job.end_s - job.begin_s,
        gpus=math.ceil(round(job.gpus, 6)),
        gpu_types=tuple(sorted(job.types)),
        cpus=math.ceil(job.cpus) or None,
        mem_mib=math.ceil(job.mem_gib * GIB_MIB) or None,
        user=row["user"],
        status=row["status"],
    )


def read_openb(path: Path) -> ParsedTrace:
    """openb_pod_list: pods with three times; a share of one GPU counts as a whole one."""

    def make(row: Row) -> TraceJob:
        if not row["scheduled_time"] or not row["deletion_time"]:
            raise ValueError(f"{row['name']} was never scheduled or never ended")
        return TraceJob(
            job_id=row["name"],
            submit_s=number(row, "creation_time"),
            duration_s=number(row, "deletion_time") - number(row, "scheduled_time"),
            gpus=whole(row, "num_gpu"),
            gpu_types=tuple(t for t in row["gpu_spec"].split("|") if t),
            cpus=math.ceil(number(row, "cpu_milli") / 1000) or None,
            mem_mib=whole(row, "memory_mib") or None,
            qos=row.get("qos", ""),
            status=row.get("pod_phase", ""),
        )

    reading = collect(table(path, required=POD_COLUMNS), make)
    reading.notes["source"] = "Alibaba openb 2023 (Weng et al., ATC'23); licence not stated"
    reading.notes["rounded"] = "a share of a GPU counts as a whole one"
    return reading
