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
from typing import Final

from rltuned import errors
from rltuned.core.decide import Decision, decide, undo_plan
from rltuned.core.ladder import Rung
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.canary import Monitor
from rltuned.daemon.foreign import rival
from rltuned.daemon.groups import take_in
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import SKIPS, CycleReport, CycleStage, Failure, Skip, row_of
from rltuned.daemon.run_times import RunTimeLearner
from rltuned.daemon.state import HealthState
from rltuned.daemon.systemd import SignalFlags, is_paused
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Clock, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import CLOCK_S
from rltuned.journal.journal import Journal
from rltuned.policies.actor import NetworkPolicy
from rltuned.slurm.site import Throttle

MOST_INTERVALS: Final = 10.0
"""The longest pause, while Slurm does not answer or is busy."""
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


class Loop:
    """Runs cycles until a signal stops it. reload: builds a new rig from the files; raises only
    SettingsError, ModelError. heartbeat_s: longest time between two `publisher.alive()` while
    waiting. stopwatch: times the stages, in seconds; None = the clock's own, which a simulation
    runs fast.
    """

    def __init__(
        self,
        rig: Rig,
        clock: Clock,
        journal: Journal,
        publisher: Publisher,
        *,
        orders: SignalFlags,
        reload: Callable[[], Rig],
        run_times: RunTimeLearner | None = None,
        heartbeat_s: float = math.inf,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.rig = rig
        self._clock, self._journal, self._publisher = clock, journal, publisher
        self._writer, self._monitor = PlanApplier(journal, clock), Monitor(journal)
        self._orders, self._reload, self._run_times = orders, reload, run_times
        self._heartbeat_s = heartbeat_s
        self._stopwatch = stopwatch or clock.monotonic
        self._throttle = Throttle()
        self._due = 0.0  # when the next cycle starts, by the clock that is never set
        self._silences = 0  # how often in a row Slurm did not answer
        self._number = self._strikes = 0  # strikes: unexpected errors in a row
        self._digest: str | None = None  # under which the journal keeps what was seen

    def run(self, cycles: int | None = None) -> int:
        """Run so many cycles, or until stopped, on a grid of intervals.

        Returns exit code: 0 = stopped as asked; 1 = three unexpected errors in a row, or the last
        of a given number of cycles came to no result, was in doubt and wrote nothing, Slurm took
        none of its changes, or a circuit breaker is open.
        """
        self._due, done = self._clock.monotonic(), 0
        while True:
            with uncollected():
                report = self.cycle()
            done += 1
            if self._strikes >= STRIKES:
                return 1
            if done == cycles:
                return 1 if report.skip or report.in_vain or report.demoted or report.doubts else 0
            now, step_s = self._clock.monotonic(), self.rig.interval_s * self._throttle.stretch
            if report.failure is not None and report.failure.backoff_s is not None:
                self._due = now + report.failure.backoff_s
            else:  # late ones are left out
                self._due += step_s * max(1, math.ceil((now - self._due) / step_s))
            if self._rest():
                return 0

    def cycle(self) -> CycleReport:
        """The whole daemon. A step that fails ends the cycle: what Slurm has stays as it is."""
        with suppress(errors.JournalError):  # the cycle will say what is wrong with it
            # a `run --once` may have noted one in the same journal
            self._number = max(self._number, self._journal.last_cycle())
        self._number += 1
        report = CycleReport(self._number, self._clock.now(), self._mode(), defaultdict(float))
        self._digest = None
        with self._skipping(report):
            seen = self._see(report)  # what Slurm shows, marked with what we wrote; run times
            try:
                report.decision = self._decided(report, seen)  # order, bounds, placement: a plan
            finally:  # what no decision came of is what one will want to look at
                self._keep(report, seen)
            self._write(report, seen)  # what may be written, each with its intent before it
            self._judge(report)  # what delays do to waits; breakers, generations
        self._record(report)
        return report

    @contextmanager
    def _skipping(self, report: CycleReport) -> Iterator[None]:
        """Turn what goes wrong into the reason why the cycle has no result."""
        try:
            yield
        except tuple(SKIPS) as error:
            skip = next(skip for kind, skip in SKIPS.items() if isinstance(error, kind))
            report.failure = Failure(skip, str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001
            # A broad except: a bug must not stop the watching, but one that stays ends the
            # process. Nothing is half done: unsettled intents are in the journal.
            report.failure = Failure(Skip.UNEXPECTED, str(error) or type(error).__name__)
            self._publisher.unexpected(error)
        self._strikes = self._strikes + 1 if report.skip is Skip.UNEXPECTED else 0

    def _see(self, report: CycleReport) -> Snapshot:
        rig = self.rig
        with self._timed(report, CycleStage.OBSERVE):
            if rig.gauge is not None:  # does slurmctld have time for us?
                report.weighed = self._throttle.weigh(rig.gauge, rig.bounds, MOST_INTERVALS)
                if report.weighed.busy:
                    busy = ", ".join(report.weighed.busy)
                    raise errors.BusyError(f"slurmctld is busy: {busy}")
            seen = report.snapshot = rig.backend.observe(self._writer.remembered)
            runs = self._monitor.look(seen)
            off_s = rig.clock_off_s() if rig.clock_off_s is not None else None
            if off_s is not None and abs(off_s) > CLOCK_S:  # ages count by slurmctld's clock
                report.note(
                    HealthState.CLOCK_OFF,
                    f"slurmctld's clock is {off_s:+.0f} s off this host's, more than "
                    f"{CLOCK_S:.0f}: one of them is wrong; synchronise both (chrony, ntpd)",
                )
            report.context, report.reverted, unusable = self._writer.look(seen)
            report.note(HealthState.JOURNAL_UNUSABLE, unusable)
            if rig.lease is None and not unusable:  # with a lease the other is known
                others = rival(seen, rig.knobs.rules.partitions)
                report.note(HealthState.RIVAL_SUSPECTED, others)
            if self._run_times is not None:
                report.context = self._run_times.look(seen, runs, report.context)
        if not report.journal_error:
            with _noted(report), self._timed(report, CycleStage.JOURNAL):
                report.groups = take_in(self._journal, seen, report.context.run_times)
        return seen

    def _decided(self, report: CycleReport, seen: Snapshot) -> Decision | None:
        """None = it only looks."""
        only_looks = self.rig.ladder.rung is Rung.OBSERVE and not self.rig.dry_run
        if only_looks or report.why(HealthState.CLOCK_OFF):
            return None
        with self._timed(report, CycleStage.DECIDE):
            try:
                return self._by_policy(seen, report)
            except errors.PolicyError as error:
                # a network without numbers is left for the rule until the next reload or start;
                # a trial would compare something else
                if not isinstance(self.rig.policy, NetworkPolicy) or self.rig.trial is not None:
                    raise
                self.rig = self.rig.by_rule(str(error))
                self._publisher.loaded(self.rig)
                return self._by_policy(seen, report)

    def _by_policy(self, seen: Snapshot, report: CycleReport) -> Decision:
        return decide(seen, self.rig.policy, self.rig.knobs, self.rig.solver, report.context)

    def _keep(self, report: CycleReport, seen: Snapshot) -> None:
        """Note what was seen and planned, before anything is written."""
        if not report.journal_error:
            with _noted(report), self._timed(report, CycleStage.JOURNAL):
                self._digest = self._writer.keep(report, seen, self.rig.digest)

    def _write(self, report: CycleReport, seen: Snapshot) -> None:
        doubt, plan = report.why(*_BEFORE_WRITING), Plan()
        report.mode = self._mode(doubt)
        gives_back = report.mode in _GIVES_BACK
        if gives_back and not doubt:  # a stage that does not write restores
            plan = undo_plan(seen)
        is_live = report.mode is HealthState.LIVE and report.decision is not None
        if is_live and report.decision is not None:
            plan = report.decision.plan
        try:
            if (is_live or not plan.is_empty) and self._may_write(report, seen):
                report.outcomes = self._writer.write(
                    self.rig.backend,
                    plan,
                    seen,
                    self._number,
                    partial(self._timed, report),
                    digest=self._digest,
                    lease=self.rig.lease,
                )
                return
            if report.mode in _GIVES_BACK and not report.journal_error:
                self._writer.follow(seen)  # a requeued job is restored next time
                if not report.doubts:
                    self._writer.accept(seen)
            self._journal.let_go()
        except errors.JournalError as error:
            report.note(HealthState.JOURNAL_UNUSABLE, str(error))
            report.mode = HealthState.OBSERVE

    def _may_write(self, report: CycleReport, seen: Snapshot) -> bool:
        """Whether this daemon is the one that writes, and knows which numbers are its own."""
        rig = self.rig
        standby = ""
        if rig.lease is not None and rig.acting is not None:
            standby = rig.lease.take(rig.acting(), self._journal, seen.cluster)
        if standby:
            report.note(HealthState.STANDBY, standby)
            report.mode = HealthState.STANDBY
            return False
        if report.mode is not HealthState.LIVE:
            return True
        self._journal.claim()  # also where nothing changes: one process is the writer
        why = self._writer.doubt(seen, self._number, rig.knobs.rules.partitions, rig.lease)
        report.note(HealthState.NUMBERS_UNEXPLAINED, why)
        odd = (*seen.unreadable, *self._writer.left_alone(seen))
        report.snapshot = replace(seen, unreadable=odd)
        report.mode = HealthState.OBSERVE if why else report.mode
        return not why

    def _judge(self, report: CycleReport) -> None:
        """Learn what delays do; may open circuit breakers, which the next cycle acts upon, and
        promote, withdraw or take back a generation.
        """
        rig, seen = self.rig, report.snapshot
        if seen is None or report.journal_error:
            return
        with _noted(report):
            report.verdict = self._monitor.judge(
                rig.ladder,
                rig.knobs.rules,
                seen,
                report.decision,
                report.outcomes,
                live=report.mode is HealthState.LIVE,
                demoted=report.context.demoted,
                model=rig.model,
                sla=rig.knobs.sla,
            )
            if rig.following is None:
                return
            try:
                moved = rig.following.judge(
                    self._journal, seen.cluster, report.verdict, rig.trial, report.started_at
                )
                report.verdict = replace(report.verdict, moved=moved)
            except errors.ModelError as error:
                self._publisher.not_loaded(str(error))

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
        """To the journal and to all who look: log, page, metrics."""
        self._silences = self._silences + 1 if report.skip is Skip.BACKEND else 0
        if report.failure is not None and self._silences:
            # one interval, doubling up to the cap; an exponent beyond 32 only overflows
            times = min(MOST_INTERVALS, 2.0 ** min(self._silences - 1, 32))
            report.failure = report.failure._replace(backoff_s=self.rig.interval_s * times)
        with _noted(report):
            self._journal.record(row_of(report, self.rig.policy.name))
        self._publisher.cycle(report)

    def _rest(self) -> bool:
        """Wait, doing what is asked for by signal meanwhile; True = stop."""
        following, now = self.rig.following, (self.rig.generation, self.rig.trial)
        if following is not None and following.is_due(now, self._clock.now()):
            self._orders.reload = True
        while not self._orders.stop:
            if self._orders.reload:
                self._orders.reload = False
                self._take_over()
                # settings were loaded that may have shortened it
                self._due = min(self._due, self._clock.monotonic() + self.rig.interval_s)
            left_s = self._due - self._clock.monotonic()
            if left_s <= 0:
                return False
            self._publisher.alive()
            if self._clock.wait(min(left_s, self._heartbeat_s)):
                return True
        return True

    def _take_over(self) -> None:
        """Exchange the rig for one built from the files; a bad file keeps the old one."""
        self._publisher.reloading()
        try:
            self.rig = self._reload()
        except (errors.SettingsError, errors.ModelError) as error:
            self._publisher.not_loaded(str(error))
        else:
            self._publisher.loaded(self.rig)
            gc.collect()  # its parts refer to each other: memory would rise with each reload

    @contextmanager
    def _timed(self, report: CycleReport, stage: CycleStage) -> Iterator[None]:
        start = self._stopwatch()
        try:
            yield
        finally:
            report.stages[stage] += self._stopwatch() - start
            self._publisher.alive()


@contextmanager
def _noted(report: CycleReport) -> Iterator[None]:
    """Note why the journal cannot be used; the cycle goes on and writes nothing."""
    try:
        yield
    except errors.JournalError as error:
        report.note(HealthState.JOURNAL_UNUSABLE, str(error))
