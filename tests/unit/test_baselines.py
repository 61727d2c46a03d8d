"""The classic rules against values worked out by hand."""

import math

import numpy as np
import pytest

from rltuned.core.features import FloatArray, encode
from rltuned.domain.jobs import PendingJob
from rltuned.policies.baselines import BASELINES, F1_EPOCH_S
from tests.builders import NOW, job, snapshot


def waiting(job_id: int, *, wait_s: float, limit_s: float | None, gpus: int) -> PendingJob:
    return job(job_id, submitted_at=NOW - wait_s, time_limit_s=limit_s, gpus=gpus)


QUEUE = (
    waiting(1, wait_s=7200, limit_s=3600, gpus=1),
    waiting(2, wait_s=3600, limit_s=7200, gpus=4),
    waiting(3, wait_s=60, limit_s=600, gpus=8),
)


def scores(rule: str, *queue: PendingJob, now: float = NOW) -> FloatArray:
    seen = snapshot(*queue, taken_at=now)
    return BASELINES[rule].score(encode(seen.pending, seen))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("fcfs", [-(NOW - 7200), -(NOW - 3600), -(NOW - 60)]),
        ("sjf", [-3600, -7200, -600]),
        ("saf", [-3600, -28800, -4800]),
        ("smallest", [-1, -4, -8]),
        # waits are twice, half and a tenth of the limits
        ("wfp3", [8.0, 0.5, 0.008]),
        # w / (log2(n+1) r)
        ("unicep", [2.0, 0.5 / math.log2(5), 0.1 / math.log2(9)]),
        (
            "f1",
            [
                -(math.log10(3600) * 1 + 870 * math.log10(F1_EPOCH_S - 7200)),
                -(math.log10(7200) * 4 + 870 * math.log10(F1_EPOCH_S - 3600)),
                -(math.log10(600) * 8 + 870 * math.log10(F1_EPOCH_S - 60)),
            ],
        ),
        ("multifactor", [1000, 1000, 1000]),
    ],
)
def test_scores_by_hand(rule: str, expected: list[float]) -> None:
    assert scores(rule, *QUEUE) == pytest.approx(np.array(expected), rel=1e-12)


@pytest.mark.parametrize("rule", sorted(BASELINES))
def test_every_rule_is_finite_on_the_edges(rule: str) -> None:
    edges = (
        waiting(1, wait_s=0, limit_s=math.inf, gpus=0),
        waiting(2, wait_s=90 * 86400, limit_s=None, gpus=1),
        waiting(3, wait_s=-5, limit_s=1, gpus=1024),  # slurmctld's clock is ahead of ours
    )
    assert np.isfinite(scores(rule, *edges)).all()


@pytest.mark.parametrize("rule", ["sjf", "saf", "smallest", "wfp3", "unicep", "f1"])
def test_the_same_queue_later_in_time_gets_the_same_scores(rule: str) -> None:
    shift_s = 5 * 365 * 86400.0
    later = tuple(
        job(
            j.job_id,
            submitted_at=j.submitted_at + shift_s,
            time_limit_s=j.request.time_limit_s,
            gpus=j.request.total.gpus,
        )
        for j in QUEUE
    )
    assert scores(rule, *later, now=NOW + shift_s) == pytest.approx(scores(rule, *QUEUE))


def test_multifactor_takes_our_own_part_back_out() -> None:
    assert scores("multifactor", job(priority=5_700, site_factor=700)).tolist() == [5_000]
