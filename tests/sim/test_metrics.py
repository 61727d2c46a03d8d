"""Figures worked out by hand, and a lower bound that is one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.lab.replay.metrics import Schedule, bound, score
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
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
