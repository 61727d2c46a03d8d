"""What weights are worth in hours of waiting, and what delays can cross."""

from dataclasses import replace

import pytest

from rltuned.core.numbers import Shortage
from rltuned.domain.cluster import Partition
from rltuned.domain.priority import PrioritySystem
from rltuned.slurm.config_checks import Check, Status
from rltuned.slurm.site import Priorities, read_priorities, read_qos
from rltuned.slurm.worth import Site, judge_order, judge_room, worth

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
    assert worth(unaged).startswith(
        "the longest delay is 168 h = 60480 points, 360 an hour: "
        "slurmctld counts no age without slurmdbd; full weights: QOS 55.6 h, FairShare 28 h"
    )


def test_a_weight_that_counts_nothing_is_named() -> None:
    config = {"PriorityType": "priority/multifactor", "PriorityWeightAge": "100000"}
    config |= {"PriorityWeightFairShare": "5", "PriorityWeightQOS": "7"}
    dead = read_priorities(config)
    assert str(dead) == (
        "priority/multifactor, weights: Age 100000, FairShare 5, QOS 7 "
        "(nothing for Age and FairShare: no slurmdbd)"
    )
    site = replace(SITE, system=replace(AGED, ages=False), priorities=dead)
    assert "FairShare" not in worth(site)
    alive = read_priorities(config | {"AccountingStorageType": "accounting_storage/slurmdbd"})
    assert "slurmdbd" not in str(alive)


@pytest.mark.parametrize(("age_weight", "coarse"), [(2_015, True), (2_016, False)])
def test_a_point_may_be_worth_ten_minutes(age_weight: int, *, coarse: bool) -> None:
    found = problems(replace(SITE, system=replace(AGED, age_weight=age_weight)))
    assert any("a point is worth" in check.detail for check in found) == coarse


@pytest.mark.parametrize(
    ("site", "detail", "remedy"),
    [
        (
            replace(SITE, system=replace(AGED, age_weight=0)),
            "waiting is worth no points",
            "PriorityWeightAge to 2016 or more",
        ),
        (
            replace(SITE, system=replace(AGED, age_weight=100)),
            "a point is worth 202 minutes",
            "by 21 or more",
        ),
        (replace(SITE, max_delay_s=7.5 * DAY), "age stops growing after 336 h", "max_delay_s"),
        (
            replace(SITE, partitions=tuple(Partition(f"p{n}", priority_factor=n) for n in (9, 10))),
            "PriorityJobFactor parts two partitions by 4000 points = 133 h",
            "PriorityWeightPartition above 50400",
        ),
        (
            replace(
                SITE,
                priorities=Priorities(
                    "priority/multifactor", {"QOS": "5000", "Partition": "11000"}
                ),
            ),
            "the QOS lie at most 5000 points = 167 h of waiting apart",
            "above 5040",
        ),
        (  # 100 of 1000, the largest of all, are a tenth of the weight
            replace(SITE, qos={"normal": 0, "long": 100, "high": 1000}),
            "QOS normal and long lie 2000 points = 66.7 h of waiting apart",
            "above 50400, or lower max_delay_s below 240000",
        ),
        *(
            (
                replace(SITE, pending=501, priorities=replace(known, weights=WEIGHTS)),
                "501 jobs wait and bf_max_job_test=500",
                "raise bf_max_job_test",
            )
            for known in (
                SITE.priorities,
                read_priorities({"SchedulerParameters": "bf_continue,default_queue_depth=1"}),
            )
        ),
        (
            replace(SITE, system=replace(AGED, ages=False), writes_priority=True),
            "only with slurmdbd",
            "write_mode = auto",
        ),
        (
            replace(SITE, system=PrioritySystem(), leaves_alone=True),
            "stands behind every job",
            "multifactor",
        ),
    ],
)
def test_what_is_wrong_and_what_to_do(site: Site, detail: str, remedy: str) -> None:
    (found,) = problems(site)
    assert (found.name, found.status) == ("order", Status.WARN)
    assert detail in found.detail
    assert remedy in found.remedy


def test_what_is_in_order() -> None:
    assert problems(replace(SITE, system=PrioritySystem())) == []  # basic without exclusions
    raw = replace(SITE.priorities, flags=frozenset({"NO_NORMAL_PART"}))
    partitions = (*PARTITIONS, Partition("sla", priority_factor=20))
    assert problems(replace(SITE, partitions=partitions, priorities=raw)) == []


def test_a_plugin_that_sets_site_factors_fails_auto_alone() -> None:
    plugged = replace(SITE, system=replace(AGED, site_factor_plugin="site_factor/ours"))
    (found,) = problems(plugged)
    assert found.status is Status.FAIL
    assert problems(replace(plugged, writes_priority=True)) == []


def test_the_steps_between_the_qos_of_the_jobs_that_wait() -> None:
    qos = read_qos("normal|0\nlong|100\nhigh|1000\nodd\n|7\n")
    assert qos == {"normal": 0, "long": 100, "high": 1000}
    used = replace(SITE, qos=qos, used_qos=frozenset({"normal", "high"}))
    assert problems(used) == []
    assert "QOS normal to high 667 h" in worth(used)
    raw = replace(used, priorities=replace(SITE.priorities, flags=frozenset({"NO_NORMAL_QOS"})))
    assert "QOS normal to high 6.67e+05 h" in worth(raw)
    assert problems(replace(SITE, qos={"normal": 0})) == []  # there is no step


def test_what_fair_share_parts() -> None:
    reply = worth(replace(SITE, shares=(0.25, 0.5, 1.0)))
    assert "the users who wait by up to 252 h, at least 84 h;" in reply
    wide = replace(SITE.priorities, weights={**WEIGHTS, "FairShare": "40000"})
    reply = worth(replace(SITE, shares=(0.5, 1.0), priorities=wide))
    assert "at least 667 h, so that delays mostly order the jobs of one user" in reply


def test_partition_tiers_go_before_numbers() -> None:
    tiers = (Partition("gpu"), Partition("sla", priority_tier=2))
    out = [c for c in judge_order(replace(SITE, partitions=tiers)) if "PriorityTier" in c.detail]
    assert [(c.status, c.detail.rpartition(": ")[2]) for c in out] == [(Status.OK, "gpu 1, sla 2")]


def test_jobs_whose_priorities_have_no_room() -> None:
    (found,) = judge_room(Shortage(2, 0.0, 66), 3)
    assert found.status is Status.WARN
    assert "2 of 3 pending jobs" in found.detail
    assert "as little as 0 h" in found.detail
    assert "give all jobs 66 points more: raise PriorityWeightPartition" in found.remedy
    assert list(judge_room(Shortage(), 3)) == []


@pytest.mark.parametrize(
    ("weight", "factors", "qos", "enough"),
    [
        ("40000", (1, 2), {}, None),
        ("10080", (1, 2), {}, "10082"),
        ("0", (1, 1), {}, "5041"),
        ("0", (0, 1), {}, "5041"),
        ("0", (1, 1), {"normal": 0, "high": 10}, "5041"),
        ("0", (1, 1), {"normal": 5, "high": 10}, None),
    ],
)
def test_the_first_look_finds_that_slurm_conf_leaves_no_room(
    weight: str, factors: tuple[int, int], qos: dict[str, int], enough: str | None
) -> None:
    """The longest delay takes 5,040 points; half of the weight of QOS is 10,000."""
    weights = {**WEIGHTS, "Partition": weight}
    partitions = tuple(Partition(f"p{n}", priority_factor=n) for n in factors)
    site = replace(
        SITE,
        priorities=Priorities("priority/multifactor", weights),
        partitions=partitions,
        qos=qos,
    )
    found = [c.remedy for c in judge_order(site) if "gives a new job as few as" in c.detail]
    assert [f"PriorityWeightPartition={enough} " in text for text in found] == (
        [] if enough is None else [True]
    )


def test_no_weight_is_named_that_slurm_does_not_take() -> None:
    """In review the line for slurm.conf was beyond 32 bits where factors lie far apart."""
    weights = {**WEIGHTS, "Partition": "10"}
    site = replace(
        SITE,
        priorities=Priorities("priority/multifactor", weights),
        partitions=tuple(Partition(f"p{n}", priority_factor=n) for n in (1, 60_000)),
        max_delay_s=SITE.max_delay_s * 100,
    )
    (found,) = (c.remedy for c in judge_order(site) if "gives a new job as few as" in c.detail)
    assert "PriorityWeightPartition" not in found
    assert "bring all PriorityJobFactor nearer" in found
