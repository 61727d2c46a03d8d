"""Slurm's own accounting: `sacct --parsable2` and `sacct --json`.

Take it with -X (no steps) and, for --parsable2, at least the columns of COLUMNS. Times without a
zone count as UTC: run sacct with TZ=UTC, or live with one odd hour per clock change.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rltuned.errors import TraceError
from rltuned.sim.readers.rows import Bad, Reading, Row, collect, moment, read_text, table
from rltuned.sim.trace import TraceJob

COLUMNS = ("JobID", "Submit", "Start", "End", "Timelimit", "ReqTRES", "Partition", "State")
"""sacct -X --parsable2 --format=JobID,Submit,Start,End,Timelimit,ReqTRES,NNodes,Partition,User,
Account,QOS,State"""
_SPAN = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_AMOUNT = re.compile(r"([^=]+)=(\d+(?:\.\d+)?)([KMGTP])?")
_UNITS_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_NO_LIMIT = {"UNLIMITED", "Partition_Limit", ""}
_NOT_YET = {"Unknown", "None", ""}
SOURCE = "Slurm accounting"


def read_sacct_text(path: Path) -> Reading:
    """The output of `sacct --parsable2`; steps are passed over."""
    reading = collect(table(path, required=COLUMNS, delimiter="|"), _from_columns)
    reading.notes["source"] = SOURCE
    return reading


def read_sacct_json(path: Path) -> Reading:
    """The output of `sacct --json`, data_parser 0.0.38 and later."""
    try:
        whole = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("jobs"), list):
        raise TraceError(f"{path}: no list of jobs")
    reading = collect(_records(whole["jobs"]), _from_columns)
    reading.notes["source"] = SOURCE
    return reading


def _from_columns(row: Row) -> TraceJob | None:
    if "." in row["JobID"]:
        return None
    state = row["State"].split(" ")[0]
    if row["Start"] in _NOT_YET or row["End"] in _NOT_YET:
        raise ValueError(f"job {row['JobID']} has not run to its end ({state})")
    amounts = tres(row["ReqTRES"])
    nodes = int(row.get("NNodes") or amounts.get("node", 1))
    began, ended = moment(row["Start"], "Start"), moment(row["End"], "End")
    gpus, types = _gpus(amounts)
    return TraceJob(
        job_id=row["JobID"],
        submit_s=moment(row["Submit"], "Submit"),
        duration_s=ended - began,
        time_limit_s=limit_s(row["Timelimit"]),
        gpus=gpus,
        gpu_types=types,
        cpus=int(amounts["cpu"]) if "cpu" in amounts else None,
        mem_mib=math.ceil(amounts["mem"]) if "mem" in amounts else None,
        nodes=nodes if nodes > 1 else None,
        partition=row["Partition"].split(",")[0],
        user=row.get("User", ""),
        account=row.get("Account", ""),
        qos=row.get("QOS", ""),
        status=state,
    )


def tres(text: str) -> dict[str, float]:
    """`cpu=4,mem=8G,gres/gpu:p100=2` -> amounts; memory in MiB.

    Raises:
        ValueError: it is none.
    """
    amounts: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        match = _AMOUNT.fullmatch(part)
        if match is None:
            raise ValueError(f"not a TRES list: {text!r}")
        name, value, unit = match.groups()
        amounts[name] = float(value) * (_UNITS_MIB[unit] if unit else 1.0)
    return amounts


def _gpus(amounts: Mapping[str, float]) -> tuple[int, tuple[str, ...]]:
    typed = {n.partition(":")[2]: int(v) for n, v in amounts.items() if n.startswith("gres/gpu:")}
    if len(typed) > 1:
        raise ValueError(f"asks for {len(typed)} types of GPUs at once")
    count = int(amounts.get("gres/gpu", sum(typed.values())))
    return count, tuple(typed)


def limit_s(text: str) -> float:
    """`2-00:00:00`, `30:00`, `UNLIMITED` -> seconds, inf = none.

    Raises:
        ValueError: it is none of these.
    """
    if text in _NO_LIMIT:
        return math.inf
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"not a time limit: {text!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _records(jobs: list[Any]) -> Iterator[tuple[int, Row | Bad]]:
    for position, job in enumerate(jobs, 1):
        try:
            yield position, _columns(job)
        except (KeyError, TypeError, AttributeError) as error:
            yield position, Bad(position, f"not a job as sacct writes it: {error!r}")


def _columns(job: Mapping[str, Any]) -> Row:
    """A JSON record in the columns of --parsable2."""
    time, array = job["time"], job.get("array") or {}
    task = _value(array.get("task_id"))
    parent = array.get("job_id")
    state = job["state"]["current"]
    asked = ((job.get("tres") or {}).get("requested")) or []
    limit = _value(time.get("limit"))
    return {
        "JobID": f"{parent}_{task}" if parent and task is not None else str(job["job_id"]),
        "Submit": _iso(_value(time["submission"])),
        "Start": _iso(_value(time["start"])),
        "End": _iso(_value(time["end"])),
        "Timelimit": "" if limit is None else f"{limit}:00",
        "ReqTRES": ",".join(_tres(item) for item in asked),
        "NNodes": str(job.get("allocation_nodes") or ""),
        "Partition": str(job["partition"]),
        "User": str(job.get("user") or (job.get("association") or {}).get("user") or ""),
        "Account": str(job.get("account") or ""),
        "QOS": str(job.get("qos") or ""),
        "State": state if isinstance(state, str) else str(state[0]),
    }


def _tres(item: Mapping[str, Any]) -> str:
    name = f"{item['type']}/{item['name']}" if item.get("name") else str(item["type"])
    unit = "M" if item["type"] == "mem" else ""
    return f"{name}={item['count']}{unit}"


def _value(field: object) -> int | None:
    """A number as old and new data parsers write it; None = not set or infinite."""
    if isinstance(field, Mapping):
        if not field.get("set") or field.get("infinite"):
            return None
        field = field.get("number")
    return field if isinstance(field, int) else None


def _iso(seconds: int | None) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else ""
