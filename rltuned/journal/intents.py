"""Which rows and which jobs the actions of a plan are about."""

import sqlite3
from collections.abc import Iterable

from rltuned.domain.plan import Action, Outcome, SetExcludedNodes, SetOverSubscribe
from rltuned.journal import flags, writes
from rltuned.journal.ownership import JobKey, Origin


def keys_of(actions: Iterable[Action]) -> set[JobKey]:
    """The jobs of these actions."""
    return {(a.target.job_id, a.target.submitted_at) for a in actions}


def insert(db: sqlite3.Connection, action: Action, origin: Origin) -> int:
    """Note an intent; returns its row id, that of words negative."""
    if isinstance(action, SetOverSubscribe | SetExcludedNodes):
        return -flags.insert(db, action, origin)
    return writes.insert(db, action, origin)


def settle(db: sqlite3.Connection, row: int, outcome: Outcome, at: float) -> None:
    """Note what came of the intent in this row."""
    if row < 0:
        flags.settle(db, -row, outcome, at)
    else:
        writes.settle(db, row, outcome, at)
