"""Restoring: compare and set, never a held job, parted tasks, and OverSubscribe's way back."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.core.decide import Knobs, decide, undo_plan
from rltuned.core.ladder import Switchback
from rltuned.core.milp import Sharing, Tuning
from rltuned.core.planning import undo
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.daemon.restore import (
    UNSEEN_S,
    Effort,
    Fate,
    Restored,
    restore,
    restore_shown,
)
from rltuned.domain.jobs import ArrayInfo, Ownership, PendingJob
from rltuned.domain.plan import (
    NICE,
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Field,
    Plan,
    Result,
    target_of,
)
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Context, Unreadable
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.values import AskedJob, asked_job
from tests.builders import (
    NOW,
    job,
    marked_by,
    noted,
    request,
    set_priority,
    set_site_factor,
    snapshot,
)
from tests.fakes import NATURAL, FakeBackend, FakeClock
from tests.loops import Bench

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


def after_restore(
    world: FakeBackend, journal: Journal, asked: AskedJob | None = None
) -> dict[int, Fate]:
    return fates(restore(world, journal, FakeClock(), asked))


HELD = {"priority": 0, "held_by": "user", "live": True}
NICE_AGAIN = (Fate.RESTORED, "nice 7 set again", NICE)
STATES: list[tuple[dict[str, Any], tuple[Fate, str, Field | None]]] = [
    ({}, (Fate.RESTORED, "priority 900 released to multifactor, nice 7 set again", RELEASE)),
    ({"priority": 300}, (Fate.RESTORED, "", RELEASE)),  # backfill put its old number back
    (HELD, NICE_AGAIN),
    ({**HELD, "held_by": "admin"}, NICE_AGAIN),
    ({"priority": 350, "live": True}, NICE_AGAIN),  # held, and freed since
    ({"priority": 0, "reason": "BadConstraints"}, (Fate.HELD, "JobId=1 Nice=7", None)),  # by nobody
    ({**HELD, "live": False}, (Fate.HELD, "JobId=1 Nice=7", None)),  # basic: a nice would free it
    ({"priority": 300, "live": True, "nice": 20}, (Fate.CHANGED, "it was 7 before", None)),
]
"""What becomes of a job of nice 7 with a priority of ours; its fate, and the field written last."""


@pytest.mark.parametrize(("since", "fate"), STATES)
def test_a_priority_and_the_nice_beside_it_are_given_back_as_the_job_stands(
    world: FakeBackend,
    journal: Journal,
    since: dict[str, Any],
    fate: tuple[Fate, str, Field | None],
) -> None:
    change(world, journal, set_priority(world.job(1), 900))
    assert world.job(1).nice == 0
    now = replace(world.job(1), **since)
    world.put(now)
    plans = len(world.plans)
    (found,) = restore(world, journal, FakeClock())
    assert found.fate is fate[0]
    assert fate[1] in found.detail
    assert [p.actions[-1].field for p in world.plans[plans:]] == ([fate[2]] if fate[2] else [])
    if fate[2] == RELEASE:
        assert (world.job(1).priority, world.job(1).nice) == (NATURAL, 7)
    else:  # a held job stays held
        assert world.job(1) == (replace(now, nice=7) if fate[2] else now)
    assert journal.is_clean() == bool(fate[2])


def test_a_dependent_job_gives_its_number_back_unseen(world: FakeBackend, journal: Journal) -> None:
    """Slurm shows no site factor of one: that its priority moves is all that can be read back."""
    change(world, journal, set_site_factor(world.job(2), 100))
    held = replace(world.job(2), site_factor=None, eligible_at=None, dependency="afterok:1")
    world.put(held)
    assert after_restore(world, journal) == {2: Fate.RESTORED}
    expected = Action(SITE_FACTOR, target_of(held), 100, 40, priority=held.priority)
    assert world.plans[-1].actions == (expected,)
    assert undo(replace(held, owned=Ownership("site_factor", 100, original=40))) == expected


def test_one_task_gives_back_the_record_that_holds_it(journal: Journal) -> None:
    whole = job(10, address="10_[0-3]", array=ArrayInfo(JobId(10), 4, listed="0-3"))
    part = job(12, array=ArrayInfo(JobId(10), 1, listed="4"))
    world = FakeBackend(snapshot(whole, part, job(4)))
    change(world, journal, *(set_priority(world.job(i), 900) for i in (10, 12, 4)))
    assert after_restore(world, journal, asked_job("10_4")) == {12: Fate.RESTORED}
    assert after_restore(world, journal, asked_job("10_2")) == {10: Fate.RESTORED}
    change(world, journal, *(set_priority(world.job(i), 800) for i in (10, 12)))
    assert after_restore(world, journal, asked_job("10")) == dict.fromkeys((10, 12), Fate.RESTORED)
    assert world.job(4).priority == 900


@pytest.mark.parametrize(
    ("case", "patience_s", "waited_s"),
    [
        ({"eligible_at": None}, math.inf, UNSEEN_S),
        ({"eligible_at": None}, 3.0, 3.0),
        # hidden for good
        ({"eligible_at": UnixTime(NOW + 3_600)}, math.inf, 0.0),
        ({"eligible_at": None, "held_by": "user", "priority": 0}, math.inf, 0.0),
        ({"eligible_at": None, "priority": 0}, math.inf, 0.0),
    ],
)
def test_what_slurm_does_not_show_costs_some_seconds_and_none_where_it_never_will(
    world: FakeBackend, journal: Journal, case: dict[str, Any], patience_s: float, waited_s: float
) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    world.put(replace(world.job(2), site_factor=None, **case))
    clock = FakeClock()
    found = fates(restore(world, journal, clock, effort=Effort(patience_s)))
    assert (found, clock.elapsed_s) == ({2: Fate.UNKNOWN}, waited_s)


def test_one_written_in_both_modes_is_released_first(world: FakeBackend, journal: Journal) -> None:
    change(world, journal, set_site_factor(world.job(2), 500))
    change(world, journal, set_priority(world.job(2), 900))
    assert after_restore(world, journal) == {2: Fate.RESTORED}
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


def test_patience_ends_after_the_last_gain(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 1)
    world.script = [BackendError("away")] * 100
    clock = FakeClock()
    with pytest.raises(BackendError, match="away"):
        restore(world, journal, clock, effort=Effort(100.0))
    assert 100.0 <= clock.elapsed_s < 131.0


def test_many_go_in_parts_with_a_look_before_each(world: FakeBackend, journal: Journal) -> None:
    fill(world, journal, 450)
    world.plans.clear()
    looks = world.observed
    assert set(after_restore(world, journal).values()) == {Fate.RESTORED}
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


def test_what_slurm_refuses_keeps_nothing_else_from_its_turn(
    world: FakeBackend, journal: Journal
) -> None:
    """More than one pass takes: it ends, the others are restored, and each line has the reason."""
    fill(world, journal, 450)
    world.results = dict.fromkeys(range(1, 431), Result.REFUSED)
    said: list[str] = []
    clock = FakeClock(lambda waits: waits == 30)
    world.on_observe = lambda _looks: clock.advance(1.0)
    found = fates(restore(world, journal, clock, effort=Effort(math.inf, tell=said.append)))
    assert {number for number, fate in found.items() if fate is Fate.RESTORED} == {*range(431, 451)}
    assert {fate for number, fate in found.items() if number <= 430} == {Fate.REFUSED}
    assert len(clock.waits) < 10
    assert all("; " in line for line in said)


@pytest.mark.parametrize(("name", "number"), [("1", 1), ("?", 0)])
def test_a_job_with_an_unreadable_row_stays_ours(
    world: FakeBackend, journal: Journal, name: str, number: int
) -> None:
    fill(world, journal, 2)
    hidden = world.job(1)
    world.drop(1)
    bad = Unreadable("job", name, "no submit time", JobId(number))
    world.world = replace(world.world, unreadable=(bad,))
    assert after_restore(world, journal) == {1: Fate.UNKNOWN, 2: Fate.RESTORED}
    assert [int(c.target.job_id) for c in journal.claims("test")] == [1]
    world.put(hidden)
    world.world = replace(world.world, unreadable=())
    assert after_restore(world, journal) == {1: Fate.RESTORED}
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


THREE = snapshot(job(1, priority=300, nice=7), job(2, priority=200), job(3, priority=100))


@pytest.mark.parametrize("holder", ["user", "admin"])
def test_the_next_cycle_gives_the_nice_back_and_never_frees(tmp_path: Path, holder: str) -> None:
    bench = Bench(tmp_path, world=FakeBackend(THREE))
    loop = bench.loop()
    loop.run(1)
    held = replace(bench.world.job(1), priority=0, held_by=holder, live=True)
    bench.world.put(held)
    report = loop.cycle()
    assert Action(NICE, target_of(held), 0, 7) in bench.world.plans[-1].actions
    assert report.applied()["release", Result.APPLIED] == 1
    assert bench.world.job(1) == replace(held, nice=7)
    assert 1 not in {key[0] for key in Journal(tmp_path).owned("test")}
    plans = len(bench.world.plans)
    loop.cycle()
    assert not any(a.target.job_id == 1 for p in bench.world.plans[plans:] for a in p.actions)
    freed = replace(bench.world.job(1), priority=290, held_by="", live=True)
    bench.world.put(freed)
    loop.cycle()
    (again,) = [a for a in bench.world.plans[-1].actions if a.target.job_id == 1]
    assert again.field is PRIORITY
    assert again.nice == 7


OURS = Ownership("priority", 900, nice=7, original=300, earlier=(300,))
NOT_A_NUMBER = replace(OURS, field="site_factor")
BARE = job(1, priority=900, nice=0, owned=OURS)


@pytest.mark.parametrize(
    "case",
    [
        {"priority": 0, "held_by": "user", "live": True, "nice": 9},
        {"priority": 0, "held_by": "user"},
        {"priority": 0, "held_by": "user", "live": True, "owned": replace(OURS, nice=0)},
        {"priority": 0, "held_by": "user", "live": True, "owned": NOT_A_NUMBER},
        {"priority": 0, "reason": "BadConstraints"},
        {"priority": 5_000, "fixed": True},
        {"priority": 5_000},
    ],
)
def test_nothing_is_done_where_the_nice_is_not_ours_to_set(case: dict[str, object]) -> None:
    assert undo(replace(BARE, **case)) is None  # type: ignore[arg-type]


WHOLE = job(10, priority=300, nice=7, array=ArrayInfo(JobId(10), 4, listed="0-3"))
NEWEST = 12
"""The highest id when the array was written to."""


def task(number: int, **fields: object) -> PendingJob:
    """Task 3 as a record of its own, as it is parted from the array now."""
    own = replace(WHOLE, job_id=JobId(number), address="10_3", nice=0, fixed=True)
    return replace(own, array=ArrayInfo(JobId(10), 1, listed="3"), **fields)  # type: ignore[arg-type]


def change_of_task(world: FakeBackend, journal: Journal, action: Action) -> None:
    plan = Plan((action,))
    ticket = journal.intend(plan, cluster="test", cycle=1, at=NOW, newest=NEWEST)
    journal.settle(ticket, world.apply(plan), at=NOW)


FREED = {"priority": 350, "live": True}
TASKS: list[tuple[PendingJob, dict[str, Any] | None]] = [
    (task(13, priority=900), {"priority": NATURAL, "nice": 7}),
    (task(13, priority=901), None),  # a number that rltuned never wrote
    (task(13, fixed=False, **HELD), {"nice": 7}),
    (task(13, fixed=False, **FREED), {"nice": 7}),
    (task(NEWEST, fixed=False, **HELD), None),  # older than the write: its nice is its own
]


@pytest.mark.parametrize(("parted", "given"), TASKS)
def test_a_task_that_was_parted_from_its_array_is_given_back_too(
    journal: Journal, parted: PendingJob, given: dict[str, Any] | None
) -> None:
    world = FakeBackend(snapshot(WHOLE))
    change_of_task(world, journal, set_priority(WHOLE, 900))
    world.put(parted)
    ours = (10, int(parted.job_id)) if given else (10,)
    assert after_restore(world, journal) == dict.fromkeys(ours, Fate.RESTORED)
    assert world.job(parted.job_id) == replace(parted, **(given or {}))
    assert after_restore(world, journal) == {}


def test_words_go_along(journal: Journal) -> None:
    world = FakeBackend(snapshot(replace(WHOLE, oversubscribe="NO")))
    change_of_task(world, journal, Action(OVERSUBSCRIBE, target_of(WHOLE), "NO", "YES"))
    world.put(task(13, fixed=False, priority=300, live=True, oversubscribe="YES"))
    assert after_restore(world, journal) == {10: Fate.RESTORED, 13: Fate.RESTORED}
    assert world.job(13).oversubscribe == "NO"


def exclusive(job_id: int = 1, flag: str = "NO") -> PendingJob:
    return job(job_id, asks=request(exclusive=flag == "NO"), oversubscribe=flag, user="ann")


def set_flag(of: PendingJob, new: str) -> Action:
    return Action(OVERSUBSCRIBE, target_of(of), of.oversubscribe, new)


def flag_of(world: FakeBackend, job_id: int = 1) -> str:
    return world.job(job_id).oversubscribe


AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)
SHARING = Knobs(
    rules=Scope(min_age_s=0.0), placement="milp", tuning=Tuning(sharing=Sharing(frozenset({"gpu"})))
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
def test_what_guidance_leaves_is_isolated_again(
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


@pytest.mark.parametrize(
    ("old", "new", "now", "says"),
    [
        ("NO", "YES", "NO", "OverSubscribe is NO, rltuned wrote YES"),  # somebody else's
        ("OK", "NO", "NO", "OverSubscribe=OK cannot be set"),
        ("USER", "YES", "YES", "OverSubscribe=USER cannot be set"),
    ],
)
def test_a_word_that_is_not_ours_or_that_slurm_does_not_take_stays(
    journal: Journal, old: str, new: str, now: str, says: str
) -> None:
    world = FakeBackend(snapshot(exclusive(flag=old)))
    noted(journal, set_flag(exclusive(flag=old), new), by=world.apply)
    world.put(exclusive(flag=now))
    assert not undo_plan(marked_by(journal, world.world)).actions
    (item,) = restore(world, journal, FakeClock())
    assert item.fate is Fate.CHANGED
    assert says in item.detail
