"""Microsoft Philly and SenseTime Helios."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltuned.errors import TraceError
from rltuned.sim.readers.rows import Bad, ParsedTrace, collect, moment, table
from rltuned.sim.trace import Row, TraceJob, number, read_text, whole

PHILLY_SOURCE = "Microsoft Philly (Jeon et al., ATC'19), CC BY 4.0"
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
    try:
        records = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(records, list):
        raise TraceError(f"{path}: not a JSON list of jobs")
    reading = collect(_flat(records), _philly_job)
    reading.notes["source"] = PHILLY_SOURCE
    return reading


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
