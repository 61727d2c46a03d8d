"""Until enough jobs of a site have ended nothing that is predicted moves the order: limits do."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.memory import LEAST_ENDS, RunTimeMemory
from rltuned.core.select import Scope
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob, RunNews, RunningJob
from rltuned.domain.snapshot import Context
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.builders import NOW, job, node, running, snapshot
from tests.scenes import DAY, HOUR, Scene

MOST = Knobs(Scope(min_age_s=0.0), top_k=0)


def ended(number: int, user: str) -> JobRun:
    ran = RunningJob(
        JobId(number), UnixTime(NOW - 600.0), job(number).request, (), partition="gpu", user=user,
        submitted_at=UnixTime(NOW - 700.0),
    )  # fmt: skip
    return JobRun(ran, UnixTime(NOW - 10.0))


class Site:
    """A daemon's learner without sacct, and the delays that follow from what it says."""

    def __init__(self, folder: Path) -> None:
        logits = load_predictor(shipped_predictor()).logits
        log = make_log("console", "error")
        self.learner = RunTimeLearner(lambda: RunTimeMemory(logits), folder, log)
        self.now, self.context = NOW, Context()

    def look(self, *jobs: PendingJob, done: tuple[JobRun, ...] = ()) -> dict[int, float]:
        self.now += 60.0
        run = running(99_999, user="bob", submitted_at=UnixTime(NOW - 5_000.0))
        seen = snapshot(*jobs, runs=[run], nodes=[node(gpus=8)], taken_at=self.now)
        self.context = self.learner.look(seen, RunNews(over=done))
        # what is used of limits is another matter
        context = Context(run_times=self.context.run_times)
        found = decide(seen, BASELINES["delay"], MOST, context=context)
        assert self.context.run_times or not self.learner.of_running(seen)
        return {int(e.job.job_id): e.delay_s for e in found.entries}


QUEUE = (
    job(1, user="ann", gpus=4, time_limit_s=120.0),
    job(2, user="bob", gpus=2, time_limit_s=7 * DAY),
)


def test_before_any_job_has_ended_a_twin_makes_no_plan_shorter(tmp_path: Path) -> None:
    """Before: 4,729 s in place of 378,447 for the 7 days."""
    site = Site(tmp_path)
    alone = site.look(*QUEUE)
    twin = job(3, user="bob", gpus=2, time_limit_s=7 * DAY, submitted_at=NOW - 30.0)
    site.look(*QUEUE, twin)
    late = job(4, user="bob", gpus=2, time_limit_s=7 * DAY, submitted_at=NOW - 20.0)
    found = site.look(*QUEUE, twin, late)
    assert site.context.run_times == {}
    assert found[2] == found[3] == found[4] >= alone[2]
    assert found[1] < found[2] / 10
    by_limits = decide(snapshot(*QUEUE, nodes=[node(gpus=8)]), BASELINES["delay"], MOST)
    assert alone == {int(e.job.job_id): e.delay_s for e in by_limits.entries}


def test_from_the_thirtieth_end_on_what_is_predicted_counts(tmp_path: Path) -> None:
    site, users = Site(tmp_path), ("ann", "bob", "eve")
    done = [ended(100 + n, users[n % 3]) for n in range(LEAST_ENDS)]
    site.look(*QUEUE)
    site.look(*QUEUE, done=tuple(done[:-1]))
    assert site.context.run_times == {}
    site.look(*QUEUE, done=(done[-1],))
    assert set(site.context.run_times) == {1, 2}


@pytest.mark.parametrize("others", [0, 14, 15])
def test_a_user_counts_for_no_more_ends_than_all_others(others: int) -> None:
    scene = Scene()
    scene.ends("eve", [1.0] * 200, HOUR)
    assert scene.memory.is_known, "it is the only one"
    for number in range(others):
        scene.ends(f"u{number}", [HOUR], 2 * HOUR)
    assert scene.memory.is_known == (others != 14)
    assert scene.restored().memory.is_known == scene.memory.is_known


def test_an_array_is_predicted_as_the_jobs_that_it_stands_for() -> None:
    """All but the first of a hundred jobs that come at once; the same once its tasks run."""

    def told(*jobs: PendingJob) -> float:
        scene = Scene()
        scene.ends("ann", [HOUR] * 20, DAY)
        come = [replace(one, submitted_at=UnixTime(scene.now)) for one in jobs]
        scene.memory.submit(come)
        return scene.memory.predicted(come)[jobs[-1].job_id].plan_s

    jobs = [job(7_000 + n, user="ann", time_limit_s=DAY) for n in range(100)]
    array = job(7_000, user="ann", time_limit_s=DAY, array=ArrayInfo(JobId(7_000), 100))
    assert told(array) == told(*jobs) != told(jobs[0])
