"""Delays from submission on: what deploy/job_submit.lua reads, and how its numbers are known.

A file, the stamp, says by which formula slurmctld gives a new job a site factor. It is good for a
few cycles, so that the script stops with the daemon. The formula stays in the journal: a job with
exactly the number that it gives has it from the script: it is rltuned's, and its original is 0.
`marked` and `note` raise JournalError when the journal cannot be used or read.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import floor, sqrt
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from rltuned.core.decide import Decision, Knobs
from rltuned.core.order import NO_LIMIT_S
from rltuned.daemon.report import CycleReport
from rltuned.daemon.runtime import Rig
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Outcome, Plan, Result, SetSiteFactor, Target
from rltuned.domain.snapshot import Snapshot
from rltuned.durable import write_whole
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.named_values import Kept, Memory, Recall

POLICY: Final = "delay"
"""The script knows this rule alone."""
GOOD_FOR: Final = 3
"""Cycles that a stamp is good for."""
HOW: Final = "set at submission by job_submit.lua"
_ROUNDING: Final = 1e-6
_MOST: Final = 65_536

Finite = Annotated[float, Field(ge=0.0, le=1e12)]


class Stamp(BaseModel):
    """The formula: factor = zero - floor(slope x min(stretch, clip x, max_delay)), slope in points
    per second, the rest as in `[order]`; partitions: in which it holds. users, accounts, qos: whose
    jobs are left alone, also because they have no delay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    cluster: str
    slope: Finite
    zero: int
    stretch: Finite
    clip: Finite
    max_delay_s: Finite
    partitions: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()

    def factor(self, limit_s: float, gpus: int) -> int:
        """The site factor of a job, limit inf = none, operation by operation as in the script."""
        area = (NO_LIMIT_S if limit_s == float("inf") else limit_s) * sqrt(gpus)
        delay_s = min(self.stretch * area, self.clip * area, self.max_delay_s)
        return self.zero - floor(self.slope * delay_s + _ROUNDING)

    def text(self, until: float) -> str:
        numbers = ("slope", "zero", "stretch", "clip", "max_delay_s")
        lines = ["rltuned 1", f"until {floor(until)}", f"no_limit_s {NO_LIMIT_S!r}"]
        lines += [f"{name} {getattr(self, name)!r}" for name in numbers]
        lines += [f"partition {name}" for name in self.partitions]
        for word, names in (("user", self.users), ("account", self.accounts), ("qos", self.qos)):
            lines += [f"{word} {name}" for name in names]
        return "\n".join((*lines, "end", ""))


_STAMPS: Final = "stamps"
_KEPT: Final[Kept[tuple[Stamp, ...]]] = Kept("newcomers", tuple[Stamp, ...], "newcomers")
"""The formula in use and the one before: of a job that was submitted while they changed."""


def formula(decision: Decision, knobs: Knobs) -> Stamp | None:
    """The formula that a decision's numbers follow; None = the script could not follow it."""
    seen, rules = decision.snapshot, knobs.rules
    system, neutral = seen.priorities, decision.neutral
    by_factor = decision.field == "site_factor" and not system.site_factor_plugin
    known = decision.policy == POLICY and neutral is not None and bool(system.slope)
    if not by_factor or not known or neutral is None or rules.switchback is not None:
        return None
    left = rules.sla_partitions | set(seen.demoted) | _promised(knobs, "partition")
    ours = [p.name for p in seen.partitions if p.name not in left]
    return Stamp(
        cluster=seen.cluster,
        slope=system.slope,
        zero=floor(system.slope * neutral.delay_s + _ROUNDING),
        stretch=knobs.order.stretch,
        clip=knobs.order.clip,
        max_delay_s=knobs.order.max_delay_s,
        partitions=tuple(n for n in ours if not rules.partitions or n in rules.partitions),
        users=tuple(sorted(rules.excluded_users)),
        accounts=tuple(sorted(rules.excluded_accounts | _promised(knobs, "account"))),
        qos=tuple(sorted(rules.excluded_qos | _promised(knobs, "qos"))),
    )


def _promised(knobs: Knobs, key: str) -> set[str]:
    """Whose jobs have no delay."""
    return {one.value for one in knobs.sla if one.key == key}


def tell(rig: Rig, done: CycleReport, journal: Memory, now: float) -> str:
    """Tell the script what a cycle decided, or nothing more; returns why that failed."""
    if rig.newcomers is None or rig.dry_run:
        return ""
    found = done.decision if done.mode is HealthState.LIVE else None
    stamp = None if found is None else formula(found, rig.knobs)
    return publish(rig.newcomers, stamp, journal, now, GOOD_FOR * rig.interval_s)


def publish(path: Path, stamp: Stamp | None, journal: Memory, now: float, good_s: float) -> str:
    """Put the stamp into its place, whole, or take it away; returns why that failed, empty = not.
    The journal knows a formula before slurmctld does.
    """
    try:
        if stamp is None:
            path.unlink(missing_ok=True)
            return ""
        _KEPT.alter(journal, lambda kept: {_STAMPS: _with(kept.get(_STAMPS, ()), stamp)}, now)
        write_whole(path, stamp.text(now + good_s).encode(), 0o644)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    except JournalError as error:
        return str(error)
    return ""


def good_until(path: Path) -> float | None:
    """Unix time until which the stamp there is good; None = there is none that can be read."""
    try:
        with path.open(encoding="utf-8") as file:
            words = [line.split() for line in file.read(_MOST).splitlines()]
        return next(float(word[1]) for word in words if word[:1] == ["until"])
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _with(before: tuple[Stamp, ...], stamp: Stamp) -> tuple[Stamp, ...]:
    return before if before[:1] == (stamp,) else (stamp, *before[:1])


def marked(journal: Recall, snapshot: Snapshot) -> Snapshot:
    """The snapshot, the jobs with a site factor from the script marked as rltuned's."""
    stamps = [s for s in _KEPT.read(journal).get(_STAMPS, ()) if s.cluster == snapshot.cluster]
    if not stamps:
        return snapshot
    return replace(snapshot, pending=tuple(_marked(job, stamps) for job in snapshot.pending))


def _marked(job: PendingJob, stamps: list[Stamp]) -> PendingJob:
    factor, limit_s = job.site_factor, job.request.time_limit_s
    gpus = job.request.size.gpus
    if job.owned is not None or not factor or job.fixed or limit_s is None or not gpus:
        return job
    if not any(
        set(job.partitions) <= set(s.partitions) and s.factor(limit_s, gpus) == factor
        for s in stamps
    ):
        return job
    return replace(job, owned=Ownership("site_factor", factor, original=0, earlier=(0,)))


def note(journal: Journal, snapshot: Snapshot, at: float) -> int:
    """Note in the journal whose site factor is the script's; returns how many jobs are new."""
    known = journal.owned(snapshot.cluster)
    new = [j for j in snapshot.pending if j.owned and (j.job_id, j.submitted_at) not in known]
    plan = Plan(tuple(_as_written(new)))
    if plan.is_empty:
        return 0
    ticket = journal.intend(plan, cluster=snapshot.cluster, cycle=journal.last_cycle(), at=at)
    outcomes = [Outcome(action, Result.APPLIED, HOW) for action in plan.actions]
    journal.settle(ticket, outcomes, at=at)
    return len(plan.actions)


def _as_written(jobs: list[PendingJob]) -> Iterator[SetSiteFactor]:
    for job in jobs:
        if job.owned is not None and job.owned.field == "site_factor":
            target = Target(job.job_id, job.submitted_at, job.address)
            yield SetSiteFactor(target, old=0, new=job.owned.value)
