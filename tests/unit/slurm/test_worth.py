"""What weights are worth in hours of waiting, and what delays can cross."""

from dataclasses import replace

import pytest

from rltuned.domain.cluster import Partition
from rltuned.domain.priority import PrioritySystem
from rltuned.slurm.judgement import Check, Status
from rltuned.slurm.priorities import Priorities
from rltuned.slurm.worth import Site, judge_order, worth

DAY = 86_400.0
WEIGHTS = {"Age": "10080", "QOS": "20000", "FairShare": "10080", "Partition": "40000"}
AGED = PrioritySystem("multifactor", ages=True, age_weight=10_080, max_age_s=14 * DAY)
"""30 points an hour."""
PARTITIONS = (Partition("gpu", priority_factor=1), Partition("short", priority_factor=2))
SITE = Site(AGED, Priorities("priority/multifactor", WEIGHTS), PARTITIONS, 0.1, 7 * DAY)


def problems(site: Site) -> list[Check]:
    return [c for c in judge_order(site) if c.status is not Status.OK]


def test_weights_in_hours() -> None:
    assert problems(SITE) == []
    assert worth(SITE) == (
        "the longest delay is 168 h = 5040 points; full weights: QOS 667 h, FairShare 336 h, "
        "Partition 1.33e+03 h; age grows for 336 h"
    )
    unaged = replace(SITE, system=replace(AGED, ages=False))
    assert worth(unaged).startswith("the longest delay is 168 h = 60480 points")


@pytest.mark.parametrize(
    ("site", "detail", "mend"),
    [
        (
            replace(SITE, system=replace(AGED, age_weight=0)),
            "waiting is worth no points",
            "PriorityWeightAge to 2016 or more",
        ),
        (
            replace(SITE, system=replace(AGED, age_weight=100)),
            "a point is worth 202 minutes",
            "by 20 or more",
        ),
        (replace(SITE, max_delay_s=7.5 * DAY), "age stops growing after 336 h", "max_delay_s"),
        (
            replace(SITE, partitions=(*PARTITIONS, Partition("sla", priority_factor=20))),
            "PriorityJobFactor parts two partitions by 2000 points = 66.7 h",
            "PriorityWeightPartition to 100800",
        ),
        (
            replace(SITE, priorities=Priorities("priority/multifactor", {"QOS": "5000"})),
            "PriorityWeightQOS is worth 167 h",
            "above 5040",
        ),
        (
            replace(SITE, system=replace(AGED, ages=False), writes_priority=True),
            "only with slurmdbd",
            "write_mode = auto",
        ),
        (
            replace(SITE, system=replace(AGED, ages=False), own_slope=0.001, partitions=()),
            "a point is worth 17 minutes",
            "points_per_hour to 6",
        ),
        (
            replace(SITE, system=PrioritySystem(), leaves_alone=True),
            "stands behind every job",
            "multifactor",
        ),
    ],
)
def test_what_is_wrong_and_what_to_do(site: Site, detail: str, mend: str) -> None:
    (found,) = problems(site)
    assert (found.name, found.status) == ("order", Status.WARN)
    assert detail in found.detail
    assert mend in found.mend


def test_a_plugin_that_sets_site_factors_fails_auto_alone() -> None:
    plugged = replace(SITE, system=replace(AGED, site_factor_plugin="site_factor/ours"))
    (found,) = problems(plugged)
    assert found.status is Status.FAIL
    assert problems(replace(plugged, writes_priority=True)) == []


def test_basic_without_exclusions_is_fine() -> None:
    assert problems(replace(SITE, system=PrioritySystem())) == []
