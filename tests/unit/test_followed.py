"""A waiting job is predicted as what it asks for now, however it was submitted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.memory import LEAST_ENDS, RunTimeMemory
from rltuned.core.run_times import BURST_S, RUNNING, STARTED
from rltuned.daemon.logger import make_log
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import JobRun, PendingJob, Request, RunNews, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.predictor import feed, load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.builders import NOW, snapshot
from tests.examples import examples

SHIPPED = load_predictor(shipped_predictor())
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


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
    """A memory that saw the changes, and one that met the job as it is in the end.

    Others of the user were submitted before; strangers are submitted, start and end meanwhile. When
    all has ended both know the same of what runs.
    """

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
