"""When a waiting job last changed what it asks for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.cli.explain import in_words
from rltuned.cli.plan import known
from rltuned.core.decide import Decision, decide
from rltuned.core.numbers import Writing
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.documents import explanation
from rltuned.domain.jobs import PendingJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Remembered
from rltuned.domain.units import JobKey, UnixTime
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, request, snapshot, sure
from tests.fakes import FakeClock
from tests.loops import Bench
from tests.unit.cli.journalled import KNOBS, world

CHANGES: tuple[dict[str, Any], ...] = (
    {"request": request(time_limit_s=60.0)},
    {"request": request(gpus=3)},
    {"request": request(exclusive=True)},
    {"partitions": ("gpu", "long")},
    {"account": "other"},
    {"qos": "high"},
    {"kinds": Kinds(name=7)},
    {"kinds": Kinds(work_dir=7)},
    {"deadline_at": UnixTime(NOW + 9_000)},
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_its_user_may_change_is_seen_and_kept(change: dict[str, Any]) -> None:
    other = replace(job(1), **change)
    looks = changed_at((job(1), job(2)), (other, job(2)), (other, job(2)))
    assert looks == [[0.0, 0.0], [NOW + 60, 0.0], [NOW + 60, 0.0]]


def changed_at(*looks: tuple[PendingJob, ...]) -> list[list[float]]:
    """Of the jobs of looks, a minute apart."""
    earlier: dict[JobKey, PendingJob] = {}
    found = []
    for number, jobs in enumerate(looks):
        says = Remembered(earlier=earlier, at=NOW + 60 * number)
        marked = [says.mark(one) for one in jobs]
        earlier = {one.key: one for one in marked}
        found.append([one.changed_at for one in marked])
    return found


def test_a_number_is_no_request() -> None:
    assert changed_at((job(1),), (job(1, priority=7, site_factor=-9, nice=3),))[1] == [0.0]


def test_another_cluster_begins_anew(tmp_path: Path) -> None:
    writer = PlanApplier(Journal(tmp_path), FakeClock())
    writer.remembered("test", NOW)
    writer.look(snapshot(job(1)))
    assert writer.remembered("test", NOW + 60).mark(job(1, qos="high")).changed_at == NOW + 60
    assert writer.remembered("other", NOW + 60).mark(job(1, qos="high")).changed_at == 0.0


STEADY = replace(KNOBS, writing=Writing(hysteresis=0.9))


class Following(Bench):
    """A daemon whose hysteresis is wide."""

    def rig(self) -> Any:
        return replace(super().rig(), policy=BASELINES["sjf"], knobs=STEADY)

    def decided(self) -> Decision:
        loop = self.loop()
        loop.cycle()
        loop._journal.close()
        return sure(self.received.reports[-1].decision)

    def change(self, limit_s: float) -> None:
        first, *rest = self.world.world.pending
        asks = replace(first.request, time_limit_s=limit_s)
        self.clock.advance(60.0)
        self.world.world = replace(
            self.world.world,
            pending=(replace(first, request=asks), *rest),
            taken_at=UnixTime(self.clock.now()),
        )

    def shown(self) -> dict[str, Any]:
        """What `explain` says of job 1."""
        writer = PlanApplier(Journal(self.folder), self.clock)
        seen = self.world.observe(writer.remembered)
        context = known(writer, seen)
        decision = decide(seen, BASELINES["sjf"], STEADY, context=context)
        found = sure(explanation("1", seen, context, decision))
        return {**found, "starts": None, "verdict": None}


def test_a_change_while_no_daemon_looks_is_written_by_the_next_and_explain_says_so(
    tmp_path: Path,
) -> None:
    """Each cycle is one of a new process, which has the journal alone."""
    bench = Following(tmp_path)
    bench.world.world = world()
    bench.decided()
    assert bench.shown()["request_changed_at"] is None
    assert bench.decided().plan.is_empty
    bench.change(limit_s=1.2 * 9_000.0)
    shown = bench.shown()
    assert shown["request_changed_at"] == bench.clock.now()
    assert shown["planned_priority"] == shown["proposed_priority"] != shown["current_priority"]
    assert any("the next cycle that may write sets the one" in line for line in in_words(shown))
    assert [a.target.job_id for a in bench.decided().plan.actions] == [1]
    assert bench.priorities()[1] == shown["planned_priority"]
    assert bench.shown()["request_changed_at"] is None
    assert bench.decided().plan.is_empty


def test_a_change_is_written_although_the_last_write_was_noted_with_the_clock_ahead(
    tmp_path: Path,
) -> None:
    bench = Following(tmp_path)
    bench.world.world = world()
    bench.clock.advance(7_200.0)
    assert bench.decided().plan.actions
    bench.clock.advance(-7_200.0)
    bench.change(limit_s=1.2 * 9_000.0)
    assert [a.target.job_id for a in bench.decided().plan.actions] == [1]


def test_a_kept_look_that_cannot_be_read_is_no_look(tmp_path: Path) -> None:
    bench = Following(tmp_path)
    bench.world.world = world()
    bench.decided()
    with Journal(tmp_path)._session(create=False) as db:
        db.execute("UPDATE snapshots SET body = x'00'")
    bench.change(limit_s=1.2 * 9_000.0)
    assert bench.shown()["request_changed_at"] is None
