"""Pairs of blocks: who counts in which, what counts as a wait, and when a pair is decided."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from rltuned.daemon.breaker import HORIZON_S, Blocks, Pair, Touched

from rltuned.core.ladder import MOST_APART_S, Switchback
from rltuned.domain.jobs import ArrayInfo, PendingJob, RunningJob, Side
from rltuned.domain.snapshot import JobTracker, Unreadable
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, request, running, snapshot

SWITCHBACK = Switchback("salt", block_s=3_600.0, washout_s=600.0)
STEP_S = 300.0
PAIR = SWITCHBACK.block("gpu", NOW + 7_200.0)
START = PAIR.pair_begins_at
"""Of the first pair that begins after NOW."""


def first_of(on: bool) -> float:
    """When the counted part of the pair's on or off block begins."""
    early = SWITCHBACK.block("gpu", START)
    return early.counts_from + 3_600.0 * (early.on != on)


@dataclass
class Street:
    """A partition, looked at every few minutes."""

    blocks: Blocks = field(default_factory=lambda: Blocks(SWITCHBACK))
    now: float = NOW
    number: int = 0
    waiting: dict[int, PendingJob] = field(default_factory=dict)
    runs: list[RunningJob] = field(default_factory=list)
    decided: list[Pair] = field(default_factory=list)
    live: bool = True
    tracker: JobTracker = field(default_factory=JobTracker)
    touched: Touched = field(default_factory=Touched)

    def come(self, at: float, user: str, **rest: object) -> int:
        """A job that is eligible at that time."""
        self.until(at)
        self.number += 1
        new = job(self.number, submitted_at=UnixTime(at), user=user, **rest)  # type: ignore[arg-type]
        self.waiting[self.number] = new
        return self.number

    def start(self, *numbers: int, after_s: float) -> None:
        for number in numbers:
            one = self.waiting.pop(number)
            at = UnixTime(one.submitted_at + after_s)
            array = None if one.array is None else one.array.array_job_id
            begun = running(
                number, started_at=at, submitted_at=one.submitted_at, array_job_id=array
            )
            self.runs.append(begun)

    def until(self, at: float) -> "Street":
        while self.now < at:
            self.now = min(self.now + STEP_S, at)
            self.look()
        return self

    def look(self, side: Side = Side.ON, demoted: Sequence[str] = (), **rest: Any) -> None:
        seen = snapshot(*self.waiting.values(), runs=self.runs, taken_at=self.now, **rest)
        news = self.tracker.look(seen)
        news = replace(news, started=tuple(replace(run, side=side) for run in news.started))
        sides = {one.job_id: side for one in seen.pending}
        self.touched.look(seen)
        self.decided += self.blocks.look(
            seen, sides, news, self.touched.units, demoted=demoted, live=self.live
        )

    def play(self, on_s: float = 900.0, off_s: float = 300.0) -> "Street":
        """Two users with a job in each block of the pair."""
        self.until(START - STEP_S)
        for on in sorted((True, False), key=first_of):
            jobs = [self.come(first_of(on) + 60, user) for user in ("alice", "bob")]
            self.until(self.now + 60)
            self.start(*jobs, after_s=on_s if on else off_s)
        return self.until(START + 7_200.0 + STEP_S)


def test_a_pair_is_decided_when_all_of_it_have_started() -> None:
    (pair,) = Street().play().decided
    assert pair.partition == "gpu"
    assert (pair.wait.on, pair.wait.off) == ({"alice": 900, "bob": 900}, {"alice": 300, "bob": 300})
    assert pair.slowdown.on == {"alice": 1.25, "bob": 1.25}
    assert pair.wait.means == (900.0, 300.0)


def test_a_users_jobs_count_as_their_mean_and_jobs_without_a_limit_have_no_slowdown() -> None:
    street = Street().until(START - STEP_S)
    at = first_of(True) + 60
    for number in range(4):
        one = street.come(at + number, "alice", time_limit_s=None if number else 3_600.0)
        street.until(street.now + 30)
        street.start(one, after_s=600.0 * (number + 1))
    street.until(START + 8_000.0)
    (pair,) = street.decided
    assert pair.wait.on == {"alice": 1_500.0}
    assert pair.slowdown.on == {"alice": pytest.approx(7 / 6)}
    assert pair.wait.means is None


def test_a_job_in_the_washout_of_several_partitions_or_not_ours_is_no_evidence() -> None:
    street = Street().until(START - STEP_S)
    early = SWITCHBACK.block("gpu", START)
    street.come(early.counts_from - 30, "alice")
    street.come(early.counts_from + 30, "alice", partitions=("gpu", "long"))
    street.until(early.counts_from + STEP_S)
    street.number += 1
    other = job(street.number, submitted_at=UnixTime(street.now - 1), user="alice")
    street.waiting[street.number] = other
    street.look(Side.OTHER)
    del street.waiting[street.number]
    street.play()
    (pair,) = street.decided
    assert (len(pair.wait.on), len(pair.wait.off)) == (2, 2)


def test_a_job_that_starts_at_once_and_is_never_seen_waiting_counts() -> None:
    street = Street().until(START - STEP_S)
    street.until(first_of(True) + STEP_S)
    tasks = [
        running(
            n, started_at=street.now + n, submitted_at=UnixTime(street.now), array_job_id=JobId(70)
        )
        for n in (71, 72)
    ]
    street.runs += [replace(task, user="carol") for task in tasks]
    (pair,) = street.play().decided
    assert pair.wait.on == {"carol": 71.0, "alice": 900.0, "bob": 900.0}


def test_a_job_that_never_starts_counts_as_a_day_and_later_pairs_wait_for_it() -> None:
    street = Street().until(START - STEP_S)
    street.come(first_of(True) + 60, "carol")
    since = street.now
    street.play()
    street.until(since + HORIZON_S - STEP_S)
    assert street.decided == []
    street.until(since + HORIZON_S + STEP_S)
    assert street.decided[0].wait.on["carol"] == HORIZON_S


@pytest.mark.parametrize("how", ["cancelled", "held", "nice", "toggled", "requeued"])
def test_a_job_that_anybody_touched_is_no_evidence(how: str) -> None:
    street = Street().until(START - STEP_S)
    number = street.come(first_of(True) + 60, "mallory")
    street.until(street.now + STEP_S)
    one = street.waiting[number]
    if how == "cancelled":
        del street.waiting[number]
    elif how == "held":
        street.waiting[number] = replace(one, priority=0, held_by="user")
    elif how == "nice":
        street.waiting[number] = replace(one, nice=500)
    elif how == "toggled":
        street.waiting[number] = replace(one, eligible_at=UnixTime(street.now - 1))
    else:
        street.start(number, after_s=STEP_S + 60)
        street.until(street.now + STEP_S)
        street.runs.clear()
        again = replace(one, submitted_at=UnixTime(street.now), eligible_at=UnixTime(street.now))
        street.waiting[number] = again
    street.until(street.now + STEP_S)
    if how not in {"cancelled", "requeued"}:
        street.waiting[number] = one
        street.until(street.now + STEP_S)
        street.start(number, after_s=3_000.0)
    street.until(START + HORIZON_S + 8_000.0)
    counted = [pair.wait.on.get("mallory") for pair in street.decided]
    assert counted in ([None], [])


@pytest.mark.parametrize("how", ["seen", "restarted", "hidden"])
def test_neither_wait_of_a_requeued_job_is_evidence(how: str) -> None:
    """Before, the first counted when it ran again at the next look, and the second when a look
    could not read its row.
    """
    street = Street().until(START - STEP_S)
    number = street.come(first_of(True) + 60, "mallory")
    one = street.waiting[number]
    street.until(street.now + 60)
    street.start(number, after_s=100.0)
    street.until(street.now + 120)
    (run,), at = street.runs, UnixTime(street.now + 1)
    street.runs.clear()
    if how == "hidden":
        street.look(unreadable=(Unreadable("job", str(number), "odd", run.job_id),))
    if how == "restarted":
        street.runs = [replace(run, submitted_at=at, started_at=UnixTime(at + 9))]
    else:
        street.waiting[number] = replace(one, submitted_at=at, eligible_at=at)
        street.until(street.now + STEP_S)
        street.start(number, after_s=200.0)
    street.until(START + 8_000.0)
    assert [pair.wait.on for pair in street.decided] == [{}]


def test_a_job_that_rltuned_sets_to_share_its_nodes_is_evidence() -> None:
    street = Street().until(START - STEP_S)
    number = street.come(first_of(True) + 60, "carol", asks=request(exclusive=True))
    street.until(street.now + STEP_S)
    street.waiting[number] = replace(street.waiting[number], request=request())
    street.until(street.now + STEP_S)
    street.start(number, after_s=700.0)
    (pair,) = street.play().decided
    assert pair.wait.on["carol"] == 700.0


def test_an_array_counts_once_by_its_first_task() -> None:
    street = Street().until(START - STEP_S)
    number = street.come(first_of(True) + 60, "alice", array=ArrayInfo(JobId(1), 3))
    head = street.waiting[number]
    street.until(street.now + 60)
    street.start(number, after_s=100.0)
    street.waiting[number] = head
    street.runs = [replace(street.runs[0], job_id=JobId(50), array_job_id=JobId(number))]
    street.until(street.now + STEP_S)
    street.runs.append(replace(street.runs[0], job_id=JobId(51), started_at=UnixTime(street.now)))
    street.until(START + 8_000.0)
    assert [pair.wait.on for pair in street.decided] == [{"alice": 100.0}]


@pytest.mark.parametrize("how", ["restart", "pause", "stage", "gap", "breaker", "late"])
def test_a_pair_that_was_not_watched_and_written_whole_is_no_evidence(how: str) -> None:
    street = Street()
    if how == "late":  # the daemon came in the middle of the first block
        street.now = START + 60.0
    street.until(first_of(True) if first_of(True) > first_of(False) else first_of(False))
    if how == "restart":
        street.blocks = Blocks(SWITCHBACK)
    elif how in {"pause", "stage"}:
        street.live = False
        street.look()
        street.live = True
    elif how == "gap":
        street.now += MOST_APART_S + 1
    elif how == "breaker":
        street.look(demoted=("gpu",))
    jobs = [street.come(street.now + 60, user) for user in ("alice", "bob")]
    street.until(street.now + 60)
    street.start(*jobs, after_s=30.0)
    street.until(START + 8_000.0)
    assert [p for p in street.decided if p.wait.means is not None] == []


def test_a_clock_that_was_ahead_for_a_look_costs_no_evidence_of_the_days_after() -> None:
    street = Street()
    street.until(NOW + 600.0)
    street.now += 30 * 86_400.0
    street.look()
    street.now = NOW + 900.0
    (pair,) = street.play().decided
    assert pair.wait.means == (900.0, 300.0)


def test_a_pause_forgets_what_is_not_decided_yet() -> None:
    street = Street().until(START - STEP_S)
    street.come(first_of(True) + 60, "carol")
    street.play()
    street.live = False
    street.look()
    street.live = True
    street.until(street.now + 2 * HORIZON_S)
    assert street.decided == []


def test_partitions_have_pairs_of_their_own() -> None:
    other = SWITCHBACK.block("long", NOW + 7_200.0)
    street = Street().until(min(START, other.pair_begins_at) - STEP_S)
    street.come(
        other.counts_from + 7_260.0 * (other.counts_from < START), "alice", partition="long"
    )
    street.play()
    assert {pair.partition for pair in street.until(street.now + 2 * HORIZON_S).decided} == {
        "gpu",
        "long",
    }
    assert job(1).unit != job(1, submitted_at=NOW).unit
