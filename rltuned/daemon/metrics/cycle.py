"""CycleReport -> Prometheus. Labels are bounded and born at zero; nothing here names a job."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from rltuned import __version__
from rltuned.core.select import Refusal
from rltuned.daemon.canary.metrics import CanaryMetrics
from rltuned.daemon.load import Weighed
from rltuned.daemon.metrics.decision import DecisionMetrics, Ranges
from rltuned.daemon.metrics.reading import ReadingMetrics
from rltuned.daemon.report import ChangeKind, CycleReport, CycleStage, Mode, Skip
from rltuned.domain.plan import Result
from rltuned.journal.retention import TABLES, Size
from rltuned.slurm.sdiag import Figure

STAGE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COMMANDS = (
    "squeue", "sinfo", "sprio", "sshare", "scontrol", "sdiag", "sacctmgr", "pyslurm", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """Who scores. digest, schema: empty for base policies; ranges: empty when not known."""

    name: str
    digest: str = ""
    schema: str = ""
    ranges: Ranges = field(default_factory=dict)


class Metrics:
    """All metrics of the daemon on one registry.

    Args:
        registry: where they are registered; one per daemon, one per test.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        # they would double the series and say nothing that is used here
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self._make_info(registry)
        self._make_cycle(registry)
        self._make_jobs(registry)
        self._make_changes(registry)
        self._make_slurm(registry)
        self._make_load(registry)
        self.decisions = DecisionMetrics(registry)
        self.canary = CanaryMetrics(registry)
        self.reading = ReadingMetrics(registry)
        self._shown_policy: tuple[str, str, str] | None = None
        self._start_at_zero()

    def _make_info(self, registry: CollectorRegistry) -> None:
        self.build = Gauge(
            "rltuned_build_info", "Version of rltuned; always 1.", ["version"], registry=registry
        )
        self.policy = Gauge(
            "rltuned_policy_info",
            "Policy in use, with digest and feature schema of its model; always 1.",
            ["name", "digest", "schema"],
            registry=registry,
        )
        self.mode = Gauge(
            "rltuned_mode",
            "1 for the mode of the last cycle: live, dry_run, paused (pause file), shadow (its "
            "stage), observe (its stage, the journal cannot be used, or another daemon seems to "
            "write) or standby (another daemon holds the lease).",
            ["mode"],
            registry=registry,
        )
        self.reloaded = Gauge(
            "rltuned_config_last_reload_successful",
            "1 when the last attempt to load settings and model succeeded, else 0.",
            registry=registry,
        )
        self.reloaded_at = Gauge(
            "rltuned_config_last_reload_success_timestamp_seconds",
            "Unix time of the last load of settings and model that succeeded.",
            registry=registry,
        )

    def _make_cycle(self, registry: CollectorRegistry) -> None:
        self.cycles = Counter(
            "rltuned_cycles", "Cycles begun, skipped ones included.", registry=registry
        )
        self.skipped = Counter(
            "rltuned_cycles_skipped",
            "Cycles without a result, by reason: backend (Slurm did not answer), snapshot (its "
            "answer is unreadable), policy (no usable scores), busy (slurmctld has "
            "no time, by sdiag) or unexpected (a bug).",
            ["reason"],
            registry=registry,
        )
        self.stages = Histogram(
            "rltuned_cycle_duration_seconds",
            "Duration of the parts of a cycle, by stage.",
            ["stage"],
            buckets=STAGE_BUCKETS_S,
            registry=registry,
        )
        self.interval = Gauge(
            "rltuned_interval_seconds",
            "Time from the start of one cycle to the start of the next, as configured.",
            registry=registry,
        )
        self.backoff = Gauge(
            "rltuned_backoff_seconds",
            "Pause before the next try because Slurm does not answer; 0 = ordinary schedule.",
            registry=registry,
        )
        self.success_at = Gauge(
            "rltuned_last_success_timestamp_seconds",
            "Unix time of the start of the last cycle that came to a result; 0 = none yet.",
            registry=registry,
        )
        self.snapshot_at = Gauge(
            "rltuned_snapshot_timestamp_seconds",
            "Unix time of the snapshot that the other values describe; 0 = none yet.",
            registry=registry,
        )
        self.journal_usable = Gauge(
            "rltuned_journal_usable",
            "1 while the journal can be used; at 0 nothing is written to Slurm.",
            registry=registry,
        )

        self.rival = Gauge(
            "rltuned_rival_suspected",
            "1 while many pending jobs have numbers that this journal never wrote: another daemon "
            "writes, or a journal was lost; nothing is written then.",
            registry=registry,
        )
        self.journal_size = Gauge(
            "rltuned_journal_size_bytes",
            "Size of the journal with its write-ahead log; 0 = there is none yet.",
            registry=registry,
        )
        self.journal_rows = Gauge(
            "rltuned_journal_rows", "Rows of the journal by table.", ["table"], registry=registry
        )

    def _make_jobs(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge(
            "rltuned_jobs",
            "Job records in the last snapshot by state; other = completing, suspended and so on.",
            ["state"],
            registry=registry,
        )
        self.chosen = Gauge(
            "rltuned_jobs_chosen", "Pending jobs that the policy ranked.", registry=registry
        )
        self.refused = Gauge(
            "rltuned_jobs_refused",
            "Pending jobs that were left alone, by reason.",
            ["reason"],
            registry=registry,
        )
        self.owned = Gauge(
            "rltuned_jobs_owned",
            "Pending jobs of the last snapshot that carry a value written by rltuned before.",
            registry=registry,
        )

    def _make_changes(self, registry: CollectorRegistry) -> None:
        self.proposed = Counter(
            "rltuned_changes_proposed",
            "Changes that plans held, by kind, applied or not.",
            ["kind"],
            registry=registry,
        )
        self.pending_changes = Gauge(
            "rltuned_changes_planned",
            "Changes in the last plan, by kind.",
            ["kind"],
            registry=registry,
        )
        self.changes = Counter(
            "rltuned_changes",
            "Changes sent to Slurm, by kind and result; gone = the job started or ended first.",
            ["kind", "result"],
            registry=registry,
        )
        self.reverted = Counter(
            "rltuned_changes_reverted",
            "Values found different from what was last written: by backfill or by a person.",
            ["kind"],
            registry=registry,
        )

    def _make_slurm(self, registry: CollectorRegistry) -> None:
        self.commands = Counter(
            "rltuned_slurm_commands", "Slurm commands run.", ["command"], registry=registry
        )
        self.command_errors = Counter(
            "rltuned_slurm_command_errors",
            "Slurm commands that failed or timed out.",
            ["command"],
            registry=registry,
        )
        self.command_seconds = Histogram(
            "rltuned_slurm_command_duration_seconds",
            "Duration of Slurm commands.",
            ["command"],
            buckets=STAGE_BUCKETS_S,
            registry=registry,
        )

    def _make_load(self, registry: CollectorRegistry) -> None:
        self.load = Gauge(
            "rltuned_slurmctld_load_ratio",
            "Figures of the last sdiag as shares of their bounds under [load]; at 1 slurmctld is "
            "left alone. NaN = not known, or it has no bound.",
            ["figure"],
            registry=registry,
        )
        self.load_known = Gauge(
            "rltuned_slurmctld_load_known",
            "1 when the last sdiag could be read; at 0 the load steers nothing.",
            registry=registry,
        )
        self.stretch = Gauge(
            "rltuned_interval_stretch_ratio",
            "By what the interval is multiplied because slurmctld is busy; 1 = ordinary.",
            registry=registry,
        )
        self.limited = Counter(
            "rltuned_rate_limited",
            "How often slurmctld delayed updates by its rate limit (rl_enable).",
            registry=registry,
        )

    def _update_load(self, weighed: Weighed | None) -> None:
        self.load_known.set(weighed is not None and weighed.load is not None)
        if weighed is None:
            return
        self.stretch.set(weighed.stretch)
        if weighed.load is not None:
            self.limited.inc(weighed.load.rate_limited)
        for figure in Figure:
            self.load.labels(figure=figure.value).set(weighed.shares.get(figure, math.nan))

    def _start_at_zero(self) -> None:
        """Give every label its series now, so that no panel and no alert is ever empty."""
        self.build.labels(version=__version__).set(1)
        _born(self.mode, Mode)
        _born(self.skipped, Skip)
        for figure in Figure:
            self.load.labels(figure=figure.value).set(math.nan)
        self.stretch.set(1)
        _born(self.stages, CycleStage)
        _born(self.journal_rows, TABLES)
        _born(self.jobs, ("pending", "running", "other"))
        _born(self.refused, Refusal)
        for family in (self.proposed, self.pending_changes, self.reverted):
            _born(family, ChangeKind)
        for kind in ChangeKind:
            for result in Result:
                self.changes.labels(kind=kind.value, result=result.value)
        for command_family in (self.commands, self.command_errors, self.command_seconds):
            _born(command_family, COMMANDS)

    def update(self, report: CycleReport) -> None:
        """Take over one cycle."""
        self.cycles.inc()
        self.interval.set(report.interval_s)
        self.backoff.set(report.backoff_s or 0.0)
        self.journal_usable.set(not report.journal_error)
        self.rival.set(bool(report.rival))
        for mode in Mode:
            self.mode.labels(mode=mode.value).set(mode is report.mode)
        for stage, seconds in report.stages.items():
            self.stages.labels(stage=stage.value).observe(seconds)
        if report.skip is not None:
            self.skipped.labels(reason=report.skip.value).inc()
        else:
            self.success_at.set(report.started_at)
        self._update_load(report.weighed)
        self.reading.update(report.snapshot, report.weighed.load if report.weighed else None)
        self.decisions.update(report.decision)
        self.canary.update(report)
        self._update_jobs(report)
        self._update_changes(report)

    def loaded(self, policy: PolicyCard, at: float) -> None:
        """Settings and model were loaded."""
        labels = (policy.name, policy.digest, policy.schema)
        if self._shown_policy not in {None, labels}:
            self.policy.clear()
        self._shown_policy = labels
        self.decisions.trained_on(policy.ranges)
        self.policy.labels(*labels).set(1)
        self.reloaded.set(1)
        self.reloaded_at.set(at)

    def not_loaded(self) -> None:
        """Settings or model could not be loaded; the old ones stay."""
        self.reloaded.set(0)

    def kept(self, size: Size) -> None:
        """The journal was measured."""
        self.journal_size.set(size.bytes)
        for table, count in size.rows.items():
            self.journal_rows.labels(table=table).set(count)

    def command(self, command: str, seconds: float, *, ok: bool) -> None:
        """One Slurm command ended."""
        name = command if command in COMMANDS else "other"
        self.commands.labels(command=name).inc()
        self.command_seconds.labels(command=name).observe(seconds)
        if not ok:
            self.command_errors.labels(command=name).inc()

    def _update_jobs(self, report: CycleReport) -> None:
        snapshot, decision = report.snapshot, report.decision
        if snapshot is not None:
            self.snapshot_at.set(snapshot.taken_at)
            self.jobs.labels(state="pending").set(len(snapshot.pending))
            self.jobs.labels(state="running").set(len(snapshot.running))
            self.jobs.labels(state="other").set(snapshot.others)
        if (owned := report.owned()) is not None:
            self.owned.set(owned)
        if decision is not None:
            self.chosen.set(len(decision.entries))
            counts = report.refused()
            for reason in Refusal:
                self.refused.labels(reason=reason.value).set(counts.get(reason.value, 0))

    def _update_changes(self, report: CycleReport) -> None:
        proposed = report.proposed()
        for kind in ChangeKind:
            self.pending_changes.labels(kind=kind.value).set(proposed.get(kind, 0))
            self.proposed.labels(kind=kind.value).inc(proposed.get(kind, 0))
        for (kind, result), count in report.applied().items():
            self.changes.labels(kind=kind.value, result=result.value).inc(count)
        for kind, count in (report.reverted or {}).items():
            self.reverted.labels(kind=kind.value).inc(count)


def _born(family: Counter | Gauge | Histogram, values: Iterable[str]) -> None:
    for value in values:
        family.labels(str(value))
