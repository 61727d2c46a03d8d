"""docs/metrics.md, made from the registry itself."""

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from rltuned.daemon.metrics.cycle import Metrics

_INTRO = """\
# Metrics

<!-- Made by `make docs`; a test fails when it is stale. -->

`/metrics` shows the state after the last cycle; a scrape never calls Slurm. Times are seconds, all
labels are bounded, no label names a job or a user, and every series exists from the start, those of
a partition from the first cycle on. An unknown value is NaN.

| metric | type | labels | meaning |
|---|---|---|---|
"""
_FREE = frozenset({"version", "name", "digest", "schema", "partition"})
"""Labels whose values are not a fixed set."""


def markdown() -> str:
    """The text of docs/metrics.md."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.loaded("fcfs", at=0.0)
    metrics.show("any")
    return _INTRO + "".join(sorted(_row(family) for family in registry.collect()))


def _row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for key, value in sample.labels.items():
            if key != "le":
                labels.setdefault(key, {})[value] = None
    shown = "; ".join(
        f"`{key}`" if key in _FREE else f"`{key}`: " + ", ".join(f"`{value}`" for value in values)
        for key, values in labels.items()
    )
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n"
