"""The integer program: at most one option per job, within the free amounts of every node and slot.

To solve it is the business of the Solver port: nothing here starts a process or waits.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    by_job, opened = _grouped(problem)
    begin = {node: model.add_variable(f"o{node}", cat=pulp.LpBinary) for node in sorted(opened)}
    gains = [(x, o.gain) for x, o in zip(take, problem.options, strict=True)]
    model += pulp.LpAffineExpression([*gains, *((b, -problem.opening) for b in begin.values())])
    at_most, at_least = pulp.LpConstraintLE, pulp.LpConstraintGE
    for job, members in sorted(by_job.items()):
        _bound(model, f"once{job}", [(take[at], 1) for at in members], at_most, 1)
    for job, by in problem.deadlines:
        early = [(take[at], 1) for at in by_job[job] if problem.options[at].slot <= by]
        _bound(model, f"by{job}", early, at_least, 1)
    for node, node_begins in begin.items():
        for at in opened[node]:
            _bound(model, f"begin{node}_{at}", [(take[at], 1), (node_begins, -1)], at_most, 0)
    kept: dict[tuple[int, int], list[tuple[int, set[tuple[int, int]]]]] = defaultdict(list)
    for (slot, node, resource), uses in sorted(_uses(problem).items(), reverse=True):
        room, among = _room(problem.capacities[slot], node, resource), set(uses)
        # what fits when all of these and more still run, in no more room, fits here
        if any(less <= room and among <= more for less, more in kept[node, resource]):
            continue
        if _could_exceed(problem, uses, room):
            kept[node, resource].append((room, among))
            terms = [(take[at], amount) for at, amount in uses]
            _bound(model, f"fits{slot}_{node}_{resource + 2}", terms, at_most, room)
    return model


def _grouped(problem: Problem) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Options by job; and, by idle node, those of slot 0 that would begin it."""
    by_job: dict[int, list[int]] = defaultdict(list)
    opened: dict[int, list[int]] = defaultdict(list)
    for at, option in enumerate(problem.options):
        by_job[option.job].append(at)
        for node in option.candidate.opens if option.slot == 0 and problem.opening > 0 else ():
            opened[node].append(at)
    return by_job, opened


def _bound(model: Any, name: str, terms: list[tuple[Any, int]], sense: int, bound: int) -> None:
    import pulp  # noqa: PLC0415

    model += pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, name, bound)


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
    most: dict[int, int] = {}
    for at, amount in uses:
        job = problem.options[at].job
        most[job] = max(amount, most.get(job, 0))
    return sum(most.values()) > room
