"""What Slurm does to a site factor and to the age beside it, on a real Slurm with slurmdbd."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltuned.core.refusals import Refusal
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.plan import HELD, Result
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.builders import sure
from tests.clusters import module_lab
from tests.integration.site import Site
from tests.lab import SlurmLab
from tests.programs import executable

pytestmark = pytest.mark.slurm

WEIGHTS = (
    "PriorityWeightAge=600",
    "PriorityMaxAge=1",
    "PriorityWeightPartition=300000",
    "PriorityFlags=CALCULATE_RUNNING",
    "AccountingStorageEnforce=limits,qos",
)
"""Ten points a second, and no more after a minute; partition gpu adds 100,000. sprio shows running
jobs, too."""


lab = module_lab(
    "add qos one MaxJobsAccruePU=1", "modify user root set qos+=one", accounting=True, extra=WEIGHTS
)


@pytest.fixture
def site(lab: SlurmLab, tmp_path: Path) -> Iterator[Site]:
    journal = Journal(tmp_path)
    yield Site(lab, journal, "site_factor")
    journal.close()
    lab.clear()


def factor(site: Site, job: int) -> int | None:
    found = site.pending().get(job)
    return None if found is None else found.site_factor


def test_a_site_factor_survives_what_slurm_and_people_do(site: Site) -> None:
    lab = site.lab
    long, short, other = site.limits(40, 5, 20)
    site.cycle()
    number = sure(factor(site, long))
    assert number < 0 != factor(site, short)

    def still(what: str) -> None:
        lab.wait_for(lambda: factor(site, long) == number, f"the factor after {what}")

    lab.scontrol("update", f"JobId={long}", "Partition=sla")
    still("another partition")
    lab.scontrol("update", f"JobId={long}", "Nice=50")
    still("a nice")
    lab.scontrol("hold", str(long))
    assert factor(site, long) is None  # sprio does not show held jobs
    lab.scontrol("release", str(long))
    still("hold and release")
    lab.reconfigure()
    still("a reconfiguration")
    lab.stop_controller()
    lab.start_controller()
    still("a restart")
    assert site.undo_plan() == {Fate.RESTORED}
    assert [factor(site, j) for j in (long, short, other)] == [0, 0, 0]


def test_a_site_factor_survives_a_requeue_and_is_given_back(site: Site) -> None:
    lab = site.lab
    long, short = site.limits(40, 5)
    site.cycle()
    number = factor(site, short)
    assert number
    lab.run("scancel", "--state=RUNNING", "--user=root")
    lab.wait_for(lambda: lab.state(short) == "R", "it starts")
    site.cycle()
    lab.scontrol("requeue", str(short))
    lab.wait_for(lambda: lab.state(short) == "PD", "it is back")
    lab.scontrol("update", f"JobId={short}", "StartTime=now")  # Slurm lets it wait two minutes
    lab.wait_for(lambda: factor(site, short) == number, "the factor after a requeue")
    for _ in range(3):
        site.cycle()
        assert factor(site, short) == pytest.approx(number, abs=60)  # it counts once
    assert site.undo_plan() <= {Fate.RESTORED, Fate.GONE}
    assert factor(site, short) in {0, None}
    assert factor(site, long) in {0, None}


def test_a_task_that_is_parted_takes_the_site_factor_along(site: Site) -> None:
    site.submit("-t40", "--array=0-9")  # most of what waits: the neutral delay is theirs
    array = site.submit("-t5", "--array=0-5")
    site.lab.wait_for(lambda: factor(site, array) is not None, "sprio shows it")
    site.cycle()
    number = factor(site, array)
    assert number
    site.lab.scontrol("update", f"JobId={array}_2", "Nice=1")
    tasks = [j for j in site.pending().values() if j.array and j.array.array_job_id == array]
    assert [j.site_factor for j in tasks] == [number, number]
    for _ in range(3):
        site.cycle()
        tasks = [j for j in site.pending().values() if j.array and j.array.array_job_id == array]
        assert [j.site_factor for j in tasks] == pytest.approx([number, number], abs=60)
    assert site.undo_plan() == {Fate.RESTORED}
    assert set(site.numbers().values()) == {0}


def test_a_job_that_is_held_while_it_is_written_stays_rltuneds(site: Site, tmp_path: Path) -> None:
    """Slurm sets the site factor of a held job, and does not show it."""
    lab = site.lab
    long, short = site.limits(40, 5)
    lab.wait_for(lambda: factor(site, short) is not None, "sprio shows it")
    for program in ("squeue", "sinfo", "sprio", "sdiag", "scontrol"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    (tmp_path / "scontrol").unlink()
    real = shutil.which("scontrol")
    executable(
        tmp_path / "scontrol",
        f'#!/bin/sh\n[ "$1" = -v ] || exec {real} "$@"\n'
        f"cat >{tmp_path}/lines\n{real} -v <{tmp_path}/lines\nexec {real} hold {short}\n",
    )
    world, hasty = site.world, SlurmBackend(SlurmCli(tmp_path, conf=lab.conf), time.time)
    site.world = hasty
    outcomes = {int(o.action.target.job_id): o for o in site.attempt()[1]}
    site.world = world
    assert (outcomes[short].result, outcomes[short].detail) == (Result.FAILED, HELD)
    assert outcomes[long].result is Result.APPLIED
    assert not site.journal.is_clean()
    lab.scontrol("release", str(short))
    lab.wait_for(lambda: bool(factor(site, short)), "sprio shows what was written")
    assert site.undo_plan() == {Fate.RESTORED}
    assert [factor(site, j) for j in (long, short)] == [0, 0]


def test_no_total_falls_below_one(site: Site) -> None:
    low = site.submit("-t40", "--nice=99000")
    high = site.submit("-t40")
    site.limits(5, 10)
    decision = site.cycle()
    found = site.pending()
    for job in found.values():
        assert job.priority == sure(job.base) + sure(job.site_factor) > 1  # not cut off
    delays = {int(e.job.job_id): e.delay_s for e in decision.entries}
    assert delays[low] < delays[high] == 2_400.0


def test_a_job_beyond_priority_max_age_keeps_its_place(site: Site) -> None:
    """Age stops at a minute. The old job's virtual time is 240 s, the new one's more than 250."""
    old, *_ = site.limits(4, 5, 5, 5)
    site.cycle()
    number = sure(factor(site, old))
    submitted = site.pending()[old].submitted_at
    site.lab.wait_for(lambda: time.time() > submitted + 130, "the old job has waited", 600)
    new = site.submit("-t2")
    site.lab.wait_for(lambda: factor(site, new) is not None, "sprio shows it")
    site.cycle()
    first = site.first_to_last()
    assert first.index(old) < first.index(new)
    assert (factor(site, old) or 0) > number  # its delay has run off


def test_a_job_that_may_not_gather_age_yet_has_none(site: Site) -> None:
    """MaxJobsAccruePU=1: the second job begins to age when the first one is gone."""
    first, second = site.limits(5, 5, options=("--qos=one",))
    site.lab.wait_for(lambda: bool(site.pending()[first].accrue_at), "the first one ages")
    submitted = site.pending()[second].submitted_at
    site.lab.wait_for(lambda: time.time() > submitted + 10, "it has waited")
    seen = site.world.observe()
    waiting = next(j for j in seen.pending if j.job_id == second)
    assert seen.taken_at - waiting.ages_since < 5  # Slurm counts no age of it
    site.lab.run("scancel", str(first))
    site.lab.wait_for(
        lambda: (site.pending()[second].accrue_at or 0) > submitted + 5, "the second one ages"
    )
    begun = site.pending()[second].ages_since
    site.lab.wait_for(lambda: time.time() > begun + 5, "it has aged")
    assert site.pending()[second].ages_since == pytest.approx(begun, abs=2)


def test_a_throttled_array_keeps_its_limit_and_is_left_alone_at_it(site: Site) -> None:
    lab = site.lab
    (blocker,) = (j.job_id for j in site.world.observe().running)
    array = lab.sbatch("-wm1", "-n1", "-t5", "--mem=100", "--array=0-7%2")
    others = site.limits(40, 40, 40)  # more than the tasks that may start: the neutral delay's

    def shown(name: str) -> str:
        return lab.run("squeue", "-h", "-j", str(array), "-t", "PD", "-O", f"{name}:40").strip()

    def running() -> list[str]:
        return lab.run("squeue", "-h", "-r", "-j", str(array), "-t", "R", "-o", "%i").split()

    site.cycle()
    number = factor(site, array)
    assert number
    assert shown("arraytaskid") == "0-7%2"
    lab.run("scancel", str(blocker), *map(str, others))
    for waiting in ("2-7%2", "3-7%2"):
        lab.wait_for(lambda: shown("reason") == "JobArrayTaskLimit", "its limit holds it")
        decision = site.cycle()
        assert (array, Refusal.NOT_ELIGIBLE) in decision.refused
        assert array not in {a.target.job_id for a in decision.plan.actions}
        assert (shown("arraytaskid"), len(running())) == (waiting, 2)
        lab.run("scancel", running()[0])
        lab.wait_for(lambda: len(running()) == 2, "another task starts")
    clock = SystemClock()
    undoer = SlurmBackend(SlurmCli(conf=lab.conf), clock.now)
    (left,) = (r for r in restore(undoer, site.journal, clock) if r.claim.target.job_id == array)
    undo = f"scontrol update JobId={array} SiteFactor=0"
    assert (left.fate, left.claim.value) == (Fate.UNKNOWN, number)
    assert f"{undo} restores it and starts nothing" in left.detail
    lab.run(*undo.split(), check=False)  # it says of tasks that have ended that they have
    before = set(running())
    lab.run("scancel", *before)
    lab.wait_for(lambda: len(running()) == 2 and not before & set(running()), "the next two start")
    assert shown("arraytaskid") == "6-7%2"
    # sprio shows running tasks here, each by the number of its own record
    records = lab.run("squeue", "-h", "-j", str(array), "-t", "R", "-O", "jobid").split()
    sites = dict(line.split() for line in lab.run("sprio", "-h", "-o", "%i %S").splitlines())
    assert {sites[record] for record in records} == {"0"}
