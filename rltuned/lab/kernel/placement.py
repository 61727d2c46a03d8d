# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""Placement by core/cluster, compiled, and the EASY pass."""

import numpy as np

from rltuned.core import cluster
from rltuned.core.cluster import Amounts, Ask
from rltuned.lab.kernel.compiler import IntArray, compiled, in_place, with_inner
from rltuned.lab.kernel.state import (
    PASS,
    RUNNING,
    STARTS,
    Hardware,
    Setup,
    Shapes,
    Shares,
    State,
    Verdicts,
    copy_free,
    later_of,
    stamp,
)

even = in_place(cluster.even)
_able = compiled(with_inner(cluster.able, idle=compiled(cluster.idle)))
_choose = compiled(with_inner(cluster.choose, able=_able))
_place = compiled(with_inner(cluster.place, choose=_choose, first=compiled(cluster.first)))


@in_place
def ask_of(shapes: Shapes, shape: int) -> Ask:
    """Read one row of the shapes."""
    return Ask(
        shapes.gpus[shape],
        shapes.width[shape],
        shapes.low[shape],
        shapes.larger[shape],
        shapes.cpus_each[shape],
        shapes.mem_each[shape],
        shapes.exclusive[shape],
    )


@in_place
def fits(shapes: Shapes, shape: int, hardware: Hardware, free: Amounts) -> bool:
    """Whether a job of this shape could start."""
    for row in range(shapes.accepts.shape[1]):
        if shapes.accepts[shape, row] and ways(shapes, shape, hardware, free, row, 1) > 0:
            return True
    return False


@in_place
def ways(shapes: Shapes, shape: int, hardware: Hardware, free: Amounts, row: int, most: int) -> int:
    """Disjoint sets of nodes of one GPU type that carry the shape now; counting ends at `most`.

    Node by node, where `able` looks at all: that would take twice the time of a play of Slurm's
    backfill, which asks this far more often than it places.
    """
    ask, member = ask_of(shapes, shape), hardware.member[shapes.partition[shape]]
    free_gpus, free_cpus, free_mem = free.gpus, free.cpus, free.mem_mib
    total = hardware.total
    gpus, cpus, mem_mib = total.gpus, total.cpus, total.mem_mib
    have, has = free.of_type[row], total.of_type[row]
    with_low, with_more = 0, 0
    for node in range(len(free_gpus)):
        there, its_cpus, its_mem = have[node], free_cpus[node], free_mem[node]
        if there < ask.low or not member[node] or (ask.gpus > 0 and has[node] == 0):
            continue
        if its_cpus < ask.cpus_each or its_mem < ask.mem_each:
            continue
        idle = free_gpus[node] == gpus[node] and its_cpus == cpus[node] and its_mem == mem_mib[node]
        if ask.exclusive and not idle:
            continue
        with_low += 1
        with_more += there > ask.low
        if with_low >= most * ask.width and with_more >= ask.larger:
            return most
    if with_low < ask.width or with_more < ask.larger:
        return 0
    return int(with_low // ask.width)


@in_place
def place(
    shapes: Shapes, shape: int, hardware: Hardware, free: Amounts, spread: bool, chosen: IntArray
) -> bool:
    """Fill chosen[:width] with nodes, larger shares first, chosen[-1] with the GPU type."""
    member = hardware.member[shapes.partition[shape]]
    sign = -1 if spread else 1
    ask = ask_of(shapes, shape)
    chosen[-1] = _place(ask, shapes.accepts[shape], member, hardware.total, free, sign, chosen)
    return bool(chosen[-1] >= 0)


@in_place
def record(
    shapes: Shapes, shape: int, hardware: Hardware, chosen: IntArray, offset: int, shares: Shares
) -> None:
    """Write down the amounts of a placement: even, larger first; whole nodes when exclusive."""
    width = shapes.width[shape]
    for i in range(width):
        node, at = chosen[i], offset + i
        shares.node[at] = node
        shares.row[at] = -1 if shapes.exclusive[shape] else chosen[-1]
        if shapes.exclusive[shape]:
            shares.gpus[at] = hardware.total.gpus[node]
            shares.cpus[at] = hardware.total.cpus[node]
            shares.mem_mib[at] = hardware.total.mem_mib[node]
        else:
            shares.gpus[at] = even(shapes.gpus[shape], width, i)
            shares.cpus[at] = even(shapes.cpus[shape], width, i)
            shares.mem_mib[at] = even(shapes.mem_mib[shape], width, i)


@in_place
def move(
    hardware: Hardware, free: Amounts, shares: Shares, offset: int, width: int, sign: int
) -> None:
    """Give (sign 1) or take (sign -1) the shares of one job."""
    for at in range(offset, offset + width):
        node, row = shares.node[at], shares.row[at]
        if row >= 0:
            free.of_type[row, node] += sign * shares.gpus[at]
        else:
            for one in range(len(free.of_type)):
                free.of_type[one, node] += sign * hardware.total.of_type[one, node]
        free.gpus[node] += sign * shares.gpus[at]
        free.cpus[node] += sign * shares.cpus[at]
        free.mem_mib[node] += sign * shares.mem_mib[at]


# One EASY pass, by the rules of core/placement.easy_backfill. It remembers what cannot have
# changed: without that a play of Philly takes 4.3 times as long, of Mira 2.4 times.


@in_place
def may_start(
    verdicts: Verdicts,
    family: int,
    width: int,
    latest_end: float,
    passed: int,
    moment: int,
    headed: bool,
) -> bool:
    """Whether a job might start, or become a head by not fitting, for all that is known of its
    family. passed, moment: the pass, and its stamp; headed: its partition has a head.
    """
    if headed:
        if verdicts.failed[family] == passed and width >= verdicts.failed_from[family]:
            return False
    elif width > verdicts.fits_to[family]:
        return True
    is_refused = verdicts.refused[family] == moment and width >= verdicts.refused_from[family]
    return bool(not is_refused or latest_end <= verdicts.until_s[family])


@in_place
def consider(setup: Setup, state: State, now: float, job: int) -> bool:
    """Start the job if it may start now; else it may become its partition's head."""
    shape = setup.jobs.shape[job]
    partition = setup.shapes.partition[shape]
    latest_end = now + setup.jobs.limit_s[job]
    heads, restraint = restraints(setup, state, latest_end, partition)
    if has_failed(setup.shapes, state, shape) or not place(
        setup.shapes, shape, setup.hardware, state.free, setup.spread, state.chosen
    ):
        note_failed(setup.shapes, state, shape)
        if state.head[partition] < 0:
            reserve(setup, state, job)
        return False
    if heads > 0 and not setup.easy:
        _note_refused(setup.shapes, state, shape, -np.inf)
        return False
    record(setup.shapes, shape, setup.hardware, state.chosen, setup.jobs.offset[job], state.shares)
    if restraint:
        until_s = harmless_until(setup, state, job, latest_end)
        if latest_end > until_s:
            _note_refused(setup.shapes, state, shape, until_s)
            return False
    start(setup, state, now, job)
    return True


@in_place
def has_failed(shapes: Shapes, state: State, shape: int) -> bool:
    """Whether it is known that a shape does not fit, in this pass."""
    verdicts, family = state.verdicts, shapes.family[shape]
    known = verdicts.failed[family] == state.counters[PASS]
    return bool(known and shapes.width[shape] >= verdicts.failed_from[family])


@in_place
def note_failed(shapes: Shapes, state: State, shape: int) -> None:
    """A shape does not fit: nor will it in this pass, which only takes."""
    verdicts, family, width = state.verdicts, shapes.family[shape], shapes.width[shape]
    if verdicts.failed[family] == state.counters[PASS]:
        width = min(width, verdicts.failed_from[family])
    verdicts.failed[family], verdicts.failed_from[family] = state.counters[PASS], width


@in_place
def _note_refused(shapes: Shapes, state: State, shape: int, until_s: float) -> None:
    """A shape that fits may start only if it ends by a time, until the next one starts."""
    verdicts, family, width = state.verdicts, shapes.family[shape], shapes.width[shape]
    moment, fits_to = stamp(state), width
    if verdicts.refused[family] == moment:
        verdicts.fits_to[family] = max(width, verdicts.fits_to[family])
        if width >= verdicts.refused_from[family]:
            return
        fits_to = verdicts.fits_to[family]
    verdicts.refused[family], verdicts.refused_from[family] = moment, width
    verdicts.fits_to[family], verdicts.until_s[family] = fits_to, until_s


@in_place
def restraints(setup: Setup, state: State, latest_end: float, partition: int) -> tuple[int, bool]:
    """How many heads are near, and whether the job would outlast one's shadow time."""
    heads, restraint = 0, False
    for other in range(len(state.head)):
        if state.head[other] >= 0 and setup.hardware.near[partition, other]:
            heads += 1
            restraint = restraint or latest_end > state.shadow_s[other]
    return heads, restraint


@in_place
def harmless_until(setup: Setup, state: State, job: int, latest_end: float) -> float:
    """By when a job must end where it is recorded to go: the first shadow time of those heads that
    would not fit beside it then; infinite = it may take as long as it does.
    """
    shape = setup.jobs.shape[job]
    offset, width = setup.jobs.offset[job], setup.shapes.width[shape]
    near, until_s = setup.hardware.near[setup.shapes.partition[shape]], np.inf
    for other in range(len(state.head)):
        head, shadow_s = state.head[other], state.shadow_s[other]
        if head < 0 or not near[other] or latest_end <= shadow_s or shadow_s >= until_s:
            continue
        later = later_of(state, other)
        move(setup.hardware, later, state.shares, offset, width, -1)
        if not fits(setup.shapes, setup.jobs.shape[head], setup.hardware, later):
            until_s = shadow_s
        move(setup.hardware, later, state.shares, offset, width, 1)
    return until_s


@in_place
def start(setup: Setup, state: State, now: float, job: int) -> None:
    """The job runs on the nodes that are recorded for it."""
    offset, width = setup.jobs.offset[job], setup.shapes.width[setup.jobs.shape[job]]
    latest_end = now + setup.jobs.limit_s[job]
    move(setup.hardware, state.free, state.shares, offset, width, -1)
    for other in range(len(state.head)):
        if state.head[other] >= 0 and latest_end > state.shadow_s[other]:
            move(setup.hardware, later_of(state, other), state.shares, offset, width, -1)
    count = state.counters[RUNNING]
    at = np.searchsorted(state.latest[:count], latest_end)
    for i in range(count, at, -1):
        state.latest[i], state.running[i] = state.latest[i - 1], state.running[i - 1]
    state.latest[at], state.running[at] = latest_end, job
    state.start_s[job] = now
    state.counters[RUNNING] += 1
    state.counters[STARTS] += 1


@in_place
def finish(setup: Setup, state: State, job: int) -> None:
    """A running job ends and returns what it holds."""
    shape = setup.jobs.shape[job]
    offset, width = setup.jobs.offset[job], setup.shapes.width[shape]
    move(setup.hardware, state.free, state.shares, offset, width, 1)
    count = state.counters[RUNNING]
    at = np.searchsorted(state.latest[:count], state.start_s[job] + setup.jobs.limit_s[job])
    while state.running[at] != job:
        at += 1
    for i in range(at, count - 1):
        state.latest[i], state.running[i] = state.latest[i + 1], state.running[i + 1]
    state.counters[RUNNING] -= 1


@in_place
def reserve(setup: Setup, state: State, job: int) -> None:
    """Make the job its partition's head: when will it fit at the latest, and beside whom?"""
    shape = setup.jobs.shape[job]
    partition = setup.shapes.partition[shape]
    state.head[partition] = job
    later = later_of(state, partition)
    copy_free(state.free, later)
    needed = _ends_needed(setup, state, shape, later)
    if needed < 0:
        state.shadow_s[partition] = np.inf
        return
    state.shadow_s[partition] = state.latest[needed - 1]
    together = needed
    while together < state.counters[RUNNING] and state.latest[together] == state.latest[needed - 1]:
        together += 1
    _shift(setup, state, later, needed, together)


@in_place
def _ends_needed(setup: Setup, state: State, shape: int, later: Amounts) -> int:
    """How many running jobs, by latest end, must be gone for the shape to fit; -1 = never.

    Leaves in `later` what is free then. Gallops ahead, then halves the last stride: the cost
    follows how far ahead the answer lies, not how many jobs run.
    """
    hardware, shapes, running = setup.hardware, setup.shapes, state.counters[RUNNING]
    low, high, stride = 0, 0, 1
    while True:
        if high == running:
            return -1
        low, high = high, min(running, high + stride)
        _shift(setup, state, later, low, high)
        if fits(shapes, shape, hardware, later):
            break
        stride *= 2
    at = high  # what `later` stands at; fits at high, not at low
    while high - low > 1:
        middle = (low + high) // 2
        _shift(setup, state, later, at, middle)
        at = middle
        if fits(shapes, shape, hardware, later):
            high = middle
        else:
            low = middle
    _shift(setup, state, later, at, high)
    return int(high)


@in_place
def _shift(setup: Setup, state: State, later: Amounts, old: int, new: int) -> None:
    """Turn `running[:old]` gone into `running[:new]` gone."""
    first, last, sign = (old, new, 1) if new > old else (new, old, -1)
    shape_of, offset, width = setup.jobs.shape, setup.jobs.offset, setup.shapes.width
    running = state.running
    for i in range(first, last):
        job = running[i]
        move(setup.hardware, later, state.shares, offset[job], width[shape_of[job]], sign)
