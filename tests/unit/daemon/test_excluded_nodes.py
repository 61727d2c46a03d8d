"""Excluded nodes that an older release left in the journal, and their way back."""

from pathlib import Path

import pytest

from rltuned.daemon.restore import restore
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Plan, Result, SetExcludedNodes
from rltuned.domain.units import JobId, NodeName, UnixTime
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Fate, JobKey, WordClaim
from tests.builders import NOW, job, snapshot, target
from tests.fakes import FakeBackend, FakeClock

K = (NodeName("k1"), NodeName("k2"))
KEY = (JobId(1), UnixTime(NOW - 600.0))


def keep_off(of: PendingJob, *nodes: NodeName) -> SetExcludedNodes:
    return SetExcludedNodes(target(of), of.excluded_nodes, nodes)


def wrote(
    journal: Journal, world: FakeBackend, *actions: SetExcludedNodes, at: float = NOW
) -> None:
    ticket = journal.intend(Plan(actions), cluster="test", cycle=1, at=at)
    journal.settle(ticket, world.apply(Plan(actions)), at=at)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


@pytest.fixture
def world(journal: Journal) -> FakeBackend:
    """One job that an older release keeps off two nodes."""
    world = FakeBackend(snapshot(job()))
    wrote(journal, world, keep_off(job(), *K))
    return world


def held(journal: Journal) -> dict[JobKey, str]:
    return {c.key: c.value for c in journal.claims("test") if isinstance(c, WordClaim)}


@pytest.mark.usefixtures("world")
def test_what_is_ours_is_known(journal: Journal) -> None:
    assert held(journal) == {KEY: "k1,k2"}
    assert journal.has_steered()
    assert not journal.is_clean()


def test_an_intent_without_an_outcome_counts_as_ours(journal: Journal) -> None:
    journal.intend(Plan((keep_off(job(), *K),)), cluster="test", cycle=1, at=NOW)
    assert held(journal) == {KEY: "k1,k2"}


def test_taken_back_it_is_ours_no_longer(journal: Journal, world: FakeBackend) -> None:
    wrote(journal, world, keep_off(world.job(1)), at=NOW + 60)
    assert world.job(1).excluded_nodes == ()
    assert held(journal) == {}
    assert journal.is_clean()


def test_restore_leaves_nothing_behind(journal: Journal, world: FakeBackend) -> None:
    (item,) = restore(world, journal, FakeClock())
    assert (item.fate, item.detail) == (Fate.GIVEN_BACK, "ExcNodeList k1,k2 -> empty")
    assert world.job(1).excluded_nodes == ()
    assert journal.is_clean()


def test_nodes_that_somebody_else_excluded_are_left_alone(
    journal: Journal, world: FakeBackend
) -> None:
    theirs = (NodeName("p1"),)
    world.put(job(excluded_nodes=theirs))
    (item,) = restore(world, journal, FakeClock())
    assert item.fate is Fate.CHANGED
    assert "ExcNodeList is p1, rltuned wrote k1,k2" in item.detail
    assert world.job(1).excluded_nodes == theirs


def test_an_exclusion_that_never_arrived_is_said(journal: Journal) -> None:
    world = FakeBackend(snapshot(job()))
    journal.intend(Plan((keep_off(job(), *K),)), cluster="test", cycle=1, at=NOW)
    (item,) = restore(world, journal, FakeClock())
    assert "ExcNodeList is empty, rltuned wrote k1,k2" in item.detail


def test_a_refused_one_was_never_made(journal: Journal) -> None:
    world = FakeBackend(snapshot(job()), results={1: Result.REFUSED})
    wrote(journal, world, keep_off(job(), *K))
    assert held(journal) == {}
    assert not journal.has_steered()


def test_a_requeued_job_brings_it_back_and_it_is_ours_again(
    journal: Journal, world: FakeBackend
) -> None:
    journal.close_gone("test", set())
    assert held(journal) == {}
    assert journal.has_steered()
    again = job(submitted_at=NOW + 30, excluded_nodes=K)
    assert journal.reclaim("test", [again], NOW + 60) == 1
    assert held(journal) == {(JobId(1), UnixTime(NOW + 30)): "k1,k2"}
    world.put(again)
    (item,) = restore(world, journal, FakeClock())
    assert item.fate is Fate.GIVEN_BACK
    assert world.job(1).excluded_nodes == ()


@pytest.mark.usefixtures("world")
def test_a_job_with_other_nodes_is_not_taken_for_ours(journal: Journal) -> None:
    journal.close_gone("test", set())
    other = job(submitted_at=NOW + 30, excluded_nodes=(NodeName("k1"),))
    assert journal.reclaim("test", [other], NOW + 60) == 0
