"""Jobs and times in a person's words."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.daemon.documents import find_job
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.units import JobId
from rltuned.slurm.values import Tasks, asked_job, asked_moment
from tests.builders import NOW, job, snapshot

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
    for name, address in (("10_[0-3%2]", HEAD.address), (f"4;{world.cluster}", PLAIN.address)):
        found = find_job(world, name)
        assert found is not None
        assert found.address == address
    assert find_job(world, "4;elsewhere") is None
