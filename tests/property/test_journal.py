"""The diary against a model of it, through any order of writes, crashes and re-openings."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Action, Outcome, Plan, Result
from rltuned.journal.journal import Journal
from rltuned.journal.owned import KEPT
from rltuned.journal.retention import Keeping
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

JOBS = st.integers(1, 3)
VALUES = st.integers(1, 50)
RESULTS = st.sampled_from([None, *Result])
"""None = the process died before the outcome could be noted."""
CLUSTER = "test"


class JournalMachine(RuleBasedStateMachine):
    """`open` is what the diary must know: (job, field) -> (first old value, all values written).
    `left` is who left the queue with something of ours -> since when Slurm is known not to show
    the job any more; None = it may still requeue it. `away` is what it left with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.journal = Journal(Path(self.folder.name))
        self.open: dict[tuple[int, str], tuple[int, list[int]]] = {}
        self.left: dict[int, float | None] = {}
        self.away: dict[int, dict[tuple[int, str], tuple[int, list[int]]]] = {}
        self.days = 0
        self.priority = {i: 1000 + i for i in range(1, 4)}
        self.site = dict.fromkeys(range(1, 4), 0)

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()

    @rule(number=JOBS, value=VALUES, result=RESULTS)
    def write_priority(self, number: int, value: int, result: Result | None) -> None:
        old = self.priority[number]
        self._write(set_priority(self._job(number), value), result)
        self._expect(number, "priority", old, value, result)
        if result is Result.APPLIED:
            self.priority[number] = value

    @rule(number=JOBS, value=VALUES, result=RESULTS)
    def write_site_factor(self, number: int, value: int, result: Result | None) -> None:
        old = self.site[number]
        self._write(set_site_factor(self._job(number), value), result)
        self._expect(number, "site_factor", old, value, result)
        if result is Result.APPLIED:
            self.site[number] = value
            first, _ = self.open[number, "site_factor"]
            if first == value:
                del self.open[number, "site_factor"]

    @rule(number=JOBS, result=RESULTS)
    def undo_plan(self, number: int, result: Result | None) -> None:
        self._write(release(self._job(number)), result)
        if result is Result.APPLIED:
            self.open.pop((number, "priority"), None)
        elif result is Result.GONE:
            self._gone(number)

    @rule(number=JOBS)
    def leave_the_queue(self, number: int) -> None:
        stay = [self._job(i) for i in range(1, 4) if i != number]
        self.journal.close_gone(CLUSTER, {(j.job_id, j.submitted_at) for j in stay})
        self._gone(number)

    @rule()
    def crash_and_open_again(self) -> None:
        self.journal.close()
        self.journal = Journal(Path(self.folder.name))

    @rule(number=JOBS)
    def forget_by_size(self, number: int) -> None:
        self._keep(number, Keeping(days=1e6, max_mib=0.0), NOW)

    @rule(number=JOBS)
    def forget_by_age(self, number: int) -> None:
        self.days += 200
        now = NOW + self.days * 86_400.0
        self._keep(number, Keeping(days=1.0), now)
        ended = [n for n, at in self.left.items() if at is not None and at < now - 86_400.0]
        for job_number in ended:  # Slurm forgot it a day ago or longer
            del self.left[job_number], self.away[job_number]

    @invariant()
    def claims_are_what_was_written(self) -> None:
        claims = {(int(c.target.job_id), c.field.name): c for c in numbers_in(self.journal)}
        assert claims.keys() == self.open.keys()
        for key, (first, written) in self.open.items():
            owned = claims[key].owned
            assert (owned.original, owned.value) == (first, written[-1])
            assert {first, *written[-KEPT:]} <= {owned.value, *owned.earlier}
        assert self.journal.is_clean() == (not self.open and not self.left)

    def _keep(self, number: int, keeping: Keeping, at: float) -> None:
        self.journal.close()
        self.journal = Journal(Path(self.folder.name), keeping)
        self.journal.keep(sight(snapshot(self._job(number)), at=at))
        for gone, ended_at in self.left.items():
            if gone == number:
                self.left[gone] = None
            elif ended_at is None:
                self.left[gone] = at

    def _job(self, number: int) -> PendingJob:
        return job(number, priority=self.priority[number], site_factor=self.site[number])

    def _write(self, action: Action, result: Result | None) -> None:
        number = int(action.target.job_id)
        if self.left.pop(number, 0) != 0:  # a look shows it first
            self.journal.reclaim(CLUSTER, [replace(self._job(number), owned=None)], NOW)
            self.open |= self.away.pop(number)
        ticket = self.journal.intend(Plan((action,)), cluster=CLUSTER, cycle=1, at=NOW)
        if result is None:
            self.crash_and_open_again()
        else:
            self.journal.settle(ticket, [Outcome(action, result)], at=NOW)

    def _expect(self, number: int, field: str, old: int, value: int, result: Any) -> None:
        if result is Result.GONE:
            self.open.setdefault((number, field), (old, []))[1].append(value)
            self._gone(number)
        elif result not in {Result.REFUSED, Result.WITHHELD}:
            first, written = self.open.get((number, field), (old, []))
            self.open[number, field] = (first, [*written, value])

    def _gone(self, number: int) -> None:
        for key in [key for key in self.open if key[0] == number]:
            self.away.setdefault(number, {})[key] = self.open.pop(key)
            self.left[number] = None


TestJournal = JournalMachine.TestCase
TestJournal.settings = examples(40, stateful_step_count=30)
