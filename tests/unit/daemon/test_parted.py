"""What a task takes along when Slurm parts it from its array is known, and restored."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.daemon.restore import Fate, restore
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.plan import OVERSUBSCRIBE, Action, Plan, target_of
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, set_priority, snapshot
from tests.fakes import NATURAL, FakeBackend, FakeClock

WHOLE = job(10, priority=300, nice=7, array=ArrayInfo(JobId(10), 4, listed="0-3"))
NEWEST = 12
"""The highest id when the array was written to."""


def task(number: int, **fields: object) -> PendingJob:
    """Task 3 as a record of its own, as it is parted from the array now."""
    own = replace(WHOLE, job_id=JobId(number), address="10_3", nice=0, fixed=True)
    return replace(own, array=ArrayInfo(JobId(10), 1, listed="3"), **fields)  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def change(world: FakeBackend, journal: Journal, action: Action) -> None:
    plan = Plan((action,))
    ticket = journal.intend(plan, cluster="test", cycle=1, at=NOW, newest=NEWEST)
    journal.settle(ticket, world.apply(plan), at=NOW)


def fates(world: FakeBackend, journal: Journal) -> dict[int, Fate]:
    items = restore(world, journal, FakeClock())
    return {int(item.claim.target.job_id): item.fate for item in items}


def test_a_task_with_a_record_of_its_own_is_released_too(journal: Journal) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change(world, journal, set_priority(WHOLE, 900))
    world.put(task(13, priority=900))
    change(world, journal, replace(set_priority(world.job(10), 800), nice=7))
    assert fates(world, journal) == {10: Fate.RESTORED, 13: Fate.RESTORED}
    assert (world.job(13).priority, world.job(13).nice) == (NATURAL, 7)
    assert fates(world, journal) == {}


def test_one_that_started_and_was_requeued_is_released_too(journal: Journal) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change(world, journal, set_priority(WHOLE, 900))
    journal.close_gone("test", ())
    back = task(13, priority=900, submitted_at=UnixTime(NOW + 60), site_factor=None, fixed=False)
    world = FakeBackend(snapshot(back))
    assert fates(world, journal) == {13: Fate.RESTORED}
    assert world.job(13).nice == 7


def test_a_number_that_we_never_wrote_is_somebody_elses(journal: Journal) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change(world, journal, set_priority(WHOLE, 900))
    world.put(task(13, priority=901))
    assert fates(world, journal) == {10: Fate.RESTORED}
    assert world.job(13).priority == 901


@pytest.mark.parametrize(
    "fields", [{"priority": 0, "held_by": "user", "live": True}, {"priority": 350, "live": True}]
)
def test_a_task_that_was_held_gets_its_nice_back(
    journal: Journal, fields: dict[str, object]
) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change(world, journal, set_priority(WHOLE, 900))
    held = task(NEWEST + 1, fixed=False, **fields)
    world.put(held)
    assert fates(world, journal) == {10: Fate.RESTORED, NEWEST + 1: Fate.RESTORED}
    assert world.job(NEWEST + 1) == replace(held, nice=7)


def test_a_record_that_is_older_than_our_write_has_a_nice_of_its_own(journal: Journal) -> None:
    older = task(NEWEST, priority=0, held_by="user", live=True, fixed=False)
    world = FakeBackend(snapshot(WHOLE, older))
    change(world, journal, set_priority(WHOLE, 900))
    assert fates(world, journal) == {10: Fate.RESTORED}
    assert world.job(NEWEST) == older


def test_words_go_along(journal: Journal) -> None:
    world = FakeBackend(snapshot(replace(WHOLE, oversubscribe="NO")))
    change(world, journal, Action(OVERSUBSCRIBE, target_of(WHOLE), "NO", "YES"))
    world.put(task(13, fixed=False, priority=300, live=True, oversubscribe="YES"))
    assert fates(world, journal) == {10: Fate.RESTORED, 13: Fate.RESTORED}
    assert world.job(13).oversubscribe == "NO"


def test_it_is_known_once_and_does_not_count_as_a_change(journal: Journal) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change(world, journal, set_priority(WHOLE, 900))
    one = task(13, priority=900)
    assert len(journal.reclaim("test", [one], NOW + 60)) == 1
    assert len(journal.reclaim("test", [one], NOW + 120)) == 0
    assert journal.recent_writes("test", NOW) == {(10, WHOLE.submitted_at): 1}
