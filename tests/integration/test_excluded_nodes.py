"""Excluded nodes that an older release left, on a real Slurm: their way back."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Plan, Result, SetExcludedNodes, SetOverSubscribe, Target
from rltuned.domain.remnants import Remnants
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import NodeName
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Fate
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.undoer import SlurmUndoer
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

K = (NodeName("k1"), NodeName("k2"))
P = (NodeName("p1"), NodeName("p2"))
ANY_GPU = ("--gres=gpu:1", "-c1", "-t5", "--mem=1000")
MOVING = {
    "AccrueTime", "LastSchedEval", "StartTime", "EndTime", "SchedNodeList", "Reason", "Scheduler",
}  # fmt: skip
"""What Slurm changes of a pending job by itself."""


def undoer(slurm: SlurmLab) -> SlurmUndoer:
    return SlurmUndoer(SlurmCli(conf=slurm.conf), time.time, exclusions=True)


def backend(lab: SlurmLab, bin_dir: Path | None = None) -> SlurmBackend:
    cli = SlurmCli(conf=lab.conf) if bin_dir is None else SlurmCli(conf=lab.conf, bin_dir=bin_dir)
    return SlurmBackend(cli, time.time)


def take(lab: SlurmLab, *what: tuple[str, str, int]) -> list[int]:
    """Jobs that hold so many GPUs of (node, type) until they are cancelled."""
    ids = [
        lab.sbatch(f"-w{node}", f"--gres=gpu:{kind}:{gpus}", "-c1", "-t60", "--mem=1000")
        for node, kind, gpus in what
    ]
    lab.wait_for(lambda: all(lab.state(i) == "R" for i in ids), 20, "the GPUs are taken")
    return ids


def fill(lab: SlurmLab) -> None:
    """Every GPU taken, so that what comes now waits."""
    take(
        lab, ("p1", "p100", 4), ("p2", "p100", 4), ("k1", "k80", 2), ("k2", "k80", 2),
        ("m1", "m40", 1),
    )  # fmt: skip


def shown(lab: SlurmLab, job_id: int) -> dict[str, str]:
    """All that Slurm shows of a job, without what moves by itself."""
    words = lab.scontrol("-o", "show", "job", str(job_id)).split()
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    return {key: value for key, value in pairs.items() if key not in MOVING}


def job(snapshot: Snapshot | Remnants, job_id: int) -> PendingJob:
    return next(j for j in snapshot.pending if j.job_id == job_id)


def target(found: PendingJob) -> Target:
    return Target(found.job_id, found.submitted_at, found.address)


def keep_off(found: PendingJob, *nodes: NodeName) -> Plan:
    return Plan((SetExcludedNodes(target(found), found.excluded_nodes, nodes),))


def only(outcomes: tuple[Outcome, ...]) -> tuple[Result, str]:
    (outcome,) = outcomes
    return outcome.result, outcome.detail


@pytest.mark.parametrize("own", [(), ("k1",), ("k1", "k2")])
def test_what_was_there_before_can_be_set_again_exactly(
    slurm: SlurmLab, own: tuple[str, ...]
) -> None:
    fill(slurm)
    options = [f"--exclude={','.join(own)}"] if own else []
    waiting = slurm.sbatch(*ANY_GPU, "--nice=7", *options)
    it = undoer(slurm)
    slurm.wait_for(
        lambda: bool(job(backend(slurm).observe(), waiting).reason not in {"None", ""}), 20, "seen"
    )
    before, found = shown(slurm, waiting), job(it.look(), waiting)
    assert found.excluded_nodes == own
    assert only(it.apply(keep_off(found, *own_and(found, *P)))) == (Result.APPLIED, "")
    steered = job(it.look(), waiting)
    assert set(steered.excluded_nodes) == {*own, *P}
    assert shown(slurm, waiting) != before
    assert only(it.apply(keep_off(steered, *found.excluded_nodes))) == (Result.APPLIED, "")
    assert shown(slurm, waiting) == before


def own_and(found: PendingJob, *more: NodeName) -> tuple[NodeName, ...]:
    return (*found.excluded_nodes, *more)


def test_nodes_excluded_by_somebody_since_we_looked_are_not_overwritten(slurm: SlurmLab) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it = undoer(slurm)
    found = job(it.look(), waiting)
    slurm.scontrol("update", f"JobId={waiting}", "ExcNodeList=m1")
    result, why = only(it.apply(keep_off(found, *P)))
    assert (result, why) == (Result.REFUSED, "ExcNodeList is m1 meanwhile")
    assert shown(slurm, waiting)["ExcNodeList"] == "m1"


def test_a_job_that_started_is_left_alone(slurm: SlurmLab) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it = undoer(slurm)
    found = job(it.look(), waiting)
    slurm.run("scancel", "--state=RUNNING", "--user=root")
    slurm.wait_for(lambda: slurm.state(waiting) == "R", 30, "it started")
    assert only(it.apply(keep_off(found, *P)))[0] is Result.GONE
    assert shown(slurm, waiting)["ExcNodeList"] == "(null)"


def write(journal: Journal, it: SlurmUndoer, plan: Plan) -> tuple[Outcome, ...]:
    ticket = journal.intend(plan, cluster="rltlab", cycle=1, at=time.time())
    outcomes = it.apply(plan)
    journal.settle(ticket, outcomes, at=time.time())
    return outcomes


def test_a_requeued_job_is_freed_of_what_was_ours(slurm: SlurmLab, tmp_path: Path) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU, "--requeue")
    it, journal, clock = undoer(slurm), Journal(tmp_path), SystemClock()
    assert only(write(journal, it, keep_off(job(it.look(), waiting), *P)))[0] is Result.APPLIED
    slurm.run("scancel", "--state=RUNNING", "--user=root")
    slurm.wait_for(lambda: slurm.state(waiting) == "R", 30, "it runs")
    journal.close_gone("rltlab", set())
    assert journal.has_steered()
    slurm.scontrol("requeuehold", str(waiting))
    slurm.wait_for(lambda: slurm.state(waiting) == "PD", 30, "it waits again")
    assert shown(slurm, waiting)["ExcNodeList"] == "p[1-2]"
    (item,) = restore(it, journal, clock)
    assert (item.fate, item.claim.field) == (Fate.GIVEN_BACK, "excluded_nodes")
    assert shown(slurm, waiting)["ExcNodeList"] == "(null)"


def test_the_command_takes_it_back(slurm: SlurmLab, tmp_path: Path) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it, journal = undoer(slurm), Journal(tmp_path)
    config = tmp_path / "rltuned.toml"
    config.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[http]\nenabled = false\n'
        f'[slurm]\nconf = "{slurm.conf}"\n[scope]\nmin_age_s = 0\n'
    )
    assert only(write(journal, it, keep_off(job(it.look(), waiting), *P))) == (Result.APPLIED, "")
    journal.let_go()
    done = subprocess.run(
        [sys.executable, "-m", "rltuned", "restore", "--all", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown(slurm, waiting)["ExcNodeList"] == "(null)"
    assert not journal.has_steered()


@pytest.fixture
def powerless(slurm: SlurmLab, tmp_path: Path) -> SlurmBackend:
    """The commands as somebody runs them who is nobody in this cluster."""
    tmp_path.chmod(0o755)
    for name in ("squeue", "sinfo", "sprio", "scontrol", "sdiag"):
        program = tmp_path / name
        path = slurm.run("sh", "-c", f"command -v {name}").strip()
        program.write_text(
            f'#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups {path} "$@"\n'
        )
        program.chmod(0o755)
    return backend(slurm, tmp_path)


def test_without_rights_it_says_so_and_nothing_changes(
    slurm: SlurmLab, powerless: SlurmBackend
) -> None:
    fill(slurm)
    alone = slurm.sbatch("-c1", "--exclusive", "-t5")
    found = job(powerless.observe(), alone)
    before = shown(slurm, alone)
    share = SetOverSubscribe(target(found), found.oversubscribe, "YES")
    for plan in (Plan((share,)), keep_off(found, *P)):
        assert only(powerless.apply(plan)) == (Result.REFUSED, "Invalid user id")
    assert shown(slurm, alone) == before
    later = job(powerless.observe(), alone)
    # slurmctld says a moment later why a job waits, and from when it ages
    assert replace(later, reason="", accrue_at=None) == replace(found, reason="", accrue_at=None)
