"""Two clusters of one federation: what a write to a sibling does, and that none is written."""

from collections.abc import Iterator

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.refusals import Refusal
from rltuned.core.select import FEDERATED_FROM, Scope
from rltuned.policies.baselines import BASELINES
from tests.clusters import cluster, world_of
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

NODES = ("-wm1", "-n4", "-t60")


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[SlurmLab, SlurmLab]]:
    with cluster(accounting=True) as one, cluster(cluster="rlttwo", beside=one) as two:
        one.run("sacctmgr", "-i", "add", "federation", "fed", "clusters=rltlab,rlttwo")
        for lab, other in ((one, "rlttwo"), (two, "rltlab")):
            lab.wait_for(
                lambda lab=lab, other=other: (  # type: ignore[misc]
                    f"Sibling:    {other}" in (out := lab.run("scontrol", "show", "federation"))
                    and "Synced:Yes" in out
                ),
                "the clusters know each other",
            )
        yield one, two


def test_siblings_share_one_number_so_both_daemons_leave_them_alone(
    clusters: tuple[SlurmLab, SlurmLab],
) -> None:
    one, two = clusters
    jobs = [one.sbatch(*NODES) for _ in range(4)]
    assert min(jobs) >= FEDERATED_FROM
    last = jobs[-1]

    def numbers() -> list[int]:
        """Of the job in each cluster; 0 where it is not seen yet."""
        words = ("squeue", "--local", "-h", "-j", str(last), "-O", "PriorityLong:20")
        found = [lab.run(*words, check=False).strip() for lab in clusters]
        return [int(number) if number.isdecimal() else 0 for number in found]

    # a job that is first before one runs would start itself
    runs = ("squeue", "--local", "-h", "-t", "R")
    one.wait_for(lambda: all(lab.run(*runs) for lab in clusters), "a job runs in each cluster")
    one.wait_for(lambda: min(numbers()) > 0, "the sibling is in both queues")
    least = max(numbers()) + 4_000
    one.scontrol("update", f"JobId={last}", "SiteFactor=5000")
    one.wait_for(lambda: min(numbers()) > least, "a write in one cluster is in force in both")
    for lab in (one, two):
        seen = world_of(lab).observe()
        assert seen.cluster == lab.cluster
        decision = decide(seen, BASELINES["saf"], Knobs(rules=Scope(min_age_s=0.0)))
        assert decision.plan.is_empty
        refused = {int(job): reason for job, reason in decision.refused}
        assert refused[last] is Refusal.FEDERATED
        assert not decision.entries
