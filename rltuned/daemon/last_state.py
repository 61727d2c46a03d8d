"""What the journal says at one look: works with the daemon dead, and only reads.

What is damaged is a JournalError.
"""

import json
import sqlite3
from dataclasses import asdict, dataclass
from typing import Final

from rltuned.daemon.canary.breaker import BREAKERS, Breaker
from rltuned.daemon.state import KeptState, kept_state
from rltuned.journal import cycles, named_values
from rltuned.journal.cycles import CycleRow, Document
from rltuned.journal.queries import JobChange, latest

CHANGES: Final = 8
"""Last changes that are shown."""
_SHOWN: Final = ("at", "address", "field", "old", "new", "result", "delay_s")
"""Of a change, for JSON."""


@dataclass(frozen=True, slots=True)
class Glance:
    """The journal now; None = not kept. cycles: how many are kept. model: digest; "" = a rule, or
    not known. carrying: jobs that may still carry a value of rltuned's. changes: the latest first.
    breakers: the open ones, as (cluster, partition, breaker).
    """

    cycle: CycleRow | None
    cycles: int
    model: str
    carrying: int
    changes: tuple[JobChange, ...]
    breakers: tuple[tuple[str, str, Breaker], ...]
    state: KeptState | None

    def document(self) -> Document:
        return {
            "cycle": None if self.cycle is None else asdict(self.cycle),
            "cycles": self.cycles,
            "model": self.model or None,
            "carrying": self.carrying,
            "state": None if self.state is None else self.state.model_dump(mode="json"),
            "changes": [{name: getattr(one, name) for name in _SHOWN} for one in self.changes],
            "breakers": [
                {"cluster": cluster, "partition": name, **asdict(found)}
                for cluster, name, found in self.breakers
            ],
        }


def glance(db: sqlite3.Connection) -> Glance:
    """Look at a journal that is open."""
    (count,) = db.execute("SELECT count(*) FROM cycles").fetchone()
    recipe = db.execute(
        "SELECT body FROM cycles JOIN recipes ON digest = recipe ORDER BY cycle DESC LIMIT 1"
    ).fetchone()
    (carrying,) = db.execute(
        "SELECT count(*) FROM (SELECT DISTINCT cluster, job_id, submitted_at FROM changes"
        " WHERE closed IS NULL)"
    ).fetchone()
    known = BREAKERS.of(named_values.get(db, BREAKERS.name))
    return Glance(
        cycle=cycles.last_row(db),
        cycles=count,
        model="" if recipe is None else str(json.loads(recipe[0]).get("model", "")),
        carrying=carrying,
        changes=latest(db, CHANGES),
        breakers=tuple(
            (cluster, name, found)
            for cluster, those in sorted(known.items())
            for name, found in sorted(those.items())
            if found.is_open
        ),
        state=kept_state(named_values.get(db, named_values.STATE)),
    )
