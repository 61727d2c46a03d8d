"""The daemon's heart: observe, decide, apply, report, every interval.

Levels, not edges: every cycle starts from what Slurm shows now and plans the difference anew, so a
lost write, a restart or a change by somebody else needs no code of its own. In doubt nothing is
written; Slurm goes on scheduling without us.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from rltuned.core.decide import Decision, Knobs, Policy, decide
from rltuned.core.milp import Solver
from rltuned.daemon.diary import row_of
from rltuned.daemon.journal import Journal
from rltuned.daemon.recipe import Recipe
from rltuned.daemon.report import CycleReport, Kind, Mode, Skip, Stage
from rltuned.daemon.signals import Orders
from rltuned.daemon.writer import Writer
from rltuned.domain.plan import Outcome
from rltuned.domain.ports import Backend, Clock
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import (
    BackendError,
    JournalError,
    ModelError,
    PolicyError,
    SettingsError,
    SnapshotError,
)

STRIKES: Final = 3
"""So many unexpected exceptions in a row, and the process ends for systemd to start it afresh."""


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything that a reload may exchange. digest, schema: of the policy's model, if any."""

    backend: Backend
    policy: Policy
    knobs: Knobs
    dry_run: bool
    interval_s: float
    max_backoff_s: float
    pause_file: Path
    digest: str = ""
    schema: str = ""
    solver: Solver | None = None
    solver_name: str = ""

    @property
    def recipe(self) -> Recipe:
        """What is needed beside a snapshot to decide again."""
        return Recipe(self.policy.name, self.knobs, self.digest, self.solver_name)


class Audience(Protocol):
    """Who hears of what happens: metrics, log lines, systemd, a table on the terminal."""

    def cycle(self, report: CycleReport) -> None: ...

    def alive(self) -> None:
        """The loop got a step further, or waits as it should."""
        ...

    def unexpected(self, error: Exception) -> None: ...

    def reloading(self) -> None: ...

    def loaded(self, rig: Rig) -> None: ...

    def not_loaded(self, reason: str) -> None: ...


@dataclass
class _Draft:
    """A report in the making."""

    mode: Mode
    stages: dict[Stage, float] = field(default_factory=lambda: defaultdict(float))
    snapshot: Snapshot | None = None
    decision: Decision | None = None
    digest: str | None = None
    outcomes: tuple[Outcome, ...] = ()
    reverted: Mapping[Kind, int] = field(default_factory=dict)
    skip: Skip | None = None
    detail: str = ""
    journal_error: str = ""

    def skipped(self, why: Skip, error: Exception) -> None:
        self.skip = why
        self.detail = str(error) or type(error).__name__


class Loop:
    """Runs cycles until it is told to stop.

    Args:
        rig: world, policy and knobs to begin with.
        reload: builds a new rig from the files; raises SettingsError or ModelError.
        heartbeat_s: longest time between two `audience.alive()` while waiting.
        stopwatch: times the stages, in seconds; the clock's own when not given (a simulation has
            a clock that runs fast).
    """

    def __init__(
        self,
        rig: Rig,
        clock: Clock,
        journal: Journal,
        audience: Audience,
        *,
        orders: Orders,
        reload: Callable[[], Rig],
        heartbeat_s: float = math.inf,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self.rig = rig
        self._clock = clock
        self._journal = journal
        self._writer = Writer(journal, clock)
        self._audience = audience
        self._orders = orders
        self._reload = reload
        self._heartbeat_s = heartbeat_s
        self._stopwatch = stopwatch or clock.monotonic
        self._due = 0.0
        self._strikes = 0  # unexpected errors in a row
        self._silences = 0  # how often in a row Slurm did not answer
        try:
            self._number = journal.last_cycle()
        except JournalError:
            self._number = 0  # the first cycle will say what is wrong with it

    def run(self, cycles: int | None = None) -> int:
        """Run so many cycles, or until told to stop.

        Returns:
            Exit code: 0 = stopped as asked; 1 = three unexpected errors in a row, or the last of
            a given number of cycles came to no result or Slurm took none of its changes.
        """
        self._due = self._clock.monotonic()
        done = 0
        while True:
            report = self.cycle()
            done += 1
            if self._strikes >= STRIKES:
                return 1
            if done == cycles:
                return 0 if report.ok and not report.in_vain else 1
            self._due = self._next_due(report)
            if self._rest():
                return 0

    def cycle(self) -> CycleReport:
        """Observe, decide, apply, report."""
        self._number += 1
        started_at = self._clock.now()
        draft = _Draft(self._mode())
        try:
            self._observe(draft)
            self._decide(draft)
            self._keep(draft)
            self._apply(draft)
        except BackendError as error:
            draft.skipped(Skip.BACKEND, error)
        except SnapshotError as error:
            draft.skipped(Skip.SNAPSHOT, error)
        except PolicyError as error:
            draft.skipped(Skip.POLICY, error)
        except Exception as error:  # noqa: BLE001
            # The one broad except of the package: a bug must not stop the watching, but one that
            # stays ends the process. Nothing is half done: unsettled intents are in the journal.
            draft.skipped(Skip.UNEXPECTED, error)
            self._audience.unexpected(error)
        self._strikes = self._strikes + 1 if draft.skip is Skip.UNEXPECTED else 0
        self._silences = self._silences + 1 if draft.skip is Skip.BACKEND else 0
        report = self._report(draft, started_at)
        self._audience.cycle(report)
        return report

    def _observe(self, draft: _Draft) -> None:
        with self._timed(draft, Stage.OBSERVE):
            seen = self.rig.backend.observe()
        draft.snapshot = seen
        try:
            draft.snapshot, draft.reverted = self._writer.mark(seen)
        except JournalError as error:
            draft.journal_error = str(error)

    def _decide(self, draft: _Draft) -> None:
        if draft.snapshot is None:
            return
        with self._timed(draft, Stage.DECIDE):
            draft.decision = decide(
                draft.snapshot, self.rig.policy, self.rig.knobs, self.rig.solver
            )

    def _keep(self, draft: _Draft) -> None:
        """Note what was seen and planned, before anything is written."""
        if draft.decision is None or draft.journal_error:
            return
        try:
            with self._timed(draft, Stage.JOURNAL):
                draft.digest = self._writer.keep(
                    draft.decision, self.rig.recipe, self._number, draft.mode
                )
        except JournalError as error:
            draft.journal_error = str(error)

    def _apply(self, draft: _Draft) -> None:
        draft.mode = self._mode(draft.journal_error)
        if draft.mode is not Mode.LIVE:
            self._journal.let_go()
            return
        if draft.snapshot is None or draft.decision is None:
            return

        def timed(stage: Stage) -> AbstractContextManager[None]:
            return self._timed(draft, stage)

        try:
            draft.outcomes = self._writer.write(
                self.rig.backend,
                draft.decision.plan,
                draft.snapshot,
                self._number,
                timed,
                digest=draft.digest,
            )
        except JournalError as error:
            draft.journal_error = str(error)
            draft.mode = Mode.OBSERVE

    def _mode(self, journal_error: str = "") -> Mode:
        """What may be done now; asked again right before the write."""
        if self.rig.dry_run:
            return Mode.DRY_RUN
        if journal_error:
            return Mode.OBSERVE
        return Mode.PAUSED if is_paused(self.rig.pause_file) else Mode.LIVE

    def _report(self, draft: _Draft, started_at: float) -> CycleReport:
        report = CycleReport(
            cycle=self._number,
            started_at=started_at,
            mode=draft.mode,
            interval_s=self.rig.interval_s,
            stages=dict(draft.stages),
            snapshot=draft.snapshot,
            decision=draft.decision,
            outcomes=draft.outcomes,
            reverted=draft.reverted,
            backoff_s=self._backoff_s() if draft.skip is Skip.BACKEND else None,
            skip=draft.skip,
            detail=draft.detail,
            journal_error=draft.journal_error,
        )
        try:
            self._journal.record(row_of(report, self.rig.policy.name))
        except JournalError as error:
            return replace(report, journal_error=str(error))
        return report

    def _backoff_s(self) -> float:
        """One interval after the first silence, doubling up to the cap."""
        # an exponent beyond 32 only overflows; the cap is far below
        return min(
            max(self.rig.max_backoff_s, self.rig.interval_s),
            self.rig.interval_s * 2.0 ** min(self._silences - 1, 32),
        )

    def _next_due(self, report: CycleReport) -> float:
        """When the next cycle starts: on the grid of the interval, late ones left out."""
        now = self._clock.monotonic()
        if report.backoff_s is not None:
            return now + report.backoff_s
        interval_s = self.rig.interval_s
        return self._due + interval_s * max(1, math.ceil((now - self._due) / interval_s))

    def _rest(self) -> bool:
        """Wait, doing what is asked for by signal meanwhile; True = stop."""
        while not self._orders.stop:
            if self._orders.reload:
                self._orders.reload = False
                self._take_over()
                self._due = min(self._due, self._clock.monotonic() + self.rig.interval_s)
            left_s = self._due - self._clock.monotonic()
            if left_s <= 0:
                return False
            self._audience.alive()
            if self._clock.wait(min(left_s, self._heartbeat_s)):
                return True
        return True

    def _take_over(self) -> None:
        """Exchange the rig for one built from the files; a bad file keeps the old one."""
        self._audience.reloading()
        try:
            self.rig = self._reload()
        except (SettingsError, ModelError) as error:
            self._audience.not_loaded(str(error))
        else:
            self._audience.loaded(self.rig)

    @contextmanager
    def _timed(self, draft: _Draft, stage: Stage) -> Iterator[None]:
        start = self._stopwatch()
        try:
            yield
        finally:
            draft.stages[stage] += self._stopwatch() - start
            self._audience.alive()


def is_paused(pause_file: Path) -> bool:
    """Whether the pause file is there; a place that cannot be looked at counts as paused."""
    try:
        pause_file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
