# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""What a network sees of the queue: the numbers of core/features and core/pools, compiled."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import numpy as np

from rltuned.core.features import CFF_HIGH, COLUMN, FIXED, SEVERAL_WAYS, URGENT_HALF_S, WAIT_FULL_S
from rltuned.core.pools import FUTURE_HORIZON_S, WAYS_CAP
from rltuned.lab.kernel.compiler import (
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    compiled,
    in_place,
)
from rltuned.lab.kernel.placement import ways
from rltuned.lab.kernel.state import LOOKS, RUNNING, Setup, State
from rltuned.policies.actor import correction

WAYS, FREE, ALL, BACK, IDLE = 0, 1, 2, 3, 4
"""Columns of Features.survey."""
LOG_WAIT_FULL = math.log1p(WAIT_FULL_S)
FRAGMENTED, SEVERAL = 0, 1
"""Places in the flags: what the two sampled slots of the paper's observation hold."""


class StaticFeatures(NamedTuple):
    """What a policy may know and what never changes. S shapes, P partitions, T GPU types, n jobs.

    wanted: (S, T+1) rows of GPU types that a request accepts. all_gpus, nodes: (P, T+1) of the
    hardware. fixed: (n, F) the columns of policies/actor that do not depend on the moment,
    others zero.
    """

    wanted: BoolArray
    all_gpus: IntArray
    nodes: IntArray
    fixed: Float32Array


class Features(NamedTuple):
    """The features of a queue at one moment, and work space. survey: (S, 5); surveyed: (S,) the
    look at which each shape was surveyed. sums: (P, T+1, 3). back: (T+1, N). rows: (n, F).
    """

    survey: FloatArray
    surveyed: IntArray
    sums: FloatArray
    back: FloatArray
    rows: Float32Array


@in_place
def look(
    setup: Setup,
    state: State,
    sight: StaticFeatures,
    features: Features,
    queue: IntArray,
    now: float,
    flags: IntArray,
) -> None:
    """Fill features.rows for the jobs in queue, and flags with what the slots hold."""
    _tally(setup, state, features, now)
    cff = _fragmentation(setup, state)
    state.counters[LOOKS] += 1
    several, number = 0, state.counters[LOOKS]
    shape_of, surveyed, survey = setup.jobs.shape, features.surveyed, features.survey
    for job in queue:
        shape = shape_of[job]
        if surveyed[shape] != number:
            surveyed[shape] = number
            _survey(setup, state, sight, features, shape)
        if survey[shape, WAYS] >= SEVERAL_WAYS:
            several = 1
    _rows(setup, sight, features, queue, cff, now)
    flags[FRAGMENTED] = 1 if np.float32(cff) >= CFF_HIGH else 0
    flags[SEVERAL] = several


@in_place
def _tally(setup: Setup, state: State, features: Features, now: float) -> None:
    """features.sums: (P, T+1, 3) free GPUs, GPUs due back, wholly free nodes."""
    hardware, free, sums, back = setup.hardware, state.free, features.sums, features.back
    _due_back(setup, state, back, now)
    sums[:] = 0.0
    none = sums.shape[1] - 1
    for node in range(len(free.gpus)):
        idle = (
            free.gpus[node] == hardware.total.gpus[node]
            and free.cpus[node] == hardware.total.cpus[node]
            and free.mem_mib[node] == hardware.total.mem_mib[node]
        )
        for partition in range(sums.shape[0]):
            if not hardware.member[partition, node]:
                continue
            sums[partition, none, 2] += idle
            for row in range(none):
                if hardware.total.of_type[row, node] > 0:
                    sums[partition, row, 0] += free.of_type[row, node]
                    sums[partition, row, 1] += back[row, node]
                    sums[partition, row, 2] += idle


@in_place
def _due_back(setup: Setup, state: State, back: FloatArray, now: float) -> None:
    """Fill back (T+1, N) with the GPUs that running jobs must return within the horizon."""
    shares, of_type = state.shares, setup.hardware.total.of_type
    back[:] = 0.0
    for i in range(state.counters[RUNNING]):
        if state.latest[i] > now + FUTURE_HORIZON_S:
            break
        job = state.running[i]
        offset = setup.jobs.offset[job]
        for at in range(offset, offset + setup.shapes.width[setup.jobs.shape[job]]):
            node, row = shares.node[at], shares.row[at]
            if row >= 0:
                back[row, node] += shares.gpus[at]
                continue
            for one in range(len(of_type)):
                back[one, node] += of_type[one, node]


@in_place
def _fragmentation(setup: Setup, state: State) -> float:
    squares, free = 0.0, 0.0
    for node in range(len(state.free.gpus)):
        there = float(state.free.gpus[node]) if state.usable[node] else 0.0
        free += there
        squares += there * there / max(setup.hardware.total.gpus[node], 1)
    return 0.0 if free == 0.0 else 1.0 - squares / free


@in_place
def _survey(
    setup: Setup, state: State, sight: StaticFeatures, features: Features, shape: int
) -> None:
    partition = setup.shapes.partition[shape]
    found = features.survey[shape]
    found[:] = 0.0
    nodes = 0.0
    for row in range(sight.wanted.shape[1]):
        if sight.wanted[shape, row]:
            found[FREE] += features.sums[partition, row, 0]
            found[BACK] += features.sums[partition, row, 1]
            found[IDLE] += features.sums[partition, row, 2]
            found[ALL] += sight.all_gpus[partition, row]
            nodes += sight.nodes[partition, row]
        if setup.shapes.accepts[shape, row]:
            found[WAYS] += ways(setup.shapes, shape, setup.hardware, state.free, row, WAYS_CAP)
    found[IDLE] /= max(nodes, 1.0)


@in_place
def _rows(
    setup: Setup, sight: StaticFeatures, features: Features, queue: IntArray, cff: float, now: float
) -> None:
    """Arrays are taken out of their structures once: each touch in the loop would cost."""
    rows, fixed, survey = features.rows, sight.fixed, features.survey
    shape_of, submit_s, gpus_of = setup.jobs.shape, setup.jobs.submit_s, setup.shapes.gpus
    scraps, width = min(max(cff, 0.0), 1.0), fixed.shape[1]
    for at in range(len(queue)):
        job = queue[at]
        shape = shape_of[job]
        gpus, ways, free = float(gpus_of[shape]), survey[shape, WAYS], survey[shape, FREE]
        wait_s = max(now - submit_s[job], 0.0)
        for i in range(width):
            rows[at, i] = fixed[job, i]
        rows[at, 2] = min(math.log1p(wait_s) / LOG_WAIT_FULL, 1.0)
        rows[at, 5] = survey[shape, IDLE]
        rows[at, 6] = 1.0 if ways > 0 else 0.0
        rows[at, 7] = min(ways, float(WAYS_CAP)) / WAYS_CAP
        rows[at, 8] = gpus / max(gpus + free, 1.0)
        rows[at, 10] = wait_s / (wait_s + URGENT_HALF_S)
        ahead = (free - gpus + survey[shape, BACK]) / max(survey[shape, ALL], 1.0)
        rows[at, 11] = min(max((ahead + 1.0) / 2.0, 0.0), 1.0)
        rows[at, 12] = scraps


# policies/actor, compiled: scores of a whole queue in one go.


PAPER, QUEUE, AGENT = 0, 1, 2
BLOCK = 256
_FIXED_AT = np.array([COLUMN[name] for name in FIXED])
factor: Final = cast("Callable[[float, float, float], float]", in_place(correction))
"""What a network makes of the delay that the rule asks for: reach, trust, score."""
_SIZE, _URGENCY = COLUMN["job_size"], COLUMN["urgency"]
_WAYS, _FREE_NODES = COLUMN["num_ways"], COLUMN["free_nodes"]


class Net(NamedTuple):
    """A network's weights. F inputs, H and K hidden units, O outputs; kind: see PAPER, or AGENT,
    whose scores come from elsewhere; reach, trust: see Network. w1 (F, H), b1 (H,), w2 (H, K),
    b2 (K,), w3 (K, O), b3 (O,).
    """

    kind: int
    w1: Float32Array
    b1: Float32Array
    w2: Float32Array
    b2: Float32Array
    w3: Float32Array
    b3: Float32Array
    reach: float
    trust: float


@compiled
def forward(net: Net, rows: Float32Array, count: int, flags: IntArray, scores: FloatArray) -> None:
    """Fill scores[:count] (n, 2) from the features of the queue; one output stands in both columns.

    A block of jobs at a time, so that what a layer needs stays in the nearest cache.
    """
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        _together(net, rows[first:last], last - first, flags, scores[first:last])


@compiled
def _together(
    net: Net, rows: Float32Array, count: int, flags: IntArray, scores: FloatArray
) -> None:
    seen = np.empty((len(net.w1), count), dtype=np.float32)
    _turn(net.kind, rows, count, flags, seen)
    hidden = np.empty((len(net.b1), count), dtype=np.float32)
    _dense(net.w1, net.b1, seen, hidden)
    second = np.empty((len(net.b2), count), dtype=np.float32)
    _dense(net.w2, net.b2, hidden, second)
    total = np.empty(count, dtype=np.float32)
    for out in range(len(net.b3)):
        total[:] = 0.0
        for k in range(len(second)):
            weight = net.w3[k, out]
            for at in range(count):
                total[at] += second[k, at] * weight
        last = net.b3[out]
        for at in range(count):
            scores[at, out] = total[at] + last
    if len(net.b3) == 1:
        scores[:, 1] = scores[:, 0]


@in_place
def _turn(kind: int, rows: Float32Array, count: int, flags: IntArray, seen: Float32Array) -> None:
    """What the first layer reads, one feature after the other: jobs side by side."""
    if kind == PAPER:
        fragmented, several = flags[FRAGMENTED], flags[SEVERAL]
        for at in range(count):
            for i in range(len(_FIXED_AT)):
                seen[i, at] = rows[at, _FIXED_AT[i]]
            size, urgency = np.float32(1.0) - rows[at, _SIZE], rows[at, _URGENCY]
            seen[6, at] = size if fragmented else urgency
            seen[7, at] = rows[at, _WAYS] if several else rows[at, _FREE_NODES]
        return
    for at in range(count):
        for i in range(len(seen)):
            seen[i, at] = rows[at, i]


@in_place
def _dense(
    weights: Float32Array, bias: Float32Array, seen: Float32Array, out: Float32Array
) -> None:
    """Out (K, n) = max(weights' @ seen + bias, 0) of seen (F, n).

    The innermost loop runs over jobs, four features at a time, summed in their order: the machine
    does many jobs at once, and the sums are those of the plain loop to the last bit.
    """
    features, units = weights.shape
    count, whole = seen.shape[1], features - features % 4
    for k in range(units):
        for at in range(count):
            out[k, at] = bias[k]
        for i in range(0, whole, 4):
            a, b, c, d = weights[i, k], weights[i + 1, k], weights[i + 2, k], weights[i + 3, k]
            for at in range(count):
                total = out[k, at] + a * seen[i, at]
                total = total + b * seen[i + 1, at] + c * seen[i + 2, at]
                out[k, at] = total + d * seen[i + 3, at]
        for i in range(whole, features):
            a = weights[i, k]
            for at in range(count):
                out[k, at] += a * seen[i, at]
        for at in range(count):
            out[k, at] = max(out[k, at], np.float32(0.0))


@compiled
def corrects(net: Net) -> bool:
    """Whether a network corrects a rule; else its score alone is the order."""
    return net.reach > 0.0
