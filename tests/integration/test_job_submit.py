"""deploy/job_submit.lua in a real slurmctld: rltuned's user can do what rltuned does, no more."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import cluster
from tests.integration.site import SCRIPT
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


def lab_for(uid: int) -> Iterator[SlurmLab]:
    with tempfile.TemporaryDirectory(prefix="rltlab-") as name:
        line = "local RLTUNED = 990"
        assert SCRIPT.count(line) == 1
        (Path(name) / "job_submit.lua").write_text(SCRIPT.replace(line, f"local RLTUNED = {uid}"))
        with cluster(folder=Path(name), extra=("JobSubmitPlugins=lua",)) as started:
            yield started


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    """root stands for rltuned here: the script knows a number only."""
    yield from lab_for(0)


@pytest.fixture
def job(lab: SlurmLab) -> Iterator[int]:
    waiting = lab.sbatch("-n1", "--gres=gpu:p100:4", "--begin=now+1hour")
    yield waiting
    lab.run("scancel", str(waiting))


@pytest.mark.parametrize(
    "words", ["Priority=7", "SiteFactor=-7", "Nice=3", "OverSubscribe=yes", "ExcNodeList=k1"]
)
def test_what_rltuned_does_passes(lab: SlurmLab, job: int, words: str) -> None:
    lab.scontrol("update", f"JobId={job}", words)
    lab.scontrol("release", str(job))


@pytest.mark.parametrize(
    "words",
    [
        "Priority=0",
        "TimeLimit=3",
        "Comment=x",
        "AdminComment=x",
        "Partition=sla",
        "ReqNodeList=p1",
        "Features=kepler",
        "NumNodes=2",
        "StartTime=now+2hours",
        "Dependency=singleton",
        "JobName=x",
        "Licenses=foo:1",
        "MinMemoryNode=5",
        "Requeue=1",
        "Requeue=0",
        "Priority=7 TimeLimit=3",
    ],
)
def test_anything_else_does_not(lab: SlurmLab, job: int, words: str) -> None:
    before = shown(lab, job)
    lab.run("scontrol", "update", f"JobId={job}", *words.split(), check=False)
    assert shown(lab, job) == before
    assert "rltuned may not change" in (lab.root / "log" / "slurmctld.log").read_text()


def shown(lab: SlurmLab, job: int) -> str:
    """What Slurm says of the job, without the moments that its scheduler sets by itself."""
    text = lab.scontrol("-o", "show", "job", str(job))
    return re.sub(r"(AccrueTime|LastSchedEval)=\S+", "", text)


def test_a_job_cannot_be_held(lab: SlurmLab, job: int) -> None:
    lab.run("scontrol", "hold", str(job), check=False)
    assert int(lab.run("squeue", "-h", "-o", "%Q", "-j", str(job))) > 0


def test_others_are_not_touched() -> None:
    for lab in lab_for(990):
        waiting = lab.sbatch("-n1", "--begin=now+1hour")
        lab.scontrol("update", f"JobId={waiting}", "TimeLimit=3", "Comment=x")
        lab.scontrol("hold", str(waiting))
