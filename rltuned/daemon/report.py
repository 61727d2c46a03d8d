"""What one cycle did: the only thing that metrics, journal, log lines, pages and tables read."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import ceil
from typing import Any, Final, Literal, NamedTuple

from rltuned import errors
from rltuned.core.decide import Decision, Entry
from rltuned.core.features import encode
from rltuned.core.pools import waiting_tasks
from rltuned.core.select import Reservations, cannot_start
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.groups import Groups
from rltuned.daemon.state import Condition, HealthState
from rltuned.domain import plan
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.journal.cycles import CycleRow
from rltuned.slurm.site import Weighed

GpuState = Literal["used", "free", "down"]
GPU_STATES: Final[tuple[GpuState, ...]] = ("used", "free", "down")
MOST_WAITS: Final = 200
"""Waits that are kept of one cycle; of more, evenly chosen ones."""
DOUBTS: Final = (
    HealthState.JOURNAL_UNUSABLE, HealthState.RIVAL_SUSPECTED, HealthState.NUMBERS_UNEXPLAINED,
    HealthState.CLOCK_OFF,
)  # fmt: skip
"""Why a cycle writes nothing though its stage might."""


class Sums(NamedTuple):
    """GPUs, work and waits of one cycle; none names a job or a user. gpus: by state and type; down
    = on nodes that start no jobs. Of the jobs that could start: wanted: GPUs, by the first
    partition that a job names; backlog_s: by it too, seconds of expected work for the GPUs that
    they could run on; waiting: their number, by core/pools.waiting_tasks; longest_s: the longest
    wait. work_s: of all for all GPUs; None = not known. waits_s: of the jobs that started since the
    last cycle. off: share of the partitions in an off block.
    """

    gpus: Mapping[tuple[GpuState, str], int]
    wanted: Mapping[str, int]
    waiting: int
    longest_s: float
    backlog_s: Mapping[str, float]
    work_s: float | None
    waits_s: tuple[float, ...]
    started: int
    off: float

    def in_state(self, state: GpuState) -> int:
        return sum(count for (one, _), count in self.gpus.items() if one == state)

    def document(self) -> dict[str, Any]:
        """What the journal's row of a cycle keeps."""
        return {
            **{state: self.in_state(state) for state in GPU_STATES},
            "wanted": sum(self.wanted.values()),
            "waiting": self.waiting,
            "longest_s": round(self.longest_s),
            "work_s": None if self.work_s is None else round(self.work_s),
            "waits_s": [round(wait_s) for wait_s in self.waits_s],
            "started": self.started,
            "off": self.off,
        }


def sums_of(seen: Snapshot, decision: Decision | None, verdict: CanaryStatus | None) -> Sums:
    """What a look adds up to."""
    line, gpus, wanted = in_line(seen), Counter[tuple[GpuState, str]](), Counter[str]()
    counts = waiting_tasks(line, seen.room_in_arrays()).astype(int).tolist()
    for node in seen.nodes:
        for one in node.gpus:
            name = one.gpu_type or "gpu"
            gpus["used", name] += one.total - one.free
            gpus["free", name] += one.free if node.schedulable else 0
            gpus["down", name] += 0 if node.schedulable else one.free
    for job, count in zip(line, counts, strict=True):
        wanted[job.partitions[0]] += job.request.size.gpus * count
    backlog_s, work, usable = Counter[str](), 0.0, 0
    if decision is not None:
        usable = sum(g.total for node in seen.nodes if node.schedulable for g in node.gpus)
        # the work of those that rltuned leaves alone waits too, as of all of them in an off block
        ranked = {job.job_id for job in decision.matrix.jobs}
        rest = tuple(job for job in line if job.job_id not in ranked)
        others = (encode(rest, seen, decision.context),) if rest else ()
        for matrix in (decision.matrix, *others):
            most: dict[str, float] = {}
            for job, job_backlog_s in zip(matrix.jobs, matrix.backlog_s.tolist(), strict=True):
                name = job.partitions[0]
                most[name] = max(most.get(name, 0.0), job_backlog_s)
            backlog_s.update(most)
            work += float(matrix.work.sum())
    started = verdict.runs.started if verdict else ()
    waits_s = sorted(run.wait_s for run in started if run.wait_s is not None)
    return Sums(
        gpus=gpus,
        wanted=wanted,
        waiting=sum(counts),
        longest_s=max((job.waited_s(seen.taken_at) for job in line), default=0.0),
        backlog_s=backlog_s,
        work_s=work / usable if usable else None,
        waits_s=tuple(waits_s[:: max(1, ceil(len(waits_s) / MOST_WAITS))]),
        started=len(waits_s),
        off=round(len(verdict.off) / len(verdict.blocks), 3) if verdict and verdict.blocks else 0.0,
    )


def in_line(seen: Snapshot) -> list[PendingJob]:
    """The jobs that wait for nodes, and for nothing else."""
    reservations = Reservations(seen)
    return [job for job in seen.pending if cannot_start(job, reservations) is None]


def tasks(job: PendingJob) -> int:
    """How many jobs the record stands for."""
    return 1 if job.array is None else max(1, job.array.tasks)


@dataclass(frozen=True, slots=True)
class ForecastStatus:
    """For metrics and the status page. at: Unix time of the last one; None = none yet. jobs: with
    an expected start. coverage, error_s: of the last past ones, see core/starts. past: how many.
    """

    at: float | None = None
    jobs: int = 0
    coverage: float | None = None
    error_s: float | None = None
    past: int = 0
    seconds: float = 0.0
    trouble: str = ""


class Skip(StrEnum):
    """Why a cycle came to no decision, or could not finish."""

    BACKEND = "backend"
    SNAPSHOT = "snapshot"
    POLICY = "policy"
    BUSY = "busy"
    UNEXPECTED = "unexpected"


SKIPS: Final[Mapping[type[errors.RltunedError], Skip]] = {
    errors.BackendError: Skip.BACKEND,
    errors.SnapshotError: Skip.SNAPSHOT,
    errors.PolicyError: Skip.POLICY,
    errors.BusyError: Skip.BUSY,
}
"""By the error that a cycle ends with, and that the next one may not have."""


class Failure(NamedTuple):
    """Why a cycle has no result, in one word and in one line. backoff_s: pause before the next try;
    None = the ordinary schedule.
    """

    skip: Skip
    detail: str = ""
    backoff_s: float | None = None


class CycleStage(StrEnum):
    """The parts of a cycle that are timed."""

    OBSERVE = "observe"
    DECIDE = "decide"
    JOURNAL = "journal"
    APPLY = "apply"


@dataclass
class CycleReport:
    """One cycle, whole. The loop fills it in as it goes; observers only read it.

    Attributes:
        cycle: its number; goes on counting over restarts while there is a journal.
        started_at: Unix seconds.
        stages: seconds by stage, only those that were reached.
        snapshot: as marked with what rltuned wrote; None when it could not be read.
        context: what is known besides it.
        decision: None when the cycle was skipped before one was made.
        outcomes: what came of each action; empty when nothing was applied.
        reverted: jobs, by kind, found at another value than the one that was applied.
        weighed: how busy slurmctld was; None = sdiag was not asked.
        reasons: why it may not write, by the state that says so; STANDBY among them.
        verdict: what became of the jobs, and which circuit breakers are open; None when not known.
        failure: None = there is a result.
        groups: of dependent jobs; None = not known.
    """

    cycle: int
    started_at: float
    mode: HealthState
    stages: dict[CycleStage, float]
    snapshot: Snapshot | None = None
    context: Context = NO_CONTEXT
    decision: Decision | None = None
    outcomes: tuple[plan.Outcome, ...] = ()
    reverted: Mapping[str, int] | None = None
    weighed: Weighed | None = None
    reasons: dict[HealthState, str] = field(default_factory=dict)
    verdict: CanaryStatus | None = None
    failure: Failure | None = None
    groups: Groups | None = None

    @cached_property
    def sums(self) -> Sums | None:
        """Asked for at the end of the cycle; None = nothing was seen."""
        if self.snapshot is None:
            return None
        return sums_of(self.snapshot, self.decision, self.verdict)

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    @property
    def stretch(self) -> float:
        """By what the interval to the next cycle is multiplied."""
        return self.weighed.stretch if self.weighed else 1.0

    @property
    def skip(self) -> Skip | None:
        return self.failure and self.failure.skip

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def in_vain(self) -> bool:
        """Whether Slurm took none of the changes that were sent: no rights, most likely."""
        useful = {plan.Result.APPLIED, plan.Result.GONE}
        return bool(self.outcomes) and not any(o.result in useful for o in self.outcomes)

    @property
    def demoted(self) -> tuple[str, ...]:
        return self.verdict.demoted if self.verdict else ()

    @property
    def doubts(self) -> list[Condition]:
        """Why it wrote nothing; a dry run has none."""
        if self.mode is HealthState.DRY_RUN:
            return []
        return [Condition(state, self.why(state)) for state in DOUBTS if self.why(state)]

    def note(self, state: HealthState, why: str) -> None:
        """Remember why it may not write; empty = it may, for all that is known here."""
        if why:
            self.reasons[state] = why

    def why(self, *states: HealthState) -> str:
        """The first of these reasons that there is; empty = none."""
        return next((self.reasons[state] for state in states if state in self.reasons), "")

    @property
    def journal_error(self) -> str:
        """Why the journal cannot be used; empty = it can."""
        return self.why(HealthState.JOURNAL_UNUSABLE)

    def conditions(self, verdict: CanaryStatus) -> Iterator[Condition]:
        """What holds after it. verdict: the last one that is known."""
        doubts, effect = self.doubts, verdict.effect
        yield from doubts
        if verdict.demoted:
            yield Condition(HealthState.BREAKER_OPEN, ", ".join(verdict.demoted))
        if self.failure is not None:
            yield condition_of(self.failure.skip, self.failure.detail)
        if self.decision is not None and (short := self.decision.short).jobs:
            said = f"{short.jobs} of {len(self.entries)} jobs have priorities too low for their"
            yield Condition(HealthState.NO_ROOM, f"{said} delays: {short.remedy}")
        if doubts:
            return
        if self.mode is not HealthState.LIVE:
            yield Condition(self.mode, self.why(HealthState.STANDBY))
        elif self.ok:
            if effect is not None and effect.interval_s is None:
                yield Condition(HealthState.LEARNING, effect.verdict)
            yield Condition(HealthState.LIVE)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.decision.entries if self.decision else ()

    def proposed(self) -> dict[str, int]:
        actions = self.decision.plan.actions if self.decision else ()
        return dict(Counter(a.field.kind for a in actions))

    def applied(self) -> dict[tuple[str, plan.Result], int]:
        return dict(Counter((o.action.field.kind, o.result) for o in self.outcomes))

    def results(self) -> dict[plan.Result, int]:
        return dict(Counter(o.result for o in self.outcomes))

    def refused(self) -> dict[str, int]:
        refused = self.decision.refused if self.decision else ()
        return dict(Counter(reason.value for _, reason in refused))

    def owned(self) -> int | None:
        """Pending jobs that carry a value of rltuned's; None when that is not known."""
        if self.snapshot is None or self.journal_error:
            return None
        return sum(job.owned is not None for job in self.snapshot.pending)

    def in_force(self) -> Decision | None:
        """The decision, with the places after the writes; None = nothing was decided."""
        if self.decision is None:
            return None
        done = (o.action for o in self.outcomes if o.result is plan.Result.APPLIED)
        written = {action.target.job_id for action in done if action.field.orders}
        settled = {e.job.job_id: e.settled for e in self.entries if e.changes}
        standing = self.decision.standing.after({j: n for j, n in settled.items() if j in written})
        return replace(self.decision, standing=standing)

    def summary(self) -> str:
        """What it came to in one short line that names no job."""
        if self.failure is not None:
            return f"cycle {self.cycle} skipped ({self.failure.skip})"
        pending = len(self.snapshot.pending) if self.snapshot else 0
        applied = self.results().get(plan.Result.APPLIED, 0)
        return (
            f"cycle {self.cycle}: {pending} pending, {len(self.entries)} ordered, "
            f"{sum(self.proposed().values())} proposed, {applied} applied"
        )


def condition_of(skip: str, detail: str) -> Condition:
    """What holds after a cycle that ended so. skip: a Skip, or the journal's word in its place."""
    if skip == Skip.BACKEND:
        return Condition(HealthState.SLURM_UNREACHABLE, detail or "see the log")
    if skip == Skip.BUSY:
        return Condition(HealthState.SLURM_BUSY, detail or "slurmctld is busy")
    return Condition(HealthState.NO_RESULT, skip)  # its detail may name jobs


def row_of(report: CycleReport, policy: str) -> CycleRow:
    """What the journal keeps of how a cycle ended. Of one that doubted whose the numbers are, the
    mode is the doubt, so that a later look does not take them for the site's.
    """
    seen, whose = report.snapshot, (HealthState.RIVAL_SUSPECTED, HealthState.NUMBERS_UNEXPLAINED)
    doubt = next((state for state in whose if report.why(state)), report.mode)
    return CycleRow(
        cycle=report.cycle,
        at=report.started_at,
        cluster=seen.cluster if seen else "",
        mode=doubt.value,
        skipped=report.failure.skip.value if report.failure else "",
        policy=policy,
        pending=len(seen.pending) if seen else 0,
        chosen=len(report.entries),
        proposed=sum(report.proposed().values()),
        applied=report.results().get(plan.Result.APPLIED, 0),
        seconds=report.seconds,
        timings={stage.value: seconds for stage, seconds in report.stages.items()},
        sums=report.sums.document() if report.sums else {},
    )
