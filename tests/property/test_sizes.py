"""Node counts: any comment is read; ranges that 0.2.0 narrowed come back, those of others stay."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide, give_back
from rltuned.core.explaining import _by_completion as nodes_by_completion
from rltuned.domain.fields import NUM_NODES, Action, target_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.node_range import NodeRange
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.request import parse_speeds, read_node_range
from tests.builders import job, snapshot

FUZZED = 10_000
SHREDS = (
    "rltuned.speed=", "1:1", "2:1.9", "4:3.4", ",", ":", "-", " ", "rltuned.speed=1:1,2:1.9,4:3.4",
    "x", "\n", "\x1f", "\0", "9" * 400, "0", "1:0", "1:1e9", "é", "1:-1", "=", "999999:1",
)  # fmt: skip


def comments() -> Iterator[str]:
    rng = np.random.default_rng(22)
    for _ in range(FUZZED):
        yield "".join(rng.choice(SHREDS, size=rng.integers(1, 6)))


def test_ten_thousand_comments_raise_nothing_and_tell_of_sound_speeds_alone() -> None:
    found = [(text, speeds) for text in comments() if (speeds := parse_speeds(text))]
    assert 100 < len(found) < FUZZED / 2
    for text, speeds in found:
        assert "rltuned.speed=" in text
        assert list(speeds) == sorted(speeds)
        assert all(count > 0 and speed > 0 for count, speed in speeds.items())


@given(st.text())
def test_any_comment_is_read(text: str) -> None:
    assert not parse_speeds(text)


@pytest.mark.parametrize(
    ("comment", "speeds"),
    [
        ("rltuned.speed=1:1,2:1.9", {1: 1.0, 2: 1.9}),
        ("mine rltuned.speed=2:1,4:1.5 too", {2: 1.0, 4: 1.5}),
        ("xrltuned.speed=1:1", {}),
        ("rltuned.speed=2:1,1:2", {}),
        ("rltuned.speed=1:1,1:2", {}),
        ("rltuned.speed=1:0", {}),
        ("rltuned.speed=1:1,", {}),
        ("rltuned.speed=1:1 rltuned.speed=1:1", {}),
        (" " * 4_090 + "rltuned.speed=1:1", {}),
    ],
)
def test_speeds_are_read_whole_or_not_at_all(comment: str, speeds: dict[int, float]) -> None:
    assert parse_speeds(comment) == speeds


@pytest.mark.parametrize(
    ("most", "tres", "nodes"),
    [("4", "node=1", "1-4"), ("4", "", None), ("x", "node=1", None), ("1", "node=2", None)],
)
def test_a_range_is_the_fewest_of_the_tres_and_the_most(
    most: str, tres: str, nodes: str | None
) -> None:
    found = read_node_range(most, tres)
    assert found == (None if nodes is None else NodeRange(nodes))


def test_a_count_is_chosen_by_what_waits_behind() -> None:
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 3.4}, 0, 5) == 4
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 2.0}, 4, 5) == 2
    assert nodes_by_completion({1: 1.0, 2: 1.1}, 40, 5) == 1
    assert nodes_by_completion({2: 1.0, 4: 1.0}, 0, 5) == 2


def with_range(nodes: str, submitted: str = "", written: str = "") -> PendingJob:
    return job(1, time_limit_s=600.0, node_range=NodeRange(nodes, submitted, written))


def ranges(*actions: Action) -> list[Action]:
    return [action for action in actions if action.field is NUM_NODES]


@pytest.mark.parametrize(
    ("nodes", "submitted", "back"),
    [("2-2", "1-4", True), ("1-3", "1-4", False), ("2-2", "", False)],
)
def test_a_narrowed_range_comes_back_and_one_that_a_user_changed_stays(
    nodes: str, submitted: str, back: bool
) -> None:
    one = with_range(nodes, submitted, written="2-2" if submitted else "")
    seen = snapshot(one, job(2))
    wanted = [Action(NUM_NODES, target_of(one), "2-2", "1-4")] if back else []
    assert ranges(*decide(seen, BASELINES["delay"], Knobs()).plan.actions) == wanted
    assert ranges(*give_back(seen).actions) == wanted
