"""All that is known of one job, as the document that `rltuned explain --json` prints."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rltuned.cli.flags import BackendChoice
from rltuned.cli.plan import Look, decided_document
from rltuned.core.decide import Decision, Entry
from rltuned.core.explaining import (
    advised_nodes,
    influences,
    may_start,
    sentence,
    starts_by_nodes,
)
from rltuned.core.features import COLUMNS
from rltuned.core.select import Refusal
from rltuned.core.sla import class_of
from rltuned.core.starts import expectation
from rltuned.daemon.groups import place_of
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import BackendError, JournalError, SnapshotError
from rltuned.journal.queries import changes_of
from rltuned.journal.snapshots import FILE_NAME, reading
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.job_selector import asked_job
from rltuned.slurm.strings import parse_tasks


def explained(look: Look, asked: str) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job.

    The journal, and Slurm once more, are asked only for a job that squeue shows to this user, so
    that no user learns more of a job than Slurm shows.
    """
    document = explanation(look.decision, asked)
    if document is None:
        return None
    document |= _past(look, document)
    job = find_job(look.decision.snapshot, asked)
    if job is None:
        return document
    off = _off_block(look, job, document["refusal"])
    document |= expectation(look.starts(), job.job_id, float(look.decision.snapshot.taken_at))
    more = {
        "group": place_of(look.groups, job, look.decision.snapshot.taken_at),
        "starts": _starts(look, job),
        "off_block": off,
        "sla": _promised(look, job),
    }
    return {**document, **_influenced(look, job), **more}


def explanation(decision: Decision, asked: str) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job."""
    snapshot = decision.snapshot
    found = find_job(snapshot, asked)
    if found is None:
        return _running(snapshot, asked) or _hidden(snapshot, asked)
    entry = next((e for e in decision.entries if e.job.job_id == found.job_id), None)
    refusal = next((r.value for i, r in decision.refused if i == found.job_id), None)
    return {
        **_seen(found, snapshot),
        "policy": decision.policy,
        "ranked_jobs": len(decision.entries),
        "refusal": refusal,
        **_thought(decision, found, entry),
    }


def find_job(snapshot: Snapshot, asked: str) -> PendingJob | None:
    """The pending record of that name; a task of an array is found by its array."""
    by_name = {job.address: job for job in snapshot.pending}
    by_name |= {str(job.job_id): job for job in snapshot.pending}
    if asked in by_name:
        return by_name[asked]
    array, _, task = asked.partition("_")
    # held or changed tasks live in records of their own beside the array's head
    records = [j for j in snapshot.pending if j.array and str(j.array.array_job_id) == array]
    if not task:
        return next(iter(records), None)
    return next((j for j in records if j.array is not None and _lists(j.array, task)), None)


def _lists(array: ArrayInfo, task: str) -> bool:
    if not array.listed or not (task.isascii() and task.isdigit()):
        return not array.listed
    return parse_tasks(array.listed).holds(int(task))


def _running(snapshot: Snapshot, asked: str) -> dict[str, Any] | None:
    for run in snapshot.running:
        if asked in {str(run.job_id), run.address}:
            return {
                "job_id": run.job_id,
                "address": run.address,
                "state": "RUNNING",
                "partition": run.partition,
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


def _seen(job: PendingJob, snapshot: Snapshot) -> dict[str, Any]:
    request, owned = job.request, job.owned
    limit_s, run_time = request.time_limit_s, snapshot.run_time_of(job.job_id)
    return {
        "job_id": job.job_id,
        "address": job.address,
        "state": "PENDING",
        "partitions": list(job.partitions),
        "reason": job.reason,
        "submitted_at": job.submitted_at,
        "waits_since": job.waits_since,
        "deadline_at": job.deadline_at,
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


def _off_block(look: Look, job: PendingJob, refusal: str | None) -> dict[str, Any] | None:
    """The off block that a job in scope is in: partition, and Unix time of its end."""
    switchback, now = look.rig.knobs.rules.switchback, float(look.decision.snapshot.taken_at)
    is_ours = refusal == Refusal.OFF_BLOCK or job in look.decision.matrix.jobs
    name = switchback.off(job.partitions, now) if switchback is not None and is_ours else None
    if switchback is None or name is None:
        return None
    return {"partition": name, "until": switchback.block(name, now).ends_at}


def _promised(look: Look, job: PendingJob) -> dict[str, Any] | None:
    """What its class is promised, and how far off that is; None = it is of no class."""
    one = class_of(job, look.rig.knobs.sla)
    if one is None:
        return None
    now = look.decision.snapshot.taken_at
    waited_s = 0.0 if job.is_dependent or job.eligible_at is None else job.waited_s(now)
    return {
        "class": one.name,
        "max_wait_s": one.max_wait_s,
        "left_s": one.max_wait_s - waited_s,
    }


def _influenced(look: Look, job: PendingJob) -> dict[str, Any]:
    """What moved its delay, and which bound holds it; None = it is not the policy's."""
    decision = look.decision
    if job not in decision.matrix.jobs or class_of(job, look.rig.knobs.sla) is not None:
        return {"influences": None, "bounds": None}
    row = decision.matrix.jobs.index(job)
    bound = decision.delays.bound_on(row)
    return {
        "influences": [
            asdict(i) for i in influences(look.rig.policy, decision.matrix, decision.order, row)
        ],
        "bounds": [] if bound is None else [bound.value],
    }


def _starts(look: Look, job: PendingJob) -> dict[str, Any]:
    """When it may start, by Slurm's own plan and by rltuned's; what is not known is None."""
    by_slurm, why = None, "the built-in cluster makes no plan"
    speeds: Mapping[int, float] = {}
    if isinstance(look.rig.backend, SlurmBackend):
        why = "Slurm gives no estimate"
        try:
            if job.request.nodes_most is not None:
                speeds = look.rig.backend.speeds(job.job_id)
            by_slurm = look.rig.backend.expected_start(job.job_id)
        except (BackendError, SnapshotError) as error:
            why = str(error)
    ours = may_start(look.decision, job)
    return {
        "slurm_expects_at": by_slurm,
        "slurm_unknown": None if by_slurm is not None else why,
        "by_limits": ours.how.value,
        "by_limits_in_s": ours.in_s,
        "ahead": ours.ahead,
        "by_nodes": [
            {"nodes": nodes, "by_limits": found.how.value, "by_limits_in_s": found.in_s}
            for nodes, found in starts_by_nodes(look.decision, job)
        ],
        "advised_nodes": advised_nodes(look.decision, job, speeds),
    }


def _past(look: Look, document: dict[str, Any]) -> dict[str, Any]:
    """What rltuned has changed of it so far; None = not known, and why."""
    if look.world is not BackendChoice.SLURM:
        return {"history": None, "history_unknown": "the built-in cluster keeps no journal"}
    path = look.loaded.settings.daemon.state_dir / FILE_NAME
    try:
        asked = asked_job(document.get("address") or str(document["job_id"]))
        with reading(path) as db:
            changes = changes_of(db, asked)
    except (ValueError, JournalError) as error:
        return {"history": None, "history_unknown": str(error)}
    cluster = look.decision.snapshot.cluster
    mine = [change._asdict() for change in changes if change.cluster == cluster]
    return {"history": mine, "history_unknown": None}
