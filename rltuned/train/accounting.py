"""Slurm's accounting data as a history to learn from.

Made by: SLURM_TIME_FORMAT=%s sacct -a -X --parsable2 --starttime=...
--format=JobIDRaw,Submit,Eligible,Start,End,Partition,ReqTRES,TimelimitRaw,Flags
"""

import csv
import math
import re
from pathlib import Path
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.units import GpuType
from rltuned.errors import TraceError
from rltuned.train.history import Started

COLUMNS: Final = (
    "JobIDRaw",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "Partition",
    "ReqTRES",
    "TimelimitRaw",
    "Flags",
)
NOT_YET: Final = frozenset({"", "Unknown", "None", "0"})
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_TYPES = re.compile(r"(?:^|,)gres/gpu:([^=,]+)=[1-9]")
"""Only where AccountingStorageTRES names the types: Slurm keeps the total alone otherwise."""
_NODES = re.compile(r"(?:^|,)node=(\d+)")
_CPUS = re.compile(r"(?:^|,)cpu=(\d+)")


def read_accounting(path: Path) -> tuple[list[Started], int]:
    """The jobs that started, and how many rows did not.

    Raises:
        TraceError: names file, line and field.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    rows = csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    missing = [c for c in COLUMNS if c not in (rows.fieldnames or [])]
    if missing:
        raise TraceError(f"{path}: header: no column {missing[0]!r}; see rltuned train history")
    found, never = [], 0
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if row["Start"] in NOT_YET or row["Eligible"] in NOT_YET:
            never += 1
        else:
            found.append(_started(row, where))
    return found, never


def _started(row: dict[str, str], where: str) -> Started:
    end_s = math.inf if row["End"] in NOT_YET else _seconds(row, "End", where)
    asked = row["ReqTRES"] or ""
    gpus, cpus, nodes = (_amount(p, asked) for p in (_GPUS, _CPUS, _NODES))
    if not (row["JobIDRaw"] or "").isdigit():
        raise TraceError(f"{where}: JobIDRaw is not a number: {row['JobIDRaw']!r}")
    return Started(
        job_id=int(row["JobIDRaw"]),
        submit_s=_seconds(row, "Submit", where),
        eligible_s=_seconds(row, "Eligible", where),
        start_s=_seconds(row, "Start", where),
        end_s=end_s,
        request=Request(
            Resources(gpus, max(1, cpus), 0),
            _limit(row["TimelimitRaw"], where),
            tuple(GpuType(t) for t in sorted(_TYPES.findall(asked))),
            max(1, nodes),
        ),
        partition=row["Partition"],
        by_main="SchedMain" in (row["Flags"] or ""),
    )


def _amount(pattern: re.Pattern[str], tres: str) -> int:
    match = pattern.search(tres)
    return int(match.group(1)) if match else 0


def _seconds(row: dict[str, str], name: str, where: str) -> float:
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise TraceError(
            f"{where}: {name} is not in seconds: {row[name]!r}; set SLURM_TIME_FORMAT=%s"
        ) from None


def _limit(text: str, where: str) -> float:
    """Seconds; Slurm gives minutes, or a word where there is no limit."""
    if text in {"UNLIMITED", "Partition_Limit", ""}:
        return math.inf
    if not text.isdigit():
        raise TraceError(f"{where}: TimelimitRaw is not in minutes: {text!r}")
    return max(60.0, 60.0 * int(text))
