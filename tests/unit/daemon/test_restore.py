"""Restoring: compare and set, never a held job, and the order of release and site factor."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.planning import undo
from rltuned.daemon.restore import (
    UNSEEN_S,
    Effort,
    Fate,
    Restored,
    persist,
    restore,
    restore_shown,
    unknown_numbers,
)
from rltuned.domain.jobs import ArrayInfo, Ownership, PendingJob
from rltuned.domain.plan import NICE, RELEASE, SITE_FACTOR, Action, Result, target_of
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import BackendError
from rltuned.journal.cycles import CycleObservation, CycleRow
from rltuned.journal.journal import Journal
from rltuned.slurm.values import AskedJob, asked_job
from tests.builders import NOW, job, noted, set_priority, set_site_factor, snapshot
from tests.fakes import NATURAL, FakeBackend, FakeClock
from tests.programs import ran

BEFORE = snapshot(job(1, priority=300, nice=7), job(2, priority=200, site_factor=40))


@pytest.fixture
def world() -> FakeBackend:
    return FakeBackend(BEFORE)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def change(world: FakeBackend, journal: Journal, *actions: Action) -> None:
    """As the daemon does it: intent, write, outcome."""
    noted(journal, *actions, by=world.apply)


def fates(items: tuple[Restored, ...]) -> dict[int, Fate]:
    return {int(r.claim.target.job_id): r.fate for r in items}


def undo_plan(
    world: FakeBackend, journal: Journal, asked: AskedJob | None = None
) -> dict[int, Fate]:
    return fates(restore(world, journal, FakeClock(), asked))


def test_priority_is_released_with_the_users_nice(world: FakeBackend, journal: Journal) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    assert world.job(1).nice == 0
    (item,) = restore(world, journal, FakeClock())
    assert item.fate is Fate.RESTORED
    assert item.detail == "priority 900 released to multifactor, nice 7 set again"
    assert (world.job(1).priority, world.job(1).nice) == (NATURAL, 7)
    assert journal.claims("test") == ()


def test_of_a_dependent_job_the_number_is_taken_back_unseen(
    world: FakeBackend, journal: Journal
) -> None:
    """Slurm shows no site factor of one: that its priority moves is all that can be read back."""
    change(world, journal, set_site_factor(world.job(2), 100))
    held = replace(world.job(2), site_factor=None, eligible_at=None, dependency="afterok:1")
    world.put(held)
    assert undo_plan(world, journal) == {2: Fate.RESTORED}
    expected = Action(SITE_FACTOR, target_of(held), 100, 40, priority=held.priority)
    assert world.plans[-1].actions == (expected,)
    assert undo(replace(held, owned=Ownership("site_factor", 100, original=40))) == expected


def test_a_value_that_backfill_put_back_is_still_ours(world: FakeBackend, journal: Journal) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    world.put(replace(world.job(1), priority=300))  # frozen at its old number
    assert undo_plan(world, journal) == {1: Fate.RESTORED}


@pytest.mark.parametrize("holder", ["user", "admin"])
def test_of_a_held_job_the_nice_is_given_back_and_nothing_else(
    world: FakeBackend, journal: Journal, holder: str
) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    held = replace(world.job(1), priority=0, held_by=holder, live=True)
    world.put(held)
    (found,) = restore(world, journal, FakeClock())
    assert world.plans[-1].actions == (Action(NICE, target_of(held), 0, 7),)
    assert world.job(1) == replace(held, nice=7)
    assert (found.fate, found.detail[:16]) == (Fate.RESTORED, "nice 7 set again")
    assert journal.is_clean()


@pytest.mark.parametrize(
    "case",
    [
        {"reason": "BadConstraints"},  # held by nobody
        {"held_by": "user", "live": False},  # priority/basic
    ],
)
def test_where_a_nice_would_free_the_job_it_is_only_reported(
    world: FakeBackend, journal: Journal, case: dict[str, object]
) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    world.put(replace(world.job(1), priority=0, **case))  # type: ignore[arg-type]
    plans = len(world.plans)
    (found,) = restore(world, journal, FakeClock())
    assert found.fate is Fate.HELD
    assert found.detail.endswith("then set its nice by: scontrol update JobId=1 Nice=7")
    assert len(world.plans) == plans


@pytest.mark.parametrize("nice", [0, 9])
def test_a_held_job_without_a_nice_to_give_back_is_not_written_to(
    journal: Journal, nice: int
) -> None:
    world = FakeBackend(snapshot(job(1, priority=300, nice=7 if nice else 0)))
    change(world, journal, set_priority(world.job(1), 900))
    world.put(replace(world.job(1), priority=0, held_by="user", live=True, nice=nice))
    plans = len(world.plans)
    assert undo_plan(world, journal) == {1: Fate.HELD}
    assert len(world.plans) == plans


def test_a_job_that_was_held_and_freed_gets_its_nice_and_keeps_its_number(
    world: FakeBackend, journal: Journal
) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    freed = replace(world.job(1), priority=350, live=True)
    world.put(freed)
    assert undo_plan(world, journal) == {1: Fate.RESTORED}
    assert world.job(1) == replace(freed, nice=7)


def test_a_nice_that_somebody_set_since_is_left_alone(world: FakeBackend, journal: Journal) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    world.put(replace(world.job(1), priority=300, live=True, nice=20))
    (found,) = restore(world, journal, FakeClock())
    assert (found.fate, found.detail) == (Fate.CHANGED, "nice is 20, it was 7 before")
    assert world.job(1).nice == 20


def test_one_job_only(world: FakeBackend, journal: Journal) -> None:
    change(world, journal, set_priority(world.job(1), 900), set_priority(world.job(2), 800))
    assert undo_plan(world, journal, asked_job("2")) == {2: Fate.RESTORED}
    assert world.job(1).priority == 900


def test_one_task_gives_back_the_record_that_holds_it(journal: Journal) -> None:
    whole = job(10, address="10_[0-3]", array=ArrayInfo(JobId(10), 4, listed="0-3"))
    part = job(12, array=ArrayInfo(JobId(10), 1, listed="4"))
    world = FakeBackend(snapshot(whole, part, job(4)))
    change(world, journal, *(set_priority(world.job(i), 900) for i in (10, 12, 4)))
    assert undo_plan(world, journal, asked_job("10_4")) == {12: Fate.RESTORED}
    assert undo_plan(world, journal, asked_job("10_2")) == {10: Fate.RESTORED}
    change(world, journal, *(set_priority(world.job(i), 800) for i in (10, 12)))
    assert undo_plan(world, journal, asked_job("10")) == dict.fromkeys((10, 12), Fate.RESTORED)
    assert world.job(4).priority == 900


def test_a_job_that_was_just_released_is_asked_for_again(
    world: FakeBackend, journal: Journal
) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    later = world.job(2)
    world.put(replace(later, site_factor=None, eligible_at=None, reason="None"))

    def after(waits: int) -> bool:
        if waits == 3:
            world.put(later)
        return False

    clock = FakeClock(after)
    items = restore(world, journal, clock, effort=Effort(math.inf))
    assert fates(items) == {2: Fate.RESTORED}
    assert clock.waits == [0.0, 1.0, 1.0]


def test_what_slurm_does_not_come_to_show_is_left_after_some_seconds(
    world: FakeBackend, journal: Journal
) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    world.put(replace(world.job(2), site_factor=None, eligible_at=None))
    clock = FakeClock()
    assert fates(restore(world, journal, clock, effort=Effort(math.inf))) == {2: Fate.UNKNOWN}
    assert clock.elapsed_s == UNSEEN_S
    clock = FakeClock()
    assert fates(restore(world, journal, clock, effort=Effort(3.0))) == {2: Fate.UNKNOWN}
    assert clock.elapsed_s == 3.0


@pytest.mark.parametrize(
    "case",
    [
        {"eligible_at": UnixTime(NOW + 3_600)},
        {"eligible_at": None, "held_by": "user", "priority": 0},
        {"eligible_at": None, "priority": 0},
    ],
)
def test_what_slurm_hides_for_good_costs_no_patience(
    world: FakeBackend, journal: Journal, case: dict[str, object]
) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    world.put(replace(world.job(2), site_factor=None, **case))  # type: ignore[arg-type]
    clock = FakeClock()
    assert fates(restore(world, journal, clock, effort=Effort(math.inf))) == {2: Fate.UNKNOWN}
    assert clock.elapsed_s == 0.0


def test_a_job_written_in_both_modes_is_released_first(
    world: FakeBackend, journal: Journal
) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    change(world, journal, set_priority(world.job(2), 900))
    assert undo_plan(world, journal) == {2: Fate.RESTORED}
    kinds = [p.actions[0].field for p in world.plans[-2:]]
    assert kinds == [RELEASE, SITE_FACTOR]
    assert world.job(2).site_factor == 40
    assert journal.claims("test") == ()


def fill(world: FakeBackend, journal: Journal, count: int) -> None:
    """So many jobs with a site factor of ours."""
    world.put(*(job(n, site_factor=0) for n in range(1, count + 1)))
    change(world, journal, *(set_site_factor(world.job(n), n) for n in range(1, count + 1)))


def test_it_goes_on_until_slurm_takes_everything(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 3)
    world.results = {1: Result.WITHHELD, 2: Result.FAILED}
    out: list[str] = []

    def after(waits: int) -> bool:
        if waits == 2:
            world.script = [BackendError("away"), world.world]
        if waits == 4:
            world.results = {}
        return False

    clock = FakeClock(after)
    items = restore(world, journal, clock, effort=Effort(math.inf, out.append))
    assert fates(items) == dict.fromkeys((1, 2, 3), Fate.RESTORED)
    assert journal.is_clean()
    assert clock.waits == [1.0, 2.0, 4.0, 8.0]  # nothing gained in between
    assert out[0].startswith("1 of 3 restored, 2 left; ")
    assert any("away; next try in 4 s" in line for line in out)


def test_told_to_stop_it_says_what_is_left(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 2)
    world.results = {2: Result.WITHHELD}
    clock = FakeClock(lambda waits: waits == 3)
    found = fates(restore(world, journal, clock, effort=Effort(math.inf)))
    assert found == {1: Fate.RESTORED, 2: Fate.FAILED}
    assert not journal.is_clean()


def test_without_patience_slurm_is_asked_once() -> None:
    asked: list[int] = []

    def refused() -> list[Restored]:
        asked.append(1)
        raise BackendError("no answer")

    with pytest.raises(BackendError, match="no answer"):
        persist(refused, FakeClock(), Effort(tell=lambda _: pytest.fail("it goes on")))
    assert len(asked) == 1


def test_patience_ends_after_the_last_gain(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 1)
    world.script = [BackendError("away")] * 100
    clock = FakeClock()
    with pytest.raises(BackendError, match="away"):
        restore(world, journal, clock, effort=Effort(100.0))
    assert 100.0 <= clock.elapsed_s < 131.0


def test_many_are_sent_in_parts_with_a_look_before_each(
    world: FakeBackend, journal: Journal
) -> None:
    fill(world, journal, 450)
    world.plans.clear()
    looks = world.observed
    assert set(undo_plan(world, journal).values()) == {Fate.RESTORED}
    assert [len(plan.actions) for plan in world.plans] == [200, 200, 50]
    assert world.observed - looks == 3


def test_what_slurm_refuses_twice_is_refused(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 1)
    world.results = {1: Result.REFUSED}
    world.plans.clear()
    clock = FakeClock(lambda waits: waits == 10)
    world.on_observe = lambda _looks: clock.advance(1.0)  # each try has its own time
    found = fates(restore(world, journal, clock, effort=Effort(math.inf)))
    assert found == {1: Fate.REFUSED}
    assert len(world.plans) == 2


@pytest.mark.parametrize(("name", "number"), [("1", 1), ("?", 0)])
def test_a_job_whose_row_cannot_be_read_stays_ours(
    world: FakeBackend, journal: Journal, name: str, number: int
) -> None:
    fill(world, journal, 2)
    hidden = world.job(1)
    world.drop(1)
    bad = Unreadable("job", name, "no submit time", JobId(number))
    world.world = replace(world.world, unreadable=(bad,))
    assert undo_plan(world, journal) == {1: Fate.UNKNOWN, 2: Fate.RESTORED}
    assert [int(c.target.job_id) for c in journal.claims("test")] == [1]
    world.put(hidden)
    world.world = replace(world.world, unreadable=())
    assert undo_plan(world, journal) == {1: Fate.RESTORED}
    assert journal.is_clean()


def test_as_shown_zeroes_site_factors_and_leaves_fixed_ones(world: FakeBackend) -> None:
    world.put(
        job(1, site_factor=9),
        job(2, site_factor=0),
        job(3, site_factor=None, priority=0, held_by="user"),
        job(4, site_factor=0, priority=77, fixed=True, nice=5),
    )
    items = restore_shown(world, FakeClock(), Effort(), fixed=False)
    assert fates(items) == {1: Fate.RESTORED}
    assert world.job(1).site_factor == 0
    assert world.job(4).priority == 77
    items = restore_shown(world, FakeClock(), Effort(), asked_job("4"), fixed=True)
    assert fates(items) == {4: Fate.RESTORED}
    assert (world.job(4).priority, world.job(4).nice) == (NATURAL, 5)
    assert world.job(3).held_by == "user"


def test_restore_needs_no_numpy() -> None:
    program = (
        "import sys; sys.modules['numpy'] = sys.modules['torch'] = None\n"
        "import rltuned.cli.restore\n"
    )
    ran(sys.executable, "-c", program)


def test_a_number_that_does_not_fit_the_journal_is_named_unless_a_daemon_has_seen_it(
    world: FakeBackend, journal: Journal
) -> None:
    """In review an older copy of the folder said "changed by another user", and 0."""
    change(world, journal, set_site_factor(world.job(2), 500))
    world.put(replace(world.job(2), site_factor=-900))
    items = restore(world, journal, FakeClock())
    assert fates(items) == {2: Fate.CHANGED}
    seen = world.look()
    found = unknown_numbers(journal, seen, items)
    assert list(found.values()) == [("2", (SITE_FACTOR, -900))]
    marked = replace(seen, pending=tuple(map(owned_by(journal), seen.pending)))
    journal.keep(CycleObservation(2, NOW, "live", marked))
    journal.record(CycleRow(2, NOW, seen.cluster, "live", "", "sjf", 2, 0, 0, 0, 0.0))
    assert unknown_numbers(journal, seen, items) == {}


def owned_by(journal: Journal) -> Callable[[PendingJob], PendingJob]:
    owned = journal.owned("test")
    return lambda one: replace(one, owned=owned.get(one.key))
