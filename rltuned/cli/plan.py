"""`rltuned plan`: one decision, shown and not applied."""

import json
from typing import Any

import typer

from rltuned.cli.flags import (
    ConfigOption,
    JsonOption,
    PolicyOption,
    SeedOption,
    World,
    WorldOption,
    say,
)
from rltuned.cli.observed import look
from rltuned.cli.tables import changes_table, wide_console
from rltuned.core.decide import Decision, Entry
from rltuned.core.placement import Placement

app = typer.Typer()


@app.command()
def plan(
    *,
    config: ConfigOption = None,
    backend: WorldOption = World.SLURM,
    policy: PolicyOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Decide once, show what would change, and write nothing.

    Exit codes: 0 = a plan was made, empty or not; 1 = the cluster or the policy gave no usable
    answer; 2 = settings or model cannot be used.
    """
    decision = look(config, backend, policy, seed).decision
    if as_json:
        say(json.dumps(plan_document(decision), indent=2, allow_nan=False))
        return
    _print(decision)


def plan_document(decision: Decision) -> dict[str, Any]:
    """The decision as docs/contract.md describes it for `plan --json`."""
    snapshot = decision.snapshot
    reasons = {job_id: reason.value for job_id, reason in decision.refused}
    ranked = {e.job.job_id for e in decision.entries}
    left_alone = [
        {
            "job_id": job.job_id,
            "address": job.address,
            "partition": ",".join(job.partitions),
            "reason": job.reason,
            "current_priority": job.priority,
            "proposed_priority": None,
            "planned_priority": None,
            "score": None,
            "delay_s": None,
            "delay_bound_s": None,
            "delay_in_force_s": None,
            "rank_before": None,
            "rank_after": None,
            "placement": None,
            "verdict": None,
            "why": None,
            "refusal": reasons.get(job.job_id),
        }
        for job in snapshot.pending
        if job.job_id not in ranked
    ]
    return {
        "taken_at": snapshot.taken_at,
        "cluster": snapshot.cluster,
        "policy": decision.policy,
        "counts": {
            "pending": len(snapshot.pending),
            "running": len(snapshot.running),
            "other": snapshot.others,
            "nodes": len(snapshot.nodes),
            "ranked": len(decision.entries),
            "refused": len(decision.refused),
            "changes": len(decision.plan.actions),
        },
        "jobs": [_ranked(decision, e, reasons.get(e.job.job_id)) for e in decision.entries]
        + left_alone,
        "joint": joint_document(decision),
        "notes": list(decision.notes),
    }


def verdict_document(decision: Decision, job_id: int) -> dict[str, Any] | None:
    """What the joint decision says of a job; None = it was not looked at."""
    verdicts = decision.joint.verdicts if decision.joint else ()
    found = next((v for v in verdicts if v.job_id == job_id), None)
    if found is None:
        return None
    return {
        "ways": found.ways,
        "kind": found.kind,
        "starts_in_s": found.starts_in_s,
        "why": found.why,
    }


def joint_document(decision: Decision) -> dict[str, Any] | None:
    """How the first jobs were placed together; None = they were not."""
    joint = decision.joint
    if joint is None:
        return None
    flags = [{"job_id": a.target.job_id, "old": a.old, "new": a.new} for a in joint.actions]
    return {"how": joint.how, "why": joint.why, "oversubscribe": flags}


def placement_document(placement: Placement | None) -> list[dict[str, Any]] | None:
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


def _ranked(decision: Decision, entry: Entry, refusal: str | None) -> dict[str, Any]:
    return {
        "job_id": entry.job.job_id,
        "address": entry.job.address,
        "partition": ",".join(entry.job.partitions),
        "reason": entry.job.reason,
        "current_priority": entry.current,
        "proposed_priority": entry.proposed,
        "planned_priority": entry.settled,
        "score": -entry.delay_s,
        "delay_s": entry.delay_s,
        "delay_bound_s": entry.upper_s,
        "delay_in_force_s": entry.in_force_s,
        "rank_before": entry.rank_before,
        "rank_after": entry.rank_after,
        "placement": placement_document(entry.placement),
        "verdict": verdict_document(decision, entry.job.job_id),
        "why": entry.why,
        "refusal": refusal,
    }


def _print(decision: Decision) -> None:
    snapshot = decision.snapshot
    say(
        f"{snapshot.cluster}: {len(snapshot.pending)} pending, {len(snapshot.running)} running, "
        f"{len(snapshot.nodes)} nodes; {decision.policy} ranks {len(decision.entries)} jobs and "
        f"would change {len(decision.plan.actions)}"
    )
    if decision.entries:
        wide_console().print(changes_table(decision.entries))
    counts: dict[str, int] = {}
    for _, reason in decision.refused:
        counts[reason.value] = counts.get(reason.value, 0) + 1
    if counts:
        say("left alone: " + ", ".join(f"{n} {reason}" for reason, n in sorted(counts.items())))
    for note in decision.notes:
        say(f"note: {note}")
