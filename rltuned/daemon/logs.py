"""What a cycle puts into the log. docs/interfaces.md lists every event."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from rltuned.core.decide import Entry
from rltuned.daemon.logger import Log
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.sentences import Logged
from rltuned.daemon.state import Health, HealthState
from rltuned.domain.snapshot import Unreadable
from rltuned.slurm.pyslurm import ReaderChoice

CLOCK_S: Final = 5.0
"""From here on a difference between slurmctld's clock and this host's is in the cycle's line."""
_NAMED: Final = 20
"""So many things that cannot be read are named in one cycle; the others are counted."""


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


def log_remark(log: Log, command: str, remark: str) -> None:
    """A line for what a command of Slurm says beside a good answer."""
    log.warning("slurm_remark", command=command, detail=remark, then="its answer is used")


def log_reading(log: Log, reading: ReaderChoice) -> None:
    """A line when the reader of the jobs is another one than before."""
    line = log.warning if reading.stands_in else log.info
    line("reader", wanted=reading.wanted, reader=reading.reader, detail=reading.detail)


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
    last = {"journal": report.journal_error, "standby": report.standby}
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
