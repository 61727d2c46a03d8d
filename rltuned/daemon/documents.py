"""One document of a look at the queue: what plan, explain, status and the pages tell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rltuned.core.decide import Decision, Entry, Knobs
from rltuned.core.line import sentence
from rltuned.core.order import class_of
from rltuned.core.planning import PriorityOrder, priority_order
from rltuned.core.refusals import Refusal
from rltuned.core.starts import Expected, expectation, start_document
from rltuned.daemon.groups import Groups, place_of
from rltuned.daemon.report import in_line
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.errors import JournalError
from rltuned.journal.cycles import changes_of
from rltuned.journal.store import reading
from rltuned.slurm.values import asked_job, parse_tasks

Document = dict[str, Any]
DECIDED: Final = (
    "proposed_priority", "planned_priority", "score", "delay_s", "delay_bound_s",
    "delay_in_force_s", "rank_before", "rank_wished", "rank_after", "placement", "verdict", "why",
    "changes",
)  # fmt: skip
"""What a ranked job has."""
OF_START: Final = ("expected_start", "expected_by_limits", "expected_left_out")


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the queue and what was decided of it; None = rltuned only observes. expected: the
    last forecast. journal: its file.
    """

    snapshot: Snapshot
    context: Context
    decision: Decision | None
    knobs: Knobs
    groups: Groups | None = None
    expected: Expected | None = None
    journal: Path | None = None

    @property
    def standing(self) -> PriorityOrder:
        """Of the jobs that Slurm could start, by what it has."""
        if self.decision is not None:
            return self.decision.standing
        return priority_order(in_line(self.snapshot), self.snapshot)

    def plan(self) -> Document:
        """As docs/interfaces.md describes it for `plan --json`."""
        seen, decision = self.snapshot, self.decision
        return {
            "taken_at": seen.taken_at,
            "cluster": seen.cluster,
            "policy": decision and decision.policy,
            "trust": decision and decision.trust,
            "counts": {
                "pending": len(seen.pending),
                "running": len(seen.running),
                "other": seen.others,
                "nodes": len(seen.nodes),
                "waiting": self.standing.waiting,
                "ranked": len(decision.entries) if decision else 0,
                "refused": len(decision.refused) if decision else 0,
                "changes": len(decision.plan.actions) if decision else 0,
            },
            "jobs": self.rows(),
            "notes": list(decision.notes) if decision else [],
        }

    def rows(self, only: Iterable[PendingJob] | None = None) -> list[Document]:
        """Of each waiting job, or only these: the ranked in their new order, then the others."""
        decision, places = self.decision, self.standing.places()
        ranked = {e.job.job_id: e for e in decision.entries} if decision else {}
        refused = dict(decision.refused) if decision else {}
        if only is None:
            only = (*(e.job for e in ranked.values()), *self.snapshot.pending)
        rows = []
        for job in {job.job_id: job for job in only}.values():
            place, refusal = places.get(job.job_id), refused.get(job.job_id)
            limit_s = job.request.time_limit_s
            rows.append({
                "job_id": job.job_id,
                "address": job.address,
                "partition": ",".join(job.partitions),
                "user": job.user,
                "gpus": job.request.total.gpus,
                "limit_s": None if limit_s is None or math.isinf(limit_s) else limit_s,
                "waited_s": job.waited_s(self.snapshot.taken_at),
                "reason": job.reason,
                "current_priority": job.priority if place is None else place.priority,
                "rank_now": place and place.place,
                "ties": place and place.ties,
                "priority_tier": place and place.tier,
                **self._decided(ranked.get(job.job_id)),
                "refusal": refusal and refusal.value,
                **start_document(self.expected, job.job_id),
            })  # fmt: skip
        return rows

    def _decided(self, entry: Entry | None) -> Document:
        """Without an entry a job was not ranked, and all is null."""
        if entry is None or self.decision is None:
            return dict.fromkeys(DECIDED)
        joint, placement = self.decision.joint, entry.placement
        shares = placement and [
            {
                "node": share.node,
                "gpus": share.taken.gpus,
                "gpu_type": share.gpu_type,
                "cpus": share.taken.cpus,
                "mem_mib": share.taken.mem_mib,
            }
            for share in placement.shares
        ]
        found = (
            entry.proposed, entry.settled, -entry.delay_s, entry.delay_s, entry.upper_s,
            entry.in_force_s, entry.rank_before, entry.rank_wished, entry.rank_wished,
            shares, joint and joint.verdicts.get(entry.job.job_id), entry.why, entry.changes,
        )  # fmt: skip
        return dict(zip(DECIDED, found, strict=True))

    # -- One job -----------------------------------------------------------------------------------

    def find(self, asked: str) -> PendingJob | None:
        """The pending record of that name; a task of an array is found by its array."""
        asked = asked.removesuffix(f";{self.snapshot.cluster}")
        for job in self.snapshot.pending:
            if asked in {job.address, str(job.job_id)}:
                return job
        try:
            named = asked_job(asked)
        except ValueError:
            return None
        # held or changed tasks live in records of their own beside the array's head
        is_here = named.is_on(self.snapshot.cluster)
        return next((job for job in self.snapshot.pending if is_here and named.means(job)), None)

    def explain(self, asked: str, now: float | None = None) -> Document | None:
        """All that is known of one job, for JSON; None = the cluster shows no such job. now: Unix
        time; None = that of the look.
        """
        seen, job = self.snapshot, self.find(asked)
        if job is None:
            return self._unlike(asked.removesuffix(f";{seen.cluster}"))
        [row] = self.rows([job])
        now = float(seen.taken_at) if now is None else now
        start = of_task(expectation(self.expected, job.job_id, now), job, asked)
        request, owned, run_time = job.request, job.owned, self.context.run_times.get(job.job_id)
        return {
            **row,
            **start,
            "state": "PENDING",
            "taken_at": seen.taken_at,
            "partitions": list(job.partitions),
            "submitted_at": job.submitted_at,
            "deadline_at": job.deadline_at,
            "preemption": seen.preemption,
            "request": {
                "gpu_types": list(request.gpu_types),
                "cpus": request.total.cpus,
                "mem_mib": request.total.mem_mib,
                "nodes": request.nodes,
                "nodes_most": request.nodes_most,
            },
            # if rltuned has not written to it since
            "request_changed_at": job.changed_at
            if owned is not None and 0.0 < owned.written_at < job.changed_at
            else None,
            "run_time": run_time and run_time._asdict(),
            "unreadable": job.unreadable or None,
            "changed_by_rltuned": owned
            and {"field": owned.field, "value": owned.value, "nice_before": owned.nice},
            "only_observed": self.decision is None,
            "waiting_jobs": self.standing.waiting,
            "group": None if self.groups is None else place_of(self.groups, job, seen.taken_at),
            **self._thought(job, row["refusal"]),
            **self._past(job.address, job.submitted_at),
        }

    def _unlike(self, asked: str) -> Document | None:
        """A running job, or one whose row tells little more than its number."""
        seen = self.snapshot
        for run in seen.running:
            if asked in {str(run.job_id), run.address}:
                return {
                    "job_id": run.job_id,
                    "address": run.address,
                    "state": "RUNNING",
                    "user": run.user,
                    "taken_at": seen.taken_at,
                    "partition": run.partition,
                    "submitted_at": run.submitted_at,
                    "started_at": run.started_at,
                    "running_s": seen.taken_at - run.started_at,
                    **self._past(run.address, run.submitted_at),
                }
        for row in seen.unreadable:
            if row.kind == "job" and asked == str(row.job_id):
                return {
                    "job_id": row.job_id,
                    "address": row.name,
                    "state": "UNREADABLE",
                    "refusal": Refusal.UNREADABLE.value,
                    "unreadable": row.why,
                    **self._past(asked, None),
                }
        return None

    def _thought(self, job: PendingJob, refusal: str | None) -> Document:
        """What follows from the decision. bounds: which hold its delay; None = it was not ranked,
        or its class is promised delay 0.
        """
        decision, now = self.decision, float(self.snapshot.taken_at)
        promise, switchback = class_of(job, self.knobs.sla), self.knobs.rules.switchback
        found: Document = dict.fromkeys(
            ("policy", "trust", "ranked_jobs", "sentence", "overtaken_until", "bounds",
             "off_block", "sla")
        )  # fmt: skip
        if promise is not None:
            waits = not job.is_dependent and job.eligible_at is not None
            found["sla"] = {
                "class": promise.name,
                "max_wait_s": promise.max_wait_s,
                "left_s": promise.max_wait_s - (job.waited_s(now) if waits else 0.0),
            }
        if decision is None:
            return found
        found |= {"policy": decision.policy, "trust": decision.trust}
        found["ranked_jobs"] = len(decision.entries)
        matrix, delays, is_ranked = decision.matrix, decision.delays, job in decision.matrix.jobs
        off = switchback and switchback.off(job.partitions, now)
        if switchback and off and (is_ranked or refusal == Refusal.OFF_BLOCK):
            until = switchback.block(off, now).ends_at
            found["off_block"] = {"partition": off, "until": until}
        if is_ranked:
            row = matrix.jobs.index(job)
            bound = delays.bound_on(row)
            found |= {
                "sentence": sentence(decision, row),
                "overtaken_until": float(matrix.submit_s[row] + delays.delay_s[row]),
                "bounds": None if promise else [] if bound is None else [bound.value],
            }
        return found

    def _past(self, name: str, since: float | None) -> Document:
        """What rltuned has changed of it so far; None = not known, and why. Slurm hands out ids
        again: what was written before the job was submitted is another job's.
        """
        why = "its submit time is not known" if since is None else "there is no journal"
        if since is None or self.journal is None:
            return {"history": None, "history_unknown": why}
        try:
            with reading(self.journal) as db:
                changes = changes_of(db, asked_job(name))
        except (ValueError, JournalError) as error:
            return {"history": None, "history_unknown": str(error)}
        mine = (c for c in changes if c.cluster == self.snapshot.cluster)
        return {
            "history": [c._asdict() for c in mine if c.submitted_at >= since],
            "history_unknown": None,
        }


def of_task(told: Document, job: PendingJob, asked: str) -> Document:
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
