"""Arrays as this Slurm's commands show them: every task is named, and no other."""

import time
from collections.abc import Iterator

import pytest

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.clusters import cluster
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

FULL = ("--gres=gpu:p100:4", "-n16", "-N1", "--time=30")
LISTS = (
    "0-9",
    "0-8:2",
    "0-10:2",
    "0-12:2",
    "0-12:3",
    "0-15:3",
    "7-301:6%2",
    "0,20",
    "1,3,5,7,9,12",
)


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with cluster() as started:
        for node in ("p1", "p2"):
            started.sbatch(*FULL, f"-w{node}")
        yield started


@pytest.mark.parametrize("listed", LISTS)
def test_every_task_of_a_list_is_named(lab: SlurmLab, listed: str) -> None:
    """squeue -r of 24.11 and 26.05 leaves out 12 of 0-12:2: a write to the list would part it."""
    array = lab.sbatch(*FULL, f"--array={listed},1000")
    lab.scontrol("hold", f"{array}_1000")
    body, _, step = listed.partition("%")[0].partition(":")
    wanted = set[int]()
    for part in body.split(","):
        first, _, last = part.partition("-")
        wanted |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    pending = SlurmBackend(SlurmCli(conf=lab.conf), time.time).observe().pending
    head = next(job for job in pending if job.job_id == array)
    named = head.address.removeprefix(f"{array}_[").removesuffix("]").split(",")
    found = set[int]()
    for part in named:
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == wanted
    assert head.array is not None
    assert head.array.tasks == len(wanted)
