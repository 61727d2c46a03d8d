"""Jobs that a limit of their QOS or association, or another's reservation, holds: no order moves
them, so they have no place in it. On a real Slurm with slurmdbd that enforces limits.
"""

import time
from collections.abc import Iterator

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.clusters import cluster
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

ONE = ("-n1", "-t60", "--mem=100")
LIMITS = {"one": "MaxJobsPerUser=1", "small": "GrpTRES=cpu=2", "short": "MaxWall=10"}


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    names = ",".join(LIMITS)
    accounts = (
        *(f"add qos {name} {limit}" for name, limit in LIMITS.items()),
        f"modify user root set qos+={names}",
        "add account tight GrpJobs=1",
        *(f"add user {user} account=tight qos={names},normal" for user in ("root", "daemon")),
    )
    enforced = ("AccountingStorageEnforce=limits,qos",)
    with cluster(*accounts, accounting=True, extra=enforced) as started:
        yield started


@pytest.fixture(autouse=True)
def clean(lab: SlurmLab) -> Iterator[None]:
    lab.clear()
    yield
    lab.run("scontrol", "delete", "reservation", "kept", check=False)
    lab.clear()


def look(lab: SlurmLab) -> Decision:
    world = SlurmBackend(SlurmCli(conf=lab.conf), time.time)
    return decide(world.observe(), BASELINES["sjf"], Knobs(rules=Scope(min_age_s=0)))


def reason(lab: SlurmLab, job: int) -> str:
    return lab.run("squeue", "-h", "-j", str(job), "-O", "reason:60").strip()


def blocked(lab: SlurmLab) -> set[int]:
    refused = look(lab).refused
    return {int(job) for job, why in refused if why is Refusal.BLOCKED}


@pytest.mark.parametrize(
    ("options", "starts"),
    [(("--qos=one",), "QOS"), (("--qos=small", "-n2"), "QOS"), (("--account=tight",), "Assoc")],
)
def test_a_job_that_a_limit_holds_has_no_place_until_the_limit_lets_it_go(
    lab: SlurmLab, options: tuple[str, ...], starts: str
) -> None:
    first = lab.sbatch(*ONE, *options)
    lab.wait_for(lambda: lab.state(first) == "R", "the limit is reached")
    second = lab.sbatch(*ONE, *options)
    lab.wait_for(lambda: reason(lab, second).startswith(starts), "Slurm says so")
    found = look(lab)
    assert (second, Refusal.BLOCKED) in {(int(j), why) for j, why in found.refused}
    assert second not in {int(entry.job.job_id) for entry in found.entries}
    lab.run("scancel", str(first))
    lab.wait_for(lambda: lab.state(second) == "R", "the limit lets it go")


def test_a_job_whose_nodes_are_kept_for_another_has_no_place(lab: SlurmLab) -> None:
    lab.scontrol(
        "create", "reservation", "ReservationName=kept", "StartTime=now", "Duration=60",
        "Nodes=m1", "Users=daemon",
    )  # fmt: skip
    job = lab.sbatch(*ONE, "-wm1")
    lab.wait_for(lambda: "ReqNodeNotAvail" in reason(lab, job), "Slurm says so")
    lab.wait_for(lambda: blocked(lab) == {job}, "and of the node too, on 24.11 seconds later")
    lab.scontrol("delete", "reservation", "kept")
    lab.wait_for(lambda: lab.state(job) == "R", "it is free")


def test_a_job_that_waits_for_resources_alone_keeps_its_place(lab: SlurmLab) -> None:
    """Slurm 24.11 and 26.05 say of the second that its node may be reserved for another job."""
    busy = lab.sbatch("-n4", "-t60", "--mem=100", "-wm1")
    lab.wait_for(lambda: lab.state(busy) == "R", "the node is in use")
    jobs = [lab.sbatch("-n4", f"-t{10 * i}", "--mem=100", "-wm1") for i in (1, 2)]
    lab.wait_for(lambda: reason(lab, jobs[0]) == "Resources", "Slurm says so")
    found = look(lab)
    reasons = [reason(lab, job) for job in jobs], found.refused
    assert {int(entry.job.job_id) for entry in found.entries} == set(jobs), reasons
