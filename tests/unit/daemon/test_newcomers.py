"""The stamp for job_submit.lua comes and goes with the daemon; its numbers are known again."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.order import DEFAULT
from rltuned.daemon.newcomers import Stamp
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetSiteFactor
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, snapshot
from tests.fakes import FakeBackend
from tests.loops import Bench

HOUR, DAY = 3_600.0, 86_400.0
AGED = PrioritySystem("multifactor", ages=True, age_weight=140_000, max_age_s=14 * DAY)


def asking(number: int, hours: float, gpus: int = 1) -> PendingJob:
    return job(number, gpus=gpus, time_limit_s=hours * HOUR, priority=90_000)


def world(*jobs: PendingJob) -> Snapshot:
    return replace(snapshot(*jobs), priorities=AGED)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    queue = world(asking(1, 10.0), asking(2, 20.0), asking(3, 30.0))
    return Bench(tmp_path, policy=BASELINES["delay"], world=FakeBackend(queue))


def stamp_of(bench: Bench, **rig: object) -> Path:
    """One cycle; where the stamp is, or is not."""
    path = bench.folder / "stamp"
    loop = bench.loop()
    loop.rig = replace(loop.rig, newcomers=path, **rig)  # type: ignore[arg-type]
    loop.cycle()
    loop._journal.close()
    return path


def formula(bench: Bench) -> Stamp:
    system = AGED.slope
    return Stamp(
        cluster=bench.world.world.cluster,
        slope=system,
        zero=int(system * DEFAULT.stretch * 20 * HOUR),
        stretch=DEFAULT.stretch,
        clip=1.0,
        max_delay_s=7 * DAY,
        partitions=("gpu",),
    )


def test_the_stamp_is_that_of_the_cycle_and_goes_when_the_daemon_steps_down(bench: Bench) -> None:
    path = stamp_of(bench)
    assert path.read_text() == formula(bench).text(bench.clock.now() + 180.0)
    (bench.folder / "PAUSE").touch()
    assert not stamp_of(bench).exists()
    assert bench.received.reports[-1].mode is HealthState.PAUSED
    (bench.folder / "PAUSE").unlink()
    assert stamp_of(bench).exists()
    assert not stamp_of(bench, policy=BASELINES["saf"]).exists()


def test_a_newcomer_with_the_formulas_number_is_ours_after_a_restart_too(bench: Bench) -> None:
    stamp_of(bench)
    right = formula(bench).factor(100 * HOUR, 4)
    assert right < 0
    new = replace(asking(4, 100.0, 4), site_factor=right, priority=90_000 + right)
    own = replace(new, job_id=asking(5, 1).job_id, address="5", site_factor=right - 1)
    queue = bench.world.world.pending
    bench.world.world = world(*queue, new, own)
    stamp_of(bench)
    seen = {int(j.job_id): j.owned for j in bench.received.reports[-1].snapshot.pending}  # type: ignore[union-attr]
    assert seen[4] is not None
    assert (seen[4].value, seen[4].original) == (right, 0)
    assert seen[5] is None
    assert 4 not in {int(a.target.job_id) for a in bench.world.plans[-1].actions}
    stamp_of(bench, dry_run=True)  # who only looks knows them from the journal
    bench.policy = BASELINES["fcfs"]
    stamp_of(bench)
    written = [a for a in bench.world.plans[-1].actions if a.target.job_id == new.job_id]
    assert [(type(a), a.old) for a in written if isinstance(a, SetSiteFactor)] == [
        (SetSiteFactor, right)
    ]
    again = bench.received.reports[-1].snapshot
    assert again is not None
    assert {int(j.job_id): j.owned.original for j in again.pending if j.owned}[4] == 0


def test_a_stamp_that_cannot_be_written_is_reported(bench: Bench) -> None:
    (bench.folder / "stamp").mkdir()
    stamp_of(bench)
    report = bench.received.reports[-1]
    assert "stamp: Is a directory" in report.summary()
    assert report.ok


def test_formulas_that_cannot_be_read_are_not_guessed(bench: Bench) -> None:
    loop = bench.loop()
    loop._journal.remember("newcomers", {"stamps": [{"slope": 1.0}]}, NOW)
    with pytest.raises(JournalError, match="newcomers in the journal"):
        loop._writer.mark(bench.world.world)
    loop._journal.close()
