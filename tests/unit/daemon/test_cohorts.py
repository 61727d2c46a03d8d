"""Blocks of arrivals: who joins, what counts as a wait, and when a block is decided."""

from dataclasses import dataclass, field
from typing import Any

from rltuned.daemon.cohorts import HORIZON_S, Cohorts
from rltuned.daemon.outcomes import Arm, Started, unit_of
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.units import JobId
from tests.builders import NOW, snapshot
from tests.builders import job as built

T, C = Arm.TREATED, Arm.CONTROL


def job(number: int, **rest: Any) -> PendingJob:
    """Every job is of a user of its own, unless the test says otherwise."""
    return built(number, **{"user": f"user{number}"} | rest)


@dataclass
class Room:
    """Cohorts of two, one job a side; odd ids are treated."""

    cohorts: Cohorts = field(default_factory=lambda: Cohorts(2))
    now: float = NOW

    def look(
        self, *pending: PendingJob, starts: tuple[PendingJob, ...] = (), joining: bool = True
    ) -> list[tuple[str, float]]:
        """A look, at which these jobs are seen to have started just now."""
        begun = [
            Started(j.job_id, unit_of(j), j.partitions[0], T, self.now, 1.0, first=True)
            for j in starts
        ]
        arms = {j.job_id: T if j.job_id % 2 else C for j in pending}
        seen = snapshot(*pending, taken_at=self.now)
        return self.cohorts.look(seen, arms, begun, joining=joining)

    def later(self, seconds: float) -> "Room":
        self.now += seconds
        return self


def test_a_block_is_decided_when_all_of_it_have_started() -> None:
    room, one, two = Room(), job(1), job(2)
    assert room.look(one, two) == []
    assert room.later(60).look(one, starts=(two,)) == []
    assert room.later(60).look(starts=(one,)) == [("gpu", 1.0)]
    assert room.later(60).look() == []


def test_a_job_that_never_starts_counts_as_a_day() -> None:
    room, one, two = Room(), job(1), job(2)
    room.look(one, two)
    room.later(60).look(one, starts=(two,))
    assert room.later(HORIZON_S - 61).look(one) == []
    assert room.later(1).look(one) == [("gpu", 1.0)]


def test_two_that_wait_more_than_a_day_are_equal() -> None:
    room, one, two = Room(), job(1), job(2)
    room.look(one, two)
    assert room.later(2 * HORIZON_S).look(one, starts=(two,)) == [("gpu", 0.5)]


def test_one_that_left_without_being_seen_to_run_is_no_evidence() -> None:
    room = Room(Cohorts(4))
    jobs = [job(n) for n in (1, 2, 3, 4)]
    room.look(*jobs)
    room.later(60).look(*jobs[1:3])
    room.later(60).look(starts=(jobs[1],))
    assert room.later(60).look() == [], "3 was cancelled like 1 and 4: only one side is left"
    room.look(*(one := [job(n) for n in (5, 6, 7, 8)]))
    room.later(60).look(*one[:2])
    room.later(60).look(one[1], starts=(one[0],))
    assert room.later(60).look(starts=(one[1],)) == [("gpu", 0.0)]


def test_one_that_was_changed_is_no_evidence_and_holds_up_nobody() -> None:
    room = Room(Cohorts(4))
    jobs = [job(n) for n in (1, 2, 3, 4)]
    room.look(*jobs)
    room.later(60).look(jobs[0], starts=tuple(jobs[1:3]))
    arms = {JobId(1): T}
    seen = snapshot(jobs[0], taken_at=room.now)
    left = room.cohorts.look(seen, arms, [], joining=True, touched={unit_of(jobs[0])})
    assert left == [("gpu", 0.5)], "4 was cancelled, 1 held: 2 and 3 are compared"


def test_the_jobs_of_one_user_are_no_evidence() -> None:
    for users, verdicts in (({"alice"}, 0), ({"alice", "bob"}, 1)):
        room = Room()
        names = sorted(users)
        one, two = (job(n, user=names[n % len(names)]) for n in (1, 2))
        room.cohorts.look(snapshot(one, two), {JobId(1): T, JobId(2): C}, [], joining=True)
        assert len(room.later(60).look(starts=(one, two))) == verdicts


def test_a_block_without_one_side_says_nothing() -> None:
    room = Room()
    room.look(job(1), job(3))
    assert room.later(60).look() == []


def test_nobody_joins_while_nothing_is_written_but_the_open_blocks_go_on() -> None:
    room, one, two = Room(), job(1), job(2)
    room.look(one, two, joining=False)
    room.later(60).look(one, two)
    assert room.later(60).look(starts=(one, two), joining=False) == [("gpu", 0.5)]


def test_an_array_joins_once_and_a_job_that_is_not_in_the_trial_never() -> None:
    room = Room()
    head = job(2, array=ArrayInfo(JobId(2), 3))
    task = job(4, array=ArrayInfo(JobId(2), 1), submitted_at=head.submitted_at)
    room.look(head, task)
    room.cohorts.look(snapshot(job(9), head, task), {JobId(9): Arm.OTHER}, [], joining=True)
    assert room.later(60).look(head, task, job(1)) == []
    assert room.later(60).look(starts=(head, job(1))) == [("gpu", 0.0)]


def test_an_open_breaker_forgets_the_blocks_of_its_partition() -> None:
    room, one, two = Room(), job(1), job(2)
    room.look(one, two)
    room.cohorts.look(snapshot(one, two, demoted=("gpu",)), {}, [], joining=True)
    assert room.later(60).look(starts=(one, two)) == []


def test_partitions_have_blocks_of_their_own() -> None:
    room = Room()
    room.look(job(1, partition="a"), job(2, partition="b"))
    two, three = (job(n, partition="b") for n in (2, 3))
    room.later(60).look(three, two)
    room.later(60).look(two, starts=(three,))
    assert room.later(60).look(starts=(two,)) == [("b", 0.0)]
