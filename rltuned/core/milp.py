"""Which of the first jobs start when and on which nodes, decided together: an integer program.

An instance is a list of options (job, way, slot) with a gain each; the program picks at most one
per job within the free amounts of every node at every slot. docs/placement.md has it in formulas.
Solving is somebody else's business (the Solver port): nothing here starts a program or waits.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pulp

from rltuned.core.capacity import Capacity
from rltuned.core.ways import Way
from rltuned.errors import SolverError

ROUNDING: Final = 1e-6
"""A solver's binary counts as whole within this."""

Cell = tuple[int, int, int]
"""(slot, node column, resource): resource is a row of GPUs, or -1 for CPUs, -2 for memory."""
CPUS: Final = -1
MEMORY: Final = -2


@dataclass(frozen=True, slots=True)
class Weights:
    """What the solution is good for. Only their ratios count.

    Attributes:
        start: a job that starts at once, times its standing in the order.
        order: how fast standing falls with rank: rank r stands at (1 + r) ** -order.
        later: what a start at the next slot is worth of one now.
        occupancy: GPUs put to work, as a share of all.
        fragmentation, imbalance, contention, waste, sharing: see `Price`; times the standing of
            the last job, so that they choose between ways and not between jobs. `sharing` is
            larger than what a whole node costs by itself (fragmentation and opening): a job loses
            its node only when others start earlier by it.
        opening: part of fragmentation that is due for each idle node that is begun.
        stay: for other nodes than best fit would choose, where a job would start by itself; times
            the standing of the last job. What it takes to send a job elsewhere.
    """

    start: float = 1.0
    order: float = 1.0
    later: float = 0.5
    occupancy: float = 0.5
    fragmentation: float = 0.02
    imbalance: float = 0.05
    contention: float = 0.0
    waste: float = 0.2
    sharing: float = 0.1
    opening: float = 0.5
    stay: float = 0.1

    def __post_init__(self) -> None:
        parts = (self.start, self.order, self.occupancy, *self.prices(), self.opening, self.stay)
        if min(parts) < 0 or not 0 <= self.later <= 1:
            raise ValueError(f"weights must not be negative, and later at most 1: {self}")

    def prices(self) -> tuple[float, ...]:
        """In the order of `Price.parts`."""
        return (self.fragmentation, self.imbalance, self.contention, self.waste, self.sharing)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a solve may cost.

    Attributes:
        wall_s: seconds until the solver is ended, whatever it does.
        memory_mib: address space it may use.
        horizon_s: how far ahead jobs are planned.
        max_slots: moments looked at, now included.
    """

    wall_s: float = 1.0
    memory_mib: int = 1_024
    horizon_s: float = 14_400.0
    max_slots: int = 4

    def __post_init__(self) -> None:
        if not (self.wall_s > 0 and self.horizon_s > 0):
            raise ValueError(f"times must be positive: {self}")
        if self.memory_mib < 1 or self.max_slots < 1:
            raise ValueError(f"memory_mib and max_slots must be at least 1: {self}")


class Solver(Protocol):
    """Who solves programs. Outside the core: it runs a program of its own."""

    def __call__(self, problem: pulp.LpProblem, budget: Budget, /) -> Mapping[str, float]:
        """Value of every variable by name, at the proven optimum.

        Raises:
            SolverError: missing, over the budget, ended badly, or no usable answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Option:
    """One job started in one way at one slot.

    last: the last slot at which it still runs; gain: what it is worth.
    """

    job: int
    way: Way
    slot: int
    last: int
    gain: float


@dataclass(frozen=True, slots=True)
class Instance:
    """One decision to be taken.

    Attributes:
        options: what may be chosen, at most one per job.
        capacities: free amounts at every slot, if none of the jobs is started.
        opening: cost of each node, idle now, that an option of slot 0 begins.
        deadlines: (job, slot): it must have started by then, as it would without us.
    """

    options: tuple[Option, ...]
    capacities: tuple[Capacity, ...]
    opening: float = 0.0
    deadlines: tuple[tuple[int, int], ...] = ()


def value(instance: Instance, chosen: Iterable[Option]) -> float:
    """What a choice is worth."""
    picked = tuple(chosen)
    opened = {node for o in picked if o.slot == 0 for node in o.way.opens}
    return sum(o.gain for o in picked) - instance.opening * len(opened)


def choose(instance: Instance, solver: Solver, budget: Budget) -> tuple[Option, ...]:
    """The best choice, checked before it is believed.

    Raises:
        SolverError: the solver gave none, or one that breaks a rule.
    """
    values = solver(program(instance), budget)
    chosen = []
    for at, option in enumerate(instance.options):
        amount = values.get(_name(at), 0.0)
        if min(abs(amount), abs(amount - 1.0)) > ROUNDING:
            raise SolverError(f"the solver says {amount} where only 0 and 1 are possible")
        if amount > 1.0 - ROUNDING:
            chosen.append(option)
    fault = fault_of(instance, chosen)
    if fault:
        raise SolverError(f"the solver's answer is not possible: {fault}")
    return tuple(chosen)


def fault_of(instance: Instance, chosen: Sequence[Option]) -> str:
    """Why a choice is not possible, "" when it is: played through on the free amounts."""
    jobs = [o.job for o in chosen]
    if len(set(jobs)) != len(jobs):
        return "a job is started twice"
    for job, by in instance.deadlines:
        if not any(o.job == job and o.slot <= by for o in chosen):
            return f"job {job} of the queue would be put off"
    for slot, free in enumerate(instance.capacities):
        left = free.copy()
        for option in chosen:
            if option.slot <= slot <= option.last:
                try:
                    left.take(option.way.shares)
                except ValueError as error:
                    return f"slot {slot}, {error}"
    return ""


def program(instance: Instance) -> pulp.LpProblem:
    """The integer program; variable x<i> is option i, o<n> is "node n is begun"."""
    problem = pulp.LpProblem("placement", pulp.LpMaximize)
    take = [_binary(problem, _name(at)) for at in range(len(instance.options))]
    opened = _opened(instance)
    begin = {node: _binary(problem, f"o{node}") for node in opened}
    gains = [(x, o.gain) for x, o in zip(take, instance.options, strict=True)]
    problem += pulp.LpAffineExpression([*gains, *((b, -instance.opening) for b in begin.values())])
    for job, members in sorted(_by_job(instance).items()):
        _at_most(problem, f"once{job}", [(take[at], 1) for at in members], 1)
    for job, by in instance.deadlines:
        early = [at for at in _by_job(instance)[job] if instance.options[at].slot <= by]
        _at_least(problem, f"by{job}", [(take[at], 1) for at in early], 1)
    for node, members in opened.items():
        for at in members:
            _at_most(problem, f"begin{node}_{at}", [(take[at], 1), (begin[node], -1)], 0)
    for (slot, node, resource), uses in sorted(_uses(instance).items()):
        room = _room(instance.capacities[slot], node, resource)
        if _could_exceed(instance, uses, room):
            name = f"fits{slot}_{node}_{resource + 2}"
            _at_most(problem, name, [(take[at], amount) for at, amount in uses], room)
    return problem


def _name(at: int) -> str:
    return f"x{at}"


def _binary(problem: Any, name: str) -> Any:
    return problem.add_variable(name, cat=pulp.LpBinary)


def _at_most(problem: Any, name: str, terms: list[tuple[Any, int]], bound: int) -> None:
    problem += pulp.LpConstraint(
        pulp.LpAffineExpression(terms), pulp.LpConstraintLE, name, bound
    )  # fmt: skip


def _at_least(problem: Any, name: str, terms: list[tuple[Any, int]], bound: int) -> None:
    problem += pulp.LpConstraint(
        pulp.LpAffineExpression(terms), pulp.LpConstraintGE, name, bound
    )  # fmt: skip


def _by_job(instance: Instance) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for at, option in enumerate(instance.options):
        found[option.job].append(at)
    return found


def _opened(instance: Instance) -> dict[int, list[int]]:
    """Idle nodes by column, with the options of slot 0 that would begin them."""
    found: dict[int, list[int]] = defaultdict(list)
    if instance.opening > 0:
        for at, option in enumerate(instance.options):
            for node in option.way.opens if option.slot == 0 else ():
                found[node].append(at)
    return dict(sorted(found.items()))


def _uses(instance: Instance) -> dict[Cell, list[tuple[int, int]]]:
    """Per slot, node and resource: which options use how much of it."""
    found: dict[Cell, list[tuple[int, int]]] = defaultdict(list)
    any_capacity = instance.capacities[0]
    for at, option in enumerate(instance.options):
        for share in option.way.shares:
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


def _could_exceed(instance: Instance, uses: Sequence[tuple[int, int]], room: int) -> bool:
    """Whether the row can bind at all: each job counts with its largest option."""
    most: dict[int, int] = {}
    for at, amount in uses:
        job = instance.options[at].job
        most[job] = max(amount, most.get(job, 0))
    return sum(most.values()) > room
