"""Kinds on a real Slurm: the same from squeue and sacct, and no name is left anywhere."""

import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest

from rltuned.domain.jobs import JobRun, PendingJob, RunningJob
from rltuned.domain.kinds import Digester
from rltuned.domain.units import JobId
from rltuned.slurm.backend import SlurmBackend
from tests.clusters import module_lab, world_of
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm
DIGESTER = Digester(bytes(range(32)))
ODD = (
    "", "a|b", "a\nb", "x" * 1000, "\x1f", "\x1e\n", "\t", "\n1\x1f2", "'\"`$(id)", "ä€🙂" * 50,
    "(null)", "\x1b[31m", "%j", "-", "JobId=1 Priority=9",
)  # fmt: skip


lab = module_lab(accounting=True)


@pytest.fixture
def world(lab: SlurmLab) -> SlurmBackend:
    return world_of(lab, digester=DIGESTER)


def known(world: SlurmBackend) -> dict[int, PendingJob | RunningJob]:
    seen = world.observe()
    assert not seen.unreadable
    jobs: tuple[PendingJob | RunningJob, ...] = (*seen.pending, *seen.running)
    return {int(job.job_id): job for job in jobs}


def until_ended(
    lab: SlurmLab, world: SlurmBackend, so: Callable[[list[JobRun]], bool]
) -> list[JobRun]:
    """What sacct shows once it is so."""
    found: list[JobRun] = []

    def asked() -> bool:
        found[:] = world.ended_jobs(time.time() - 600, time.time()) or []
        return so(found)

    lab.wait_for(asked, "ended jobs in sacct")
    return found


def script(lab: SlurmLab, name: str, text: str = "sleep 600") -> Path:
    path = lab.root / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    return path


def submit(lab: SlurmLab, *words: str) -> int:
    out = lab.run("sbatch", "--parsable", "--output=/dev/null", "-n1", "--mem=100", *words)
    return int(out.strip().split(";")[0])


def test_jobs_alike_have_the_same_kinds_in_squeue_and_sacct(
    lab: SlurmLab, world: SlurmBackend
) -> None:
    train = str(script(lab, "train 1.sh"))
    here = f"--chdir={lab.root}"
    one = submit(lab, here, "--job-name=train_001", train, "--seed", "1")
    two = submit(lab, here, "--job-name=train_002", train, "--seed", "2")
    other = submit(lab, "--job-name=infer", "--chdir=/", str(script(lab, "other.sh")))
    array = submit(lab, here, "--job-name=train_9", "--array=0-3%2", train)
    out = lab.run(
        "sbatch", "--parsable", "--output=/dev/null", "-Jhet7", "-n1", "--mem=100", ":", "-n1",
        "--mem=100", text="#!/bin/sh\nsleep 600\n",
    )  # fmt: skip
    het = int(out.strip().split(";")[0])
    lab.wait_for(lambda: {lab.state(n) for n in (one, two, other, het)} == {"R"}, "it all runs")
    seen = known(world)
    first = seen[one].kinds
    expected = DIGESTER.kinds(("name", "command", "work_dir"), "train_", train, str(lab.root))
    assert first == seen[two].kinds == seen[array].kinds == expected
    assert 0 not in astuple(first)[:3]
    assert all(a != b for a, b in zip(astuple(first)[:3], astuple(seen[other].kinds), strict=False))
    tasks = [
        job.kinds
        for job in seen.values()
        if isinstance(job, RunningJob) and job.array_job_id == array
    ]
    assert len(tasks) == 2
    assert set(tasks) == {first}
    assert seen[het].kinds == seen[het + 1].kinds
    assert seen[het].kinds.command == 0

    lab.run("scancel", *map(str, (one, two, other, array, het)))
    ended = until_ended(
        lab,
        world,
        lambda found: (
            {one, two, other, het, het + 1} <= {run.job.job_id for run in found}
            and any(run.job.array_job_id == array for run in found)
        ),
    )
    by_id = {int(run.job.job_id): run.job for run in ended}
    for number in (one, two, other, het, het + 1):
        job, before = by_id[number], seen[number]
        assert job.kinds.name == before.kinds.name != 0
        assert job.kinds.work_dir == before.kinds.work_dir != 0
        assert (job.user, job.account, job.partition) == ("root", before.account, "gpu")
        assert job.request.total.cpus == before.request.total.cpus
    assert by_id[one].kinds.submit_line == by_id[two].kinds.submit_line != 0
    assert by_id[one].kinds.submit_line != by_id[other].kinds.submit_line
    assert {j.kinds.name for j in by_id.values() if j.array_job_id == array} == {first.name}
    lab.clear()


def test_an_odd_name_costs_nothing_but_its_key(lab: SlurmLab, world: SlurmBackend) -> None:
    ids = []
    for text in ODD:
        folder = lab.root / f"f{text.replace('/', '')[:40]}"
        folder.mkdir(exist_ok=True)
        path = folder / f"s{text.replace('/', '')[:40]}"
        path.write_text("#!/bin/sh\nexit 0\n")
        ids.append(submit(lab, f"--job-name={text}", f"--chdir={folder}", "--hold", str(path)))
    seen = known(world)
    assert set(ids) <= seen.keys()
    plain = world_of(lab).observe()
    for job in plain.pending:
        it = seen[job.job_id]
        assert isinstance(it, PendingJob)
        assert (it.user, it.account, it.priority) == (job.user, job.account, job.priority)
    lab.scontrol("release", ",".join(map(str, ids)))
    ended = until_ended(lab, world, lambda found: set(ids) <= {run.job.job_id for run in found})
    names = {int(run.job.job_id): run.job.kinds.name for run in ended}
    folders = {int(run.job.job_id): run.job.kinds.work_dir for run in ended}
    for number, text in zip(ids, ODD, strict=True):
        if not text.isascii():
            continue  # the database has other characters in place of some
        assert names[number] == seen[number].kinds.name
        assert folders[number] == seen[number].kinds.work_dir
    lab.clear()


def test_run_times_of_sacct_leave_out_suspension_and_requeues(
    lab: SlurmLab, world: SlurmBackend
) -> None:
    paused = submit(lab, str(script(lab, "paused.sh", "sleep 8")))
    again = submit(lab, str(script(lab, "again.sh", "sleep 600")))
    lab.wait_for(lambda: lab.state(paused) == lab.state(again) == "R", "running jobs")
    time.sleep(2)
    lab.scontrol("suspend", str(paused))
    time.sleep(4)
    lab.scontrol("resume", str(paused))
    lab.scontrol("requeue", str(again))
    ended = until_ended(lab, world, lambda found: paused in {run.job.job_id for run in found})
    by_id = {run.job.job_id: run for run in ended}
    run = by_id[JobId(paused)]
    assert run.suspended_s >= 3
    assert run.run_s == (run.ended_at or 0) - run.job.started_at - run.suspended_s
    assert again not in by_id
    lab.clear()


def test_without_slurmdbd_there_is_no_history(slurm: SlurmLab) -> None:
    world = world_of(slurm, digester=DIGESTER)
    assert world.ended_jobs(time.time() - 600, time.time()) is None
