"""What Slurm's sched/backfill plans: its parameters, and which nodes are reserved when.

The plan of a pass is a table of records in order of time, each with the whole nodes that are
reserved then; what runs is not in it. Sets of nodes are words of BITS bits, so that a look at
hundreds of records is short. The functions take arrays and call none of each other: plain Python
can call them, and the kernel compiles them.

The rules are those of src/plugins/sched/backfill and of select/cons_tres in Slurm 22.05 to 26.05,
see docs/simulator.md for what is left out.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

BITS: Final = 32
MINUTE_S: Final = 60.0
YEAR_S: Final = 365 * 86_400.0
"""How long a job without a limit is planned for."""
FIRST_WINDOW_S: Final = 30.0
"""Ends of running jobs are looked at together: at first those of a half minute and one more."""
NEWER: Final = (24, 11)
"""From this release on the end of a reservation is rounded up, before it down; and what is tested
again later is so too where nothing becomes free up to the job's own end, see look_between."""
OWN_ENDS: Final = (25, 5, 1)
"""From this release on a job waits for the last end on the nodes chosen for it; before, for the
last end of the group with which it first fitted (_get_last_relevant_job in select/cons_tres)."""
_MOST: Final = 1_000_000


class Parameters(NamedTuple):
    """SchedulerParameters by Slurm's names, with its defaults; flags are 0 or 1. Seconds, but
    bf_window in minutes. bf_node_space_size 0: as bf_max_job_test. ends_up,
    looks_on: see NEWER; own_ends: see OWN_ENDS.
    """

    bf_interval: int = 30
    bf_window: int = 1_440
    bf_resolution: int = 60
    bf_max_job_test: int = 500
    bf_max_job_start: int = 0
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_user_part: int = 0
    bf_max_job_assoc: int = 0
    bf_job_part_count_reserve: int = 0
    bf_min_age_reserve: int = 0
    bf_min_prio_reserve: int = 0
    bf_node_space_size: int = 0
    bf_window_linear: int = 0
    bf_busy_nodes: int = 0
    default_queue_depth: int = 100
    sched_interval: int = 60
    ends_up: int = 1
    looks_on: int = 1
    own_ends: int = 1


_SPANS: Final = {
    "bf_interval": (1, 10_800),
    "bf_window": (1, 43_200),
    "bf_resolution": (1, 3_600),
    "bf_max_job_test": (1, _MOST),
    "bf_node_space_size": (2, 2 * _MOST),
    "bf_min_age_reserve": (0, 2_592_000),
    "bf_min_prio_reserve": (0, 2**32 - 1),
    "bf_busy_nodes": (0, 1),
    "default_queue_depth": (1, _MOST),
    "sched_interval": (1, 86_400),
}
"""Smallest and largest value; of the others 0 and _MOST."""
_OFF: Final = frozenset({"bf_interval", "sched_interval"})
"""-1 = never."""
NAMES: Final = Parameters._fields[: Parameters._fields.index("ends_up")]


def with_parameter(parameters: Parameters, text: str) -> Parameters:
    """The same with one `name=value`, or the name of a flag. Raises ValueError: no such parameter
    is played, or not with that value.
    """
    name, given, value = text.partition("=")
    if name not in NAMES:
        raise ValueError(f"{name!r} is not played; there are {', '.join(NAMES)}")
    if not given and name == "bf_busy_nodes":
        value = "1"
    low, high = _SPANS.get(name, (0, _MOST))
    number = int(value) if value.removeprefix("-").isdecimal() else None
    if number is None or not (low <= number <= high or (name in _OFF and number == -1)):
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return parameters._replace(**{name: number})


def read_parameters(
    text: str, release: tuple[int, ...] | None = None
) -> tuple[Parameters, tuple[str, ...]]:
    """Of SchedulerParameters, with Slurm's own value in place of one that cannot be; and the
    `bf_` options that are not played. release: None = the newest.
    """
    newer = int(release is None or tuple(release[:2]) >= NEWER)
    own_ends = int(release is None or tuple(release[:3]) >= OWN_ENDS)
    found = Parameters(ends_up=newer, looks_on=newer, own_ends=own_ends)
    others = []
    for option in filter(None, text.split(",")):
        try:
            found = with_parameter(found, option)
        except ValueError:
            if option.startswith("bf_") and option != "bf_continue":
                others.append(option)
    return found, tuple(others)


def parameters_text(parameters: Parameters) -> str:
    """Those that differ from Slurm's defaults, as in SchedulerParameters."""
    usual = Parameters()
    return ",".join(
        f"{name}={getattr(parameters, name)}"
        for name in NAMES
        if getattr(parameters, name) != getattr(usual, name)
    )


def planned_limits_s(limit_s: Iterable[float] | FloatArray) -> FloatArray:
    """(n,) limits as Slurm plans: whole minutes, rounded up; a year where there is none."""
    found: FloatArray = np.ceil(np.asarray(limit_s, dtype=np.float64) / MINUTE_S) * MINUTE_S
    return np.where(np.isinf(found), YEAR_S, found)


class NodeSpace(NamedTuple):
    """The plan of a pass as a table of records, sizes[RECORDS] of at most R - 1: from when to when
    which nodes are reserved. N nodes, W words of them; P partitions.

    begin_s: (R,) where each record begins, which is where the one before it ends, and behind the
    last one the end of the window. held: (R, W) reserved nodes. ours, mask: (W,) nodes of the job's
    partition, and work space. shut: (P,) partitions in which nothing starts any more in this main
    pass; blocked: (N,) their nodes. reserved: (P,) reservations of each. by_user, by_part, by_both,
    by_assoc: (U,), (P,), (U P,), (A,) jobs that were tested.
    """

    begin_s: FloatArray
    held: IntArray
    ours: IntArray
    mask: IntArray
    sizes: IntArray
    shut: IntArray
    blocked: IntArray
    reserved: IntArray
    by_user: IntArray
    by_part: IntArray
    by_both: IntArray
    by_assoc: IntArray


RECORDS, SPLITS, TESTED = 0, 1, 2
"""Places in NodeSpace.sizes: records now, records that were ever made, jobs that were tested."""


def empty_plan(
    reservations: int, nodes: int, partitions: int, users: int, associations: int
) -> NodeSpace:
    """Room for so many reservations, and counts."""

    def ints(*shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    words, records = -(-nodes // BITS), 2 * reservations + 2
    return NodeSpace(
        begin_s=np.zeros(records),
        held=ints(records, words),
        ours=ints(words),
        mask=ints(words),
        sizes=ints(3),
        shut=ints(partitions),
        blocked=ints(nodes),
        reserved=ints(partitions),
        by_user=ints(users),
        by_part=ints(partitions),
        by_both=ints(users * partitions),
        by_assoc=ints(associations),
    )


def clear(plan: NodeSpace, from_s: float, until_s: float) -> None:
    """A new pass: nothing is reserved or counted."""
    plan.begin_s[0], plan.begin_s[1] = from_s, until_s
    plan.held[0] = 0
    plan.sizes[RECORDS], plan.sizes[SPLITS], plan.sizes[TESTED] = 1, 1, 0
    plan.reserved[:] = 0
    plan.by_user[:] = 0
    plan.by_part[:] = 0
    plan.by_both[:] = 0
    plan.by_assoc[:] = 0


def look_between(  # noqa: C901 - one walk, as Slurm's
    plan: NodeSpace, from_s: float, to_s: float, looks_on: int
) -> float:
    """Fill mask with what is reserved from from_s to to_s, that moment too. Returns when to look
    next; infinite = never: at the end of the first record behind which a node of `ours` is free
    that is not so before; with looks_on, where there is none up to to_s, of the second record
    behind it.
    """
    mask, held, begin_s, ours = plan.mask, plan.held, plan.begin_s, plan.ours
    later_s, last = math.inf, plan.sizes[RECORDS] - 1
    mask[:] = 0
    for at in range(last + 1):
        if begin_s[at + 1] <= from_s:
            continue
        if later_s == math.inf and at < last:
            for word in range(len(mask)):
                if ours[word] & (mask[word] | held[at, word]) & ~held[at + 1, word]:
                    later_s = begin_s[at + 1]
                    break
        if begin_s[at] > to_s:
            if looks_on and later_s == math.inf and at + 1 < last:
                later_s = begin_s[at + 2]
            break
        for word in range(len(mask)):
            mask[word] |= held[at, word]
    return float(later_s)


def overlaps(plan: NodeSpace, begin_s: float, end_s: float) -> bool:
    """Whether a node of mask is reserved in that time."""
    mask, held = plan.mask, plan.held
    for at in range(plan.sizes[RECORDS]):
        if plan.begin_s[at] < end_s and plan.begin_s[at + 1] > begin_s:
            for word in range(len(mask)):
                if mask[word] & held[at, word]:
                    return True
    return False


def split(plan: NodeSpace, time_s: float) -> None:
    """Let a record begin then, within the window."""
    begin_s, held, count = plan.begin_s, plan.held, plan.sizes[RECORDS]
    if not begin_s[0] < time_s < begin_s[count]:
        return
    at = count - 1
    while begin_s[at] > time_s:
        at -= 1
    if begin_s[at] == time_s:
        return
    for other in range(count, at, -1):
        begin_s[other + 1] = begin_s[other]
        for word in range(held.shape[1]):
            held[other, word] = held[other - 1, word]
    begin_s[at + 1] = time_s
    plan.sizes[RECORDS] += 1
    plan.sizes[SPLITS] += 1


def hold(plan: NodeSpace, from_s: float, until_s: float) -> None:
    """Reserve the nodes of mask in the records of that time, and join records that are alike."""
    begin_s, held, mask, kept = plan.begin_s, plan.held, plan.mask, 0
    for at in range(plan.sizes[RECORDS]):
        if begin_s[at] >= from_s and begin_s[at + 1] <= until_s:
            for word in range(len(mask)):
                held[at, word] |= mask[word]
    for at in range(1, plan.sizes[RECORDS] + 1):
        alike = at < plan.sizes[RECORDS]
        for word in range(len(mask)):
            alike = alike and held[at, word] == held[kept, word]
        if not alike:
            kept += 1
            begin_s[kept] = begin_s[at]
            for word in range(len(mask) if at < plan.sizes[RECORDS] else 0):
                held[kept, word] = held[at, word]
    plan.sizes[RECORDS] = kept


def slot(start_s: float, limit_s: float, resolution_s: int, ends_up: int) -> tuple[float, float]:
    """From when to when a job that starts then holds its nodes in the plan: one step at least."""
    begin_s = math.floor(start_s / resolution_s) * resolution_s
    end_s = (start_s + limit_s) / resolution_s
    end_s = (math.ceil(end_s) if ends_up else math.floor(end_s)) * resolution_s
    return float(begin_s), float(max(end_s, begin_s + resolution_s))


def wider(window_s: float, linear_s: int) -> float:
    """The next window in which ends of running jobs are looked at together."""
    return window_s + linear_s if linear_s else 2.0 * window_s


def within(has: IntArray, at: int, most: int) -> bool:
    """Whether one more job may be tested; most 0 = any number."""
    return bool(most == 0 or has[at] < most)


def is_multiple(now: float, interval_s: int) -> bool:
    """Whether a pass that comes every so many seconds comes now; -1 = it never does."""
    return bool(interval_s > 0 and math.floor(now / interval_s) * interval_s == now)


def next_multiple(now: float, interval_s: int) -> float:
    """The first moment after now at which such a pass comes."""
    return (math.floor(now / interval_s) + 1.0) * interval_s if interval_s > 0 else math.inf
