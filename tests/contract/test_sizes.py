"""What comes of a pending job whose node range or features an operator has changed and put back."""

from collections.abc import Iterator

import pytest

from tests.clusters import module_lab
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


def runs(*words: str) -> tuple[str, ...]:
    return ("JobState=RUNNING", *words)


lab = module_lab()


@pytest.fixture(autouse=True)
def _cleared(lab: SlurmLab) -> Iterator[None]:
    yield
    lab.clear()


def await_words(lab: SlurmLab, job: int, expected: tuple[str, ...]) -> None:
    """Wait until Slurm shows all these words of a job."""

    def seen() -> bool:
        words = lab.run("scontrol", "-o", "show", "job", "-d", str(job)).split()
        return all(any(w == e or w.startswith(f"{e}(") for w in words) for e in expected)

    lab.wait_for(seen, " ".join(expected))
    assert seen(), "it was so for a moment only"


@pytest.mark.parametrize("change", ["NumNodes=1-2", "NumNodes=2-2"])
def test_a_range_that_an_operator_puts_back_starts_on_its_fewest(
    lab: SlurmLab, change: str
) -> None:
    """Slurm shows what was submitted, and goes by the minimum of it: no undo is whole."""
    plain, job = lab.sbatch("-H", "-N1-4"), lab.sbatch("-H", "-N1-4")
    lab.scontrol("update", f"JobId={job}", change)
    lab.scontrol("update", f"JobId={job}", "NumNodes=1-4")
    await_words(lab, job, ("NumNodes=1-4",))
    lab.scontrol("release", str(job))
    await_words(lab, job, runs("NumNodes=1"))
    lab.run("scancel", str(job))
    lab.scontrol("release", str(plain))
    await_words(lab, plain, runs("NumNodes=4"))


def test_features_that_are_put_back_are_in_force(lab: SlurmLab) -> None:
    kepler = [lab.sbatch(f"-w{name}", "--exclusive", "-t60") for name in ("k1", "k2")]
    lab.wait_for(lambda: all(lab.state(j) == "R" for j in kepler), "both k nodes are busy")
    job = lab.sbatch("-H", "-Cpascal|kepler", "--gres=gpu:1", "-n1")
    for features in ("kepler", "pascal|kepler"):
        lab.scontrol("update", f"JobId={job}", f"Features={features}")
        await_words(lab, job, (f"Features={features}",))
    lab.scontrol("release", str(job))
    await_words(lab, job, runs("GRES=gpu:p100:1"))
