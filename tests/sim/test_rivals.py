# ruff: noqa: ARG002 - stand-ins need not look at what they are shown
"""RLScheduler's and SchedInspector's places in the simulator, with stand-ins for their networks."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from rltuned.core.features import StateMatrix
from rltuned.errors import PolicyError
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import Cluster
from rltuned.sim.protocol import Protocol, play_decided, play_direct
from rltuned.sim.rivals import Inspected, IntArray, Picking
from rltuned.sim.run import Window, schedule_of, simulate
from rltuned.sim.trace import TraceJob
from tests.sim.worlds import cases, cluster, job

calm = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class Shortest:
    """Picks the job with the smallest limit."""

    def pick(self, matrix: StateMatrix, rows: IntArray) -> int:
        return int(rows[np.argmin(matrix.limit_s[rows])])


@dataclass
class Never:
    """Accepts nobody, and remembers whom it was asked about."""

    asked: list[int] = field(default_factory=list)

    def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
        self.asked.append(matrix.jobs[row].job_id)
        return False


class Always:
    def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
        return True


@calm
@given(case=cases())
def test_a_picker_of_the_shortest_gives_the_schedule_of_sjf(
    case: tuple[Cluster, tuple[TraceJob, ...]],
) -> None:
    where, jobs = case
    window = Window(0, jobs)
    wanted = simulate(window, where, "sjf", Protocol())
    for play in (play_direct, play_decided):
        picked = schedule_of(play(where, jobs, Picking(Shortest()), Protocol()), window, where, 0.0)
        assert picked.start_s.tolist() == wanted.start_s.tolist()


def test_who_is_not_visible_comes_after_the_others() -> None:
    jobs = [job("a", 0, 5, 1)] + [job(f"j{i}", 1, 9 - i, 1) for i in range(4)]
    world = play_direct(cluster(("n", 1)), jobs, Picking(Shortest(), visible=2), Protocol()).world
    # at 5 it sees j0 (9 s) and j1 (8 s), not j3 (6 s): j1; then j0 and j2 (7 s): j2; then j3, j0
    order = sorted(world.finished.values(), key=lambda r: r.started_at)
    assert [r.job.job_id for r in order] == ["a", "j1", "j2", "j3", "j0"]


def test_a_picker_that_names_a_stranger_is_refused() -> None:
    class Wrong:
        def pick(self, matrix: StateMatrix, rows: IntArray) -> int:
            return 99

    with pytest.raises(PolicyError, match="rlscheduler picked row 99"):
        play_direct(cluster(("n", 1)), [job("a", 0, 5, 1)], Picking(Wrong()), Protocol())


@calm
@given(case=cases())
def test_an_inspector_that_accepts_leaves_the_base_policy_alone(
    case: tuple[Cluster, tuple[TraceJob, ...]],
) -> None:
    where, jobs = case
    window = Window(0, jobs)
    base = simulate(window, where, "saf", Protocol())
    policy = Inspected(BASELINES["saf"], Always())
    done = schedule_of(play_decided(where, jobs, policy, Protocol()), window, where, 0.0)
    assert done.start_s.tolist() == base.start_s.tolist()


def test_who_is_rejected_comes_last_until_it_was_rejected_often_enough() -> None:
    """One GPU, fcfs, and an inspector who rejects job 2 whenever he is asked."""

    class NotTheSecond:
        def accepts(self, matrix: StateMatrix, row: int, rejections: int) -> bool:
            return matrix.jobs[row].job_id != 2

    jobs = [job(n, 0, 1, 1) for n in "abcdef"]
    for most, turn in ((72, 5.0), (2, 3.0), (0, 1.0)):
        policy = Inspected(BASELINES["fcfs"], NotTheSecond(), most=most)
        world = play_direct(cluster(("n", 1)), jobs, policy, Protocol()).world
        # at 0 job 1 is asked about first and accepted; from 1 on job 2 is, once per second
        assert world.finished[2].started_at == turn


def test_nobody_is_left_out_by_an_inspector_who_never_accepts() -> None:
    never = Never()
    world = play_direct(
        cluster(("n", 1)),
        [job(n, 0, 1, 1) for n in "abc"],
        Inspected(BASELINES["fcfs"], never),
        Protocol(),
    ).world
    assert len(world.finished) == 3
    assert never.asked[:3] == [1, 2, 3]
