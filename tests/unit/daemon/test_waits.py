"""Waits by day: counted once, kept over a restart, shown with and without delays."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.cli.status import waits as in_words
from rltuned.daemon.canary.waits import DAYS, WAITS, count, document
from rltuned.domain.runs import JobRun, Side
from rltuned.domain.units import UnixTime
from rltuned.journal.journal import Journal
from tests.builders import running

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0


def start(side: Side, wait_s: float | None, at: float = NOW) -> JobRun:
    submitted_at = None if wait_s is None else UnixTime(at - wait_s)
    return JobRun(running(started_at=at, submitted_at=submitted_at), side=side)


def test_a_job_counts_on_its_day_and_side(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        count(journal, "one", [start(Side.ON, 60.0), start(Side.OFF, 100.0)], NOW)
        kept = count(
            journal,
            "one",
            [start(Side.ON, 120.0), start(Side.OTHER, 9e9), start(Side.ON, None)],
            NOW,
        )
        count(journal, "other", [start(Side.ON, 5.0)], NOW)
    shown = document(kept, NOW)
    assert shown["today"] == {
        "on_jobs": 2, "on_wait_s": 90.0, "off_jobs": 1, "off_wait_s": 100.0,
    }  # fmt: skip
    assert shown["week"] == shown["today"]
    assert [one["day"] for one in shown["days"]][-1] == "2026-11-23"
    assert len(shown["days"]) == DAYS
    with closing(Journal(tmp_path)) as journal:  # a restart
        assert WAITS.read(journal)["one"] == kept
    assert in_words(shown["today"]) == "1m with delays (2 jobs), 1m without (1 jobs)"


def test_a_day_that_is_too_old_is_forgotten(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        for back in range(10):
            count(journal, "one", [start(Side.OFF, 1.0, NOW - back * DAY)], NOW)
        assert len(count(journal, "one", [], NOW)) == DAYS
        week = document(count(journal, "one", [], NOW + 3 * DAY), NOW + 3 * DAY)
    assert week["week"]["off_jobs"] == DAYS - 3
    assert week["today"]["off_wait_s"] is None
    assert in_words(week["today"]) == "no job that may be ordered has started"


@given(st.lists(st.tuples(st.sampled_from(Side), st.floats(0, 1e7)), max_size=20))
def test_the_week_is_the_sum_of_its_days(found: list[tuple[Side, float]]) -> None:
    class Memory:
        value: object = None

        def recall(self, _name: str) -> object:
            return self.value

        def alter(self, _name: str, change: object, _at: float) -> None:
            assert callable(change)
            self.value = change(self.value)

    memory = Memory()
    jobs = [start(side, wait, NOW - (i % 5) * DAY) for i, (side, wait) in enumerate(found)]
    shown = document(count(memory, "one", jobs, NOW), NOW)
    for side in ("on", "off"):
        total = sum(d[f"{side}_jobs"] * (d[f"{side}_wait_s"] or 0.0) for d in shown["days"])
        mean = shown["week"][f"{side}_wait_s"] or 0.0
        assert mean * shown["week"][f"{side}_jobs"] == pytest.approx(total)
