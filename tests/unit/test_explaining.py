"""Why a job stands where it stands: by hand where a hand can work it out."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.explaining import Forecast, Foretold, guards_on, influences, may_start
from rltuned.core.features import COLUMNS
from rltuned.core.guards import Guard, Guards
from rltuned.core.numbers import Writing
from rltuned.core.select import Rules
from rltuned.core.starvation import Bound
from rltuned.domain.jobs import PendingJob
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, running, snapshot
from tests.fakes import ConstantOrder

HOUR = 3_600.0


def decided(*jobs: PendingJob, policy: str = "sjf", knobs: Knobs | None = None) -> Decision:
    return decide(snapshot(*jobs), BASELINES[policy], knobs or Knobs())


def test_the_one_feature_that_a_rule_reads_is_what_moved_its_score() -> None:
    jobs = [job(n, time_limit_s=n * HOUR) for n in (1, 2, 3)]
    matrix = decided(*jobs).matrix
    first, *rest = influences(BASELINES["sjf"], matrix, 2)
    assert (first.feature, first.rank, first.rank_without) == ("requested_time", 1, 2)
    assert (first.score_without, first.difference) == (-2 * HOUR, -HOUR)
    assert first.value > first.median == pytest.approx(matrix.column("requested_time")[1])
    assert all(other.difference == 0 for other in rest)
    assert {first.feature, *(other.feature for other in rest)} == set(COLUMNS)


def test_waiting_is_left_out_for_rules_that_read_the_submit_time() -> None:
    jobs = [job(n, submitted_at=NOW - n * HOUR) for n in (1, 2, 6)]
    matrix = decided(*jobs, policy="fcfs").matrix
    row = [j.job_id for j in matrix.jobs].index(jobs[2].job_id)
    first = influences(BASELINES["fcfs"], matrix, row)[0]
    assert (first.feature, first.difference) == ("submit_time", 4 * HOUR)


@given(st.integers(0, 4), st.sampled_from(sorted(BASELINES)))
def test_leaving_out_changes_nobody_else_and_not_the_matrix(row: int, policy: str) -> None:
    jobs = [
        job(n, gpus=n % 3, time_limit_s=n * HOUR, submitted_at=NOW - n * 60) for n in range(1, 6)
    ]
    matrix = decided(*jobs).matrix
    before = matrix.values.copy()
    score = BASELINES[policy].score(matrix)[row]
    for found in influences(BASELINES[policy], matrix, row):
        assert math.isclose(found.score_without + found.difference, score, abs_tol=1e-6)
        assert 1 <= found.rank_without <= len(jobs)
    assert np.array_equal(matrix.values, before)


def test_a_job_alone_is_its_own_median() -> None:
    matrix = decided(job(1)).matrix
    assert all(i.difference == 0 for i in influences(BASELINES["wfp3"], matrix, 0))


def acting(decision: Decision, knobs: Knobs) -> dict[int, tuple[Guard, ...]]:
    jobs = decision.matrix.jobs
    return {j.job_id: guards_on(decision, knobs, row) for row, j in enumerate(jobs)}


def test_guards_that_acted_are_named_for_the_job_they_acted_on() -> None:
    jobs = [job(n, priority=1_000 - n, time_limit_s=(6 - n) * HOUR) for n in range(1, 6)]
    knobs = Knobs(limits=Limits(hysteresis=0.0, guards=Guards(max_displacement=2)))
    found = acting(decided(*jobs, knobs=knobs), knobs)
    # wanted: 5 4 3 2 1, so the outer ones would move four places
    assert found == {1: (Guard.DISPLACEMENT,), 2: (), 3: (), 4: (), 5: (Guard.DISPLACEMENT,)}


def test_hysteresis_and_starvation_are_named() -> None:
    jobs = [
        job(1, priority=30, time_limit_s=HOUR + 1),
        job(2, priority=20, time_limit_s=HOUR),
        job(3, priority=10, time_limit_s=9 * HOUR, submitted_at=NOW - 9 * HOUR),
    ]
    calm = Knobs(limits=Limits(hysteresis=0.5), starvation=None)
    assert acting(decided(*jobs, knobs=calm), calm)[1] == (Guard.HYSTERESIS,)
    late = Knobs(writing=Writing(hysteresis=0.0), starvation=Bound(bound_s=HOUR, factor=1.0))
    assert Guard.STARVATION in acting(decided(*jobs, knobs=late), late)[3]


def forecasts(*jobs: PendingJob, rules: Rules | None = None) -> dict[int, Forecast]:
    """One node of four GPUs, two of them free; two come back in 40 minutes at the latest."""
    runs = [running(100, gpus=2, started_at=NOW - 1_200, time_limit_s=HOUR)]
    seen = snapshot(*jobs, runs=runs, nodes=[node(free_gpus=2)])
    found = decide(seen, ConstantOrder((1, 2, 3, 4)), Knobs(rules=rules or Rules()))
    return {j.job_id: may_start(found, j) for j in jobs}


def test_when_a_job_may_start() -> None:
    found = forecasts(
        job(1, gpus=1), job(2, gpus=4), job(3, gpus=4), job(4, gpus=1, time_limit_s=600)
    )
    assert found[1] == Forecast(Foretold.NOW, 0.0, 0)
    # the two that run come back after 40 minutes, job 1's one after an hour
    assert found[2] == Forecast(Foretold.AT_LATEST, HOUR, 1)
    assert found[3] == Forecast(Foretold.UNKNOWN, None, 2)
    assert found[4] == Forecast(Foretold.NOW, 0.0, 3)  # backfill


def test_what_cannot_be_foretold_is_unknown() -> None:
    held = job(1, priority=0, held_by="user", reason="JobHeldUser")
    picky = job(2, required_nodes=("p1",))
    never = job(3, gpus=64)
    found = forecasts(held, picky, never)
    assert {f.how for f in found.values()} == {Foretold.UNKNOWN}
    assert {f.in_s for f in found.values()} == {None}


def test_jobs_that_are_not_ours_are_in_line_too() -> None:
    sla = job(1, gpus=2, partition="sla", priority=9_000)
    seen = snapshot(sla, job(2, gpus=2), nodes=[node(free_gpus=2, partitions=("gpu", "sla"))])
    knobs = Knobs(rules=Rules(sla_partitions=frozenset({"sla"})))
    decision = decide(seen, ConstantOrder(), knobs)
    assert may_start(decision, seen.pending[0]).how is Foretold.NOW
    assert may_start(decision, seen.pending[1]) == Forecast(Foretold.AT_LATEST, HOUR, 1)
