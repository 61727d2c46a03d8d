"""Jobs in a person's words, in groups, and when they last changed what they ask for."""

from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.cli.plan import known
from rltuned.core import groups as core_groups
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.groups import foresee
from rltuned.core.numbers import Writing
from rltuned.daemon.apply import PlanApplier
from rltuned.daemon.groups import documents, edges_left_out, kept_groups, open_of, take_in
from rltuned.daemon.words import in_words
from rltuned.domain.jobs import ArrayInfo, GroupJob, GroupStore, JobPhase, PendingJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Remembered, RunTime, Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.journal.journal import Journal
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.values import Tasks, asked_job, asked_moment
from tests.builders import NOW, job, looked_at, request, running, snapshot, sure
from tests.fakes import ConstantOrder
from tests.loops import Bench
from tests.unit.cli.journalled import KNOBS, world

HEAD = job(10, address="10_[0-8:2%3]", array=ArrayInfo(JobId(10), 5, listed="0-8:2"))
SPLIT = job(15, address="10_3", array=ArrayInfo(JobId(10), 1, listed="3"))
UNLISTED = job(20, address="20", array=ArrayInfo(JobId(20), 5))
PART = job(31, address="30+1", het_job_id=JobId(30))
PLAIN = job(4)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10", {10, 15}),
        ("10_4", {10}),
        ("10_3", {15}),
        ("10_5", set()),
        ("10_[0-8:2%3]", {10}),
        ("10_[0-8:2]", {10}),
        ("10_[0-3%2]", {10, 15}),
        ("10_[3,5]", {15}),
        ("10_[1-9:2]", {15}),
        ("10_[5,7-7]", set()),
        ("10_[3,5,2...]", {15}),
        ("10;rm", {10, 15}),
        ("10_[0-8:2%3];rm", {10}),
        ("15", {15}),
        ("20_3", {20}),
        ("30+1", {31}),
        ("31", {31}),
        ("4", {4}),
        ("1", set()),
    ],
)
def test_which_jobs_of_the_queue_are_meant(text: str, meant: set[int]) -> None:
    asked = asked_job(text)
    queue = (HEAD, SPLIT, UNLISTED, PART, PLAIN)
    assert {int(j.job_id) for j in queue if asked.means(j)} == meant


@pytest.mark.parametrize(
    ("text", "address", "is_it"),
    [
        ("10", "10_[0-8:2%3]", True),
        ("10_4", "10_[0-8:2%3]", True),
        ("10_[3-4%1]", "10_[0-8:2%3]", True),
        ("10_[3,5]", "10_[0-8:2%3]", False),
        ("10_3", "10_[0-8:2%3]", False),
        ("10_3", "10", True),
        ("10_3", "100", False),
        ("1", "10_[0-3]", False),
        ("10", "10+1", True),
        ("10+1", "10+1", True),
        ("10+2", "10+1", False),
        ("10_1", "10+1", False),
        ("10_3", "10_3", True),
        ("10_3", "10_33", False),
        ("10", "10_3", True),
    ],
)
def test_which_rows_of_the_journal_are_meant(text: str, address: str, is_it: bool) -> None:
    assert asked_job(text).named(9_999, address) == is_it


@pytest.mark.parametrize(
    "text",
    ["", "0", "x", "10_", "10_x", "-1", "10;", "10_[x]", "10_[1...]", "10;a;b", "1" * 11, "10_4_5"],
)
def test_what_is_no_job(text: str) -> None:
    with pytest.raises(ValueError, match="is no job"):
        asked_job(text)


def test_times() -> None:
    assert asked_moment("90s", NOW) == NOW - 90
    assert asked_moment("30m", NOW) == NOW - 1800
    assert asked_moment("2h", NOW) == NOW - 7200
    assert asked_moment("1d", NOW) == NOW - 86_400
    assert asked_moment("2023-11-14T22:13:20+00:00", 0.0) == NOW
    local = datetime.fromtimestamp(NOW).astimezone().replace(tzinfo=None)
    assert asked_moment(local.isoformat(), 0.0) == NOW


@pytest.mark.parametrize("text", ["", "2", "2w", "yesterday", "2026-13-01", "-2h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        asked_moment(text, NOW)


@given(*[st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9)),
                  min_size=1, max_size=3)] * 2)  # fmt: skip
def test_two_lists_of_tasks_meet_where_they_have_one_in_common(
    one: list[tuple[int, int, int]], two: list[tuple[int, int, int]]
) -> None:
    both = [Tasks(tuple((at, at + more, by) for at, more, by in part)) for part in (one, two)]
    listed = [{t for at, last, by in part.ranges for t in range(at, last + 1, by)} for part in both]
    assert both[0].meets(both[1]) == both[1].meets(both[0]) == bool(listed[0] & listed[1])


def test_a_job_of_another_cluster_is_none_of_this_one() -> None:
    asked = asked_job("33_[1-40%2];emmy")
    assert (asked.is_on("emmy"), asked.is_on("fritz"), asked_job("33").is_on("fritz")) == (
        True, False, True,
    )  # fmt: skip
    world = snapshot(HEAD, PLAIN)
    look = looked_at(decide(world, ConstantOrder(), Knobs()))
    for name, address in (("10_[0-3%2]", HEAD.address), (f"4;{world.cluster}", PLAIN.address)):
        found = look.find(name)
        assert found is not None
        assert found.address == address
    assert look.find("4;elsewhere") is None


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


def test_edges_of_no_group_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        return sure(looked_at(decision).explain("1"))


def test_a_change_while_no_daemon_looks_is_written_by_the_next(tmp_path: Path) -> None:
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


def test_a_change_is_written_after_a_write_noted_with_the_clock_ahead(tmp_path: Path) -> None:
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
