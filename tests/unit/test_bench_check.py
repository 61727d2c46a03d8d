"""What `make bench-check` holds against what is stored."""

import pytest

from scripts.benchmarks.check import slower
from scripts.benchmarks.growth import crowd, exponent, figures, play_s


def test_only_figures_well_above_what_is_stored_are_slower() -> None:
    known = {"same": 2.0, "slow": 2.0}
    assert slower({"same": 2.49, "slow": 2.51, "new": 9.0}, known) == ["slow"]


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
