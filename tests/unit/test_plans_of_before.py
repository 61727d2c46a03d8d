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
    "site_factor delay": "c686aa3d4a74e40c",
    "site_factor delay, first": "c2f5d7e3a7917860",
    "site_factor sjf": "5cd050b1059e2cfb",
    "site_factor sjf, first": "d8f71ef9c5ffa614",
    "site_factor wfp3": "a2d8370a5e8e1e3d",
    "site_factor wfp3, first": "2ddf14ed4cfa2932",
    "ageless delay": "8b9c4ebd553c2fef",
    "ageless delay, first": "1b6465a50e90f6f6",
    "ageless sjf": "9b76ef5733a79d25",
    "ageless sjf, first": "8126162dba25a1d9",
    "ageless wfp3": "cff4665e8e67f0ae",
    "ageless wfp3, first": "7f0393a783f2da15",
    "basic delay": "3458b44a741d244e",
    "basic delay, first": "561e1f12c2ef7305",
    "basic sjf": "a7161707992573a9",
    "basic sjf, first": "6ea934c4500736bd",
    "basic wfp3": "e020bf47ed5e91a0",
    "basic wfp3, first": "148583aacf27ee27",
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
    assert sum(len(plan["actions"]) for plan in found.values()) == 252
    assert {
        name: hashlib.sha256(json.dumps(plan).encode()).hexdigest()[:16]
        for name, plan in found.items()
    } == BEFORE
