"""Parts of the status document that are read off one cycle: GPUs, users, reasons, jobs, nodes."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Final

from rltuned.core.entry import Entry
from rltuned.core.reasons import reason_of
from rltuned.core.standing import Place
from rltuned.core.starts import Expected, start_document
from rltuned.daemon.documents import place_document
from rltuned.daemon.report import CycleReport
from rltuned.daemon.sums import GPU_STATES, Sums, in_line, tasks
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.text import between

Document = dict[str, Any]
USERS: Final = 8
NODES: Final = 30
"""Nodes that are shown."""
LOWEST: Final = 1
"""Slurm's lowest priority of a job that may start: it keeps no order among those."""
_RANKED: Final = ("delay_s", "rank_before", "rank_wished", "what", "bound", "fits")
"""Of an entry; null where there is none."""


def gpus(sums: Sums) -> list[Document]:
    """By type."""
    return [
        {"type": name, **{state: sums.gpus.get((state, name), 0) for state in GPU_STATES}}
        for name in sums.types
    ]


def waiting(seen: Snapshot, sums: Sums) -> Document:
    """The jobs that could start, and how many more there are."""
    every = sum(tasks(job) for job in seen.pending)
    return {
        "jobs": sums.waiting,
        "gpus": sum(sums.wanted.values()),
        "work_s": sums.work_s,
        "longest_s": sums.longest_s,
        "cannot_start": every - sums.waiting,
    }


def users(seen: Snapshot, *, named: bool) -> list[Document]:
    """Who waits for most GPUs; without names the order alone says who is who."""
    found: dict[str, Document] = defaultdict(
        lambda: {"used": 0, "wanted": 0, "jobs": 0, "waited_s": 0.0}
    )
    for job in in_line(seen):
        row, count = found[job.user], tasks(job)
        row["wanted"] += job.request.size.gpus * count
        row["jobs"] += count
        row["waited_s"] += job.waited_s(seen.taken_at) * count
    for run in seen.running:
        found[run.user]["used"] += run.request.size.gpus
    waits = [(name, row) for name, row in found.items() if row["jobs"]]
    waits.sort(key=lambda one: (-one[1]["wanted"], -one[1]["jobs"], one[0]))
    return [
        {
            "user": name if named else f"user {chr(ord('A') + place)}",
            "used": row["used"],
            "wanted": row["wanted"],
            "jobs": row["jobs"],
            "mean_wait_s": row["waited_s"] / row["jobs"],
        }
        for place, (name, row) in enumerate(waits[:USERS])
    ]


def reasons(seen: Snapshot) -> list[Document]:
    """Why jobs wait, by Slurm's reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for job in seen.pending:
        counts[(job.reason or "None").partition(",")[0]] += tasks(job)
    return [
        {"reason": reason, "words": reason_of(reason).words, "jobs": count}
        for reason, count in counts.most_common()
    ]


def moves(report: CycleReport, to: Mapping[JobId, int]) -> Document:
    """How many jobs stand elsewhere than in Slurm's own order, or would where nothing is written.
    to: CycleReport.targets. tied: with the lowest number.
    """
    entries = report.decision.entries if report.decision else ()
    steps = [e.rank_before - to[e.job.job_id] for e in entries]
    return {
        "up": sum(step > 0 for step in steps),
        "down": sum(step < 0 for step in steps),
        "same": sum(step == 0 for step in steps),
        "tied": tied if (tied := sum(e.settled <= LOWEST for e in entries)) > 1 else 0,
        "most_up": max([*steps, 0]),
        "most_down": -min([*steps, 0]),
    }


def row(
    job: PendingJob,
    seen: Snapshot,
    place: Place | None,
    entry: Entry | None,
    refusal: str | None,
    *,
    named: bool,
    writes: bool,
) -> Document:
    """A job and where it stands; place: None = Slurm could not start it. entry: None = it is left
    alone, or nothing is ranked; refusal: why, in words. rank_to: the place in force, or where
    nothing is written the proposed one. Nothing of it is a name unless `named`.
    """
    asked = _asked(job, seen, named=named)
    ranked = {name: getattr(entry, name, None) for name in _RANKED}
    planned = None if entry is None else entry.settled
    stands = place_document(job, place)
    return {
        **asked,
        **ranked,
        **{name: stands[name] for name in ("rank_now", "ties", "priority_tier")},
        "rank_to": stands["rank_now"] if writes or entry is None else entry.rank_wished,
        "planned": planned,
        "priority": stands["current_priority"],
        "refusal": refusal,
    }


def expected(forecast: Expected | None, job_id: JobId, now: float) -> str | None:
    """When a job is expected to start, in words; None = not known."""
    times = start_document(forecast, job_id)["expected_start"]
    return None if times is None else between(times["low_s"], times["high_s"], now)


def _asked(job: PendingJob, seen: Snapshot, *, named: bool) -> Document:
    limit_s = job.request.time_limit_s
    return {
        "job": job.address,
        "partition": ",".join(job.partitions),
        "user": job.user if named else None,
        "gpus": job.request.total.gpus,
        "limit_s": None if limit_s is None or math.isinf(limit_s) else limit_s,
        "waited_s": job.waited_s(seen.taken_at),
        "reason": job.reason or "None",
        "expected": None,
    }


def nodes(seen: Snapshot, *, jobs: bool) -> Document:
    """Nodes with GPUs: those that take no jobs, then those where a job ends first by its limit,
    and what runs there. idle: how many run nothing, which are not listed.
    """
    runs: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for run in seen.running:
        for share in run.shares:
            runs[share.node].append((run.address, run.latest_end()))
    with_gpus = [one for one in seen.nodes if one.total.gpus]
    listed = [one for one in with_gpus if runs[one.name] or not one.schedulable]
    rows = [_node(one, runs[one.name], jobs=jobs) for one in listed]
    rows.sort(key=lambda row: (not row["down"], row["next_end_at"] or math.inf, row["node"]))
    return {
        "all": len(with_gpus),
        "idle": len(with_gpus) - len(listed),
        "rows": rows[:NODES],
        "more": len(rows[NODES:]),
    }


def _node(one: Node, runs: list[tuple[str, float]], *, jobs: bool) -> Document:
    ends = [end for _, end in runs if math.isfinite(end)]
    return {
        "node": one.name,
        "types": ", ".join(sorted({g.gpu_type or "gpu" for g in one.gpus})),
        "used": one.total.gpus - one.free.gpus,
        "gpus": one.total.gpus,
        "down": not one.schedulable,
        "state": one.state or ("" if one.schedulable else "takes no jobs"),
        "running": len(runs),
        "jobs": [name for name, _ in runs][:6] if jobs else None,
        "next_end_at": min(ends, default=None),
        "free_at": max(ends, default=None),
    }


def partitions(report: CycleReport, to: Mapping[JobId, int]) -> list[Document]:
    """A line for each: what waits, how long, and how many jobs stand elsewhere. to: as in moves."""
    waits: dict[str, list[float]] = defaultdict(list)
    moved: Counter[tuple[str, str]] = Counter()
    for job in report.snapshot.pending if report.snapshot else ():
        waits[",".join(job.partitions)].append(job.waited_s(report.started_at))
    for entry in report.decision.entries if report.decision else ():
        step = entry.rank_before - to[entry.job.job_id]
        way = "up" if step > 0 else "down" if step < 0 else "same"
        moved[",".join(entry.job.partitions), way] += 1
    return [
        {
            "partition": name,
            "pending": len(waited_s),
            "waited_mean_s": sum(waited_s) / len(waited_s),
            "waited_most_s": max(waited_s),
            **{way: moved[name, way] for way in ("up", "down", "same")},
            "left_alone": len(waited_s) - sum(moved[name, way] for way in ("up", "down", "same")),
        }
        for name, waited_s in sorted(waits.items())
    ]
