"""Figures worked out by hand, and no run that is void."""

import numpy as np
import pytest

from rltuned.errors import TraceError
from rltuned.lab.replay.metrics import Schedule, score


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
    with pytest.raises(TraceError, match="job 1 never ran"):
        score([schedule([0, 0], [0, float("nan")], [1, 1], [1, 1])], 1)
    with pytest.raises(TraceError, match="before it was submitted"):
        score([schedule([5], [0], [1], [1])], 1)
