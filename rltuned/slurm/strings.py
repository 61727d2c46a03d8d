"""Slurm's lists: hostlists, GRES, TRES, array tasks.

Every parser either understands the whole text or raises ValueError with the text in it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rltuned.domain import hostlist
from rltuned.domain.groups import Dependency
from rltuned.domain.units import JobId, NodeName
from rltuned.slurm.values import absent, is_amount, parse_count, parse_memory_mib

_GRES_NAME: Final = re.compile(r"[A-Za-z0-9_./-]+")
_STEPPED: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")


# -- hostlists --------------------------------------------------------------------------------


def expand_hosts(text: str) -> tuple[NodeName, ...]:
    """Names of a hostlist as Slurm prints it; "(null)" and the like are no names."""
    return () if absent(text) else tuple(map(NodeName, hostlist.expand_hosts(text)))


# -- GRES and TRES ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gres:
    """One generic resource: `name:type:count(detail)`; type is empty when Slurm names none."""

    name: str
    type: str
    count: int
    detail: str = ""


def parse_gres(text: str) -> tuple[Gres, ...]:
    """A node's or a job's GRES list.

    Understands `gpu`, `gpu:2`, `gpu:p100`, `gpu:p100:4(S:0-1)`, `gpu:p100:3(IDX:0-2)`,
    `gpu:(null):1`, `gres:gpu:2`, `gres/gpu:p100=2`, `shard:t4:8`, `x:no_consume:2K`. A bare
    `gres:` is none.
    """
    if absent(text):
        return ()
    items = hostlist.split_outside(text, "()")
    # `scontrol update Gres=` leaves the bare word behind
    return tuple(_parse_one_gres(i) for i in items if i.strip() not in {"gres", "gres:", "gres/"})


def _parse_one_gres(item: str) -> Gres:
    body, detail = item.strip().replace("(null)", ""), ""
    if body.endswith(")"):
        body, _, detail = body[:-1].partition("(")
    body = body.removeprefix("gres/").removeprefix("gres:")
    left, equals, right = body.partition("=")
    words = [w for w in left.split(":") if w != "no_consume"]
    name = words[0]
    if equals:
        kind, count = ":".join(words[1:]), parse_count(right)
    elif len(words) > 1 and is_amount(words[-1]):
        kind, count = ":".join(words[1:-1]), parse_count(words[-1])
    else:
        kind, count = ":".join(words[1:]), 1
    if not _GRES_NAME.fullmatch(name) or "(" in body or ")" in body or not body.isprintable():
        raise ValueError(f"{item!r} is no GRES")
    return Gres(name=name, type=kind, count=count, detail=detail)


def parse_tres(text: str) -> dict[str, int]:
    """A TRES list such as "cpu=6,mem=4200M,node=1,gres/gpu:p100=2"; `mem` is in MiB, rounded up."""
    if absent(text):
        return {}
    amounts: dict[str, int] = {}
    for item in text.split(","):
        name, equals, value = item.rpartition("=")
        if not equals or not name:
            raise ValueError(f"{item!r} is no TRES")
        amounts[name] = parse_memory_mib(value) if name == "mem" else parse_count(value)
    return amounts


# -- array tasks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of an array: "0-6:2,8%3" is a list of (first, last, step) and the throttle 3."""

    ranges: tuple[tuple[int, int, int], ...]
    throttle: int | None = None

    @property
    def count(self) -> int:
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    @property
    def text(self) -> str:
        """The tasks without the throttle, as squeue prints them."""
        return ",".join(_format_range(*r) for r in self.ranges)

    @property
    def named(self) -> str:
        """The same as scontrol takes them between brackets: it refuses "0-6:2"."""
        return ",".join(
            _format_range(first, last, 1)
            if step == 1
            else ",".join(map(str, range(first, last + 1, step)))
            for first, last, step in self.ranges
        )

    def holds(self, task: int) -> bool:
        return any(
            first <= task <= last and (task - first) % step == 0
            for first, last, step in self.ranges
        )

    def meets(self, other: "Tasks") -> bool:
        """Whether the two have a task in common."""
        return any(_meet(one, two) for one in self.ranges for two in other.ranges)


def _meet(one: tuple[int, int, int], two: tuple[int, int, int]) -> bool:
    (first, last, step), (begin, end, stride) = sorted((one, two), key=lambda r: -r[2])
    at = first + max(0, -((first - begin) // step)) * step
    # what is left over by the shorter step comes again after so many
    stop = min(last, end, at + step * (stride - 1))
    return any((task - begin) % stride == 0 for task in range(at, stop + 1, step))


def parse_tasks(text: str) -> Tasks:
    """Tasks as squeue prints them, "[...]" allowed around."""
    body, percent, limit = text.removeprefix("[").removesuffix("]").partition("%")
    if percent and not (limit.isascii() and limit.isdigit()):
        raise ValueError(f"{text[:200]!r} are no array tasks")
    ranges = tuple(_parse_stepped(part, text) for part in body.split(","))
    return Tasks(ranges=ranges, throttle=int(limit) if percent else None)


def _parse_stepped(part: str, whole: str) -> tuple[int, int, int]:
    match = _STEPPED.fullmatch(part)
    if match is None:
        raise ValueError(f"{whole[:200]!r} are no array tasks")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"{whole[:200]!r} are no array tasks")
    return first, last, step


def _format_range(first: int, last: int, step: int) -> str:
    if first == last and step == 1:
        return str(first)
    return f"{first}-{last}" + (f":{step}" if step != 1 else "")


def pack_tasks(numbers: Iterable[int]) -> Tasks:
    """Tasks from single numbers, in rising order and with neighbours joined."""
    ranges: list[tuple[int, int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number, 1)
        else:
            ranges.append((number, number, 1))
    return Tasks(ranges=tuple(ranges))


# -- The dependency column of squeue: `afterok:61(unfulfilled),afterany:59_*(unfulfilled)` --------


_WHOLE: Final = frozenset({"afterok", "afterany", "after", "aftercorr"})
_EDGES: Final = _WHOLE | {"afternotok", "afterburstbuffer"}
_TERM: Final = re.compile(r"([a-z]+)((?::[^:()]*(?:\([^()]*\))?)*)(?:\([^()]*\))?", re.IGNORECASE)
_PARENT: Final = re.compile(r":([1-9][0-9]{0,9})(?:_(?:[0-9]+|\*))?(\+[0-9]+)?(?:\([^()]*\))?")
_LONGEST: Final = 8 * 1024
"""Characters; squeue names a parent in about 20."""
MOST_PARENTS: Final = 256


@lru_cache(maxsize=4096)
def parse_dependency(text: str) -> Dependency:
    """What a job waits for; empty = nothing. Never raises.

    A comma joins conditions that must all hold, a `?` such as are enough alone. What is not known
    costs `whole`, and no known edge. An array is one parent, whichever of its tasks is named. Of
    more than MOST_PARENTS none is known: every look holds them for all jobs.
    """
    parents: dict[JobId, str] = {}
    if len(text) > _LONGEST:
        return Dependency((), whole=False)
    whole = "?" not in text
    for term in re.split(r"[,?]", text) if text else ():
        match = _TERM.fullmatch(term.strip())
        kind, names = (match[1].lower(), match[2]) if match else ("", "")
        found = list(_PARENT.finditer(names)) if kind in _EDGES else []
        whole &= kind in _WHOLE and bool(found) and "".join(m[0] for m in found) == names
        for one in found:
            parents.setdefault(JobId(int(one[1])), kind)
            whole &= one[2] is None
    if len(parents) > MOST_PARENTS:
        return Dependency((), whole=False)
    return Dependency(tuple(sorted(parents.items())), whole)
