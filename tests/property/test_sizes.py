"""Node counts: any comment is read; a count is advised by what waits behind."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.line import _by_completion as nodes_by_completion
from rltuned.slurm.request import parse_speeds

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


def test_a_count_is_chosen_by_what_waits_behind() -> None:
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 3.4}, 0, 5) == 4
    assert nodes_by_completion({1: 1.0, 2: 1.9, 4: 2.0}, 4, 5) == 2
    assert nodes_by_completion({1: 1.0, 2: 1.1}, 40, 5) == 1
    assert nodes_by_completion({2: 1.0, 4: 1.0}, 0, 5) == 2
