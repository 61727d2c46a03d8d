"""Who counts in a pair of blocks, what a cycle teaches of them, and harm that opens a breaker."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import MOST_APART_S, Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.daemon.breaker import Cause, Pair, breakers, demoted
from rltuned.daemon.canary import HORIZON_S, Blocks, CanaryStatus, Monitor, Touched, sides_of
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob, RunningJob, Side
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import JobTracker, Snapshot, Unreadable
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, request, running, snapshot
from tests.fakes import ConstantOrder
from tests.switchback_world import switchback_at

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


CANARY = Ladder(rung=Rung.CANARY, max_errors=2)
AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)


def decided(seen: Snapshot, rules: Scope) -> Decision:
    return decide(seen, ConstantOrder(), Knobs(rules))


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("system", [AGING, PrioritySystem()])
def test_a_job_is_on_the_side_of_the_block_of_its_eligible_time(
    on: bool, system: PrioritySystem
) -> None:
    rules = Scope(sla_partitions=frozenset({"sla"}), switchback=switchback_at(NOW, on=on))
    since: dict[str, Any] = {"submitted_at": NOW - 20.0, "priority": 9_000}
    jobs = [job(1, **since), job(2, partition="sla", **since)]
    held = job(3, submitted_at=NOW - 20.0, priority=0, held_by="user")
    spent = job(4, recent_writes=9, **since)
    seen = snapshot(*jobs, held, spent, priorities=system)
    rules = replace(rules, max_writes_per_hour=5)
    side = Side.ON if on else Side.OFF
    for decision in (decided(seen, rules), None):
        found = sides_of(seen, decision, rules, writes=True)
        assert found == {1: side, 2: Side.OTHER, 3: Side.OTHER, 4: side}


@pytest.mark.parametrize("writes", [True, False])
def test_without_a_switchback_delays_are_on_while_the_stage_writes(writes: bool) -> None:
    seen = snapshot(job(1), job(2, partition="sla"))
    rules = Scope(sla_partitions=frozenset({"sla"}))
    found = sides_of(seen, decided(seen, rules), rules, writes=writes)
    assert found == {1: Side.ON if writes else Side.OFF, 2: Side.OTHER}


@pytest.mark.parametrize(
    ("rules", "side"),
    [
        (Scope(), Side.ON),
        (Scope(sla_partitions=frozenset({"gpu"})), None),
        (Scope(excluded_users=frozenset({"bob"})), None),
        (Scope(excluded_accounts=frozenset({"lab"})), None),
        (Scope(excluded_qos=frozenset({"any"})), None),
    ],
)
def test_a_job_never_seen_waiting_has_a_side_where_it_is_ours(
    rules: Scope, side: Side | None
) -> None:
    runs = [
        JobRun(running(n, started_at=NOW - ago_s, submitted_at=UnixTime(NOW - ago_s)))
        for n, ago_s in ((1, 5.0), (2, 5_000.0))
    ]
    found = sides_of(snapshot(), None, rules, writes=True, started=runs)
    assert found == ({} if side is None else {1: side})


@dataclass
class Site:
    """A partition with four users; waits are as we choose, by the block of their eligibility."""

    folder: Path
    rules: Scope = field(default_factory=lambda: Scope(switchback=Switchback("salt")))
    now: float = NOW
    number: int = 0
    waiting: dict[PendingJob, float] = field(default_factory=dict)
    runs: list[RunningJob] = field(default_factory=list)
    model: str = "one"

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder)
        self.monitor = Monitor(self.journal)
        self.rng = np.random.default_rng(1)

    def restart(self) -> None:
        self.monitor = Monitor(self.journal)

    def play(self, days: float, on_s: float, off_s: float, *, live: bool = True) -> CanaryStatus:
        """Looks every ten minutes, at each of which one or two jobs come."""
        verdict = CanaryStatus()
        ends = self.now + days * 86_400.0
        while self.now < ends and not verdict.opened:
            self.now += 600.0
            self._come(on_s, off_s)
            begun = [(j, at) for j, at in self.waiting.items() if at <= self.now]
            self.runs = [self._start(one, at) for one, at in begun]
            seen = snapshot(*self.waiting, runs=self.runs, taken_at=self.now, priorities=AGING)
            self.monitor.look(seen)
            verdict = self.monitor.judge(
                CANARY, self.rules, seen, None, (), live=live, model=self.model
            )
        return verdict

    def _come(self, on_s: float, off_s: float) -> None:
        switchback = self.rules.switchback
        on = switchback is None or switchback.block("gpu", self.now - 1).on
        for _ in range(self.rng.integers(1, 3)):
            self.number += 1
            user = f"u{self.rng.integers(4)}"
            one = job(self.number, submitted_at=self.now - 1, user=user, priority=9_000)
            wait_s = (on_s if on else off_s) * self.rng.lognormal(0.0, 0.5)
            self.waiting[one] = self.now + wait_s

    def _start(self, one: PendingJob, at: float) -> RunningJob:
        del self.waiting[one]
        since = one.submitted_at
        return running(one.job_id, started_at=UnixTime(at), submitted_at=since, user=one.user)


def test_delays_that_make_jobs_wait_longer_open_the_breaker(tmp_path: Path) -> None:
    site = Site(tmp_path)
    verdict = site.play(60, 6_000.0, 1_500.0)
    assert verdict.opened == ("gpu",)
    assert verdict.breakers["gpu"].cause is Cause.WAIT
    assert "to 1 after" in verdict.breakers["gpu"].detail
    assert demoted(Journal(tmp_path), "test") == ("gpu",)


@pytest.mark.parametrize("on_s", [3_000.0, 1_000.0])
def test_delays_that_do_nothing_or_help_do_not(tmp_path: Path, on_s: float) -> None:
    verdict = Site(tmp_path).play(20, on_s, 3_000.0)
    assert verdict.opened == ()
    assert demoted(Journal(tmp_path), "test") == ()
    assert verdict.effect is not None
    assert 40 < verdict.effect.pairs < 60
    assert verdict.effect.verdict.startswith("it helps" if on_s < 3_000.0 else "chance can explain")
    assert set(verdict.blocks) == {"gpu"}


def test_evidence_survives_a_restart_and_another_model_starts_with_none(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.play(5, 6_000.0, 1_500.0)
    before = breakers(site.journal, "test")["gpu"]
    assert before.harm[Cause.WAIT].value > 2
    site.restart()
    after = site.play(2, 6_000.0, 1_500.0)
    assert after.breakers["gpu"].waits.pairs > before.waits.pairs
    assert after.breakers["gpu"].harm[Cause.WAIT].value > before.harm[Cause.WAIT].value
    site.model = "two"
    other = site.play(2, 1_500.0, 1_500.0)
    assert other.breakers["gpu"].model == "two"
    assert other.breakers["gpu"].harm[Cause.WAIT].value < 2


def test_at_full_without_off_blocks_there_is_nothing_to_compare(tmp_path: Path) -> None:
    verdict = Site(tmp_path, Scope()).play(2, 6_000.0, 1_500.0)
    assert (verdict.breakers, verdict.effect, verdict.blocks) == ({}, None, {})


RUN = running(5, started_at=NOW + 20, submitted_at=UnixTime(NOW - 600.0), time_limit_s=None)
ARRAY: dict[str, Any] = {"array": ArrayInfo(JobId(5), 3)}


def judged(monitor: Monitor, *looks: dict[str, Any]) -> list[CanaryStatus]:
    """A minute apart, or as long as is given."""
    found, now = [], NOW
    for one in looks:
        shown = {"taken_at": now, **one}
        now = shown["taken_at"] + 60.0
        seen = snapshot(*shown.pop("waits", ()), **shown)
        monitor.look(seen)
        found.append(monitor.judge(CANARY, Scope(), seen, None, (), live=True))
    return found


@pytest.mark.parametrize(
    ("waits", "runs", "sides"),
    [
        ([job(5)], [RUN], [Side.ON]),
        ([job(5, held_by="user", priority=0)], [RUN], [Side.OTHER]),
        ([], [RUN], [Side.ON]),
        ([], [replace(RUN, partition="sla")], [Side.OTHER]),
        ([job(5)], [replace(RUN, submitted_at=None)], [Side.OTHER]),
        # the tasks of an array are one unit, and of one record of it that is held no one asks
        (
            [job(5, **ARRAY), job(6, held_by="user", priority=0, **ARRAY)],
            [replace(RUN, job_id=JobId(n), array_job_id=JobId(5)) for n in (7, 8)],
            [Side.ON, Side.ON],
        ),
    ],
)
def test_a_run_keeps_the_side_that_its_job_had_while_it_waited(
    tmp_path: Path, waits: list[PendingJob], runs: list[RunningJob], sides: list[Side]
) -> None:
    monitor = Monitor(Journal(tmp_path))
    *_, begun, ended = judged(monitor, {"waits": waits}, {"runs": runs}, {})
    assert [run.side for run in begun.runs.started] == sides
    assert [(run.job.job_id, run.side, run.run_s) for run in ended.runs.ended] == [
        (run.job_id, side, 70.0) for run, side in zip(runs, sides, strict=True)
    ]


def test_a_start_that_a_cycle_could_not_judge_is_judged_in_the_next(tmp_path: Path) -> None:
    monitor = Monitor(Journal(tmp_path))
    judged(monitor, {"waits": [job(5)]})
    monitor.look(snapshot(runs=[RUN], taken_at=NOW + 60))
    (found,) = judged(monitor, {"runs": [RUN], "taken_at": NOW + 120})
    assert [(run.job.job_id, run.side) for run in found.runs.started] == [(5, Side.ON)]
