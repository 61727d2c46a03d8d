"""What is said of one job, by `rltuned explain` and by the job's page, and the lines of its
history. The sentences are in templates/explain.txt: times in a document are numbers, there they
become words.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from rltuned.core.refusals import BY_LABEL
from rltuned.journal.cycles import JobChange
from rltuned.report import render
from rltuned.text import when

_UNKNOWN: Final = "unknown (the process ended before it was seen)"
BOUNDS: Final = {
    "clip": "its own time limit: no delay is longer than that, for its size, and its share of the "
    "backlog",
    "max_delay": "order.max_delay_s",
    "room": "what its own priority has room for: below 1 slurmctld keeps no order",
    "deadline": "its deadline, which is near: it stands where Slurm alone would put it",
    "heterogeneous": "the heterogeneous job that it is part of: it stands where Slurm alone would "
    "put it, and never earlier",
    "scope": "one of its partitions, which rltuned does not manage: it stands where Slurm alone "
    "would put it, and never earlier",
}


def in_words(job: dict[str, Any]) -> list[str]:
    """What Look.explain says of a job, the expected start first."""
    text = render("explain.txt", job=job, refusals=BY_LABEL, bounds=BOUNDS)
    return [*filter(None, text.splitlines()), *_history(job)]


def _history(job: dict[str, Any]) -> Iterator[str]:
    if job["history"] is None:
        yield f"Changes so far: unknown ({job['history_unknown']})."
    elif not job["history"]:
        yield "Changes so far: none."
    else:
        yield "Changes so far:"
        changes = [JobChange(**change) for change in job["history"]]
        yield from (f"  {line}" for line in lines_of(changes))


def lines_of(changes: Iterable[JobChange]) -> Iterator[str]:
    """Changes, under a line for each record."""

    def record(row: JobChange) -> tuple[str, int, float]:
        return row.cluster, row.job_id, row.submitted_at

    for (cluster, _, submitted_at), found in groupby(sorted(changes, key=record), key=record):
        rows = list(found)
        yield f"job {rows[-1].address} of {cluster}, submitted {when(submitted_at)}"
        for row in rows:
            detail = f" ({row.detail})" if row.detail else ""
            result = f"{row.result}{detail}" if row.result else _UNKNOWN
            yield f"  {when(row.at)}  {what(row)}: {result}{_by(row)}"


def what(row: JobChange) -> str:
    """What changed, from which value to which."""
    if row.new is not None:
        return f"{row.field} {row.old} -> {row.new}"
    nice = f", nice {row.nice} set again" if row.nice else ""
    return f"priority {row.old} -> released{nice}"


def _by(row: JobChange) -> str:
    if row.snapshot is None:
        return "; by restore"
    who = row.policy if row.mode == "live" else f"mode {row.mode}" if row.mode else ""
    text = f"; cycle {row.cycle}" + (f" by {who}" if who else "")
    if row.reason is None:
        return text
    reason = row.reason
    return f"{text}: {reason['why']}; place {reason['rank_before']} -> {reason['rank_after']}"
