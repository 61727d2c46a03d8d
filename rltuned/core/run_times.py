# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""What ended jobs say of how long a waiting one will run: running numbers per kind of job.

Every job belongs to as many kinds as there are KEYS: all jobs, those of its user, those of its user
with its name, and so on. Each kind is one row of a table that changes when a job of it is
submitted, starts or ends. The numbers of a job's kinds are what the predictor reads, at the job's
submission; how far it was off for kin that ended since shifts the prediction of those that wait.

A job counts when it has ended, with the time that it ran, which is not what it would have needed
where a limit cut it short.

The functions change arrays in place and are what the kernel compiles: the daemon and the simulator
run the same lines.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import standing
from rltuned.core.features import LIMIT_FULL_S

Float32Array = NDArray[np.float32]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

KEYS: Final = (
    "all",
    "gpus",
    "gpus_limit",
    "account",
    "account_gpus",
    "user",
    "user_gpus",
    "twin",
    "burst",
    "partition",
    "qos",
    "gpu_type",
    "array",
    "name",
    "command",
    "work_dir",
    "submit_line",
)
"""What jobs are likened by. twin: the same user, account, partition, GPUs and limit; burst: twins
that come within BURST_S of one another. From partition on each is of one user."""
SHARED: Final = 5
"""The first of them are of all users; in these a user counts once, see core/backlog."""
SLOTS: Final = len(KEYS) + 3
"""Rows of a job: its kinds, then what its user has of gpus_limit, account and account_gpus."""
PARTS: Final = np.array([KEYS.index("user"), KEYS.index("user_gpus"), *range(len(KEYS), SLOTS)])
"""(SHARED,) places of what the job's user has of each shared kind."""
TWIN: Final = KEYS.index("twin")
BURST_S: Final = 600.0
LONG_S: Final = 4 * 3_600.0
LOG_FULL: Final = math.log1p(LIMIT_FULL_S)

COUNT, WEIGHT, TOTAL, SQUARES, LONG, RECENT, RECENT_TOTAL, LAST = range(8)
USED_WEIGHT, USED, USED_SQUARES = range(8, 11)
RUNNING, STARTED, SUBMITTED, ERRORS, ERROR_COUNT, BURST, CLOCK, RAN_WEIGHT, RAN, RAN_EVER = range(
    11, 21
)
FIELDS: Final = 21
"""Of a kind: ended jobs; decayed weight, sum and sum of squares of x, and of long runs; weight and
sum that decay fast; the last x; weight, sum and sum of squares of the x of the limit less that of
the run, where there is a limit. Running jobs and the sum of their start times; the last submission;
sum and number of errors; when its burst began. Of a shared kind the shares that users have added,
and of a user's part of it how many that were at its last; weight and sum of runs, see FLOOR_SHARE,
and the sum of all. x is ln(1 + run) / ln(1 + 30 d)."""
SLOW, FAST = 0.95, 0.70
"""What an ended job still counts once another one of the same kind has ended."""
SHARES: Final = (
    (WEIGHT, WEIGHT, LONG + 1),
    (RECENT, RECENT, RECENT_TOTAL + 1),
    (USED_WEIGHT, USED_WEIGHT, USED_SQUARES + 1),
)
"""Fields of a shared kind that are sums over users: first, the weight among them, end."""
SIGNS: Final = 11
"""Numbers that the predictor reads of each kind; see describe."""
REQUEST_SIGNS: Final = 4
INPUTS: Final = REQUEST_SIGNS + SIGNS * len(KEYS)
BINS: Final = 20
EDGES: Final = np.concatenate([[0.0], np.linspace(math.log(30.0) / LOG_FULL, 1.0, BINS)])
"""(BINS + 1,) of x: below half a minute, then evenly up to 30 days."""
MEAN, LOW, MEDIAN, HIGH, LOG_MEAN, LIMIT_SHARE, FLOOR = range(7)
SUMMARY: Final = 7
"""Of a prediction: ln of the mean; ln(1 + s) of the quantiles; the mean of ln(1 + s); what the
limit counts in the plan, see core/limits; the seconds of floor_of."""
QUANTILES: Final = (0.1, 0.5, 0.9)
QUANTILE_COLUMNS: Final = slice(LOW, HIGH + 1)
_LEVELS: Final = np.array(QUANTILES)
KIN: Final = np.array([KEYS.index(name) for name in ("user", "user_gpus", "name", "burst")])
"""Kinds whose errors shift a prediction, the widest first."""
PLAN_SCALE: Final = 3.0
HIGH_SCALE: Final = 10.0
"""So that one stretch fits plans, and the limits in their place where nothing is predicted; see
docs/adr/0020."""
FLOOR_SHARE, UNLIMITED_FLOOR_SHARE, TINY = 0.25, 0.0625, 100.0
"""Of what the twins ran on average, no prediction goes below this share, without a limit the second
one: there, twins are all jobs of a user with the same GPUs. In the average, runs that are so many
times shorter than it count by their length."""
HIGH_OF_MEAN: Final = 2.0
"""About how many means the upper quantile of run times is."""
KIN_PRIOR: Final = 1.0
"""So many jobs of the closest kind count as much as what the wider ones say."""


def note_submit(stats: FloatArray, slots: IntArray, now: float) -> None:
    """A job of these kinds, -1 = none, was submitted. stats: (S, FIELDS), slots: (SLOTS,)."""
    for slot in slots:
        if slot >= 0:
            stats[slot, SUBMITTED] = now


def note_start(stats: FloatArray, slots: IntArray, now: float) -> None:
    """It starts."""
    for slot in slots:
        if slot >= 0:
            stats[slot, RUNNING] += 1.0
            stats[slot, STARTED] += now


def note_stop(stats: FloatArray, slots: IntArray, started_s: float) -> None:
    """It no longer runs; this alone adds nothing, as where it is requeued."""
    for slot in slots:
        if slot >= 0:
            stats[slot, RUNNING] -= 1.0
            stats[slot, STARTED] -= started_s


def note_end(
    stats: FloatArray, slots: IntArray, ran_s: float, limit_s: float, error: float
) -> None:
    """It ran so long. error: see error_of. Of a shared kind, the user's share changes."""
    for place in range(SHARED):
        if slots[place] >= 0 and slots[PARTS[place]] >= 0:
            take_share(stats[slots[place]], stats[slots[PARTS[place]]], ran_s)
    for place in range(SLOTS):
        if slots[place] >= 0 and (place >= SHARED or slots[PARTS[place]] < 0):
            learn(stats[slots[place]], ran_s, limit_s, error)
    for place in range(SHARED):
        if slots[place] >= 0 and slots[PARTS[place]] >= 0:
            add_share(stats[slots[place]], stats[slots[PARTS[place]]])


def learn(kind: FloatArray, ran_s: float, limit_s: float, error: float) -> None:
    """A job of a kind ran so long."""
    x = math.log1p(ran_s) / LOG_FULL
    kind[COUNT] += 1.0
    kind[WEIGHT] = kind[WEIGHT] * SLOW + 1.0
    kind[TOTAL] = kind[TOTAL] * SLOW + x
    kind[SQUARES] = kind[SQUARES] * SLOW + x * x
    kind[LONG] = kind[LONG] * SLOW + (1.0 if ran_s > LONG_S else 0.0)
    kind[RECENT] = kind[RECENT] * FAST + 1.0
    kind[RECENT_TOTAL] = kind[RECENT_TOTAL] * FAST + x
    kind[LAST] = x
    if limit_s < LIMIT_FULL_S:
        left = math.log1p(limit_s) / LOG_FULL - x
        kind[USED_WEIGHT] = kind[USED_WEIGHT] * SLOW + 1.0
        kind[USED] = kind[USED] * SLOW + left
        kind[USED_SQUARES] = kind[USED_SQUARES] * SLOW + left * left
    kind[ERRORS] += error
    kind[ERROR_COUNT] += 1.0
    usual_s = max(kind[RAN] / kind[RAN_WEIGHT], 1.0) if kind[RAN_WEIGHT] > 0.0 else 1.0
    longer = max(ran_s, 1.0) / usual_s
    weight = min(TINY * longer, 1.0)
    kept = standing(weight, SLOW) * min(TINY / longer, 1.0)
    kind[RAN_WEIGHT] = kind[RAN_WEIGHT] * kept + weight
    kind[RAN] = kind[RAN] * kept + weight * ran_s
    kind[RAN_EVER] += ran_s


def take_share(kind: FloatArray, part: FloatArray, ran_s: float) -> None:
    """A job of a user ends: a shared kind fades by what its user's share has lost since, and loses
    what is left of it. part: what the user has of the kind, before this job. How many have ended is
    counted for all jobs: the predictor learned so, and a site of few users would look unknown.
    """
    passed = kind[CLOCK] - part[CLOCK]
    left = standing(passed, SLOW) if part[COUNT] > 0.0 and passed >= 0.0 else 0.0
    new = 1.0 - left
    fade = standing(new, SLOW)
    for first, weight, end in SHARES:
        for field in range(first, end):
            kind[field] *= fade
            if part[weight] > 0.0:
                kind[field] -= left * fade * part[field] / part[weight]
    kind[COUNT] += 1.0
    kind[LAST] += new * (math.log1p(ran_s) / LOG_FULL - kind[LAST])
    kind[CLOCK] += new
    part[CLOCK] = kind[CLOCK]


def add_share(kind: FloatArray, part: FloatArray) -> None:
    """Add the user's share as it is after this job: the means of its part."""
    for first, weight, end in SHARES:
        for field in range(first, end):
            if part[weight] > 0.0:
                kind[field] += part[field] / part[weight]


def describe(
    stats: FloatArray, slots: IntArray, now: float, limit_s: float, gpus: float, out: Float32Array
) -> None:
    """Fill out (INPUTS,) with what the predictor reads of a job submitted now.

    limit_s: LIMIT_FULL_S or more = none is known. Of each kind: how many have ended; mean, recent
    mean, spread, share of long ones and last of their runs; how many run, how long on average; how
    long ago one was submitted; mean and spread of what their limits leave unused. All within 0 to
    about 1, and 0 where there is nothing to say.
    """
    limited = limit_s < LIMIT_FULL_S
    out[0] = math.log1p(min(limit_s, LIMIT_FULL_S)) / LOG_FULL
    out[1] = 1.0 if limited else 0.0
    out[2] = math.log2(1.0 + gpus) / 10.0
    out[3] = 1.0 if gpus > 0 else 0.0
    for place in range(len(KEYS)):
        at = REQUEST_SIGNS + SIGNS * place
        out[at : at + SIGNS] = 0.0
        if slots[place] < 0:
            continue
        kind = stats[slots[place]]
        if kind[COUNT] > 0:
            mean = kind[TOTAL] / kind[WEIGHT]
            out[at] = math.log1p(kind[COUNT]) / 10.0
            out[at + 1] = mean
            out[at + 2] = kind[RECENT_TOTAL] / kind[RECENT]
            out[at + 3] = math.sqrt(max(kind[SQUARES] / kind[WEIGHT] - mean * mean, 0.0))
            out[at + 4] = kind[LONG] / kind[WEIGHT]
            out[at + 5] = kind[LAST]
        if kind[RUNNING] >= 1.0:
            elapsed_s = max(now - kind[STARTED] / kind[RUNNING], 0.0)
            out[at + 6] = math.log1p(kind[RUNNING]) / 10.0
            out[at + 7] = math.log1p(elapsed_s) / LOG_FULL
        if kind[SUBMITTED] != 0.0:
            out[at + 8] = 1.0 / (1.0 + max(now - kind[SUBMITTED], 0.0) / 3_600.0)
        if kind[USED_WEIGHT] > 0:
            unused = kind[USED] / kind[USED_WEIGHT]
            spread = kind[USED_SQUARES] / kind[USED_WEIGHT] - unused * unused
            out[at + 9] = unused
            out[at + 10] = math.sqrt(max(spread, 0.0)) + 0.1  # above 0: there is one


def summarize(logits: FloatArray, limit_s: float, out: FloatArray) -> None:
    """Fill out (SUMMARY,) but LIMIT_SHARE from (BINS,) logits: no job runs beyond its limit."""
    cut = min(math.log1p(limit_s) / LOG_FULL, 1.0)
    share = np.zeros(BINS)
    most, total = logits.max(), 0.0
    for i in range(BINS):
        if EDGES[i] < cut:
            share[i] = math.exp(logits[i] - most)
            total += share[i]
    below, mean_s, log_mean, level = 0.0, 0.0, 0.0, 0
    for i in range(BINS):
        share[i] /= total
        low, high = EDGES[i], min(EDGES[i + 1], cut)
        if share[i] > 0.0:
            middle = 0.5 * (low + high) * LOG_FULL
            mean_s += share[i] * math.expm1(middle)
            log_mean += share[i] * middle
        while level < len(_LEVELS) and below + share[i] >= _LEVELS[level] - 1e-9:
            part = (_LEVELS[level] - below) / max(share[i], 1e-9)
            out[LOW + level] = (low + min(part, 1.0) * (high - low)) * LOG_FULL
            level += 1
        below += share[i]
    out[MEAN], out[LOG_MEAN] = math.log(max(mean_s, 1.0)), log_mean


def error_of(ran_s: float, predicted: FloatArray) -> float:
    """How far a run was off, in logarithms. It is 0 on average where the prediction is right."""
    return math.log1p(ran_s) - float(predicted[LOG_MEAN])


def errors_of(stats: FloatArray, slots: IntArray, out: FloatArray) -> None:
    """Fill out (len(KIN), 2) with sums and numbers of the errors of a job's kin so far."""
    for at in range(len(KIN)):
        slot = slots[KIN[at]]
        out[at] = 0.0
        if slot >= 0:
            out[at, 0], out[at, 1] = stats[slot, ERRORS], stats[slot, ERROR_COUNT]


def floor_of(stats: FloatArray, slots: IntArray, limit_s: float) -> float:
    """Seconds below which no prediction goes, so that tiny jobs do not make a long one of the same
    user look short. Until the twins have run for as long together, it is what jobs of all users
    typically run of such a limit.
    """
    every, twin = slots[0], slots[TWIN]
    if every < 0 or twin < 0:
        return 0.0
    limited, typical = limit_s < LIMIT_FULL_S, 0.0
    if limited and stats[every, USED_WEIGHT] > 0.0:
        unused = stats[every, USED] / stats[every, USED_WEIGHT]
        typical = max(math.log1p(limit_s) / LOG_FULL - unused, 0.0)
    elif not limited and stats[every, WEIGHT] > 0.0:
        typical = stats[every, TOTAL] / stats[every, WEIGHT]
    share = FLOOR_SHARE if limited else UNLIMITED_FLOOR_SHARE
    usual_s = stats[twin, RAN] / stats[twin, RAN_WEIGHT] if stats[twin, RAN_WEIGHT] > 0.0 else 0.0
    doubted_s = math.expm1(typical * LOG_FULL) - stats[twin, RAN_EVER]
    return float(max(share * usual_s, doubted_s, 0.0))


def kin_shift(stats: FloatArray, slots: IntArray, before: FloatArray) -> float:
    """How far, in logarithms, kin that ended since were off.

    before: (len(KIN), 2) as errors_of found them at the job's submission. Each kind's mean error is
    drawn to that of the wider one with the weight of KIN_PRIOR jobs.
    """
    shift = 0.0
    for at in range(len(KIN)):
        slot = slots[KIN[at]]
        if slot >= 0:
            total = stats[slot, ERRORS] - before[at, 0]
            count = stats[slot, ERROR_COUNT] - before[at, 1]
            shift = (total + KIN_PRIOR * shift) / (count + KIN_PRIOR)
    return float(shift)


def mean_s(predicted: FloatArray, shift: float, limit_s: float) -> float:
    """The expected run time of a prediction (SUMMARY,) with its kin's shift; at most the limit."""
    return float(min(max(math.exp(predicted[MEAN] + shift), predicted[FLOOR]), limit_s))


def quantile(predicted: FloatArray, place: int, shift: float, limit_s: float) -> float:
    """One of QUANTILES as x; at most the limit's."""
    most = min(math.log1p(limit_s) / LOG_FULL, 1.0)
    return float(min(max((predicted[LOW + place] + shift) / LOG_FULL, 0.0), most))


def plan_s(predicted: FloatArray, shift: float, limit_s: float) -> float:
    """What the rule `delay` goes by in place of the limit, in seconds.

    Between the limit and the expected run time, in logarithms, at the limit's share: the mean alone
    draws long jobs to the middle, and a limit is a promise. Without a limit it is the upper
    quantile; where limits tell run times, who asks for none has a long job, and it is LIMIT_FULL_S.
    A limit never makes it longer than that.
    """
    share = predicted[LIMIT_SHARE]
    high_s = max(math.exp(predicted[HIGH] + shift), HIGH_OF_MEAN * predicted[FLOOR])
    high_s = HIGH_SCALE * min(high_s, LIMIT_FULL_S)
    longest_s = LIMIT_FULL_S * (high_s / LIMIT_FULL_S) ** (2.0 - 2.0 * share)
    if limit_s >= LIMIT_FULL_S:
        return float(longest_s)
    expected_s = PLAN_SCALE**2 * mean_s(predicted, shift, limit_s)
    return float(min(limit_s * (expected_s / limit_s) ** (1.0 - share), longest_s))
