"""The state of the daemon as one document, for the status page and `rltuned status`.

Made once per cycle from its report, so a request costs Slurm nothing. Single jobs are in it only
where the settings allow it: everyone who reaches the port reads it, and Slurm's PrivateData is not
consulted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rltuned import __version__
from rltuned.core.decide import Decision, Entry
from rltuned.daemon.canary import waits
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.daemon.report import CycleReport
from rltuned.daemon.runtime import Rig
from rltuned.daemon.state import Health
from rltuned.domain.plan import Result, SetPriority, SetSiteFactor
from rltuned.slurm.job_selector import asked_job

Document = dict[str, Any]
CYCLES: Final = 20
"""Last cycles that are shown."""
GROUPS: Final = 20
"""Groups of dependent jobs that are shown, open ones first."""
JOBS: Final = 100
"""First jobs of the new order that are shown."""
FOUND: Final = 20
"""Jobs that are shown for one name, such as the records of an array."""
CHANGES: Final = 20
"""Last changes that are shown."""


@dataclass(frozen=True, slots=True)
class Showing:
    """What may be shown of single jobs. jobs: anything at all; users: whose they are."""

    jobs: bool = False
    users: bool = False


class Board:
    """Follows the cycles. Written by the loop's thread, read by those of the endpoint."""

    def __init__(self, showing: Showing, now: Callable[[], float]) -> None:
        self._showing = showing
        self._now = now
        self._rig: Rig | None = None
        self._cycles: tuple[Document, ...] = ()
        self._changes: tuple[Document, ...] = ()
        self._decision: Decision | None = None
        self._last: Document = {}

    def loaded(self, rig: Rig) -> None:
        self._rig = rig

    def cycle(self, report: CycleReport) -> None:
        # exchanged whole, since threads of the endpoint may be reading the old one
        self._cycles = (_cycle(report), *self._cycles)[:CYCLES]
        self._changes = (*_changes(report), *self._changes)[:CHANGES]
        if self._showing.jobs and report.decision is not None:
            self._decision = report.decision
        seen: Document = {}
        if report.snapshot is not None:
            seen = {
                "cluster": report.snapshot.cluster,
                "seen_at": report.snapshot.taken_at,
                "partitions": _partitions(report),
                "left_alone": report.refused(),
                "jobs": _jobs(report, self._showing) if self._showing.jobs else None,
            }
        self._last = {
            **self._last,
            **seen,
            "groups": _groups(report, self._showing),
            "run_times": report.run_times and report.run_times.document(),
        }

    def find(self, name: str) -> list[Document]:
        """Rows of the waiting jobs of this name, with the reason if left alone."""
        decision = self._decision
        try:
            asked = asked_job(name.strip())
        except ValueError:
            return []
        if decision is None:
            return []
        rows = [_row(e, decision, self._showing) for e in decision.entries if asked.means(e.job)]
        ranked, reasons = {e.job.job_id for e in decision.entries}, dict(decision.refused)
        rows += [
            {"job": job.address, "reason": reasons.get(job.job_id)}
            for job in decision.snapshot.pending
            if asked.means(job) and job.job_id not in ranked
        ]
        return rows[:FOUND]

    def document(self, health: Health, verdict: CanaryStatus) -> Document:
        """All of it. health: as /readyz says it; verdict: the last one that is known."""
        rig = self._rig
        return {
            "rltuned": __version__,
            "now": self._now(),
            **health.document(),
            "stage": None if rig is None else rig.ladder.rung.value,
            "dry_run": None if rig is None else rig.dry_run,
            "policy": None if rig is None else rig.policy.name,
            "digest": None if rig is None else rig.digest,
            "generation": None if rig is None else rig.generation,
            "write_mode": None if rig is None else rig.knobs.writing.mode,
            "interval_s": None if rig is None else rig.interval_s,
            **_NOTHING_SEEN,
            **self._last,
            "breakers": [
                {"partition": name, "cause": b.cause, "opened_at": b.opened_at, "detail": b.detail}
                for name in verdict.demoted
                for b in [verdict.breakers[name]]
            ],
            "blocks": [
                {"partition": name, "on": block.on, "until": block.ends_at}
                for name, block in sorted(verdict.blocks.items())
            ],
            "effect": verdict.effect and verdict.effect.document(),
            "waits": waits.document(verdict.waits, self._now()),
            "cycles": list(self._cycles),
            "changes": list(self._changes) if self._showing.jobs else None,
        }


_NOTHING_SEEN: Final[Document] = {
    "cluster": None,
    "seen_at": None,
    "partitions": [],
    "left_alone": {},
    "jobs": None,
    "groups": None,
    "run_times": None,
}


def _cycle(report: CycleReport) -> Document:
    results, seen = report.results(), report.snapshot
    return {
        "cycle": report.cycle,
        "at": report.started_at,
        "mode": report.mode.value,
        "skip": report.skip.value if report.skip else None,
        "detail": report.detail,
        "seconds": report.seconds,
        "pending": len(seen.pending) if seen else None,
        "running": len(seen.running) if seen else None,
        "proposed": sum(report.proposed().values()),
        "applied": results.get(Result.APPLIED, 0),
        "failed": sum(results.get(r, 0) for r in (Result.REFUSED, Result.FAILED)),
    }


def _changes(report: CycleReport) -> list[Document]:
    return [
        {
            "cycle": report.cycle,
            "at": report.started_at,
            "job": done.action.target.address,
            "old": done.action.old,
            "new": done.action.new,
        }
        for done in report.outcomes
        if done.result is Result.APPLIED and isinstance(done.action, SetPriority | SetSiteFactor)
    ]


def _groups(report: CycleReport, showing: Showing) -> Document | None:
    """Of dependent jobs; None = not known."""
    found = report.groups
    if found is None:
        return None
    listed = [
        {**one, "user": one["user"] if showing.users else None}
        for one in (found.documents()[:GROUPS] if showing.jobs else ())
    ]
    return {"open": len(found.open), "jobs": found.jobs(), "listed": listed}


def _partitions(report: CycleReport) -> list[Document]:
    """The queue before and after, a line per partition: how many go up, down or stay."""
    waits: dict[str, list[float]] = defaultdict(list)
    moved: Counter[tuple[str, str]] = Counter()
    for job in report.snapshot.pending if report.snapshot else ():
        waits[",".join(job.partitions)].append(job.waited_s(report.started_at))
    for entry in report.decision.entries if report.decision else ():
        step = entry.rank_before - entry.rank_after
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


def _jobs(report: CycleReport, showing: Showing) -> list[Document] | None:
    """The first of the new order; None = nothing was ranked. No name of a job is there."""
    if report.decision is None:
        return None
    decision = report.decision
    return [_row(entry, decision, showing) for entry in decision.entries[:JOBS]]


def _row(entry: Entry, decision: Decision, showing: Showing) -> Document:
    return {
        "job": entry.job.address,
        "partition": ",".join(entry.job.partitions),
        "user": entry.job.user if showing.users else None,
        "gpus": entry.job.request.total.gpus,
        "waited_s": entry.job.waited_s(decision.snapshot.taken_at),
        "delay_s": entry.delay_s,
        "rank_before": entry.rank_before,
        "rank_after": entry.rank_after,
        "priority": entry.current,
        "planned": entry.settled,
    }
