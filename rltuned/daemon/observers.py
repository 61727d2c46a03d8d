"""All that a cycle is reported to: metrics, log, systemd, health, and a table when asked for."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rltuned.daemon.logs import Log, log_cycle, log_unreadable
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.report import CycleReport, Mode
from rltuned.daemon.runtime import Rig
from rltuned.daemon.sentences import Logged
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.web.server import Health
from rltuned.daemon.web.status import Board
from rltuned.domain.ports import Clock
from rltuned.domain.snapshot import Unreadable
from rltuned.errors import JournalError
from rltuned.journal.retention import Size

FRESH_CYCLES = 3
"""So many intervals after the last result the daemon is no longer ready."""


class Publisher:
    """Hands every report on. Its `health` is what /readyz asks.

    Args:
        clock: the one that tells how old the last result is.
        show: called with every report at last; prints the table of `--show`.
        journal: how large it is, asked after every cycle; raises JournalError.
        board: what the status page shows.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: Log,
        notifier: Notifier,
        clock: Clock,
        *,
        show: Callable[[CycleReport], None] | None = None,
        journal: Callable[[], Size] | None = None,
        board: Board | None = None,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._notifier = notifier
        self._clock = clock
        self._show = show
        self._journal = journal
        self._board = board
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._rival = ""
        self._journal_error = ""
        self._interval_s = 0.0
        self._result_at_s: float | None = None
        self._reload_error = ""
        self._logged = Logged()

    def cycle(self, report: CycleReport) -> None:
        self._metrics.update(report)
        if self._journal is not None:
            with suppress(JournalError):  # the report says that it cannot be used
                self._metrics.kept(self._journal())
        if report.snapshot is not None:
            odd = frozenset(report.snapshot.unreadable)
            log_unreadable(self._log, odd - self._unreadable)
            self._unreadable = odd
        log_cycle(self._log, report, self._logged, proposals=self._show is None)
        self._doubt(report)
        self._interval_s = report.next_in_s
        if report.ok:
            self._result_at_s = self._clock.monotonic()
        if self._board is not None:
            self._board.cycle(report)
        self._notifier.alive(report.summary())
        if self._show is not None:
            self._show(report)

    def _doubt(self, report: CycleReport) -> None:
        """What keeps everything from being written; another daemon is logged when that changes."""
        self._journal_error = "" if report.mode is Mode.DRY_RUN else report.journal_error
        if report.rival != self._rival:
            self._log.warning("rival", detail=report.rival or "no foreign numbers any more")
        self._rival = report.rival

    def alive(self) -> None:
        self._notifier.alive()

    def unexpected(self, error: Exception) -> None:
        self._log.error("unexpected_error", exc_info=error)

    def reloading(self) -> None:
        self._notifier.reloading(self._clock.monotonic())

    def loaded(self, rig: Rig) -> None:
        self._reload_error = ""
        self._interval_s = rig.interval_s
        self._metrics.loaded(
            rig.policy.name,
            at=self._clock.now(),
            digest=rig.digest,
            schema=rig.schema,
            ranges=rig.ranges,
            stage=rig.ladder.rung,
        )
        if self._board is not None:
            self._board.loaded(rig)
        self._log.info(
            "loaded",
            policy=rig.policy.name,
            digest=rig.digest,
            write_mode=rig.knobs.writing.mode,
            stage=rig.ladder.rung.value,
            dry_run=rig.dry_run,
            interval_s=rig.interval_s,
        )
        stage = "dry run" if rig.dry_run else f"stage {rig.ladder.rung}"
        self._notifier.ready(f"policy {rig.policy.name}, {stage}")

    def not_loaded(self, reason: str) -> None:
        self._reload_error = reason
        self._metrics.not_loaded()
        self._log.error("reload_failed", detail=reason, kept="the settings that were in force")
        self._notifier.ready("reload failed, old settings kept")

    def document(self) -> dict[str, Any]:
        """The state of the daemon, for the status page; without a board it is empty."""
        return {} if self._board is None else self._board.document(self.health())

    def health(self) -> Health:
        """Ready = the last result is fresh and the files on disk are good."""
        if self._reload_error:
            return Health(ready=False, reason="the last reload failed; see the log")
        if self._journal_error:
            return Health(ready=False, reason="the journal cannot be used; see the log")
        if self._result_at_s is None:
            return Health(ready=False, reason="no cycle has come to a result yet")
        age_s = self._clock.monotonic() - self._result_at_s
        if age_s > FRESH_CYCLES * self._interval_s:
            return Health(ready=False, reason=f"the last result is {age_s:.0f} s old")
        return Health(ready=True, reason="the last cycle is fresh")
