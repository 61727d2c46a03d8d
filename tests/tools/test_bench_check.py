"""What `make bench-check` holds against what is stored."""

import pytest

from scripts.benchmarks.check import best, slower
from scripts.benchmarks.growth import crowd, exponent, figures, play_s


def test_only_figures_well_above_what_is_stored_are_slower() -> None:
    known = {"same": 2.0, "slow": 2.0}
    assert slower({"same": 2.49, "slow": 2.51, "new": 9.0}, known) == ["slow"]


def test_what_seems_slower_is_measured_again_and_the_least_counts() -> None:
    measured = iter(({"one": 3.0, "two": 1.0}, {"one": 2.0, "two": 2.0}, {"one": 9.0, "two": 9.0}))
    known = {"one": 2.0, "two": 1.0}
    found = best(lambda: next(measured), lambda some: slower(some, known))
    assert found == {"one": 2.0, "two": 1.0}
    assert next(measured) == {"one": 9.0, "two": 9.0}  # not asked for: nothing was slower by then


def test_growth_is_the_power_of_the_jobs() -> None:
    points = [(1_000, 0.5), (4_000, 4.0), (16_000, 128.0)]
    assert exponent(points) == pytest.approx(2.0)
    growth, rate = figures(("one_easy_fcfs", points))
    assert growth.ratio > 1 > rate.ratio == 125.0 / 20_000


def test_partitions_of_the_crowd_share_nodes_as_their_layout_says() -> None:
    for layout, shared in (("one", 0), ("several", 0), ("overlapping", 20)):
        cluster, jobs = crowd(8, layout)  # type: ignore[arg-type]
        assert sum(len(node.partitions) > 1 for node in cluster.nodes) == shared
        assert len(jobs) == 8
    assert play_s(20, "overlapping", "easy", "sjf") > 0
