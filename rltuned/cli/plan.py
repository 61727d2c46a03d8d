"""`rltuned plan`: one decision, shown and not applied; `look` is it for the other commands."""

import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import typer

from rltuned.cli import flags
from rltuned.cli.tables import console, left_alone, show_changes
from rltuned.cli.world import open_world
from rltuned.core.decide import Decision, Entry, decide
from rltuned.core.placement import Placement
from rltuned.core.select import Refusal
from rltuned.core.starts import Start, arrivals_of, start_document, starts_of
from rltuned.daemon.apply import marked_by
from rltuned.daemon.changed import ChangedRequests
from rltuned.daemon.groups import GroupsStatus, kept_groups, looked, status_of
from rltuned.daemon.kept_settings import as_if_on, kept_salt
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import LimitUseLearner, RunTimeLearner
from rltuned.daemon.runtime import Rig
from rltuned.daemon.wiring import build_rig, run_times_of
from rltuned.domain.groups import GroupStore
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.salt import read_salt
from rltuned.settings import Loaded

app = typer.Typer()

STANDING_STILL: Final = 1e-6
"""Speed of the built-in cluster for one look: the same seed shows the same queue, however long
the machine takes."""
PATIENCE_S: Final = 5.0
"""After so long a forecast on the spot has as many plays as it has."""
DECIDED: Final = (
    "proposed_priority", "planned_priority", "score", "delay_s", "delay_bound_s",
    "delay_in_force_s", "rank_before", "rank_after", "placement", "verdict", "why",
)  # fmt: skip
"""What a ranked job has, in JSON."""


@app.command()
def plan(
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    policy: flags.PolicyOption = None,
    seed: flags.SeedOption = 0,
    as_json: flags.JsonOption = False,
) -> None:
    """Decide once, show what would change, and write nothing.

    Exit codes: 0 = a plan was made, empty or not; 1 = the cluster or the policy gave no usable
    answer; 2 = settings or model cannot be used.
    """
    seen = look(config, backend, policy, seed)
    if as_json:
        document = plan_document(seen.decision, seen.starts())
        flags.say(json.dumps(document, indent=2, allow_nan=False))
        return
    _print(seen.decision, seen.starts(), seen.rig.knobs.rules.min_age_s)


@dataclass(frozen=True, slots=True)
class Look:
    """A decision with what it was made by. world: where the queue is. groups: of dependent jobs."""

    decision: Decision
    rig: Rig
    loaded: Loaded
    world: flags.BackendChoice
    groups: GroupsStatus
    learner: RunTimeLearner | LimitUseLearner | None = None

    def starts(self) -> dict[JobId, Start]:
        """When each waiting job is expected to start, played on the spot within PATIENCE_S."""
        until, seen = time.monotonic() + PATIENCE_S, self.decision.snapshot
        is_slurm = self.world is flags.BackendChoice.SLURM
        found = starts_of(
            self.decision,
            {} if self.learner is None else self.learner.of_running(seen),
            arrivals_of(seen),
            as_is=is_slurm and not self.rig.ladder.rung.writes,
            late=lambda: time.monotonic() > until,
        )
        return {one.job_id: one for one in found}

    def with_request(self, job: PendingJob, request: Request) -> "Look":
        """The same if a waiting job asked for something else."""
        seen, changed = self.decision.snapshot, replace(job, request=request)
        seen = replace(seen, pending=tuple(changed if j is job else j for j in seen.pending))
        seen = seen if self.learner is None else self.learner.look(seen)
        rig = self.rig
        return replace(self, decision=decide(seen, rig.policy, rig.knobs, rig.solver))


def look(config: Path | None, world: flags.BackendChoice, policy: str | None, seed: int) -> Look:
    """What rltuned would do now. Raises SettingsError, ModelError, BackendError, PolicyError."""
    loaded = flags.in_force(config, ("policy.name", policy, "--policy"))
    place = open_world(world, seed=seed, speed=STANDING_STILL)
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        secret = kept_salt(loaded, journal)
        if secret is None:
            flags.warn(
                "the blocks of the switchback are not known; it is shown as if delays were on"
            )
        rig = build_rig(secret or as_if_on(loaded), place.backend(loaded))
        snapshot = rig.backend.observe()
        learner = None
        if world is flags.BackendChoice.SLURM:
            snapshot, learner = marked(snapshot, journal), predicting(loaded)
        snapshot = snapshot if learner is None else learner.look(snapshot)
        groups = grouped(snapshot, journal)
    decision = decide(snapshot, rig.policy, rig.knobs, rig.solver)
    return Look(decision, rig, loaded, world, groups, learner)


def marked(snapshot: Snapshot, journal: Journal) -> Snapshot:
    """The snapshot with what the journal says of its jobs."""
    try:
        changed = ChangedRequests.since_kept(journal, snapshot.cluster)
        return marked_by(journal, changed.look(snapshot))
    except JournalError as error:
        flags.warn(f"cannot tell which jobs rltuned has changed before: {error}")
        return snapshot


def grouped(snapshot: Snapshot, journal: Journal) -> GroupsStatus:
    """The groups of dependent jobs: what the journal keeps, and what the snapshot shows."""
    try:
        kept = kept_groups(journal, snapshot.cluster)
    except JournalError as error:
        flags.warn(f"edges that are satisfied are not known: {error}")
        kept = GroupStore()
    return status_of(looked(kept, snapshot), snapshot.taken_at)


def predicted(snapshot: Snapshot, loaded: Loaded) -> Snapshot:
    """The snapshot with run times predicted, where that is possible. Raises ModelError."""
    known = predicting(loaded)
    return snapshot if known is None else known.look(snapshot)


def predicting(loaded: Loaded) -> RunTimeLearner | LimitUseLearner | None:
    """What predicts run times from the daemon's file; None = nothing can. Raises ModelError."""
    try:
        salt = read_salt(loaded.settings.daemon.state_dir)
    except JournalError as error:
        flags.warn(f"run times are not predicted: {error}")
        return None
    return run_times_of(loaded, salt, make_log("console", "error")) if salt else None


def plan_document(decision: Decision, starts: Mapping[JobId, Start]) -> dict[str, Any]:
    """The decision as docs/contract.md describes it for `plan --json`."""
    snapshot = decision.snapshot
    reasons = {job_id: reason.value for job_id, reason in decision.refused}
    ranked: dict[JobId, Entry | None] = {e.job.job_id: e for e in decision.entries}
    jobs = {job.job_id: job for job in (*(e.job for e in decision.entries), *snapshot.pending)}
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
        "jobs": [
            {
                "job_id": job_id,
                "address": job.address,
                "partition": ",".join(job.partitions),
                "reason": job.reason,
                **decided_document(decision, job, ranked.get(job_id)),
                "refusal": reasons.get(job_id),
                **start_document(starts.get(job_id), snapshot.taken_at),
            }
            for job_id, job in jobs.items()
        ],
        "joint": _joint(decision),
        "notes": list(decision.notes),
    }


def decided_document(decision: Decision, job: PendingJob, entry: Entry | None) -> dict[str, Any]:
    """What was decided of a job, for JSON; without an entry it was not ranked, and all is null."""
    if entry is None:
        return {"current_priority": job.priority, **dict.fromkeys(DECIDED)}
    decided = (
        entry.proposed, entry.settled, -entry.delay_s, entry.delay_s, entry.upper_s,
        entry.in_force_s, entry.rank_before, entry.rank_after, _placement(entry.placement),
        _verdict(decision, job.job_id), entry.why,
    )  # fmt: skip
    return {"current_priority": entry.current, **dict(zip(DECIDED, decided, strict=True))}


def _verdict(decision: Decision, job_id: int) -> dict[str, Any] | None:
    """What the joint decision says of a job; None = it was not looked at."""
    verdicts = decision.joint.verdicts if decision.joint else ()
    found = next((v for v in verdicts if v.job_id == job_id), None)
    if found is None:
        return None
    return {key: value for key, value in asdict(found).items() if key != "job_id"}


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


def _print(decision: Decision, starts: Mapping[JobId, Start], min_age_s: float) -> None:
    snapshot = decision.snapshot
    flags.say(
        f"{snapshot.cluster}: {len(snapshot.pending)} pending, {len(snapshot.running)} running, "
        f"{len(snapshot.nodes)} nodes; {decision.policy} ranks {len(decision.entries)} jobs and "
        f"would change {len(decision.plan.actions)}"
    )
    if decision.entries:
        show_changes(console(), decision.entries, starts, snapshot.taken_at)
    for verdict in decision.joint.verdicts if decision.joint else ():
        flags.say(f"Job {verdict.job_id}, placed together with the others, {verdict.why}.")
    if decision.refused:
        flags.say(left_alone(decision))
    for line in _too_young(decision, min_age_s):
        flags.say(line)
    for note in decision.notes:
        flags.say(f"note: {note}")


def _too_young(decision: Decision, min_age_s: float) -> list[str]:
    """When to look again for the jobs that are left alone because they have just come."""
    young = {job_id for job_id, reason in decision.refused if reason is Refusal.TOO_YOUNG}
    now = decision.snapshot.taken_at
    jobs = [j for j in decision.snapshot.pending if j.job_id in young]
    if not jobs:
        return []
    left_s = max(1.0, *(min_age_s - (now - job.submitted_at) for job in jobs))
    count = f"{len(jobs)} job{' is' if len(jobs) == 1 else 's are'}"
    return [f"{count} younger than scope.min_age_s = {min_age_s:g} s: look again in {left_s:.0f} s"]
