"""The expected start of one job in words."""

from typing import Any

from rltuned.text import between, counted, span


def expected(document: dict[str, Any]) -> str:
    """`expected to start 14:00 to 17:30 today; 12th of 212`."""
    at = document.get("expected_start")
    if at is None:
        return f"no start is expected: {document.get('expected_why') or 'nothing is known of it'}"
    return f"expected to start {_times(document)}; {_place(document)}"


def what_ifs(document: dict[str, Any]) -> list[str]:
    """`With a limit of 2h00m: 09:40 to 11:00 today; 3rd of 212.`"""
    if "what_if" not in document:
        return []
    found = document["what_if"]
    if found is None:
        return [f"What another request would change is not known: {document['what_if_why']}."]
    limit_s, gpus = found["limit_s"], found["gpus"]
    asked = ["no time limit"] if found["unlimited"] else []
    asked += [] if limit_s is None else [f"a limit of {span(limit_s)}"]
    asked += [] if gpus is None else [counted(gpus, "GPU")]
    at = found["expected_start"]
    start = found["expected_why"] if at is None else f"{_times(found)}; {_place(found)}"
    return [f"With {' and '.join(asked)}: {start}."]


def _times(document: dict[str, Any]) -> str:
    at = document["expected_start"]
    said = between(at["low_s"], at["high_s"], document["expected_at"])
    return f"{said} (by time limits)" if document["expected_by_limits"] else said


def _place(document: dict[str, Any]) -> str:
    return f"{ordinal(document['line_place'])} of {document['line_jobs']}"


def ordinal(number: int) -> str:
    """`1st`, `12th`, `23rd`."""
    last = 0 if number // 10 % 10 == 1 else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"
