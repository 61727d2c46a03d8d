"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per line."""

import math
from collections.abc import Iterator
from pathlib import Path

from rltuned.sim.readers.rows import Bad, ParsedTrace, collect
from rltuned.sim.trace import Row, TraceJob, number, read_text, whole

FIELDS = (
    "job", "submit", "wait", "run", "allocated", "cpu_used", "mem_used", "processors",
    "requested_s", "mem_kib", "status", "user", "group", "executable", "queue", "partition",
    "preceding", "think",
)  # fmt: skip
UNKNOWN = "-1"
STATUS = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED"}


def read_swf(path: Path, *, processors_are: str = "gpus") -> ParsedTrace:
    """An SWF file; -1 is unknown, never a value. processors_are: `gpus` or `cpus`."""

    def make(row: Row) -> TraceJob:
        asked = row["allocated"] if row["processors"] == UNKNOWN else row["processors"]
        if asked == UNKNOWN:
            raise ValueError(f"job {row['job']} names no processors")
        count = whole({"processors": asked}, "processors")
        memory = number(row, "mem_kib")
        on_gpus = processors_are == "gpus"
        return TraceJob(
            job_id=row["job"],
            submit_s=number(row, "submit"),
            duration_s=number(row, "run"),
            time_limit_s=math.inf if row["requested_s"] == UNKNOWN else number(row, "requested_s"),
            gpus=count if on_gpus else 0,
            cpus=None if on_gpus else count,
            mem_mib=None if memory < 0 else math.ceil(memory * count / 1024),
            user=_known(row["user"]),
            account=_known(row["group"]),
            status=STATUS.get(row["status"], _known(row["status"])),
        )

    reading = collect(_lines(path), make)
    reading.notes["source"] = "Standard Workload Format"
    reading.notes["processors"] = f"read as {processors_are}"
    return reading


def _known(value: str) -> str:
    return "" if value == UNKNOWN else value


def _lines(path: Path) -> Iterator[tuple[int, Row | Bad]]:
    for line, text in enumerate(read_text(path).splitlines(), 1):
        cells = text.split()
        if not cells or cells[0].startswith(";"):
            continue
        if len(cells) != len(FIELDS):
            yield line, Bad(line, f"{len(cells)} fields instead of {len(FIELDS)}")
        else:
            yield line, dict(zip(FIELDS, cells, strict=True))
