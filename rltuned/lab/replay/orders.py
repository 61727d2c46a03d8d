"""Who orders the queue, as the kernel plays it: pure orders, bounded delays, a daemon's cycles."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.limits import LIMIT_SUMS
from rltuned.core.memory import Asked, kinds_of
from rltuned.core.numbers import RESOLUTION_S
from rltuned.core.order import DEFAULT, Order, SlaClass
from rltuned.core.run_times import BURST_S, FIELDS, KEYS, KIN, PARTS, SHARED, SLOTS, SUMMARY
from rltuned.core.select import Scope, select
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, UnixTime
from rltuned.lab.kernel import ranking as rules
from rltuned.lab.kernel.compiler import BoolArray, FloatArray, IntArray
from rltuned.lab.kernel.cycles import Cycles
from rltuned.lab.kernel.demand import NO_DEMAND, Demand
from rltuned.lab.kernel.ranking import (
    F1,
    FIT,
    FIXED,
    MULTIFACTOR,
    NET,
    NO_EYES,
    QSSF,
    STATIC,
    UNICEP,
    WFP3,
    Eyes,
    Ranking,
)
from rltuned.lab.kernel.run_times import FORESEEN, NOTHING_KNOWN, Layers, RunTimes
from rltuned.lab.replay.play import Played, run
from rltuned.lab.replay.prepared import eyes_on, net_of, pending_jobs
from rltuned.lab.replay.protocol import CLAIRVOYANT_AREA, FUTURE, Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.actor import LAYERS, NetworkPolicy
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.policies.predictor import Predictor
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY, FIRST_PRIORITY

# What a scheduler may know of the run times of a trace's jobs: their kinds, and a predictor.


_ONLY = "default"
"""The partition of a trace that names none."""


def known_of(jobs: Sequence[TraceJob], layers: Layers, size: FloatArray | None = None) -> RunTimes:
    """An empty memory with room for what these jobs, in the order of submission, will show. size:
    (n,) m of core/backlog; None = the GPUs.
    """
    slots = slots_of(jobs)
    gpus = np.array([j.gpus for j in jobs], dtype=np.float64)
    users: dict[str, int] = {}
    user = [users.setdefault(j.user, len(users) + 1) if j.user else 0 for j in jobs]
    return RunTimes(
        slots=slots,
        stats=np.zeros((int(slots.max(initial=-1)) + 1, FIELDS)),
        limit_s=np.array([min(j.time_limit_s, LIMIT_FULL_S) for j in jobs]),
        size=gpus if size is None else np.where(gpus > 0, size, 0.0),
        layers=layers,
        predicted=np.zeros((len(jobs), SUMMARY)),
        before=np.zeros((len(jobs), len(KIN), 2)),
        limits=np.zeros((1 + len(users), LIMIT_SUMS)),
        user=np.array(user, dtype=np.int64),
        foreseen=np.full((len(jobs), FORESEEN), -1.0),
    )


def slots_of(jobs: Sequence[TraceJob]) -> IntArray:
    """(n, SLOTS) the kinds of each job, see core/memory.kinds_of, as numbers from 0; -1 where the
    trace does not say.
    """
    numbers: dict[object, int] = {}
    names: dict[str, int] = {"": 0}
    bursts: dict[object, tuple[float, float]] = {}
    rows = np.full((len(jobs), SLOTS), -1, dtype=np.int64)
    for at, job in enumerate(jobs):
        kinds = kinds_of(_asked_of(job, names.setdefault(job.name, len(names))))
        kinds["burst"] = _burst_of(job, kinds["twin"], bursts)
        for place, (key, kind) in enumerate(kinds.items()):
            if kind is not None:
                rows[at, place] = numbers.setdefault((key, kind), len(numbers))
                part = PARTS[place] if place < SHARED and job.user else 0
                if part >= len(KEYS):
                    own = (key, kind, job.user)
                    rows[at, part] = numbers.setdefault(own, len(numbers))
    return rows


def _asked_of(job: TraceJob, name: int) -> Asked:
    """name: a number for the text, in place of a digest."""
    of_user = job.user, job.account, job.partition or _ONLY, job.qos
    asks = job.gpus, tuple(map(GpuType, job.gpu_types)), job.time_limit_s
    return Asked(*of_user, *asks, None, Kinds(name), job.request(), (job.partition or _ONLY,))


def _burst_of(
    job: TraceJob, twin: object, bursts: dict[object, tuple[float, float]]
) -> tuple[object, ...]:
    """Jobs that ask for the same, each submitted soon after the one before."""
    began_s, last_s = bursts.get(twin, (job.submit_s, job.submit_s))
    if job.submit_s - last_s > BURST_S:
        began_s = job.submit_s
    bursts[twin] = began_s, job.submit_s
    return twin, began_s


def runs_of(jobs: Sequence[TraceJob]) -> FloatArray:
    """(n,) how long each will run, which only targets and figures may use."""
    return np.array([min(j.duration_s, j.time_limit_s) for j in jobs])


def layers_of(predictor: Predictor) -> Layers:
    """A predictor's weights in the form that the compiled forward reads."""
    w = predictor.weights
    arrays = []
    for layer in LAYERS:
        arrays += [np.ascontiguousarray(w[f"{layer}.weight"].T), w[f"{layer}.bias"]]
    return Layers(*arrays)


FORMULAS = {"wfp3": WFP3, "unicep": UNICEP, "f1": F1, "multifactor": MULTIFACTOR}
FORESEEING = {"qssf": QSSF, "delay": rules.PLAN}
"""Rules that go by predicted run times where there is a predictor, else by the limits."""
TIER = 2.0**33
"""Points that a step of PriorityTier is worth: more than any priority."""


def play(policy: Policy | str, scenario: Scenario, protocol: Protocol) -> Played:
    """Play a scenario to its end. policy: a name, where no scheduler could ask it (see FUTURE).
    Raises TraceError: it exists in event mode only, or a job never started.
    """
    if protocol.predictor is not None:
        scenario = replace(scenario, predictor=layers_of(protocol.predictor))
    if protocol.mode == "event" or policy in FUTURE:
        ranking, eyes = at_events(policy, scenario, protocol.order)
        return run(scenario, ranking, eyes=eyes)
    ranking, cycles, eyes = in_cycles(policy, scenario, protocol.knobs, protocol.interval_s)
    return run(scenario, ranking, cycles=cycles, eyes=eyes)


def at_events(
    policy: Policy | str, scenario: Scenario, order: Order | None
) -> tuple[Ranking, Eyes]:
    """A policy, or its name, at every event; order None = its pure order. Raises KeyError."""
    policy = BASELINES.get(policy, policy) if isinstance(policy, str) else policy
    name, plain = policy if isinstance(policy, str) else policy.name, _plain(scenario)
    is_pure = order is None or name in FUTURE or _asks_nothing(name)
    by_memory = name in FORESEEING and scenario.predictor is not None
    if isinstance(policy, NetworkPolicy) or by_memory or name == "fit_first" or not is_pure:
        bounds = DEFAULT if order is None else order
        rule, demand, known, eyes = _wish(policy, scenario, bounds, pure=order is None)
        if order is None and rule == FIT:  # whether a job fits needs no memory
            known = NOTHING_KNOWN
        bounded = order is not None
        return plain._replace(rule=rule, known=known, demand=demand, bounded=bounded), eyes
    if name in FORMULAS:
        return plain._replace(rule=FORMULAS[name]), NO_EYES
    return plain._replace(key=_fixed_keys(name, scenario)), NO_EYES


def in_cycles(
    policy: Policy | str,
    scenario: Scenario,
    knobs: Knobs,
    interval_s: float,
    *,
    first_s: float | None = None,
    compares: bool = False,
) -> tuple[Ranking, Cycles, Eyes]:
    """Slurm's own order, and a daemon that writes delays into it, from an empty journal on.
    first_s: None = at the first submission. compares: see Cycles. Raises KeyError.
    """
    system, count = scenario.rules.natural.system, len(scenario)
    first_s = float(scenario.submit_s[0]) if first_s is None else first_s
    rule, demand, known, eyes = _wish(policy, scenario, knobs.order)
    demand = demand._replace(most_s=np.where(_promised(scenario, knobs.sla), 0.0, demand.most_s))
    slope = system.slope if system.kind == "multifactor" else 1.0 / RESOLUTION_S
    basic = system.kind == "basic"
    per_hour = knobs.rules.max_writes_per_hour or 0
    ranking = slurms_order(scenario)._replace(known=known, demand=demand)
    cycles = Cycles(
        rule=rule,
        first_s=first_s,
        on_s=first_s,
        interval_s=interval_s,
        min_age_s=knobs.rules.min_age_s,
        hysteresis=knobs.writing.hysteresis,
        min_step_s=knobs.writing.min_step_s,
        max_changes=knobs.writing.max_changes,
        basic=basic,
        asks=not (isinstance(policy, Baseline) and _asks_nothing(policy.name)),
        slope=slope or 1.0,
        managed=_managed(scenario, knobs.rules) if slope else np.zeros(count, dtype=bool),
        origin=_origin(scenario),
        per_point=1.0,
        writes=np.zeros(count, dtype=np.int64),
        written_s=np.full((count, per_hour), -np.inf),
        last_s=np.zeros(count),
        neutral=np.full(4, -1.0),
        compares=compares,
    )
    return ranking, cycles, eyes


def slurms_order(scenario: Scenario) -> Ranking:
    """Slurm's own priorities, tiers of partitions first."""
    ranking, natural = _plain(scenario), scenario.rules.natural
    if natural.kind == "fcfs":
        number = FIRST_PRIORITY - np.arange(len(scenario), dtype=np.int64)
        key = _origin(scenario) - number
        return ranking._replace(value=number, key=key, constants=np.zeros(2))
    if natural == AGE_ONLY:
        return ranking._replace(key=_origin(scenario))
    return ranking._replace(rule=MULTIFACTOR, ahead=_tiers(scenario) * TIER)


def _origin(scenario: Scenario) -> FloatArray:
    """(n,) the key of a fixed order before any number that rltuned writes."""
    ahead = _tiers(scenario) * TIER
    return -ahead if scenario.rules.natural.kind == "fcfs" else scenario.submit_s - ahead


def _tiers(scenario: Scenario) -> FloatArray:
    """(n,) steps of PriorityTier above the lowest."""
    tiers = np.array([p.priority_tier for p in scenario.cluster.partitions], dtype=np.float64)
    prepared = scenario.prepared
    found: FloatArray = (tiers - tiers.min())[prepared.shapes.partition[prepared.jobs.shape]]
    return found


def _managed(scenario: Scenario, scope: Scope) -> BoolArray:
    """(n,) what core/select lets the daemon order, but for what changes with time."""
    scope = replace(scope, min_age_s=0.0, max_writes_per_hour=None)
    if scope == Scope(min_age_s=0.0):
        return np.ones(len(scenario), dtype=bool)
    partitions = [p.name for p in scenario.cluster.partitions]
    pending = pending_jobs(scenario.jobs, scenario.prepared, partitions)
    cluster = scenario.cluster
    snapshot = Snapshot(UnixTime(0.0), cluster.name, pending, (), cluster.nodes, cluster.partitions)
    ours = {job.job_id for job in select(snapshot, scope).chosen}
    return np.array([job.job_id in ours for job in pending])


def _promised(scenario: Scenario, classes: Sequence[SlaClass]) -> BoolArray:
    """(n,) the jobs of a class, which have delay 0."""
    default = scenario.cluster.default_partition
    asked = [((j.partition or default,), j.qos, j.account) for j in scenario.jobs]
    return np.array([any(one.covers(*words) for one in classes) for words in asked], dtype=bool)


def _wish(
    policy: Policy | str, scenario: Scenario, order: Order, *, pure: bool = False
) -> tuple[int, Demand, RunTimes, Eyes]:
    """A policy's rule, what it may ask for, its memory and its eyes. Raises KeyError: it is another
    package's; ValueError: a network corrects no rule, so that there is nothing to bound (pure: or
    to be without).
    """
    known, eyes, predictor = NOTHING_KNOWN, NO_EYES, scenario.predictor
    if predictor is not None:
        known = known_of(scenario.jobs, predictor, scenario.prepared.size)
    if isinstance(policy, NetworkPolicy):
        if not (pure or policy.network.corrects):
            raise ValueError(f"{policy.name} corrects no rule: it is played without bounds alone")
        eyes = eyes_on(scenario.sight, scenario.prepared, net_of(policy.network))
        return NET, scenario.demand(order, BASELINES["delay"]), known, eyes
    if not isinstance(policy, Baseline):
        raise KeyError(policy)
    if policy.name in FORESEEING and predictor is not None:
        return FORESEEING[policy.name], scenario.demand(order), known, eyes
    if policy.name == "fit_first":
        eyes = eyes_on(scenario.sight, scenario.prepared)
        return FIT, scenario.demand(order), known, eyes
    known = NOTHING_KNOWN if _asks_nothing(policy.name) else known
    return STATIC, scenario.demand(order, policy), known, eyes


def _asks_nothing(policy: str) -> bool:
    """Whether a rule asks for no delay, so that its order within the bounds is its pure one."""
    return policy in BASELINES and BASELINES[policy].key is None


def ruled(scenario: Scenario, order: Order) -> Ranking:
    """The rule `delay` within its bounds, by what is foreseen at submission."""
    return _plain(scenario)._replace(demand=scenario.demand(order, BASELINES["delay"]))


def _plain(scenario: Scenario) -> Ranking:
    """First come, first served, with Slurm's points beside it."""
    natural, whole, count = scenario.rules.natural, scenario.cluster.whole, len(scenario)
    shares = np.array(
        [natural.size(r.total, r.nodes, whole) for r in scenario.prepared.requests],
        dtype=np.float64,
    )
    size = 1.0 - shares if natural.favor_small else shares
    own = np.array(natural.own, dtype=np.float64) if natural.own else np.zeros(count)
    partition = natural.partition_weight * scenario.prepared.partition_factor
    return Ranking(
        rule=FIXED,
        key=scenario.submit_s.copy(),
        limit_s=scenario.limit_s,
        gpus=scenario.gpus,
        size=scenario.prepared.size,
        terms=np.column_stack([natural.base + own, natural.size_weight * size, partition]),
        constants=np.array([float(natural.age_weight), natural.max_age_s]),
        value=np.zeros(count, dtype=np.int64),
        ahead=np.zeros(count),
        known=NOTHING_KNOWN,
        demand=NO_DEMAND,
        bounded=False,
    )


def _fixed_keys(policy: str, scenario: Scenario) -> FloatArray:
    """(n,) smaller first."""
    if policy in FUTURE:
        gpus = [max(j.gpus, 1) if policy == CLAIRVOYANT_AREA else 1 for j in scenario.jobs]
        areas = [j.duration_s * g for j, g in zip(scenario.jobs, gpus, strict=True)]
        return np.array(areas, dtype=np.float64)
    if not BASELINES[policy].static:
        raise KeyError(policy)
    found: FloatArray = -BASELINES[policy].score(scenario.matrix())
    return found
