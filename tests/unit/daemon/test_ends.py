"""What looks show of the ends of jobs, and what they do not."""

from collections.abc import Sequence

import pytest

from rltuned.daemon.ends import SeenEnds
from rltuned.domain.jobs import EndedJob, PendingJob, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, running, snapshot

BEGAN = NOW - 1_200.0


class Looks:
    """A minute from look to look, or as long as is given."""

    def __init__(self) -> None:
        self.ends, self.now = SeenEnds(), NOW

    def look(
        self,
        *runs: RunningJob,
        waits: Sequence[PendingJob] = (),
        later_s: float = 60.0,
        **rest: object,
    ) -> list[tuple[int, float]]:
        return [
            (e.job_id, e.run_s) for e in self.found(*runs, waits=waits, later_s=later_s, **rest)
        ]

    def found(
        self,
        *runs: RunningJob,
        waits: Sequence[PendingJob] = (),
        later_s: float = 60.0,
        **rest: object,
    ) -> tuple[EndedJob, ...]:
        self.now += later_s
        return self.ends.look(snapshot(*waits, runs=runs, taken_at=self.now, **rest))  # type: ignore[arg-type]


def test_a_job_that_is_gone_ended_halfway_between_the_looks() -> None:
    looks = Looks()
    kinds = Kinds(name=7)
    run = running(5, submitted_at=UnixTime(BEGAN - 9), kinds=kinds, qos="high")
    assert looks.look(run) == []
    (ended,) = looks.found()
    assert (ended.job_id, ended.run_s, ended.kinds, ended.qos) == (5, 1_290.0, kinds, "high")
    assert (ended.submitted_at, ended.started_at) == (BEGAN - 9, BEGAN)
    assert looks.look() == []


def test_none_ends_later_than_at_its_limit() -> None:
    looks = Looks()
    looks.look(running(5, time_limit_s=1_270.0))
    assert looks.look() == [(5, 1_270.0)]


@pytest.mark.parametrize(
    ("ran_s", "apart_s", "known"),
    [(60.0, 600.0, True), (60.0, 601.0, False), (7_000.0, 690.0, True), (7_000.0, 710.0, False)],
)
def test_looks_that_lie_far_apart_show_no_end(ran_s: float, apart_s: float, known: bool) -> None:
    looks = Looks()
    looks.look(running(5, started_at=NOW + 60.0 - ran_s, time_limit_s=None))
    assert bool(looks.look(later_s=apart_s)) is known
    assert looks.look() == []


def test_a_requeued_job_teaches_nothing() -> None:
    looks = Looks()
    looks.look(running(5), running(6))
    assert looks.look(running(6, started_at=looks.now + 50), waits=[job(5)]) == []
    assert looks.look(running(6, started_at=looks.now - 10)) == []


def test_a_job_that_completes_ended_when_it_ran_no_more() -> None:
    looks = Looks()
    looks.look(running(5))
    assert looks.look(lingering=(JobId(5),)) == []
    assert [job.job_id for job in looks.ends.undecided] == [5]
    assert looks.look() == [(5, 1_290.0)]


def test_a_suspended_job_teaches_nothing_though_it_runs_on() -> None:
    looks = Looks()
    looks.look(running(5))
    looks.look(lingering=(JobId(5),))
    assert looks.look(running(5)) == []
    assert looks.look() == []
    looks.look(running(6))
    for _ in range(12):
        assert looks.look(lingering=(JobId(6),)) == []
    assert looks.look() == []


def test_a_row_that_cannot_be_read_is_no_end() -> None:
    looks = Looks()
    looks.look(running(5), running(6))
    odd = Unreadable("job", "5", "odd", JobId(5))
    assert looks.look(unreadable=(odd,)) == [(6, 1_290.0)]
    assert looks.look(running(5)) == []
    looks.look(running(7))
    assert looks.look(unreadable=(Unreadable("job", "", "whose row?"),)) == []
    assert looks.look() == [(7, 1_470.0)]


def test_another_cluster_or_a_clock_that_goes_back_starts_again() -> None:
    looks = Looks()
    looks.look(running(5))
    assert looks.look(cluster="other") == []
    looks.look(running(6), cluster="other")
    assert looks.look(later_s=-500.0, cluster="other") == []
