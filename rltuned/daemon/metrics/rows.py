"""What every cycle leaves in the metrics: one row each, with how it is read off the report."""

import math
from collections import Counter as Tally
from collections.abc import Mapping
from typing import Any, Final

from rltuned import __version__
from rltuned.core.ladder import Rung
from rltuned.core.refusals import Refusal
from rltuned.daemon.metrics.table import FREE, Row, counter, gauge, histogram, of
from rltuned.daemon.report import CycleReport, CycleStage, Skip
from rltuned.daemon.run_times import Source
from rltuned.daemon.state import HealthState
from rltuned.domain.fields import KINDS
from rltuned.domain.plan import Result
from rltuned.domain.snapshot import UNREADABLE_KINDS
from rltuned.journal.retention import TABLES
from rltuned.policies.tune_state import VERDICTS, TuneState
from rltuned.slurm.sdiag import Figure
from rltuned.slurm.source import PYSLURM, TEXT

STAGE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COMMANDS: Final = (
    "squeue", "sinfo", "sprio", "sshare", "scontrol", "sdiag", "sacct", "sacctmgr", "pyslurm",
    "other",
)  # fmt: skip


def _jobs(report: CycleReport) -> Mapping[str, int] | None:
    seen = report.snapshot
    if seen is None:
        return None
    return {"pending": len(seen.pending), "running": len(seen.running), "other": seen.others}


def _unreadable(report: CycleReport) -> Mapping[str, int] | None:
    seen = report.snapshot
    return None if seen is None else Tally(row.kind for row in seen.unreadable)


def _clock_off_s(report: CycleReport) -> float:
    load = report.weighed.load if report.weighed else None
    return math.nan if load is None or load.clock_off_s is None else load.clock_off_s


ROWS: Final[tuple[Row, ...]] = (
    # what runs
    gauge(
        "rltuned_build_info",
        "Version of rltuned; always 1.",
        start=1.0,
        labels={"version": (__version__,)},
    ),
    gauge(
        "rltuned_policy_info",
        "Policy in use, with digest and feature schema of its model; always 1.",
        labels={"name": FREE, "digest": FREE, "schema": FREE},
    ),
    gauge(
        "rltuned_model_generation",
        "Number of the generation in force (policy.name = tuned); 0 = none.",
    ),
    gauge(
        "rltuned_stage",
        "1 for the stage in the settings.",
        labels={"stage": Rung},
    ),
    gauge(
        "rltuned_mode",
        "1 for every state that holds now; `rltuned status` shows the sentence of each.",
        labels={"mode": HealthState},
    ),
    gauge(
        "rltuned_config_last_reload_successful",
        "1 when the last attempt to load settings and model succeeded, else 0.",
    ),
    gauge(
        "rltuned_config_last_reload_success_timestamp_seconds",
        "Unix time of the last load of settings and model that succeeded.",
    ),
    # cycles
    counter("rltuned_cycles", "Cycles begun, skipped ones included.", lambda _: 1),
    counter(
        "rltuned_cycles_skipped",
        "Cycles without a result: backend (Slurm did not answer), snapshot (its answer is "
        "unreadable), policy (no usable scores), busy (slurmctld, by sdiag), unexpected (a bug).",
        lambda report: report.skip and {report.skip: 1},
        labels={"reason": Skip},
    ),
    histogram(
        "rltuned_cycle_duration_seconds",
        "Duration of the parts of a cycle, by stage.",
        lambda report: {stage: [seconds] for stage, seconds in report.stages.items()},
        buckets=STAGE_BUCKETS_S,
        labels={"stage": CycleStage},
    ),
    gauge(
        "rltuned_interval_seconds",
        "From the start of one cycle to the start of the next, as configured.",
        lambda report: report.interval_s,
    ),
    gauge(
        "rltuned_backoff_seconds",
        "Pause before the next try because Slurm does not answer; 0 = ordinary schedule.",
        lambda report: report.backoff_s or 0.0,
    ),
    gauge(
        "rltuned_last_success_timestamp_seconds",
        "Unix time of the start of the last cycle that came to a result; 0 = none yet.",
        lambda report: report.started_at if report.ok else None,
    ),
    gauge(
        "rltuned_snapshot_timestamp_seconds",
        "Unix time of the snapshot that the other values describe; 0 = none yet.",
        lambda report: report.snapshot and report.snapshot.taken_at,
    ),
    gauge(
        "rltuned_journal_usable",
        "1 while the journal can be used; at 0 nothing is written to Slurm.",
        lambda report: not report.journal_error,
    ),
    gauge(
        "rltuned_rival_suspected",
        "1 while many pending jobs have numbers that this journal never wrote; nothing is "
        "written then.",
        lambda report: bool(report.rival),
    ),
    gauge(
        "rltuned_journal_size_bytes",
        "Size of the journal with its rollback journal; 0 = there is none yet.",
    ),
    gauge("rltuned_journal_rows", "Rows of the journal by table.", labels={"table": TABLES}),
    # jobs and changes
    gauge(
        "rltuned_jobs",
        "Job records in the last snapshot by state; other = completing, suspended and so on.",
        _jobs,
        labels={"state": ("pending", "running", "other")},
    ),
    gauge(
        "rltuned_jobs_chosen",
        "Pending jobs that the policy ranked.",
        lambda report: report.decision and len(report.decision.entries),
    ),
    gauge(
        "rltuned_jobs_refused",
        "Pending jobs that were left alone, by reason.",
        lambda report: report.decision and report.refused(),
        labels={"reason": Refusal},
    ),
    gauge(
        "rltuned_jobs_owned",
        "Pending jobs of the last snapshot that carry a value written by rltuned before.",
        lambda report: report.owned(),
    ),
    counter(
        "rltuned_changes_proposed",
        "Changes that plans held, by kind, applied or not.",
        lambda report: report.proposed(),
        labels={"kind": KINDS},
    ),
    gauge(
        "rltuned_changes_planned",
        "Changes in the last plan, by kind.",
        lambda report: report.proposed(),
        labels={"kind": KINDS},
    ),
    counter(
        "rltuned_changes",
        "Changes sent to Slurm, by kind and result; gone = the job started or ended first.",
        lambda report: report.applied(),
        labels={"kind": KINDS, "result": Result},
    ),
    counter(
        "rltuned_changes_reverted",
        "Values found different from what was last written: by backfill or by a person.",
        lambda report: report.reverted,
        labels={"kind": KINDS},
    ),
    # Slurm
    counter("rltuned_slurm_commands", "Slurm commands run.", labels={"command": COMMANDS}),
    counter(
        "rltuned_slurm_command_errors",
        "Slurm commands that failed or timed out.",
        labels={"command": COMMANDS},
    ),
    counter(
        "rltuned_slurm_command_remarks",
        "Lines that Slurm commands printed on standard error beside a good answer, which is used.",
        labels={"command": COMMANDS},
    ),
    histogram(
        "rltuned_slurm_command_duration_seconds",
        "Duration of Slurm commands.",
        buckets=STAGE_BUCKETS_S,
        labels={"command": COMMANDS},
    ),
    gauge(
        "rltuned_slurmctld_load_ratio",
        "Figures of the last sdiag as shares of their bounds under [load]; at 1 slurmctld is "
        "left alone. NaN = not known, or it has no bound.",
        lambda report: report.weighed and report.weighed.shares,
        start=math.nan,
        labels={"figure": Figure},
    ),
    gauge(
        "rltuned_slurmctld_load_known",
        "1 when the last sdiag could be read; at 0 the load steers nothing.",
        lambda report: report.weighed is not None and report.weighed.load is not None,
    ),
    gauge(
        "rltuned_interval_stretch_ratio",
        "By what the interval is multiplied because slurmctld is busy; 1 = ordinary.",
        lambda report: report.weighed and report.weighed.stretch,
        start=1.0,
    ),
    counter(
        "rltuned_rate_limited",
        "How often slurmctld delayed updates by its rate limit (rl_enable).",
        lambda report: report.weighed and report.weighed.load and report.weighed.load.rate_limited,
    ),
    gauge(
        "rltuned_reader",
        "1 for the reader of jobs.",
        labels={"reader": (TEXT, PYSLURM)},
    ),
    gauge(
        "rltuned_reader_stand_in",
        "1 while squeue as text stands in for a pyslurm that cannot be used.",
    ),
    gauge(
        "rltuned_unreadable",
        "Jobs, nodes and partitions of the last snapshot that could not be read, by kind.",
        _unreadable,
        labels={"kind": UNREADABLE_KINDS},
    ),
    gauge(
        "rltuned_slurmctld_clock_offset_seconds",
        "How far slurmctld's clock is ahead of this host's; 0 = within 1 s, NaN = unknown.",
        _clock_off_s,
        start=math.nan,
    ),
    # run times
    gauge(
        "rltuned_run_times_source",
        "1 for where the memory of run times began: file (of the last daemon), sacct, looks "
        "(empty), loading (not there yet) or off (after errors).",
        of("run_times", lambda status: {status.source: 1}),
        labels={"source": Source},
    ),
    gauge(
        "rltuned_run_times_ends",
        "Ended jobs that the memory of run times has learned from, over all restarts.",
        of("run_times", lambda status: status.ends),
    ),
    gauge(
        "rltuned_run_times_kinds",
        "Kinds of jobs that the memory of run times knows.",
        of("run_times", lambda status: status.kinds),
    ),
    gauge(
        "rltuned_run_times_error",
        "Mean |ln(run time / prediction)| of the last ended jobs; NaN = nothing was predicted.",
        of("run_times", lambda status: math.nan if status.error is None else status.error),
        start=math.nan,
    ),
    gauge(
        "rltuned_run_times_limit_share",
        "What a job's time limit counts beside its predicted run time: 0.5, and up to 1 where "
        "limits tell run times; NaN = nothing was predicted.",
        of(
            "run_times",
            lambda status: math.nan if status.limit_share is None else status.limit_share,
        ),
        start=math.nan,
    ),
    gauge(
        "rltuned_run_times_faults",
        "Errors of this process that cost the memory of run times.",
        of("run_times", lambda status: status.faults),
    ),
    # the nightly `rltuned tune`
    gauge(
        "rltuned_tune_last_verdict_timestamp_seconds",
        "When a night of `rltuned tune` last came to its end, in Unix seconds; 0 = never.",
    ),
    gauge(
        "rltuned_tune_failed_nights",
        "Nights of `rltuned tune` in a row that did not come to their end.",
    ),
    gauge(
        "rltuned_tune_verdict",
        "1 for the verdict of the last night; nothing = the record allows none.",
        labels={"verdict": VERDICTS},
    ),
    gauge(
        "rltuned_tune_change_ratio",
        "Change of the objective of the last night's winner on the test period, with its 95% "
        "interval; -0.1 = ten percent less; NaN = there was no winner.",
        labels={"bound": ("low", "mean", "high")},
        start=math.nan,
    ),
)


def values_of(state: TuneState) -> Mapping[str, Any]:
    """By the names of the metrics without their prefix."""
    change = {"low": state.low, "mean": state.change, "high": state.high}
    return {
        "tune_last_verdict_timestamp_seconds": state.ended_at,
        "tune_failed_nights": state.failed,
        "tune_verdict": {state.verdict: 1},
        "tune_change_ratio": {k: math.nan if v is None else v for k, v in change.items()},
    }
