"""Is it better? Learned policies beside every rule, on the same windows, with intervals.

All policies get the same jobs, placement and backfill, and are greedy: nothing is sampled. Windows
are the unit of chance (see lab/compare): how they were cut decides what an interval means, so
the result says it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final

import numpy as np

from rltuned.errors import ModelError, TraceError
from rltuned.lab.compare import SHARES, Change, Paired, objective_logs, of_logs, paired
from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.metrics import METRICS, Schedule, score
from rltuned.lab.replay.protocol import FUTURE, Protocol
from rltuned.lab.replay.run import play_plugged, scheduled
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.rollout import play_policy
from rltuned.lab.train.settings import FEWEST_JOBS, LEAST_WINDOWS, MOST_WINDOWS, RULE, RULES
from rltuned.policies.actor import Actor, Verdict, load_actor
from rltuned.policies.plugins import Plugin, is_plugin, load_plugin
from rltuned.policies.shelf import bundle_at
from rltuned.sim.dispatch import AGE_ONLY

SINGLE: Final = ("wait_s", "bsld", "jct_s")
WAYS: Final = ("wait_s", "wait_p95_s", "jct_s", "bsld")
"""Metrics with the share of the way to the best order that a model goes."""

FIGURE: Final = "wait and slowdown"
DIGITS: Final = 4
Play = Callable[[Scenario], FloatArray]
"""A policy at work: (n,) start times of a window's jobs."""
Seeds = tuple[Actor | Plugin, ...]
"""A model: one bundle or policy of another package, or those of several training seeds."""


def contestant_of(given: str, trust: float = 1.0) -> tuple[str, Seeds]:
    """Its name, and the model, from `BUNDLE`, `plugin:NAME`, or `NAME=...,...` for seeds of one.
    trust: of networks. Raises ModelError.
    """
    name, equals, listed = given.rpartition("=")
    seeds = tuple(
        load_plugin(one) if is_plugin(one) else load_actor(bundle_at(one), trust)
        for one in listed.split(",")
    )
    if len({str(s.card.architecture) if isinstance(s, Actor) else "" for s in seeds}) > 1:
        raise ModelError(f"{given}: not seeds of one another: their architectures differ")
    return name if equals else seeds[0].name, seeds


def plays_of(seeds: Seeds, protocol: Protocol) -> list[Play]:
    """One player per training seed. Raises TraceError: the protocol is not the daemon's cycles."""
    return [
        partial(play_policy, policy=seed, protocol=protocol)
        if isinstance(seed, Actor)
        else _play_of(seed, protocol)
        for seed in seeds
    ]


def _play_of(plugin: Plugin, protocol: Protocol) -> Play:
    if protocol.mode != "cycle":
        raise TraceError(f"policy {plugin.name!r} plays with --mode cycle only")

    def play(window: Scenario) -> FloatArray:
        """As the rules beside it, where Slurm orders by age alone."""
        ended = play_plugged(window.ordered_by(AGE_ONLY), plugin, protocol).world.finished
        return np.array([ended[number].started_at for number in range(1, len(window) + 1)])

    return play


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Which windows. windows: None = as many as share no job, see in_scenario. load: GPU demand
    that submits are stretched to; None = the trace's. part: of the trace, from and to. random: at
    random places, as in the paper, not evenly spread. copies: of each window, with submits moved by
    up to jitter_s.
    """

    windows: int | None = None
    window_jobs: int = 1_024
    load: float | None = None
    part: tuple[float, float] = (0.9, 1.0)
    random: bool = False
    copies: int = 1
    jitter_s: float = 60.0
    seed: int = 1

    @property
    def unit(self) -> str:
        """What intervals are made from: several windows, or the copies of a single one."""
        return "copies" if self.windows == 1 and self.copies > 1 else "windows"

    def in_scenario(self, scenario: Scenario) -> "EvaluationPlan":
        """With windows that there is room for: shorter ones, rather than fewer than LEAST_WINDOWS.
        Raises TraceError: the part has too few jobs.
        """
        room = int(len(scenario) * self.part[1]) - int(len(scenario) * self.part[0])
        if room < FEWEST_JOBS:
            raise TraceError(
                f"{scenario.name}: {room} jobs between {self.part[0]:.0%} and {self.part[1]:.0%} "
                f"are too few to judge by"
            )
        size = min(self.window_jobs, room if self.windows else room // LEAST_WINDOWS)
        count = self.windows or min(MOST_WINDOWS, room // size)
        return replace(self, windows=count, window_jobs=size)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One trace on one cluster at one load; k units of chance (see EvaluationPlan.unit). plan: as
    it was played. disjoint: no two windows share a job.

    values: policy -> metric -> (k,), a model's (s, k) of s seeds. paired: model -> rule -> metric.
    closed: model -> metric -> share of the way from fcfs to the better clairvoyant order. spread:
    policy -> metric of SINGLE -> (len(SHARES),) quantiles over all jobs.
    """

    scenario: str
    plan: EvaluationPlan
    disjoint: bool
    jobs: int
    values: Mapping[str, Mapping[str, FloatArray]]
    paired: Mapping[str, Mapping[str, Mapping[str, Paired]]]
    closed: Mapping[str, Mapping[str, float | None]]
    spread: Mapping[str, Mapping[str, FloatArray]]

    def means(self) -> dict[str, dict[str, float]]:
        """Policy -> metric -> mean over windows and seeds (all have equally many jobs)."""
        return {
            p: {m: float(v.mean()) for m, v in table.items()} for p, table in self.values.items()
        }


def everywhere(
    comparisons: Sequence[Evaluation], model: str, rule: str, metric: str
) -> list[float]:
    """Change of a model's ratio to a rule: the geometric mean over the places, then at each."""
    tables = [one.paired.get(model, {}) for one in comparisons]
    changes = [table[rule][metric].geometric.change or 0.0 for table in tables if rule in table]
    if not changes:
        return []
    return [prod((1 + one) ** (1 / len(changes)) for one in changes) - 1, *changes]


def is_proven(comparisons: Sequence[Evaluation], model: str, rule: str, metric: str) -> bool:
    """Whether the 95% interval of the change leaves out 0, on the same side at every place."""
    tables = [one.paired.get(model, {}) for one in comparisons]
    words = {table[rule][metric].geometric.word for table in tables if rule in table}
    return words in ({"better"}, {"worse"})


def objective_over(comparisons: Sequence[Evaluation], model: str, rule: str) -> tuple[Change, int]:
    """A model against a rule by wait and slowdown together, over the windows of all places, and how
    many there were.
    """
    tables = [one.values for one in comparisons if rule in one.paired.get(model, {})]
    logs = np.concatenate([objective_logs(values[model], values[rule]) for values in tables])
    return of_logs(logs), len(logs)


def windows_of(scenario: Scenario, plan: EvaluationPlan) -> tuple[list[Scenario], bool]:
    """The windows, their copies, and whether no two places share a job. Raises TraceError."""
    plan = plan.in_scenario(scenario)
    count, first = plan.windows or 1, int(len(scenario) * plan.part[0])
    spare = int(len(scenario) * plan.part[1]) - first - plan.window_jobs
    draw = np.random.default_rng(plan.seed)
    if plan.random:
        starts = first + np.sort(draw.integers(0, spare + 1, count))
    else:
        starts = first + np.linspace(0, spare, count).astype(int)
    disjoint = count == 1 or int(np.diff(starts).min()) >= plan.window_jobs
    found = [
        scenario.cut(
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


def evaluate_on(
    scenario: Scenario,
    models: Mapping[str, Sequence[Play]],
    plan: EvaluationPlan,
    *,
    rules: Sequence[str] = RULES,
    protocol: Protocol,
    on_window: Callable[[str], None] = lambda _policy: None,
) -> Evaluation:
    """Play every window under every policy. models: name -> one player per training seed. protocol:
    of the rules; who knows the future orders at every event. Raises TraceError.
    """
    plan = plan.in_scenario(scenario)
    chosen, disjoint = windows_of(scenario, plan)
    judges: dict[str, Play] = {r: partial(play_policy, policy=r, protocol=protocol) for r in rules}
    values: dict[str, dict[str, FloatArray]] = {}
    spread = {}
    players_of = {**{name: [play] for name, play in judges.items()}, **models}
    for policy, players in players_of.items():
        seeds = []
        kept: list[Schedule] = []
        for play in players:
            schedules = []
            for window in chosen:
                start_s = play(window)
                end_s = start_s + window.prepared.jobs.runs_s
                schedules.append(scheduled(window, start_s, end_s))
                on_window(policy)
            seeds.append(_table(schedules, plan, scenario.prepared.cluster_gpus))
            kept += schedules
        values[policy] = {
            m: np.array([s[m] for s in seeds]) if policy in models else seeds[0][m] for m in METRICS
        }
        spread[policy] = _spread(kept)
    return Evaluation(
        scenario=scenario.name,
        plan=plan,
        disjoint=disjoint,
        jobs=plan.window_jobs * len(chosen),
        values=values,
        paired={
            name: {
                rule: {m: paired(values[name][m], values[rule][m], m) for m in METRICS}
                for rule in judges
            }
            for name in models
        },
        closed={name: _closed(values, name, _best_known(values)) for name in models},
        spread=spread,
    )


def _table(
    schedules: Sequence[Schedule], plan: EvaluationPlan, cluster_gpus: int
) -> dict[str, FloatArray]:
    """Metric -> (k,): copies of a place are averaged, since they share their jobs."""
    rows = []
    for schedule in schedules:
        found = score([schedule], cluster_gpus)
        rows.append([getattr(found, m) for m in METRICS])
    table = np.array(rows, dtype=np.float64)
    if plan.unit == "windows":
        table = table.reshape(-1, plan.copies, len(METRICS)).mean(axis=1)
    return dict(zip(METRICS, table.T, strict=True))


def _spread(schedules: Sequence[Schedule]) -> dict[str, FloatArray]:
    single = {
        "wait_s": [s.wait_s for s in schedules],
        "bsld": [s.slowdown for s in schedules],
        "jct_s": [s.end_s - s.submit_s for s in schedules],
    }
    return {m: np.quantile(np.concatenate(single[m]), SHARES) for m in SINGLE}


def _best_known(values: Mapping[str, Mapping[str, FloatArray]]) -> dict[str, float]:
    """Per metric the better of the orders that know the future, where one was played."""
    there = [values[f] for f in FUTURE if f in values]
    return {m: min(float(v[m].mean()) for v in there) for m in WAYS} if there else {}


def _closed(
    values: Mapping[str, Mapping[str, FloatArray]], name: str, ends: Mapping[str, float]
) -> dict[str, float | None]:
    """Metric -> share of the way from fcfs to an end that a model goes; None = there is no way."""
    if "fcfs" not in values:
        return {}
    found = dict[str, float | None]()
    for metric, end in ends.items():
        begin = float(values["fcfs"][metric].mean())
        gone = begin - float(values[name][metric].mean())
        found[metric] = gone / (begin - end) if begin > end else None
    return found


def verdict_of(found: Change, windows: int) -> Verdict:
    """In the words of a card."""
    low, high = found.low, found.high
    return Verdict(
        word=found.word,
        change=round(found.change or 0.0, DIGITS),
        low=None if low is None else round(low, DIGITS),
        high=None if high is None else round(high, DIGITS),
        windows=windows,
        figure=FIGURE,
    )


def verdicts(comparisons: Sequence[Evaluation]) -> Mapping[str, Verdict]:
    """Of every model that was played beside the rule."""
    models = comparisons[0].paired
    return {
        name: verdict_of(*objective_over(comparisons, name, RULE))
        for name, rules in models.items()
        if RULE in rules
    }


def headline(comparisons: Sequence[Evaluation]) -> str:
    """Every model's verdict; where the rule was not played, against the first one that was."""
    found = verdicts(comparisons)
    parts = []
    for name, rules in comparisons[0].paired.items():
        if name in found:
            parts.append(f"{name}: {found[name]}")
        elif rules:
            rule = next(iter(rules))
            change, windows = objective_over(comparisons, name, rule)
            parts.append(f"{name} against {rule}: {FIGURE} {change} on {windows} windows")
    return "; ".join(parts)
