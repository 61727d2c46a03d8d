"""What the page and `status` say of the replay of last week."""

from pathlib import Path
from typing import Any

import pytest

from rltuned.policies.tune_state import LastWeek, would_it_help, write_state

WEEK: dict[str, Any] = {
    "at": 1_000_000.0, "begin": 300_000.0, "until": 900_000.0, "jobs": 1_234, "order": "delay",
    "verdict": "close", "slurm_wait_s": 7_200.0, "wait_s": 5_000.0, "change": -0.306, "low": -0.38,
    "high": -0.24, "slurm_longest_s": 86_400.0, "longest_s": 90_000.0,
}  # fmt: skip
NONE = dict.fromkeys(("change", "low", "high"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, "Last week's 1234 jobs would have waited 31% [24%, 38%] less in rltuned's order"),
        ({"change": 0.1, "low": 0.05, "high": 0.2}, "would have waited 10% [5%, 20%] more in"),
        ({"change": -0.1, "low": None, "high": None}, "-10.0%"),
        (
            {"high": 0.1},
            "as in Slurm's own, as far as can be seen: -30.6% [-38.0%, +10.0%];",
        ),
        ({"verdict": "poor"}, "The simulator plays last week's 1234 jobs otherwise"),
        ({"verdict": "rough"}, "the calibration is rough"),
        (NONE | {"slurm_wait_s": 0.0, "wait_s": 0.0}, "None of last week's 1234 jobs would have"),
        ({"at": 1_000_000.0, "why": "3 jobs"}, "Last week's jobs could not be replayed: 3 jobs."),
    ],
)
def test_every_outcome_has_its_sentence(other: dict[str, Any], said: str) -> None:
    sentence = LastWeek(**(WEEK | other)).sentence(1_000_000.0 + 7_200.0)
    assert said in sentence
    assert sentence.endswith("Replayed 2h00m ago.")


def test_an_old_replay_asks_for_the_timer() -> None:
    sentence = LastWeek(**WEEK).sentence(1_000_000.0 + 5 * 86_400.0)
    assert sentence.endswith("ago: is rltuned-tune.timer running?")


def test_where_nothing_was_replayed_it_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "`rltuned tune` replays" in str(would_it_help(tmp_path, 0.0)["sentence"])
    monkeypatch.setattr("rltuned.policies.tune_state.find_spec", lambda _name: None)
    assert "Install rltuned-train" in str(would_it_help(tmp_path, 0.0)["sentence"])
    week = LastWeek(**WEEK)
    write_state(tmp_path, week)
    found = would_it_help(tmp_path, week.at)
    assert found == week.model_dump() | {"sentence": week.sentence(week.at)}
