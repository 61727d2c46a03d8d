"""Is it better? Learned policies beside every rule, on the same windows, with intervals.

All policies get the same jobs, placement and backfill, and are greedy: nothing is sampled. Windows
are the unit of chance: differences are paired by window, intervals come from resampling windows
(percentile bootstrap), which is honest only while windows share no job; the result says so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from rltuned.core.features import NUM_FEATURES
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES
from rltuned.policies.network import ContextActor, PaperActor
from rltuned.policies.predictor import LOG_FULL
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.metrics import Schedule, jct_bound, score
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.train.episodes import net_of, play_greedy, play_order, play_rule
from rltuned.train.ground import Ground, Window, cut
from rltuned.train.rollout.state import Float32Array

Network = PaperActor | ContextActor
METRICS = (
    "wait_s",
    "wait_p95_s",
    "wait_p99_s",
    "wait_max_s",
    "jct_s",
    "bsld",
    "utilisation",
    "makespan_s",
)
LARGER_IS_BETTER = frozenset({"utilisation"})
RULES = (*BASELINES, CLAIRVOYANT)
QSSF = "qssf"
RESAMPLES = 10_000
TIE = 1e-9
FEWEST_WINDOWS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """Which windows. part: of the trace; copies > 1: the same jobs with submits moved a little."""

    windows: int = FEWEST_WINDOWS
    window_jobs: int = 1_024
    load: float | None = None
    part: tuple[float, float] = (0.9, 1.0)
    copies: int = 1
    jitter_s: float = 60.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Paired:
    """A model against a rule, one metric: relative change of the mean (-0.1: ten percent less).

    low, high: 95% interval. geometric: the same of the mean log ratio. wins: windows in which the
    model is better. sign: chance of so uneven a split if both were equal (two-sided).
    """

    change: float
    low: float
    high: float
    geometric: float
    geometric_low: float
    geometric_high: float
    wins: int
    losses: int
    ties: int
    sign: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trace on one cluster at one load.

    values: policy -> metric -> (k,) per window. paired: model -> rule -> metric. closed: model ->
    metric -> share of the way from fcfs to the clairvoyant order. bound: least mean wait and JCT
    that any order could reach.
    """

    ground: str
    plan: Plan
    disjoint: bool
    jobs: int
    values: Mapping[str, Mapping[str, FloatArray]]
    paired: Mapping[str, Mapping[str, Mapping[str, Paired]]]
    closed: Mapping[str, Mapping[str, float]]
    bound: tuple[float, float]

    def means(self) -> dict[str, dict[str, float]]:
        """Policy -> metric -> mean over windows (all have equally many jobs)."""
        return {
            p: {m: float(v.mean()) for m, v in table.items()} for p, table in self.values.items()
        }


def windows_of(ground: Ground, plan: Plan) -> tuple[list[Window], bool]:
    """The windows, and whether no two of them share a job.

    Raises:
        TraceError: not even one fits in the part.
    """
    first, end = int(len(ground) * plan.part[0]), int(len(ground) * plan.part[1])
    spare = end - first - plan.window_jobs
    if spare < 0:
        raise TraceError(
            f"{ground.name}: {end - first} jobs between {plan.part[0]:.0%} and {plan.part[1]:.0%} "
            f"are too few for a window of {plan.window_jobs}"
        )
    starts = first + np.linspace(0, spare, plan.windows).astype(int)
    disjoint = plan.copies == 1 and (
        plan.windows == 1 or int(np.diff(starts).min()) >= plan.window_jobs
    )
    draw = np.random.default_rng(plan.seed)
    found = [
        cut(
            ground,
            int(at),
            plan.window_jobs,
            load=plan.load,
            jitter=draw if plan.copies > 1 else None,
            jitter_s=plan.jitter_s,
        )
        for at in starts
        for _ in range(plan.copies)
    ]
    return found, disjoint


def compare(
    ground: Ground,
    models: Mapping[str, Network],
    plan: Plan,
    *,
    rules: Sequence[str] = RULES,
    foretold: Mapping[str, Float32Array] = MappingProxyType({}),
    on_window: Callable[[str], None] = lambda _policy: None,
) -> Comparison:
    """Play every window under every policy.

    Args:
        ground: trace and cluster.
        models: by name.
        plan: which windows.
        rules: by name.
        foretold: model -> predictions for all jobs of the ground, where it reads them. The first
            of them also serves qssf: smallest predicted run time times GPUs first.
        on_window: told the policy after each window.

    Raises:
        TraceError: the part of the trace is too short for one window.
    """
    chosen, disjoint = windows_of(ground, plan)
    nets = {name: net_of(network) for name, network in models.items()}
    values: dict[str, dict[str, FloatArray]] = {}
    bounds = []
    beside = (*rules, *((QSSF,) if foretold else ()))
    for policy in (*beside, *nets):
        rows = []
        for window in chosen:
            if policy == QSSF:
                start_s = _qssf(window.foretold(next(iter(foretold.values()))))
            elif policy in foretold:
                start_s = play_greedy(window.foretold(foretold[policy]), nets[policy])
            elif policy in nets:
                start_s = play_greedy(window, nets[policy])
            else:
                start_s = play_rule(window, policy)
            schedule = schedule_of(window, start_s)
            if policy == rules[0]:
                bounds.append(jct_bound(schedule, ground.prepared.cluster_gpus))
            found = score([schedule], ground.prepared.cluster_gpus)
            rows.append([getattr(found, m) for m in METRICS])
            on_window(policy)
        values[policy] = dict(zip(METRICS, np.array(rows, dtype=np.float64).T, strict=True))
    wait, jct = np.mean(bounds, axis=0).tolist()
    return Comparison(
        ground=ground.name,
        plan=plan,
        disjoint=disjoint,
        jobs=plan.window_jobs * len(chosen),
        values=values,
        paired={
            name: {
                rule: {m: paired(values[name][m], values[rule][m], m) for m in METRICS}
                for rule in beside
            }
            for name in nets
        },
        closed={name: _closed(values, name) for name in nets},
        bound=(wait, jct),
    )


def _qssf(window: Window) -> FloatArray:
    """Quasi-shortest service first (Hu et al., SC'21): predicted GPU time, smallest first."""
    median_s = np.expm1(window.fixed[:, NUM_FEATURES + 1].astype(np.float64) * LOG_FULL)
    gpus = np.array([max(job.gpus, 1) for job in window.jobs], dtype=np.float64)
    return play_order(window, median_s * gpus)


def schedule_of(window: Window, start_s: FloatArray) -> Schedule:
    """What the simulator's own metrics are computed from."""
    jobs = window.jobs
    return Schedule(
        job_ids=tuple(j.job_id for j in jobs),
        submit_s=window.submit_s,
        start_s=start_s,
        end_s=start_s + window.prepared.jobs.runs_s,
        duration_s=window.duration_s,
        gpus=window.prepared.shapes.gpus[window.prepared.jobs.shape].astype(np.float64),
        users=tuple(j.user for j in jobs),
        partitions=("",) * len(jobs),
        nodes=("",) * len(jobs),
        decisions=0,
        elapsed_s=0.0,
    )


def paired(own: FloatArray, other: FloatArray, metric: str, seed: int = 1) -> Paired:
    """Compare two policies window by window; (k,) values each."""
    draw = np.random.default_rng(seed)
    picks = draw.integers(0, len(own), (RESAMPLES, len(own)))
    floor = 1e-12
    change = own.mean() / max(other.mean(), floor) - 1
    resampled = own[picks].mean(axis=1) / np.maximum(other[picks].mean(axis=1), floor) - 1
    # windows without any wait say nothing about a ratio: a second beside a second is no change
    logs = np.log((own + SMALLEST[metric]) / (other + SMALLEST[metric]))
    mean_logs = logs[picks].mean(axis=1)
    sign = 1.0 if metric in LARGER_IS_BETTER else -1.0
    better = sign * (own - other)
    near = TIE * np.maximum(np.abs(own), np.abs(other))
    wins, losses = int((better > near).sum()), int((better < -near).sum())
    low, high = np.percentile(resampled, [2.5, 97.5]).tolist()
    g_low, g_high = (np.exp(np.percentile(mean_logs, [2.5, 97.5])) - 1).tolist()
    return Paired(
        change=float(change),
        low=low,
        high=high,
        geometric=float(np.exp(logs.mean()) - 1),
        geometric_low=g_low,
        geometric_high=g_high,
        wins=wins,
        losses=losses,
        ties=len(own) - wins - losses,
        sign=sign_test(wins, losses),
    )


SMALLEST = dict.fromkeys(METRICS, 1.0) | {"bsld": 0.0, "utilisation": 1e-6}
"""Added to both sides of a ratio: a second."""


def sign_test(wins: int, losses: int) -> float:
    """Two-sided chance of a split at least so uneven between equals; ties are left out."""
    count, most = wins + losses, max(wins, losses)
    if count == 0:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(most, count + 1))
    return min(1.0, float(2 * tail / 2**count))


def _closed(values: Mapping[str, Mapping[str, FloatArray]], name: str) -> dict[str, float]:
    if "fcfs" not in values or CLAIRVOYANT not in values:
        return {}
    found = {}
    for metric in ("wait_s", "wait_p95_s", "jct_s", "bsld"):
        far = values["fcfs"][metric].mean() - values[CLAIRVOYANT][metric].mean()
        gone = values["fcfs"][metric].mean() - values[name][metric].mean()
        found[metric] = float(gone / far) if far > 0 else float("nan")
    return found
