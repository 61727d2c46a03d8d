"""What sinfo does not say of nodes: what is kept from jobs, and nodes that it does not show.

A node's specialised cores and memory (CoreSpecCount, MemSpecLimit) are in sinfo's totals, and no
job gets them. Cloud nodes that are powered down are hidden unless PrivateData=cloud; asked for by
its name alone, sinfo shows such a node.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from rltuned.domain.snapshot import Unreadable
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import NODE_COLUMNS, Marks, NodeRow
from rltuned.slurm.run import Commands
from rltuned.slurm.strings import expand_hosts
from rltuned.slurm.values import parse_memory_mib

MOST_ASKED: Final = 40
"""Hidden nodes that are asked for at one look, each by a sinfo of its own."""
KNOWN_S: Final = 300.0
"""How long what a hidden node has is believed. It may be drained meanwhile."""
_NAME: Final = re.compile(r"NodeName=(\S+)")
_CPUS: Final = re.compile(r" CPUEfctv=([0-9]+) CPUTot=([0-9]+)")
_MEMORY: Final = re.compile(r" MemSpecLimit=([0-9]+)")
_PARTITION: Final = re.compile(r" Nodes=(\S+)")
_POWERED_DOWN: Final = "idle+cloud+powered_down"


class KeptBack(NamedTuple):
    """CPUs and MiB of a node that no job gets."""

    cpus: int
    mem_mib: int


def read_kept_back(lines: Iterable[str]) -> dict[str, KeptBack]:
    """By node, from `scontrol -o show nodes`; those that keep nothing are left out."""
    found: dict[str, KeptBack] = {}
    for line in lines:
        name, cpus, memory = _NAME.match(line), _CPUS.search(line), _MEMORY.search(line)
        if name is None:
            continue
        kept = KeptBack(
            max(0, int(cpus[2]) - int(cpus[1])) if cpus else 0, int(memory[1]) if memory else 0
        )
        if any(kept):
            found[name[1]] = kept
    return found


def without_kept(row: NodeRow, kept: Mapping[str, KeptBack]) -> NodeRow:
    """The row with what jobs can have as its totals. Raises ValueError."""
    found = kept.get(row.nodelist)
    if found is None:
        return row
    allocated, idle, other, total = row.cpusstate.split("/")
    left = max(0, int(total) - found.cpus)
    memory = max(0, parse_memory_mib(row.memory) - found.mem_mib)
    cpus = f"{min(int(allocated), left)}/{idle}/{other}/{left}"
    return row._replace(cpusstate=cpus, memory=str(memory))


def read_names(partitions: str) -> frozenset[str]:
    """All nodes of all partitions, from `scontrol -o show partitions`. Raises SnapshotError."""
    names: set[str] = set()
    for line in partitions.splitlines():
        found = _PARTITION.search(line)
        try:
            names.update(expand_hosts(found[1]) if found else ())
        except ValueError as error:
            raise SnapshotError(f"scontrol show partitions: {error}") from error
    return frozenset(names)


class HiddenNodes:
    """Remembers from look to look what powered-down cloud nodes have.

    A node that was shown before keeps what it had. new_marks: of one call each.
    """

    def __init__(self, commands: Commands, new_marks: Callable[[], Marks]) -> None:
        self._commands = commands
        self._new_marks = new_marks
        self._known: dict[str, tuple[list[list[str]], float]] = {}
        """Of each node its rows, one for each partition, and when it was asked for."""

    def beside(
        self,
        rows: Iterable[list[str]],
        names: frozenset[str],
        now: float,
        odd: list[Unreadable],
    ) -> Iterator[list[str]]:
        """The rows of sinfo, and those of the nodes among `names` that it does not show. odd: takes
        what is not known yet. Raises BackendError, SnapshotError.
        """
        shown: dict[str, list[list[str]]] = {}
        for row in rows:
            if names:
                shown.setdefault(row[0], []).append(row)
            yield row
        hidden = sorted(names - shown.keys())
        known = {name: self._known[name] for name in hidden if name in self._known}
        due = [n for n in hidden if n not in known or not 0 <= now - known[n][1] < KNOWN_S]
        due.sort(key=lambda name: known[name][1] if name in known else -2.0)
        for name in due[:MOST_ASKED]:
            known[name] = self._ask(name), now
        for found, _ in known.values():
            yield from found
        if unknown := len(hidden) - len(known):
            why = f"{unknown} that are powered down are not known yet: asked for from look to look"
            odd.append(Unreadable("node", "", why))
        self._known = known | {name: (_hidden(its), -1.0) for name, its in shown.items()}

    def _ask(self, name: str) -> list[list[str]]:
        """Rows of one node; none where Slurm has no such node that it would start."""
        marks = self._new_marks()
        words = ("--local", "-a", "-N", "-n", name, "-O", marks.columns(NODE_COLUMNS))
        answer = self._commands.call("sinfo", *words)
        return list(marks.rows(answer, len(NODE_COLUMNS), []))


def _hidden(rows: list[list[str]]) -> list[list[str]]:
    """A node that is shown, as it will be when it is powered down and empty."""
    made = []
    for raw in rows:
        row = NodeRow._make(raw)
        total = row.cpusstate.rpartition("/")[2]
        made.append(
            list(
                row._replace(
                    statecomplete=_POWERED_DOWN,
                    cpusstate=f"0/{total}/0/{total}",
                    allocmem="0",
                    gresused=_NONE_USED.sub("0", row.gresused),
                )
            )
        )
    return made


_NONE_USED: Final = re.compile(r"(?<=:)[0-9]+(?=\(|,|$)")
