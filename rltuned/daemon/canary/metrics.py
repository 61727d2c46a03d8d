"""The queue by partition, how jobs fare, what limits and breakers do, as Prometheus metrics.

The names of partitions are the only labels that are a site's own: they have their series from the
first look on, and beyond MAX_PARTITIONS of them the rest share one.
"""

import math
from collections import Counter as Tally
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rltuned.core.decide import Decision
from rltuned.core.evidence import Evidence
from rltuned.core.ladder import Rung
from rltuned.daemon.canary.breaker import Breaker, Cause
from rltuned.daemon.canary.effect import Effect
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.daemon.canary.outcomes import Outcomes, Side
from rltuned.daemon.canary.shadow import Agreement
from rltuned.daemon.report import CycleReport, Mode
from rltuned.domain.snapshot import Snapshot

MAX_PARTITIONS: Final = 64
THE_REST: Final = "(more)"
"""No partition can be named so."""
WAIT_BUCKETS_S: Final = (
    10, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 172_800, 604_800,
)  # fmt: skip
PARTITION_JOBS: Final = ("pending", "running", "ranked", "moved", "refused")
AT: Final = ("estimate", "low", "high")
SLOWDOWN_BUCKETS: Final = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 300, 1_000)


class CanaryMetrics:
    """Metrics of the trust ladder on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._known: set[str] = set()
        self._make_stage(registry)
        self._make_outcomes(registry)
        self._make_breakers(registry)
        self.partition_jobs = Gauge(
            "rltuned_partition_jobs",
            "Jobs of the last snapshot by partition (the first that a job names): pending, "
            "running, ranked by the policy, moved by the plan, refused (left alone).",
            ["partition", "state"],
            registry=registry,
        )
        for rung in Rung:
            self.rung.labels(stage=rung.value)
        for verdict in ("agreed", "otherwise"):
            self.shadow_starts.labels(verdict=verdict)
        for order in ("ours", "slurm"):
            self.agreement.labels(order=order)
        for cause in Cause:
            self.breaker_opened.labels(cause=cause.value)

    def _make_stage(self, registry: CollectorRegistry) -> None:
        self.rung = Gauge(
            "rltuned_stage",
            "1 for the stage in the settings: observe, shadow, canary or full.",
            ["stage"],
            registry=registry,
        )

    def _make_outcomes(self, registry: CollectorRegistry) -> None:
        self.wait = Histogram(
            "rltuned_job_wait_seconds",
            "From submission to start, of jobs that started, by partition and by whether delays "
            "were on when they became eligible: on, off, or other (not managed).",
            ["partition", "delays"],
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self.slowdown = Histogram(
            "rltuned_job_bounded_slowdown_ratio",
            "Bounded slowdown (10 s) of jobs that were seen to start and have ended, by partition "
            "and by whether delays were on when they became eligible.",
            ["partition", "delays"],
            buckets=SLOWDOWN_BUCKETS,
            registry=registry,
        )
        self.shadow_starts = Counter(
            "rltuned_shadow_starts",
            "Jobs that Slurm started while nothing was written. Of n jobs started since the last "
            "cycle, agreed = in rltuned's top n, otherwise = not.",
            ["verdict"],
            registry=registry,
        )
        self.agreement = Gauge(
            "rltuned_start_order_agreement_ratio",
            "Fraction of (started, waiting) pairs of jobs that an order ranks the same way, at the "
            "last observed start: rltuned's order (`ours`) and Slurm's own (`slurm`). While "
            "rltuned writes, the two differ only by the last changes.",
            ["order"],
            registry=registry,
        )

    def _make_breakers(self, registry: CollectorRegistry) -> None:
        self.breaker_open = Gauge(
            "rltuned_breaker_open",
            "1 for a partition whose circuit breaker is open: nothing is written there until "
            "`rltuned breaker reset`.",
            ["partition"],
            registry=registry,
        )
        self.breaker_opened = Counter(
            "rltuned_breaker_opened",
            "Circuit breakers opened, by cause: errors, wait or slowdown.",
            ["cause"],
            registry=registry,
        )
        self.evidence = Gauge(
            "rltuned_canary_evidence_ratio",
            "E-value of the switchback: evidence that on blocks do harm, by partition and by "
            "what is compared (wait, slowdown): 1 = not at all, at 1000 the breaker opens.",
            ["partition", "figure"],
            registry=registry,
        )
        self.delays_on = Gauge(
            "rltuned_canary_delays_on",
            "1 in an on block of the partition's switchback, 0 in an off block (Slurm's own "
            "order); NaN = there is no switchback.",
            ["partition"],
            registry=registry,
        )

        self.difference = Gauge(
            "rltuned_canary_wait_difference_seconds",
            "Mean wait in on blocks of the switchback less that in off blocks: estimate and 95 % "
            "interval by pairs of blocks, under the model in force; negative = it helps. NaN = no "
            "switchback, or too few pairs.",
            ["at"],
            registry=registry,
        )
        self.pairs = Gauge(
            "rltuned_canary_pairs",
            "Pairs of an on block and an off block that this difference compares; NaN = no "
            "switchback.",
            registry=registry,
        )
        self._weigh(None)

    def show(self, partition: str) -> None:
        """Give a partition its series, if it is new and there are not too many."""
        if partition in self._known or len(self._known) >= MAX_PARTITIONS:
            return
        self._known.add(partition)
        for side in Side:
            self.wait.labels(partition, side.value)
            self.slowdown.labels(partition, side.value)
        self.delays_on.labels(partition).set(math.nan)
        for state in PARTITION_JOBS:
            self.partition_jobs.labels(partition, state)
        self._show_breaker(partition, Breaker())

    def stage(self, now: Rung) -> None:
        """Settings were loaded."""
        for rung in Rung:
            self.rung.labels(stage=rung.value).set(rung is now)

    def update(self, report: CycleReport) -> None:
        """Take over one cycle."""
        if report.snapshot is not None:
            for partition in report.snapshot.partitions:
                self.show(partition.name)
            self._show_queue(report.snapshot, report.decision)
        if report.verdict is not None:
            self._judge(report.verdict, live=report.mode is Mode.LIVE)

    def _judge(self, verdict: CanaryStatus, *, live: bool) -> None:
        self._count(verdict.outcomes)
        self._weigh(verdict.effect)
        if verdict.agreement is not None:
            self._compare(verdict.agreement, live=live)
        for cause in (verdict.breakers[name].cause for name in verdict.opened):
            if cause is not None:
                self.breaker_opened.labels(cause=cause.value).inc()
        for name in self._known:
            block = verdict.blocks.get(name)
            self.delays_on.labels(name).set(math.nan if block is None else block.on)
            self._show_breaker(name, verdict.breakers.get(name, Breaker()))

    def _weigh(self, found: Effect | None) -> None:
        values = (found or Effect()).interval_s or (math.nan, math.nan, math.nan)
        for at, value in zip(AT, values, strict=True):
            self.difference.labels(at=at).set(value)
        self.pairs.set(math.nan if found is None else found.pairs)

    def _show_queue(self, snapshot: Snapshot, decision: Decision | None) -> None:
        first = {job.job_id: job.partitions[0] for job in snapshot.pending}
        entries = decision.entries if decision else ()
        named = {
            "pending": list(first.values()),
            "running": [job.partition for job in snapshot.running if job.partition],
            "ranked": [first[entry.job.job_id] for entry in entries],
            "moved": [first[entry.job.job_id] for entry in entries if entry.changes],
            "refused": [first[job] for job, _ in decision.refused if job in first]
            if decision
            else [],
        }
        for state, partitions in named.items():
            counts = Tally[str]()
            for partition, jobs in Tally(partitions).items():  # few names, very many jobs
                counts[self._name(partition)] += jobs
            rest = (THE_REST,) if len(self._known) >= MAX_PARTITIONS else ()
            for partition in (*self._known, *rest):
                self.partition_jobs.labels(partition, state).set(counts[partition])

    def _count(self, outcomes: Outcomes) -> None:
        for job in outcomes.started:
            if job.wait_s is not None:
                labels = (self._name(job.partition), job.side.value)
                self.wait.labels(*labels).observe(job.wait_s)
        for ended in outcomes.ended:
            if (slowdown := ended.slowdown) is not None:
                labels = (self._name(ended.job.partition), ended.job.side.value)
                self.slowdown.labels(*labels).observe(slowdown)

    def _compare(self, agreement: Agreement, *, live: bool) -> None:
        if not live:
            self.shadow_starts.labels(verdict="agreed").inc(agreement.agreed)
            others = agreement.started - agreement.agreed
            self.shadow_starts.labels(verdict="otherwise").inc(others)
        if agreement.ours is not None and agreement.slurms is not None:
            self.agreement.labels(order="ours").set(agreement.ours)
            self.agreement.labels(order="slurm").set(agreement.slurms)

    def _show_breaker(self, partition: str, breaker: Breaker) -> None:
        self.breaker_open.labels(partition).set(breaker.is_open)
        for figure in (Cause.WAIT, Cause.SLOWDOWN):
            evidence = breaker.harm.get(figure, Evidence())
            self.evidence.labels(partition, figure.value).set(evidence.value)

    def _name(self, partition: str) -> str:
        self.show(partition)
        return partition if partition in self._known else THE_REST
