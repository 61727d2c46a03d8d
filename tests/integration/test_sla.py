"""A promised class on a real Slurm: its jobs start in time, though Slurm would put them last."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltuned.core.sla import SlaClass
from rltuned.domain.jobs import RunningJob
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Fate
from rltuned.policies.baselines import BASELINES
from tests import accounting
from tests.conftest import slurm_or_skip
from tests.integration.site import Site
from tests.lab import SlurmLab
from tests.needs import skip_or_fail

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

PROMISE_S = 30.0
BEHIND = "--nice=2000"
"""Half an hour of age behind all others: neither age nor a delay of 0 starts these jobs in time."""
WEIGHTS = ("PriorityWeightAge=100000", "PriorityMaxAge=1-0", "PriorityWeightPartition=30000")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    slurm_or_skip()
    if why := accounting.missing():
        skip_or_fail(why)
    journal = Journal(tmp_path)
    with SlurmLab(accounting=True, extra=WEIGHTS) as lab:
        lab.run("sacctmgr", "-i", "add", "account", "fast")
        lab.run("sacctmgr", "-i", "add", "user", "root", "account=fast")
        yield Site(lab, journal, "site_factor")
    journal.close()


def test_every_job_of_a_class_starts_within_its_bound_and_one_job_s_end(site: Site) -> None:
    """28 jobs on one node, a job at a time: 24 that a class of four stands behind."""
    site.lab.clear()
    site.sla = (SlaClass("account", "fast", PROMISE_S, lift_jobs=2),)
    plain = [site.lab.sbatch("-wm1", "-n4", "-t5", wrap="sleep 3") for _ in range(24)]
    began, late, starts = time.time(), list[int](), dict[int, RunningJob]()
    while len(starts) < 4:
        assert time.time() < began + 250, f"{starts} of {late} have started"
        if len(late) < 4 and time.time() > began + 8 * len(late):
            asks = ("-wm1", "-n4", "-t60", "-Afast", BEHIND)
            late.append(site.lab.sbatch(*asks, wrap="sleep 3"))
        decision = site.cycle(BASELINES["saf"])
        assert sum(e.lifted for e in decision.entries) <= 2
        runs = {int(run.job_id): run for run in decision.snapshot.running}
        starts |= {number: run for number, run in runs.items() if number in late}
        left = {int(job.job_id) for job in decision.snapshot.pending} & set(plain)
        assert left, "the queue is to be longer than the promise"
    waits = sorted(run.started_at - (run.waits_since or 0) for run in starts.values())
    # one job's end: 3 s, and the seconds that slurmctld takes to end it and to look again
    assert all(PROMISE_S - 5 <= wait <= PROMISE_S + 15 for wait in waits), waits
    assert site.give_back() <= {Fate.GIVEN_BACK}
    assert all(job.site_factor == 0 for job in site.pending().values())
