"""The integer program: at most one option per job, within the free amounts of every node and slot.

To solve it is the business of the Solver port: nothing here starts a process or waits.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from rltuned.core.capacity import Capacity
from rltuned.core.milp.problem import Budget, Option, Problem
from rltuned.errors import SolverError

if TYPE_CHECKING:  # a daemon without joint placement does without it
    import pulp

ROUNDING: Final = 1e-6
"""A solver's binary counts as whole within this."""

Cell = tuple[int, int, int]
"""(slot, node column, resource): resource is a row of GPUs, or -1 for CPUs, -2 for memory."""
CPUS: Final = -1
MEMORY: Final = -2


class Solver(Protocol):
    """What solves programs. Outside the core: it runs a process of its own."""

    def __call__(self, problem: "pulp.LpProblem", budget: Budget, /) -> Mapping[str, float]:
        """Value of every variable by name, at the proven optimum. Raises SolverError."""
        ...


def value(problem: Problem, chosen: Iterable[Option]) -> float:
    """What a choice is worth."""
    picked = tuple(chosen)
    opened = {node for o in picked if o.slot == 0 for node in o.candidate.opens}
    return sum(o.gain for o in picked) - problem.opening * len(opened)


def choose(problem: Problem, solver: Solver, budget: Budget) -> tuple[Option, ...]:
    """The best choice, checked before it is used. Raises SolverError."""
    values = solver(program(problem), budget)
    chosen = []
    for at, option in enumerate(problem.options):
        amount = values.get(f"x{at}", 0.0)
        if min(abs(amount), abs(amount - 1.0)) > ROUNDING:
            raise SolverError(f"the solver says {amount} where only 0 and 1 are possible")
        if amount > 1.0 - ROUNDING:
            chosen.append(option)
    fault = fault_of(problem, chosen)
    if fault:
        raise SolverError(f"the solver's answer is not possible: {fault}")
    return tuple(chosen)


def fault_of(problem: Problem, chosen: Sequence[Option]) -> str:
    """Why a choice is not possible, "" when it is: played through on the free amounts."""
    jobs = [o.job for o in chosen]
    if len(set(jobs)) != len(jobs):
        return "a job is started twice"
    for job, by in problem.deadlines:
        if not any(o.job == job and o.slot <= by for o in chosen):
            return f"job {job} of the queue would be put off"
    for slot, free in enumerate(problem.capacities):
        left = free.copy()
        for option in chosen:
            if option.slot <= slot <= option.last:
                try:
                    left.take(option.candidate.shares)
                except ValueError as error:
                    return f"slot {slot}, {error}"
    return ""


def program(problem: Problem) -> "pulp.LpProblem":
    """The integer program; variable x<i> is option i, o<n> is "node n is begun"."""
    import pulp  # noqa: PLC0415

    model = pulp.LpProblem("placement", pulp.LpMaximize)
    take = [model.add_variable(f"x{at}", cat=pulp.LpBinary) for at in range(len(problem.options))]
    gains = [option.gain for option in problem.options]
    at_most, at_least = pulp.LpConstraintLE, pulp.LpConstraintGE
    by_job = _by_job(problem)
    for job, members in sorted(by_job.items()):
        _bound(model, f"once{job}", _sum(take, members), at_most, 1)
    for job, by in problem.deadlines:
        early = [at for at in by_job[job] if problem.options[at].slot <= by]
        _bound(model, f"by{job}", _sum(take, early), at_least, 1)
    begins = []
    for node, openers in sorted(_openers(problem).items()):
        if len(openers) == 1:  # no other job could begin it too: the cost is the job's own
            for at in next(iter(openers.values())):
                gains[at] -= problem.opening
            continue
        begin = model.add_variable(f"o{node}", cat=pulp.LpBinary)
        begins.append((begin, -problem.opening))
        for job, members in openers.items():
            _bound(model, f"begin{node}_{job}", [*_sum(take, members), (begin, -1)], at_most, 0)
    model += pulp.LpAffineExpression([*zip(take, gains, strict=True), *begins])
    for name, uses, room in _scarce(problem):
        _bound(model, name, [(take[at], amount) for at, amount in uses], at_most, room)
    return model


def _sum(take: Sequence[Any], members: Iterable[int]) -> list[tuple[Any, int]]:
    return [(take[at], 1) for at in members]


def _bound(model: Any, name: str, terms: list[tuple[Any, int]], sense: int, bound: int) -> None:
    import pulp  # noqa: PLC0415

    model += pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, name, bound)


def _by_job(problem: Problem) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for at, option in enumerate(problem.options):
        found[option.job].append(at)
    return found


def _openers(problem: Problem) -> dict[int, dict[int, list[int]]]:
    """By idle node and job: the options of slot 0 that would begin the node."""
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at, option in enumerate(problem.options):
        for node in option.candidate.opens if option.slot == 0 and problem.opening > 0 else ():
            found[node][option.job].append(at)
    return found


def _scarce(problem: Problem) -> Iterator[tuple[str, Sequence[tuple[int, int]], int]]:
    """What could be used beyond its room: a name, (option, amount) of its uses, the room."""
    kept: dict[tuple[int, int], list[tuple[int, set[tuple[int, int]]]]] = defaultdict(list)
    for (slot, node, resource), uses in sorted(_uses(problem).items(), reverse=True):
        room, among = _room(problem.capacities[slot], node, resource), set(uses)
        # what fits when all of these and more still run, in no more room, fits here
        if any(less <= room and among <= more for less, more in kept[node, resource]):
            continue
        if _could_exceed(problem, uses, room):
            kept[node, resource].append((room, among))
            yield f"fits{slot}_{node}_{resource + 2}", uses, room


def _uses(problem: Problem) -> dict[Cell, list[tuple[int, int]]]:
    """Per slot, node and resource: which options use how much of it."""
    found: dict[Cell, list[tuple[int, int]]] = defaultdict(list)
    any_capacity = problem.capacities[0]
    for at, option in enumerate(problem.options):
        for share in option.candidate.shares:
            node = any_capacity.index[share.node]
            amounts = (
                (any_capacity.row_on(share, node), share.taken.gpus),
                (CPUS, share.taken.cpus),
                (MEMORY, share.taken.mem_mib),
            )
            for resource, amount in amounts:
                for slot in range(option.slot, option.last + 1) if amount else ():
                    found[slot, node, resource].append((at, amount))
    return found


def _room(capacity: Capacity, node: int, resource: int) -> int:
    if resource == CPUS:
        return int(capacity.free_cpus[node])
    if resource == MEMORY:
        return int(capacity.free_mem_mib[node])
    return int(capacity.free_gpus[resource, node])


def _could_exceed(problem: Problem, uses: Sequence[tuple[int, int]], room: int) -> bool:
    """Whether the row can bind at all: each job counts with its largest option."""
    if sum(amount for _, amount in uses) <= room:
        return False
    most: dict[int, int] = {}
    for at, amount in uses:
        job = problem.options[at].job
        most[job] = max(amount, most.get(job, 0))
    return sum(most.values()) > room
