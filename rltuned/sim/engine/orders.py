"""Policies by name in the engine's form: pure orders, bounded delays, and a daemon's cycles."""

from collections.abc import Sequence

import numpy as np

from rltuned.core.decide import Knobs
from rltuned.core.features import UNLIMITED_AS_S, StateMatrix, planning_limit_s
from rltuned.core.order import Order, upper_bounds_s
from rltuned.policies.baselines import BASELINES, F1_EPOCH_S
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.engine.cycles import Cycles
from rltuned.sim.engine.loop import (
    F1,
    FIXED,
    MULTIFACTOR,
    QSSF,
    UNICEP,
    WFP3,
    Memory,
    Ranking,
)
from rltuned.sim.engine.run import Prepared
from rltuned.sim.history import RUNGS, kinds
from rltuned.sim.natural import Natural
from rltuned.sim.policy import CLAIRVOYANT_AREA, FUTURE
from rltuned.sim.trace import TraceJob

FORMULAS = {"wfp3": WFP3, "unicep": UNICEP, "f1": F1, "multifactor": MULTIFACTOR}
FIXED_ORDERS = ("fcfs", "sjf", "saf", "smallest", "delay")
STATIC = tuple(name for name, rule in BASELINES.items() if rule.static)
"""Rules whose delays never change while a job waits."""


def ranking_of(
    policy: str, prepared: Prepared, jobs: Sequence[TraceJob], natural: Natural
) -> Ranking:
    """The engine's form of a policy by name.

    Raises:
        KeyError: the engine does not know it.
    """
    asked = [r.total for r in prepared.requests]
    gpus = np.array([a.gpus for a in asked], dtype=np.float64)
    limit_s = np.array([planning_limit_s(r.time_limit_s) for r in prepared.requests])
    key = np.zeros(len(jobs))
    constants = np.array([F1_EPOCH_S, 1.0])
    terms = np.zeros((len(jobs), 2))
    rule = FORMULAS.get(policy, FIXED)
    if policy == "multifactor":
        constants = np.array([float(natural.age_weight), natural.max_age_s])
        share = gpus / prepared.cluster_gpus
        terms[:, 0] = natural.size_weight * (1.0 - share if natural.favor_small else share)
        terms[:, 1] = natural.partition_weight * prepared.partition_factor
    elif rule == FIXED:
        key = _fixed_keys(policy, prepared, jobs)
    return Ranking(rule, key, limit_s, gpus, terms, constants)


def learning_ranking(
    prepared: Prepared, jobs: Sequence[TraceJob], natural: Natural, order: Order | None = None
) -> Ranking:
    """qssf, which learns as it goes: every run needs one of its own; order None: without bounds."""
    plain = ranking_of("fcfs", prepared, jobs, natural)
    plain = plain._replace(rule=QSSF, memory=_memory(jobs, plain.limit_s))
    if order is None:
        return plain
    upper_s = upper_bounds_s(plain.limit_s, prepared.size, order)
    return plain._replace(upper_s=upper_s, stretch=order.stretch)


def delays_of(
    policy: str, prepared: Prepared, jobs: Sequence[TraceJob], order: Order
) -> tuple[FloatArray, FloatArray]:
    """(n,) the delays of a static rule, and their bounds, in seconds."""
    matrix = _matrix(prepared, jobs)
    upper_s = upper_bounds_s(matrix.limit_s, matrix.size, order)
    wished_s = order.stretch * BASELINES[policy].delay_s(matrix)
    return np.minimum(wished_s, upper_s), upper_s


def delayed_ranking(
    policy: str, prepared: Prepared, jobs: Sequence[TraceJob], natural: Natural, order: Order
) -> Ranking:
    """A static rule within its bounds: by virtual time."""
    plain = ranking_of("fcfs", prepared, jobs, natural)
    delay_s, _ = delays_of(policy, prepared, jobs, order)
    return plain._replace(key=prepared.jobs.submit_s + delay_s)


def cycles_of(
    policy: str,
    prepared: Prepared,
    jobs: Sequence[TraceJob],
    knobs: Knobs,
    interval_s: float,
    *,
    at_submit: bool,
) -> tuple[Ranking, Cycles]:
    """A static rule written by a daemon, from an empty journal on."""
    delay_s, upper_s = delays_of(policy, prepared, jobs, knobs.order)
    plain = ranking_of("fcfs", prepared, jobs, Natural())
    cycles = Cycles(
        interval_s=interval_s,
        min_age_s=knobs.rules.min_age_s,
        hysteresis=knobs.writing.hysteresis,
        min_step_s=knobs.writing.min_step_s,
        max_changes=knobs.writing.max_changes,
        at_submit=at_submit,
        delay_s=delay_s,
        upper_s=upper_s,
        beyond_s=np.zeros(len(jobs)),
        writes=np.zeros(len(jobs), dtype=np.int64),
        neutral=np.full(4, -1.0),
    )
    return plain._replace(key=prepared.jobs.submit_s.copy()), cycles


def _memory(jobs: Sequence[TraceJob], limit_s: FloatArray) -> Memory:
    """An empty memory with room for what these jobs will tell."""
    numbers: dict[object, int] = {}
    rows = [
        [-1 if k is None else numbers.setdefault(k, len(numbers)) for k in likened]
        for likened in (kinds(j.user, j.account, j.gpus) for j in jobs)
    ]
    limited = bool((limit_s < UNLIMITED_AS_S).all())
    return Memory(
        kinds=np.array(rows, dtype=np.int64).reshape(-1, RUNGS),
        total=np.zeros(len(numbers)),
        weight=np.zeros(len(numbers)),
        runs_s=np.zeros(0 if limited else len(jobs)),
        seen=np.zeros(1, dtype=np.int64),
    )


def _fixed_keys(policy: str, prepared: Prepared, jobs: Sequence[TraceJob]) -> FloatArray:
    """(n,) smaller first."""
    if policy in FUTURE:
        gpus = [max(j.gpus, 1) if policy == CLAIRVOYANT_AREA else 1 for j in jobs]
        return np.array([j.duration_s * g for j, g in zip(jobs, gpus, strict=True)])
    if policy not in FIXED_ORDERS:
        raise KeyError(policy)
    return -BASELINES[policy].score(_matrix(prepared, jobs))


def _matrix(prepared: Prepared, jobs: Sequence[TraceJob]) -> StateMatrix:
    """The columns that the static rules read."""
    asked = [r.total for r in prepared.requests]
    nothing = np.zeros(len(jobs))
    return StateMatrix(
        jobs=(),
        values=np.zeros((0, 0), dtype=np.float32),
        submit_s=prepared.jobs.submit_s,
        wait_s=nothing,
        limit_s=np.array([planning_limit_s(r.time_limit_s) for r in prepared.requests]),
        gpus=np.array([a.gpus for a in asked], dtype=np.float64),
        cpus=nothing,
        mem_mib=nothing,
        priority=nothing,
        size=prepared.size,
        slack_s=np.full(len(jobs), np.inf),
        cff=0.0,
    )
