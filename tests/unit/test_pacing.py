"""The benchmark of the pace runs the daemon's own loop through calm and busy looks."""

import json
from itertools import pairwise

import pytest

from scripts.benchmarks.pacing import BUSY, CALM, THREADS, Start, _in_child
from scripts.benchmarks.scaling import Size


def starts(size: Size, threads: tuple[int, ...], interval_s: float) -> list[Start]:
    return [Start(**row) for row in json.loads(_in_child(size, "saf", threads, interval_s))]


def test_a_busy_slurmctld_makes_cycles_rare_and_a_calm_one_lets_them_come_back() -> None:
    found = starts(Size(1_200, 8), THREADS, 60.0)
    assert [f.skipped for f in found] == ["", *["busy"] * 4, *[""] * 5]
    assert [f.stretch for f in found] == [1, 2, 4, 8, 10, 5, 2.5, 1.25, 1, 1]
    assert not any(f.applied for f in found if f.skipped)
    written = [f.applied for f in found if not f.skipped]
    assert written[0] == 500  # as many as the cap allows
    assert 400 < written[1] < 500  # all others
    assert written[2:] == [0, 0, 0, 0]  # every job has its number, and age needs no write
    pauses = [b.at_s - a.at_s for a, b in pairwise(found)]
    assert pauses == pytest.approx([60, 120, 240, 480, 600, 300, 150, 75, 60], abs=5.0)


def test_a_cycle_longer_than_the_interval_ends_before_the_next_one_begins() -> None:
    interval_s = 0.001
    found = starts(Size(50, 4), (CALM, CALM, CALM), interval_s)
    for one, following in pairwise(found):
        assert one.wall_s > interval_s
        assert following.at_s >= one.at_s + one.wall_s


def test_the_busy_looks_are_over_the_shipped_bound() -> None:
    assert CALM < 100 < BUSY
