"""What one job asks for, from squeue's columns -> Request; and what it has on each of its nodes."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.units import GpuType
from rltuned.slurm.columns import ASK_COLUMNS
from rltuned.slurm.values import (
    Gres,
    absent,
    parse_gres,
    parse_limit_s,
    parse_memory_mib,
    parse_tres,
    resources_of,
)

_WHOLE_NODE: Final = "NO"
_UNKNOWN: Final[Mapping[str, Resources]] = MappingProxyType({})
_SHARED_BY: Final = frozenset({"USER", "MCS", "TOPO"})
_ask_of: Final[Callable[[Mapping[str, str]], tuple[str, ...]]] = itemgetter(*ASK_COLUMNS)
_GPU_FORMS: Final = ("tres-per-job", "tres-per-node", "tres-per-task", "tres-per-socket")
UNASKED: Final = Request(total=Resources(0, 0, 0))
"""In place of what a job asks for, where that is not read."""


class Requests:
    """Reads requests; equal ones become the same object, which encode() counts on.

    exclusive_partitions: those whose jobs take whole nodes (OverSubscribe=EXCLUSIVE).
    memory_counts: Slurm hands out memory here (CR_*_Memory). roomiest: by partition the most that
    one node has; without it no node range is read. before: of the last look, whose requests stand
    where nothing else has changed: to read them again is an eighth of a cycle of 256 jobs.
    """

    def __init__(
        self,
        exclusive_partitions: frozenset[str],
        *,
        memory_counts: bool,
        roomiest: Mapping[str, Resources] = _UNKNOWN,
        before: "Requests | None" = None,
    ) -> None:
        self._exclusive = exclusive_partitions
        self._roomiest = roomiest
        self._memory_counts = memory_counts
        self.rules = exclusive_partitions, memory_counts, roomiest
        self.known: dict[tuple[tuple[str, ...], bool], Request] = {}
        self._before = before.known if before is not None and before.rules == self.rules else {}

    def read(self, ask: Mapping[str, str], *, running: bool) -> Request:
        """The request behind the columns; of a running job what it has. Raises ValueError."""
        key = _ask_of(ask), running
        known = self.known.get(key)
        if known is None:
            known = self._before.get(key) or self._read(ask, running=running)
            self.known[key] = known
        return known

    def _read(self, ask: Mapping[str, str], *, running: bool) -> Request:
        tres, forms = parse_tres(ask["tres-alloc"]), {f: parse_gres(ask[f]) for f in _GPU_FORMS}
        shown_nodes = _int(ask["numnodes"].partition("-")[0])
        asked_nodes = tres.get("node", shown_nodes)
        most = asked_nodes if running else max(asked_nodes, shown_nodes)
        nodes = asked_nodes if running else self._fewest(ask, tres, asked_nodes, most)
        gpus, tasks = partial(_gpus, forms, tres), _int(ask["numtasks"])
        total, per_node = gpus(tasks, nodes), _count(forms["tres-per-node"]) > 0
        cpus = max(_int(ask["numcpus"]), tres.get("cpu", 0))
        if not running:
            # before 24.11 a pending --cpus-per-gpu job says 1 CPU
            per_gpu = _count(parse_gres(ask["cpus-per-tres"])) * total
            cpus = max(cpus, per_gpu, _int(ask["mincpus"]) * nodes)
        memory = self._memory(ask, tres, total, cpus, running=running)
        ranged = nodes < most and (per_node or nodes > 1)
        middle = -(-(nodes + most) // 2)
        every = [g for form in forms.values() for g in form]
        types = [g.type for g in every if g.name == "gpu" and g.type]
        types += [name.partition(":")[2] for name in tres if name.startswith("gres/gpu:")]
        types = list(dict.fromkeys(types))
        return Request(
            total=resources_of(total, cpus, memory),
            nodes_most=most if ranged else None,
            expected=resources_of(gpus(tasks, middle), max(cpus, middle), memory)
            if ranged
            else None,
            time_limit_s=parse_limit_s(ask["timelimit"]),
            gpu_types=tuple(map(GpuType, types)),
            nodes=nodes if running or per_node or asked_nodes > 1 else None,
            exclusive=ask["oversubscribe"] == _WHOLE_NODE
            or not self._exclusive.isdisjoint(ask["partition"].split(",")),
            outside=self._outside(ask, every, types),
        )

    def _fewest(self, ask: Mapping[str, str], tres: dict[str, int], asked: int, shown: int) -> int:
        """The fewest nodes that a pending job could start on.

        Slurm says the fewest that were asked for among the TRES, and shows the most that it would
        give; where tasks or amounts alone need more than were asked for, it shows those too.
        """
        roomy = [self._roomiest[p] for p in ask["partition"].split(",") if p in self._roomiest]
        if shown <= asked or not roomy:
            return shown
        cpus, tasks = max(_int(ask["numcpus"]), tres.get("cpu", 0)), max(1, _int(ask["numtasks"]))
        tasks_per_node = _int(ask["mincpus"]) // max(1, cpus // tasks)
        needed = max(
            asked,
            -(-cpus // max(1, *(r.cpus for r in roomy))),
            -(-tres.get("mem", 0) // max(1, *(r.mem_mib for r in roomy))),
            -(-tasks // tasks_per_node) if tasks_per_node > 1 else 1,
        )
        return min(needed, shown)

    def _memory(
        self, ask: Mapping[str, str], tres: dict[str, int], gpus: int, cpus: int, *, running: bool
    ) -> int:
        """MiB over all nodes. Slurm's total is right but for the CPUs that it did not count yet."""
        if not self._memory_counts:
            return 0
        if "mem" not in tres:
            raise ValueError(f"no memory in the request {ask['tres-alloc']!r}")
        memory, counted = tres["mem"], tres.get("cpu", 0)
        if running:
            return memory
        if absent(ask["mem-per-tres"]) and 0 < counted < cpus:
            # squeue does not say whether memory is per CPU or per node: assume the larger need
            memory = max(memory, parse_memory_mib(ask["minmemory"]) * cpus)
        return max(memory, _count(parse_gres(ask["mem-per-tres"])) * gpus)

    def _outside(
        self, ask: Mapping[str, str], every: list[Gres], types: list[str]
    ) -> tuple[str, ...]:
        """What rltuned's placement does not model, in Slurm's words."""
        per_socket = ",".join(
            ":".join(word for word in (g.name, g.type, str(g.count)) if word)
            for g in parse_gres(ask["tres-per-socket"])
        )
        known = {"gpu", "cpu", "mem", "node"}
        other = (f"gres/{g.name}={g.count}" for g in every if g.name not in known)
        # while Slurm 22.05 tries a --mem-per-gpu job, its own minimum shows as 0 for an instant
        all_memory = (
            self._memory_counts
            and absent(ask["mem-per-tres"])
            and parse_memory_mib(ask["minmemory"]) == 0
        )
        found = (
            (f"gpu types at once: {','.join(types)}", len(types) > 1),
            (f"tres-per-socket={per_socket}", bool(per_socket)),
            (f"licenses={ask['licenses']}", not absent(ask["licenses"])),
            (f"constraint={ask['feature']}", not absent(ask["feature"])),
            ("contiguous", ask["contiguous"].lower() not in {"0", "no"}),
            (f"core-spec={ask['corespec']}", not absent(ask["corespec"])),
            (f"tmp={ask['mintmpdisk']}", parse_memory_mib(ask["mintmpdisk"]) > 0),
            (f"exclusive={ask['oversubscribe'].lower()}", ask["oversubscribe"] in _SHARED_BY),
            ("mem=0 (all memory of each node)", all_memory),
        )
        return (*other, *(words for words, so in found if so))


def _gpus(
    forms: Mapping[str, tuple[Gres, ...]], tres: Mapping[str, int], tasks: int, nodes: int
) -> int:
    """GPUs of a job over all its nodes.

    The forms are limits on one another, not a sum: --gpus says the total, else the largest of what
    the forms per node, per task and per socket come to. Slurm's own count goes before all of them;
    it is there only on clusters that keep account of GPUs (AccountingStorageTRES=gres/gpu).
    """
    per_job, per_node, per_task, per_socket = (_count(forms[name]) for name in _GPU_FORMS)
    asked = per_job or max(per_node * nodes, per_task * tasks, per_socket * nodes)
    return tres.get("gres/gpu", asked)


def _count(items: tuple[Gres, ...]) -> int:
    return sum(g.count for g in items if g.name == "gpu")


def _int(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is no number")
    return int(text)


def split_evenly(total: int, room: Sequence[int]) -> list[int]:
    """Part an amount over nodes as their sizes allow, the rest to the last. Sums to `total`."""
    left, shares = total, [0] * len(room)
    for position, index in enumerate(sorted(range(len(room)), key=room.__getitem__)):
        fair = math.ceil(left / (len(room) - position))
        shares[index] = min(fair, room[index])
        left -= shares[index]
    if left and shares:
        shares[-1] += left
    return shares


def shares_of(
    names: tuple[str, ...], request: Request, nodes: Mapping[str, Node]
) -> tuple[Share, ...]:
    """What a running job has on each node: exact on one node, else evenly parted; nodes that sinfo
    does not show are left out. Raises ValueError: it is on no node.
    """
    if not names:
        raise ValueError("it runs, but on no node")
    want = request.total
    if len(names) == 1 and not request.exclusive:  # by far the most
        home = nodes.get(names[0])
        kind = _gpu_type(home, request) if home and want.gpus else None
        return (Share(home.name, want, kind),) if home else ()
    homes = [nodes.get(name) for name in names]
    totals = [want if home is None else home.total for home in homes]
    # squeue tells what was asked; with whole nodes their other GPUs are taken as well
    whole = request.exclusive and want.cpus >= sum(t.cpus for t in totals)
    room = [want.gpus if home is None else _room(home, request) for home in homes]
    gpus = [t.gpus for t in totals] if whole else split_evenly(want.gpus, room)
    cpus = split_evenly(want.cpus, [t.cpus for t in totals])
    memory = split_evenly(want.mem_mib, [t.mem_mib for t in totals])
    return tuple(
        Share(home.name, Resources(*taken), _gpu_type(home, request) if taken[0] else None)
        for home, *taken in zip(homes, gpus, cpus, memory, strict=True)
        if home is not None
    )


def _room(home: Node, request: Request) -> int:
    asked = request.gpu_types
    return sum(g.total for g in home.gpus if not asked or g.gpu_type in asked)


def _gpu_type(home: Node, request: Request) -> GpuType | None:
    """The type that it holds there, when only one is possible."""
    asked = request.gpu_types
    possible = {g.gpu_type for g in home.gpus if g.total and (not asked or g.gpu_type in asked)}
    return possible.pop() if len(possible) == 1 else None


MOST: Final = 4096
"""Characters of a comment that are looked at."""
_WORD: Final = re.compile(r"(?<!\S)rltuned\.speed=(\S+)")
_SPEED: Final = re.compile(r"([1-9][0-9]{0,5}):([0-9]{1,9}(?:\.[0-9]{1,9})?)")


def parse_speeds(comment: str) -> dict[int, float]:
    """The speed on each node count that a comment names; empty = none, or flawed."""
    words = _WORD.findall(comment[:MOST])
    items = [_SPEED.fullmatch(item) for word in words for item in word.split(",")]
    speeds = [(int(item[1]), float(item[2])) for item in items if item is not None]
    counts = [count for count, _ in speeds]
    sound = len(words) == 1 and len(speeds) == len(items) and counts == sorted(set(counts))
    return dict(speeds) if sound and all(speed > 0 for _, speed in speeds) else {}
