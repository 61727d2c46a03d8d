"""What every cycle leaves in the metrics: one row each, with how it is read off the report."""

import math
from collections import Counter as Tally
from collections.abc import Mapping
from typing import Final

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
from rltuned.slurm.pyslurm import PYSLURM, TEXT
from rltuned.slurm.site import Figure

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
        "Policy in use, with digest and feature schema of its model, its trust (empty = it "
        "corrects no rule) and the model that it stands in for (empty = none); always 1.",
        labels={"name": FREE, "digest": FREE, "schema": FREE, "trust": FREE, "in_place_of": FREE},
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
    # jobs and changes
    gauge(
        "rltuned_jobs",
        "Job records in the last snapshot by state; other = completing, suspended and so on.",
        _jobs,
        labels={"state": ("pending", "running", "other")},
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
    counter(
        "rltuned_slurm_command_errors",
        "Slurm commands that failed or timed out.",
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
        "rltuned_unreadable",
        "Jobs, nodes, partitions and reservations of the last snapshot that could not be read.",
        _unreadable,
        labels={"kind": UNREADABLE_KINDS},
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
        "rltuned_run_times_error",
        "Mean |ln(run time / prediction)| of the last ended jobs; NaN = nothing was predicted.",
        of("run_times", lambda status: math.nan if status.error is None else status.error),
        start=math.nan,
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
)
