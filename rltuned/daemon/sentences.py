"""What the log has already: a proposal or a failure is logged when it changes, not every cycle.

Numbers drift with age and ranks move up by one when a job starts, while no decision was made again.
So a proposal counts as the same while its job keeps its place among the others that are proposed.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from rltuned.core.decide import Entry
from rltuned.daemon.state import Health
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.units import JobKey

MOST_REMARKS: Final = 200
"""Different ones that are remembered and logged."""
_FAILURES: Final = frozenset({Result.REFUSED, Result.WITHHELD, Result.FAILED})
_NUMBERS: Final = re.compile(r"\d+")

Cause = tuple[Result, str]
"""What came of a change, and why, its numbers left out: they differ from job to job."""


class Logged:
    """Remembers from cycle to cycle."""

    def __init__(self) -> None:
        self._order: dict[JobKey, int] = {}
        self._asked: dict[JobKey, tuple[float | None, int, bool]] = {}
        self._failing: dict[JobKey, Cause] = {}
        self._state = ""

    def proposals(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that are new, ask for something else, fit now or no longer, or have moved."""
        keys = [entry.job.key for entry in entries]
        before = [self._order.get(key) for key in keys]
        stayed = _longest_rise(before)
        fresh = [
            entry
            for at, (entry, key) in enumerate(zip(entries, keys, strict=True))
            if at not in stayed or self._asked.get(key) != _asked(entry)
        ]
        self._order = {key: at for at, key in enumerate(keys)}
        self._asked = {key: _asked(entry) for key, entry in zip(keys, entries, strict=True)}
        return fresh

    def is_new(self, health: Health) -> bool:
        """Whether the state, its numbers left out, is another one than before."""
        before, self._state = self._state, _plain(str(health))
        return self._state != before

    def failures(self, outcomes: Iterable[Outcome]) -> dict[Cause, list[Outcome]]:
        """By cause, the changes that failed, without those that failed so the last time too."""
        found: dict[Cause, list[Outcome]] = {}
        for outcome in outcomes:
            target = outcome.action.target
            key = target.key
            if outcome.result not in _FAILURES:
                self._failing.pop(key, None)
                continue
            cause = outcome.result, _plain(outcome.detail)
            if self._failing.get(key) != cause:
                self._failing[key] = cause
                found.setdefault(cause, []).append(outcome)
        return found

    def forget(self, here: Iterable[JobKey]) -> None:
        """Keep nothing of jobs that have left the queue."""
        left = set(here)
        self._failing = {key: cause for key, cause in self._failing.items() if key in left}


class Remarks:
    """What Slurm's commands print beside their answers, over all cycles and reloads."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def fresh(self, command: str, lines: Iterable[str]) -> list[str]:
        """Those that are new of this command, numbers left out."""
        found = []
        for line in lines:
            key = command, _plain(line)
            if key not in self._known and len(self._known) < MOST_REMARKS:
                self._known.add(key)
                found.append(line)
        return found


def _asked(entry: Entry) -> tuple[float | None, int, bool]:
    """What it asks for, and whether it fits; places and times change with every job that starts."""
    request = entry.job.request
    return request.time_limit_s, request.size.gpus, entry.fits


def _plain(text: str) -> str:
    return _NUMBERS.sub("#", text)


def _longest_rise(places: Sequence[int | None]) -> set[int]:
    """Indices of the most that follow each other as they did before; None = was not there."""
    ends: list[int] = []  # lowest last place of a rise of each length
    last: list[int] = []  # and its index
    back: dict[int, int | None] = {}
    for index, place in enumerate(places):
        if place is None:
            continue
        at = bisect_left(ends, place)
        back[index] = last[at - 1] if at else None
        ends[at : at + 1], last[at : at + 1] = [place], [index]
    found: set[int] = set()
    step = last[-1] if last else None
    while step is not None:
        found.add(step)
        step = back[step]
    return found
