"""One history of sacct and the daemon's looks: no run twice, and what is unknown is counted."""

from dataclasses import replace
from typing import Any

from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.tune.journal_history import (
    NO_END,
    NO_START,
    NO_SUBMIT,
    SeenRuns,
    Sources,
    completed,
    seen_runs,
)
from rltuned.slurm.accounting import SacctAnswer, SacctRecord
from tests.builders import NOW, job, running, snapshot, sure


def seen(*looks: Snapshot, cluster: str = "test") -> SeenRuns:
    looked = (CycleObservation(n, 0.0, "live", look) for n, look in enumerate(looks))
    return sure(seen_runs(looked, cluster))


def runs(number: int, **more: Any) -> Any:
    given = {"started_at": NOW - 30, "submitted_at": UnixTime(NOW - 90)} | more
    return running(number, **given)


def by_sacct(number: int, end_s: float | None = NOW + 40, **more: Any) -> SacctRecord:
    """As the looks of `runs` show it."""
    known, _ = completed(SacctAnswer(), seen(snapshot(runs=[runs(number)])))
    given = {"end_s": end_s, "state": "COMPLETED", "user": "sacct's"} | more
    return replace(known.records[0], **given)


LOOKS = (
    snapshot(runs=[runs(1), runs(2)]),
    snapshot(runs=[runs(2)], taken_at=NOW + 60),
    snapshot(runs=[runs(3, started_at=NOW + 90)], taken_at=NOW + 120),
)


def test_without_accounting_the_looks_are_the_history() -> None:
    waits = job(9, submitted_at=NOW + 100, array=ArrayInfo(JobId(9), tasks=5))
    last = replace(LOOKS[-1], pending=(waits,))
    whole, sources = completed(SacctAnswer(), seen(*LOOKS[:-1], last))
    found = {r.key: r for r in whole.records}
    assert sources == Sources(sacct=0, journal=4)
    assert [found[k].end_s for k in "1239"] == [NOW + 30, NOW + 90, None, None]
    assert found["1"].start_s == NOW - 30
    assert found["1"].submit_s == NOW - 90
    assert found["1"].priority is None
    assert (found["1"].gpus, found["1"].alloc_gpus, found["1"].where) == (1, 1, "p1")
    assert (found["9"].start_s, found["9"].tasks, found["9"].eligible_s) == (None, 5, NOW + 100)


def test_no_run_comes_twice() -> None:
    answer = SacctAnswer([by_sacct(1)], rows=1)
    whole, sources = completed(answer, seen(*LOOKS))
    assert [(r.key, r.user) for r in whole.records] == [("1", "sacct's"), ("2", "bob")]
    assert whole.records[0].end_s == NOW + 40, "sacct's own end is the better one"
    assert sources == Sources(sacct=1, journal=1)


def test_an_end_that_slurmdbd_has_lost_is_the_journals() -> None:
    answer = SacctAnswer([by_sacct(1, None, state="RUNNING")], rows=1)
    whole, sources = completed(answer, seen(*LOOKS))
    assert [(r.key, r.end_s) for r in whole.records] == [("1", NOW + 30), ("2", NOW + 90)]
    assert sources == Sources(sacct=1, journal=1, ends=1)
    assert "the ends of 1 of sacct's are the journal's" in sources.words


def test_one_that_still_waits_by_sacct_and_was_seen_to_end_counts_once() -> None:
    answer = SacctAnswer([by_sacct(1, None, start_s=None, state="PENDING")], rows=1)
    whole, sources = completed(answer, seen(*LOOKS))
    assert [(r.key, r.end_s) for r in whole.records] == [("1", NOW + 30), ("2", NOW + 90)]
    assert sources == Sources(sacct=0, journal=2)


def test_what_still_runs_is_not_added_to_accounting() -> None:
    whole, _ = completed(SacctAnswer([by_sacct(7)], rows=1), seen(*LOOKS))
    assert [r.key for r in whole.records] == ["7", "1", "2"]


def test_what_is_not_known_well_enough_is_counted_and_not_guessed() -> None:
    """Job 1 waits and is gone; 2 ends while nobody looks; of 4 the submission is not shown."""
    looks = (
        snapshot(job(1), runs=[runs(2), runs(4, submitted_at=None)]),
        snapshot(runs=[runs(2)], taken_at=NOW + 60),
        snapshot(taken_at=NOW + 9_000),
    )
    whole, sources = completed(SacctAnswer(), seen(*looks))
    assert whole.records == []
    assert sources.left_out == {NO_SUBMIT: 1, NO_END: 1, NO_START: 1}
    assert "left out: 1" in sources.words


def test_a_requeued_run_is_no_end() -> None:
    again = snapshot(job(1, submitted_at=NOW + 10), taken_at=NOW + 60)
    whole, sources = completed(SacctAnswer(), seen(LOOKS[0], again))
    assert [(r.key, r.end_s) for r in whole.records] == [("2", NOW + 30), ("1", None)]
    assert sources.left_out == {NO_END: 1}


def test_looks_at_another_cluster_are_not_taken() -> None:
    assert seen_runs((CycleObservation(1, 0.0, "live", look) for look in LOOKS), "other") is None
    assert completed(SacctAnswer([by_sacct(1)]), None)[1] == Sources(1)
