"""Plans without classes and node counts are, byte for byte, those from before they came.

The digests are those of the plans that this file makes at commit e4780b8^.
"""

import hashlib
import json
from dataclasses import replace
from typing import Any

from rltuned.core.decide import Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.units import UnixTime
from rltuned.journal.inputs import plan_document
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, running, snapshot

BEFORE = {
    "site_factor delay": "d578a8815fee75a1",
    "site_factor delay, first": "c053eb3bd6625e95",
    "site_factor sjf": "b3d2f5cbb1bf2d1d",
    "site_factor sjf, first": "a4abdddb7bbb0c05",
    "site_factor wfp3": "b78d6e66db2aff05",
    "site_factor wfp3, first": "da66c2f9629d0aa2",
    "ageless delay": "8ad4285ef77035bf",
    "ageless delay, first": "0edf9a4666c52552",
    "ageless sjf": "bf8d1108213baed3",
    "ageless sjf, first": "4db2e175589afc22",
    "ageless wfp3": "546b2c733eed8c42",
    "ageless wfp3, first": "be5eba69bf023997",
    "basic delay": "c99da591304e9385",
    "basic delay, first": "c99da591304e9385",
    "basic sjf": "b880897dfa70d963",
    "basic sjf, first": "b880897dfa70d963",
    "basic wfp3": "a452ca998d6bdaf1",
    "basic wfp3, first": "a452ca998d6bdaf1",
}
DAY = 86_400.0
SYSTEMS = {
    "site_factor": PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY),
    "ageless": PrioritySystem("multifactor", ages=False),
    "basic": PrioritySystem("basic"),
}


def queue() -> list[PendingJob]:
    """Jobs of every kind that a decision tells apart, some of them rltuned's."""
    kinds: list[dict[str, Any]] = [
        {},
        {"gpus": 4, "time_limit_s": None},
        {"qos": "high", "account": "fast"},
        {"deadline_at": UnixTime(NOW + 9_000.0)},
        {"dependency": "afterok:100(unfulfilled)", "reason": "Dependency", "eligible_at": None},
        {"partitions": ("gpu", "long"), "nice": 7},
        {"held_by": "user", "priority": 0},
        {"site_factor": 40, "owned": Ownership("site_factor", 40, original=0)},
        {
            "partition": "promised",
            "site_factor": 9,
            "owned": Ownership("site_factor", 9, original=3),
        },
        {"time_limit_s": 60.0, "gpus": 0},
    ]
    return [
        job(
            n,
            **(
                {
                    "submitted_at": NOW - 700.0 * n,
                    "priority": 20_000 + 977 * (n % 5),
                    "time_limit_s": 1_800.0 * n,
                    "gpus": 1 + n % 3,
                }
                | kind
            ),
        )
        for n, kind in enumerate(kinds * 2, 1)
    ]


def plans() -> dict[str, Any]:
    """By priority system and policy the plan of one cycle."""
    neutral, found = NeutralDelay(600.0, NOW, 600.0, NOW), {}
    for name, system in SYSTEMS.items():
        seen = snapshot(
            *queue(), runs=[running()], nodes=[node(), node("p2")],
            priorities=system, neutral=neutral,
        )  # fmt: skip
        for policy in ("delay", "sjf", "wfp3"):
            rules = Scope(sla_partitions=frozenset({"promised"}))
            knobs = Knobs(rules, Order(own=0.3, share=0.0), Writing(max_changes=12))
            again = replace(seen, neutral=None)
            found[f"{name} {policy}"] = plan_document(decide(seen, BASELINES[policy], knobs))
            found[f"{name} {policy}, first"] = plan_document(
                decide(again, BASELINES[policy], knobs)
            )
    return found


def test_plans_are_those_of_before() -> None:
    found = plans()
    assert sum(len(plan["actions"]) for plan in found.values()) == 259
    assert {
        name: hashlib.sha256(json.dumps(plan).encode()).hexdigest()[:16]
        for name, plan in found.items()
    } == BEFORE
