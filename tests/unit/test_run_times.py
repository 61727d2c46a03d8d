"""What is predicted of a job: by its kinds, as it asks for now, once enough jobs have ended."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core import run_times
from rltuned.core.decide import Knobs, decide
from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.limits import LIMIT_SUMS, limit_share, note_limit
from rltuned.core.memory import LEAST_ENDS, RunTimeMemory
from rltuned.core.run_times import BURST_S, FIELDS, KEYS, KIN, LOG_FULL, RUNNING, SLOTS, STARTED
from rltuned.core.select import Scope
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob, Request, RunNews, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Context, RunTime
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import feed, load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.builders import NOW, job, node, running, snapshot
from tests.examples import examples
from tests.scenes import DAY, HOUR, Scene

OWN = np.full(SLOTS, -1, dtype=np.int64)
OWN[0], OWN[5] = 0, 2
"""A job of two kinds, in rows 0 and 2 of the table; row 1 is of others."""


def table() -> np.ndarray:
    return np.zeros((3, FIELDS))


def test_jobs_that_run_are_counted_from_start_to_stop() -> None:
    stats = table()
    run_times.note_start(stats, OWN, 100.0)
    run_times.note_start(stats, OWN, 160.0)
    for row in (0, 2):
        assert stats[row, run_times.RUNNING] == 2
        assert stats[row, run_times.STARTED] == 260.0
    run_times.note_stop(stats, OWN, 100.0)
    for row in (0, 2):
        assert stats[row, run_times.RUNNING] == 1
        assert stats[row, run_times.STARTED] == 160.0
    assert not stats[1].any()
    assert not stats[:, run_times.COUNT].any()


def test_an_end_teaches_every_kind_of_the_job() -> None:
    stats = table()
    run_times.note_end(stats, OWN, 3_600.0, LIMIT_FULL_S, 0.5)
    run_times.note_end(stats, OWN, 5 * 3_600.0, 6 * 3_600.0, -0.25)
    first, second = (math.log1p(ran_s) / LOG_FULL for ran_s in (3_600.0, 5 * 3_600.0))
    unused = math.log1p(6 * 3_600.0) / LOG_FULL - second
    wanted = {
        run_times.COUNT: 2.0,
        run_times.WEIGHT: 1.95,
        run_times.TOTAL: 0.95 * first + second,
        run_times.SQUARES: 0.95 * first**2 + second**2,
        run_times.LONG: 1.0,
        run_times.RECENT: 1.7,
        run_times.RECENT_TOTAL: 0.7 * first + second,
        run_times.LAST: second,
        run_times.USED_WEIGHT: 1.0,
        run_times.USED: unused,
        run_times.USED_SQUARES: unused**2,
        run_times.ERRORS: 0.25,
        run_times.ERROR_COUNT: 2.0,
    }
    assert dict(enumerate(stats[2][: run_times.BURST])) == pytest.approx(
        dict.fromkeys(range(run_times.BURST), 0.0) | wanted
    )
    assert not stats[1].any()


def test_in_a_shared_kind_a_user_is_one_job_of_its_own_average() -> None:
    stats = table()
    other = np.where(OWN == 2, 1, OWN)
    run_times.note_end(stats, other, 60.0, LIMIT_FULL_S, 0.0)
    for _ in range(500):
        run_times.note_end(stats, OWN, 36_000.0, LIMIT_FULL_S, 0.0)
    short, long = (math.log1p(ran_s) / LOG_FULL for ran_s in (60.0, 36_000.0))
    everyone = stats[0]
    assert everyone[run_times.COUNT] == 501.0
    assert everyone[run_times.WEIGHT] == pytest.approx(1.95, abs=1e-3)
    mean = everyone[run_times.TOTAL] / everyone[run_times.WEIGHT]
    assert mean == pytest.approx((short * 0.95 + long) / 1.95, abs=1e-3)
    run_times.note_end(stats, other, 60.0, LIMIT_FULL_S, 0.0)
    mean = everyone[run_times.TOTAL] / everyone[run_times.WEIGHT]
    assert mean == pytest.approx((short + long) / 2.0, abs=0.01)


def test_what_is_reported_of_a_kind() -> None:
    stats, out = table(), np.zeros(run_times.INPUTS, dtype=np.float32)
    run_times.note_submit(stats, OWN, 1_000.0)
    run_times.note_start(stats, OWN, 1_000.0)
    run_times.note_end(stats, OWN, 600.0, 1_200.0, 0.0)
    run_times.describe(stats, OWN, 4_600.0, LIMIT_FULL_S, 3.0, out)
    request, signs = out[: run_times.REQUEST_SIGNS], out[run_times.REQUEST_SIGNS :]
    assert request == pytest.approx([1.0, 0.0, 0.2, 1.0])
    x, full = math.log1p(600.0) / LOG_FULL, math.log1p(1_200.0) / LOG_FULL
    wanted = [math.log1p(1) / 10, x, x, 0.0, 0.0, x, math.log1p(1) / 10,
              math.log1p(3_600.0) / LOG_FULL, 0.5, full - x, 0.1]  # fmt: skip
    shown = signs.reshape(len(KEYS), run_times.SIGNS)
    assert shown[0] == pytest.approx(wanted, abs=1e-6)
    assert shown[5] == pytest.approx(wanted, abs=1e-6)
    assert not np.delete(shown, [0, 5], axis=0).any()


def test_kin_that_ended_since_the_submission_shift_a_prediction() -> None:
    stats, before = table(), np.zeros((len(KIN), 2))
    run_times.note_end(stats, OWN, 60.0, LIMIT_FULL_S, 3.0)  # before the submission
    run_times.errors_of(stats, OWN, before)
    assert run_times.kin_shift(stats, OWN, before) == 0.0
    for error in (1.0, 2.0):
        run_times.note_end(stats, OWN, 60.0, LIMIT_FULL_S, error)
    assert run_times.kin_shift(stats, OWN, before) == pytest.approx(3.0 / 3.0)


def sums_of(limit_s: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    sums = np.zeros((1, LIMIT_SUMS))
    for limit, run in zip(limit_s.tolist(), run_s.tolist(), strict=True):
        note_limit(sums, 0, run, limit)
    return sums


@pytest.mark.parametrize(
    ("noise", "jobs", "lowest", "highest"),
    [
        (0.3, 400, 1.0, 1.0),
        (1.35, 4_000, 0.55, 0.95),
        (3.0, 400, 0.5, 0.5),
        (0.3, 99, 0.5, 0.5),
    ],
)
def test_a_limit_counts_more_where_limits_tell_run_times(
    noise: float, jobs: int, lowest: float, highest: float
) -> None:
    draw = np.random.default_rng(3)
    run = draw.normal(7.0, 1.0, jobs)
    limit = run + 1.0 + noise * 0.9 * draw.standard_normal(jobs)
    sums = sums_of(np.exp(limit), np.exp(run))
    assert lowest <= limit_share(sums) <= highest


def test_limits_of_one_value_or_none_say_nothing() -> None:
    run_s = np.random.default_rng(3).lognormal(7.0, 1.0, 400)
    same = sums_of(np.full(400, 86_400.0), run_s)
    assert limit_share(same) == 0.5
    assert not sums_of(np.full(400, LIMIT_FULL_S), run_s).any()


def test_the_limits_of_long_ago_count_no_more() -> None:
    draw = np.random.default_rng(3)
    run_s = draw.lognormal(7.0, 1.0, 8_000)
    limit_s = 2.0 * run_s
    limit_s[3_000:] = draw.lognormal(8.0, 1.0, 5_000)
    assert limit_share(sums_of(limit_s[:3_000], run_s[:3_000])) == 1.0
    assert limit_share(sums_of(limit_s, run_s)) == 0.5


def test_the_plan_lies_between_the_limit_and_what_is_expected() -> None:
    predicted = np.zeros(run_times.SUMMARY)
    predicted[run_times.MEAN], predicted[run_times.HIGH] = math.log(400.0), math.log(900.0)
    for share, wanted_s, unlimited_s in (
        (0.5, 3 * math.sqrt(400 * 3_600), 9_000.0),
        (0.75, 3_600.0, math.sqrt(9_000 * LIMIT_FULL_S)),
        (1.0, 3_600.0, LIMIT_FULL_S),
    ):
        predicted[run_times.LIMIT_SHARE] = share
        assert run_times.plan_s(predicted, 0.0, 3_600.0) == pytest.approx(wanted_s)
        assert run_times.plan_s(predicted, 0.0, LIMIT_FULL_S) == pytest.approx(unlimited_s)


def test_what_a_right_prediction_errs_is_nothing_on_average() -> None:
    draw, predicted = np.random.default_rng(5), np.zeros(run_times.SUMMARY)
    logits = draw.normal(size=run_times.BINS)
    run_times.summarize(logits, LIMIT_FULL_S, predicted)
    share = np.exp(logits) / np.exp(logits).sum()
    bins = draw.choice(run_times.BINS, 20_000, p=share)
    x = draw.uniform(run_times.EDGES[bins], run_times.EDGES[bins + 1])
    errors = [run_times.error_of(math.expm1(one * LOG_FULL), predicted) for one in x.tolist()]
    assert np.mean(errors) == pytest.approx(0.0, abs=0.1)
    assert np.std(errors) > 1.0


SHIPPED = load_predictor(shipped_predictor())
MINUTE = 60.0


@dataclass(frozen=True)
class Ask:
    """What a user asks for, and may change while the job waits."""

    limit_s: float = DAY
    gpus: int = 1
    name: int = 1
    folder: int = 1
    account: str = "lab"
    qos: str = "normal"
    partition: str = "gpu"
    user: str = "ann"

    def rest(self) -> dict[str, Any]:
        return {
            "request": Request(Resources(self.gpus, 1, 1), time_limit_s=self.limit_s),
            "user": self.user,
            "account": self.account,
            "qos": self.qos,
            "kinds": Kinds(name=self.name, work_dir=self.folder),
        }

    def waits(self, number: int, at_s: float) -> PendingJob:
        return PendingJob(
            job_id=JobId(number),
            address=str(number),
            submitted_at=UnixTime(at_s),
            priority=1,
            partitions=(self.partition,),
            **self.rest(),
        )

    def runs(self, number: int, at_s: float, start_s: float) -> RunningJob:
        return RunningJob(
            job_id=JobId(number),
            started_at=UnixTime(start_s),
            submitted_at=UnixTime(at_s),
            shares=(),
            partition=self.partition,
            **self.rest(),
        )

    def ended(self, number: int, at_s: float, run_s: float) -> JobRun:
        return JobRun(self.runs(number, at_s, at_s), UnixTime(at_s + run_s))


def memory() -> RunTimeMemory:
    return RunTimeMemory(SHIPPED.logits)


CHANGES = [
    (Ask(limit_s=MINUTE), Ask(limit_s=7 * DAY)),
    (Ask(limit_s=7 * DAY), Ask(limit_s=HOUR)),
    (Ask(), Ask(gpus=4)),
    (Ask(), Ask(name=2)),
    (Ask(), Ask(folder=2)),
    (Ask(), Ask(account="other")),
    (Ask(), Ask(qos="high")),
    (Ask(), Ask(partition="long")),
]


def taught(found: RunTimeMemory, *asks: Ask) -> RunTimeMemory:
    """A memory of jobs that ran, of each kind another time."""
    for number, ask in enumerate(asks, start=1):
        for again in range(5):
            done = ask.ended(100 * number + again, NOW - 9 * DAY, 300.0 * number**2 + again)
            feed(found, [done.job], [], [done])
    return found


def expected(found: RunTimeMemory, one: PendingJob) -> RunTime:
    return found.predicted([one])[one.job_id]


@pytest.mark.parametrize(("was", "now"), CHANGES)
def test_a_change_is_followed(was: Ask, now: Ask) -> None:
    """In review a job raised from a minute to seven days kept a one-minute job's prediction."""
    one = taught(memory(), was, now)
    one.submit([was.waits(1, NOW)])
    before = expected(one, was.waits(1, NOW))
    one.follow([now.waits(1, NOW)])
    other = taught(memory(), was, now)
    other.submit([now.waits(1, NOW)])
    assert expected(one, now.waits(1, NOW)) == expected(other, now.waits(1, NOW))
    assert expected(one, now.waits(1, NOW)) != before
    one.follow([was.waits(1, NOW)])
    assert expected(one, was.waits(1, NOW)) == before


asks = st.builds(
    Ask,
    limit_s=st.sampled_from([MINUTE, HOUR, 7 * DAY, float("inf")]),
    gpus=st.sampled_from([0, 1, 4]),
    name=st.sampled_from([0, 1, 2]),
    folder=st.sampled_from([0, 1]),
    account=st.sampled_from(["", "lab", "other"]),
    partition=st.sampled_from(["gpu", "long"]),
    user=st.just("ann"),
)
STRANGER = Ask(gpus=2, account="zoo", user="zed", limit_s=2 * HOUR)


@examples(60)
@given(
    past=st.lists(asks, max_size=6),
    beside=st.lists(st.tuples(asks, st.sampled_from([0.0, 50.0, 700.0])), max_size=4),
    ways=st.lists(asks, min_size=1, max_size=4),
    strangers=st.integers(0, 3),
)
def test_it_is_as_if_the_job_had_been_submitted_so(
    past: list[Ask], beside: list[tuple[Ask, float]], ways: list[Ask], strangers: int
) -> None:
    """A memory that saw the changes, and one that met the job as it is in the end."""

    def play(steps: Sequence[Ask]) -> tuple[RunTimeMemory, RunTime]:
        found = taught(memory(), *past)
        at_s = NOW
        for number, (ask, gap_s) in enumerate(beside, start=10):
            found.submit([ask.waits(number, at_s)])
            at_s += gap_s
        found.submit([steps[0].waits(1, at_s)])
        for number in range(50, 50 + strangers):
            found.submit([STRANGER.waits(number, at_s + 1)])
            found.start([STRANGER.runs(number, at_s + 1, at_s + 2)])
        for step in steps[1:]:
            found.follow([step.waits(1, at_s)])
        answer = expected(found, steps[-1].waits(1, at_s))
        found.start([steps[-1].runs(1, at_s, at_s + 500)])
        return found, answer

    (seen, one), (met, other) = play(ways), play(ways[-1:])
    assert one == other
    here = {digest: met._stats[slot] for digest, slot in met._kinds._rows.items()}
    for digest, slot in seen._kinds._rows.items():
        kind, same = seen._stats[slot], here.get(digest)
        runs = kind[[RUNNING, STARTED]].tolist()
        assert runs == ([0.0, 0.0] if same is None else same[[RUNNING, STARTED]].tolist())
    seen.keep(())
    assert not seen._stats[:, [RUNNING, STARTED]].any()


def test_a_limit_that_its_owner_lowers_while_it_runs_is_what_it_is_judged_by() -> None:
    was, now = Ask(limit_s=7 * DAY), Ask(limit_s=HOUR)
    seen, met = memory(), memory()
    for found, first in ((seen, was), (met, now)):
        found.submit([first.waits(1, NOW)])
        found.start([first.runs(1, NOW, NOW + 60)])
    seen.follow([now.runs(1, NOW, NOW + 60)])
    for found in (seen, met):
        found.end([now.ended(1, NOW, 900.0)])
        found.submit([now.waits(2, NOW + 2_000)])
    assert expected(seen, now.waits(2, NOW + 2_000)) == expected(met, now.waits(2, NOW + 2_000))
    assert not seen._stats[:, [RUNNING, STARTED]].any()


def test_what_slurm_gives_a_running_job_is_no_change() -> None:
    found, ask = memory(), Ask()
    found.submit([ask.waits(1, NOW)])
    found.start([ask.runs(1, NOW, NOW + 60)])
    kinds = len(found)
    found.follow([replace(ask, gpus=8, partition="long").runs(1, NOW, NOW + 60)])
    assert len(found) == kinds


def test_a_job_that_becomes_a_twin_later_joins_no_burst_that_it_was_not_in() -> None:
    """Those within ten minutes of one another are one burst, whenever they became twins."""
    twin, found = Ask(limit_s=HOUR), memory()
    early, near, late = NOW, NOW + 10 * BURST_S, NOW + 10 * BURST_S + 60
    for number, at_s in ((1, early), (2, near)):
        found.submit([Ask(limit_s=MINUTE).waits(number, at_s)])
    found.submit([twin.waits(3, late)])
    found.follow([twin.waits(1, early), twin.waits(2, near)])
    bursts = [found._jobs[number, at].slots[8] for number, at in ((1, early), (2, near), (3, late))]
    assert bursts[1] == bursts[2] != bursts[0]


@pytest.mark.parametrize(("was", "now"), CHANGES[:3])
def test_a_daemon_that_starts_again_puts_it_where_it_was(
    tmp_path: Path, was: Ask, now: Ask
) -> None:
    """Before, the order of a job whose limit was changed was another one after a restart."""

    def daemon(name: str) -> RunTimeLearner:
        """One that has seen enough jobs of another user end."""
        (tmp_path / name).mkdir(exist_ok=True)
        found = RunTimeLearner(memory, tmp_path / name, make_log("console", "error"))
        past = (STRANGER.ended(100 + n, NOW - 900, 100.0) for n in range(LEAST_ENDS))
        found.look(snapshot(taken_at=NOW - 750))
        found.look(snapshot(taken_at=NOW - 700), RunNews(over=tuple(past)))
        return found

    other = STRANGER.waits(2, NOW - 500)
    watching = daemon("one")
    watching.look(snapshot(was.waits(1, NOW - 600), other, taken_at=NOW))
    changed = snapshot(now.waits(1, NOW - 600), other, taken_at=NOW + 60)
    seen, again = watching.look(changed), daemon("two").look(changed)
    assert seen.run_times == again.run_times
    assert JobId(1) in seen.run_times


def test_many_jobs_that_change_leave_no_kinds_behind_in_the_sums() -> None:
    found, draw = memory(), np.random.default_rng(3)
    for number in range(1, 30):
        found.submit([Ask().waits(number, NOW + number)])
        found.start([Ask().runs(number, NOW + number, NOW + 100)])
    for _ in range(5):
        limits = draw.choice([MINUTE, HOUR, DAY], size=30)
        found.follow(
            [Ask(limit_s=float(limits[n])).runs(n, NOW + n, NOW + 100) for n in range(1, 30)]
        )
    assert found._stats[:, RUNNING].max() == 29
    found.keep(())
    assert not found._stats[:, [RUNNING, STARTED]].any()


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
