"""OverSubscribe guidance on a real Slurm: what isolation leaves idle gets used."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rltuned.core.decide import undo_plan
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.plan import OVERSUBSCRIBE, Plan, Result
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from tests.builders import marked_by, sure
from tests.clusters import world_of
from tests.guidance import ALONE, JOBS, cycle, guided, play
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


def write(backend: SlurmBackend, journal: Journal, plan: Plan) -> None:
    ticket = journal.intend(plan, cluster="rltlab", cycle=1, at=time.time())
    outcomes = backend.apply(plan)
    journal.settle(ticket, outcomes, at=time.time())
    assert [o.result for o in outcomes] == [Result.APPLIED]


def test_guidance_uses_what_isolation_leaves_idle(
    slurm: SlurmLab, record_property: Callable[[str, object], None]
) -> None:
    alone = play(slurm, frozenset())
    assert (alone.at_once, alone.flagged) == (2, 0)
    slurm.clear()
    shared = play(slurm, frozenset({"gpu"}))
    record_property("alone", str(alone))
    record_property("shared", str(shared))
    assert shared.flagged >= JOBS - 2
    assert shared.at_once > 2
    assert shared.makespan_s < alone.makespan_s


def test_a_void_partition_is_left_alone_and_says_so(slurm: SlurmLab) -> None:
    for node in ("k1", "k2"):
        slurm.sbatch("-pwhole", f"-w{node}", "--gres=gpu:k80:1", "-t2")
    waiting = [slurm.sbatch("-pwhole", "--exclusive", "--gres=gpu:k80:1", "-t2") for _ in range(2)]
    slurm.wait_for(lambda: slurm.state(waiting[0]) == "PD", "they wait")
    backend, knobs = guided(slurm, frozenset({"whole"}))
    decision, flagged = cycle(backend, knobs)
    assert flagged == 0
    assert not any(a.field is OVERSUBSCRIBE for a in decision.plan.actions)
    assert any("void" in note for note in decision.notes)


def test_a_requeued_job_is_isolated_again_when_it_is_given_back(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    busy = [slurm.sbatch("-c1", f"-w{name}", "-t5") for name in slurm.node_names]
    slurm.wait_for(lambda: all(slurm.state(i) == "R" for i in busy), "no node is idle")
    # held, or Slurm may start it before the flag is read back
    alone = slurm.sbatch(*ALONE, "--requeue", "--hold")
    backend, _ = guided(slurm, frozenset({"gpu"}))
    journal, clock = Journal(tmp_path), SystemClock()
    (found,) = backend.observe().pending
    write(backend, journal, Plan((OVERSUBSCRIBE.to(found, "YES"),)))
    slurm.scontrol("release", str(alone))
    slurm.wait_for(lambda: slurm.state(alone) == "R", "it runs beside another")
    journal.close_gone("rltlab", set())
    slurm.scontrol("requeuehold", str(alone))
    slurm.wait_for(lambda: slurm.state(alone) == "PD", "it waits again")
    (item,) = restore(world_of(slurm), journal, clock)
    assert (item.fate, item.claim.field) == (Fate.RESTORED, OVERSUBSCRIBE)
    assert "OverSubscribe=NO" in slurm.scontrol("-o", "show", "job", str(alone))


def test_a_stage_that_does_not_write_isolates_it_again(slurm: SlurmLab, tmp_path: Path) -> None:
    alone = slurm.sbatch(*ALONE, "--hold")
    backend, _ = guided(slurm, frozenset({"gpu"}))
    journal = Journal(tmp_path)
    (found,) = backend.observe().pending
    write(backend, journal, Plan((OVERSUBSCRIBE.to(found, "YES"),)))
    shown = marked_by(journal, backend.observe())
    write(backend, journal, undo_plan(shown))
    assert "OverSubscribe=NO" in slurm.scontrol("-o", "show", "job", str(alone))
    assert journal.is_clean()
    assert undo_plan(marked_by(journal, backend.observe())).is_empty


def test_jobs_are_reported_before_their_node_falls_free(slurm: SlurmLab) -> None:
    """One look while all is full; nobody looks when the nodes fall free, and they are shared."""
    names = [name for name in slurm.node_names if name.startswith("p")]
    busy = [slurm.sbatch(*ALONE, f"-w{name}", wrap="sleep 300") for name in names]
    slurm.wait_for(lambda: all(slurm.state(i) == "R" for i in busy), "all are taken whole")
    waiting = [slurm.sbatch(*ALONE, wrap="sleep 300") for _ in range(2 * len(names))]
    backend, knobs = guided(slurm, frozenset({"gpu"}))
    decision, flagged = cycle(backend, knobs)
    assert not sure(decision.joint).placements
    assert flagged == len(waiting)
    slurm.run("scancel", str(busy[0]))
    slurm.wait_for(
        lambda: all(slurm.state(i) == "R" for i in waiting), "one node carries what fits on it"
    )
    assert all(slurm.state(i) == "R" for i in busy[1:])
