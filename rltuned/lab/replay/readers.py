"""Published traces in their authors' formats."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import (
    Row,
    Rows,
    collect,
    from_zero,
    lines_in,
    number,
    number_text,
    read_text,
    table,
    whole,
)
from rltuned.sim.limits import Strength, draw_limits
from rltuned.sim.trace import Bad, Trace, TraceJob

PHILLY = "Microsoft Philly (Jeon et al., ATC'19), CC BY 4.0"


def finish(read: Trace, path: Path, *, limits: Strength | None, seed: int) -> Trace:
    """Count submits from 0 on. limits: None = the source's."""
    source, jobs = read.notes.get("source", ""), from_zero(read.jobs)
    notes = read.notes | {
        "source": f"{path.name}; {source}".rstrip("; "),
        "epoch": datetime.fromtimestamp(read.jobs[0].submit_s, UTC).isoformat(),
        "bad_rows": str(len(read.bad)),
    }
    if limits is not None:
        rng, run_s = np.random.default_rng(seed), np.array([j.duration_s for j in jobs])
        drawn = draw_limits(run_s, limits, rng, [j.user for j in jobs]).tolist()
        jobs = tuple(replace(j, time_limit_s=s) for j, s in zip(jobs, drawn, strict=True))
        notes["synthetic"] = f"time_limit_s ({limits}, seed {seed})"
    return Trace(jobs, notes, read.bad)


def _rows(path: Path, required: tuple[str, ...], *, header: tuple[str, ...] = ()) -> Rows:
    return table(lines_in(read_text(path)), str(path), required, header=header)[1]


def moment(text: str, name: str) -> float:
    """ISO date and time as Unix seconds; without a zone it counts as UTC. Raises ValueError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is not a date and time: {text!r}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


# -- Microsoft Philly and SenseTime Helios --------------------------------------------------------


def read_philly_csv(path: Path) -> Trace:
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

    columns = ("job_id", "submit_epoch", "num_gpus", "run_time")
    return collect(path, _rows(path, columns), make, {"source": PHILLY})


def read_philly_log(path: Path) -> Trace:
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
    return collect(path, enumerate(records, 1), _philly_job, {"source": PHILLY})


def _whole_records(text: str) -> Iterator[dict[str, Any] | str]:
    """The jobs of a list that is no JSON as a whole; a text for each that cannot be read."""
    decoder, at, is_odd = json.JSONDecoder(), text.find("{"), False
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found, end, is_odd = {}, at + 1, True
        if "jobid" in found:
            if is_odd:
                yield "no JSON"
            yield found
            is_odd = False
        at = text.find("{", end)
    if is_odd:
        yield "no JSON"


def _philly_job(record: Mapping[str, Any]) -> TraceJob:
    gpus, run_s = 0, 0.0
    try:
        for attempt in record["attempts"]:
            began, ended = attempt.get("start_time"), attempt.get("end_time")
            if began and ended:
                run_s += moment(ended, "end_time") - moment(began, "start_time")
            gpus = sum(len(d["gpus"]) for d in attempt.get("detail", [])) or gpus
        if not run_s > 0:
            raise ValueError("no attempt with a start and a later end")
        if not gpus:
            raise ValueError("no attempt names its GPUs")
        return TraceJob(
            job_id=str(record["jobid"]),
            submit_s=moment(str(record["submitted_time"]), "submitted_time"),
            duration_s=run_s,
            gpus=gpus,
            user=str(record.get("user") or ""),
            account=str(record.get("vc") or ""),
            status=str(record.get("status") or ""),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a job as in cluster_job_log: {error!r}") from None


def read_helios(path: Path) -> Trace:
    """cluster_log.csv of one Helios cluster; jobs without GPUs are kept."""

    def make(row: Row) -> TraceJob:
        nodes = whole(row, "node_num") if row.get("node_num") else 0
        return TraceJob(
            job_id=row["job_id"],
            submit_s=moment(row["submit_time"], "submit_time"),
            duration_s=number(row, "duration"),
            gpus=whole(row, "gpu_num"),
            cpus=whole(row, "cpu_num") or None,
            nodes=nodes if nodes > 1 else None,
            user=row["user"],
            account=row["vc"],
            status=row.get("state", ""),
        )

    columns = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")
    source = "SenseTime Helios (Hu et al., SC'21), CC BY 4.0"
    return collect(path, _rows(path, columns), make, {"source": source})


# -- The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line ----------

FIELDS = (
    "job", "submit", "wait", "run", "allocated", "cpu_used", "mem_used", "processors",
    "requested_s", "mem_kib", "status", "user", "group", "executable", "queue", "partition",
    "preceding", "think",
)  # fmt: skip
UNKNOWN = -1.0
STATUS = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}


def read_swf(path: Path, *, processors_are: str = "gpus") -> Trace:
    """An SWF file; -1 (-1.0) is unknown, never a value. processors_are: `gpus` or `cpus`."""

    def rows() -> Iterator[tuple[int, Row | Bad]]:
        for line, text in enumerate(lines_in(read_text(path)), 1):
            cells = text.split()
            if cells and not cells[0].startswith(";"):
                right = len(cells) == len(FIELDS)
                why = f"{len(cells)} fields instead of {len(FIELDS)}"
                yield line, dict(zip(FIELDS, cells, strict=False)) if right else Bad(line, why)

    def make(row: Row) -> TraceJob:
        asked = "allocated" if number(row, "processors") == UNKNOWN else "processors"
        if number(row, asked) == UNKNOWN:
            raise ValueError(f"job {row['job']} names no processors")
        count, on_gpus = whole(row, asked), processors_are == "gpus"
        memory, limit_s = number(row, "mem_kib"), number(row, "requested_s")
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

    notes = {"source": "Standard Workload Format", "processors": f"read as {processors_are}"}
    return collect(path, rows(), make, notes)


def _known(row: Row, name: str) -> str:
    """A user, a group or a state, which are numbers as a rule; empty = unknown."""
    try:
        value = number(row, name)
    except ValueError:
        return row[name]
    return "" if value == UNKNOWN else number_text(value)


# -- Alibaba PAI 2020 (three tables without header rows) and the openb pods of 2023 ---------------

JOB_TABLE = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_TABLE = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
    "plan_gpu", "gpu_type",
)  # fmt: skip
INSTANCE_TABLE = (
    "job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time",
    "end_time", "machine",
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


class _Pai:
    """The tables of a folder, and what they say of the jobs so far."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._jobs = folder, dict[str, _AlibabaJob]()
        self._has_instances = self._file("instance") is not None

    def _file(self, name: str) -> Path | None:
        files = (self._folder / f"pai_{name}_table.csv{end}" for end in ("", ".gz"))
        return next((file for file in files if file.is_file()), None)

    def rows(self, name: str, columns: tuple[str, ...]) -> Rows:
        """Of one table. Raises TraceError: it is needed, and not there."""
        file = self._file(name)
        if file is None and name != "instance":
            raise TraceError(f"{self._folder}: no pai_{name}_table.csv")
        for line, row in _rows(file, columns, header=columns) if file else ():
            # some copies do carry a header row
            if isinstance(row, Bad) or row["job_name"] != "job_name":
                yield line, row

    def task(self, row: Row) -> None:
        count, job = number(row, "inst_num"), self._jobs.setdefault(row["job_name"], _AlibabaJob())
        gpus, cpus, mem_gib = (
            number(row, name) if row[name] else 0.0 for name in ("plan_gpu", "plan_cpu", "plan_mem")
        )
        job.gpus += count * (gpus / 100)
        job.cpus += count * (cpus / 100)
        job.mem_gib += count * mem_gib
        job.types |= {row["gpu_type"]} - {"", "CPU"}
        if not self._has_instances:
            self.instance(row)

    def instance(self, row: Row) -> None:
        job = self._of(row)
        if row["start_time"] and row["end_time"]:
            job.begin_s = min(job.begin_s, number(row, "start_time"))
            job.end_s = max(job.end_s, number(row, "end_time"))

    def job(self, row: Row) -> TraceJob:
        job = self._of(row)
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

    def _of(self, row: Row) -> _AlibabaJob:
        if row["job_name"] not in self._jobs:
            raise ValueError(f"no task of job {row['job_name']}")
        return self._jobs[row["job_name"]]


def read_pai(path: Path) -> Trace:
    """A folder with pai_job_table.csv, pai_task_table.csv and pai_instance_table.csv.

    The job table's start is the submit time. The run goes from the first start to the last end of
    the job's instances, or of its tasks where there is no instance table. Plans are in hundredths
    of a GPU and of a CPU; sums over all instances are rounded up to whole ones.
    """
    if not path.is_dir():
        raise TraceError(f"{path}: not a folder with the PAI tables")
    pai, bad = _Pai(path), list[Bad]()
    uses = ("task", TASK_TABLE, pai.task), ("instance", INSTANCE_TABLE, pai.instance)
    for name, columns, use in uses:
        for line, row in pai.rows(name, columns):
            if isinstance(row, Bad):
                bad.append(Bad(line, f"{name} table: {row.why}"))
                continue
            try:
                use(row)
            except ValueError as error:
                bad.append(Bad(line, f"{name} table: {error}"))
    notes = {
        "source": "Alibaba PAI 2020 (Weng et al., NSDI'22), CC BY 4.0",
        "rounded": "GPU shares and CPUs rounded up to whole ones per job",
    }
    read = collect(path, pai.rows("job", JOB_TABLE), pai.job, notes)
    return replace(read, bad=(*bad, *read.bad))


def read_openb(path: Path) -> Trace:
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

    columns = (
        "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time",
        "deletion_time", "scheduled_time",
    )  # fmt: skip
    notes = {
        "source": "Alibaba openb 2023 (Weng et al., ATC'23); licence not stated",
        "rounded": "a share of a GPU counts as a whole one",
    }
    return collect(path, _rows(path, columns), make, notes)
