"""Alibaba PAI 2020 (three tables without header rows) and the openb pods of 2023."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rltuned.errors import TraceError
from rltuned.lab.replay.readers.rows import ParsedTrace, collect, table
from rltuned.lab.replay.trace_file import Row, number, whole
from rltuned.sim.trace import Bad, TraceJob

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
