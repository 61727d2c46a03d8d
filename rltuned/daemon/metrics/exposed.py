"""What /metrics shows of a registry: every series bears its cluster."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric


class OfCluster(CollectorRegistry):
    """The series of another registry with the label `cluster`.

    Attributes:
        cluster: its name; empty = not known yet, and there is no label.
    """

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
