"""What one cycle did: the only thing that metrics, journal, log lines and tables read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from typing import Any, Final, Literal

from rltuned import errors
from rltuned.core.decide import Decision, Entry
from rltuned.core.features import StateMatrix, encode
from rltuned.core.planning import PriorityOrder
from rltuned.core.pools import waiting_tasks
from rltuned.core.select import Reservations, cannot_start
from rltuned.daemon.breaker import Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.following import RoleChange
from rltuned.daemon.groups import Groups
from rltuned.daemon.run_times import RunTimesStatus
from rltuned.daemon.state import Condition, HealthState
from rltuned.domain import plan
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot, Unreadable
from rltuned.domain.units import JobId
from rltuned.journal.cycles import CycleRow
from rltuned.slurm.site import Weighed

# GPUs, work and waits of one cycle, added up: for the page, the metrics and the journal.
#
# No sum names a job or a user.


GpuState = Literal["used", "free", "down"]
GPU_STATES: Final[tuple[GpuState, ...]] = ("used", "free", "down")
MOST_WAITS: Final = 200
"""Waits that are kept of one cycle; of more, evenly chosen ones."""
NO_TYPE: Final = "gpu"
"""How GPUs without a type are named."""


@dataclass(frozen=True, slots=True)
class Sums:
    """gpus: by state and type; down = on nodes that start no jobs. Of the jobs that could start:
    wanted: GPUs, by the first partition that a job names; backlog_s: by it too, seconds of expected
    work for the GPUs that they could run on; waiting: their number, by core/pools.waiting_tasks;
    longest_s: the longest wait. work_s: of all for all GPUs; None = not known. waits_s: of the jobs
    that started since the last cycle. off: share of the partitions in an off block.
    """

    gpus: Mapping[tuple[GpuState, str], int]
    wanted: Mapping[str, int]
    waiting: int
    longest_s: float
    backlog_s: Mapping[str, float] = field(default_factory=dict)
    work_s: float | None = None
    waits_s: tuple[float, ...] = ()
    started: int = 0
    off: float = 0.0

    def in_state(self, state: GpuState) -> int:
        return sum(count for (one, _), count in self.gpus.items() if one == state)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, name in self.gpus}))

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


def sums_of(
    seen: Snapshot | None, decision: Decision | None, verdict: CanaryStatus | None
) -> Sums | None:
    """None = nothing was seen."""
    if seen is None:
        return None
    line = in_line(seen)
    counts = waiting_tasks(line, seen.room_in_arrays()).astype(int).tolist()
    matrices = _matrices(seen, line, decision)
    waits_s = (
        [run.wait_s for run in verdict.runs.started if run.wait_s is not None] if verdict else []
    )
    blocks = verdict.blocks if verdict else {}
    return Sums(
        gpus=_gpus(seen),
        wanted=_wanted(line, counts),
        waiting=sum(counts),
        longest_s=max((job.waited_s(seen.taken_at) for job in line), default=0.0),
        backlog_s=_backlog_s(matrices),
        work_s=_work_s(seen, matrices),
        waits_s=tuple(_some(sorted(waits_s))),
        started=len(waits_s),
        off=round(len(verdict.off) / len(blocks), 3) if verdict and blocks else 0.0,
    )


def in_line(seen: Snapshot) -> list[PendingJob]:
    """The jobs that wait for nodes, and for nothing else."""
    reservations = Reservations(seen)
    return [job for job in seen.pending if cannot_start(job, reservations) is None]


def tasks(job: PendingJob) -> int:
    """How many jobs the record stands for."""
    return 1 if job.array is None else max(1, job.array.tasks)


def _gpus(seen: Snapshot) -> Mapping[tuple[GpuState, str], int]:
    found: Counter[tuple[GpuState, str]] = Counter()
    for node in seen.nodes:
        for gpus in node.gpus:
            name = gpus.gpu_type or NO_TYPE
            found["used", name] += gpus.total - gpus.free
            found["free", name] += gpus.free if node.schedulable else 0
            found["down", name] += 0 if node.schedulable else gpus.free
    return found


def _wanted(line: Sequence[PendingJob], counts: Sequence[int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for job, count in zip(line, counts, strict=True):
        found[job.partitions[0]] += job.request.size.gpus * count
    return found


def _matrices(
    seen: Snapshot, line: Iterable[PendingJob], decision: Decision | None
) -> tuple[StateMatrix, ...]:
    """The ranked jobs, and those that rltuned leaves alone, as all of them in an off block: their
    work waits too. Empty = nothing was decided.
    """
    if decision is None:
        return ()
    ranked = {job.job_id for job in decision.matrix.jobs}
    rest = tuple(job for job in line if job.job_id not in ranked)
    return (decision.matrix, encode(rest, seen, decision.context)) if rest else (decision.matrix,)


def _backlog_s(matrices: Iterable[StateMatrix]) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    for matrix in matrices:
        most: dict[str, float] = {}
        for job, backlog_s in zip(matrix.jobs, matrix.backlog_s.tolist(), strict=True):
            name = job.partitions[0]
            most[name] = max(most.get(name, 0.0), backlog_s)
        found.update(most)
    return found


def _work_s(seen: Snapshot, matrices: Sequence[StateMatrix]) -> float | None:
    usable = sum(g.total for node in seen.nodes if node.schedulable for g in node.gpus)
    if not matrices or not usable:
        return None
    return sum(float(m.work.sum()) for m in matrices) / usable


def _some(waits_s: list[float]) -> list[float]:
    return waits_s[:: max(1, ceil(len(waits_s) / MOST_WAITS))]


DOUBTS: Final = (
    HealthState.JOURNAL_UNUSABLE, HealthState.RIVAL_SUSPECTED, HealthState.NUMBERS_UNEXPLAINED,
    HealthState.CLOCK_OFF,
)  # fmt: skip
"""Why a cycle writes nothing though its stage might."""
_NAMED: Final = 3
"""So many jobs are named in a cycle's sentence."""


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


_SKIPS: Final[Mapping[type[errors.RltunedError], Skip]] = {
    errors.BackendError: Skip.BACKEND,
    errors.SnapshotError: Skip.SNAPSHOT,
    errors.PolicyError: Skip.POLICY,
    errors.BusyError: Skip.BUSY,
}
ENDINGS: Final = tuple(_SKIPS)
"""Errors that a cycle ends with, and that the next one may not have."""


def skip_of(error: errors.RltunedError) -> Skip:
    """Why a cycle that ended with one of ENDINGS has no result."""
    return next(skip for kind, skip in _SKIPS.items() if isinstance(error, kind))


class CycleStage(StrEnum):
    """The parts of a cycle that are timed."""

    OBSERVE = "observe"
    DECIDE = "decide"
    JOURNAL = "journal"
    APPLY = "apply"


def _furthest_up(row: tuple[int, int, JobId]) -> tuple[int, int]:
    after, before, _ = row
    return after - before, after


@dataclass(slots=True)
class CycleReport:
    """One cycle, whole. The loop fills it in as it goes; observers only read it.

    Attributes:
        cycle: its number; goes on counting over restarts while there is a journal.
        started_at: Unix seconds.
        interval_s: time between two cycles as configured.
        stages: seconds by stage, only those that were reached.
        snapshot: as marked with what rltuned wrote; None when it could not be read.
        context: what is known besides it.
        decision: None when the cycle was skipped before one was made.
        outcomes: what came of each action; empty when nothing was applied.
        reverted: jobs, by kind, found at another value than the one that was applied.
        backoff_s: pause before the next try; None = the ordinary schedule.
        weighed: how busy slurmctld was; None = sdiag was not asked.
        reasons: why it may not write, by the state that says so; STANDBY among them.
        left_alone: jobs that are not written to, as theirs are not.
        verdict: what became of the jobs, and which circuit breakers are open; None when not known.
        skip, detail: why there is no result, in one word and in one line.
        run_times: what was learned of run times; None = nothing is.
        groups: of dependent jobs; None = not known.
        sums: GPUs, work and waits, added up; None = nothing was seen.
        moved: a generation that a trial or a breaker has promoted, withdrawn or taken back.
    """

    cycle: int
    started_at: float
    mode: HealthState
    interval_s: float
    stages: dict[CycleStage, float]
    snapshot: Snapshot | None = None
    context: Context = NO_CONTEXT
    decision: Decision | None = None
    outcomes: tuple[plan.Outcome, ...] = ()
    reverted: Mapping[str, int] | None = None
    backoff_s: float | None = None
    weighed: Weighed | None = None
    reasons: dict[HealthState, str] = field(default_factory=dict)
    left_alone: tuple[Unreadable, ...] = ()
    verdict: CanaryStatus | None = None
    skip: Skip | None = None
    detail: str = ""
    run_times: RunTimesStatus | None = None
    groups: Groups | None = None
    moved: RoleChange | None = None
    sums: Sums | None = None

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())

    @property
    def next_in_s(self) -> float:
        """Time from the start of this cycle to that of the next, when Slurm answers."""
        return self.interval_s * (self.weighed.stretch if self.weighed else 1.0)

    def skipped(self, why: Skip, error: Exception) -> None:
        self.skip = why
        self.detail = str(error) or type(error).__name__

    @property
    def ok(self) -> bool:
        return self.skip is None

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

    def conditions(self, verdict: CanaryStatus) -> list[Condition]:
        """What holds after it. verdict: the last one that is known."""
        doubts, is_open = self.doubts, verdict.demoted
        found = [*doubts]
        if is_open:
            found.append(Condition(HealthState.BREAKER_OPEN, ", ".join(is_open)))
        if self.skip is not None:
            found.append(condition_of(self.skip.value, self.detail))
        if self.decision is not None and self.decision.short.jobs:
            short, ranked = self.decision.short, len(self.decision.entries)
            said = f"{short.jobs} of {ranked} jobs have priorities too low for their delays"
            found.append(Condition(HealthState.NO_ROOM, f"{said}: {short.remedy}"))
        if self.mode is HealthState.LIVE and self.ok and not doubts:
            found += _live(verdict.effect)
        elif self.mode is not HealthState.LIVE and not doubts:
            found.append(Condition(self.mode, self.why(HealthState.STANDBY)))
        return found

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

    def changes(self) -> tuple[Entry, ...]:
        """Jobs that the plan moves, in the new order."""
        return tuple(e for e in self.decision.entries if e.changes) if self.decision else ()

    def standing(self) -> PriorityOrder | None:
        """Where jobs stand once Slurm has taken this cycle's writes; None = nothing was decided."""
        if self.decision is None:
            return None
        done = (o.action for o in self.outcomes if o.result is plan.Result.APPLIED)
        written = {action.target.job_id for action in done if action.field.orders}
        changed = (e for e in self.decision.entries if e.changes and e.job.job_id in written)
        return self.decision.standing.after({e.job.job_id: e.settled for e in changed})

    def in_force(self) -> Decision | None:
        """The decision, with the places after the writes; None = nothing was decided."""
        standing = self.standing()
        if self.decision is None or standing is None:
            return None
        return replace(self.decision, standing=standing)

    def targets(self) -> dict[JobId, int]:
        """The place of each ranked job: in force, or proposed where nothing is written."""
        entries, standing = self.decision.entries if self.decision else (), self.standing()
        if standing is None or self.mode is not HealthState.LIVE:
            return {e.job.job_id: e.rank_wished for e in entries}
        places = standing.places()
        return {e.job.job_id: places[e.job.job_id].place for e in entries}

    def summary(self) -> str:
        """What it came to in one short line that names no job, behind the state."""
        if self.skip is not None:
            return f"cycle {self.cycle} skipped ({self.skip})"
        pending = len(self.snapshot.pending) if self.snapshot else 0
        applied = self.results().get(plan.Result.APPLIED, 0)
        proposed = sum(self.proposed().values())
        return f"cycle {self.cycle}: {pending} pending, {proposed} proposed, {applied} applied"

    def sentence(self) -> str:
        """The same for the log: `42 waiting, 30 ordered; furthest up: 811 (14 to 2); 5 written,
        0 failed; 0.4 s`. Places are from Slurm's own order to that in force, or where nothing is
        written to that of rltuned.
        """
        entries = self.decision.entries if self.decision else ()
        pending = len(self.snapshot.pending) if self.snapshot else 0
        parts = [f"{pending} waiting, {len(entries)} ordered"]
        to = self.targets()
        rows = [(to[e.job.job_id], e.rank_before, e.job.job_id) for e in entries]
        named = [row for row in sorted(rows, key=_furthest_up)[:_NAMED] if row[0] < row[1]]
        if named:
            moves = (f"{job_id} ({before} to {after})" for after, before, job_id in named)
            parts.append(f"furthest up: {', '.join(moves)}")
        if self.outcomes:
            written = self.results().get(plan.Result.APPLIED, 0)
            parts.append(f"{written} written, {len(self.outcomes) - written} not")
        elif self.decision is not None:
            parts.append(f"{sum(self.proposed().values())} proposed, nothing written")
        return "; ".join([*parts, f"{self.seconds:.1f} s"])


def condition_of(skip: str, detail: str) -> Condition:
    """What holds after a cycle that ended so. skip: a Skip, or the journal's word in its place."""
    if skip == Skip.BACKEND:
        return Condition(HealthState.SLURM_UNREACHABLE, detail or "see the log")
    if skip == Skip.BUSY:
        return Condition(HealthState.SLURM_BUSY, detail or "slurmctld is busy")
    return Condition(HealthState.NO_RESULT, skip)  # its detail may name jobs


def _live(effect: Effect | None) -> Iterator[Condition]:
    if effect is not None and effect.interval_s is None:
        yield Condition(HealthState.LEARNING, effect.verdict)
    yield Condition(HealthState.LIVE)


def row_of(report: CycleReport, policy: str) -> CycleRow:
    """What the journal keeps of how a cycle ended. Of one that doubted whose the numbers are, the
    mode is the doubt, so that a later look does not take them for the site's.
    """
    snapshot, decision = report.snapshot, report.decision
    whose = (HealthState.RIVAL_SUSPECTED, HealthState.NUMBERS_UNEXPLAINED)
    doubt = next((state for state in whose if report.why(state)), report.mode)
    return CycleRow(
        cycle=report.cycle,
        at=report.started_at,
        cluster=snapshot.cluster if snapshot else "",
        mode=doubt.value,
        skipped=report.skip.value if report.skip else "",
        policy=policy,
        pending=len(snapshot.pending) if snapshot else 0,
        chosen=len(decision.entries) if decision else 0,
        proposed=sum(report.proposed().values()),
        applied=report.results().get(plan.Result.APPLIED, 0),
        seconds=report.seconds,
        timings={stage.value: seconds for stage, seconds in report.stages.items()},
        sums=report.sums.document() if report.sums else {},
    )
