"""Settings of release 0.2.0 that are gone. A file that has one is accepted, with a warning.

A key counts as gone as soon as no table declares it. This table goes with the release after this.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

RETIRED: Final = {
    "groups": "groups are shown and not written for",
    "order.newcomers": "a new job gets its delay in the next cycle",
    "placement.horizon_s": "the next ends are looked at, and not a horizon",
    "placement.memory_mib": "the solver may use 1024 MiB",
    "placement.max_slots": "the next ends are looked at, and not a horizon",
    "sizes": "rltuned chooses no node counts; `rltuned explain JOBID` advises",
    "slurm.chunk": "one scontrol has at most 200 updates",
    "sla.lift_deadlines": "jobs of a class have delay 0 and are not lifted",
    "sla.lift_jobs": "jobs of a class have delay 0 and are not lifted",
    "sla.over_qos": "jobs of a class have delay 0 and are not lifted",
}
"""Whole tables and single keys, and what holds instead."""
RENAMED: Final = {"order.stretch": "own"}
"""Keys that are read by another name of the same table."""

Place = tuple[str, ...]
"""Where a key stands in the file: ("order", "newcomers"), ("sla", "0", "lift_jobs")."""


def parted(
    tree: Mapping[str, Any], declared: Callable[[list[str]], Collection[str]]
) -> tuple[dict[str, Any], tuple[Place, ...]]:
    """The tree without what is gone, and where that stands.

    declared: the keys of the table of this name; without a name, the tables.
    """
    kept: dict[str, Any] = {}
    gone: list[Place] = []

    def left(table: str, keys: object, place: Place) -> object:
        if not isinstance(keys, dict):
            return keys
        names = [k for k in keys if _is_gone(f"{table}.{k}") and k not in declared([table])]
        gone.extend((*place, name) for name in names)
        read = {
            RENAMED[f"{table}.{name}"]: keys[name] for name in names if f"{table}.{name}" in RENAMED
        }
        return read | {key: value for key, value in keys.items() if key not in names}

    for table, keys in tree.items():
        if table in RETIRED and table not in declared([]):
            keyed = isinstance(keys, dict) and keys
            gone += [(table, key) for key in keys] if keyed else [(table,)]
        elif isinstance(keys, list):
            kept[table] = [left(table, one, (table, str(at))) for at, one in enumerate(keys)]
        else:
            kept[table] = left(table, keys, (table,))
    return kept, tuple(gone)


def _is_gone(key: str) -> bool:
    return key in RETIRED or key in RENAMED


def why_gone(key: str) -> str:
    """What holds instead of a key that is gone, for the owner of the file."""
    if key in RENAMED:
        return f"is read as {RENAMED[key]}, for this release alone; rename it"
    reason = RETIRED.get(key) or RETIRED[key.partition(".")[0]]
    return f"is gone and has no effect; {reason}; take the line out"
