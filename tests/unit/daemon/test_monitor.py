"""What a cycle teaches: sides, the shadow's score, harm that opens a breaker, and its effect."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rltuned.daemon.breaker import Breaker, Cause, breakers, demoted

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import Ladder, Rung, Switchback
from rltuned.core.select import Scope
from rltuned.daemon.canary import CanaryStatus, Monitor, sides_of
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob, RunningJob, Side
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import Snapshot, Unreadable
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, running, set_priority, snapshot, sure
from tests.fakes import ConstantOrder
from tests.switchback_world import switchback_at

CANARY = Ladder(rung=Rung.CANARY, max_errors=2)
AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)
HOUR_S = 3_600.0


def decided(seen: Snapshot, rules: Scope) -> Decision:
    return decide(seen, ConstantOrder(), Knobs(rules))


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("system", [AGING, PrioritySystem()])
def test_a_job_is_on_the_side_of_the_block_in_which_it_became_eligible(
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
def test_a_job_that_was_never_seen_waiting_has_a_side_where_it_is_surely_ours(
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


def test_evidence_and_effect_survive_a_restart_and_another_model_starts_with_none(
    tmp_path: Path,
) -> None:
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


def test_what_is_seen_while_nothing_may_be_written_is_no_evidence(tmp_path: Path) -> None:
    verdict = Site(tmp_path).play(5, 6_000.0, 1_500.0, live=False)
    assert verdict.breakers == {}


def test_at_full_without_off_blocks_there_is_nothing_to_compare(tmp_path: Path) -> None:
    verdict = Site(tmp_path, Scope()).play(2, 6_000.0, 1_500.0)
    assert (verdict.breakers, verdict.effect, verdict.blocks) == ({}, None, {})


def test_at_full_a_small_share_of_off_blocks_measures_on(tmp_path: Path) -> None:
    share = Scope(switchback=Switchback("salt", off_share=0.1))
    verdict = Site(tmp_path, share).play(30, 500.0, 3_000.0)
    assert 10 <= sure(verdict.effect).pairs < 30, "a fifth of 90 pairs"
    assert sure(verdict.effect).verdict.startswith("it helps")


def test_errors_open_the_breaker_and_say_why(tmp_path: Path) -> None:
    monitor = Monitor(Journal(tmp_path))
    ladder = Ladder(rung=Rung.FULL, max_errors=2)
    two = [job(n, user=f"u{n}") for n in (1, 2)]
    failed = [Outcome(set_priority(one, 9), Result.FAILED, "reads back 7") for one in two]
    seen = snapshot(*two)
    first = monitor.judge(ladder, Scope(), seen, decided(seen, Scope()), failed, live=True)
    assert (first.opened, first.breakers["gpu"].errors) == ((), 1)
    again = Monitor(Journal(tmp_path))  # a restart does not forgive
    second = again.judge(ladder, Scope(), seen, decided(seen, Scope()), failed, live=True)
    assert second.opened == ("gpu",)
    assert "reads back 7" in second.breakers["gpu"].detail


def test_what_started_is_on_the_side_of_the_stage(tmp_path: Path) -> None:
    for live in (False, True):
        monitor = Monitor(Journal(tmp_path))
        ladder = Ladder(rung=Rung.FULL if live else Rung.SHADOW)
        before, rules = snapshot(job(1), job(2)), Scope()
        monitor.look(before)
        monitor.judge(ladder, rules, before, decided(before, rules), (), live=live)
        runs = [running(1, started_at=NOW + 5, submitted_at=UnixTime(NOW - 600))]
        after = snapshot(job(2), runs=runs, taken_at=NOW + 60)
        monitor.look(after)
        verdict = monitor.judge(ladder, rules, after, decided(after, rules), (), live=live)
        assert [s.side for s in verdict.runs.started] == [Side.ON if live else Side.OFF]
        assert verdict.breakers.get("gpu", Breaker()) == Breaker()


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


@pytest.mark.parametrize(
    "looks",
    [
        [{"lingering": (JobId(5),)}, {"runs": [RUN]}, {}],
        [{"waits": [job(5)]}],
        [{"unreadable": (Unreadable("job", "5", "odd", JobId(5)),)}, {"runs": [RUN]}],
        [{"taken_at": NOW + 7_200.0}],
        [{"cluster": "other"}],
    ],
)
def test_a_run_of_which_the_end_is_not_known_has_no_slowdown(
    tmp_path: Path, looks: list[dict[str, Any]]
) -> None:
    """Before, only the memory of run times knew: the metric counted each of these as an end."""
    found = judged(Monitor(Journal(tmp_path)), {}, {"runs": [RUN]}, *looks)
    assert [len(one.runs.started) for one in found[:2]] == [0, 1]
    assert [run for one in found for run in one.runs.ended] == []


def test_a_start_that_a_cycle_could_not_judge_is_judged_in_the_next(tmp_path: Path) -> None:
    monitor = Monitor(Journal(tmp_path))
    judged(monitor, {"waits": [job(5)]})
    monitor.look(snapshot(runs=[RUN], taken_at=NOW + 60))
    (found,) = judged(monitor, {"runs": [RUN], "taken_at": NOW + 120})
    assert [(run.job.job_id, run.side) for run in found.runs.started] == [(5, Side.ON)]
