"""The integer program: which ways the first jobs take, now and after the next ends; who shares.

Moment 0 is now, moment m > 0 is when the first m of the next ends have come, all of them maybe
before the next cycle. Of the first jobs nothing runs at moment m but what starts now or at m
itself: it is not known how many ends come, so every number of them is looked at by itself, while a
job shares its nodes at all moments or at none. docs/adr/0008 has the formulas. To solve is
the business of the Solver port: nothing here starts a process or waits. No number follows from it:
what reaches Slurm are the flags of exclusive jobs that are to share, and Slurm chooses the nodes.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.placement import (
    BackfillResult,
    JobEnd,
    Placement,
    QueuedJob,
    easy_backfill,
    job_ends,
    place_request,
    placeable,
)
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob, Share
from rltuned.domain.plan import OVERSUBSCRIBE, Action
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, NodeName
from rltuned.errors import SolverError

if TYPE_CHECKING:
    import pulp

ROUNDING: Final = 1e-6
"""A solver's binary counts as whole within this."""
_CPUS, _MEMORY = -1, -2
_Cell = tuple[int, int]
"""Node column, and row of GPUs or one of the two above."""

Kind = Literal["pack", "spread"]
KINDS: Final[tuple[Kind, ...]] = ("pack", "spread")
Row = tuple[dict[str, int], int]
"""Coefficients by variable, and what their sum is at most."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a solve may cost. wall_s: seconds until the solver is ended. memory_mib: address space.

    Raises ValueError.
    """

    wall_s: float = 1.0
    memory_mib: int = 1_024

    def __post_init__(self) -> None:
        if not self.wall_s > 0 or self.memory_mib < 1:
            raise ValueError(f"a solve needs time and memory: {self}")


class Solver(Protocol):
    """What solves programs. Outside the core: it runs a process of its own."""

    def __call__(self, problem: "pulp.LpProblem", budget: Budget, /) -> Mapping[str, float]:
        """Value of every variable by name, at the proven optimum. Raises SolverError."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """A job on concrete nodes at a moment. shared: beside others, though it asked for whole nodes.
    gain: what it is worth.
    """

    job: int
    moment: int
    kind: Kind
    shared: bool
    shares: tuple[Share, ...]
    limit_s: float
    gain: float


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The start that Slurm plans for the first blocked job of a partition. room: what is free then
    if nothing new starts.
    """

    job: int
    at_s: float
    shares: tuple[Share, ...]
    room: Capacity


@dataclass(frozen=True, slots=True)
class Program:
    """One decision to be made. free: at every moment. starts: jobs that Slurm starts now by itself.
    shareable: jobs that may be set to share. flag: cost of each that is.
    """

    ways: tuple[Way, ...]
    free: tuple[Capacity, ...]
    starts: frozenset[int] = frozenset()
    promises: tuple[PlannedStart, ...] = ()
    shareable: frozenset[int] = frozenset()
    flag: float = 0.0


@dataclass(frozen=True, slots=True)
class Solution:
    """What is chosen. flagged: jobs to be set to share."""

    ways: tuple[Way, ...]
    flagged: frozenset[int] = frozenset()


def value(program: Program, answer: Solution) -> float:
    """What an answer is worth."""
    return math.fsum(way.gain for way in answer.ways) - program.flag * len(answer.flagged)


def rows(program: Program) -> Iterator[Row]:
    """All that an answer must keep to; variable x<i> is way i, f<j> is "job j shares"."""
    for moment, free in enumerate(program.free):
        live = {f"x{i}": w for i, w in enumerate(program.ways) if w.moment in {0, moment}}
        for job in sorted({w.job for w in live.values()}):
            yield from _once(job, live, may_share=job in program.shareable)
        for (node, what), uses in _uses(live, free).items():
            yield uses, _room(free, node, what)
    now = {f"x{i}": w for i, w in enumerate(program.ways) if w.moment == 0}
    for job in sorted(program.starts):
        yield {x: -1 for x, w in now.items() if w.job == job}, -1
    for promise in program.promises:
        yield from _kept(promise, now)


def _once(job: int, live: Mapping[str, Way], *, may_share: bool) -> Iterator[Row]:
    """At most one way of a job, and by its flag."""
    alone, shared = (
        {x: 1 for x, w in live.items() if w.job == job and w.shared == kind}
        for kind in (False, True)
    )
    if may_share:
        yield alone | {f"f{job}": 1}, 1
        yield shared | {f"f{job}": -1}, 0
    else:
        yield alone, 1


def _kept(promise: PlannedStart, now: Mapping[str, Way]) -> Iterator[Row]:
    """Room for a promised job beside what will still run then, unless it starts now itself."""
    uses = _uses({x: w for x, w in now.items() if w.limit_s > promise.at_s}, promise.room)
    own = [x for x, w in now.items() if w.job == promise.job]
    for (node, what), amount in _amounts(promise.shares, promise.room).items():
        terms = defaultdict(int, uses.get((node, what), {}))
        for x in own:
            terms[x] -= amount
        yield dict(terms), _room(promise.room, node, what) - amount


def _uses(live: Mapping[str, Way], capacity: Capacity) -> dict[_Cell, dict[str, int]]:
    found: dict[_Cell, dict[str, int]] = defaultdict(dict)
    for x, way in live.items():
        for cell, amount in _amounts(way.shares, capacity).items():
            found[cell][x] = amount
    return found


def _amounts(shares: Sequence[Share], capacity: Capacity) -> dict[_Cell, int]:
    found: dict[_Cell, int] = defaultdict(int)
    for share in shares:
        node, taken = capacity.index[share.node], share.taken
        kinds = (capacity.row_on(share, node), _CPUS, _MEMORY)
        for what, amount in zip(kinds, (taken.gpus, taken.cpus, taken.mem_mib), strict=True):
            if amount:
                found[node, what] += amount
    return found


def _room(capacity: Capacity, node: int, what: int) -> int:
    if what >= 0:
        return int(capacity.free.of_type[what, node])
    return int((capacity.free.cpus if what == _CPUS else capacity.free.mem_mib)[node])


def choose(program: Program, solver: Solver, budget: Budget) -> Solution:
    """The best answer, checked before it is used. Raises SolverError."""
    values = solver(_model(program), budget)
    taken = {name for name, amount in values.items() if _is_one(amount)}
    answer = Solution(
        tuple(way for i, way in enumerate(program.ways) if f"x{i}" in taken),
        frozenset(job for job in program.shareable if f"f{job}" in taken),
    )
    fault = fault_of(program, answer)
    if fault:
        raise SolverError(f"the solver's answer is not possible: {fault}")
    return answer


def _is_one(amount: float) -> bool:
    if min(abs(amount), abs(amount - 1.0)) > ROUNDING:
        raise SolverError(f"the solver says {amount} where only 0 and 1 are possible")
    return amount > 1.0 - ROUNDING


def _model(program: Program) -> "pulp.LpProblem":
    import pulp  # noqa: PLC0415

    worth = {f"x{i}": way.gain for i, way in enumerate(program.ways)}
    worth |= {f"f{job}": -program.flag for job in sorted(program.shareable)}
    model = pulp.LpProblem("placement", pulp.LpMaximize)
    var = {name: model.add_variable(name, cat=pulp.LpBinary) for name in worth}
    model += pulp.LpAffineExpression([(var[name], gain) for name, gain in worth.items()])
    for number, (terms, most) in enumerate(rows(program)):
        if sum(amount for amount in terms.values() if amount > 0) > most:  # else it cannot bind
            total = pulp.LpAffineExpression([(var[x], amount) for x, amount in terms.items()])
            model += pulp.LpConstraint(total, pulp.LpConstraintLE, f"r{number}", most)
    return model


def fault_of(program: Program, answer: Solution) -> str:
    """Why an answer is not possible, "" when it is: played through on the free amounts."""
    now = [way for way in answer.ways if way.moment == 0]
    for moment, free in enumerate(program.free):
        live = [way for way in answer.ways if way.moment in {0, moment}]
        if len({way.job for way in live}) < len(live):
            return "a job is started twice"
        if any(way.shared != (way.job in answer.flagged) for way in live):
            return "a job does not keep to its flag"
        if why := _overdrawn(free, live):
            return why
    started = {way.job for way in now}
    if not program.starts <= started:
        return "a job is put off that would start by itself"
    for promise in program.promises:
        late = [way for way in now if way.limit_s > promise.at_s]
        if promise.job not in started and (why := _overdrawn(promise.room, late, promise.shares)):
            return f"the first job in line would be delayed: {why}"
    return ""


def _overdrawn(free: Capacity, live: Sequence[Way], more: tuple[Share, ...] = ()) -> str:
    left = free.copy()
    try:
        left.take(more)
        for way in live:
            left.take(way.shares)
    except ValueError as error:
        return str(error)
    return ""


# OverSubscribe guidance: which exclusive jobs may share their nodes. core/milp says which should.
#
# `scontrol update OverSubscribe=YES` on a pending `--exclusive` job makes Slurm give it what it
# asked for instead of whole nodes. It cannot be taken back in full: docs/operations.md says what
# can.


SHARED: Final = "YES"
ALONE: Final = "NO"


class SharingBlocker(StrEnum):
    """Why a job's flag is left alone. The value is the log word."""

    NOT_IN_SCOPE = "partition not in the scope of [oversubscribe]"
    FORCED = "the partition shares or isolates by itself (FORCE or EXCLUSIVE): the flag is void"
    CPU_SHARING = "the partition lets such jobs share CPUs (YES): not allowed by the settings"
    PARTITION_UNKNOWN = "Slurm does not show its partition"
    PREEMPTION = "preemption is on: the job could not be isolated again"
    PREEMPTION_UNKNOWN = "it is not known whether preemption is on"
    NOT_BY_FLAG = "its nodes are not its own by a flag of the job"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where exclusive jobs may be set to share. partitions: a multi-partition job is in scope only
    as a whole. allow_cpu_sharing: also with OverSubscribe=YES, where such jobs share CPUs.
    """

    partitions: frozenset[str] = frozenset()
    allow_cpu_sharing: bool = False


def blocker(job: PendingJob, snapshot: Snapshot, sharing: Sharing) -> SharingBlocker | None:
    """Why an exclusive job may not be set to share; None = it may."""
    if not sharing.partitions.issuperset(job.partitions):
        return SharingBlocker.NOT_IN_SCOPE
    if job.oversubscribe != ALONE:
        return SharingBlocker.NOT_BY_FLAG
    known: Mapping[str, Partition] = {p.name: p for p in snapshot.partitions}
    for name in job.partitions:
        if name not in known:
            return SharingBlocker.PARTITION_UNKNOWN
        # such as NO, YES:4, FORCE:4, EXCLUSIVE
        setting = known[name].oversubscribe.upper().partition(":")[0]
        if setting == "YES" and not sharing.allow_cpu_sharing:
            return SharingBlocker.CPU_SHARING
        if setting not in {"NO", "YES"}:
            return SharingBlocker.FORCED
    if snapshot.preemption is None:
        return SharingBlocker.PREEMPTION_UNKNOWN
    return SharingBlocker.PREEMPTION if snapshot.preemption else None


MOST: Final = 64
"""So many of the first jobs are placed together at most: a larger program takes longer to write
than it may take to solve."""
ENDS: Final = 8
"""So many of the next ends are looked at: the first, the first two and so on."""
OCCUPANCY: Final = 0.5
"""What it is worth to put all GPUs to work, where the start of the first job is worth 1."""
COST: Final = 0.1
"""Of spreading a job and of a flag, where the start of the last job is worth 1: they choose between
ways and never between jobs."""


class SolveStatus(StrEnum):
    """How a joint placement came about. The value is the metric label."""

    SKIPPED = "skipped"
    """There was nothing to choose, so no program was solved."""
    SOLVED = "solved"
    FELL_BACK = "fell_back"
    """The solver gave no answer that may be used: the greedy one stands."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that steers a joint placement."""

    budget: Budget = field(default_factory=Budget)
    sharing: Sharing = field(default_factory=Sharing)


@dataclass(frozen=True, slots=True)
class JointPlacement:
    """A joint placement. placements: jobs that start now. actions: flags to set. verdicts: of the
    jobs looked at. left_alone: exclusive jobs in scope whose flag would be void, and why.
    """

    how: SolveStatus
    why: str
    placements: tuple[Placement, ...] = ()
    actions: tuple[Action, ...] = ()
    verdicts: Mapping[JobId, Mapping[str, Any]] = field(default_factory=dict)
    left_alone: tuple[tuple[JobId, SharingBlocker], ...] = ()


def place_jointly(
    ranked: Sequence[PendingJob],
    fits: Sequence[bool],
    snapshot: Snapshot,
    tuning: Tuning,
    solver: Solver | None,
) -> JointPlacement:
    """Decide which of the first jobs start now, and which exclusive ones share their nodes. ranked:
    first to run first; those beyond MOST are left out. fits: whether each could start now alone.
    solver: None = greedy.
    """
    ranked, fits = ranked[:MOST], fits[:MOST]
    blockers = _blockers(ranked, snapshot, tuning.sharing)
    left_alone = tuple((job_id, why) for job_id, why in blockers.items() if why)
    if not any(fits) and None not in blockers.values():
        why = "none of the first jobs fits now"
        return JointPlacement(SolveStatus.SKIPPED, why, left_alone=left_alone)
    capacity = Capacity.of(snapshot)
    jobs = [one for job in ranked if (one := placeable(job, capacity)) is not None]
    shareable = {
        at: replace(one, request=replace(one.request, exclusive=False))
        for at, one in enumerate(jobs)
        if blockers.get(one.job.job_id, SharingBlocker.NOT_BY_FLAG) is None
    }
    queue = Queue(jobs, shareable, capacity, cache(partial(job_ends, snapshot, capacity)))
    return replace(_placed(queue, tuning.budget, solver), left_alone=left_alone)


def _blockers(
    ranked: Sequence[PendingJob], snapshot: Snapshot, sharing: Sharing
) -> dict[JobId, SharingBlocker | None]:
    """Exclusive jobs inside the scope, and why they may not be set to share; None = they may."""
    if not sharing.partitions:
        return {}
    found = {j.job_id: blocker(j, snapshot, sharing) for j in ranked if j.request.exclusive}
    return {job_id: why for job_id, why in found.items() if why != SharingBlocker.NOT_IN_SCOPE}


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs that can be placed, in order, and the cluster. shareable: exclusive jobs as they are
    once set to share, by position. capacity: free now. ends: of running jobs, soonest first.
    """

    jobs: Sequence[QueuedJob]
    shareable: Mapping[int, QueuedJob]
    capacity: Capacity
    ends: Callable[[], Sequence[JobEnd]]


def _placed(queue: Queue, budget: Budget, solver: Solver | None) -> JointPlacement:
    alone = easy_backfill(queue.jobs, queue.capacity, queue.ends)
    greedy = _meaning(queue, _Ways(queue, 0, 1.0).by_itself(alone))
    program = None if len(alone.starts) == len(queue.jobs) else program_of(queue, alone)
    if program is None or alone.starts.keys() >= {way.job for way in program.ways}:
        why = "all of the first jobs that could start do so by themselves"
        return replace(greedy, how=SolveStatus.SKIPPED, why=why)
    if solver is None:
        return replace(greedy, why="no solver")
    try:
        answer = choose(program, solver, budget)
    except SolverError as error:
        return replace(greedy, why=str(error))
    return replace(_meaning(queue, answer), how=SolveStatus.SOLVED, why=_why(alone, answer))


def program_of(queue: Queue, alone: BackfillResult) -> Program:
    """The program of a queue. alone: what Slurm starts by itself now, and whom it promises what."""
    ends = _next_ends(queue)
    share = 1 / max(1, len(ends))
    now = _Ways(queue, 0, 1.0)
    now.by_itself(alone)
    now.search(queue.capacity, range(len(queue.jobs)), KINDS)
    ways, free = [*now.found.values()], [queue.capacity]
    waiting = [at for at in range(len(queue.jobs)) if at not in alone.starts]
    nodes = set[NodeName]()
    for number, end in enumerate(ends, start=1):
        free.append(_after(queue.capacity, ends[:number]))
        left = free[-1].copy()
        for shares in alone.starts.values():
            left.take(shares)
        then = _Ways(queue, number, share)
        then.search(left, waiting, KINDS[:1])
        nodes |= {s.node for s in end.shares}  # what needs none of these could start now
        ways += (w for w in then.found.values() if not nodes.isdisjoint(s.node for s in w.shares))
    return Program(
        ways=tuple(ways),
        free=tuple(free),
        starts=frozenset(alone.starts),
        promises=tuple(
            PlannedStart(head.job, head.at_s, head.shares, _after(queue.capacity, until))
            for head in alone.reservations
            if head.shares is not None
            for until in ([end for end in queue.ends() if end.at_s <= head.at_s],)
        ),
        shareable=frozenset(queue.shareable),
        flag=COST * share / len(queue.jobs),
    )


def _next_ends(queue: Queue) -> Sequence[JobEnd]:
    """The next ends, by limit, on nodes that a shareable job could use."""
    if not queue.shareable:
        return ()
    could = np.logical_or.reduce([one.reach(queue.capacity) for one in queue.shareable.values()])
    index = queue.capacity.index
    use = (end for end in queue.ends() if any(could[index[s.node]] for s in end.shares))
    return tuple(islice(use, ENDS))


def _after(capacity: Capacity, ends: Iterable[JobEnd]) -> Capacity:
    """What is free once these have ended."""
    free = capacity.copy()
    for end in ends:
        free.give(end.shares)
    free.cap()
    return free


class _Ways:
    """Collects the ways at a moment; worth: of a start then."""

    def __init__(self, queue: Queue, moment: int, worth: float) -> None:
        self.found: dict[tuple[object, ...], Way] = {}
        self._queue, self._moment, self._worth = queue, moment, worth
        self._gpus = max(1, int(queue.capacity.total.of_type.sum()))

    def by_itself(self, alone: BackfillResult) -> Solution:
        """What Slurm starts."""
        for at, shares in alone.starts.items():
            self._add(at, "pack", shares, shared=False)
        return Solution(tuple(self.found.values()))

    def search(self, free: Capacity, waiting: Iterable[int], kinds: Iterable[Kind]) -> None:
        """Every job by these kinds, whole and shared, as if alone and beside those before it."""
        for kind in kinds:
            left = free.copy()
            for at in waiting:
                forms = [self._queue.jobs[at]]
                if at in self._queue.shareable:
                    forms.append(self._queue.shareable[at])
                shares = None
                for number, form in enumerate(forms):
                    for room in (free, left):
                        shares = place_request(form.request, form.member, room, kind)
                        if shares is not None:
                            self._add(at, kind, shares, shared=number > 0)
                left.take(shares or ())

    def _add(self, at: int, kind: Kind, shares: tuple[Share, ...], *, shared: bool) -> None:
        if (at, shared, shares) not in self.found:
            one, last = self._queue.jobs[at], len(self._queue.jobs)
            gain = 1 / (1 + at) + OCCUPANCY * one.request.total.gpus / self._gpus
            gain = (gain - COST / last * (kind == "spread")) * self._worth
            way = Way(at, self._moment, kind, shared, shares, one.limit_s, gain)
            self.found[at, shared, shares] = way


def _meaning(queue: Queue, answer: Solution) -> JointPlacement:
    """What an answer means for every job; the greedy one, unless a caller replaces `how`."""
    now = {way.job: way for way in answer.ways if way.moment == 0}
    ids = [one.job.job_id for one in queue.jobs]
    return JointPlacement(
        SolveStatus.FELL_BACK,
        "",
        tuple(Placement(ids[at], now[at].shares) for at in sorted(now)),
        tuple(OVERSUBSCRIBE.to(queue.jobs[at].job, SHARED) for at in sorted(answer.flagged)),
        {ids[at]: _verdict(now.get(at), at in answer.flagged) for at in range(len(ids))},
    )


def _verdict(way: Way | None, shared: bool) -> Mapping[str, Any]:
    """kind: how it is placed now; None = it does not start now. shared: it is to share its nodes.
    why: for people.
    """
    why = "does not start now"
    if way is not None:
        nodes = ", ".join(share.node for share in way.shares)
        why = f"starts now, packed on {nodes}"
        if way.kind == "spread":
            why = f"starts now, spread over {nodes}, as packed it would keep others waiting"
    if shared:
        why += "; it is to share its nodes, as alone on them it would keep others waiting"
    return {"kind": None if way is None else way.kind, "shared": shared, "why": why}


def _why(alone: BackfillResult, answer: Solution) -> str:
    now = [way for way in answer.ways if way.moment == 0]
    more = sum(way.job not in alone.starts for way in now)
    spread = sum(way.kind == "spread" for way in now)
    return (
        f"{len(now)} start now, {more} of them not by Slurm's own placement; {spread} spread, "
        f"{len(answer.flagged)} are to share their nodes"
    )
