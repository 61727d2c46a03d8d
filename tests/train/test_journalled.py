"""A known scheduler is recovered from what the daemon wrote down, and nothing later is read."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.core.order import Order
from rltuned.domain.jobs import Ownership, PendingJob, RunningJob
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import UnixTime
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation, recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from rltuned.lab.cli.train import app
from rltuned.lab.train.imitation import FITTING, agreement, choices_of_journal, fit, moments_of
from rltuned.policies.actor import load_actor
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import parse_cluster
from rltuned.sim.dispatch import Pending
from rltuned.sim.world import World
from tests.builders import NOW, job, running, sight, snapshot
from tests.train.worlds import CLUSTER, single_jobs

LOOK_S = 60.0
ORDER = Order(share=0.0)
"""A queue's backlog says nothing about the rule below."""


@cache
def looks() -> tuple[Snapshot, ...]:
    """What a daemon that only watches sees of a Slurm whose priorities delay a job by its limit."""

    def virtual_s(waits: Pending) -> float:
        return waits.job.submit_s + 0.1 * (waits.request.time_limit_s or 0.0)

    def order(world: World) -> list[Pending]:
        return sorted(world.pending.values(), key=lambda p: (virtual_s(p), p.number))

    jobs = [replace(j, submit_s=NOW + j.submit_s * 0.6) for j in single_jobs(900)]
    world = World(parse_cluster(CLUSTER, "one", "one"), jobs, order=order)
    seen = []
    now = NOW
    while now < jobs[-1].submit_s:
        now += LOOK_S
        world.advance(now)
        rank = {p.number: place for place, p in enumerate(order(world))}
        shown = snapshot_of(world)
        pending = tuple(replace(j, priority=10_000 - rank[j.job_id]) for j in shown.pending)
        seen.append(replace(shown, pending=pending))
    return tuple(seen)


def records(seen: Iterable[Snapshot]) -> list[CycleObservation]:
    return [
        CycleObservation(cycle, 0.0, "dry_run", each) for cycle, each in enumerate(seen, start=1)
    ]


def journal_of(folder: Path, seen: Iterable[Snapshot]) -> Path:
    journal = Journal(folder)
    for record in records(seen):
        at = record.snapshot.taken_at
        journal.keep(sight(record.snapshot, cycle=record.cycle, at=at, mode=record.mode))
    journal.close()
    return folder / FILE_NAME


def test_a_known_scheduler_is_recovered(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks())
    earlier, later = choices_of_journal(recorded(path), order=ORDER).split(0.7)
    network, _ = fit(earlier, FITTING)
    assert len(later) > 50
    assert agreement(network, later)[0] >= 0.95


def test_nothing_later_than_the_look_is_seen() -> None:
    """Who started is read off the second look, and of what it says else nothing matters."""
    seen = looks()
    for before, later in pairwise(seen[300:330]):
        other = replace(
            later,
            pending=tuple(_changed(j) for j in later.pending),
            running=tuple(_ended_otherwise(j) for j in later.running),
            nodes=before.nodes,
        )
        one = list(moments_of(records([before, later])))
        two = list(moments_of(records([before, other])))
        assert one == two
        assert all(moment.seen.snapshot is before for moment in one)


def _changed(waits: PendingJob) -> PendingJob:
    return replace(waits, priority=waits.priority + 77, reason="JobHeldAdmin", user="mallory")


def _ended_otherwise(runs: RunningJob) -> RunningJob:
    return replace(runs, request=replace(runs.request, time_limit_s=1.0), shares=())


FIRST = snapshot(
    job(1, priority=400), job(2, priority=300), job(3, priority=200, gpus=2), job(4, priority=100)
)


def after(*started: int, gone: tuple[int, ...] = (), seconds: float = 60.0) -> Snapshot:
    left = tuple(j for j in FIRST.pending if j.job_id not in {*started, *gone})
    runs = [
        running(i, started_at=NOW + 5, submitted_at=next(
            j.submitted_at for j in FIRST.pending if j.job_id == i
        ))
        for i in started
    ]  # fmt: skip
    return snapshot(*left, runs=runs, taken_at=NOW + seconds)


def preferences(*seen: Snapshot) -> list[tuple[int, set[int]]]:
    return [
        (int(m.queue[m.chosen].job_id), {int(m.queue[r].job_id) for r in m.rivals})
        for m in moments_of(records(seen))
    ]


def test_the_started_is_preferred_to_who_would_have_fitted() -> None:
    assert preferences(FIRST, after(1)) == [(1, {2, 4})]
    assert preferences(FIRST, after(1, 2)) == [(1, {4}), (2, {4})]
    assert preferences(FIRST, after(3)) == []  # backfill: 1 and 2 stood before it
    assert preferences(FIRST, after(1, gone=(2,))) == [(1, {4})]
    assert preferences(FIRST, after(1, 2, 3, 4)) == []


def test_looks_that_do_not_show_one_decision_are_left_out() -> None:
    assert preferences(FIRST, after(1, seconds=301.0)) == []
    assert preferences(FIRST, replace(after(1), cluster="other")) == []
    assert preferences(after(1), FIRST) == []


def test_what_rltuned_wrote_to_teaches_nothing() -> None:
    ours = Ownership("priority", 400, original=100)
    pending = tuple(replace(j, owned=ours if j.job_id == 1 else None) for j in FIRST.pending)
    marked = replace(FIRST, pending=pending)
    assert preferences(marked, after(1)) == []
    assert preferences(marked, after(2)) == [(2, {4})]


def test_a_partition_that_was_taken_from_rltuned_teaches() -> None:
    first = CycleObservation(1, 0.0, "live", FIRST, Context(demoted=("gpu",)))
    pairs = [first, CycleObservation(2, 0.0, "live", after(1))]
    assert [moment.chosen for moment in moments_of(pairs)] == [0]


def test_a_requeued_job_is_not_taken_for_a_start() -> None:
    before = snapshot(job(1, submitted_at=NOW - 5, priority=9), job(2, priority=1))
    again = running(1, started_at=NOW + 5, submitted_at=UnixTime(NOW - 600))
    later = snapshot(job(2, priority=1), runs=[again], taken_at=NOW + 60)
    assert preferences(before, later) == []


def test_too_short_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks()[:30])
    with pytest.raises(TraceError, match="had rivals; 50 are needed"):
        choices_of_journal(recorded(path))


def test_the_command_learns_from_a_journal(tmp_path: Path) -> None:
    path = journal_of(tmp_path, looks())
    out = tmp_path / "site"
    given = ["imitate", str(path), "--out", str(out), "--epochs", "3"]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    assert load_actor(out).card.results["held_out_pairwise_agreement"] > 0.5
    assert f"{len(looks())} snapshots" in result.stdout
    assert CliRunner().invoke(app, ["journal", *given[1:]]).exit_code != 0
