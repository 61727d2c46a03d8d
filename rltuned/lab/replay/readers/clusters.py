"""Microsoft Philly and SenseTime Helios."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rltuned.errors import TraceError
from rltuned.lab.replay.readers.rows import ParsedTrace, collect, moment, table
from rltuned.lab.replay.trace_file import Row, lines_in, number, number_text, read_text, whole
from rltuned.sim.trace import Bad, TraceJob

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
