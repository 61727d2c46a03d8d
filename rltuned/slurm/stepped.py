"""Lists of tasks that `squeue -r` cuts.

Where squeue has no --array-unique, its -r leaves out the last task of a record with six tasks or
more that are evenly apart, as 0-98:2 (24.11.5, 26.05.5). A write that names such a list would part
the array task by task. `scontrol show job` has the whole list.
"""

import re
from itertools import pairwise
from math import inf
from typing import Final

from rltuned.slurm.run import Commands
from rltuned.slurm.squeue import TWICE
from rltuned.slurm.strings import parse_tasks
from rltuned.slurm.values import parse_number

LEAST: Final = 5
"""Fewer tasks than these are shown whole."""
MOST_ASKED: Final = 50
"""So many records are asked for in one cycle; further ones in later cycles."""
_Shown = tuple[str, ...]


class SteppedTasks:
    """The whole lists, each asked for once as long as squeue shows the same tasks."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._before: dict[str, tuple[_Shown, list[str]]] = {}
        self._known: dict[str, tuple[_Shown, list[str]]] = {}
        self._left = inf

    def look(self) -> None:
        """A new cycle begins: what the last one did not show is forgotten."""
        self._before, self._known, self._left = self._known, {}, MOST_ASKED

    def whole(self, number: str, shown: list[str]) -> list[str]:
        """All tasks of a pending record by its number. shown: a text per task, from squeue -r.
        Raises ValueError: they are not known now. BackendError: scontrol does not answer.
        """
        if not may_be_cut(shown):
            return shown
        known = self._known.get(number) or self._before.get(number)
        if known is None or known[0] != tuple(shown):
            known = tuple(shown), self._ask(number, shown)
        self._known[number] = known
        return known[1]

    def _ask(self, number: str, shown: list[str]) -> list[str]:
        if self._left <= 0:
            raise ValueError("squeue -r may leave out its last task; scontrol is asked later")
        self._left -= 1
        out = self._commands.call("scontrol", "-o", "show", "job", number).stdout
        found = re.findall(rf"^JobId={number} ArrayJobId=\d+ ArrayTaskId=(\S+)", out, re.MULTILINE)
        if not found:
            raise ValueError("squeue -r may leave out its last task, and scontrol shows none")
        if len(found) > 1:  # a job's name may hold a line that looks like this one
            raise ValueError(f"scontrol: {TWICE}")
        listed = parse_tasks(found[0])
        # counted before they are listed: there may be very many
        tasks = listed.named.split(",") if listed.count <= len(shown) + 1 else []
        if {*tasks[: len(shown)]} != {*shown}:
            raise ValueError("its tasks changed while they were read")
        return tasks


def may_be_cut(shown: list[str]) -> bool:
    """Whether there may be one task more: they are evenly apart, and not neighbours. Raises
    ValueError: one is no number.
    """
    if len(shown) < LEAST:
        return False
    steps = {later - earlier for earlier, later in pairwise(sorted(map(parse_number, shown)))}
    return len(steps) == 1 and steps != {1}
