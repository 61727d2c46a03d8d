# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""How the queue is ordered, compiled: rules by a formula, a network, or Slurm's own priorities."""

import math
from typing import NamedTuple

import numpy as np

from rltuned.core.features import COLUMN, UNLIMITED_AS_S
from rltuned.core.run_times import QUANTILES
from rltuned.lab.kernel.compiler import (
    Float32Array,
    FloatArray,
    IntArray,
    compiled,
    in_place,
)
from rltuned.lab.kernel.demand import (
    Demand,
    backlog_of,
    never_cheaper,
    places_of,
    use_of,
)
from rltuned.lab.kernel.features import (
    AGENT,
    QUEUE,
    Features,
    Net,
    StaticFeatures,
    corrects,
    factor,
    forward,
    look,
)
from rltuned.lab.kernel.run_times import (
    FIRST_X,
    MEAN_S,
    PLAN_S,
    RunTimes,
    foresee,
    foresee_all,
)
from rltuned.lab.kernel.state import Setup, State
from rltuned.policies import actor
from rltuned.policies.actor import FIRST_QUANTILE
from rltuned.policies.baselines import F1_EPOCH_S

FIXED, WFP3, UNICEP, F1, MULTIFACTOR, QSSF, PLAN, STATIC, NET, FIT = range(10)
"""Rules: an order that never changes by itself, a formula of the time waited, Slurm's priorities,
predicted areas, the rule `delay` with predictions, delays of a rule that needs none, a network, and
whether a job fits now."""
_FITS_NOW = COLUMN["can_schedule_now"]
_fill_queue_columns = compiled(actor.fill_queue_columns)


class Eyes(NamedTuple):
    """How a network sees the queue. scores: (n, 2) see kernel/features.forward."""

    sight: StaticFeatures
    features: Features
    net: Net
    flags: IntArray
    scores: FloatArray


class Ranking(NamedTuple):
    """How the queue is ordered; (n,) per job.

    key: smaller first, equal ones by submit order (FIXED only). limit_s: finite limits as the
    rules see them. size: m of core/backlog. terms: (n, 3) multifactor's points but for age: of
    the job itself, its size, its partition. constants: [points of full age, PriorityMaxAge; 0 =
    priority/basic]. value: what rltuned wrote, under priority/basic the number.
    ahead: points that a partition's tier is worth, more than any priority. known: of run times.
    demand: for delays within their bounds, at every event or of a daemon beside; empty where
    nothing needs it. bounded: the order at every event is by delays within their bounds; otherwise
    it is the pure one.
    """

    rule: int
    key: FloatArray
    limit_s: FloatArray
    gpus: FloatArray
    size: FloatArray
    terms: FloatArray
    constants: FloatArray
    value: IntArray
    ahead: FloatArray
    known: RunTimes
    demand: Demand
    bounded: bool


class RuleParts(NamedTuple):
    """What a rule asks for k jobs: (k,) each. key: of its places."""

    own_s: FloatArray
    key: FloatArray
    area: FloatArray


@compiled
def scores(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, jobs: IntArray, now: float
) -> FloatArray:
    """(k,) of the jobs, higher = sooner: within bounds less the virtual time."""
    found = np.empty(len(jobs))
    if ranking.rule >= QSSF and ranking.bounded:
        wished_s, upper_s = wishes(setup, state, ranking, eyes, ranking.rule, jobs, now)
        for at in range(len(jobs)):
            found[at] = -(setup.jobs.submit_s[jobs[at]] + min(wished_s[at], upper_s[at]))
        return found
    if ranking.rule == FIT:
        _see_what_fits(setup, state, eyes, jobs, now)
        found[:] = eyes.scores[: len(jobs), 0]
        return found
    if ranking.rule == NET:
        own_s, _, _ = corrected(setup, state, ranking, eyes, jobs, now)
        for at in range(len(jobs)):
            found[at] = -own_s[at] if corrects(eyes.net) else eyes.scores[at, 0]
        return found
    for at in range(len(jobs)):
        job = jobs[at]
        found[at] = score(ranking, job, max(now - setup.jobs.submit_s[job], 0.0))
    return found


@compiled
def wishes(
    setup: Setup,
    state: State,
    ranking: Ranking,
    eyes: Eyes,
    rule: int,
    jobs: IntArray,
    now: float,
) -> tuple[FloatArray, FloatArray]:
    """(k,) the delays that a rule wishes now, and their bounds, in seconds; core/order."""
    demand = ranking.demand
    if rule == FIT:
        _see_what_fits(setup, state, eyes, jobs, now)
    if rule == NET:
        own_s, backlog_s, place = corrected(setup, state, ranking, eyes, jobs, now)
    else:
        asked = _parts(ranking, eyes, rule, jobs)
        own_s, backlog_s, place = asked.own_s, np.zeros(len(jobs)), np.zeros(len(jobs))
        if demand.share > 0.0:
            backlog_s = backlog_of(demand, jobs, asked.area)
            place = places_of(demand, jobs, asked.key)
    wished_s, upper_s = np.empty(len(jobs)), np.empty(len(jobs))
    for at in range(len(jobs)):
        job, share_s = jobs[at], demand.share * backlog_s[at]
        wished_s[at] = demand.own * own_s[at] + share_s * place[at]
        upper_s[at] = min(demand.clip_s[job] + share_s, demand.most_s[job])
    return wished_s, upper_s


@compiled
def corrected(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, jobs: IntArray, now: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(k,) own seconds and places of the rule `delay` as a network corrects them, with the backlog
    between them, in seconds. Fills eyes.scores.
    """
    own_s, backlog_s, place = heard(setup, state, ranking, eyes, jobs, now)
    if corrects(eyes.net):
        reach, trust, said = eyes.net.reach, eyes.net.trust, eyes.scores
        for at in range(len(jobs)):
            own_s[at] *= factor(reach, trust, said[at, 0])
            place[at] *= factor(reach, trust, said[at, 1])
    return own_s, backlog_s, place


@compiled
def heard(
    setup: Setup, state: State, ranking: Ranking, eyes: Eyes, jobs: IntArray, now: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(k,) own seconds, backlog and places of the rule `delay`; fills eyes.scores with what the
    network says of the jobs.
    """
    demand, rows = ranking.demand, eyes.features.rows
    asked = _parts(ranking, eyes, NET, jobs)
    backlog_s, place = np.zeros(len(jobs)), np.zeros(len(jobs))
    if eyes.net.kind == QUEUE or demand.share > 0.0:
        backlog_s = backlog_of(demand, jobs, asked.area)
        place = places_of(demand, jobs, asked.key)
    if eyes.net.kind == AGENT:
        return asked.own_s, backlog_s, place
    look(setup, state, eyes.sight, eyes.features, jobs, now, eyes.flags)
    if eyes.net.kind == QUEUE:
        if len(ranking.known.slots) > 0:
            _fill_quantiles(ranking.known, jobs, rows)
        size = demand.size[jobs]
        _fill_queue_columns(
            rows[: len(jobs)],
            places_of(demand, jobs, asked.own_s / np.sqrt(size)),
            place,
            places_of(demand, jobs, size),
            backlog_s,
            demand.length_s[jobs],
            np.maximum(now - setup.jobs.submit_s[jobs], 0.0),
            size,
            demand.gpus[demand.pool[jobs]],
            asked.area / size,
        )
    forward(eyes.net, rows, len(jobs), eyes.flags, eyes.scores)
    return asked.own_s, backlog_s, place


@compiled
def _parts(ranking: Ranking, eyes: Eyes, rule: int, jobs: IntArray) -> RuleParts:
    """Own seconds, the keys of the places, and expected areas."""
    known, demand = ranking.known, ranking.demand
    own_s, key, area = demand.own_s[jobs], demand.key[jobs], _areas(ranking, jobs)
    if rule == FIT:
        for at in range(len(jobs)):
            own_s[at] = key[at] = 0.0 if eyes.scores[at, 0] > 0 else UNLIMITED_AS_S
    if len(known.slots) > 0:
        if rule in (PLAN, NET):
            own_s = np.sqrt(ranking.size[jobs]) * known.foreseen[jobs, PLAN_S]
        never_cheaper(demand, jobs, known.limit_s, own_s, area)
    if rule == QSSF:
        return RuleParts(area, area, area)
    if rule in (PLAN, NET):
        return RuleParts(own_s, area, area)
    return RuleParts(own_s, key, area)


@compiled
def _areas(ranking: Ranking, jobs: IntArray) -> FloatArray:
    """(k,) expected run time x size; brings what is foreseen up to date."""
    known, demand, found = ranking.known, ranking.demand, np.empty(len(jobs))
    if len(known.slots) > 0:
        foresee_all(known, jobs)
        size, foreseen = ranking.size, known.foreseen
        for at in range(len(jobs)):
            found[at] = size[jobs[at]] * foreseen[jobs[at], MEAN_S]
        return found
    use, size = use_of(demand.used), demand.size
    expected_s, length_s = demand.expected_s, demand.length_s
    for at in range(len(jobs)):
        job = jobs[at]
        ran_s = expected_s[job]
        found[at] = (use * length_s[job] if math.isnan(ran_s) else ran_s) * size[job]
    return found


@compiled
def _see_what_fits(setup: Setup, state: State, eyes: Eyes, jobs: IntArray, now: float) -> None:
    """Fill eyes.scores with whether each job fits."""
    look(setup, state, eyes.sight, eyes.features, jobs, now, eyes.flags)
    for at in range(len(jobs)):
        eyes.scores[at, 0] = eyes.features.rows[at, _FITS_NOW]


@in_place
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
        since_s = max(F1_EPOCH_S - wait_s, 1.0)
        return float(-(math.log10(max(limit_s, 1.0)) * size + 870.0 * math.log10(since_s)))
    if ranking.rule in (QSSF, PLAN):
        return -_predicted_s(ranking, ranking.rule, job)
    return float(ranking.ahead[job] + priority_of(ranking, job, wait_s))


@in_place
def priority_of(ranking: Ranking, job: int, wait_s: float) -> float:
    """What Slurm has for the job: its own points, and what rltuned wrote; under priority/basic its
    number.
    """
    if ranking.constants[1] == 0.0:
        return float(ranking.value[job])
    return float(max(1.0, natural(ranking, job, wait_s) + ranking.value[job]))


@in_place
def _predicted_s(ranking: Ranking, rule: int, job: int) -> float:
    """policies/baselines.qssf and .delay of a job whose run time is predicted."""
    known = ranking.known
    foresee(known, job)
    if rule == QSSF:
        return float(ranking.size[job] * known.foreseen[job, MEAN_S])
    return float(math.sqrt(ranking.size[job]) * known.foreseen[job, PLAN_S])


@in_place
def _fill_quantiles(known: RunTimes, jobs: IntArray, rows: Float32Array) -> None:
    """Fill the columns of rows (k, F) that a predictor knows: quantiles of x, as foreseen now."""
    foreseen = known.foreseen
    for at in range(len(jobs)):
        for place in range(len(QUANTILES)):
            rows[at, FIRST_QUANTILE + place] = foreseen[jobs[at], FIRST_X + place]


@in_place
def natural(ranking: Ranking, job: int, wait_s: float) -> float:
    """sim/world.Natural.priority under multifactor, in the order of its sum."""
    age = ranking.constants[0] * min(1.0, wait_s / ranking.constants[1])
    points = ranking.terms[job, 0] + age + ranking.terms[job, 1] + ranking.terms[job, 2]
    return max(1.0, float(math.floor(points)))


def _no_eyes() -> Eyes:
    none = np.zeros((0, 0), dtype=np.float32)
    flat = np.zeros(0, dtype=np.float32)
    counts = np.zeros((0, 0), dtype=np.int64)
    features = Features(
        np.zeros((0, 5)), np.zeros(0, np.int64), np.zeros((0, 0, 3)), np.zeros((0, 0)), none
    )
    sight = StaticFeatures(np.zeros((0, 0), dtype=bool), counts, counts, none)
    net = Net(0, none, flat, none, flat, none, flat, 0.0, 1.0)
    return Eyes(sight, features, net, np.zeros(2, np.int64), np.zeros((0, 2)))


NO_EYES = _no_eyes()
