"""Who reads the jobs: told to log and metrics whenever it changes."""

from prometheus_client import CollectorRegistry, Gauge

from rltuned.daemon.logs import Log
from rltuned.slurm.source import PYSLURM, TEXT, Reading


class ReadingMetrics:
    """Who read the last queue, and whether it stands in for another."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reader = Gauge(
            "rltuned_reader",
            "1 for who reads the jobs, by slurm.reader: text (squeue) or pyslurm.",
            ["reader"],
            registry=registry,
        )
        self.stands_in = Gauge(
            "rltuned_reader_stand_in",
            "1 while squeue as text stands in for a pyslurm that cannot be used.",
            registry=registry,
        )
        self.heard(Reading(TEXT, TEXT))

    def heard(self, reading: Reading) -> None:
        for name in (TEXT, PYSLURM):
            self.reader.labels(reader=name).set(name == reading.reader)
        self.stands_in.set(reading.stands_in)


def log_reading(log: Log, reading: Reading) -> None:
    """One line whenever somebody else reads than before."""
    line = log.warning if reading.stands_in else log.info
    line("reader", wanted=reading.wanted, reader=reading.reader, detail=reading.detail)
