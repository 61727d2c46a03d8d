"""Figures worked out by hand, and a lower bound that is one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.lab.replay.metrics import (
    Schedule,
    bound,
    fragmentation,
    jain,
    mean_fragmentation,
    score,
)
from rltuned.lab.replay.plot import steps
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from tests.examples import examples
from tests.sim.worlds import cluster, job


def schedule(
    submit: list[float], start: list[float], run: list[float], gpus: list[int], **rest: int
) -> Schedule:
    count = len(submit)
    return Schedule(
        job_ids=tuple(str(i) for i in range(count)),
        submit_s=np.array(submit, dtype=float),
        start_s=np.array(start, dtype=float),
        end_s=np.array(start, dtype=float) + np.array(run),
        duration_s=np.array(run, dtype=float),
        gpus=np.array(gpus, dtype=float),
        users=tuple("ab"[i % 2] for i in range(count)),
        partitions=("p",) * count,
        nodes=("n:1",) * count,
        decisions=3,
        elapsed_s=0.5,
        **rest,
    )


def test_the_figures_of_two_jobs() -> None:
    found = score([schedule([0, 10], [0, 40], [50, 5], [2, 1])], cluster_gpus=4)
    assert found.wait_s == 15.0
    assert found.jct_s == (50 + 35) / 2
    assert found.bsld == (1.0 + 35 / 10) / 2  # the floor of ten seconds
    assert found.makespan_s == 50.0
    assert found.utilisation == pytest.approx((2 * 50 + 5) / (4 * 50))
    assert found.worst_user == "b"
    assert found.fairness_users == pytest.approx(jain([1.0, 3.5]))
    assert (found.jobs, found.decisions) == (2, 3)


def test_warm_up_jobs_use_gpus_but_are_not_scored() -> None:
    found = score([schedule([0, 10], [0, 40], [50, 10], [2, 1], warmup=1)], cluster_gpus=4)
    assert (found.jobs, found.wait_s) == (1, 30.0)
    # from 10 to 50: 40 s of the first job's two GPUs, 10 s of one
    assert found.utilisation == pytest.approx((2 * 40 + 10) / (4 * 40))


def test_a_dropped_job_makes_a_run_void() -> None:
    with pytest.raises(ValueError, match="job 1 never ran"):
        score([schedule([0, 0], [0, float("nan")], [1, 1], [1, 1])], 1)
    with pytest.raises(ValueError, match="before it was submitted"):
        score([schedule([5], [0], [1], [1])], 1)


def test_shortest_remaining_first_by_hand() -> None:
    # one GPU: a (10 s) is put aside at 2 for b (3 s); b ends at 5, a at 13
    done = schedule([0, 2], [0, 10], [10, 3], [1, 1])
    wait_s, jct_s = bound([done], 1)
    assert jct_s == (13 + 3) / 2
    assert wait_s == jct_s - 6.5


@examples(60)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 30), st.integers(1, 4)), min_size=1, max_size=20
    ),
    policy=st.sampled_from(["fcfs", "sjf", "saf"]),
    begin=st.integers(-1_000, 1_000),
)
def test_no_policy_beats_the_bound(
    rows: list[tuple[int, int, int]], policy: str, begin: int
) -> None:
    clock, jobs = begin, []
    for i, (gap, run, gpus) in enumerate(rows):
        clock += gap
        jobs.append(job(f"j{i}", clock, run, gpus))
    done = simulate(Scenario.of(cluster(("n", 4)), jobs), policy, Protocol())
    wait_s, jct_s = bound([done], 4)
    assert wait_s <= done.wait_s.mean() + 1e-9
    assert jct_s <= (done.end_s - done.submit_s).mean() + 1e-9


def test_the_clairvoyant_order_beats_the_others_on_the_testbed() -> None:
    window = Scenario.of(preset("testbed"), synthesize("testbed-1024", jobs=300, seed=2).jobs)
    waits = {
        p: simulate(window, p, Protocol()).wait_s.mean() for p in ("fcfs", "sjf", "clairvoyant:sjf")
    }
    assert waits["clairvoyant:sjf"] < waits["sjf"] < waits["fcfs"]


def test_fragmentation_counts_scraps_only() -> None:
    where = cluster(("n1", 4), ("n2", 4))
    jobs = [job("a", 0, 10, 4), job("b", 0, 20, 2)]
    done = simulate(Scenario.of(where, jobs), "fcfs", Protocol())
    times, levels = fragmentation(done, where)
    # until 10: 2 of 4 free on n2: 1 - (4/4)/2; until 20: n1 free as well: 1 - (4 + 1)/6
    assert times.tolist() == [0.0, 10.0, 20.0]
    assert levels.tolist() == pytest.approx([0.5, 1 / 6, 0.0])
    assert mean_fragmentation([done], where) == pytest.approx(1 / 3)


def test_steps_count_from_begin_to_end() -> None:
    times, level = steps(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([1.0, 3.0]))
    assert times.tolist() == [0.0, 1.0, 2.0]
    assert level.tolist() == [1.0, 4.0, 0.0]
