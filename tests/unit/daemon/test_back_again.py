"""A job that is back with rltuned's number keeps it: its delay never counts twice."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.report import CycleStage
from rltuned.domain.context import Context
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from rltuned.policies.named import policy_named
from tests.builders import NOW, job, snapshot
from tests.fakes import FakeBackend, FakeClock

SYSTEM = PrioritySystem("multifactor", ages=True, age_weight=1_209_600, max_age_s=14 * 86_400.0)
"""A point a second."""
CONTEXT = Context(neutral=NeutralDelay(3_600.0, NOW, 3_600.0, NOW))


def untimed(stage: CycleStage) -> AbstractContextManager[None]:  # noqa: ARG001 - the port's
    return nullcontext()


class Site:
    """A site of one look a minute; what Slurm holds of a job stays with it."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.applier = PlanApplier(Journal(folder), self.clock)

    def cycle(self, number: int, *jobs: PendingJob) -> tuple[PendingJob, ...]:
        """The jobs after a look, a decision and its writes."""
        self.clock.advance(60.0)
        seen = replace(snapshot(*jobs, priorities=SYSTEM), taken_at=UnixTime(self.clock.now()))
        seen = seen.marked(self.applier.remembered(seen.cluster, self.clock.now()))
        self.applier.look(seen)
        world = FakeBackend(seen)
        plan = decide(seen, policy_named("delay"), Knobs(), context=CONTEXT).plan
        self.applier.write(world, plan, seen, number, untimed)
        return tuple(world.job(j.job_id) for j in jobs)


def waiting(number: int, limit_s: float, **rest: object) -> PendingJob:
    asked = job(number, gpus=4, time_limit_s=limit_s, priority=200_000, **rest)  # type: ignore[arg-type]
    return replace(asked, base=200_000, rest=4_000, site_factor=0, live=True)


@pytest.mark.parametrize("limit_s", [60.0, 86_400.0])
def test_a_requeued_job_keeps_its_number(tmp_path: Path, limit_s: float) -> None:
    site = Site(tmp_path)
    (one,) = site.cycle(1, waiting(1, limit_s))
    number = one.site_factor
    assert number
    site.cycle(2)  # it runs
    back = replace(one, submitted_at=UnixTime(site.clock.now()), owned=None)
    for cycle in range(3, 8):
        (back,) = site.cycle(cycle, back)
        assert back.site_factor == pytest.approx(number, abs=120)


@pytest.mark.parametrize("limit_s", [60.0, 86_400.0])
def test_a_task_that_is_parted_keeps_its_number(tmp_path: Path, limit_s: float) -> None:
    site, head = Site(tmp_path), JobId(20)
    (array,) = site.cycle(1, waiting(20, limit_s, array=ArrayInfo(head, 5, listed="0-4")))
    number = array.site_factor
    assert number
    task = replace(
        array, job_id=JobId(21), address="20_3", array=ArrayInfo(head, 1, listed="3"), owned=None
    )
    array = replace(array, address="20_[0-2,4]", array=ArrayInfo(head, 4, listed="0-2,4"))
    for cycle in range(2, 7):
        array, task = site.cycle(cycle, array, task)
        assert array.site_factor == pytest.approx(number, abs=120)
        assert task.site_factor == pytest.approx(number, abs=120)
