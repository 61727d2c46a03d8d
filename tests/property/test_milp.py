"""The integer program against brute force, on clusters small enough for it."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pulp
import pytest

from rltuned.core.capacity import Capacity
from rltuned.core.cluster import idle
from rltuned.core.milp import (
    Budget,
    Program,
    Queue,
    Solution,
    Way,
    choose,
    fault_of,
    program_of,
    value,
)
from rltuned.core.placement import BackfillResult, easy_backfill, job_ends, placeable
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import SolverError
from rltuned.solver import Cbc
from tests.builders import NOW, job, node, request, running, snapshot

TYPES = ("a100", "k80")
PATIENT = Budget(wall_s=60.0)
CLUSTERS = 400
MOST = 30_000
"""Choices of ways now that brute force goes through; a larger cluster is left out and counted."""


def cluster_of(draw: np.random.Generator) -> tuple[Snapshot, frozenset[int]]:
    """A small cluster with a queue, and the positions of jobs that may share their nodes."""
    runs = list[RunningJob]()
    nodes = [_node(i, draw, runs) for i in range(int(draw.integers(2, 4)))]
    pending = [_job(i, draw) for i in range(int(draw.integers(2, 5)))]
    may = frozenset(
        i for i, one in enumerate(pending) if one.request.exclusive and draw.random() < 0.7
    )
    return snapshot(*pending, nodes=nodes, runs=runs), may


def _node(i: int, draw: np.random.Generator, runs: list[RunningJob]) -> Node:
    name, kind, gpus = f"n{i}", str(draw.choice(TYPES)), int(draw.integers(1, 5))
    used = int(draw.integers(1, gpus + 1)) if draw.random() < 0.6 else 0
    cpus = int(draw.integers(1, 7)) if used else 0
    if used:
        limit_s = float(draw.choice((600, 1_200, 7_200)))
        runs.append(
            running(100 + i, node_name=name, gpu_type=kind, gpus=used, cpus=cpus,
                    mem_mib=8_000 * used, started_at=NOW - 60.0, time_limit_s=limit_s)
        )  # fmt: skip
    return node(name, gpu_type=kind, gpus=gpus, free_gpus=gpus - used, cpus=8, free_cpus=8 - cpus,
                free_mem_mib=64_000 - 8_000 * used)  # fmt: skip


def _job(i: int, draw: np.random.Generator) -> PendingJob:
    gpus = int(draw.choice((0, 1, 1, 2, 2, 3, 4, 6)))
    limit = draw.choice((300.0, 900.0, 86_400.0, math.inf))
    asks = request(
        gpus=gpus,
        cpus=int(draw.integers(1, 7)),
        mem_mib=int(draw.choice((1_000, 20_000))),
        gpu_types=[str(draw.choice(TYPES))] if draw.random() < 0.4 else [],
        nodes=2 if gpus > 1 and draw.random() < 0.3 else None,
        exclusive=bool(draw.random() < 0.4),
        time_limit_s=float(limit),
    )
    return job(i + 1, submitted_at=NOW - 1_000.0 + i, asks=asks)


@cache
def problem(seed: int) -> tuple[Queue, BackfillResult, Program]:
    """A queue, what Slurm would do with it by itself, and its program."""
    world, may = cluster_of(np.random.default_rng(seed))
    capacity = Capacity.of(world)
    jobs = [one for j in world.pending if (one := placeable(j, capacity)) is not None]
    shared = {i: replace(jobs[i], request=replace(jobs[i].request, exclusive=False)) for i in may}
    ends = job_ends(world, capacity)
    queue = Queue(jobs, shared, capacity, lambda: ends)
    alone = easy_backfill(jobs, capacity, queue.ends)
    return queue, alone, program_of(queue, alone)


# by hand: sums of amounts, and nothing of the code under test


def room_of(free: Capacity) -> Counter[tuple[str, str]]:
    room = Counter[tuple[str, str]]()
    for name, at in free.index.items():
        room[name, "gpu"] = int(free.free.of_type[:, at].sum())  # one type per node here
        room[name, "cpu"], room[name, "mem"] = int(free.free.cpus[at]), int(free.free.mem_mib[at])
    return room


def used(shares: Iterable[Share]) -> Counter[tuple[str, str]]:
    found = Counter[tuple[str, str]]()
    for share in shares:
        found[share.node, "gpu"] += share.taken.gpus
        found[share.node, "cpu"] += share.taken.cpus
        found[share.node, "mem"] += share.taken.mem_mib
    return found


def fits(ways: Iterable[Way], room: Counter[tuple[str, str]], more: Iterable[Share] = ()) -> bool:
    return used([*(s for way in ways for s in way.shares), *more]) <= room


def may_start(program: Program, queue: Queue, alone: BackfillResult, now: tuple[Way, ...]) -> bool:
    """Whether this may start now: it fits, and Slurm's own starts and promises stand."""
    if not alone.starts.keys() <= {w.job for w in now} or not fits(now, room_of(program.free[0])):
        return False
    for head in alone.reservations:
        if head.shares is None or head.job in {w.job for w in now}:
            continue
        free = queue.capacity.copy()
        for end in queue.ends():
            free.give(end.shares if end.at_s <= head.at_s else ())
        late = [w for w in now if queue.jobs[w.job].limit_s > head.at_s]
        if not fits(late, room_of(free), head.shares):
            return False
    return True


def choices(program: Program, moment: int, jobs: Iterable[int]) -> Iterator[tuple[Way, ...]]:
    """Every choice of at most one way per job."""
    for pick in itertools.product(
        *([None, *(w for w in program.ways if (w.moment, w.job) == (moment, j))] for j in jobs)
    ):
        yield tuple(way for way in pick if way is not None)


def gain(queue: Queue, way: Way, ends: int) -> float:
    """The formula of docs/adr/0008."""
    gpus = queue.jobs[way.job].request.total.gpus / queue.capacity.total.of_type.sum()
    worth = 1 / (1 + way.job) + gpus / 2 - (way.kind == "spread") / (10 * len(queue.jobs))
    return float(worth / max(1, ends) if way.moment else worth)


def best_by_hand(queue: Queue, alone: BackfillResult, program: Program) -> float:
    ends, everyone = len(program.free) - 1, range(len(queue.jobs))
    rooms, best = [room_of(free) for free in program.free], -math.inf
    cost = 1 / (10 * len(queue.jobs) * max(1, ends))

    def then(now: tuple[Way, ...], waiting: list[int], flagged: set[int]) -> Iterator[float]:
        for moment in range(1, ends + 1):
            yield max(
                sum(gain(queue, way, ends) for way in late)
                for late in choices(program, moment, waiting)
                if all(way.shared == (way.job in flagged) for way in late)
                and fits([*now, *late], rooms[moment])
            )

    for now in choices(program, 0, everyone):
        if not may_start(program, queue, alone, now):
            continue
        waiting = [at for at in everyone if at not in {way.job for way in now}]
        open_to = [at for at in waiting if at in queue.shareable]
        for count in range(len(open_to) + 1):
            for more in itertools.combinations(open_to, count):
                flagged = {way.job for way in now if way.shared} | set(more)
                worth = sum(gain(queue, way, ends) for way in now) - cost * len(flagged)
                best = max(best, worth + sum(then(now, waiting, flagged)))
    return best


def small(program: Program) -> bool:
    counts = Counter((way.moment, way.job) for way in program.ways)
    size: int = math.prod(1 + counts[0, j] for j in {w.job for w in program.ways})
    size *= int(2 ** len(program.shareable) * 4 ** (len(program.free) - 1))
    return size <= MOST


def test_the_optimum_is_the_one_that_brute_force_finds() -> None:
    """Of single jobs and of several nodes, of two types, of whole nodes and of shared ones."""
    seen = Counter[str]()
    for seed in range(CLUSTERS):
        queue, alone, program = problem(seed)
        if not program.ways or not small(program):
            continue
        answer = choose(program, Cbc(), PATIENT)
        by_hand = best_by_hand(queue, alone, program)
        assert value(program, answer) == pytest.approx(by_hand, abs=1e-6), seed
        seen["clusters"] += 1
        seen["flags"] += len(answer.flagged)
        seen["spread"] += any(way.kind == "spread" for way in answer.ways)
        seen["wide"] += any(len(way.shares) > 1 for way in answer.ways)
        seen["better"] += value(program, answer) > by_itself(program, alone) + 1e-9
        seen["promises"] += bool(program.promises)
        seen["ends"] += len(program.free) > 1
    assert seen["clusters"] >= 300
    assert seen["spread"] >= 3
    assert all(seen[what] >= 30 for what in ("flags", "wide", "better", "promises", "ends")), seen


def by_itself(program: Program, alone: BackfillResult) -> float:
    """What Slurm's own pass is worth."""
    return sum(
        next(w.gain for w in program.ways if (w.moment, w.job, w.shares) == (0, at, shares))
        for at, shares in alone.starts.items()
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_way_has_room_and_whole_nodes_where_it_is_not_shared(seed: int) -> None:
    queue, _, program = problem(seed)
    for way in program.ways:
        free, asked = program.free[way.moment], queue.jobs[way.job].request
        assert fits([way], room_of(free))
        if asked.exclusive and not way.shared:
            assert all(idle(free.total, free.free)[free.index[share.node]] for share in way.shares)
        assert asked.nodes in {None, len(way.shares)}
        assert {s.gpu_type for s in way.shares} <= {*asked.gpu_types, *TYPES, None}
        assert not way.shared or way.job in queue.shareable


@pytest.mark.parametrize("seed", range(20))
def test_the_same_program_gets_the_same_answer(seed: int) -> None:
    program = problem(seed)[2]
    assert choose(program, Cbc(), PATIENT) == choose(program, Cbc(), PATIENT)


@pytest.mark.parametrize("seed", range(40))
def test_impossible_answers_are_found_out(seed: int) -> None:
    """The check says no exactly where adding up says no."""
    queue, alone, program = problem(seed)
    rng = np.random.default_rng(seed)
    now = [way for way in program.ways if way.moment == 0]
    for size in range(len(now) + 1):
        chosen = tuple(now[i] for i in rng.permutation(len(now))[:size])
        flagged = frozenset(way.job for way in chosen if way.shared)
        once = len({way.job for way in chosen}) == len(chosen)
        possible = once and may_start(program, queue, alone, chosen)
        possible &= all(fits(chosen, room_of(free)) for free in program.free)
        assert (fault_of(program, Solution(chosen, flagged)) == "") == possible


class Liar:
    """A solver that starts everything everywhere."""

    def __call__(self, program: pulp.LpProblem, _: Budget) -> Mapping[str, float]:
        return {v.name: 1.0 for v in program.variables()}


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_that_breaks_a_rule_is_refused(seed: int) -> None:
    program = problem(seed)[2]
    jobs = [way.job for way in program.ways if way.moment == 0]
    if len(set(jobs)) < len(jobs):
        with pytest.raises(SolverError, match="a job is started twice"):
            choose(program, Liar(), PATIENT)
