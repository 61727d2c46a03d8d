"""One user tries to steer the circuit breaker and the switchback: floods, cancels, holds, changes.

Such attacks opened a partition's breaker in review. The world here is snapshots: what a user does
is done to them exactly, in every cycle.
"""

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.daemon.breaker import Cause
from rltuned.daemon.canary import CanaryStatus, Monitor
from rltuned.daemon.kept_settings import kept_salt, salted
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.journal import store
from rltuned.journal.journal import Journal
from rltuned.settings import Flag
from rltuned.settings.source import from_flags
from tests.builders import NOW, job, running, set_priority, snapshot
from tests.fakes import ConstantOrder

CYCLE_S = 60.0
STEP_S = 600.0
OWN_JOBS = 20
CANARY = Ladder(rung=Rung.CANARY, max_errors=5)
SWITCHBACK = Switchback("known to mallory")
RULES = Scope(switchback=SWITCHBACK)
AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)


def decided(seen: Snapshot, rules: Scope) -> Decision:
    return decide(seen, ConstantOrder(), Knobs(rules))


@pytest.mark.parametrize("honest", [0, 1, 5])
def test_hold_and_release_of_own_jobs_opens_no_breaker(tmp_path: Path, honest: int) -> None:
    """In review: five cycles of it on 20 own jobs."""
    ladder, rules = Ladder(rung=Rung.FULL, max_errors=5), Scope()
    monitor = Monitor(Journal(tmp_path))
    own = [job(n, user="mallory") for n in range(1, OWN_JOBS + 1)]
    others = [job(100 + n, user=f"user{n}") for n in range(honest)]
    for cycle in range(50):
        seen = snapshot(*own, *others, taken_at=NOW + CYCLE_S * cycle)
        # every write to mallory's jobs is found undone: some held, some free again
        undone = [
            Outcome(set_priority(j, 9), Result.REFUSED, HELD)
            if j.job_id % 2
            else Outcome(set_priority(j, 9), Result.FAILED, "Priority is 7")
            for j in own
        ]
        taken = [Outcome(set_priority(j, 9), Result.APPLIED) for j in others]
        monitor.look(seen)
        verdict = monitor.judge(
            ladder, rules, seen, decided(seen, rules), [*undone, *taken], live=True
        )
        assert verdict.opened == ()
        assert "gpu" not in verdict.breakers, "not even counted"


class Queue:
    """Honest users' jobs wait alike in all blocks; mallory knows the blocks and acts by them."""

    def __init__(self, folder: Path) -> None:
        self.monitor = Monitor(Journal(folder))
        self.now = NOW
        self.waiting: dict[PendingJob, float] = {}
        self.runs: list[RunningJob] = []
        self.number = 0

    def cycle(self, attack: str) -> CanaryStatus:
        self.now += STEP_S
        on = SWITCHBACK.block("gpu", self.now - 1).on
        flood = 8 if attack == "flood" and on else 1
        for user in ("mallory",) * flood + ("alice", "bob", "carol"):
            self.number += 1
            new = job(self.number, submitted_at=UnixTime(self.now - 1), user=user)
            # whole nodes in on blocks, and the smallest jobs in off blocks
            is_long = attack == "flood" and user == "mallory" and on
            self.waiting[new] = self.now + (20_000.0 if is_long else 3_000.0)
        self._tamper(attack, on=on)
        begun = [one for one, at in self.waiting.items() if at <= self.now]
        self.runs = [
            running(j.job_id, started_at=self.waiting[j], submitted_at=j.submitted_at, user=j.user)
            for j in begun
        ]
        for one in begun:
            del self.waiting[one]
        seen = snapshot(*self.waiting, runs=self.runs, taken_at=self.now, priorities=AGING)
        self.monitor.look(seen)
        return self.monitor.judge(CANARY, RULES, seen, None, (), live=True, model="one")

    def _tamper(self, how: str, *, on: bool) -> None:
        """Mallory's own jobs that still wait, ten to twenty minutes after they came."""
        for one in [j for j in self.waiting if j.user == "mallory"]:
            age_s = self.now - one.submitted_at
            if how == "cancel" and age_s > (2_400.0 if on else 600.0):
                del self.waiting[one]
            elif how == "hold" and on and not one.held_by and 600.0 < age_s < 1_200.0:
                at = self.waiting.pop(one)
                self.waiting[replace(one, priority=0, held_by="user")] = at + 30_000.0
            elif how == "nice" and on and one.nice == 0 and 600.0 < age_s < 1_200.0:
                at = self.waiting.pop(one)
                self.waiting[replace(one, nice=5_000)] = at + 30_000.0
            elif how == "toggle" and on and one.eligible_at == one.submitted_at:
                at = self.waiting.pop(one)
                # held and released between two looks: only its eligible time has moved
                moved = UnixTime(self.now - 1)
                self.waiting[replace(one, eligible_at=moved)] = at + 30_000.0


@pytest.mark.parametrize("attack", ["flood", "cancel", "hold", "nice", "toggle"])
def test_a_user_who_knows_the_blocks_cannot_open_the_breaker(tmp_path: Path, attack: str) -> None:
    """In review one user opened it within 46 to 235 cycles, with jobs of the own alone."""
    queue = Queue(tmp_path)
    verdicts = [queue.cycle(attack) for _ in range(5 * 144)]
    assert [v.opened for v in verdicts if v.opened] == []
    known = verdicts[-1].breakers["gpu"]
    assert known.waits.pairs > 8
    assert {cause: found.value <= 1.0 + 1e-9 for cause, found in known.harm.items()} == {
        Cause.WAIT: True,
        Cause.SLOWDOWN: True,
    }


def salt_of(journal: Journal, *flags: Flag, stage: str = "canary") -> str:
    given = from_flags((Flag("ladder.stage", stage, "test"), *flags))
    return salted(given, journal, NOW).settings.ladder.canary_salt


def test_the_salt_is_drawn_once_and_kept_in_the_journal(tmp_path: Path) -> None:
    one, two = (Journal(tmp_path / name) for name in ("one", "two"))
    for journal in (one, two):
        journal.path.parent.mkdir()
    drawn = salt_of(one)
    assert len(drawn) == 32
    assert salt_of(one) == salt_of(Journal(tmp_path / "one")) == drawn
    assert salt_of(two) != drawn
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    assert salt_of(one, Flag("ladder.canary_salt", "chosen", "test")) == "chosen"
    assert salt_of(one, stage="full") == ""
    share = Flag("ladder.full_off_share", 0.1, "test")
    assert salt_of(one, share, stage="full") == drawn
    with closing(sqlite3.connect(one.path)) as db:
        assert store.get(db, store.SALT) == drawn
    assert one.pack("test", 0) == ((), ()), "another host has its own"


def test_a_journal_that_cannot_be_used_gives_a_salt_for_this_process_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "nowhere" / "at all")
    assert len(salt_of(journal)) == 32
    assert salt_of(journal) != salt_of(journal)


def test_a_command_that_looks_draws_no_salt(tmp_path: Path) -> None:
    given = from_flags((Flag("ladder.stage", "canary", "test"),))
    assert kept_salt(given, Journal(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []
