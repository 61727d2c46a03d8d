"""What the journal says at one look: works with the daemon dead, and only reads.

What is damaged is a JournalError; a snapshot, a SnapshotError.
"""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from rltuned.core.numbers import Writing, numbers_of
from rltuned.core.own_order import own_priority
from rltuned.daemon.canary.breaker import BREAKERS, Breaker
from rltuned.daemon.state import KeptState, kept_state
from rltuned.domain.fields import FIELDS, PRIORITY
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.journal import cycles, named_values
from rltuned.journal.cycles import CycleObservation, CycleRow, Document, unpack_plan
from rltuned.journal.inputs import decoded
from rltuned.journal.queries import JobChange, latest
from rltuned.journal.snapshots import unpack

CHANGES: Final = 8
"""Last changes that are shown."""
_SHOWN: Final = ("at", "address", "field", "old", "new", "result", "delay_s")
"""Of a change, for JSON."""
_ORDERING: Final = frozenset(field.action for field in FIELDS if field.orders)


class QueuePosition(NamedTuple):
    """A job's place in Slurm's own order, without rltuned's numbers, and in the new one; 1 = first.
    delay_s: None = it has none.
    """

    job: PendingJob
    before: int
    after: int
    priority: int
    planned: int
    delay_s: float | None


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


def last_seen(db: sqlite3.Connection) -> CycleObservation | None:
    """What the last cycle saw; None = none is kept."""
    row = db.execute(
        "SELECT c.cycle, at, mode, taken_at, s.digest, s.body, p.body, r.body FROM cycles AS c"
        " JOIN snapshots AS s ON s.digest = c.snapshot"
        " LEFT JOIN recipes AS r ON r.digest = c.recipe"
        " LEFT JOIN plans AS p ON p.cycle = c.cycle ORDER BY c.cycle DESC LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    cycle, at, mode, taken_at, digest, body, plan, recipe = row
    return CycleObservation(
        cycle,
        at,
        mode,
        *unpack(digest, body, taken_at),
        None if recipe is None else decoded(recipe),
        None if plan is None else unpack_plan(plan),
    )


def last_queue(db: sqlite3.Connection) -> tuple[Snapshot, tuple[QueuePosition, ...]] | None:
    """What the last cycle saw, in its plan's order, but for held jobs; None = none is kept."""
    last = last_seen(db)
    if last is None:
        return None
    snapshot = last.snapshot
    document = last.plan or {"actions": [], "reasons": {}}
    actions = {a["job_id"]: a for a in document["actions"] if a["action"] in _ORDERING}
    delays_s = {} if last.recipe is None else _in_force_s(last, last.recipe.knobs.writing)
    delays_s |= {
        int(job): reason["delay_s"]
        for job, reason in document["reasons"].items()
        if "delay_s" in reason and int(job) in actions
    }
    return snapshot, tuple(_places(snapshot, actions, delays_s))


def _in_force_s(last: CycleObservation, writing: Writing) -> dict[int, float]:
    """By job, the delay that the numbers of rltuned stand for."""
    snapshot, neutral = last.snapshot, last.context.neutral
    mode = writing.field(snapshot.priorities)
    ours = [
        j for j in snapshot.pending if j.owned and j.owned.field == mode.name and not j.taken_over
    ]
    numbers = numbers_of(
        ours,
        snapshot.priorities,
        mode,
        now=snapshot.taken_at,
        neutral_s=0.0 if neutral is None else neutral.delay_s,
        own_slope=writing.own_slope,
    )
    if numbers is None:
        return {}
    found = numbers.in_force_s().tolist()
    return {job.job_id: max(0.0, delay_s) for job, delay_s in zip(ours, found, strict=True)}


def _places(
    snapshot: Snapshot, actions: dict[int, Document], delays_s: dict[int, float]
) -> Iterator[QueuePosition]:
    line = [job for job in snapshot.pending if job.priority]
    planned = {job.job_id: _planned(job, actions.get(job.job_id)) for job in line}
    system, now = snapshot.priorities, float(snapshot.taken_at)
    before = sorted(line, key=lambda job: -own_priority(job, system, now))
    place = {job.job_id: number for number, job in enumerate(before, start=1)}
    after = sorted(line, key=lambda job: -planned[job.job_id])
    for number, job in enumerate(after, start=1):
        yield QueuePosition(
            job,
            place[job.job_id],
            number,
            job.priority,
            planned[job.job_id],
            delays_s.get(job.job_id),
        )


def _planned(job: PendingJob, action: Document | None) -> int:
    if action is None:
        return job.priority
    if action["action"] == PRIORITY.action:
        return int(action["new"])
    return job.priority + int(action["new"]) - int(action["old"])
