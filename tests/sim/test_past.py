"""A recorded queue played again: what was seen comes back, what was not is assumed and counted."""

import statistics
from dataclasses import replace

import pytest

from rltuned.core.decide import Knobs
from rltuned.core.select import Rules as Scope
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.sim.natural import Natural
from rltuned.sim.past import (
    FEWEST,
    Past,
    difference,
    past_of,
    waits_decided,
    waits_under,
)
from rltuned.sim.protocol import Protocol
from rltuned.sim.world import Rules
from tests.builders import NOW, job, node, running, snapshot

COUNT = FEWEST + 5
STEP_S = 60.0
RUN_S = 600.0


def one_after_the_other() -> list[Snapshot]:
    """One GPU; a job comes every five minutes, and each runs for ten, so they queue up."""
    looks = []
    ids = range(1, COUNT + 1)
    submitted = {n: NOW + 300.0 * n for n in ids}
    started = {}
    free_at = 0.0
    for n in ids:
        started[n] = max(submitted[n], free_at)
        free_at = started[n] + RUN_S
    moment = NOW
    while moment < free_at + 2 * STEP_S:
        waiting: list[PendingJob] = []
        runs: list[RunningJob] = []
        for n in ids:
            if submitted[n] <= moment < started[n]:
                waiting.append(job(n, submitted_at=submitted[n], time_limit_s=1_200.0))
            elif started[n] <= moment < started[n] + RUN_S:
                run = running(
                    n, started_at=started[n], submitted_at=submitted[n], time_limit_s=1_200.0
                )
                runs.append(run)
        looks.append(
            snapshot(*waiting, runs=runs, nodes=[node(gpus=1, free_gpus=0)], taken_at=moment)
        )
        moment += STEP_S
    return looks


def test_the_base_order_played_again_gives_the_waits_that_were() -> None:
    past = past_of(one_after_the_other())
    assert (past.ended, past.assumed) == (COUNT, 0)
    again = waits_under(past, "fcfs", Protocol())
    assert again.keys() == past.waits_s.keys()
    for name, wait_s in again.items():
        # run times are known to half a look, and add up along the queue
        assert wait_s == pytest.approx(past.waits_s[name], abs=STEP_S / 2 * COUNT)


def test_jobs_that_had_not_ended_are_assumed_and_wait_no_longer_than_the_record() -> None:
    looks = one_after_the_other()
    cut = looks[: int(len(looks) * 0.95)]
    past = past_of(cut)
    assert past.assumed > 0
    assert past.ended + past.assumed == COUNT
    assert max(waits_under(past, "multifactor", Protocol()).values()) <= past.until
    open_ones = [j.duration_s for j in past.jobs if "." in j.job_id]
    # as long as the others ran, as a share of the limit
    assert open_ones == pytest.approx([RUN_S] * len(open_ones), abs=STEP_S)


def test_too_little_is_said_to_be_too_little() -> None:
    with pytest.raises(TraceError, match="no cycle is kept"):
        past_of([])
    with pytest.raises(TraceError, match=rf"0 jobs came and ended.*{FEWEST} are needed"):
        past_of([snapshot(job(1)), snapshot(taken_at=NOW + 60)])


def test_what_waited_or_ran_at_the_beginning_is_there_and_is_not_scored() -> None:
    looks = one_after_the_other()[20:]
    began = looks[0].taken_at
    past = past_of(looks)
    assert [j.submit_s for j in past.jobs[:3]] == [0.0, 1.0, 1.0]
    assert past.jobs[0].job_id.startswith(f"{looks[0].running[0].job_id}@")
    assert past.jobs[0].duration_s == pytest.approx(300.0, abs=STEP_S)
    assert len(past.waits_s) == len(past.jobs) - 2  # one waits since the very beginning
    scored = {float(name.split("@")[1]) - wait for name, wait in past.waits_s.items()}
    assert min(scored) >= began


def test_a_daemon_that_leaves_the_order_alone_gives_slurms_own_waits() -> None:
    past = past_of(one_after_the_other())
    slurms = Rules(natural=Natural(kind="multifactor"))
    alone = waits_under(past, "multifactor", Protocol(rules=slurms))
    knobs = Knobs(Scope(sla_partitions=frozenset({"gpu"})), top_k=0)
    protocol = Protocol(mode="cycle", interval_s=60.0, rules=slurms, knobs=knobs)
    assert waits_decided(past, BASELINES["sjf"], protocol) == alone


def played(*each: float) -> tuple[Past, dict[str, float], dict[str, float]]:
    """A record of jobs whose waits differ by so many seconds, in the order of their submits."""
    past = past_of(one_after_the_other())
    first = past.jobs[0]
    jobs = tuple(replace(first, job_id=str(i), submit_s=60.0 * i) for i in range(1, len(each) + 1))
    theirs = {job.job_id: 1_000.0 for job in jobs}
    ours = {job.job_id: 1_000.0 + d for job, d in zip(jobs, each, strict=True)}
    return replace(past, jobs=jobs, waits_s=theirs), ours, theirs


def test_the_interval_is_that_of_ten_stretches() -> None:
    steps = [-10.0, -20.0, -30.0, -40.0, -50.0, -10.0, -20.0, -30.0, -40.0, -50.0]
    found = difference(*played(*(step for step in steps for _ in range(12))))
    assert found.mean_s == pytest.approx(-30.0)
    # Student's t for nine degrees of freedom, and the standard deviation of ten means
    reach_s = 2.262 * statistics.stdev(steps) / 10**0.5
    assert found.low_s == pytest.approx(-30.0 - reach_s)
    assert found.high_s == pytest.approx(-30.0 + reach_s)
    # the same differences, but neighbours unlike each other: the stretches are all alike
    mixed = difference(*played(*(steps * 12)))
    assert mixed.mean_s == pytest.approx(-30.0)
    assert (mixed.high_s or 0.0) - (mixed.low_s or 0.0) < reach_s


def test_few_jobs_give_no_interval_and_different_ones_no_difference() -> None:
    past, ours, theirs = played(*([-5.0] * 99))
    found = difference(past, ours, theirs)
    assert found.mean_s == pytest.approx(-5.0)
    assert (found.low_s, found.high_s) == (None, None)
    with pytest.raises(ValueError, match="different jobs"):
        difference(past, ours, {"another": 1.0})
