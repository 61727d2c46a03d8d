"""`sacct --json` as the rows that slurm/accounting.py reads, whichever data parser wrote it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rltuned.errors import TraceError
from rltuned.slurm.sacct_values import NOT_ASKED
from rltuned.slurm.values import format_limit

COLUMNS: Final = (
    *("JobID", "Submit", "Eligible", "Start", "End", "State", "Timelimit", "ReqTRES", "AllocTRES"),
    *("NodeList", "Partition", "User", "Account", "QOS"),
)
_MINUTE_S: Final = 60


def rows_of_json(text: str, source: str) -> Iterator[str]:
    """A header row, and a row for each job; odd ones are bad rows. Raises TraceError."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"{source}:{error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("jobs"), list):
        raise TraceError(f"{source}: no list of jobs")
    yield "|".join(COLUMNS)
    for job in whole["jobs"]:
        try:
            yield "|".join(_cells(job))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            yield f"not a job as sacct writes it: {error!r}".replace("|", " ")


def _cells(job: Mapping[str, Any]) -> tuple[str, ...]:
    time, array = job["time"], job.get("array") or {}
    task, parent = _value(array.get("task_id")), array.get("job_id")
    state, tres = job["state"]["current"], job.get("tres") or {}
    limit = _value(time.get("limit"))
    return (
        f"{parent}_{task}" if parent and task is not None else str(job["job_id"]),
        *(str(_value(time.get(k)) or "") for k in ("submission", "eligible", "start", "end")),
        state if isinstance(state, str) else str(state[0]),
        "UNLIMITED" if limit is None else format_limit(float(limit * _MINUTE_S)),
        *(",".join(_tres(item) for item in tres.get(k) or []) for k in ("requested", "allocated")),
        str(job.get("nodes", NOT_ASKED) or ""),
        str(job["partition"]),
        str(job.get("user") or (job.get("association") or {}).get("user") or ""),
        str(job.get("account") or ""),
        str(job.get("qos") or ""),
    )


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
