# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""How the queue is ordered, compiled: rules by a formula, a network, or Slurm's own priorities."""

import math
from typing import NamedTuple

import numpy as np

from rltuned.core.features import COLUMN, UNLIMITED_AS_S
from rltuned.kernel.compiler import FloatArray, IntArray, compiled
from rltuned.kernel.features import Features, StaticFeatures, look
from rltuned.kernel.network import Net, forward, log_delay
from rltuned.kernel.state import Setup, State

FIXED, WFP3, UNICEP, F1, MULTIFACTOR, QSSF, NET, FIT = 0, 1, 2, 3, 4, 5, 6, 7
"""Rules: an order that never changes by itself, a formula of the time waited, Slurm's priorities,
what ended jobs say, a network, and whether a job fits now."""
DECAY = 0.9
"""What an ended job still counts once another one of the same kind has ended."""
RUNGS = 3
"""How many kinds a job belongs to; see RunTimeMemory."""
_FITS_NOW = COLUMN["can_schedule_now"]


class RunTimeMemory(NamedTuple):
    """What accounting shows of ended jobs. Shapes: n jobs, K kinds of jobs.

    A job teaches when it has ended, and what it teaches is the time it ran, which is not what it
    would have needed where a limit cut it short.

    kinds: (n, RUNGS) what each job is likened by, closest first, -1 = nothing. total, weight: (K,).
    runs_s: (n,) sorted, seen[0] of them; empty when every job has a limit to fall back to.
    """

    kinds: IntArray
    total: FloatArray
    weight: FloatArray
    runs_s: FloatArray
    seen: IntArray


class Eyes(NamedTuple):
    """How a network sees the queue. curve: (2, q) scores and ln delays of a bundle."""

    sight: StaticFeatures
    features: Features
    net: Net
    curve: FloatArray
    flags: IntArray
    scores: FloatArray


class Ranking(NamedTuple):
    """How the queue is ordered; (n,) per job.

    key: smaller first, equal ones by submit order (FIXED only). limit_s: finite limits as the
    rules see them. terms: (n, 3) multifactor's points but for age: of the job itself, its size, its
    partition. constants: [points of full age, PriorityMaxAge] or of the formula. value: site
    factors (MULTIFACTOR). ahead: points that a partition's tier is worth, more than any priority.
    upper_s: bounds of the delays; empty = the pure order. stretch: of the delays.
    """

    rule: int
    key: FloatArray
    limit_s: FloatArray
    gpus: FloatArray
    terms: FloatArray
    constants: FloatArray
    value: IntArray
    ahead: FloatArray
    memory: RunTimeMemory
    upper_s: FloatArray
    stretch: float


@compiled
def scores(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, jobs: IntArray, now: float
) -> FloatArray:
    """(k,) of the jobs, higher = sooner: within bounds less the virtual time."""
    found = np.empty(len(jobs))
    if len(ranking.upper_s) > 0:
        delays(setup, state, ranking, eyes, ranking.rule, jobs, now, found)
        for at in range(len(jobs)):
            delay_s = min(found[at], ranking.upper_s[jobs[at]])
            found[at] = -(setup.jobs.submit_s[jobs[at]] + delay_s)
        return found
    if ranking.rule >= NET:
        _judge(setup, state, eyes, ranking.rule, jobs, now)
        return eyes.scores[: len(jobs)].copy()
    for at in range(len(jobs)):
        job = jobs[at]
        found[at] = score(ranking, job, max(now - setup.jobs.submit_s[job], 0.0))
    return found


@compiled
def delays(
    setup: Setup,
    state: State,
    ranking: Ranking,
    eyes: Eyes,
    rule: int,
    jobs: IntArray,
    now: float,
    out: FloatArray,
) -> None:
    """Fill out (k,) with the delays that QSSF, NET or FIT wishes now, in seconds."""
    if rule == QSSF:
        for at in range(len(jobs)):
            out[at] = ranking.stretch * _area_s(ranking, jobs[at])
        return
    _judge(setup, state, eyes, rule, jobs, now)
    for at in range(len(jobs)):
        if rule == FIT:
            out[at] = 0.0 if eyes.scores[at] > 0 else ranking.stretch * UNLIMITED_AS_S
        else:
            out[at] = ranking.stretch * math.exp(log_delay(eyes.curve, eyes.scores[at]))


@compiled
def _judge(setup: Setup, state: State, eyes: Eyes, rule: int, jobs: IntArray, now: float) -> None:
    """Fill eyes.scores with what the network says, or with whether each job fits."""
    look(setup, state, eyes.sight, eyes.features, jobs, now, eyes.flags)
    if rule == NET:
        forward(eyes.net, eyes.features.rows, len(jobs), eyes.flags, eyes.scores)
        return
    for at in range(len(jobs)):
        eyes.scores[at] = eyes.features.rows[at, _FITS_NOW]


@compiled
def score(ranking: Ranking, job: int, wait_s: float) -> float:
    """policies/baselines' formulas that depend on the time waited; higher = sooner."""
    limit_s, size = ranking.limit_s[job], max(ranking.gpus[job], 1.0)
    if ranking.rule == FIXED:
        return float(-ranking.key[job])
    if ranking.rule == WFP3:
        return float((wait_s / limit_s) ** 3 * size)
    if ranking.rule == UNICEP:
        return float(wait_s / (math.log2(size + 1.0) * limit_s))
    if ranking.rule == F1:
        since_s = max(ranking.constants[0] - wait_s, 1.0)
        return float(-(math.log10(max(limit_s, 1.0)) * size + 870.0 * math.log10(since_s)))
    if ranking.rule == QSSF:
        return -_area_s(ranking, job)
    points = max(1.0, natural(ranking, job, wait_s) + ranking.value[job])
    return float(ranking.ahead[job] + points)


@compiled
def _area_s(ranking: Ranking, job: int) -> float:
    """GPUs times predicted seconds."""
    size = max(ranking.gpus[job], 1.0)
    return float(size * _predict_s(ranking.memory, job, ranking.limit_s[job]))


@compiled
def natural(ranking: Ranking, job: int, wait_s: float) -> float:
    """sim/natural.Natural.priority under multifactor, in the order of its sum."""
    age = ranking.constants[0] * min(1.0, wait_s / ranking.constants[1])
    points = ranking.terms[job, 0] + age + ranking.terms[job, 1] + ranking.terms[job, 2]
    return max(1.0, float(math.floor(points)))


@compiled
def remember(memory: RunTimeMemory, job: int, ran_s: float) -> None:
    """A job has ended."""
    log_s = math.log(max(ran_s, 1.0))
    for kind in memory.kinds[job]:
        if kind >= 0:
            memory.total[kind] = memory.total[kind] * DECAY + log_s
            memory.weight[kind] = memory.weight[kind] * DECAY + 1.0
    if len(memory.runs_s) > 0:
        count = memory.seen[0]
        at = np.searchsorted(memory.runs_s[:count], ran_s)
        for i in range(count, at, -1):
            memory.runs_s[i] = memory.runs_s[i - 1]
        memory.runs_s[at] = ran_s
        memory.seen[0] = count + 1


@compiled
def _predict_s(memory: RunTimeMemory, job: int, limit_s: float) -> float:
    for kind in memory.kinds[job]:
        if kind >= 0 and memory.weight[kind] > 0.0:
            return min(math.exp(memory.total[kind] / memory.weight[kind]), limit_s)
    count = memory.seen[0]
    if limit_s < UNLIMITED_AS_S or count == 0:
        return limit_s
    return float(memory.runs_s[count // 2])


def _no_eyes() -> Eyes:
    none = np.zeros((0, 0), dtype=np.float32)
    flat = np.zeros(0, dtype=np.float32)
    counts = np.zeros((0, 0), dtype=np.int64)
    features = Features(
        np.zeros((0, 5)), np.zeros(0, np.int64), np.zeros((0, 0, 3)), np.zeros((0, 0)), none
    )
    sight = StaticFeatures(np.zeros((0, 0), dtype=bool), counts, counts, none)
    net = Net(0, none, flat, none, none, flat, flat, flat)
    return Eyes(sight, features, net, np.zeros((2, 1)), np.zeros(2, np.int64), np.zeros(0))


NO_EYES = _no_eyes()
NO_MEMORY = RunTimeMemory(
    np.zeros((0, RUNGS), np.int64), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(1, np.int64)
)
NO_BOUNDS = np.zeros(0)
