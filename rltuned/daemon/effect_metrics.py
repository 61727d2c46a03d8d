"""Does it help, as Prometheus metrics: the running canary, and the last report that was kept.

What is not known is NaN, never 0: no canary, no report, or too little for an interval.
"""

import math
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from rltuned.daemon.effect import Effect
from rltuned.daemon.reckoning import Interval, Kept, Replay, State, Trial

AT: Final = ("estimate", "low", "high")
ORDERS: Final = ("slurm", "ours", "real")
COUNTED: Final = ("compared", "ended", "assumed")
_UNKNOWN: Final = (math.nan, math.nan, math.nan)


class EffectMetrics:
    """Metrics of what rltuned does for the jobs, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._make_trial(registry)
        self._make_replay(registry)
        self.running(None)
        self.kept(Kept(State.ABSENT))

    def _make_trial(self, registry: CollectorRegistry) -> None:
        self.trial = Gauge(
            "rltuned_canary_wait_difference_seconds",
            "Mean wait of a canary's treated jobs less that of its control: estimate and 95 % "
            "interval; negative = it helps. running = since the canary began or the daemon "
            "started; report = in the time of the last `rltuned report --keep`. NaN = no canary, "
            "or too few jobs.",
            ["source", "at"],
            registry=registry,
        )
        self.trial_jobs = Gauge(
            "rltuned_canary_wait_jobs",
            "Jobs that this difference compares; NaN = no canary.",
            ["source", "arm"],
            registry=registry,
        )

    def _make_replay(self, registry: CollectorRegistry) -> None:
        self.replay = Gauge(
            "rltuned_replay_wait_difference_seconds",
            "The journal's last days played again in the simulator: mean wait under the policy "
            "less that under Slurm's own order, estimate and 95 % interval; negative = it helps. "
            "NaN = no report is kept, or too little happened.",
            ["at"],
            registry=registry,
        )
        self.replay_wait = Gauge(
            "rltuned_replay_wait_seconds",
            "Mean wait of the jobs of that replay: simulated under Slurm's own order (slurm), "
            "simulated under the policy (ours), and in truth (real).",
            ["order"],
            registry=registry,
        )
        self.replay_jobs = Gauge(
            "rltuned_replay_jobs",
            "Jobs of that replay: compared; with a run time that was seen (ended), or assumed.",
            ["what"],
            registry=registry,
        )
        self.state = Gauge(
            "rltuned_report_state",
            "1 for what the last `rltuned report --keep` left: absent (there is none), fresh, "
            "stale (older than report.stale_days; shown all the same) or unusable (not shown).",
            ["state"],
            registry=registry,
        )
        self.made_at = Gauge(
            "rltuned_report_timestamp_seconds",
            "Unix time at which the report that is shown was made; NaN = none is.",
            registry=registry,
        )
        self.span = Gauge(
            "rltuned_report_span_seconds",
            "From the first to the last cycle that this report has read; NaN = none is shown.",
            registry=registry,
        )

    def running(self, found: Effect | None) -> None:
        """The canary was looked at; None = there is none."""
        values = _UNKNOWN
        if found is not None and found.difference_s is not None:
            values = (found.difference_s, _or_nan(found.low_s), _or_nan(found.high_s))
        counts = None if found is None else (found.treated, found.control)
        self._show_trial("running", values, counts)

    def kept(self, now: Kept) -> None:
        """The report was looked at."""
        for state in State:
            self.state.labels(state=state.value).set(state is now.state)
        found = now.found
        self.made_at.set(math.nan if found is None else found.made_at)
        self.span.set(math.nan if found is None else found.last - found.first)
        self._show_reported(None if found is None else found.trial)
        self._show_replay(None if found is None else found.replay)

    def _show_reported(self, trial: Trial | None) -> None:
        values = _UNKNOWN if trial is None else _values(trial.difference)
        counts = None if trial is None else (trial.treated, trial.control)
        self._show_trial("report", values, counts)

    def _show_trial(
        self, source: str, values: tuple[float, ...], counts: tuple[int, int] | None
    ) -> None:
        for at, value in zip(AT, values, strict=True):
            self.trial.labels(source=source, at=at).set(value)
        for arm, count in zip(("treated", "control"), counts or (math.nan,) * 2, strict=True):
            self.trial_jobs.labels(source=source, arm=arm).set(count)

    def _show_replay(self, replay: Replay | None) -> None:
        values = _UNKNOWN if replay is None else _values(replay.difference)
        for at, value in zip(AT, values, strict=True):
            self.replay.labels(at=at).set(value)
        waits: Mapping[str, float] = {}
        counts: Mapping[str, int] = {}
        if replay is not None:
            waits = {"slurm": replay.slurm_s, "ours": replay.ours_s, "real": replay.real_s}
            counts = {"compared": replay.jobs, "ended": replay.ended, "assumed": replay.assumed}
        for order in ORDERS:
            self.replay_wait.labels(order=order).set(waits.get(order, math.nan))
        for what in COUNTED:
            self.replay_jobs.labels(what=what).set(counts.get(what, math.nan))


def _values(found: Interval | None) -> tuple[float, ...]:
    if found is None:
        return _UNKNOWN
    return found.mean_s, _or_nan(found.low_s), _or_nan(found.high_s)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
