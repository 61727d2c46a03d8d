"""One user tries to steer the circuit breaker and the canary: hold and release, early cancels.

Both attacks opened a partition's breaker in review. The world here is snapshots: what a user does
is done to them exactly, in every cycle.
"""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.canary import Canary
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Rules
from rltuned.daemon.journal import Journal
from rltuned.daemon.outcomes import unit_of
from rltuned.daemon.salt import FILE, kept_salt, salted
from rltuned.daemon.trial import Trial
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from rltuned.errors import SettingsError
from rltuned.settings import Flag
from rltuned.settings.source import from_flags
from tests.builders import NOW, job, running, set_priority, snapshot
from tests.fakes import ConstantOrder

CYCLE_S = 60.0
OWN_JOBS = 20
FRACTION = 0.5
CANARY = Ladder(rung=Rung.CANARY, fraction=FRACTION, max_errors=5)


def decided(seen: Snapshot, rules: Rules) -> Decision:
    return decide(seen, ConstantOrder(), Knobs(rules))


@pytest.mark.parametrize("honest", [0, 1, 5])
def test_hold_and_release_of_own_jobs_opens_no_breaker(tmp_path: Path, honest: int) -> None:
    """In review: five cycles of it on 20 own jobs."""
    ladder, rules = Ladder(rung=Rung.FULL, max_errors=5), Rules()
    trial = Trial(Journal(tmp_path))
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
        verdict = trial.judge(
            ladder, rules, seen, decided(seen, rules), [*undone, *taken], live=True
        )
        assert verdict.opened == ()
        assert "gpu" not in verdict.breakers, "not even counted"


class Queue:
    """Jobs come, wait and start alike on both sides; mallory knows who is treated."""

    def __init__(self, folder: Path) -> None:
        self.trial = Trial(Journal(folder))
        self.rules = Rules(canary=CANARY.canary)
        self.now = NOW
        self.waiting: dict[PendingJob, float] = {}
        self.runs: dict[PendingJob, float] = {}
        self.number = 0

    def cycle(self, tamper: str) -> tuple[str, ...]:
        self.now += CYCLE_S
        for user in ("mallory",) * 8 + ("alice", "bob"):
            self.number += 1
            new = job(self.number, submitted_at=UnixTime(self.now - 1), user=user)
            self.waiting[new] = self.now + CYCLE_S * 6
        for one in [j for j, at in self.waiting.items() if at <= self.now]:
            del self.waiting[one]
            self.runs[one] = self.now - 1
        self._tamper(tamper)
        self.runs = {j: at for j, at in self.runs.items() if at > self.now - 10 * CYCLE_S}
        begun = [
            running(j.job_id, started_at=UnixTime(at), submitted_at=j.submitted_at, user=j.user)
            for j, at in self.runs.items()
        ]
        seen = snapshot(*self.waiting, runs=begun, taken_at=self.now)
        verdict = self.trial.judge(
            CANARY, self.rules, seen, decided(seen, self.rules), (), live=True
        )
        return verdict.opened

    def _tamper(self, how: str) -> None:
        for one in [j for j in self.waiting if j.user == "mallory"]:
            treated = Canary(FRACTION).treats(one)
            age_s = self.now - one.submitted_at
            if how == "cancel" and age_s > (5 * CYCLE_S if treated else 3 * CYCLE_S):
                del self.waiting[one]
            elif how == "hold" and treated and not one.held_by and age_s > 2 * CYCLE_S:
                at = self.waiting.pop(one)
                self.waiting[replace(one, priority=0, held_by="user")] = at + 20 * CYCLE_S
            elif how == "nice" and treated and one.nice == 0 and age_s > CYCLE_S:
                at = self.waiting.pop(one)
                self.waiting[replace(one, nice=5_000)] = at + 20 * CYCLE_S
            elif how == "toggle" and treated and one.eligible_at == one.submitted_at:
                at = self.waiting.pop(one)
                # held and released between two looks: only its eligible time has moved
                moved = UnixTime(self.now - 1)
                self.waiting[replace(one, eligible_at=moved)] = at + 20 * CYCLE_S


@pytest.mark.parametrize("tamper", ["cancel", "hold", "nice", "toggle"])
def test_a_user_who_knows_the_lot_cannot_open_the_breaker(tmp_path: Path, tamper: str) -> None:
    """In review: 46 to 235 cycles of cancelling control jobs early and treated ones late."""
    queue = Queue(tmp_path)
    opened = [found for _ in range(300) if (found := queue.cycle(tamper))]
    assert opened == []
    assert queue.number == 3_000


def test_a_requeued_job_is_a_new_draw() -> None:
    one = job(1)
    assert unit_of(one) != unit_of(replace(one, submitted_at=UnixTime(NOW)))


def canary(folder: Path, *flags: Flag) -> object:
    state = Flag("daemon.state_dir", str(folder), "test")
    return salted(
        from_flags((state, Flag("ladder.stage", "canary", "test"), *flags))
    ).settings.ladder.canary_salt


def test_the_salt_is_drawn_once_and_is_ours_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    drawn = canary(one)
    assert isinstance(drawn, str)
    assert len(drawn) == 32
    assert canary(one) == drawn
    assert canary(two) != drawn
    assert stat.S_IMODE((one / FILE).stat().st_mode) == 0o600
    assert [p.name for p in one.iterdir()] == [FILE]
    assert canary(one, Flag("ladder.canary_salt", "chosen", "test")) == "chosen"


def test_a_salt_that_others_can_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    canary(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(SettingsError, match="others may read it"):
        canary(tmp_path)
    (tmp_path / FILE).chmod(0o600)
    (tmp_path / FILE).write_text("")
    with pytest.raises(SettingsError, match="is empty"):
        canary(tmp_path)


def test_a_command_that_looks_draws_no_salt(tmp_path: Path) -> None:
    flags = (
        Flag("daemon.state_dir", str(tmp_path), "test"),
        Flag("ladder.stage", "canary", "test"),
    )
    assert kept_salt(from_flags(flags)) is None
    assert list(tmp_path.iterdir()) == []
