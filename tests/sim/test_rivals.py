"""SchedInspector's place in the simulator, with stand-ins for its network."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings

from rltuned.core.features import StateMatrix
from rltuned.policies.baselines import BASELINES
from rltuned.policies.rivals import INTERVAL_S, MOST_REJECTIONS
from rltuned.sim.cluster import Cluster
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.protocol import Outcome, Protocol, play_decided, play_direct
from rltuned.sim.rivals import Inspected
from rltuned.sim.run import Window, schedule_of, simulate
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from tests.sim.worlds import cases, cluster, job

calm = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@dataclass
class Saying:
    """Accepts by a rule of the job's number and its rejections, and remembers the questions."""

    rule: Callable[[int, int], bool]
    asked: list[int] = field(default_factory=list)

    def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
        self.asked.append(matrix.jobs[row].job_id)
        return self.rule(matrix.jobs[row].job_id, rejections)


def inspected(
    jobs: list[TraceJob], rule: Callable[[int, int], bool], most: int = MOST_REJECTIONS
) -> tuple[dict[str, float], list[int]]:
    """Start times by job id on one GPU under fcfs, and who was asked about."""
    saying = Saying(rule)
    policy = Inspected(BASELINES["fcfs"], saying, most=most)
    world = play_direct(cluster(("n", 1)), jobs, policy, Protocol()).world
    return {r.job.job_id: r.started_at for r in world.finished.values()}, saying.asked


PURE = Protocol(bounded=False)
DELAYED = Protocol(rules=Rules(natural=AGE_ONLY))


@calm
@given(case=cases())
def test_an_inspector_that_accepts_leaves_the_base_policy_alone(
    case: tuple[Cluster, tuple[TraceJob, ...]],
) -> None:
    where, jobs = case
    window = Window(0, jobs)
    # in the daemon's hands by delays: those of fcfs are whole seconds
    ways = ((play_direct, "saf", PURE), (play_decided, "fcfs", DELAYED))
    for play, rule, protocol in ways:
        base = simulate(window, where, rule, protocol)
        policy = Inspected(BASELINES[rule], Saying(lambda *_: True))
        outcome: Outcome = play(where, jobs, policy, protocol)
        done = schedule_of(outcome, window, where, 0.0)
        assert done.start_s.tolist() == base.start_s.tolist()
        assert done.nodes == base.nodes
        assert done.decisions == base.decisions


@calm
@given(case=cases())
def test_one_that_never_accepts_makes_them_wait_and_all_run(
    case: tuple[Cluster, tuple[TraceJob, ...]],
) -> None:
    where, jobs = case
    policy = Inspected(BASELINES["fcfs"], Saying(lambda *_: False), most=3)
    world = play_direct(where, jobs, policy, Protocol()).world
    assert len(world.finished) == len(jobs)
    assert all(n <= 3 for n in policy.rejections.values())
    decided = play_decided(where, jobs, policy, Protocol()).world
    assert len(decided.finished) == len(jobs)


def test_a_rejected_pick_waits_until_the_interval_has_passed() -> None:
    started, asked = inspected([job("a", 0, 5, 1)], lambda _, refused: refused >= 2)
    assert started == {"a": 2 * INTERVAL_S}
    assert asked == [1, 1, 1]


def test_nobody_waits_longer_than_the_bound_allows() -> None:
    started, asked = inspected([job("a", 0, 5, 1)], lambda *_: False)
    assert started == {"a": MOST_REJECTIONS * INTERVAL_S}
    assert len(asked) == MOST_REJECTIONS


def test_whatever_happens_first_is_the_next_try_and_clears_the_interval() -> None:
    jobs = [job("a", 0, 5, 1), job("b", 100, 5, 1)]
    started, asked = inspected(jobs, lambda _, refused: refused >= 1)
    # at 0 a: no. At 100 (b came) the GPU is free, so both are judged: a yes, b no. At 105 b: yes
    assert started == {"a": 100.0, "b": 105.0}
    assert asked == [1, 1, 2, 2]


def test_those_behind_a_rejected_pick_wait_too() -> None:
    jobs = [job("a", 0, 5, 1), job("b", 0, 5, 1)]
    saying = Saying(lambda number, refused: number != 1 or refused >= 1)
    policy = Inspected(BASELINES["fcfs"], saying)
    world = play_direct(cluster(("n", 2)), jobs, policy, Protocol()).world
    assert {r.job.job_id: r.started_at for r in world.finished.values()} == {"a": 600, "b": 600}
    assert saying.asked == [1, 1, 2]


def test_backfill_behind_a_pick_that_does_not_fit_is_not_inspected() -> None:
    jobs = [job("a", 0, 50, 1), job("wide", 1, 50, 2), job("short", 2, 5, 1)]
    saying = Saying(lambda *_: True)
    policy = Inspected(BASELINES["fcfs"], saying)
    world = play_direct(cluster(("n", 2)), jobs, policy, Protocol()).world
    assert world.finished[3].started_at == 2
    # at 1 and at 7 nobody could start, so nobody was asked; at 2 the head is asked about
    assert saying.asked == [1, 2, 2]


def test_in_the_daemons_hands_a_rejected_pick_goes_behind_the_others() -> None:
    jobs = [job(n, 0, 1, 1, time_limit_s=3_600.0) for n in "abc"]  # room for a delay
    policy = Inspected(BASELINES["fcfs"], Saying(lambda number, _: number != 1))
    world = play_decided(cluster(("n", 1)), jobs, policy, Protocol()).world
    assert [world.finished[n].started_at for n in (1, 2, 3)] == [2.0, 0.0, 1.0]
