"""OverSubscribe in the journal, and its way back."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide, undo_plan
from rltuned.core.ladder import Switchback
from rltuned.core.milp import Sharing, Tuning
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import OVERSUBSCRIBE, PRIORITY, Action, Plan, Result, target_of
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Context
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, marked_by, noted, request, set_priority, snapshot
from tests.fakes import FakeBackend, FakeClock


def exclusive(job_id: int = 1, flag: str = "NO") -> PendingJob:
    return job(job_id, asks=request(exclusive=flag == "NO"), oversubscribe=flag, user="ann")


def set_flag(of: PendingJob, new: str) -> Action:
    return Action(OVERSUBSCRIBE, target_of(of), of.oversubscribe, new)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def flag_of(world: FakeBackend, job_id: int = 1) -> str:
    return world.job(job_id).oversubscribe


AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)
SHARING = Knobs(
    rules=Scope(min_age_s=0.0),
    placement="milp",
    tuning=Tuning(sharing=Sharing(frozenset({"gpu"}))),
)


def shared_job(journal: Journal) -> FakeBackend:
    """A queue of one job, which rltuned has set to share."""
    world = FakeBackend(snapshot(exclusive()))
    noted(journal, set_flag(exclusive(), "YES"), by=world.apply)
    return world


def isolating(world: FakeBackend, journal: Journal, knobs: Knobs, demoted: str = "") -> Plan:
    """What of a cycle's plan sets OverSubscribe."""
    context = Context(demoted=(demoted,) if demoted else ())
    seen = marked_by(journal, world.world)
    plan = decide(seen, BASELINES["delay"], knobs, context=context).plan
    return Plan(tuple(a for a in plan.actions if a.field is OVERSUBSCRIBE))


@pytest.mark.parametrize(
    ("knobs", "demoted"),
    [
        (SHARING, "gpu"),
        (replace(SHARING, rules=Scope(sla_partitions=frozenset({"gpu"}))), ""),
        (replace(SHARING, rules=Scope(excluded_users=frozenset({"ann"}))), ""),
        (replace(SHARING, tuning=Tuning()), ""),
        (replace(SHARING, placement="pack"), ""),
    ],
    ids=["breaker", "sla", "user", "scope", "placement"],
)
def test_a_job_that_guidance_leaves_is_isolated_again(
    journal: Journal, knobs: Knobs, demoted: str
) -> None:
    world = shared_job(journal)
    assert not isolating(world, journal, SHARING).actions
    plan = isolating(world, journal, knobs, demoted)
    assert plan.actions == (Action(OVERSUBSCRIBE, target_of(exclusive()), "YES", "NO"),)
    noted(journal, *plan.actions, by=world.apply)
    assert flag_of(world) == "NO"
    assert journal.is_clean()
    assert not isolating(world, journal, knobs, demoted).actions


def test_a_lower_stage_isolates_it_again(journal: Journal) -> None:
    world = shared_job(journal)
    assert undo_plan(marked_by(journal, world.world)).actions == (
        Action(OVERSUBSCRIBE, target_of(exclusive()), "YES", "NO"),
    )


def test_an_off_block_and_a_hold_leave_it_as_it_is(journal: Journal) -> None:
    world = shared_job(journal)
    off = next(s for s in map(Switchback, "abcdefgh") if s.off(("gpu",), NOW))
    knobs = replace(SHARING, rules=Scope(min_age_s=0.0, switchback=off))
    world.world = replace(world.world, priorities=AGING)
    world.put(replace(world.job(1), site_factor=0, live=True))
    assert not isolating(world, journal, knobs).actions
    refused = decide(marked_by(journal, world.world), BASELINES["delay"], knobs).refused
    assert refused == ((1, Refusal.OFF_BLOCK),)
    world.put(replace(world.job(1), priority=0, held_by="user"))
    assert not isolating(world, journal, SHARING).actions


@pytest.mark.parametrize("word", ["OK", "USER"])
def test_a_word_that_slurm_does_not_take_stays_unwritten(journal: Journal, word: str) -> None:
    world = FakeBackend(snapshot(exclusive(flag=word)))
    noted(journal, set_flag(exclusive(flag=word), "YES"), by=world.apply)
    assert not undo_plan(marked_by(journal, world.world)).actions


def test_a_flag_that_somebody_else_changed_is_left_alone(journal: Journal) -> None:
    world = FakeBackend(snapshot(exclusive()))
    noted(journal, set_flag(exclusive(), "YES"), by=world.apply)
    world.put(exclusive(flag="NO"))
    assert not undo_plan(marked_by(journal, world.world)).actions
    (item,) = restore(world, journal, FakeClock())
    assert item.fate is Fate.CHANGED
    assert "OverSubscribe is NO, rltuned wrote YES" in item.detail


def test_ok_cannot_be_set_and_is_reported(journal: Journal) -> None:
    free = job(1, oversubscribe="OK")
    world = FakeBackend(snapshot(free))
    noted(journal, Action(OVERSUBSCRIBE, target_of(free), "OK", "NO"), by=world.apply)
    (item,) = restore(world, journal, FakeClock())
    assert (item.fate, item.detail) == (Fate.CHANGED, "OverSubscribe=OK cannot be set")


def test_flags_and_numbers_go_through_one_plan(journal: Journal) -> None:
    one = exclusive()
    world = FakeBackend(snapshot(one))
    noted(journal, set_flag(one, "YES"), set_priority(one, 77), by=world.apply)
    fates = {item.claim.field: item.fate for item in restore(world, journal, FakeClock())}
    assert fates == {OVERSUBSCRIBE: Fate.RESTORED, PRIORITY: Fate.RESTORED}


def test_every_try_counts_against_the_jobs_budget_for_an_hour(journal: Journal) -> None:
    one = exclusive()
    counts: list[int] = []
    for at in (0.0, 60.0, 120.0, 4_000.0):
        noted(journal, set_flag(one, "YES"), by=Result.REFUSED, at=NOW + at)
        counts += journal.recent_writes("test", NOW + at - 3_600).values()
    assert counts == [1, 2, 3, 1]
