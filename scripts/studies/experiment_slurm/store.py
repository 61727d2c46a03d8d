"""Results on disk: one JSON per run, written whole or not at all."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Key:
    """Which run: an arm on a job set of a seed."""

    arm: str
    jobs: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-{self.jobs}-{self.seed}"


@dataclass(frozen=True)
class Run:
    """What a run left behind. Times in seconds of the faster clock, from the first submission.

    Attributes:
        key: which run.
        job_ids, submit_s, start_s, end_s, nodes: one entry per job, in the trace's order.
        late_s: by how much jobs were submitted later than the trace says: mean and most.
        real_s: how long the run really took.
        speed, interval_s: seconds per real second; real seconds between rltuned's cycles.
        facts: versions, commit, machine.
        counters: rltuned's own metrics at the end; empty = no rltuned.
    """

    key: Key
    job_ids: list[str]
    submit_s: list[float]
    start_s: list[float]
    end_s: list[float]
    nodes: list[str]
    late_s: tuple[float, float]
    real_s: float
    speed: float
    interval_s: float
    facts: dict[str, str]
    counters: dict[str, float] = field(default_factory=dict)


_FILE = TypeAdapter(Run)


class StoreError(ValueError):
    """A result file of another make."""


def write(folder: Path, run: Run) -> Path:
    """Put a run where `read` finds it; a reader sees all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run.key.name}.json"
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(_FILE.dump_json(run) + b"\n")
    fresh.replace(path)
    return path


def read(path: Path) -> Run:
    """Read a run back.

    Raises:
        StoreError: names the file and what is wrong with it.
    """
    try:
        run = _FILE.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: not a result of this experiment: {error}") from error
    lengths = {len(x) for x in (run.job_ids, run.submit_s, run.start_s, run.end_s, run.nodes)}
    if lengths != {run.key.jobs}:
        raise StoreError(f"{path}: {run.key.jobs} jobs were submitted, the file has {lengths}")
    return run


def missing(folder: Path, wanted: list[Key]) -> list[Key]:
    """The runs still to do, in the order asked for.

    Raises:
        StoreError: a file of one of them cannot be read; it is not written over silently.
    """
    there = {path.stem: read(path) for path in folder.glob("*.json")}
    return [key for key in wanted if key.name not in there]
