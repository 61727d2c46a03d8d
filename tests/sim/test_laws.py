"""What must hold in every world."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.order import DEFAULT, Order, Wish
from rltuned.journal.cycles import encode_snapshot
from rltuned.lab.kernel.ranking import FIXED, STATIC
from rltuned.lab.replay import orders, play
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.baselines import BASELINES
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY, Fault, NodeFault, Rules, World
from tests.fakes import alone
from tests.sim.reference import as_schedule, play_decided
from tests.sim.worlds import calm, cases, cluster, job

Case = tuple[Cluster, tuple[TraceJob, ...]]


@calm
@given(case=cases(), data=st.data(), placement=st.sampled_from(["pack", "spread"]))
def test_nothing_is_lost_and_nobody_starts_early(
    case: Case, data: st.DataObject, placement: str
) -> None:
    where, jobs = case
    faults = []
    for node in where.nodes:
        if data.draw(st.booleans()):
            at = float(data.draw(st.integers(0, 50)))
            what = data.draw(st.sampled_from([NodeFault.FAIL, NodeFault.DRAIN]))
            faults += [Fault(at, node.name, what), Fault(at + 20.0, node.name, NodeFault.RESUME)]
    world = World(where, jobs, rules=Rules(placement=placement), faults=faults)  # type: ignore[arg-type]
    while world.next_time() is not None:
        world.step()
        conserved(world)
    assert len(world.finished) == len(jobs)
    for record in world.finished.values():
        assert record.started_at >= record.job.submit_s
        ran = record.ended_at - record.started_at
        assert ran == pytest.approx(min(record.job.duration_s, world_limit(world, record.job)))


def world_limit(world: World, job: TraceJob) -> float:
    partition = next(p for p in world.cluster.partitions if p.name == job.partition)
    if job.time_limit_s == math.inf and partition.max_time_s is not None:
        return partition.max_time_s
    return job.time_limit_s


def conserved(world: World) -> None:
    """What is free and what is taken make up the hardware, node by node."""
    used: dict[str, list[int]] = {n.name: [0, 0, 0] for n in world.cluster.nodes}
    for run in world.running.values():
        for share in run.shares:
            for i, amount in enumerate((share.taken.gpus, share.taken.cpus, share.taken.mem_mib)):
                used[share.node][i] += amount
    for node in world.cluster.nodes:
        column = world.capacity.index[node.name]
        free = (
            int(world.capacity.free.of_type[:, column].sum()),
            int(world.capacity.free.cpus[column]),
            int(world.capacity.free.mem_mib[column]),
        )
        total = (node.total.gpus, node.total.cpus, node.total.mem_mib)
        assert min(free) >= 0
        assert tuple(f + u for f, u in zip(free, used[node.name], strict=True)) == total


@dataclass(frozen=True)
class Learned:
    """A policy that is not known by name and gives a rule's scores: the learned path."""

    rule: str
    name: str = "learned"
    static: bool = True
    trust: float | None = None

    def score(self, matrix: StateMatrix) -> FloatArray:
        return BASELINES[self.rule].score(matrix)

    def wish(self, matrix: StateMatrix) -> Wish:
        return alone(self.delay_s(matrix))

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        return BASELINES[self.rule].own(matrix)


WHOLE = Knobs(top_k=0, order=Order(own=1.0, share=0.0, clip=1e9))
"""Delays in whole seconds, which the simulated Slurm's points can say."""


@calm
@given(
    case=cases(),
    rule=st.sampled_from(["fcfs", "sjf", "saf", "smallest"]),
    backfill=st.sampled_from(["easy", "none"]),
    placement=st.sampled_from(["pack", "spread"]),
)
def test_the_base_order_through_the_learned_path_is_the_base_result(
    case: Case, rule: str, backfill: str, placement: str
) -> None:
    where, jobs = case
    rules = Rules(backfill=backfill, placement=placement, natural=AGE_ONLY)  # type: ignore[arg-type]
    window, protocol = Scenario.of(where, jobs, rules), Protocol(knobs=WHOLE)
    base = simulate(window, rule, protocol)
    learned = as_schedule(play_decided(window, Learned(rule), protocol), window)
    assert base.start_s.tolist() == learned.start_s.tolist()
    assert base.nodes == learned.nodes


@calm
@given(case=cases(), backfill=st.sampled_from(["easy", "none"]), step=st.sampled_from([1.0, 7.5]))
def test_a_cycle_that_gives_the_natural_order_changes_nothing(
    case: Case, backfill: str, step: float
) -> None:
    where, jobs = case
    rules = Rules(backfill=backfill, natural=AGE_ONLY)  # type: ignore[arg-type]
    window, cycle = Scenario.of(where, jobs, rules), Protocol("cycle", step)
    base = simulate(window, "fcfs", Protocol())
    for policy in (Learned("fcfs"), BASELINES["fcfs"], BASELINES["multifactor"]):
        done = as_schedule(play_decided(window, policy, cycle), window)
        assert base.start_s.tolist() == done.start_s.tolist()
        assert base.nodes == done.nodes


@calm
@given(case=cases(), stop=st.integers(0, 60), stretch=st.sampled_from([0.5, 3.0]))
def test_the_future_changes_no_plan(case: Case, stop: int, stretch: float) -> None:
    """Two worlds that differ only in what is not yet revealed show the same and decide the same."""
    where, jobs = case
    one = World(where, jobs)
    one.advance(float(stop))
    over = {r.number for r in one.finished.values()}
    other = World(
        where,
        [
            j
            if i in over
            # running and pending jobs will take another time, but none that has come already
            else replace(j, duration_s=max(j.duration_s, stop - j.submit_s + 0.5) * (1 + stretch))
            for i, j in enumerate(jobs, 1)
        ],
    )
    other.advance(float(stop))
    if {r.number for r in other.finished.values()} != over:
        return  # a limit that had cut a job short made its new run time visible
    seen, unseen = snapshot_of(one), snapshot_of(other)
    assert encode_snapshot(seen) == encode_snapshot(unseen)
    policy = BASELINES["wfp3"]
    assert decide(seen, policy, WHOLE).plan == decide(unseen, policy, WHOLE).plan


@calm
@given(
    gpus=st.integers(1, 6),
    rows=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 6), st.integers(0, 9)),
        min_size=1,
        max_size=25,
    ),
    rule=st.sampled_from(["fcfs", "sjf"]),
    backfill=st.sampled_from(["easy", "none"]),
)
def test_on_one_pool_it_is_the_textbook_result(
    gpus: int, rows: list[tuple[int, int, int, int]], rule: str, backfill: str
) -> None:
    clock, jobs = 0, []
    for i, (gap, run, size, spare) in enumerate(rows):
        clock += gap
        limit = float(max(1, run + spare - 4))  # some are cut at their limit
        jobs.append(job(f"j{i}", clock, run, min(size, gpus), time_limit_s=limit))
    window = Scenario.of(cluster(("n", gpus)), jobs, Rules(backfill=backfill))  # type: ignore[arg-type]
    done = simulate(window, rule, Protocol(bounded=False))
    assert done.start_s.tolist() == textbook(jobs, gpus, rule, backfill)


@calm
@given(case=cases())
def test_a_rule_that_asks_for_no_delay_needs_no_backlog_within_the_bounds(case: Case) -> None:
    """To weigh it at every event made FCFS grow with the square of the waiting jobs."""
    scenario = Scenario.of(*case)
    ranking, eyes = orders.at_events("fcfs", scenario, DEFAULT)
    assert (ranking.rule, ranking.bounded) == (FIXED, False)
    demand = scenario.demand(DEFAULT, BASELINES["fcfs"])
    weighed = orders._plain(scenario)._replace(rule=STATIC, demand=demand, bounded=True)
    found, same = (play.run(scenario, one, eyes=eyes).start_s for one in (ranking, weighed))
    assert found.tolist() == same.tolist()


def textbook(  # noqa: C901 - one piece, as in a textbook
    jobs: list[TraceJob], gpus: int, rule: str, backfill: str
) -> list[float]:
    """Second by second, by counting GPUs: no nodes, no events, no reservations kept."""
    start: dict[int, int] = {}
    now = 0
    while len(start) < len(jobs):
        ran = {i: min(jobs[i].duration_s, jobs[i].time_limit_s) for i in start}
        on = [i for i in start if start[i] + ran[i] > now]
        waiting = [i for i, j in enumerate(jobs) if j.submit_s <= now and i not in start]
        if rule == "sjf":
            waiting.sort(key=lambda i: (jobs[i].time_limit_s, i))
        head, shadow, extra = None, 0.0, 0
        for i in waiting:
            free = gpus - sum(jobs[k].gpus for k in on)
            ends = now + jobs[i].time_limit_s
            passes = backfill == "easy" and (ends <= shadow or jobs[i].gpus <= extra)
            harmless = head is None or passes
            if jobs[i].gpus <= free and harmless:
                start[i] = now
                on.append(i)
                if head is not None and ends > shadow:
                    extra -= jobs[i].gpus
            elif head is None:
                head = i
                # the limits end one after the other until the head fits; what is left is extra
                for end in sorted(start[k] + jobs[k].time_limit_s for k in on):
                    kept = sum(jobs[k].gpus for k in on if start[k] + jobs[k].time_limit_s > end)
                    if jobs[head].gpus <= gpus - kept:
                        shadow, extra = end, gpus - kept - jobs[head].gpus
                        break
        now += 1
    return [float(start[i]) for i in range(len(jobs))]
