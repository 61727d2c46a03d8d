"""What a cycle puts into the log. docs/interfaces.md lists every event."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from rltuned.core.decide import Entry
from rltuned.daemon.logger import Log
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.state import Health, HealthState
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobKey

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


def log_cycle(
    log: Log, report: CycleReport, logged: Logged | None = None, *, proposals: bool = True
) -> None:
    """One line per cycle, and one per proposed change that is not written (if `proposals`).

    logged: what was logged before and is not logged again; None = nothing was. proposals: False =
    they are shown elsewhere.
    """
    logged = logged or Logged()
    if report.skip is not None:
        line = log.error if report.skip is Skip.UNEXPECTED else log.warning
        line("cycle_skipped", **_skipped(report))
        return
    if proposals and report.mode is not HealthState.LIVE:
        for entry in logged.proposals(report.changes()):
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
    if (moved := report.moved) is not None:
        log.warning("generation_moved", cycle=report.cycle, **asdict(moved))
    for partition in verdict.opened:
        breaker = verdict.breakers[partition]
        log.error(
            "breaker_opened",
            cycle=report.cycle,
            partition=partition,
            cause=str(breaker.cause),
            detail=breaker.detail,
            then="its jobs get their own standing back; rltuned breaker reset closes it",
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
        "summary": report.sentence(),
        "mode": report.mode.value,
        "policy": decision.policy if decision else "",
        "pending": len(snapshot.pending) if snapshot else 0,
        "running": len(snapshot.running) if snapshot else 0,
        "chosen": len(decision.entries) if decision else 0,
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


def _skipped(report: CycleReport) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "cycle": report.cycle,
        "reason": report.skip.value if report.skip else "",
        "detail": report.detail,
    }
    fields = fields | _seconds(report) | _load(report)
    if report.backoff_s is not None:
        fields["next_try_s"] = round(report.backoff_s, 3)
    return fields


def _seconds(report: CycleReport) -> dict[str, Any]:
    return {f"{stage.value}_s": round(s, 3) for stage, s in report.stages.items()}
