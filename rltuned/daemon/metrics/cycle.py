"""All metrics of the daemon on one registry: fed by cycles, and by what else happens."""

from collections.abc import Collection, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, disable_created_metrics

from rltuned.core.ladder import Rung
from rltuned.daemon.metrics.rows import COMMANDS, DECISION, JOBS, ROWS, Ranges, outside
from rltuned.daemon.metrics.table import Table
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import Health
from rltuned.policies.tune_state import TuneState


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
        at: float,
        trust: float | None = None,
        digest: str = "",
        schema: str = "",
        in_place_of: str = "",
        ranges: Ranges | None = None,
        stage: Rung = Rung.OBSERVE,
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
            config_last_reload_successful=1,
            config_last_reload_success_timestamp_seconds=at,
            sla_jobs=dict.fromkeys(classes, 0),
            sla_breaches=dict.fromkeys(classes, 0),
        )

    def not_loaded(self) -> None:
        self._set(config_last_reload_successful=0)

    def tuned(self, state: TuneState) -> None:
        self._set(tune_failed_nights=state.failed)

    def command(self, command: str, seconds: float, *, ok: bool) -> None:
        name = command if command in COMMANDS else "other"
        self._set(
            slurm_command_duration_seconds={name: [seconds]},
            slurm_command_errors=None if ok else {name: 1},
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            self._table.put(f"rltuned_{name}", value)
