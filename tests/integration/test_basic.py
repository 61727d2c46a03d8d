"""priority/basic deals numbers out by turn: a release there would send a job to the back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.select import Scope
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.plan import Result
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.backend import SlurmBackend, SlurmUndoer
from rltuned.slurm.run import SlurmCli
from tests.clusters import emptied, module_lab
from tests.fakes import ConstantOrder
from tests.integration.site import no_stopwatch
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


basic = module_lab(priority_type="priority/basic")


@pytest.fixture
def lab(basic: SlurmLab) -> Iterator[SlurmLab]:
    yield from emptied(basic)


def undoer(slurm: SlurmLab) -> SlurmUndoer:
    return SlurmUndoer(SlurmCli(conf=slurm.conf), time.time)


def test_restore_gives_every_job_the_number_that_it_had(lab: SlurmLab, tmp_path: Path) -> None:
    blocker = lab.sbatch("-wm1", "-n4")
    lab.wait_for(lambda: lab.state(blocker) == "R", "the node is busy")
    waiting = [lab.sbatch("-wm1", "-n4", f"--nice={n}") for n in (0, 7, 0)]
    lab.wait_for(lambda: lab.state(waiting[0]) == "PD", "a queue")
    world = SlurmBackend(SlurmCli(conf=lab.conf), time.time)
    journal = Journal(tmp_path)
    before = {j.job_id: j.priority for j in world.observe().pending}
    seen = world.observe()
    knobs = Knobs(Scope(min_age_s=0.0), writing=Writing(hysteresis=0.0))
    plan = decide(seen, ConstantOrder(tuple(reversed(waiting))), knobs).plan
    outcomes = PlanApplier(journal, SystemClock()).write(world, plan, seen, 1, no_stopwatch)
    assert {o.result for o in outcomes} == {Result.APPLIED}
    assert {j.job_id: j.priority for j in world.observe().pending} != before
    items = restore(undoer(lab), journal, SystemClock())
    assert {i.fate for i in items} == {Fate.RESTORED}
    assert {j.job_id: j.priority for j in world.observe().pending} == before
    assert restore(undoer(lab), journal, SystemClock()) == ()

    niced = lab.sbatch("-wm1", "-n4", "--nice=7")  # those before bear no nice any more
    waiting.append(niced)
    seen = world.observe()
    plan = decide(seen, ConstantOrder(tuple(reversed(waiting))), knobs).plan
    PlanApplier(journal, SystemClock()).write(world, plan, seen, 2, no_stopwatch)
    lab.scontrol("hold", str(niced))
    by_id = {int(i.claim.target.job_id): i for i in restore(undoer(lab), journal, SystemClock())}
    assert by_id[niced].fate is Fate.HELD
    assert by_id[niced].detail.endswith(f"scontrol update JobId={niced} Nice=7")
    assert _is_held(world, niced)
    # why its nice is not set at once, as it is under multifactor
    lab.scontrol("update", f"JobId={niced}", "Nice=7")
    assert not _is_held(world, niced)
    journal.close()


def test_every_job_in_scope_is_written_and_the_others_stand_behind(
    lab: SlurmLab, tmp_path: Path
) -> None:
    """Also those that are asked for no delay at all: fcfs asks nobody."""
    blocker = lab.sbatch("-wm1", "-n4")
    lab.wait_for(lambda: lab.state(blocker) == "R", "the node is busy")
    alone = lab.sbatch("-wm1", "-n4", "-psla")
    waiting = [lab.sbatch("-wm1", "-n4") for _ in range(2)]
    world = SlurmBackend(SlurmCli(conf=lab.conf), time.time)
    journal, seen = Journal(tmp_path), world.observe()
    before = {int(j.job_id): j.priority for j in seen.pending}
    knobs = Knobs(Scope(min_age_s=0.0, partitions=frozenset({"gpu"})))
    decision = decide(seen, BASELINES["fcfs"], knobs)
    assert [e.delay_s for e in decision.entries] == [0.0, 0.0]
    PlanApplier(journal, SystemClock()).write(world, decision.plan, seen, 1, no_stopwatch)
    after = {int(j.job_id): j.priority for j in world.observe().pending}
    assert after[alone] == before[alone]
    assert min(after[j] for j in waiting) > after[alone] > max(before[j] for j in waiting)
    journal.close()


def _is_held(world: SlurmBackend, job_id: int) -> bool:
    return next(j for j in world.observe().pending if j.job_id == job_id).priority == 0
