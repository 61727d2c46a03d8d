"""Excluded nodes on a real Slurm: what they do, that they can be undone, and whom they spare."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.joint import Tuning
from rltuned.core.milp import Budget
from rltuned.core.select import Rules
from rltuned.core.steering import Steer
from rltuned.daemon.apply import Writer
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Plan, Result, SetExcludedNodes, SetOverSubscribe, Target
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import NodeName
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Fate
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.undoer import SlurmUndoer
from rltuned.solver import cbc
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
    return SlurmBackend(cli, time.time, exclusions=True)


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


def job(snapshot: Snapshot, job_id: int) -> PendingJob:
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
    it = backend(slurm)
    slurm.wait_for(lambda: bool(job(it.observe(), waiting).reason not in {"None", ""}), 20, "seen")
    before, found = shown(slurm, waiting), job(it.observe(), waiting)
    assert found.excluded_nodes == own
    assert only(it.apply(keep_off(found, *own_and(found, *P)))) == (Result.APPLIED, "")
    steered = job(it.observe(), waiting)
    assert set(steered.excluded_nodes) == {*own, *P}
    assert shown(slurm, waiting) != before
    assert only(it.apply(keep_off(steered, *found.excluded_nodes))) == (Result.APPLIED, "")
    assert shown(slurm, waiting) == before


def own_and(found: PendingJob, *more: NodeName) -> tuple[NodeName, ...]:
    return (*found.excluded_nodes, *more)


def test_nodes_excluded_by_somebody_since_we_looked_are_not_overwritten(slurm: SlurmLab) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it = backend(slurm)
    found = job(it.observe(), waiting)
    slurm.scontrol("update", f"JobId={waiting}", "ExcNodeList=m1")
    result, why = only(it.apply(keep_off(found, *P)))
    assert (result, why) == (Result.REFUSED, "ExcNodeList is m1 meanwhile")
    assert shown(slurm, waiting)["ExcNodeList"] == "m1"


def test_a_job_that_started_is_left_alone(slurm: SlurmLab) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it = backend(slurm)
    found = job(it.observe(), waiting)
    slurm.run("scancel", "--state=RUNNING", "--user=root")
    slurm.wait_for(lambda: slurm.state(waiting) == "R", 30, "it started")
    assert only(it.apply(keep_off(found, *P)))[0] is Result.GONE
    assert shown(slurm, waiting)["ExcNodeList"] == "(null)"


def test_slurm_follows_and_restore_leaves_nothing(slurm: SlurmLab, tmp_path: Path) -> None:
    """One GPU of each p node is free and all k nodes; by itself Slurm would take the last p GPUs
    for a job that accepts any. The jobs behind it need whole p nodes."""
    journal, clock, it = Journal(tmp_path), SystemClock(), backend(slurm)
    take(slurm, ("p1", "p100", 3), ("p2", "p100", 3), ("m1", "m40", 1))
    nodes = it.observe().nodes
    rest = take(slurm, ("p1", "p100", 1), ("p2", "p100", 1), ("k1", "k80", 2), ("k2", "k80", 2))
    free = slurm.sbatch(*ANY_GPU)
    for _ in range(2):
        slurm.sbatch("--gres=gpu:p100:4", "-c1", "-t5", "--mem=1000")
    tuning = Tuning(budget=Budget(wall_s=20.0), steer=Steer(on=True))
    knobs = Knobs(rules=Rules(min_age_s=0.0), placement="milp", tuning=tuning)
    snapshot, _ = Writer(journal, clock).mark(it.observe())
    decision = decide(replace(snapshot, nodes=nodes), BASELINES["fcfs"], knobs, cbc())
    (action,) = [a for a in decision.plan.actions if isinstance(a, SetExcludedNodes)]
    assert (action.target.job_id, action.old) == (free, ())
    assert set(P) <= set(action.new)
    assert only(write(journal, it, Plan((action,)))) == (Result.APPLIED, "")
    (item,) = restore(undoer(slurm), journal, clock)
    assert item.fate is Fate.GIVEN_BACK
    assert shown(slurm, free)["ExcNodeList"] == "(null)"
    assert only(write(journal, it, Plan((action,)))) == (Result.APPLIED, "")
    slurm.run("scancel", *map(str, rest))
    slurm.wait_for(lambda: slurm.state(free) == "R", 30, "it runs")
    assert shown(slurm, free)["NodeList"] in {"k1", "k2"}


def write(journal: Journal, it: SlurmBackend, plan: Plan) -> tuple[Outcome, ...]:
    ticket = journal.intend(plan, cluster="rltlab", cycle=1, at=time.time())
    outcomes = it.apply(plan)
    journal.settle(ticket, outcomes, at=time.time())
    return outcomes


def test_a_requeued_job_is_freed_of_what_was_ours(slurm: SlurmLab, tmp_path: Path) -> None:
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU, "--requeue")
    it, journal, clock = backend(slurm), Journal(tmp_path), SystemClock()
    assert only(write(journal, it, keep_off(job(it.observe(), waiting), *P)))[0] is Result.APPLIED
    slurm.run("scancel", "--state=RUNNING", "--user=root")
    slurm.wait_for(lambda: slurm.state(waiting) == "R", 30, "it runs")
    Writer(journal, clock).journal.close_gone("rltlab", set())
    assert journal.has_steered()
    slurm.scontrol("requeuehold", str(waiting))
    slurm.wait_for(lambda: slurm.state(waiting) == "PD", 30, "it waits again")
    assert shown(slurm, waiting)["ExcNodeList"] == "p[1-2]"
    (item,) = restore(undoer(slurm), journal, clock)
    assert (item.fate, item.claim.field) == (Fate.GIVEN_BACK, "excluded_nodes")
    assert shown(slurm, waiting)["ExcNodeList"] == "(null)"


def test_the_command_takes_it_back_where_steering_is_switched_off(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """And a live cycle does: the setting may go before what it did."""
    fill(slurm)
    waiting = slurm.sbatch(*ANY_GPU)
    it, journal = backend(slurm), Journal(tmp_path)
    config = tmp_path / "rltuned.toml"
    config.write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[http]\nenabled = false\n'
        f'[slurm]\nconf = "{slurm.conf}"\n[scope]\nmin_age_s = 0\n'
    )
    for command in (("restore", "--all"), ("run", "--live", "--once")):
        plan = keep_off(job(it.observe(), waiting), *P)
        assert only(write(journal, it, plan)) == (Result.APPLIED, "")
        journal.let_go()
        done = subprocess.run(
            [sys.executable, "-m", "rltuned", *command, "--config", str(config)],
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
