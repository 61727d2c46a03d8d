"""The trust ladder in the loop: what each stage may do, and that going down restores."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rltuned.daemon.breaker import Cause

from rltuned.core.decide import Knobs
from rltuned.core.ladder import Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.daemon import breaker
from rltuned.daemon.loop import Loop
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Result
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, running, snapshot, sure
from tests.fakes import NATURAL, ConstantOrder, FakeBackend, dealt
from tests.loops import Bench
from tests.switchback_world import switchback_at

COUNT = 40
MANY = snapshot(*(job(i, priority=1_000 - i, time_limit_s=7_200.0) for i in range(1, COUNT + 1)))
LAST_FIRST = ConstantOrder(tuple(range(COUNT, 0, -1)))


def aging(seen: Snapshot) -> Snapshot:
    """Under priority/multifactor with slurmdbd, all jobs alike."""
    pending = tuple(replace(j, priority=9_000) for j in seen.pending)
    system = PrioritySystem("multifactor", ages=True, age_weight=500_000, max_age_s=14 * 86_400.0)
    return replace(seen, pending=pending, priorities=system)


@dataclass
class Climb(Bench):
    """A loop on a rung of the ladder."""

    ladder: Ladder = field(default_factory=lambda: Ladder(rung=Rung.FULL, max_errors=2))
    budget: int | None = None
    switchback: Switchback | None = None

    def rig(self) -> Rig:
        rules = Scope(switchback=self.switchback, max_writes_per_hour=self.budget)
        return replace(super().rig(), knobs=Knobs(rules, writing=self.writing), ladder=self.ladder)

    def on(self, rung: Rung) -> "Climb":
        self.ladder = replace(self.ladder, rung=rung)
        return self

    def climb(self, loop: Loop, rung: Rung) -> None:
        """Settings with another stage are loaded."""
        self.on(rung)
        loop.rig = self.rig()

    @property
    def last(self) -> CycleReport:
        return self.received.reports[-1]

    def demoted(self) -> list[str]:
        return list(self.last.demoted)


@pytest.fixture
def climb(tmp_path: Path) -> Climb:
    return Climb(tmp_path)


def test_an_observer_asks_no_policy_and_writes_nothing(climb: Climb) -> None:
    assert climb.on(Rung.OBSERVE).loop().run(2) == 0
    assert (climb.last.mode, climb.last.decision) == (HealthState.OBSERVE, None)
    assert climb.last.verdict is not None
    assert climb.world.plans == []


def test_a_dry_run_decides_even_as_an_observer(climb: Climb) -> None:
    climb.live = False
    climb.on(Rung.OBSERVE).loop().run(1)
    assert (climb.last.mode, climb.last.proposed()) == (
        HealthState.DRY_RUN,
        {"priority": 3},
    )


def test_a_shadow_decides_and_writes_nothing(climb: Climb) -> None:
    loop = climb.on(Rung.SHADOW).loop()
    loop.cycle()
    assert (climb.last.mode, climb.last.proposed()) == (
        HealthState.SHADOW,
        {"priority": 3},
    )
    climb.clock.advance(60.0)
    begun = running(1, started_at=NOW + 30, submitted_at=climb.world.job(1).submitted_at)
    climb.world.drop(1)
    climb.world.world = replace(climb.world.world, running=(begun,), taken_at=UnixTime(NOW + 60))
    loop.cycle()
    assert climb.world.plans == []


@pytest.mark.parametrize("rung", [Rung.SHADOW, Rung.OBSERVE])
def test_going_down_gives_back_and_then_lets_go(climb: Climb, rung: Rung) -> None:
    loop = climb.loop()
    loop.cycle()
    climb.climb(loop, rung)
    loop.cycle()
    assert climb.priorities() == dict.fromkeys((1, 2, 3), NATURAL)
    assert Journal(climb.folder).claims("test") == ()
    loop.cycle()
    assert len(climb.world.plans) == 2
    Journal(climb.folder)._lock.take()


@pytest.mark.parametrize("rung", [Rung.SHADOW, Rung.OBSERVE])
def test_a_job_that_was_requeued_after_going_down_is_given_back(climb: Climb, rung: Rung) -> None:
    loop = climb.loop()
    loop.cycle()
    ran = climb.world.job(1)
    assert ran.priority == dealt(3, 2, 1)[1]
    climb.world.drop(1)
    climb.climb(loop, rung)
    loop.cycle()
    climb.world.put(replace(ran, submitted_at=UnixTime(NOW + 1), fixed=True))
    loop.cycle()
    loop.cycle()
    assert climb.priorities()[1] == NATURAL
    loop.cycle()
    Journal(climb.folder)._lock.take()


def test_a_paused_or_dry_daemon_does_not_even_give_back(climb: Climb) -> None:
    loop = climb.loop()
    loop.cycle()
    climb.climb(loop, Rung.SHADOW)
    (climb.folder / "PAUSE").touch()
    loop.cycle()
    assert climb.last.mode is HealthState.PAUSED
    loop.rig = replace(loop.rig, dry_run=True)
    loop.cycle()
    assert len(climb.world.plans) == 1


def test_a_canary_gives_back_in_an_off_block_and_orders_again_in_the_next(tmp_path: Path) -> None:
    climb = Climb(tmp_path, world=FakeBackend(aging(MANY)), policy=LAST_FIRST).on(Rung.CANARY)
    climb.switchback = switchback_at(NOW, on=True)
    before = {j.job_id: j.site_factor for j in climb.world.world.pending}
    loop = climb.loop()
    loop.cycle()
    written = {j.job_id for j in climb.world.world.pending if j.site_factor != before[j.job_id]}
    assert len(written) > COUNT / 2
    for on in (False, True, False):
        climb.switchback = switchback_at(NOW, on=on)
        loop.rig = climb.rig()
        loop.cycle()
        left = {j.job_id for j in climb.world.world.pending if j.site_factor != before[j.job_id]}
        assert left == (written if on else set())
    assert climb.last.refused() == {"off_block": COUNT}
    assert sure(climb.last.verdict).off == ("gpu",)
    loop.cycle()
    assert climb.last.proposed() == {}, "what is restored is restored once"


def test_errors_open_the_breaker_the_queue_is_restored_and_a_restart_does_not_close_it(
    climb: Climb,
) -> None:
    for number in (1, 2, 3):  # the changes to one user's jobs would open nothing
        climb.world.put(replace(climb.world.job(number), user=f"user{number}"))
    loop = climb.loop()
    loop.cycle()  # two writes are taken
    climb.world.put(replace(climb.world.job(2), priority=250))
    climb.policy = ConstantOrder((1, 2, 3))
    climb.world.results = dict.fromkeys((1, 2, 3), Result.FAILED)
    loop.rig = climb.rig()
    loop.cycle()
    assert climb.demoted() == []
    loop.cycle()
    assert climb.demoted() == ["gpu"]
    assert climb.last.demoted == ("gpu",)
    climb.world.results = {}
    loop.cycle()
    assert climb.priorities() == {1: NATURAL, 2: 250, 3: NATURAL}
    assert climb.last.refused() == {"breaker_open": 3}

    loop._journal.close()
    again = climb.loop()
    assert again.run(2) == 1, "an open breaker is no success"
    assert climb.last.proposed() == {}
    journal = Journal(climb.folder)
    assert breaker.breakers(journal, "test")["gpu"].cause is Cause.ERRORS
    assert breaker.reset(journal, "gpu", NOW) == [("test", "gpu")]
    again.cycle()
    assert climb.last.results() != {}


def test_a_job_is_written_to_so_often_an_hour_and_a_restart_does_not_forget(climb: Climb) -> None:
    climb.budget = 2
    orders = (ConstantOrder((3, 2, 1)), ConstantOrder((1, 2, 3)), ConstantOrder((3, 2, 1)))
    for policy in orders:
        climb.policy = policy
        loop = climb.loop()
        loop.cycle()
        loop._journal.close()
    assert climb.last.refused() == {"job_budget": 1}
    back, kept = dealt(3, 2, 1), dealt(1, 2, 3)
    further_back = {job: min(back[job], kept[job]) for job in kept}
    assert climb.priorities() == further_back
    climb.clock.advance(3_700.0)
    climb.world.world = replace(climb.world.world, taken_at=UnixTime(climb.clock.now()))
    climb.loop().cycle()
    assert climb.priorities() == dealt(3, 2, 1)


def test_a_breaker_state_that_cannot_be_read_stops_every_write(climb: Climb) -> None:
    Journal(climb.folder).remember("breakers", [1], NOW)
    climb.loop().run(1)
    assert climb.world.plans == []
    assert climb.last.mode is HealthState.OBSERVE
    assert "circuit breakers" in climb.last.journal_error
