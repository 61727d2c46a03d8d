"""The integer program: which ways the first jobs take, now and after the next ends; who shares.

Moment 0 is now, moment m > 0 is when the first m of the next ends have come, all of them maybe
before the next cycle. Of the first jobs nothing runs at moment m but what starts now or at m
itself: it is not known how many ends come, so every number of them is looked at by itself, while a
job shares its nodes at all moments or at none. docs/adr/0008 has the formulas. To solve is
the business of the Solver port: nothing here starts a process or waits.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from rltuned.core.capacity import Capacity
from rltuned.domain.jobs import Share
from rltuned.errors import SolverError

if TYPE_CHECKING:  # most commands name a solver and never solve
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
        return int(capacity.free_gpus[what, node])
    return int((capacity.free_cpus if what == _CPUS else capacity.free_mem_mib)[node])


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
