"""All that a cycle is reported to: metrics, log, systemd, health, and a table when asked for."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from rltuned.daemon.canary.breaker import breakers
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.daemon.forecasting import Forecaster
from rltuned.daemon.logger import Log
from rltuned.daemon.logs import Logged, log_cycle, log_state, log_unreadable
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import FRESH_CYCLES, Condition, Health, HealthState, KeptState, kept_state
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.web.answers import Answers
from rltuned.daemon.web.status import Board
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Clock
from rltuned.domain.snapshot import Unreadable
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import STATE
from rltuned.policies.tune_state import TuneState
from rltuned.text import span, trusted

_OF_THE_CLOCK: Final = frozenset({HealthState.STARTING, HealthState.STALE})
"""States that follow from the time and not from a cycle; they are not kept."""
_WRITING: Final = frozenset({HealthState.LEARNING, HealthState.LIVE})
"""True of the last result; while none comes nothing is written."""
_MINUTES_S: Final = 600.0
"""An older result has its age in minutes."""


class Publisher:
    """Hands every report on. Its `health` is what /readyz asks. clock: says how old the last result
    is. show: called with every report at last. journal: keeps the state.
    board: what the status page shows. answers: what users are answered. forecaster: of
    starts. tuned: the last night of `rltuned tune`.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: Log,
        notifier: Notifier,
        clock: Clock,
        *,
        show: Callable[[CycleReport], None] | None = None,
        journal: Journal | None = None,
        board: Board | None = None,
        tuned: Callable[[], TuneState | None] | None = None,
        answers: Answers | None = None,
        forecaster: Forecaster | None = None,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._notifier = notifier
        self._clock = clock
        self._show = show
        self._journal = journal
        self._board = board
        self._tuned = tuned
        self._answers = answers
        self._forecaster = forecaster
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._interval_s = 0.0
        self._result_at_s: float | None = None
        self._due_at_s = 0.0
        self._reload_failed = False
        self._of_cycle: list[Condition] = []
        self._verdict = CanaryStatus()
        self._logged = Logged()
        self._kept = self._recall()

    def cycle(self, report: CycleReport) -> None:
        if self._forecaster is not None:
            self._forecaster.cycle(report)
        self._metrics.update(report)
        last = None if self._tuned is None else self._tuned()
        if last is not None:
            self._metrics.tuned(last)
        if report.snapshot is not None:
            odd = frozenset((*report.snapshot.unreadable, *report.left_alone))
            log_unreadable(self._log, odd - self._unreadable)
            self._unreadable = odd
        log_cycle(self._log, report, self._logged, proposals=self._show is None)
        self._verdict = report.verdict or self._verdict
        self._of_cycle = report.conditions(self._verdict)
        self._interval_s = report.next_in_s
        self._due_at_s = self._clock.monotonic() + report.next_in_s
        if report.ok:
            self._result_at_s = self._clock.monotonic()
        for shown in (self._board, self._answers):
            if shown is not None:
                shown.cycle(report)
        health = self.health()
        log_state(self._log, health, self._logged)
        self._keep(report, health)
        self._notifier.alive(f"{health}; {report.summary()}")
        if self._show is not None:
            self._show(report)

    def _recall(self) -> KeptState | None:
        """What was known before the start, the breakers and the comparison of then in force."""
        if self._journal is None:
            return None
        with suppress(JournalError):  # the first cycle says what is wrong with it
            kept = kept_state(self._journal.recall(STATE))
            if kept is not None:
                known = breakers(self._journal, kept.cluster)
                self._verdict = CanaryStatus(breakers=known, effect=kept.effect)
            return kept
        return None

    def _keep(self, report: CycleReport, health: Health) -> None:
        """Remember the state when it is another one."""
        before = self._kept
        cluster = report.snapshot.cluster if report.snapshot else before.cluster if before else ""
        now = KeptState(
            at=report.started_at,
            cluster=cluster,
            conditions=tuple(c for c in health.conditions if c.state not in _OF_THE_CLOCK),
            effect=self._verdict.effect,
        )
        if before is not None and now == before.model_copy(update={"at": now.at}):
            return
        self._kept = now
        if self._journal is not None:
            with suppress(JournalError):  # the report says that it cannot be used
                self._journal.remember(STATE, now.model_dump(mode="json"), report.started_at)

    def alive(self) -> None:
        self._notifier.alive()

    def unexpected(self, error: Exception) -> None:
        self._log.error("unexpected_error", exc_info=error)

    def reloading(self) -> None:
        self._notifier.reloading(self._clock.monotonic())

    def loaded(self, rig: Rig) -> None:
        self._reload_failed = False
        self._interval_s = rig.interval_s
        self._metrics.loaded(
            rig.policy.name,
            trust=rig.policy.trust,
            at=self._clock.now(),
            digest=rig.digest,
            schema=rig.schema,
            in_place_of=rig.in_place_of.partition(": ")[0],
            ranges=rig.ranges,
            stage=rig.ladder.rung,
            generation=rig.generation,
            classes=[one.name for one in rig.knobs.sla],
        )
        if self._board is not None:
            self._board.loaded(rig)
        if self._answers is not None:
            self._answers.loaded(rig)
        if rig.in_place_of:
            self._log.warning("rule_stands_in", in_place_of=rig.in_place_of)
        self._log.info(
            "loaded",
            policy=rig.policy.name,
            trust=rig.policy.trust,
            digest=rig.digest,
            generation=rig.generation,
            write_mode=rig.knobs.writing.mode,
            stage=rig.ladder.rung.value,
            dry_run=rig.dry_run,
            interval_s=rig.interval_s,
        )
        policy = trusted(rig.policy.name, rig.policy.trust)
        stage = "dry run" if rig.dry_run else f"stage {rig.ladder.rung}"
        self._notifier.ready(f"{self.health()}; policy {policy}, {stage}")

    def not_loaded(self, reason: str) -> None:
        self._reload_failed = True
        self._metrics.not_loaded()
        self._log.error("reload_failed", detail=reason, kept="the settings that were in force")
        self._notifier.ready(str(self.health()))

    def document(self) -> dict[str, Any]:
        """The state of the daemon, for the status page; without a board it is empty."""
        if self._board is None:
            return {}
        forecast = None if self._forecaster is None else asdict(self._forecaster.status)
        return {**self._board.document(self.health(), self._verdict), "forecast": forecast}

    def health(self) -> Health:
        """All that holds now; the metric follows, also when no cycle ends any more."""
        found = [*self._of_cycle]
        if self._reload_failed:
            found.append(Condition(HealthState.RELOAD_FAILED))
        if self._result_at_s is None:
            before = f"; before it: {self._kept.health}" if self._kept else ""
            found.append(Condition(HealthState.STARTING, before))
        else:
            age_s = self._clock.monotonic() - self._result_at_s
            if age_s > FRESH_CYCLES * self._interval_s:
                found = [c for c in found if c.state not in _WRITING]
                age = f"{age_s:.0f} s" if age_s < _MINUTES_S else span(age_s)
                found.append(Condition(HealthState.STALE, f"{age} old{self._late()}"))
        health = Health(found)
        self._metrics.state(health)
        return health

    def _late(self) -> str:
        """How long a cycle has been due that has not ended; the state of one that failed says
        why.
        """
        late_s = self._clock.monotonic() - self._due_at_s
        if late_s <= 0 or any(c.is_trouble for c in self._of_cycle):
            return ""
        return f"; the cycle due {late_s:.0f} s ago has not ended: a Slurm command may hang"
