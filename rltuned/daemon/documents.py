"""What was decided, as documents: of `plan --json`, `explain --json` and the daemon's port."""

import math
from pathlib import Path
from typing import Any, Final

from rltuned.core.decide import Decision, Entry, Knobs
from rltuned.core.features import COLUMNS
from rltuned.core.line import sentence
from rltuned.core.order import class_of
from rltuned.core.placement import Placement
from rltuned.core.planning import Place, priority_order
from rltuned.core.refusals import Refusal
from rltuned.core.starts import Expected, start_document
from rltuned.daemon.groups import Groups, place_of
from rltuned.daemon.report import in_line
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import JournalError
from rltuned.journal.cycles import changes_of
from rltuned.journal.store import reading
from rltuned.slurm.values import asked_job, parse_tasks

DECIDED: Final = (
    "proposed_priority", "planned_priority", "score", "delay_s", "delay_bound_s",
    "delay_in_force_s", "rank_before", "rank_wished", "rank_after", "placement", "verdict", "why",
    "changes",
)  # fmt: skip
"""What a ranked job has, in JSON."""
OF_NUMBERS: Final = (
    *DECIDED, "sentence", "features", "delay", "refusal", "changed_by_rltuned", "policy",
    "trust", "ranked_jobs",
)  # fmt: skip
"""What follows from a decision, or from numbers of rltuned, in JSON."""


OF_START: Final = ("expected_start", "expected_by_limits", "expected_left_out")
"""What is known of a start, in JSON."""


def explanation(
    asked: str, snapshot: Snapshot, context: Context, decision: Decision | None
) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job. decision: of
    this look; None = nothing is decided, and what follows from a decision is null.
    """
    asked = _here(asked, snapshot.cluster)
    found = find_job(snapshot, asked)
    if found is None:
        return _running(snapshot, asked) or _hidden(snapshot, asked)
    seen = _seen(found, snapshot, context)
    if decision is None:
        nothing = dict.fromkeys(OF_NUMBERS)
        standing = priority_order(in_line(snapshot), snapshot)
        place = place_document(found, standing.places().get(found.job_id))
        known = {**place, "waiting_jobs": standing.waiting, "only_observed": True}
        return {**seen, **nothing, **known}
    entry = next((e for e in decision.entries if e.job.job_id == found.job_id), None)
    refusal = next((r.value for i, r in decision.refused if i == found.job_id), None)
    return {
        **seen,
        "policy": decision.policy,
        "trust": decision.trust,
        "ranked_jobs": len(decision.entries),
        "waiting_jobs": decision.standing.waiting,
        "refusal": refusal,
        **place_document(found, decision.standing.places().get(found.job_id)),
        **_thought(decision, found, entry),
    }


def find_job(snapshot: Snapshot, asked: str) -> PendingJob | None:
    """The pending record of that name; a task of an array is found by its array."""
    asked = _here(asked, snapshot.cluster)
    by_name = {job.address: job for job in snapshot.pending}
    by_name |= {str(job.job_id): job for job in snapshot.pending}
    if asked in by_name:
        return by_name[asked]
    try:
        named = asked_job(asked)
    except ValueError:
        return None
    if not named.is_on(snapshot.cluster):
        return None
    # held or changed tasks live in records of their own beside the array's head
    return next((job for job in snapshot.pending if named.means(job)), None)


def user_of(snapshot: Snapshot, asked: str) -> str:
    """Whose job that is; empty = there is none such, or of no known user."""
    job, asked = find_job(snapshot, asked), _here(asked, snapshot.cluster)
    if job is not None:
        return job.user
    return next((r.user for r in snapshot.running if asked in {str(r.job_id), r.address}), "")


def _here(asked: str, cluster: str) -> str:
    """A job's name without the cluster's, where it is this one."""
    return asked.removesuffix(f";{cluster}")


def of_task(told: dict[str, Any], job: PendingJob, asked: str) -> dict[str, Any]:
    """A start as `expectation` tells it, of the task that is asked for: that of its record is the
    start of the record's next task.
    """
    try:
        tasks = asked_job(asked).tasks
    except ValueError:
        return told
    if job.array is None or tasks is None:
        return told
    ranges = parse_tasks(job.array.listed).ranges if job.array.listed else ()
    following = min((first for first, _, _ in ranges), default=None)
    if following is not None and tasks.holds(following):
        return told
    known = f", {job.array.array_job_id}_{following}" if following is not None else ""
    why = f"the forecast is of the next task of its array{known}: of task {tasks.text} nothing"
    return {**told, **dict.fromkeys(OF_START), "expected_why": f"{why} is known"}


def _running(snapshot: Snapshot, asked: str) -> dict[str, Any] | None:
    for run in snapshot.running:
        if asked in {str(run.job_id), run.address}:
            return {
                "job_id": run.job_id,
                "address": run.address,
                "state": "RUNNING",
                "taken_at": snapshot.taken_at,
                "partition": run.partition,
                "submitted_at": run.submitted_at,
                "started_at": run.started_at,
                "running_s": snapshot.taken_at - run.started_at,
            }
    return None


def _hidden(snapshot: Snapshot, asked: str) -> dict[str, Any] | None:
    """A job whose row tells little more than its number."""
    for row in snapshot.unreadable:
        if row.kind == "job" and asked == str(row.job_id):
            return {
                "job_id": row.job_id,
                "address": row.name,
                "state": "UNREADABLE",
                "refusal": Refusal.UNREADABLE.value,
                "unreadable": row.why,
            }
    return None


def _seen(job: PendingJob, snapshot: Snapshot, context: Context) -> dict[str, Any]:
    request, owned = job.request, job.owned
    limit_s, run_time = request.time_limit_s, context.run_times.get(job.job_id)
    return {
        "job_id": job.job_id,
        "address": job.address,
        "state": "PENDING",
        "taken_at": snapshot.taken_at,
        "partitions": list(job.partitions),
        "reason": job.reason,
        "submitted_at": job.submitted_at,
        "waits_since": job.waits_since,
        "deadline_at": job.deadline_at,
        "preemption": snapshot.preemption,
        "waited_s": job.waited_s(snapshot.taken_at),
        "site_factor": job.site_factor,
        "nice": job.nice,
        "request": {
            "gpus": request.total.gpus,
            "gpu_types": list(request.gpu_types),
            "cpus": request.total.cpus,
            "mem_mib": request.total.mem_mib,
            "nodes": request.nodes,
            "nodes_most": request.nodes_most,
            "time_limit_s": limit_s if limit_s is not None and math.isfinite(limit_s) else None,
            "unlimited": limit_s == math.inf,
            "exclusive": request.exclusive,
            "outside": list(request.outside),
        },
        "request_changed_at": _outdated_since(job),
        "run_time": None if run_time is None else run_time._asdict(),
        "unreadable": job.unreadable or None,
        "changed_by_rltuned": None
        if owned is None
        else {"field": owned.field, "value": owned.value, "nice_before": owned.nice},
    }


def _outdated_since(job: PendingJob) -> float | None:
    """When what it asks for changed, if rltuned has not written to it since."""
    written_at = 0.0 if job.owned is None else job.owned.written_at
    return job.changed_at if 0.0 < written_at < job.changed_at else None


def _thought(decision: Decision, job: PendingJob, entry: Entry | None) -> dict[str, Any]:
    decided = decided_document(decision, job, entry)
    if entry is None:
        return {**decided, "sentence": None, "features": None, "delay": None}
    row = decision.matrix.jobs.index(entry.job)
    delays, matrix = decision.delays, decision.matrix
    values = decision.matrix.values[row].tolist()
    features = dict(zip(COLUMNS, values, strict=True))
    parts = {
        "own_s": float(delays.own_s[row]),
        "queue_s": float(delays.queue_s[row]),
        "backlog_s": float(matrix.backlog_s[row]),
        "size_gpus": float(matrix.size[row]),
        "overtaken_until": float(matrix.submit_s[row] + delays.delay_s[row]),
    }
    said = sentence(decision, row)
    return {**decided, "sentence": said, "features": features, "delay": parts}


def situation(
    job: PendingJob,
    seen: Snapshot,
    knobs: Knobs,
    groups: Groups | None,
    decision: Decision | None,
    *,
    refusal: str | None,
) -> dict[str, Any]:
    """Where a waiting job stands besides the order, for JSON. bounds: which one holds its delay;
    None = it was not ranked, or its class is promised delay 0.
    """
    bounds: list[str] | None = None
    if decision is not None and job in decision.matrix.jobs and class_of(job, knobs.sla) is None:
        bound = decision.delays.bound_on(decision.matrix.jobs.index(job))
        bounds = [] if bound is None else [bound.value]
    return {
        "group": None if groups is None else place_of(groups, job, seen.taken_at),
        "off_block": None if decision is None else _off_block(knobs, decision, job, refusal),
        "sla": _promised(knobs, job, float(seen.taken_at)),
        "bounds": bounds,
    }


def _off_block(
    knobs: Knobs, decision: Decision, job: PendingJob, refusal: str | None
) -> dict[str, Any] | None:
    """The off block that a job in scope is in: partition, and Unix time of its end."""
    switchback, now = knobs.rules.switchback, float(decision.snapshot.taken_at)
    is_ours = refusal == Refusal.OFF_BLOCK or job in decision.matrix.jobs
    name = switchback.off(job.partitions, now) if switchback is not None and is_ours else None
    if switchback is None or name is None:
        return None
    return {"partition": name, "until": switchback.block(name, now).ends_at}


def _promised(knobs: Knobs, job: PendingJob, now: float) -> dict[str, Any] | None:
    """The wait that its class is promised, and how far off that is; None = it is of no class."""
    one = class_of(job, knobs.sla)
    if one is None:
        return None
    waited_s = 0.0 if job.is_dependent or job.eligible_at is None else job.waited_s(now)
    return {
        "class": one.name,
        "max_wait_s": one.max_wait_s,
        "left_s": one.max_wait_s - waited_s,
    }


def past_of(path: Path, cluster: str, document: dict[str, Any]) -> dict[str, Any]:
    """What rltuned has changed of it so far, by a journal; None = not known, and why. Slurm hands
    out ids again: what was written before the job was submitted is another job's.
    """
    since = document.get("submitted_at")
    if since is None:
        return {"history": None, "history_unknown": "its submit time is not known"}
    try:
        asked = asked_job(document.get("address") or str(document["job_id"]))
        with reading(path) as db:
            changes = changes_of(db, asked)
    except (ValueError, JournalError) as error:
        return {"history": None, "history_unknown": str(error)}
    mine = [
        change._asdict()
        for change in changes
        if change.cluster == cluster and change.submitted_at >= since
    ]
    return {"history": mine, "history_unknown": None}


# -- All jobs ------------------------------------------------------------------------------------


def plan_document(decision: Decision, expected: Expected | None) -> dict[str, Any]:
    """The decision as docs/interfaces.md describes it for `plan --json`."""
    snapshot = decision.snapshot
    reasons = {job_id: reason.value for job_id, reason in decision.refused}
    ranked: dict[JobId, Entry | None] = {e.job.job_id: e for e in decision.entries}
    jobs = {job.job_id: job for job in (*(e.job for e in decision.entries), *snapshot.pending)}
    places = decision.standing.places()
    return {
        "taken_at": snapshot.taken_at,
        "cluster": snapshot.cluster,
        "policy": decision.policy,
        "trust": decision.trust,
        "counts": {
            "pending": len(snapshot.pending),
            "running": len(snapshot.running),
            "other": snapshot.others,
            "nodes": len(snapshot.nodes),
            "waiting": decision.standing.waiting,
            "ranked": len(decision.entries),
            "refused": len(decision.refused),
            "changes": len(decision.plan.actions),
        },
        "jobs": [
            {
                "job_id": job_id,
                "address": job.address,
                "partition": ",".join(job.partitions),
                "user": job.user,
                "reason": job.reason,
                **place_document(job, places.get(job_id)),
                **decided_document(decision, job, ranked.get(job_id)),
                "refusal": reasons.get(job_id),
                **start_document(expected, job_id),
            }
            for job_id, job in jobs.items()
        ],
        "joint": _joint(decision),
        "notes": list(decision.notes),
    }


def decided_document(decision: Decision, job: PendingJob, entry: Entry | None) -> dict[str, Any]:
    """What was decided of a job, for JSON; without an entry it was not ranked, and all is null."""
    if entry is None:
        return dict.fromkeys(DECIDED)
    verdict = decision.joint and decision.joint.verdicts.get(job.job_id)
    decided = (
        entry.proposed, entry.settled, -entry.delay_s, entry.delay_s, entry.upper_s,
        entry.in_force_s, entry.rank_before, entry.rank_wished, entry.rank_wished,
        _placement(entry.placement), verdict, entry.why, entry.changes,
    )  # fmt: skip
    return dict(zip(DECIDED, decided, strict=True))


def place_document(job: PendingJob, place: Place | None) -> dict[str, Any]:
    """Where a job stands by what Slurm has, for JSON; null = Slurm could not start it."""
    if place is None:
        nothing = dict.fromkeys(("rank_now", "ties", "priority_tier"))
        return {"current_priority": job.priority, **nothing}
    return {
        "current_priority": place.priority,
        "rank_now": place.place,
        "ties": place.ties,
        "priority_tier": place.tier,
    }


def _joint(decision: Decision) -> dict[str, Any] | None:
    """How the first jobs were placed together; None = they were not."""
    joint = decision.joint
    if joint is None:
        return None
    shared = [{"job_id": a.target.job_id, "old": a.old, "new": a.new} for a in joint.actions]
    return {"how": joint.how, "why": joint.why, "oversubscribe": shared}


def _placement(placement: Placement | None) -> list[dict[str, Any]] | None:
    """A placement as JSON; None = it does not fit now, or it is beyond the first top_k."""
    if placement is None:
        return None
    return [
        {
            "node": share.node,
            "gpus": share.taken.gpus,
            "gpu_type": share.gpu_type,
            "cpus": share.taken.cpus,
            "mem_mib": share.taken.mem_mib,
        }
        for share in placement.shares
    ]
