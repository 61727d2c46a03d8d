"""Slurm's notations: amounts, limits, moments; hostlists, GRES, TRES, tasks; how people name jobs.

Every parser either understands the whole text or raises ValueError with the text in it. Absent
values ("N/A", "(null)", empty ...) are recognised in one place, `absent`.
"""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from rltuned.domain.cluster import Resources, split_outside
from rltuned.domain.cluster import expand_hosts as host_names
from rltuned.domain.jobs import Dependency, PendingJob
from rltuned.domain.units import JobId, NodeName, UnixTime

_ABSENT: Final = frozenset(
    {"", "(null)", "n/a", "none", "null", "unknown", "not_set", "none assigned"}
)
_SCALE: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_AMOUNT: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,6}))?([KMGTP]?)")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
_MOST: Final = 10**12
"""A larger amount is none of a job or node; so many of them add up in 64 bits for all jobs."""
_SHORT: Final = 9
"""So many digits are certainly below 2**32."""
_EPOCH_DIGITS: Final = 11
_WHOLE: Final = re.compile(r"(?:^|=)(\d+)")
SHOWN: Final = 40
"""Characters of a wrong value that a message says again."""
_CLOCK: Final = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}(?::[0-9]{1,9}){0,2})")


@lru_cache(maxsize=1024)  # asked for ten values of every job, and most jobs say the same words
def absent(text: str) -> bool:
    """Whether Slurm says that there is no value."""
    return text.strip().lower() in _ABSENT


def parse_number(text: str) -> int:
    """A whole number of at most 32 bits, as Slurm keeps priorities, site factors and nice."""
    if text.isascii() and text.isdigit() and len(text) <= _SHORT:
        return int(text)
    if _NUMBER.fullmatch(text) is None or abs(number := int(text)) >= 2**32:
        raise ValueError(f"{text[:40]!r} is no number of 32 bits")
    return number


@lru_cache(maxsize=1024)
def whole_numbers(text: str) -> tuple[int, ...]:
    """The numbers of "10" or "cpu=10,gres/gpu=5", fractions cut off; none where there are none."""
    return tuple(map(int, _WHOLE.findall(text)))


def parse_count(text: str) -> int:
    """A number with an optional suffix: "2" is 2, "2K" is 2048. Rounded up."""
    return _amount(text, unit=1)


@lru_cache(maxsize=1024)
def parse_memory_mib(text: str) -> int:
    """Memory such as "500M", "62.50G", "4T"; a bare number is MiB. In MiB, rounded up."""
    bare = text[-1:].isdigit()
    return _amount(f"{text}M" if bare else text, unit=_SCALE["M"])


def _amount(text: str, unit: int) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no amount")
    decimals = match[2] or ""
    scaled = int(match[1] + decimals) * _SCALE[match[3]]
    whole: int = 10 ** len(decimals)
    return -(-scaled // (unit * whole))


def resources_of(gpus: int, cpus: int, mem_mib: int) -> Resources:
    """Amounts that were read. Raises ValueError: no job or node has so much."""
    if max(gpus, cpus, mem_mib) > _MOST:
        raise ValueError(f"{gpus} GPUs, {cpus} CPUs and {mem_mib} MiB are too much")
    return Resources(gpus, cpus, mem_mib)


def parse_limit_s(text: str) -> float | None:
    """A limit in seconds; inf = UNLIMITED or INVALID (over a year); None = not set."""
    word = text.strip().lower()
    # squeue and sacct print INVALID for more than 365 days
    if word in {"unlimited", "infinite", "invalid"}:
        return math.inf
    if absent(word) or word == "partition_limit":
        return None
    match = _CLOCK.fullmatch(word)
    if match is None:
        raise ValueError(f"{text[:SHOWN]!r} is no time limit")
    parts = [int(p) for p in match[2].split(":")]
    if match[1] is not None:  # D-HH[:MM[:SS]]
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:  # [[HH:]MM:]SS, and a bare number is minutes
        hours, minutes, seconds = [0, 0, *parts, *([0] if len(parts) == 1 else [])][-3:]
    total = ((int(match[1] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return float(total) if total > 0 else None


def asked_limit_s(text: str) -> float:
    """The limit that sbatch's --time gives a job, in seconds; inf = none. Zero is none, and seconds
    are rounded up to whole minutes. Raises ValueError: sbatch refuses it.
    """
    if text == "-1" or text.lower() in {"unlimited", "infinite"}:
        return math.inf
    clock = f"{text}0" if text.endswith("-") else text  # "2-" is two days
    if _CLOCK.fullmatch(clock) is None:
        raise ValueError(f"{text[:SHOWN]!r} is no time limit")
    seconds = parse_limit_s(clock)
    return math.inf if seconds is None else 60.0 * math.ceil(seconds / 60.0)


@lru_cache(maxsize=16_384)  # most of a job's moments are one, and the same in the next look
def parse_epoch(text: str) -> UnixTime | None:
    """Unix seconds; None = Slurm does not know (yet)."""
    if text.isascii() and text.isdigit() and len(text) <= _EPOCH_DIGITS:
        return None if text == "0" else UnixTime(float(text))
    if absent(text):
        return None
    raise ValueError(f"{text[:40]!r} is no Unix time")


_GRES_NAME: Final = re.compile(r"[A-Za-z0-9_./-]+")
_STEPPED: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")


def expand_hosts(text: str) -> tuple[NodeName, ...]:
    """Names of a hostlist as Slurm prints it; "(null)" and the like are no names."""
    return () if absent(text) else tuple(map(NodeName, host_names(text)))


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
    items = split_outside(text, "()")
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
    elif len(words) > 1 and _AMOUNT.fullmatch(words[-1]):
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
    found = [_STEPPED.fullmatch(part) for part in body.split(",")]
    ranges = tuple((int(m[1]), int(m[2] or m[1]), int(m[3] or 1)) for m in found if m is not None)
    good = len(ranges) == len(found) and all(a <= b and step > 0 for a, b, step in ranges)
    if not good or (percent and not (limit.isascii() and limit.isdigit())):
        raise ValueError(f"{text[:200]!r} are no array tasks")
    return Tasks(ranges=ranges, throttle=int(limit) if percent else None)


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


_WHOLE_EDGES: Final = frozenset({"afterok", "afterany", "after", "aftercorr"})
_EDGES: Final = _WHOLE_EDGES | {"afternotok", "afterburstbuffer"}
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
        whole &= kind in _WHOLE_EDGES and bool(found) and "".join(m[0] for m in found) == names
        for one in found:
            parents.setdefault(JobId(int(one[1])), kind)
            whole &= one[2] is None
    if len(parents) > MOST_PARENTS:
        return Dependency((), whole=False)
    return Dependency(tuple(sorted(parents.items())), whole)


_JOB_NAME: Final = re.compile(
    r"(?P<name>(?P<id>[1-9][0-9]{0,9})(?:_(?P<tasks>[0-9]{1,9}|\[.+\])|\+[0-9]{1,9})?)"
    r"(?:;(?P<cluster>[^;]+))?"
)
_AGO: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNIT_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job as squeue names it: an id, an array's tasks, a heterogeneous job's part. cluster: ""
    = whichever.

    An id alone stands for all records of its array. Tasks stand for the records that hold some of
    them: tasks that Slurm has not parted share one priority, and are restored together.
    """

    text: str
    job_id: int
    tasks: Tasks | None
    cluster: str = ""

    def is_on(self, cluster: str) -> bool:
        """Whether a job of this cluster may be meant."""
        return self.cluster in {"", cluster}

    def means(self, job: PendingJob) -> bool:
        """Whether a job of the queue is meant."""
        array = job.array
        return self.text in {job.address, str(job.job_id)} or (
            array is not None and self._holds(str(array.array_job_id), array.listed)
        )

    def named(self, job_id: int, address: str) -> bool:
        """The same of a row of the journal, which knows a record by its id and address only."""
        array, _, tasks = address.partition("_")
        leader, plus, _ = array.partition("+")
        return self.text in {address, str(job_id)} or (
            not (plus and self.tasks) and self._holds(leader, tasks)
        )

    def _holds(self, array: str, tasks: str) -> bool:
        """Whether it stands for some of these tasks of an array; empty = all."""
        if array != str(self.job_id):
            return False
        if self.tasks is None:
            return self.text == array
        return not tasks or parse_tasks(tasks).meets(self.tasks)


def asked_job(text: str) -> AskedJob:
    """Read a job's name. Raises ValueError: it is none."""
    match = _JOB_NAME.fullmatch(text)
    tasks, cluster = (match["tasks"], match["cluster"]) if match else (None, None)
    if tasks is not None and tasks.endswith("...]"):  # squeue cuts "[1-40,50,6...]"
        tasks = tasks[: tasks.rfind(",")]
    with suppress(ValueError):
        if match is not None:
            listed = None if tasks is None else parse_tasks(tasks)
            return AskedJob(match["name"], int(match["id"]), listed, cluster or "")
    raise ValueError(f"{text[:80]!r} is no job: 4711, 4711_4 or 4711+1")


def asked_span_s(text: str) -> float | None:
    """Seconds of "2h" (s, m, h, d); None = it is no length of time."""
    found = _AGO.fullmatch(text)
    return None if found is None else int(found["count"]) * _UNIT_S[found["unit"]]


def asked_moment(text: str, now: float) -> float:
    """Unix time of "2h" (ago; s, m, h, d) or an ISO time, local if bare. Raises ValueError: it is
    none, or lies before 1970.
    """
    ago_s = asked_span_s(text)
    try:
        found = datetime.fromisoformat(text).timestamp() if ago_s is None else now - ago_s
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:80]!r} is no time: 2h, 30m or 2026-01-31T12:00") from None
    if found < 0:
        raise ValueError(f"{text[:80]!r} lies before 1970")
    return found
