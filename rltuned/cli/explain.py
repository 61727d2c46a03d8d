"""`rltuned explain`: what rltuned sees and thinks of one job."""

import json
import math
from typing import Annotated, Any

import typer

from rltuned.cli.flags import (
    ConfigOption,
    JsonOption,
    PolicyOption,
    SeedOption,
    World,
    WorldOption,
    say,
    warn,
)
from rltuned.cli.observed import look
from rltuned.cli.plan import placement_document, verdict_document
from rltuned.core.decide import Decision, Entry, span
from rltuned.core.features import COLUMNS
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.slurm.strings import parse_tasks

app = typer.Typer()

_REFUSALS = {
    "sla_partition": "it is in an SLA partition, which rltuned never touches",
    "out_of_scope": "its partition is not among those that rltuned manages",
    "breaker_open": "the circuit breaker of its partition is open (rltuned breaker show)",
    "control": "it is in the control of the canary, which is left to Slurm",
    "job_budget": "rltuned has written to it as often as it may within an hour",
    "excluded_user": "its user is excluded in the settings",
    "excluded_account": "its account is excluded in the settings",
    "excluded_qos": "its QOS is excluded in the settings",
    "held_user": "its user holds it",
    "held_admin": "an administrator holds it",
    "held": "it is held (priority 0)",
    "cron": "it is a scrontab job, which Slurm lets nobody change",
    "het_component": "it is part of a heterogeneous job",
    "reservation": "it waits for a reservation",
    "dependency": "it waits for another job",
    "not_eligible": "it may not start yet (begin time)",
    "unfulfillable": "no order of the queue can start it; see Slurm's reason",
    "too_young": "it was submitted moments ago",
    "site_factor_unknown": "Slurm does not show its site factor",
    "change_budget": "this cycle's budget of changes was spent on jobs above it",
    "taken_over": "somebody else has set, since rltuned wrote, the field that it wrote to",
    "fixed": "somebody set its priority directly, and that number stands",
    "handed_back": "it is being given back from another write mode first",
}


@app.command()
def explain(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="As squeue shows it: 12 or 12_[0-3]")],
    *,
    config: ConfigOption = None,
    backend: WorldOption = World.SLURM,
    policy: PolicyOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Say where a job stands, why, and what rltuned would do with it.

    Exit codes: 0 = the job was found; 1 = it was not, or the cluster gave no usable answer;
    2 = settings or model cannot be used.
    """
    decision = look(config, backend, policy, seed)
    document = explanation(decision, job)
    if document is None:
        warn(f"{decision.snapshot.cluster} shows no pending or running job {job}")
        raise typer.Exit(1)
    if as_json:
        say(json.dumps(document, indent=2, allow_nan=False))
        return
    for line in in_words(document):
        say(line)


def explanation(decision: Decision, asked: str) -> dict[str, Any] | None:
    """All that is known of one job, for JSON; None = the cluster shows no such job."""
    snapshot = decision.snapshot
    found = _find(snapshot, asked)
    if found is None:
        return _running(snapshot, asked)
    entry = next((e for e in decision.entries if e.job.job_id == found.job_id), None)
    refusal = next((r.value for i, r in decision.refused if i == found.job_id), None)
    return {
        **_seen(found, snapshot),
        "policy": decision.policy,
        "ranked_jobs": len(decision.entries),
        "refusal": refusal,
        **_thought(decision, entry),
    }


def in_words(document: dict[str, Any]) -> list[str]:
    """The same for people."""
    if document["state"] == "RUNNING":
        return [f"Job {document['job_id']} runs since {span(document['running_s'])}."]
    name = f"Job {document['job_id']} ({', '.join(document['partitions'])})"
    reason = document["reason"] or "none"
    lines = [
        f"{name} waits since {span(document['waited_s'])}; Slurm's reason: {reason}.",
        f"Slurm's priority: {document['current_priority']}.",
        f"It asks for {_amounts(document['request'])}.",
    ]
    if document["changed_by_rltuned"] is not None:
        was = document["changed_by_rltuned"]
        lines.append(f"rltuned set its {was['field']} to {was['value']}; `rltuned restore` undoes.")
    if document["rank_after"] is None:
        refusal = document["refusal"] or ""
        return [*lines, f"rltuned leaves it alone: {_REFUSALS.get(refusal, refusal)}."]
    lines.append(
        f"{document['policy']} gives it {document['score']:.4g}: rank {document['rank_after']} of "
        f"{document['ranked_jobs']} (now {document['rank_before']}); {document['why']}."
    )
    proposed, planned = document["proposed_priority"], document["planned_priority"]
    lines.append(f"Proposed priority: {proposed}; this cycle writes {planned}.")
    if document["refusal"]:
        lines.append(f"Not all at once: {_REFUSALS.get(document['refusal'], '')}.")
    lines += _of_verdict(document["verdict"])
    shares = document["placement"] or ()
    return lines + [f"It would fit on {s['node']} with {s['gpus']} GPUs now." for s in shares]


def _find(snapshot: Snapshot, asked: str) -> PendingJob | None:
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
    """Whether a record of an array holds this task."""
    if not array.listed or not (task.isascii() and task.isdigit()):
        return not array.listed
    return parse_tasks(array.listed).holds(int(task))


def _of_verdict(verdict: dict[str, Any] | None) -> list[str]:
    if verdict is None:
        return []
    start = verdict["starts_in_s"]
    when = "" if start is None else " now" if start == 0 else f" in {span(start)} at the latest"
    return (
        [f"Placed together with the others it starts{when}: {verdict['why']}."]
        if when
        else [f"Placed together with the others it does not start: {verdict['why']}."]
    )


def _running(snapshot: Snapshot, asked: str) -> dict[str, Any] | None:
    for run in snapshot.running:
        if str(run.job_id) == asked:
            return {
                "job_id": run.job_id,
                "state": "RUNNING",
                "partition": run.partition,
                "started_at": run.started_at,
                "running_s": snapshot.taken_at - run.started_at,
            }
    return None


def _seen(job: PendingJob, snapshot: Snapshot) -> dict[str, Any]:
    request, owned = job.request, job.owned
    limit_s = request.time_limit_s
    return {
        "job_id": job.job_id,
        "address": job.address,
        "state": "PENDING",
        "partitions": list(job.partitions),
        "reason": job.reason,
        "submitted_at": job.submitted_at,
        "waited_s": snapshot.taken_at - job.submitted_at,
        "current_priority": job.priority,
        "site_factor": job.site_factor,
        "nice": job.nice,
        "request": {
            "gpus": request.total.gpus,
            "gpu_types": list(request.gpu_types),
            "cpus": request.total.cpus,
            "mem_mib": request.total.mem_mib,
            "nodes": request.nodes,
            "time_limit_s": limit_s if limit_s is not None and math.isfinite(limit_s) else None,
            "unlimited": limit_s == math.inf,
            "exclusive": request.exclusive,
            "outside": list(request.outside),
        },
        "changed_by_rltuned": None
        if owned is None
        else {"field": owned.field, "value": owned.value, "nice_before": owned.nice},
    }


def _thought(decision: Decision, entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        names = ("score", "rank_before", "rank_after", "proposed_priority", "planned_priority")
        return dict.fromkeys((*names, "placement", "verdict", "why", "features"))
    row = decision.matrix.jobs.index(entry.job)
    values = decision.matrix.values[row].tolist()
    return {
        "score": entry.score,
        "rank_before": entry.rank_before,
        "rank_after": entry.rank_after,
        "proposed_priority": entry.proposed,
        "planned_priority": entry.settled,
        "placement": placement_document(entry.placement),
        "verdict": verdict_document(decision, entry.job.job_id),
        "why": entry.why,
        "features": dict(zip(COLUMNS, values, strict=True)),
    }


def _amounts(request: dict[str, Any]) -> str:
    types = "/".join(request["gpu_types"])
    gpus = f"{request['gpus']} {types + ' ' if types else ''}GPUs"
    return f"{gpus}, {request['cpus']} CPUs, {request['mem_mib']} MiB"
