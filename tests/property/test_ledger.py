"""What is kept in memory of the journal equals what its file says, through any order of events."""

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rltuned.domain.fields import OVERSUBSCRIBE, Action, target_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Plan, Result
from rltuned.domain.units import UnixTime
from rltuned.journal.journal import Journal
from tests.builders import (
    NOW,
    job,
    numbers_in,
    release,
    set_priority,
    set_site_factor,
    sight,
    snapshot,
)
from tests.examples import examples

CLUSTER = "test"
KINDS = ("priority", "site_factor", "release", "oversubscribe")
NUMBERS = st.integers(1, 4)
RESULTS = st.sampled_from([None, *Result])


def action_of(kind: str, of: PendingJob, value: int) -> Action:
    match kind:
        case "priority":
            return set_priority(of, value)
        case "site_factor":
            return set_site_factor(of, value)
        case "oversubscribe":
            return Action(OVERSUBSCRIBE, target_of(of), "NO", "YES" if value % 2 else "NO")
        case _:
            return release(of)


class LedgerMachine(RuleBasedStateMachine):
    """Several cycles of a daemon, its restarts, and another process beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.journal = Journal(Path(self.folder.name))
        self.now = NOW
        self.submitted = dict.fromkeys(range(1, 5), NOW - 600)
        self.values = dict.fromkeys(range(1, 5), 1_000)
        self.sites = dict.fromkeys(range(1, 5), 0)

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()

    def pending(self, number: int) -> PendingJob:
        return job(
            number,
            submitted_at=self.submitted[number],
            priority=self.values[number],
            site_factor=self.sites[number],
            fixed=self.values[number] != 1_000,
        )

    @rule(
        numbers=st.sets(NUMBERS, min_size=1),
        kind=st.sampled_from(KINDS),
        value=st.integers(1, 9),
        result=RESULTS,
    )
    def write(self, numbers: set[int], kind: str, value: int, result: Result | None) -> None:
        plan = Plan(tuple(action_of(kind, self.pending(n), value) for n in sorted(numbers)))
        self._note(self.journal, plan, result)
        if result is Result.APPLIED:
            for number in numbers:
                if kind == "priority":
                    self.values[number] = value
                elif kind == "site_factor":
                    self.sites[number] = value
                elif kind == "release":
                    self.values[number] = 1_000

    @rule(number=NUMBERS, value=st.integers(1, 9))
    def another_process_writes(self, number: int, value: int) -> None:
        self.journal.let_go()
        other = Journal(Path(self.folder.name))
        self._note(other, Plan((set_site_factor(self.pending(number), value),)), Result.APPLIED)
        other.close()

    def _note(self, journal: Journal, plan: Plan, result: Result | None) -> None:
        ticket = journal.intend(plan, cluster=CLUSTER, cycle=1, at=self.now)
        if result is not None:
            outcomes = [Outcome(action, result) for action in plan.actions]
            journal.settle(ticket, outcomes, at=self.now)

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        stay = {(j.job_id, j.submitted_at) for n in range(1, 5) if n != number
                for j in [self.pending(n)]}  # fmt: skip
        self.journal.close_gone(CLUSTER, stay)

    @rule(number=NUMBERS)
    def requeue(self, number: int) -> None:
        self.submitted[number] += 1.0
        self.journal.close_gone(
            CLUSTER, {(self.pending(n).job_id, UnixTime(self.submitted[n])) for n in range(1, 5)}
        )
        self.journal.reclaim(CLUSTER, [self.pending(n) for n in range(1, 5)], self.now)

    @rule(minutes=st.integers(1, 40))
    def time_goes_by(self, minutes: int) -> None:
        self.now += 60.0 * minutes
        self.journal.keep(sight(snapshot(*map(self.pending, range(1, 5))), at=self.now))

    @rule(minutes=st.integers(1, 90))
    def the_clock_was_ahead(self, minutes: int) -> None:
        self.now -= 60.0 * minutes

    @rule()
    def restart(self) -> None:
        self.journal.close()
        self.journal = Journal(Path(self.folder.name))

    @invariant()
    def memory_is_what_the_file_says(self) -> None:
        fresh = Journal(Path(self.folder.name))
        since = self.now - 3_600.0
        assert dict(self.journal.owned(CLUSTER)) == {
            claim.key: claim.owned for claim in numbers_in(fresh)
        }
        assert dict(self.journal.words(CLUSTER, OVERSUBSCRIBE)) == {
            claim.key: (claim.original, claim.value)
            for claim in fresh.claims(CLUSTER)
            if claim.field is OVERSUBSCRIBE
        }
        assert dict(self.journal.recent_writes(CLUSTER, since, self.now)) == dict(
            fresh.recent_writes(CLUSTER, since, self.now)
        )
        fresh.close()


TestLedger = LedgerMachine.TestCase
TestLedger.settings = examples(60, stateful_step_count=25)
