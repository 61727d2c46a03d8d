"""What may be changed of a job's size, and what comes of it, by release: the table of
docs/job-sizes.md. scontrol ends with 0 on every change of a pending job.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import slurm_or_skip
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

OLD = "22.05"
ONE_EACH = "--ntasks-per-node=1"
WAITS = ("JobState=PENDING", "Reason=BadConstraints")


@dataclass(frozen=True)
class Change:
    """A change of a held job, and what it then is when it is released.

    Attributes:
        asks: of sbatch; change: of scontrol update.
        becomes: words of `scontrol show job -d`.
        since: the same on 24.11 and newer, where that differs.
    """

    name: str
    asks: tuple[str, ...]
    change: str
    becomes: tuple[str, ...]
    since: tuple[str, ...] = ()


def runs(*words: str) -> tuple[str, ...]:
    return ("JobState=RUNNING", *words)


CHANGES = (
    Change("narrow a range", ("-N1-2",), "NumNodes=1-1", runs("NumNodes=1")),
    Change("narrow it to its most", ("-N1-2",), "NumNodes=2-2", runs("NumNodes=2")),
    Change(
        "narrow a fixed count", ("-N2", ONE_EACH), "NumNodes=1-1", WAITS, runs("NumNodes=1")
    ),
    Change("widen a fixed count", ("-N1", ONE_EACH), "NumNodes=2-2", runs("NumNodes=2")),
    Change(
        "fewer GPUs by gres", ("--gres=gpu:p100:4",), "Gres=gpu:p100:2", runs("GRES=gpu:p100:2")
    ),
    Change(
        "fewer GPUs per node", ("--gpus-per-node=p100:4",), "Gres=gpu:p100:2",
        runs("GRES=gpu:p100:2"),
    ),
    Change(
        "another type by gres", ("--gres=gpu:p100:2",), "Gres=gpu:k80:2", WAITS,
        runs("GRES=gpu:k80:2"),
    ),
    Change(
        "another type by features", ("-Cpascal", "--gres=gpu:2"), "Features=kepler",
        runs("GRES=gpu:k80:2"),
    ),
    Change(
        "more GPUs than a node has", ("--gres=gpu:p100:2",), "Gres=gpu:p100:9", WAITS,
        ("JobState=PENDING",),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    slurm_or_skip()
    with SlurmLab() as started:
        yield started


@pytest.fixture
def release(lab: SlurmLab) -> Iterator[str]:
    yield lab.run("squeue", "--version").split()[1].rpartition(".")[0]
    lab.clear()


def await_words(lab: SlurmLab, job: int, expected: tuple[str, ...]) -> None:
    """Wait until Slurm shows all these words of a job."""

    def seen() -> bool:
        words = lab.run("scontrol", "-o", "show", "job", "-d", str(job)).split()
        return all(any(w == e or w.startswith(f"{e}(") for w in words) for e in expected)

    lab.wait_for(seen, 30, " ".join(expected))


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_change_of_a_pending_job(lab: SlurmLab, release: str, case: Change) -> None:
    job = lab.sbatch("-H", *case.asks)
    lab.scontrol("update", f"JobId={job}", case.change)
    lab.scontrol("release", str(job))
    await_words(lab, job, case.becomes if release == OLD else case.since or case.becomes)


def test_one_number_moves_the_minimum_alone_on_the_oldest(lab: SlurmLab, release: str) -> None:
    job = lab.sbatch("-H", "-N2-3")
    lab.scontrol("update", f"JobId={job}", "NumNodes=1")
    await_words(lab, job, ("NumNodes=1-3",) if release == OLD else ("NumNodes=1-1",))


@pytest.mark.parametrize("change", ["NumNodes=1-2", "NumNodes=2-2"])
def test_a_range_that_an_operator_puts_back_starts_on_its_fewest(
    lab: SlurmLab, release: str, change: str
) -> None:
    """Slurm shows what was submitted, and goes by the minimum of it: no undo is whole."""
    del release
    plain, job = lab.sbatch("-H", "-N1-4"), lab.sbatch("-H", "-N1-4")
    lab.scontrol("update", f"JobId={job}", change)
    lab.scontrol("update", f"JobId={job}", "NumNodes=1-4")
    await_words(lab, job, ("NumNodes=1-4",))
    lab.scontrol("release", str(job))
    await_words(lab, job, runs("NumNodes=1"))
    lab.run("scancel", str(job))
    lab.scontrol("release", str(plain))
    await_words(lab, plain, runs("NumNodes=4"))


def test_features_that_are_put_back_are_in_force(lab: SlurmLab, release: str) -> None:
    del release
    kepler = [lab.sbatch(f"-w{name}", "--exclusive", "-t60") for name in ("k1", "k2")]
    lab.wait_for(lambda: all(lab.state(j) == "R" for j in kepler), 30, "both k nodes are busy")
    job = lab.sbatch("-H", "-Cpascal|kepler", "--gres=gpu:1", "-n1")
    for features in ("kepler", "pascal|kepler"):
        lab.scontrol("update", f"JobId={job}", f"Features={features}")
        await_words(lab, job, (f"Features={features}",))
    lab.scontrol("release", str(job))
    await_words(lab, job, runs("GRES=gpu:p100:1"))


def test_what_the_job_is_reported_of_its_gpus_is_stale(
    lab: SlurmLab, release: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    place = tmp_path / "environment"
    job = lab.sbatch("-H", "--gpus-per-node=p100:4", wrap=f"env > {place}; sleep 600")
    lab.scontrol("update", f"JobId={job}", "Gres=gpu:p100:2")
    lab.scontrol("release", str(job))
    lab.wait_for(lambda: place.exists() and "SLURM_JOB_ID" in place.read_text(), 30, release)
    assert "SLURM_GPUS_PER_NODE=p100:4" in place.read_text().splitlines()


@pytest.mark.parametrize("asks", [(), (ONE_EACH,)], ids=["plain", "tasks-per-node"])
def test_a_running_job_may_shrink_by_nodes(
    lab: SlurmLab, release: str, asks: tuple[str, ...]
) -> None:
    job = lab.sbatch("-N2", *asks)
    await_words(lab, job, runs("NumNodes=2"))
    out = lab.run("scontrol", "update", f"JobId={job}", "NumNodes=1", check=False)
    refused = bool(asks) and release != OLD
    assert ("no longer pending" in out) == refused
    await_words(lab, job, runs("NumNodes=2" if refused else "NumNodes=1"))


@pytest.mark.parametrize(
    ("change", "why"), [("NumNodes=2", "not supported"), ("Gres=gpu:p100:1", "no longer pending")]
)
def test_a_running_job_never_grows_and_keeps_its_gpus(
    lab: SlurmLab, release: str, change: str, why: str
) -> None:
    del release
    job = lab.sbatch("-N1", "--gres=gpu:p100:2")
    await_words(lab, job, runs("NumNodes=1"))
    out = lab.run("scontrol", "update", f"JobId={job}", change, check=False)
    assert why in out
    await_words(lab, job, runs("NumNodes=1", "GRES=gpu:p100:2"))
