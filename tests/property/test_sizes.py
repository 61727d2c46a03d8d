"""Node ranges: any comment is read, and nothing is written that its user has not allowed."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide, give_back
from rltuned.core.select import Scope
from rltuned.core.sizes import nodes_by_completion
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetRequest
from rltuned.domain.sizes import Sizes
from rltuned.journal.inputs import plan_document
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.columns import RequestRow
from rltuned.slurm.request import parse_speeds, read_sizes
from tests.builders import job, node, snapshot

FUZZED = 10_000
CONTRACT = "rltuned.nodes=1-4 rltuned.speed=1:1,2:1.9,4:2"
SHREDS = (
    "rltuned.nodes=", "rltuned.nodes=1-4", "rltuned.nodes=4-1", "rltuned.speed=", "1:1", "2:1.9",
    "4:3.4", ",", ":", "-", " ", "rltuned.speed=1:1,2:1.9,4:3.4", CONTRACT, "x", "\n", "\x1f", "\0",
    "9" * 400, "0", "1:0", "1:1e9", "é", "1:-1", "=", "999999:1",
)  # fmt: skip


def row(
    comment: str = CONTRACT, *, most: str = "4", tres: str = "node=1", tasks: str = "4"
) -> RequestRow:
    return RequestRow("1", tasks, most, tres, comment)


def waiting(sizes: Sizes | None, behind: int = 4) -> list[PendingJob]:
    others = [job(n, time_limit_s=36_000.0) for n in range(2, 2 + behind)]
    return [job(1, time_limit_s=600.0, sizes=sizes), *others]


def changes(sizes: Sizes | None, mode: str = "on", behind: int = 4) -> list[SetRequest]:
    seen = snapshot(*waiting(sizes, behind), nodes=[node(f"p{n}") for n in range(5)])
    knobs = Knobs(rules=Scope(min_age_s=0.0), sizes=mode)  # type: ignore[arg-type]
    plan = decide(seen, BASELINES["sjf"], knobs).plan
    return [action for action in plan.actions if isinstance(action, SetRequest)]


def test_ten_thousand_comments_raise_nothing_and_allow_nothing_else() -> None:
    rng, read, written = np.random.default_rng(22), 0, 0
    for n in range(FUZZED):
        comment = "".join(rng.choice(SHREDS, size=rng.integers(1, 6)))
        most, tres = rng.choice(("4", "4", "0", "x", "2")), rng.choice(("node=1", "", "cpu=é"))
        sizes = read_sizes(row(comment, most=most, tres=tres, tasks=rng.choice(("1", "4"))))
        speeds = parse_speeds(comment)
        assert all(1 <= count <= 4 and speed > 0 for count, speed in speeds)
        assert not speeds or {"rltuned.nodes=1-4", "rltuned.speed="} <= set(
            re.findall(r"rltuned.nodes=1-4|rltuned.speed=", comment)
        )
        read += bool(speeds)
        for action in changes(sizes) if speeds or n % 50 == 0 else ():
            least, most_nodes = sizes.bounds if sizes else (1, 0)
            assert action.new in {f"{k}-{k}" for k, _ in speeds if least <= k <= most_nodes}
            assert sizes is not None
            assert int(action.new.partition("-")[0]) <= sizes.tasks
            written += 1
    assert read > 100
    assert written > 10


@given(st.text())
def test_any_comment_is_read(text: str) -> None:
    assert not parse_speeds(text)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_nothing_is_written_unless_it_is_on(mode: str) -> None:
    assert not changes(read_sizes(row()), mode)


def test_off_plans_are_byte_for_byte_those_without_sizes() -> None:
    bare, ranged = (
        json.dumps(plan_document(decide(snapshot(*waiting(s)), BASELINES["delay"], Knobs())))
        for s in (None, read_sizes(row()))
    )
    assert bare == ranged


def test_a_count_is_chosen_by_what_waits_behind() -> None:
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 3.4}, 0, 5) == 4
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 2.0}, 4, 5) == 2
    assert nodes_by_completion({1: 1.0, 2: 1.1}, 40, 5) == 1
    (action,) = changes(read_sizes(row()))
    assert (action.old, action.new) == ("1-4", "2-2")
    assert not changes(read_sizes(row(tasks="1")))  # Slurm would raise its tasks for good
    assert not changes(read_sizes(row("")))
    assert not changes(read_sizes(row()), behind=0)


def narrowed(nodes: str = "2-2") -> Sizes:
    return Sizes(nodes, 4, parse_speeds(CONTRACT), "1-4", "2-2")


def test_a_count_stays_until_another_is_better_and_is_given_back() -> None:
    assert not changes(narrowed())
    wide = replace(narrowed(), speeds=((2, 1.9), (4, 3.4)))
    (more,) = changes(wide, behind=0)
    assert (more.old, more.new) == ("2-2", "4-4")
    (back,) = changes(narrowed(), "off")
    assert (back.old, back.new) == ("2-2", "1-4")
    assert give_back(snapshot(*waiting(narrowed()))).actions == (back,)
    assert not changes(narrowed("1-3"))  # a user has changed it
    assert not changes(narrowed("1-3"), "off")
