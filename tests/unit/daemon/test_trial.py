"""What a cycle teaches: who is on which side, the shadow's score, and the canary's harm."""

from pathlib import Path

import numpy as np
import pytest

from rltuned.core.canary import Canary
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.evidence import block_jobs
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Rules
from rltuned.daemon.breaker import Cause, demoted
from rltuned.daemon.journal import Journal
from rltuned.daemon.outcomes import Arm
from rltuned.daemon.trial import Trial, Verdict, arms
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import UnixTime
from tests.builders import NOW, job, running, set_priority, snapshot
from tests.fakes import ConstantOrder

FRACTION = 0.5
CANARY = Ladder(rung=Rung.CANARY, fraction=FRACTION, max_errors=2)
RULES = Rules(sla_partitions=frozenset({"sla"}), canary=CANARY.canary)


def decided(seen: Snapshot, rules: Rules = RULES) -> Decision:
    return decide(seen, ConstantOrder(), Knobs(rules))


def test_chosen_jobs_are_treated_those_left_out_are_control_and_the_rest_is_neither() -> None:
    jobs = [job(i) for i in range(1, 21)]
    seen = snapshot(*jobs, job(99, partition="sla"), job(98, priority=0, held_by="user"))
    sides = arms(seen, decided(seen), RULES, Rung.CANARY)
    for one in jobs:
        treated = Canary(FRACTION).treats(one)
        assert sides[one.job_id] is (Arm.TREATED if treated else Arm.CONTROL)
    assert sides[seen.pending[-1].job_id] is not None
    assert {sides[j.job_id] for j in seen.pending if j.job_id in (98, 99)} == {Arm.OTHER}


@pytest.mark.parametrize("rung", [Rung.OBSERVE, Rung.SHADOW])
def test_while_we_only_watch_all_that_could_be_ours_are_control(rung: Rung) -> None:
    seen = snapshot(job(1), job(2, partition="sla"))
    rules = Rules(sla_partitions=frozenset({"sla"}))
    for decision in (None, decided(seen, rules)):
        assert arms(seen, decision, rules, rung) == {1: Arm.CONTROL, 2: Arm.OTHER}


def test_a_job_whose_budget_is_spent_is_treated_all_the_same() -> None:
    seen = snapshot(job(1, recent_writes=9), job(2))
    rules = Rules(max_writes_per_hour=5)
    assert arms(seen, decided(seen, rules), rules, Rung.FULL) == {1: Arm.TREATED, 2: Arm.TREATED}


class Site:
    """A partition whose jobs start after waits that we choose, one a minute."""

    def __init__(self, folder: Path) -> None:
        self.journal = Journal(folder)
        self.trial = Trial(self.journal)
        self.now = NOW
        self.number = 0

    def play(self, starts: int, wait_s: dict[bool, float], *, live: bool = True) -> Verdict:
        """So many jobs wait and then start; wait_s: of treated (True) and control jobs."""
        rng = np.random.default_rng(self.number)
        verdict = Verdict()
        for _ in range(starts):
            self.number += 1
            one = job(self.number, submitted_at=self.now - 100, user=f"u{self.number}")
            waited = wait_s[Canary(FRACTION).treats(one)] * rng.uniform(0.8, 1.25)
            self._judge(snapshot(one, taken_at=self.now), live=live)
            begun = running(
                self.number,
                started_at=UnixTime(one.submitted_at + 100 + waited),
                submitted_at=one.submitted_at,
            )
            self.now = begun.started_at + 1
            verdict = self._judge(snapshot(runs=[begun], taken_at=self.now), live=live)
            if verdict.opened:
                break
        return verdict

    def _judge(self, seen: Snapshot, *, live: bool) -> Verdict:
        return self.trial.judge(CANARY, RULES, seen, decided(seen), (), live=live)


def test_a_canary_that_waits_longer_than_its_control_opens_the_breaker(tmp_path: Path) -> None:
    site = Site(tmp_path)
    verdict = site.play(600, {True: 3_000.0, False: 300.0})
    assert verdict.opened == ("gpu",)
    assert verdict.breakers["gpu"].cause is Cause.WAIT
    assert "to 1" in verdict.breakers["gpu"].detail
    assert demoted(Journal(tmp_path), "test") == ("gpu",)


@pytest.mark.parametrize("treated_s", [300.0, 100.0])
def test_a_canary_that_waits_as_long_or_less_does_not(tmp_path: Path, treated_s: float) -> None:
    verdict = Site(tmp_path).play(300, {True: treated_s, False: 300.0})
    assert verdict.opened == ()
    assert demoted(Journal(tmp_path), "test") == ()


def test_evidence_survives_a_restart(tmp_path: Path) -> None:
    size = block_jobs(FRACTION)
    Site(tmp_path).play(4 * size, {True: 3_000.0, False: 300.0})
    before = Site(tmp_path).play(1, {True: 300.0, False: 300.0}).breakers["gpu"]
    assert before.evidence[Cause.WAIT].value > 2


def test_what_is_seen_while_nothing_may_be_written_is_no_evidence(tmp_path: Path) -> None:
    verdict = Site(tmp_path).play(300, {True: 3_000.0, False: 300.0}, live=False)
    assert verdict.breakers == {}


def test_errors_open_the_breaker_and_say_why(tmp_path: Path) -> None:
    trial = Trial(Journal(tmp_path))
    ladder = Ladder(rung=Rung.FULL, max_errors=2)
    two = [job(n, user=f"u{n}") for n in (1, 2)]
    failed = [Outcome(set_priority(one, 9), Result.FAILED, "reads back 7") for one in two]
    seen = snapshot(*two)
    first = trial.judge(ladder, Rules(), seen, decided(seen, Rules()), failed, live=True)
    assert (first.opened, first.breakers["gpu"].errors) == ((), 1)
    again = Trial(Journal(tmp_path))  # a restart does not forgive
    second = again.judge(ladder, Rules(), seen, decided(seen, Rules()), failed, live=True)
    assert second.opened == ("gpu",)
    assert "reads back 7" in second.breakers["gpu"].detail


def test_the_last_order_is_compared_with_what_started(tmp_path: Path) -> None:
    for live in (False, True):
        trial = Trial(Journal(tmp_path))
        ladder = Ladder(rung=Rung.FULL if live else Rung.SHADOW)
        before, rules = snapshot(job(1), job(2)), Rules()
        trial.judge(ladder, rules, before, decided(before, rules), (), live=live)
        runs = [running(1, started_at=NOW + 5, submitted_at=UnixTime(NOW - 600))]
        after = snapshot(job(2), runs=runs, taken_at=NOW + 60)
        verdict = trial.judge(ladder, rules, after, decided(after, rules), (), live=live)
        assert verdict.agreement is not None
        assert [s.arm for s in verdict.outcomes.started] == [Arm.TREATED if live else Arm.CONTROL]
