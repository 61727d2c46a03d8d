"""Groups of dependent jobs in the journal, the metrics and the words of explain."""

from contextlib import closing
from pathlib import Path

import pytest

from rltuned.cli.explain import in_words
from rltuned.core import groups as core_groups
from rltuned.core.decide import Knobs, decide
from rltuned.core.groups import foresee
from rltuned.daemon.documents import explanation
from rltuned.daemon.groups import documents, edges_left_out, kept_groups, open_of, place_of, take_in
from rltuned.domain.jobs import GroupJob, GroupStore, JobPhase
from rltuned.domain.snapshot import NO_CONTEXT, RunTime, Snapshot
from rltuned.domain.units import JobId
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from tests.builders import NOW, job, running, snapshot, sure
from tests.fakes import ConstantOrder

PREDICTED = {JobId(2): RunTime(600, 1_200, 60, 900, 3_000, ends=4)}


def first() -> Snapshot:
    second = job(2, dependency="afterok:1(unfulfilled)", reason="Dependency")
    third = job(3, dependency="afterok:2(unfulfilled),singleton", reason="Dependency")
    return snapshot(second, third, runs=[running(1)])


def test_they_outlive_edges_and_processes(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        assert [g.edges for g in take_in(journal, first(), PREDICTED)] == [2]
    with closing(Journal(tmp_path)) as journal:
        later = snapshot(job(3, dependency="afterok:2"), runs=[running(2)], taken_at=NOW + 60)
        (group,) = open_of(take_in(journal, later, {}))
        assert {n: dict(j.parents) for n, j in group.jobs.items()} == {
            1: {}, 2: {1: "afterok"}, 3: {2: "afterok"},
        }  # fmt: skip
        assert group.jobs[2].source == "predicted"
        assert not group.whole  # as a singleton was seen once
        assert kept_groups(journal, "another") == GroupStore()
        ended = take_in(journal, snapshot(taken_at=NOW + 120), {})
        assert open_of(ended) == ()
        assert documents(ended)[0]["state"] == "ended"


def test_past_its_mean_a_job_takes_its_upper_quantile_and_then_its_limit() -> None:
    one = GroupJob(run_s=100.0, high_s=300.0, most_s=900.0, phase=JobPhase.RUNNING, started_at=NOW)
    ends = [foresee({1: one}, NOW + s).end_at - NOW for s in (50, 150, 500, 1_000)]
    assert ends == [100, 300, 900, 1_000]


def test_nothing_is_kept_where_nothing_depends(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        assert take_in(journal, snapshot(job(1)), {}) == ()
    assert not (tmp_path / FILE_NAME).exists()


def test_edges_that_no_group_holds_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than fit: 40 jobs that all wait for the same 40."""
    monkeypatch.setattr(core_groups, "MOST_EDGES", 1_000)
    parents = ",".join(f"afterok:{n}" for n in range(1, 41))
    children = [job(n, dependency=parents, reason="Dependency") for n in range(41, 81)]
    seen = snapshot(*(job(n) for n in range(1, 41)), *children)
    with closing(Journal(tmp_path)) as journal:
        groups = take_in(journal, seen, {})
    assert (groups, edges_left_out(groups, seen)) == ((), 1_600)
    monkeypatch.setattr(core_groups, "MOST_EDGES", 2_000)
    with closing(Journal(tmp_path)) as journal:
        assert edges_left_out(take_in(journal, seen, {}), seen) == 0


def test_explain_names_what_holds_a_job(tmp_path: Path) -> None:
    seen = first()
    with closing(Journal(tmp_path)) as journal:
        status = take_in(journal, seen, PREDICTED)
    document = sure(explanation("2", seen, NO_CONTEXT, decide(seen, ConstantOrder(), Knobs())))
    document["group"] = place_of(status, seen.pending[0], NOW)
    document["verdict"] = None
    text = "\n".join(in_words(document))
    assert "It is step 2 of 3 of a group of 3 (1); waits for 1 (running, about 40m left)." in text
    assert "Not all of the group's dependencies are understood." in text
    assert place_of(status, job(9), NOW) is None
