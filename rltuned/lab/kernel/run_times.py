# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""core/run_times, compiled: what a simulated scheduler learns from the jobs that end."""

import heapq
import math
from typing import Final, NamedTuple

import numpy as np

from rltuned.core import backlog, limits, run_times
from rltuned.core.limits import LIMIT_SUMS
from rltuned.core.run_times import (
    ERROR_COUNT,
    FLOOR,
    INPUTS,
    KIN,
    LIMIT_SHARE,
    QUANTILES,
    SUMMARY,
)
from rltuned.lab.kernel.compiler import (
    Float32Array,
    FloatArray,
    IntArray,
    compiled,
    entry,
    in_place,
    with_inner,
)
from rltuned.lab.kernel.demand import moves_more

note_submit = in_place(run_times.note_submit)
note_start = in_place(run_times.note_start)
note_stop = in_place(run_times.note_stop)
_standing = in_place(backlog.standing)
note_end = in_place(
    with_inner(
        run_times.note_end,
        learn=in_place(with_inner(run_times.learn, standing=_standing)),
        take_share=in_place(with_inner(run_times.take_share, standing=_standing)),
        add_share=in_place(run_times.add_share),
    )
)
_share_without = in_place(limits.share_without)
note_limit = in_place(
    with_inner(
        limits.note_limit,
        share_without=_share_without,
        moves_more=moves_more,
        note_own=in_place(
            with_inner(limits.note_own, own_correlation=in_place(limits.own_correlation))
        ),
    )
)
limit_share = in_place(with_inner(limits.limit_share, share_without=_share_without))
floor_of = in_place(run_times.floor_of)
describe = in_place(run_times.describe)
summarize = compiled(run_times.summarize)
error_of = in_place(run_times.error_of)
errors_of = in_place(run_times.errors_of)
kin_shift = in_place(run_times.kin_shift)


class Layers(NamedTuple):
    """The predictor's float32 weights: w1 (INPUTS, H), b1, w2 (H, K), b2, w3 (K, BINS), b3."""

    w1: Float32Array
    b1: Float32Array
    w2: Float32Array
    b2: Float32Array
    w3: Float32Array
    b3: Float32Array


class RunTimes(NamedTuple):
    """What is known of n jobs; slots empty: nothing is asked.

    slots: (n, SLOTS) rows of stats (S, FIELDS), -1 = none. size: m of core/backlog, 0 without
    GPUs. predicted: (n, SUMMARY) at submission, before: (n, KIN, 2) the errors of kin until then.
    limits: (1 + users, LIMIT_SUMS) of core/limits; user: (n,) rows of it, 0 = not known. foreseen:
    (n, FORESEEN) what its prediction comes to, and after how many ends of kin; see AFTER.
    """

    slots: IntArray
    stats: FloatArray
    limit_s: FloatArray
    size: FloatArray
    layers: Layers
    predicted: FloatArray
    before: FloatArray
    limits: FloatArray
    user: IntArray
    foreseen: FloatArray


AFTER, MEAN_S, PLAN_S, FIRST_X = range(4)
"""Places in RunTimes.foreseen; from FIRST_X on x of QUANTILES. AFTER < 0: it has to be found."""
FORESEEN: Final = FIRST_X + len(QUANTILES)
_mean_s = in_place(run_times.mean_s)
_plan_s = in_place(with_inner(run_times.plan_s, mean_s=_mean_s))
_quantile = in_place(run_times.quantile)


@in_place
def foresee(known: RunTimes, job: int) -> None:
    """Bring its row of foreseen up to date: while none of its kin ends, a prediction stays."""
    ended = _ended(known.slots, known.stats, job)
    if known.foreseen[job, AFTER] != ended:
        _predict_again(known, job, ended)


@in_place
def foresee_all(known: RunTimes, jobs: IntArray) -> None:
    """The same of many. Arrays are taken out of their structures once, as each touch would cost."""
    slots, stats, foreseen = known.slots, known.stats, known.foreseen
    for job in jobs:
        ended = _ended(slots, stats, job)
        if foreseen[job, AFTER] != ended:
            _predict_again(known, job, ended)


@in_place
def _ended(slots: IntArray, stats: FloatArray, job: int) -> float:
    """How many of its kin have ended: all of them are jobs of its user, where that is known."""
    user = slots[job, KIN[0]]
    if user >= 0:
        return float(stats[user, ERROR_COUNT])
    ended = 0.0
    for kind in KIN:
        slot = slots[job, kind]
        if slot >= 0:
            ended += stats[slot, ERROR_COUNT]
    return ended


@in_place
def _predict_again(known: RunTimes, job: int, ended: float) -> None:
    predicted, limit_s = known.predicted[job], known.limit_s[job]
    shift = kin_shift(known.stats, known.slots[job], known.before[job])
    known.foreseen[job, AFTER] = ended
    known.foreseen[job, MEAN_S] = _mean_s(predicted, shift, limit_s)
    known.foreseen[job, PLAN_S] = _plan_s(predicted, shift, limit_s)
    for place in range(len(QUANTILES)):
        known.foreseen[job, FIRST_X + place] = _quantile(predicted, place, shift, limit_s)


@in_place
def _layer(
    weights: Float32Array, bias: Float32Array, seen: Float32Array, out: Float32Array
) -> None:
    for k in range(len(out)):
        out[k] = bias[k]
    for i in range(len(seen)):
        value = seen[i]
        if value != 0.0:
            for k in range(len(out)):
                out[k] += value * weights[i, k]


@compiled
def logits_of(layers: Layers, inputs: Float32Array) -> FloatArray:
    """(INPUTS,) -> (BINS,)."""
    first = np.empty(len(layers.b1), dtype=np.float32)
    second = np.empty(len(layers.b2), dtype=np.float32)
    last = np.empty(len(layers.b3), dtype=np.float32)
    _layer(layers.w1, layers.b1, inputs, first)
    _layer(layers.w2, layers.b2, np.maximum(first, np.float32(0.0)), second)
    _layer(layers.w3, layers.b3, np.maximum(second, np.float32(0.0)), last)
    return last.astype(np.float64)


@compiled
def submit(known: RunTimes, job: int, now: float) -> None:
    """Predict for a job that comes now."""
    slots = known.slots[job]
    inputs = np.empty(INPUTS, dtype=np.float32)
    describe(known.stats, slots, now, known.limit_s[job], known.size[job], inputs)
    summarize(logits_of(known.layers, inputs), known.limit_s[job], known.predicted[job])
    known.predicted[job, LIMIT_SHARE] = limit_share(known.limits)
    known.predicted[job, FLOOR] = floor_of(known.stats, slots, known.limit_s[job])
    errors_of(known.stats, slots, known.before[job])
    known.foreseen[job, AFTER] = -1.0
    note_submit(known.stats, slots, now)


@in_place
def end(known: RunTimes, job: int, started_s: float, ran_s: float) -> None:
    """It has ended."""
    slots = known.slots[job]
    note_stop(known.stats, slots, started_s)
    error = error_of(ran_s, known.predicted[job])
    note_end(known.stats, slots, ran_s, known.limit_s[job], error)
    note_limit(known.limits, known.user[job], ran_s, known.limit_s[job])


@entry
def replay(
    known: RunTimes,
    submit_s: FloatArray,
    start_s: FloatArray,
    end_s: FloatArray,
    inputs: Float32Array,
    shift: FloatArray,
) -> None:
    """Go through a history: fill inputs (n, INPUTS) at submissions and shift (n,) at starts. All
    (n,) in the order of submission. At one instant jobs end, then start, then come.
    """
    count = len(submit_s)
    starts, ends = [(0.0, 0)], [(0.0, 0)]
    starts.pop()
    ends.pop()
    for job in range(count):
        now = submit_s[job]
        while True:
            first_end = ends[0][0] if len(ends) > 0 else math.inf
            first_start = starts[0][0] if len(starts) > 0 else math.inf
            if min(first_end, first_start) > now:
                break
            if first_end <= first_start:
                other = heapq.heappop(ends)[1]
                end(known, other, start_s[other], end_s[other] - start_s[other])
            else:
                other = heapq.heappop(starts)[1]
                shift[other] = kin_shift(known.stats, known.slots[other], known.before[other])
                note_start(known.stats, known.slots[other], first_start)
                heapq.heappush(ends, (end_s[other], other))
        describe(
            known.stats, known.slots[job], now, known.limit_s[job], known.size[job], inputs[job]
        )
        submit(known, job, now)
        heapq.heappush(starts, (start_s[job], job))


_NONE = np.zeros((0, 0), dtype=np.float32)
_FLAT = np.zeros(0, dtype=np.float32)
NOTHING_KNOWN = RunTimes(
    np.zeros((0, run_times.SLOTS), np.int64),
    np.zeros((0, run_times.FIELDS)),
    np.zeros(0),
    np.zeros(0),
    Layers(_NONE, _FLAT, _NONE, _FLAT, _NONE, _FLAT),
    np.zeros((0, SUMMARY)),
    np.zeros((0, len(KIN), 2)),
    np.zeros((1, LIMIT_SUMS)),
    np.zeros(0, np.int64),
    np.zeros((0, FORESEEN)),
)
