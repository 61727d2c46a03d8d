"""All that a cycle is reported to: metrics, log, systemd and health. docs/interfaces.md lists every
event of the log.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from rltuned.core.decide import Entry
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.forecasting import Forecaster
from rltuned.daemon.logger import Log
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.state import FRESH_CYCLES, Condition, Health, HealthState
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.web.board import Board
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Clock, Outcome, Result
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobKey
from rltuned.policies.actor import Actor
from rltuned.text import span, trusted

CLOCK_S: Final = 5.0
"""From here on a difference between slurmctld's clock and this host's is in the cycle's line."""
_NOTHING: Final = CanaryStatus()
MOST_REMARKS: Final = 200
"""Different remarks of Slurm's commands that are remembered and logged."""
_NAMED: Final = 20
"""So many things that cannot be read are named in one cycle; the others are counted."""
_FAILURES: Final = frozenset({Result.REFUSED, Result.WITHHELD, Result.FAILED})
_THEN: Final = {"job": "left alone", "reservation": "counts as none"}
_WRITING: Final = frozenset({HealthState.LEARNING, HealthState.LIVE})
"""True of the last result; while none comes nothing is written."""
_MINUTES_S: Final = 600.0
"""An older result has its age in minutes."""


def _plain(text: str) -> str:
    """Without its numbers: they differ from job to job, and from cycle to cycle."""
    return re.sub(r"\d+", "#", text)


class Logged:
    """What the log has already, over all cycles and reloads: a thing is logged when it changes."""

    def __init__(self) -> None:
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._asked: dict[JobKey, tuple[float | None, int, bool]] = {}
        self._failing: dict[JobKey, tuple[Result, str]] = {}
        self._remarks: set[tuple[str, str]] = set()
        self._state = ""

    def unreadable(self, report: CycleReport) -> list[Unreadable]:
        """What cannot be read since this cycle, or cannot for another reason."""
        before = self._unreadable
        if report.snapshot is not None:
            self._unreadable = frozenset(report.snapshot.unreadable)
        return sorted(self._unreadable - before)

    def proposals(self, report: CycleReport) -> list[Entry]:
        """Those that are new, ask for something else, or fit now or no longer. Numbers drift with
        age and places move when a job starts, while no decision was made again.
        """
        entries, before = [e for e in report.entries if e.changes], self._asked
        self._asked = {
            e.job.key: (e.job.request.time_limit_s, e.job.request.size.gpus, e.fits)
            for e in entries
        }
        return [e for e in entries if before.get(e.job.key) != self._asked[e.job.key]]

    def is_new(self, health: Health) -> bool:
        """Whether the state, its numbers left out, is another one than before."""
        before, self._state = self._state, _plain(str(health))
        return self._state != before

    def failures(self, report: CycleReport) -> dict[tuple[Result, str], list[Outcome]]:
        """By cause, the changes that failed, without those that failed so the last time too."""
        found: dict[tuple[Result, str], list[Outcome]] = {}
        for outcome in report.outcomes:
            key = outcome.action.target.key
            before = self._failing.pop(key, None)
            if outcome.result in _FAILURES:
                cause = self._failing[key] = outcome.result, _plain(outcome.detail)
                if before != cause:
                    found.setdefault(cause, []).append(outcome)
        if report.snapshot is not None:  # nothing is kept of jobs that have left the queue
            here = {job.key for job in report.snapshot.pending}
            self._failing = {key: cause for key, cause in self._failing.items() if key in here}
        return found

    def remarks(self, command: str, lines: Iterable[str]) -> list[str]:
        """What a command prints beside its answer, those that are new of it."""
        found = []
        for line in lines:
            key = command, _plain(line)
            if key not in self._remarks and len(self._remarks) < MOST_REMARKS:
                self._remarks.add(key)
                found.append(line)
        return found


def log_cycle(log: Log, report: CycleReport, logged: Logged | None = None) -> None:
    """One line per cycle, and one for what cannot be read, each proposed change that is not
    written, and each change that failed. logged: what was logged before and is not logged again;
    None = nothing was.
    """
    logged = logged or Logged()
    unreadable = logged.unreadable(report)
    for row in unreadable[:_NAMED]:
        then = _THEN.get(row.kind, "nothing is placed there")
        log.warning("unreadable", kind=row.kind, name=row.name, why=row.why, then=then)
    if len(unreadable) > _NAMED:
        log.warning("unreadable_more", count=len(unreadable) - _NAMED)
    if report.failure is not None:
        failure = report.failure
        line = log.error if failure.skip is Skip.UNEXPECTED else log.warning
        next_try_s = {"next_try_s": round(failure.backoff_s, 3)} if failure.backoff_s else {}
        fields = {"cycle": report.cycle, "reason": failure.skip.value, "detail": failure.detail}
        line("cycle_skipped", **fields, **_seconds_and_load(report), **next_try_s)
        return
    for entry in logged.proposals(report) if report.mode is not HealthState.LIVE else ():
        log.info(
            "proposal",
            cycle=report.cycle,
            job=entry.job.job_id,
            partition=",".join(entry.job.partitions),
            old=entry.current,
            new=entry.settled,
            rank_before=entry.rank_before,
            rank_after=entry.rank_wished,
            delay_s=round(entry.delay_s),
            why=entry.why,
        )
    for note in report.decision.notes if report.decision else ():
        log.info("note", cycle=report.cycle, note=note)
    if report.verdict is not None:
        _log_verdict(log, report.cycle, report.verdict)
    for (result, _), failed in logged.failures(report).items():
        log.warning(
            "change_failed",
            cycle=report.cycle,
            job=failed[0].action.target.job_id,
            jobs=len(failed),
            result=result.value,
            detail=failed[0].detail,
        )
    troubled = (report.journal_error and report.mode is not HealthState.DRY_RUN) or report.demoted
    (log.warning if troubled else log.info)("cycle", **_cycle(report))


def _log_verdict(log: Log, cycle: int, verdict: CanaryStatus) -> None:
    """A line for each decided pair, each generation that moved and each opened breaker."""
    for pair in verdict.pairs:
        if (means := pair.wait.means) is not None:
            on_s, off_s = (round(mean) for mean in means)
            log.info("pair_decided", partition=pair.partition, on_wait_s=on_s, off_wait_s=off_s)
    if verdict.moved is not None:
        log.warning("generation_moved", cycle=cycle, **verdict.moved)
    for partition in verdict.opened:
        breaker = verdict.breakers[partition]
        log.error(
            "breaker_opened",
            cycle=cycle,
            partition=partition,
            cause=str(breaker.cause),
            detail=breaker.detail,
            then="its jobs are restored; rltuned breaker reset closes it",
        )


def _cycle(report: CycleReport) -> dict[str, Any]:
    """The fields of a cycle's line; those of the extraordinary only where they say something."""
    seen, verdict = report.snapshot, report.verdict
    odd = {
        "breaker_open": ",".join(report.demoted),
        "off_block": ",".join(verdict.off if verdict else ()),
        "reverted": sum((report.reverted or {}).values()),
        "journal": report.journal_error,
        "standby": report.why(HealthState.STANDBY),
    }
    return {
        "cycle": report.cycle,
        "summary": report.summary(),
        "mode": report.mode.value,
        "policy": report.decision.policy if report.decision else "",
        "pending": len(seen.pending) if seen else 0,
        "running": len(seen.running) if seen else 0,
        "chosen": len(report.entries),
        "left_alone": sum(report.refused().values()),
        "proposed": sum(report.proposed().values()),
        **{result.value: count for result, count in report.results().items()},
        **{name: value for name, value in odd.items() if value},
        **_seconds_and_load(report),
    }


def _seconds_and_load(report: CycleReport) -> dict[str, Any]:
    found: dict[str, Any] = {f"{stage.value}_s": round(s, 3) for stage, s in report.stages.items()}
    if report.stretch != 1:
        found["stretch"] = report.stretch
    weighed = report.weighed
    if weighed is not None and weighed.unknown:
        found["load_unknown"] = weighed.unknown
    if weighed is not None and weighed.load is not None:
        if weighed.load.rate_limited:
            found["rate_limited"] = weighed.load.rate_limited
        if abs(off_s := weighed.load.clock_off_s or 0.0) >= CLOCK_S:
            found["clock_off_s"] = off_s
    return found


class Publisher:
    """Hands every report on. Its `health` is what /readyz asks. clock: says how old the last result
    is. board: what the page shows and users are answered. forecaster: of starts. failed_nights: of
    `rltuned tune`, in a row; None = not known. before: known before the first cycle.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: Log,
        notifier: Notifier,
        clock: Clock,
        *,
        board: Board | None = None,
        failed_nights: Callable[[], int | None] = lambda: None,
        forecaster: Forecaster | None = None,
        before: CanaryStatus = _NOTHING,
    ) -> None:
        self._metrics, self._log, self._notifier, self._clock = metrics, log, notifier, clock
        self._board, self._forecaster = board, forecaster
        self._failed_nights = failed_nights
        self._interval_s = self._step_s = 0.0
        self._result_at_s: float | None = None
        self._due_at_s = 0.0
        self._reload_failed = False
        self._of_cycle: list[Condition] = []
        self._verdict, self._logged = before, Logged()

    def cycle(self, report: CycleReport) -> None:
        if self._forecaster is not None:
            self._forecaster.cycle(report)
        self._metrics.update(report)
        if (failed := self._failed_nights()) is not None:
            self._metrics.tuned(failed)
        log_cycle(self._log, report, self._logged)
        self._verdict = report.verdict or self._verdict
        self._of_cycle = list(report.conditions(self._verdict))
        self._step_s = self._interval_s * report.stretch
        self._due_at_s = self._clock.monotonic() + self._step_s
        if report.ok:
            self._result_at_s = self._clock.monotonic()
        if self._board is not None:
            self._board.cycle(report)
        health = self.health()
        if self._logged.is_new(health):
            line = self._log.warning if health.is_trouble else self._log.info
            line("state", state=health.state.value, detail=str(health))
        self._notifier.alive(f"{health}; {report.summary()}")

    def alive(self) -> None:
        self._notifier.alive()

    def unexpected(self, error: Exception) -> None:
        self._log.error("unexpected_error", exc_info=error)

    def reloading(self) -> None:
        self._notifier.reloading(self._clock.monotonic())

    def loaded(self, rig: Rig) -> None:
        self._reload_failed = False
        self._interval_s = self._step_s = rig.interval_s
        actor = rig.policy if isinstance(rig.policy, Actor) else None
        self._metrics.loaded(
            rig.policy.name,
            trust=rig.policy.trust,
            digest=rig.digest,
            schema=actor.card.schema_id if actor else "",
            in_place_of=rig.in_place_of.partition(": ")[0],
            ranges=actor.ranges if actor else {},
            stage=rig.ladder.rung,
            interval_s=rig.interval_s,
            generation=rig.generation,
            classes=[one.name for one in rig.knobs.sla],
        )
        if self._board is not None:
            self._board.loaded(rig)
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
        found, now_s = [*self._of_cycle], self._clock.monotonic()
        if self._reload_failed:
            found.append(Condition(HealthState.RELOAD_FAILED))
        if self._result_at_s is None:
            found.append(Condition(HealthState.STARTING))
        elif (age_s := now_s - self._result_at_s) > FRESH_CYCLES * self._step_s:
            found = [c for c in found if c.state not in _WRITING]
            age = f"{age_s:.0f} s" if age_s < _MINUTES_S else span(age_s)
            late_s, late = now_s - self._due_at_s, ""
            # the state of a cycle that failed says why
            if late_s > 0 and not any(c.is_trouble for c in self._of_cycle):
                hangs = "has not ended: a Slurm command may hang"
                late = f"; the cycle due {late_s:.0f} s ago {hangs}"
            found.append(Condition(HealthState.STALE, f"{age} old{late}"))
        health = Health(found)
        self._metrics.state(health)
        return health
