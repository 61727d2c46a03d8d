"""Slurm's reasons from 22.05 to 26.05: which of them say that a job waits for its turn."""

from pathlib import Path

import pytest

from rltuned.core.select import REASONS, ReasonKind, reason_of

EVERY = (Path(__file__).parents[1] / "data" / "job_reasons.txt").read_text().split()
"""All words of job_state_reason_string in these releases."""
TURN = {
    "None", "Priority", "Resources", "ReqNodeNotAvail", "JobArrayTaskLimit", "NodeDown",
    "SystemFailure", "JobLaunchFailure", "NonZeroExitCode", "RaisedSignal", "TimeLimit",
    "InactiveLimit", "OutOfMemory",
}  # fmt: skip


def test_every_word_of_every_release_is_known() -> None:
    unknown = reason_of("a word of no release")
    assert [word for word in EVERY if reason_of(word) == unknown] == []
    assert {word for word in REASONS if " " not in word} <= {*EVERY}


def test_only_jobs_that_wait_for_their_turn_are_in_line() -> None:
    assert {word for word in EVERY if reason_of(word).kind is ReasonKind.TURN} == TURN


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "None"),
        ("ReqNodeNotAvail, UnavailableNodes:p[1-2]", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail"),
        ("RaisedSignal:9(Killed)", "RaisedSignal"),
    ],
)
def test_a_detail_changes_no_meaning(text: str, word: str) -> None:
    assert reason_of(text) == REASONS[word]


def test_a_reason_that_no_release_has_is_blocked_and_said() -> None:
    found = reason_of("OfALaterRelease")
    assert found.kind is ReasonKind.BLOCKED
    assert found.words
