"""The daemon's heart: observe, decide, apply, report, every interval.

Levels, not edges: every cycle starts from what Slurm shows now and plans the difference again, so a
lost write, a restart or a change by a person needs no code of its own. In doubt nothing is written;
Slurm continues to schedule alone.
"""

import gc
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from rltuned import errors
from rltuned.core.decide import Decision, decide, undo_plan
from rltuned.core.ladder import Rung
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.canary import CanaryStatus, Monitor
from rltuned.daemon.foreign import rival
from rltuned.daemon.groups import take_in
from rltuned.daemon.report import SKIPS, CycleReport, CycleStage, Failure, Skip, row_of
from rltuned.daemon.run_times import LimitUseLearner, RunTimeLearner
from rltuned.daemon.state import HealthState
from rltuned.daemon.systemd import SignalFlags, is_paused
from rltuned.daemon.wiring import Rig
from rltuned.domain.jobs import RunNews
from rltuned.domain.plan import Clock, Plan
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import CLOCK_S
from rltuned.journal.journal import Journal
from rltuned.policies.actor import NetworkPolicy
from rltuned.slurm.site import Throttle, Weighed

# When the next cycle starts: on the grid of the interval, rarer when Slurm is silent or busy.


MOST_INTERVALS: Final = 10.0
"""The longest pause, while Slurm does not answer or is busy."""


class Pace:
    """Keeps the time of the next cycle, and what makes it later."""

    def __init__(self, clock: Clock) -> None:
        self.due = clock.monotonic()
        self._clock = clock
        self._throttle = Throttle()
        self._silences = 0  # how often in a row Slurm did not answer

    def weigh(self, rig: Rig) -> Weighed | None:
        """Ask how busy slurmctld is; None = it is not asked."""
        if rig.gauge is None:
            return None
        return self._throttle.weigh(rig.gauge, rig.bounds, MOST_INTERVALS)

    def backoff_s(self, rig: Rig, skip: Skip | None) -> float | None:
        """The pause after a cycle that ended so: one interval, doubling up to the cap; None = the
        ordinary schedule. Once per cycle: it counts the silences.
        """
        self._silences = self._silences + 1 if skip is Skip.BACKEND else 0
        if not self._silences:
            return None
        # an exponent beyond 32 only overflows; the cap is far below
        return rig.interval_s * min(MOST_INTERVALS, 2.0 ** min(self._silences - 1, 32))

    def after(self, rig: Rig, failure: Failure | None) -> None:
        """Set when the next cycle starts; late ones are left out."""
        now = self._clock.monotonic()
        if failure is not None and failure.backoff_s is not None:
            self.due = now + failure.backoff_s
            return
        step_s = rig.interval_s * self._throttle.stretch
        self.due += step_s * max(1, math.ceil((now - self.due) / step_s))

    def at_most(self, interval_s: float) -> None:
        """Start within one interval from now: settings were loaded that may have shortened it."""
        self.due = min(self.due, self._clock.monotonic() + interval_s)

    @property
    def left_s(self) -> float:
        """Seconds until the next cycle; not positive = now."""
        return self.due - self._clock.monotonic()


# -- When Python's search for reference cycles rests ----------------------------------------------


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's search for reference cycles rests meanwhile; afterwards it is as before.

    A cycle of a large queue makes millions of small objects that refer to each other in one
    direction only, so counting references frees them all. The search walks through them again and
    again while they are made: with 50,000 jobs it took two thirds of a decision.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


STRIKES: Final = 3
"""So many unexpected exceptions in a row, and the process ends for systemd to start it again."""
_MODES: Final = {
    Rung.OBSERVE: HealthState.OBSERVE,
    Rung.SHADOW: HealthState.SHADOW,
    Rung.CANARY: HealthState.LIVE,
    Rung.FULL: HealthState.LIVE,
}
_BEFORE_WRITING: Final = (
    HealthState.JOURNAL_UNUSABLE, HealthState.RIVAL_SUSPECTED, HealthState.CLOCK_OFF,
)  # fmt: skip
_GIVES_BACK: Final = frozenset({HealthState.OBSERVE, HealthState.SHADOW})


class Audience(Protocol):
    """What events are reported to: metrics, log lines, systemd, a table on the terminal."""

    def cycle(self, report: CycleReport) -> None: ...

    def alive(self) -> None:
        """The loop got a step further, or waits as it should."""
        ...

    def unexpected(self, error: Exception) -> None: ...

    def reloading(self) -> None: ...

    def loaded(self, rig: Rig) -> None: ...

    def not_loaded(self, reason: str) -> None: ...


class Loop:
    """Runs cycles until a signal stops it. reload: builds a new rig from the files; raises only
    SettingsError, ModelError. heartbeat_s: longest time between two `audience.alive()` while
    waiting. stopwatch: times the stages, in seconds; None = the clock's own, which a simulation
    runs fast.
    """

    def __init__(
        self,
        rig: Rig,
        clock: Clock,
        journal: Journal,
        audience: Audience,
        *,
        orders: SignalFlags,
        reload: Callable[[], Rig],
        run_times: RunTimeLearner | LimitUseLearner | None = None,
        heartbeat_s: float = math.inf,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.rig = rig
        self._clock = clock
        self._journal = journal
        self._writer = PlanApplier(journal, clock)
        self._monitor = Monitor(journal)
        self._audience = audience
        self._orders = orders
        self._reload = reload
        self._run_times = run_times
        self._heartbeat_s = heartbeat_s
        self._stopwatch = stopwatch or clock.monotonic
        self._pace = Pace(clock)
        self._number = self._strikes = 0  # strikes: unexpected errors in a row
        self._runs = RunNews()  # which began and ended since the last look
        self._digest: str | None = None  # under which the journal keeps this one

    def run(self, cycles: int | None = None) -> int:
        """Run so many cycles, or until stopped.

        Returns exit code: 0 = stopped as asked; 1 = three unexpected errors in a row, or the last
        of a given number of cycles came to no result, was in doubt and wrote nothing, Slurm took
        none of its changes, or a circuit breaker is open.
        """
        self._pace = Pace(self._clock)
        done = 0
        while True:
            with uncollected():
                report = self.cycle()
            done += 1
            if self._strikes >= STRIKES:
                return 1
            if done == cycles:
                return 1 if report.skip or report.in_vain or report.demoted or report.doubts else 0
            self._pace.after(self.rig, report.failure)
            if self._rest():
                return 0

    def cycle(self) -> CycleReport:
        """The whole daemon. A step that fails ends the cycle: what Slurm has stays as it is."""
        report = self._begun()
        self._runs, self._digest = RunNews(), None
        with self._skipping(report):
            self._weigh(report)  # 1. does slurmctld have time for us?
            self._see(report)  # 2. what Slurm shows, marked with what we wrote
            self._learn(report)  # 3. run times and groups
            self._decide(report)  # 4. order, bounds, placement: a plan
            self._write(report)  # 5. what may be written, each with its intent before it
            self._judge(report)  # 6. what delays do to waits; breakers, generations
        self._record(report)  # 7. journal, log, page, metrics
        return report

    def _begun(self) -> CycleReport:
        with suppress(errors.JournalError):  # the cycle will say what is wrong with it
            # a `run --once` may have noted one in the same journal
            self._number = max(self._number, self._journal.last_cycle())
        self._number += 1
        return CycleReport(self._number, self._clock.now(), self._mode(), defaultdict(float))

    @contextmanager
    def _skipping(self, report: CycleReport) -> Iterator[None]:
        """Turn what goes wrong into the reason why the cycle has no result."""
        try:
            yield
        except tuple(SKIPS) as error:
            skip = next(skip for kind, skip in SKIPS.items() if isinstance(error, kind))
            report.failure = Failure(skip, str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001
            # A broad except, as in _take_over: a bug must not stop the watching, but one that
            # stays ends the process. Nothing is half done: unsettled intents are in the journal.
            report.failure = Failure(Skip.UNEXPECTED, str(error) or type(error).__name__)
            self._audience.unexpected(error)
        self._strikes = self._strikes + 1 if report.skip is Skip.UNEXPECTED else 0

    def _weigh(self, report: CycleReport) -> None:
        with self._timed(report, CycleStage.OBSERVE):
            report.weighed = self._pace.weigh(self.rig)
        if report.weighed is not None and report.weighed.busy:
            raise errors.BusyError("slurmctld is busy: " + ", ".join(report.weighed.busy))

    def _see(self, report: CycleReport) -> None:
        with self._timed(report, CycleStage.OBSERVE):
            seen = self.rig.backend.observe(self._writer.remembered)
            self._runs = self._monitor.look(seen)
        report.snapshot = seen
        report.note(HealthState.CLOCK_OFF, self._clock_off())
        report.context, report.reverted, unusable = self._writer.look(seen)
        report.note(HealthState.JOURNAL_UNUSABLE, unusable)
        if self.rig.lease is None and not report.journal_error:  # with a lease the other is known
            others = rival(seen, self.rig.knobs.rules.partitions)
            report.note(HealthState.RIVAL_SUSPECTED, others)

    def _clock_off(self) -> str:
        """Why no number can be right: ages count by slurmctld's clock; empty = that is known."""
        off_s = None if self.rig.clock_off_s is None else self.rig.clock_off_s()
        if off_s is None or abs(off_s) <= CLOCK_S:
            return ""
        return (
            f"slurmctld's clock is {off_s:+.0f} s off this host's, more than {CLOCK_S:.0f}: one of "
            "them is wrong; synchronise both (chrony, ntpd)"
        )

    def _learn(self, report: CycleReport) -> None:
        """Take the look in: how long jobs run, and which wait for each other."""
        if self._run_times is not None and report.snapshot is not None:
            with self._timed(report, CycleStage.OBSERVE):
                report.context = self._run_times.look(report.snapshot, self._runs, report.context)
        if report.snapshot is not None and not report.journal_error:
            with _noted(report), self._timed(report, CycleStage.JOURNAL):
                report.groups = take_in(self._journal, report.snapshot, report.context.run_times)

    def _decide(self, report: CycleReport) -> None:
        try:
            self._plan(report)
        finally:  # what no decision came of is what one will want to look at
            self._keep(report)

    def _plan(self, report: CycleReport) -> None:
        only_looks = self.rig.ladder.rung is Rung.OBSERVE and not self.rig.dry_run
        if report.snapshot is None or only_looks or report.why(HealthState.CLOCK_OFF):
            return
        with self._timed(report, CycleStage.DECIDE):
            try:
                report.decision = self._decided(report.snapshot, report.context)
            except errors.PolicyError as error:
                # a network without numbers is left for the rule until the next reload or start;
                # a trial would compare something else
                if not isinstance(self.rig.policy, NetworkPolicy) or self.rig.trial is not None:
                    raise
                self.rig = self.rig.by_rule(str(error))
                self._audience.loaded(self.rig)
                report.decision = self._decided(report.snapshot, report.context)
        self._writer.note(report.decision)

    def _decided(self, seen: Snapshot, context: Context) -> Decision:
        return decide(seen, self.rig.policy, self.rig.knobs, self.rig.solver, context)

    def _keep(self, report: CycleReport) -> None:
        """Note what was seen and planned, before anything is written."""
        if report.snapshot is None or report.journal_error:
            return
        with _noted(report), self._timed(report, CycleStage.JOURNAL):
            self._digest = self._writer.keep(report, report.snapshot, self.rig.digest)

    def _write(self, report: CycleReport) -> None:
        report.mode = self._mode(report.why(*_BEFORE_WRITING))
        plan = self._allowed(report)
        try:
            if plan is not None and report.snapshot is not None and self._may_write(report):
                self._apply(report, plan, report.snapshot)
            else:
                if report.mode in _GIVES_BACK and report.snapshot and not report.journal_error:
                    self._writer.follow(report.snapshot)  # a requeued job is restored next time
                    if not report.doubts:
                        self._writer.accept(report.snapshot)
                self._journal.let_go()
        except errors.JournalError as error:
            report.note(HealthState.JOURNAL_UNUSABLE, str(error))
            report.mode = HealthState.OBSERVE

    def _may_write(self, report: CycleReport) -> bool:
        """Whether this daemon is the one that writes, and knows which numbers are its own."""
        if not self._is_ours(report):
            return False
        if report.mode is HealthState.LIVE and report.snapshot is not None:
            self._journal.claim()  # also where nothing changes: one process is the writer
            partitions = self.rig.knobs.rules.partitions
            why = self._writer.doubt(report.snapshot, self._number, partitions, self.rig.lease)
            report.note(HealthState.NUMBERS_UNEXPLAINED, why)
            odd = (*report.snapshot.unreadable, *self._writer.left_alone(report.snapshot))
            report.snapshot = replace(report.snapshot, unreadable=odd)
            report.mode = HealthState.OBSERVE if why else report.mode
            return not why
        return True

    def _is_ours(self, report: CycleReport) -> bool:
        rig, seen = self.rig, report.snapshot
        if rig.lease is not None and rig.acting is not None and seen is not None:
            standby = rig.lease.take(rig.acting(), self._journal, seen.cluster)
            report.note(HealthState.STANDBY, standby)
            report.mode = HealthState.STANDBY if standby else report.mode
            return not standby
        return True

    def _apply(self, report: CycleReport, plan: Plan, snapshot: Snapshot) -> None:
        report.outcomes = self._writer.write(
            self.rig.backend,
            plan,
            snapshot,
            self._number,
            partial(self._timed, report),
            digest=self._digest,
            lease=self.rig.lease,
        )

    def _allowed(self, report: CycleReport) -> Plan | None:
        """What may be written now; None = nothing. A stage that does not write restores."""
        if report.mode is HealthState.LIVE:
            return report.decision.plan if report.decision is not None else None
        doubt = report.why(*_BEFORE_WRITING)
        if report.mode in _GIVES_BACK and not doubt:
            left = undo_plan(report.snapshot) if report.snapshot is not None else Plan()
            return None if left.is_empty else left
        return None

    def _judge(self, report: CycleReport) -> None:
        """Learn what delays do; may open circuit breakers, which the next cycle acts upon."""
        if report.snapshot is None or report.journal_error:
            return
        with _noted(report):
            report.verdict = self._monitor.judge(
                self.rig.ladder,
                self.rig.knobs.rules,
                report.snapshot,
                report.decision,
                report.outcomes,
                live=report.mode is HealthState.LIVE,
                demoted=report.context.demoted,
                model=self.rig.model,
                sla=self.rig.knobs.sla,
            )
            self._move(report, report.verdict)

    def _mode(self, doubt: str = "") -> HealthState:
        """What may be done now; asked again right before the write."""
        if self.rig.dry_run:
            return HealthState.DRY_RUN
        if doubt:
            return HealthState.OBSERVE
        if is_paused(self.rig.pause_file):
            return HealthState.PAUSED
        return _MODES[self.rig.ladder.rung]

    def _record(self, report: CycleReport) -> None:
        backoff_s = self._pace.backoff_s(self.rig, report.skip)
        if report.failure is not None:
            report.failure = report.failure._replace(backoff_s=backoff_s)
        with _noted(report):
            self._journal.record(row_of(report, self.rig.policy.name))
        self._audience.cycle(report)

    def _rest(self) -> bool:
        """Wait, doing what is asked for by signal meanwhile; True = stop."""
        if self._is_outdated():
            self._orders.reload = True
        while not self._orders.stop:
            if self._orders.reload:
                self._orders.reload = False
                self._take_over()
                self._pace.at_most(self.rig.interval_s)
            left_s = self._pace.left_s
            if left_s <= 0:
                return False
            self._audience.alive()
            if self._clock.wait(min(left_s, self._heartbeat_s)):
                return True
        return True

    def _is_outdated(self) -> bool:
        following, now = self.rig.following, (self.rig.generation, self.rig.trial)
        return following is not None and following.is_due(now, self._clock.now())

    def _move(self, report: CycleReport, status: CanaryStatus) -> None:
        """Promote, withdraw or take back a generation, by what the cycle showed."""
        rig, seen = self.rig, report.snapshot
        if rig.following is None or seen is None:
            return
        try:
            moved = rig.following.judge(
                self._journal, seen.cluster, status, rig.trial, report.started_at
            )
            report.verdict = replace(status, moved=moved)
        except errors.ModelError as error:
            self._audience.not_loaded(str(error))

    def _take_over(self) -> None:
        """Exchange the rig for one built from the files; a bad file keeps the old one."""
        self._audience.reloading()
        try:
            self.rig = self._reload()
        except (errors.SettingsError, errors.ModelError) as error:
            self._audience.not_loaded(str(error))
        else:
            self._audience.loaded(self.rig)
            gc.collect()  # its parts refer to each other: memory would rise with each reload

    @contextmanager
    def _timed(self, report: CycleReport, stage: CycleStage) -> Iterator[None]:
        start = self._stopwatch()
        try:
            yield
        finally:
            report.stages[stage] += self._stopwatch() - start
            self._audience.alive()


@contextmanager
def _noted(report: CycleReport) -> Iterator[None]:
    """Note why the journal cannot be used; the cycle goes on and writes nothing."""
    try:
        yield
    except errors.JournalError as error:
        report.note(HealthState.JOURNAL_UNUSABLE, str(error))
