"""All that a cycle is reported to: metrics, log, systemd and health."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from rltuned.core.decide import Entry
from rltuned.daemon.breaker import breakers
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.forecasting import Forecaster
from rltuned.daemon.logger import Log
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.state import FRESH_CYCLES, Condition, Health, HealthState, KeptState, kept_state
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.web.board import Board
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Clock, Outcome, Result
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobKey
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import STATE
from rltuned.text import span, trusted

# What a cycle puts into the log. docs/interfaces.md lists every event.


CLOCK_S: Final = 5.0
"""From here on a difference between slurmctld's clock and this host's is in the cycle's line."""
_NAMED: Final = 20
"""So many things that cannot be read are named in one cycle; the others are counted."""
MOST_REMARKS: Final = 200
"""Different remarks of Slurm's commands that are remembered and logged."""
_FAILURES: Final = frozenset({Result.REFUSED, Result.WITHHELD, Result.FAILED})
_DIGITS: Final = re.compile(r"\d+")


def _plain(text: str) -> str:
    """Without its numbers: they differ from job to job, and from cycle to cycle."""
    return _DIGITS.sub("#", text)


class Logged:
    """What the log has already, over all cycles and reloads: a thing is logged when it changes."""

    def __init__(self) -> None:
        self._asked: dict[JobKey, tuple[float | None, int, bool]] = {}
        self._failing: dict[JobKey, tuple[Result, str]] = {}
        self._remarks: set[tuple[str, str]] = set()
        self._state = ""

    def proposals(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that are new, ask for something else, or fit now or no longer. Numbers drift with
        age and places move when a job starts, while no decision was made again.
        """
        before = self._asked
        self._asked = {
            e.job.key: (e.job.request.time_limit_s, e.job.request.size.gpus, e.fits)
            for e in entries
        }
        return [e for e in entries if before.get(e.job.key) != self._asked[e.job.key]]

    def is_new(self, health: Health) -> bool:
        """Whether the state, its numbers left out, is another one than before."""
        before, self._state = self._state, _plain(str(health))
        return self._state != before

    def failures(self, outcomes: Iterable[Outcome]) -> dict[tuple[Result, str], list[Outcome]]:
        """By cause, the changes that failed, without those that failed so the last time too."""
        found: dict[tuple[Result, str], list[Outcome]] = {}
        for outcome in outcomes:
            key = outcome.action.target.key
            if outcome.result not in _FAILURES:
                self._failing.pop(key, None)
                continue
            cause = outcome.result, _plain(outcome.detail)
            if self._failing.get(key) != cause:
                self._failing[key] = cause
                found.setdefault(cause, []).append(outcome)
        return found

    def forget(self, here: Iterable[JobKey]) -> None:
        """Keep nothing of jobs that have left the queue."""
        left = set(here)
        self._failing = {key: cause for key, cause in self._failing.items() if key in left}

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
    """One line per cycle, and one per proposed change that is not written. logged: what was logged
    before and is not logged again; None = nothing was.
    """
    logged = logged or Logged()
    if (failure := report.failure) is not None:
        line = log.error if failure.skip is Skip.UNEXPECTED else log.warning
        next_try_s = None if failure.backoff_s is None else round(failure.backoff_s, 3)
        line(
            "cycle_skipped",
            cycle=report.cycle,
            reason=failure.skip.value,
            detail=failure.detail,
            **_seconds(report),
            **_load(report),
            **_given({"next_try_s": next_try_s}),
        )
        return
    if report.mode is not HealthState.LIVE:
        for entry in logged.proposals([e for e in report.entries if e.changes]):
            log.info("proposal", cycle=report.cycle, **proposal(entry))
    for note in report.decision.notes if report.decision else ():
        log.info("note", cycle=report.cycle, note=note)
    log_verdict(log, report)
    for (result, _), failed in logged.failures(report.outcomes).items():
        log.warning(
            "change_failed",
            cycle=report.cycle,
            job=failed[0].action.target.job_id,
            jobs=len(failed),
            result=result.value,
            detail=failed[0].detail,
        )
    if report.snapshot is not None:
        logged.forget(job.key for job in report.snapshot.pending)
    troubled = (report.journal_error and report.mode is not HealthState.DRY_RUN) or report.demoted
    (log.warning if troubled else log.info)("cycle", **_cycle(report))


def log_state(log: Log, health: Health, logged: Logged) -> None:
    """A line when the state is another one than before."""
    if logged.is_new(health):
        line = log.warning if health.is_trouble else log.info
        line("state", state=health.state.value, detail=str(health))


_THEN: Final = {"job": "left alone", "reservation": "counts as none"}


def log_unreadable(log: Log, found: Collection[Unreadable]) -> None:
    """A line for each thing that cannot be read since this cycle, or cannot for another reason."""
    for row in sorted(found)[:_NAMED]:
        then = _THEN.get(row.kind, "nothing is placed there")
        log.warning("unreadable", kind=row.kind, name=row.name, why=row.why, then=then)
    if len(found) > _NAMED:
        log.warning("unreadable_more", count=len(found) - _NAMED)


def log_verdict(log: Log, report: CycleReport) -> None:
    """A line for each decided pair, each generation that moved and each opened breaker."""
    verdict = report.verdict
    if verdict is None:
        return
    for pair in verdict.pairs:
        if (means := pair.wait.means) is not None:
            on_s, off_s = (round(mean) for mean in means)
            log.info("pair_decided", partition=pair.partition, on_wait_s=on_s, off_wait_s=off_s)
    if verdict.moved is not None:
        log.warning("generation_moved", cycle=report.cycle, **verdict.moved)
    for partition in verdict.opened:
        breaker = verdict.breakers[partition]
        log.error(
            "breaker_opened",
            cycle=report.cycle,
            partition=partition,
            cause=str(breaker.cause),
            detail=breaker.detail,
            then="its jobs are restored; rltuned breaker reset closes it",
        )


def proposal(entry: Entry) -> dict[str, Any]:
    """One proposed change, in log lines and in JSON."""
    return {
        "job": entry.job.job_id,
        "partition": ",".join(entry.job.partitions),
        "old": entry.current,
        "new": entry.settled,
        "rank_before": entry.rank_before,
        "rank_after": entry.rank_wished,
        "delay_s": round(entry.delay_s),
        "why": entry.why,
    }


def _cycle(report: CycleReport) -> dict[str, Any]:
    snapshot, decision = report.snapshot, report.decision
    fields: dict[str, Any] = {
        "cycle": report.cycle,
        "summary": report.summary(),
        "mode": report.mode.value,
        "policy": decision.policy if decision else "",
        "pending": len(snapshot.pending) if snapshot else 0,
        "running": len(snapshot.running) if snapshot else 0,
        "chosen": len(report.entries),
        "left_alone": sum(report.refused().values()),
        "proposed": sum(report.proposed().values()),
    }
    first = {
        "breaker_open": ",".join(report.demoted),
        "off_block": ",".join(report.verdict.off if report.verdict else ()),
        "reverted": sum((report.reverted or {}).values()),
    }
    last = {"journal": report.journal_error, "standby": report.why(HealthState.STANDBY)}
    results = {result.value: count for result, count in report.results().items()}
    return fields | results | _given(first) | _seconds(report) | _given(last) | _load(report)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Only what is out of the ordinary."""
    return {name: value for name, value in fields.items() if value}


def _load(report: CycleReport) -> dict[str, Any]:
    weighed = report.weighed
    if weighed is None:
        return {}
    load, stretch = weighed.load, weighed.stretch
    fields = {"stretch": stretch if stretch != 1 else 0, "load_unknown": weighed.unknown}
    if load is not None:
        off_s = load.clock_off_s or 0.0
        fields |= {
            "rate_limited": load.rate_limited,
            "clock_off_s": off_s * (abs(off_s) >= CLOCK_S),
        }
    return _given(fields)


def _seconds(report: CycleReport) -> dict[str, Any]:
    return {f"{stage.value}_s": round(s, 3) for stage, s in report.stages.items()}


_OF_THE_CLOCK: Final = frozenset({HealthState.STARTING, HealthState.STALE})
"""States that follow from the time and not from a cycle; they are not kept."""
_WRITING: Final = frozenset({HealthState.LEARNING, HealthState.LIVE})
"""True of the last result; while none comes nothing is written."""
_MINUTES_S: Final = 600.0
"""An older result has its age in minutes."""


class Publisher:
    """Hands every report on. Its `health` is what /readyz asks. clock: says how old the last result
    is. journal: keeps the state.
    board: what the page shows and users are answered. forecaster: of starts. failed_nights: of
    `rltuned tune`, in a row; None = not known.
    """

    def __init__(
        self,
        metrics: Metrics,
        log: Log,
        notifier: Notifier,
        clock: Clock,
        *,
        journal: Journal | None = None,
        board: Board | None = None,
        failed_nights: Callable[[], int | None] = lambda: None,
        forecaster: Forecaster | None = None,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._notifier = notifier
        self._clock = clock
        self._journal = journal
        self._board = board
        self._failed_nights = failed_nights
        self._forecaster = forecaster
        self._unreadable: frozenset[Unreadable] = frozenset()
        self._interval_s = self._step_s = 0.0
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
        if (failed := self._failed_nights()) is not None:
            self._metrics.tuned(failed)
        if report.snapshot is not None:
            odd = frozenset(report.snapshot.unreadable)
            log_unreadable(self._log, odd - self._unreadable)
            self._unreadable = odd
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
        log_state(self._log, health, self._logged)
        self._keep(report, health)
        self._notifier.alive(f"{health}; {report.summary()}")

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
        self._interval_s = self._step_s = rig.interval_s
        self._metrics.loaded(
            rig.policy.name,
            trust=rig.policy.trust,
            at=self._clock.now(),
            digest=rig.digest,
            schema=rig.schema,
            in_place_of=rig.in_place_of.partition(": ")[0],
            ranges=rig.ranges,
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
        found = [*self._of_cycle]
        if self._reload_failed:
            found.append(Condition(HealthState.RELOAD_FAILED))
        if self._result_at_s is None:
            before = f"; before it: {self._kept.health}" if self._kept else ""
            found.append(Condition(HealthState.STARTING, before))
        else:
            age_s = self._clock.monotonic() - self._result_at_s
            if age_s > FRESH_CYCLES * self._step_s:
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
