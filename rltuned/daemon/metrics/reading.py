"""How well Slurm is read: who reads the jobs, what could not be read, and how the clocks differ."""

import math
from collections import Counter

from prometheus_client import CollectorRegistry, Gauge

from rltuned.daemon.logs import Log
from rltuned.domain.snapshot import UNREADABLE_KINDS, Snapshot
from rltuned.slurm.sdiag import Load
from rltuned.slurm.source import PYSLURM, TEXT, ReaderChoice


class ReadingMetrics:
    """Who read the last queue, what of it could not be read, and how far the clocks differ."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reader = Gauge(
            "rltuned_reader",
            "1 for the reader of jobs, by slurm.reader: text (squeue) or pyslurm.",
            ["reader"],
            registry=registry,
        )
        self.stands_in = Gauge(
            "rltuned_reader_stand_in",
            "1 while squeue as text stands in for a pyslurm that cannot be used.",
            registry=registry,
        )
        self.unreadable = Gauge(
            "rltuned_unreadable",
            "Jobs, nodes and partitions of the last snapshot that could not be read, by kind.",
            ["kind"],
            registry=registry,
        )
        self.clock = Gauge(
            "rltuned_slurmctld_clock_offset_seconds",
            "How far slurmctld's clock is ahead of this host's; 0 = within 1 s, NaN = unknown.",
            registry=registry,
        )
        self.clock.set(math.nan)
        for kind in UNREADABLE_KINDS:
            self.unreadable.labels(kind=kind)
        self.heard(ReaderChoice(TEXT, TEXT))

    def update(self, snapshot: Snapshot | None, load: Load | None) -> None:
        """Take over one cycle; None = there was no snapshot, or the load is not known."""
        off_s = None if load is None else load.clock_off_s
        self.clock.set(math.nan if off_s is None else off_s)
        if snapshot is not None:
            odd = Counter(row.kind for row in snapshot.unreadable)
            for kind in UNREADABLE_KINDS:
                self.unreadable.labels(kind=kind).set(odd[kind])

    def heard(self, reading: ReaderChoice) -> None:
        for name in (TEXT, PYSLURM):
            self.reader.labels(reader=name).set(name == reading.reader)
        self.stands_in.set(reading.stands_in)


def log_reading(log: Log, reading: ReaderChoice) -> None:
    """One line whenever somebody else reads than before."""
    line = log.warning if reading.stands_in else log.info
    line("reader", wanted=reading.wanted, reader=reading.reader, detail=reading.detail)
