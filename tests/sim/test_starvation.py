"""The starvation bound holds whatever the policy says, and is not empty: see docs/adr/0011."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.starvation import Bound, overdue
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.protocol import Protocol, by_score, play_decided, play_direct
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Pending, Record, Rules, World
from tests.sim.worlds import cases, cluster, job

Case = tuple[Cluster, tuple[TraceJob, ...]]
Scorer = Callable[[int, float], float]
"""From the number of a job (1 is the first submitted) and the time it has waited to its score."""

calm = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def noise(number: int, wait_s: float, seed: int = 7) -> float:
    """Another number for every job at every moment."""
    return float(np.random.default_rng([seed, number, int(wait_s * 16)]).random())


SCORERS: Final[dict[str, Scorer]] = {
    "last first": lambda number, _: float(number),
    "random at every event": noise,
    "random but fixed": lambda number, _: noise(number, 0.0),
    "constant": lambda _number, _wait: 0.0,
    "who has waited least": lambda _number, wait_s: -wait_s,
}


@dataclass(frozen=True)
class Mean:
    """A policy that means somebody ill."""

    say: Scorer
    name: str = "mean"

    def score(self, matrix: StateMatrix) -> FloatArray:
        pairs = zip(matrix.jobs, matrix.wait_s.tolist(), strict=True)
        return np.array([self.say(int(j.job_id), w) for j, w in pairs])


bounds = st.builds(
    Bound,
    bound_s=st.sampled_from((0.0, 5.0, 20.0, 60.0)),
    factor=st.sampled_from((1.0, 1.5, 3.0, 10.0)),
)


def crowds(most: int = 15) -> st.SearchStrategy[Case]:
    """Worlds in which jobs wait: every job thrice, and all of them soon."""
    return cases(most).map(lambda case: (case[0], _thrice(case[1])))


def _thrice(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    made = [
        replace(one, job_id=f"{one.job_id}-{again}", submit_s=one.submit_s // 4 + again)
        for one in jobs
        for again in range(3)
    ]
    return tuple(sorted(made, key=lambda j: j.submit_s))


scorers = st.sampled_from(sorted(SCORERS))
backfills = st.sampled_from(("easy", "none"))


def wait_by_definition(late: PendingJob, world: Snapshot) -> tuple[float, float]:
    """What it has waited, and what the base order is seen to make it wait, job by job."""
    nodes = {n.name: n for n in world.nodes if not set(n.partitions).isdisjoint(late.partitions)}
    accepts = set(late.request.gpu_types) or {g.gpu_type for n in world.nodes for g in n.gpus}
    if not late.request.total.gpus:
        accepts = set()
    usable = sum(g.total for n in nodes.values() for g in n.gpus if g.gpu_type in accepts)
    since = float(late.eligible_at or 0.0)
    held_s = sum(
        s.taken.gpus * (world.taken_at - max(r.started_at, since))
        for r in world.running
        for s in r.shares
        if came_before(r, since) and s.node in nodes and s.gpu_type in accepts
    )
    return world.taken_at - since, held_s / usable if usable else 0.0


def came_before(other: RunningJob, since: float) -> bool:
    return other.submitted_at is not None and other.submitted_at <= since


@dataclass
class Watched:
    """Ranks like the simulator does, and checks every ranking."""

    policy: Mean
    bound: Bound
    rankings: int = 0
    lifted: int = 0
    """How often a job stood further back by the policy."""

    def __call__(self, world: World) -> Sequence[Pending]:
        order = by_score(self.policy, self.bound)(world)
        seen = snapshot_of(world)
        late = []
        for pending in seen.pending:
            waited_s, base_s = wait_by_definition(pending, seen)
            if waited_s > max(self.bound.bound_s, self.bound.factor * base_s):
                late.append(int(pending.job_id))
        plain = [p.number for p in by_score(self.policy)(world)]
        expected = list(plain)
        for number in reversed(late):
            later = min((i for i, n in enumerate(expected) if n > number), default=len(plain))
            if later < expected.index(number):
                expected.remove(number)
                expected.insert(later, number)
        assert [p.number for p in order] == expected
        self.rankings += 1
        self.lifted += sum(plain.index(n) > late.index(n) for n in late)
        return order


@calm
@given(case=crowds(), how=scorers, bound=bounds, backfill=backfills)
def test_at_every_ranking_the_overdue_stand_before_all_that_came_later(
    case: Case, how: str, bound: Bound, backfill: BackfillRule
) -> None:
    where, jobs = case
    watched = Watched(Mean(SCORERS[how]), bound)
    world = World(where, jobs, rules=Rules(backfill=backfill), order=watched)
    while world.next_time() is not None:
        world.step()
    assert len(world.finished) == len(jobs)
    assert watched.rankings


def played(where: Cluster, jobs: Sequence[TraceJob], how: str, protocol: Protocol) -> list[Record]:
    """What became of each job, in submit order."""
    world = play_direct(where, jobs, Mean(SCORERS[how]), protocol).world
    return [world.finished[i + 1] for i in range(len(jobs))]


def limits_of(where: Cluster, jobs: Sequence[TraceJob]) -> list[float]:
    longest = {p.name: p.max_time_s for p in where.partitions}
    found = []
    for one in jobs:
        most = longest[one.partition or where.default_partition]
        found.append(most if one.time_limit_s == math.inf and most else one.time_limit_s)
    return found


def proven_s(
    where: Cluster, jobs: Sequence[TraceJob], done: list[Record], bound: Bound
) -> list[float]:
    """(n,) the longest that each job can wait, by the theorem of docs/adr/0011.

    A: max(bound, factor x what the jobs that came before take of the GPUs it could use), the
    largest over it and all that came before. After that all of those are overdue for good, so
    each of them, and then the job itself, starts within the longest limit.
    """
    longest = max(limits_of(where, jobs))
    waits, allowance = [], 0.0
    for i, one in enumerate(jobs):
        allowance = max(allowance, bound.bound_s, bound.factor * taken_before(where, one, done))
        ahead = sum(other.started_at > one.submit_s + allowance for other in done[:i])
        waits.append(allowance + (ahead + 1) * longest)
    return waits


def taken_before(where: Cluster, one: TraceJob, done: list[Record]) -> float:
    """GPU-seconds, from its submission to the end of time, over the GPUs that it could use."""
    if not one.gpus:
        return 0.0
    partition = one.partition or where.default_partition
    type_of = {n.name: n.gpus[0].gpu_type for n in where.nodes if n.gpus}
    usable = {
        n.name: n.total.gpus
        for n in where.nodes
        if partition in n.partitions
        and n.gpus
        and type_of[n.name] in (one.gpu_types or (type_of[n.name],))
    }
    taken = sum(
        share.taken.gpus * max(0.0, record.ended_at - max(record.started_at, one.submit_s))
        for record in done
        if record.job.submit_s <= one.submit_s
        for share in record.shares
        if share.node in usable
    )
    return taken / max(1, sum(usable.values()))


@calm
@given(case=crowds(), how=scorers, bound=bounds, backfill=backfills)
def test_nobody_waits_longer_than_the_theorem_says(
    case: Case, how: str, bound: Bound, backfill: BackfillRule
) -> None:
    where, jobs = case
    assume(max(limits_of(where, jobs)) < math.inf)
    done = played(where, jobs, how, Protocol(rules=Rules(backfill=backfill), starvation=bound))
    for record, longest in zip(done, proven_s(where, jobs, done, bound), strict=True):
        assert record.started_at - record.job.submit_s <= longest + 1e-9


def stream(count: int = 300, gpus: int = 2) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """Two GPUs, always one job more than they can serve, and everybody wants a whole node."""
    jobs = [job("first", 0.0, 4.0, gpus)]
    jobs += [job(f"j{i}", 1.0 + 3.5 * i, 4.0, gpus) for i in range(count)]
    return cluster(("n", gpus)), tuple(jobs)


@pytest.mark.parametrize("backfill", ["easy", "none"])
@pytest.mark.parametrize("how", ["last first", "who has waited least", "random at every event"])
def test_without_the_guard_somebody_waits_longer_than_the_theorem_says(
    how: str, backfill: BackfillRule
) -> None:
    where, jobs = stream()
    bound = Bound(bound_s=10.0, factor=1.5)
    free = Protocol(rules=Rules(backfill=backfill))
    kept = Protocol(rules=Rules(backfill=backfill), starvation=bound)
    waits = {}
    for name, protocol in {"free": free, "kept": kept}.items():
        done = played(where, jobs, how, protocol)
        over = [
            r.started_at - r.job.submit_s - longest
            for r, longest in zip(done, proven_s(where, jobs, done, bound), strict=True)
        ]
        waits[name] = max(over)
    assert waits["kept"] <= 0 < waits["free"]


@calm
@given(case=crowds(), how=scorers, bound=bounds)
def test_without_backfill_nobody_starts_while_an_overdue_job_before_him_waits(
    case: Case, how: str, bound: Bound
) -> None:
    where, jobs = case
    assume(len(where.partitions) == 1)
    late: list[int] = []

    def order(world: World) -> Sequence[Pending]:
        seen = snapshot_of(world)
        late[:] = [int(seen.pending[i].job_id) for i in overdue(seen.pending, seen, bound).tolist()]
        return by_score(Mean(SCORERS[how]), bound)(world)

    world = World(where, jobs, rules=Rules(backfill="none"), order=order)
    while world.next_time() is not None:
        late.clear()
        world.step()
        started = {n for n, r in world.running.items() if r.started_at == world.now}
        waiting = [n for n in late if n in world.pending]
        if waiting:
            assert all(number < waiting[0] for number in started)


@calm
@given(case=crowds(most=8), how=scorers, bound=bounds, backfill=backfills)
def test_the_daemons_brain_at_every_event_plays_the_same_guard(
    case: Case, how: str, bound: Bound, backfill: BackfillRule
) -> None:
    where, jobs = case
    protocol = Protocol(rules=Rules(backfill=backfill), starvation=bound)
    direct = played(where, jobs, how, protocol)
    world = play_decided(where, jobs, Mean(SCORERS[how]), protocol).world
    # equal scores keep the order that priorities were in, which frozen numbers may change
    if how not in {"constant", "who has waited least"}:
        assert [r.started_at for r in direct] == [
            world.finished[i + 1].started_at for i in range(len(jobs))
        ]


@calm
@given(case=crowds(), bound=bounds, backfill=backfills)
def test_the_base_order_is_never_changed(case: Case, bound: Bound, backfill: BackfillRule) -> None:
    where, jobs = case
    free = played(where, jobs, "constant", Protocol(rules=Rules(backfill=backfill)))
    kept = played(
        where, jobs, "constant", Protocol(rules=Rules(backfill=backfill), starvation=bound)
    )
    assert [r.started_at for r in free] == [r.started_at for r in kept]
