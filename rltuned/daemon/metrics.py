"""Every metric of a cycle: one row each, with how it is read off the report.

A value that is not known is NaN, never 0: no job was ranked, or the model's card has no ranges.
"""

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry, Metric, ProcessCollector, disable_created_metrics

from rltuned import __version__
from rltuned.core.decide import Decision
from rltuned.core.features import COLUMNS, StateMatrix
from rltuned.core.ladder import Evidence, Rung
from rltuned.core.milp import SolveStatus
from rltuned.core.refusals import Refusal
from rltuned.daemon.breaker import Cause, Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.metric_table import FREE, PARTITIONS, Row, Table, counter, gauge, histogram, of
from rltuned.daemon.report import CycleReport, CycleStage, Skip
from rltuned.daemon.state import Health, HealthState
from rltuned.domain.jobs import JobRun, Side
from rltuned.domain.plan import KINDS, Result
from rltuned.slurm.site import Figure

STAGE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COMMANDS: Final = (
    "squeue", "sinfo", "sprio", "sshare", "scontrol", "sdiag", "sacct", "sacctmgr", "pyslurm",
    "other",
)  # fmt: skip


WAIT_BUCKETS_S: Final = (
    10, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 172_800, 604_800,
)  # fmt: skip
SLOWDOWN_BUCKETS: Final = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 300, 1_000)
AT: Final = ("estimate", "low", "high")
STATES: Final = ("pending", "running", "ranked", "moved", "refused")
COMPARED: Final = (Cause.WAIT, Cause.SLOWDOWN)


_of: Final = partial(of, "verdict")


Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value of a feature that a model was trained on, by its name in COLUMNS."""

PLACES_BUCKETS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
DELAY_AT: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
_ROUNDING: Final = 1e-6
"""Features are float32, ranges went through JSON."""


_decided: Final = partial(of, "decision")


def _moves(decision: Decision) -> Mapping[str, list[int]]:
    places = [entry.rank_before - entry.rank_wished for entry in decision.entries]
    return {"up": [p for p in places if p > 0], "down": [-p for p in places if p < 0]}


def outside(matrix: StateMatrix, ranges: Ranges) -> Mapping[str, float] | None:
    """Share of the ranked jobs outside the range, by feature; None = none was ranked."""
    if not len(matrix.jobs):
        return None
    found = {}
    for feature, (low, high) in ranges.items():
        values = matrix.column(feature)
        beyond = (values < low - _ROUNDING) | (values > high + _ROUNDING)
        found[feature] = float(beyond.mean())
    return found


def _quantile(values: np.ndarray, share: float) -> float:
    """NaN of nothing."""
    return float(np.quantile(values, share)) if len(values) else math.nan


DECISION: Final[tuple[Row, ...]] = (
    histogram(
        "rltuned_rank_displacement_places",
        "Places between Slurm's order and the new one, of the jobs of each decision that "
        "stand elsewhere, by direction.",
        _decided(_moves),
        buckets=PLACES_BUCKETS,
        labels={"direction": ("up", "down")},
    ),
    gauge(
        "rltuned_delay_seconds",
        "Delays of the ranked jobs in the last decision: smallest, quartiles, largest; NaN = "
        "none was ranked.",
        _decided(lambda d: {at: _quantile(d.delays.delay_s, q) for at, q in DELAY_AT.items()}),
        start=math.nan,
        labels={"at": DELAY_AT},
    ),
    gauge(
        "rltuned_feature_outside_training_ratio",
        "Share of the ranked jobs whose feature lies outside the range on the model's card; "
        "NaN = no range is known, or no job was ranked.",
        start=math.nan,
        labels={"feature": COLUMNS},
    ),
    counter(
        "rltuned_joint_placements",
        "Joint placements by how they came about; fell_back = the greedy one stands.",
        _decided(lambda decision: decision.joint and {decision.joint.how: 1}),
        labels={"how": SolveStatus},
    ),
)


def _queue(report: CycleReport) -> Mapping[tuple[str, str], int] | None:
    seen, decision = report.snapshot, report.decision
    if seen is None:
        return None
    first = {job.job_id: job.partitions[0] for job in seen.pending}
    entries, refused = (decision.entries, decision.refused) if decision else ((), ())
    named = {
        "pending": Tally(first.values()),
        "running": Tally(job.partition for job in seen.running if job.partition),
        "ranked": Tally(first[entry.job.job_id] for entry in entries),
        "moved": Tally(first[entry.job.job_id] for entry in entries if entry.changes),
        "refused": Tally(first[job] for job, _ in refused if job in first),
    }
    return {(name, state): n for state, by in named.items() for name, n in by.items()}


def _by_side(values: Iterable[tuple[JobRun, float | None]]) -> Mapping[Any, list[float]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, value in values:
        if value is not None:
            found[run.job.partition, run.side].append(value)
    return found


def _difference(status: CanaryStatus) -> Mapping[str, float]:
    return dict(zip(AT, (status.effect or Effect()).interval_s or (), strict=False))


def _opened(status: CanaryStatus) -> Mapping[str, int]:
    causes = (status.breakers[name].cause for name in status.opened)
    return Tally(cause for cause in causes if cause is not None)


def _evidence(status: CanaryStatus) -> Mapping[tuple[str, str], float]:
    return {
        (name, cause): evidence.value
        for name, breaker in status.breakers.items()
        for cause, evidence in breaker.harm.items()
    }


JOBS: Final[tuple[Row, ...]] = (
    gauge(
        "rltuned_gpus",
        "GPUs of the last snapshot by state and type: used, free, or down (free ones on nodes "
        "that start no jobs).",
        of("sums", lambda sums: sums.gpus),
        labels={"state": FREE, "type": FREE},
    ),
    gauge(
        "rltuned_gpus_wanted",
        "GPUs that waiting jobs ask for, by the first partition that a job names; jobs and tasks "
        "of arrays that cannot start are left out.",
        of("sums", lambda sums: sums.wanted),
        labels={"partition": PARTITIONS},
    ),
    gauge(
        "rltuned_backlog_seconds",
        "For how long the expected work of the waiting jobs keeps the GPUs busy that they could "
        "run on, by the first partition that a job names.",
        of("sums", lambda sums: sums.backlog_s),
        labels={"partition": PARTITIONS},
        apart=True,
    ),
    gauge(
        "rltuned_partition_jobs",
        "Jobs of the last snapshot by the first partition that they name; ranked by the policy, "
        "moved by the plan, refused = left alone.",
        _queue,
        labels={"partition": PARTITIONS, "state": STATES},
    ),
    histogram(
        "rltuned_job_wait_seconds",
        "From submission to start, of jobs that started, by partition and by whether delays "
        "were on when they became eligible; other = not managed.",
        _of(lambda status: _by_side((run, run.wait_s) for run in status.runs.started)),
        buckets=WAIT_BUCKETS_S,
        labels={"partition": PARTITIONS, "delays": Side},
    ),
    histogram(
        "rltuned_job_bounded_slowdown_ratio",
        "Bounded slowdown (10 s) of jobs that were seen to start and have ended.",
        _of(lambda status: _by_side((run, run.slowdown) for run in status.runs.ended)),
        buckets=SLOWDOWN_BUCKETS,
        labels={"partition": PARTITIONS, "delays": Side},
    ),
    counter(
        "rltuned_sla_jobs",
        "Jobs of a class of [[sla]] that started, or that wait longer than promised, each once.",
        _of(lambda status: {one.name: n for one, (n, _) in status.promises.items()}),
        labels={"class": FREE},
    ),
    counter(
        "rltuned_sla_breaches",
        "Jobs of a class of [[sla]] that waited longer than promised, counted when they pass the "
        "bound.",
        _of(lambda status: {one.name: n for one, (_, n) in status.promises.items()}),
        labels={"class": FREE},
    ),
    gauge(
        "rltuned_breaker_open",
        "1 for a partition whose circuit breaker is open.",
        _of(lambda status: {name: breaker.is_open for name, breaker in status.breakers.items()}),
        labels={"partition": PARTITIONS},
        apart=True,
    ),
    counter(
        "rltuned_breaker_opened",
        "Circuit breakers opened, by cause.",
        _of(_opened),
        labels={"cause": Cause},
    ),
    gauge(
        "rltuned_canary_evidence_ratio",
        "E-value of the switchback: evidence that on blocks do harm; 1 = none, at 1000 the "
        "breaker opens.",
        _of(_evidence),
        start=Evidence().value,
        labels={"partition": PARTITIONS, "figure": COMPARED},
        apart=True,
    ),
    gauge(
        "rltuned_canary_delays_on",
        "1 in an on block of the partition's switchback, 0 in an off block (Slurm's own "
        "order); NaN = there is no switchback.",
        _of(lambda status: {name: block.on for name, block in status.blocks.items()}),
        start=math.nan,
        labels={"partition": PARTITIONS},
        apart=True,
    ),
    gauge(
        "rltuned_canary_wait_difference_seconds",
        "Mean wait in on blocks of the switchback less that in off blocks: estimate and 95 % "
        "interval by pairs of blocks, under the model in force; negative = it helps. NaN = no "
        "switchback, or too few pairs.",
        _of(_difference),
        start=math.nan,
        labels={"at": AT},
    ),
)


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
    ),
    gauge(
        "rltuned_backoff_seconds",
        "Pause before the next try because Slurm does not answer; 0 = ordinary schedule.",
        lambda report: (report.failure and report.failure.backoff_s) or 0.0,
    ),
    gauge(
        "rltuned_last_success_timestamp_seconds",
        "Unix time of the start of the last cycle that came to a result; 0 = none yet.",
        lambda report: report.started_at if report.ok else None,
    ),
    # jobs and changes
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
    # the nightly `rltuned tune`
    gauge(
        "rltuned_tune_failed_nights",
        "Nights of `rltuned tune` in a row that did not come to their end.",
    ),
)


# All metrics of the daemon on one registry: fed by cycles, and by what else happens.


class OfCluster(CollectorRegistry):
    """The series of another registry with the label `cluster`, once its name is known."""

    def __init__(self, source: CollectorRegistry) -> None:
        super().__init__(auto_describe=False)
        self._source = source
        self.cluster = ""

    def collect(self) -> Iterator[Metric]:
        """All families; those of the source stay as they are."""
        for family in self._source.collect():
            if self.cluster:
                mine = {"cluster": self.cluster}
                family.samples = [s._replace(labels=mine | s.labels) for s in family.samples]
            yield family


class Metrics:
    """All metrics of the daemon on one registry; /metrics shows them as `exposed`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # they would double the series and say nothing that is used here
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        ProcessCollector(registry=registry)
        self.exposed = OfCluster(registry)
        self._table = Table((*ROWS, *DECISION, *JOBS), registry)
        self._policy: tuple[str, ...] | None = None
        self._ranges: Ranges = {}

    def update(self, report: CycleReport) -> None:
        if report.snapshot is not None:
            self.exposed.cluster = report.snapshot.cluster
        for partition in report.snapshot.partitions if report.snapshot else ():
            self._table.show(partition.name)
        self._table.read(report)
        if report.decision is not None:
            self._set(feature_outside_training_ratio=outside(report.decision.matrix, self._ranges))

    def state(self, health: Health) -> None:
        self._set(mode={condition.state: 1 for condition in health.conditions})

    def show(self, partition: str) -> None:
        """Give a partition its series, if it is new and there are not too many."""
        self._table.show(partition)

    def loaded(
        self,
        name: str,
        *,
        trust: float | None = None,
        digest: str = "",
        schema: str = "",
        in_place_of: str = "",
        ranges: Ranges | None = None,
        stage: Rung = Rung.OBSERVE,
        interval_s: float = 0.0,
        generation: str = "",
        classes: Collection[str] = (),
    ) -> None:
        """Settings and model were loaded. trust: see Policy. digest: empty = a rule. in_place_of:
        the model that a rule stands in for; empty = none. ranges: of the model's training; None =
        not known. generation: that is in force; empty = none.
        """
        policy = (name, digest, schema, "" if trust is None else f"{trust:g}", in_place_of)
        if self._policy not in {None, policy}:
            self._table.clear("rltuned_policy_info")
        self._policy = policy
        self._ranges = ranges or {}
        self._set(
            policy_info={policy: 1},
            model_generation=int(generation.split("-")[1]) if generation else 0,
            feature_outside_training_ratio={},
            stage={stage: 1},
            interval_seconds=interval_s,
            config_last_reload_successful=1,
            sla_jobs=dict.fromkeys(classes, 0),
            sla_breaches=dict.fromkeys(classes, 0),
        )

    def not_loaded(self) -> None:
        self._set(config_last_reload_successful=0)

    def tuned(self, failed_nights: int) -> None:
        self._set(tune_failed_nights=failed_nights)

    def command(self, command: str, seconds: float, *, ok: bool) -> None:
        name = command if command in COMMANDS else "other"
        self._set(
            slurm_command_duration_seconds={name: [seconds]},
            slurm_command_errors=None if ok else {name: 1},
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            self._table.put(f"rltuned_{name}", value)
