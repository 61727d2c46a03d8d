"""Is it better? Learned policies beside every rule, on the same windows, with intervals.

All policies get the same jobs, placement and backfill, and are greedy: nothing is sampled. Windows
are the unit of chance (see lab/compare): how they were cut decides what an interval means, so
the result says it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.errors import ModelError, TraceError
from rltuned.lab.compare import (
    LARGER_IS_BETTER,
    Change,
    Paired,
    objective_logs,
    of_logs,
    paired,
)
from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.metrics import METRICS, Schedule, score
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import scheduled
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.rollout import play_policy
from rltuned.lab.train.settings import FEWEST_JOBS, LEAST_WINDOWS, MOST_WINDOWS, RULE, RULES
from rltuned.policies.actor import Actor, Verdict, load_actor
from rltuned.policies.plugins import Plugin, is_plugin, load_plugin
from rltuned.policies.shelf import bundle_at
from rltuned.report import render
from rltuned.sim.world import AGE_ONLY

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
        world = window.ordered_by(AGE_ONLY).world()
        ended = DecidedWorld(world, protocol, learns=True).play(plugin).world.finished
        return np.array([ended[number].started_at for number in range(1, len(window) + 1)])

    return play


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Which windows. windows: None = as many as share no job, see in_scenario. load: GPU demand
    that submits are stretched to; None = the trace's. part: of the trace, from and to.
    """

    windows: int | None = None
    window_jobs: int = 1_024
    load: float | None = None
    part: tuple[float, float] = (0.9, 1.0)

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
    """One trace on one cluster at one load; k windows. plan: as it was played. disjoint: no two
    windows share a job.

    values: policy -> metric -> (k,), a model's (s, k) of s seeds. paired: model -> rule -> metric.
    """

    scenario: str
    plan: EvaluationPlan
    disjoint: bool
    jobs: int
    values: Mapping[str, Mapping[str, FloatArray]]
    paired: Mapping[str, Mapping[str, Mapping[str, Paired]]]

    def means(self) -> dict[str, dict[str, float]]:
        """Policy -> metric -> mean over windows and seeds (all have equally many jobs)."""
        return {
            p: {m: float(v.mean()) for m, v in table.items()} for p, table in self.values.items()
        }


def windows_of(scenario: Scenario, plan: EvaluationPlan) -> tuple[list[Scenario], bool]:
    """The windows, evenly spread, and whether no two share a job. Raises TraceError."""
    plan = plan.in_scenario(scenario)
    count, first = plan.windows or 1, int(len(scenario) * plan.part[0])
    spare = int(len(scenario) * plan.part[1]) - first - plan.window_jobs
    starts = first + np.linspace(0, spare, count).astype(int)
    found = [scenario.cut(int(at), plan.window_jobs, load=plan.load) for at in starts]
    return found, count == 1 or int(np.diff(starts).min()) >= plan.window_jobs


def evaluate_on(
    scenario: Scenario,
    models: Mapping[str, Sequence[Play]],
    plan: EvaluationPlan,
    *,
    rules: Sequence[str] = RULES,
    protocol: Protocol,
) -> Evaluation:
    """Play every window under every policy. models: name -> one player per training seed. protocol:
    of the rules; who knows the future orders at every event. Raises TraceError.
    """
    plan = plan.in_scenario(scenario)
    chosen, disjoint = windows_of(scenario, plan)
    judges: dict[str, Sequence[Play]] = {
        rule: [partial(play_policy, policy=rule, protocol=protocol)] for rule in rules
    }
    values: dict[str, dict[str, FloatArray]] = {}
    for policy, players in {**judges, **models}.items():
        kept: list[Schedule] = []
        for play in players:
            for window in chosen:
                start_s = play(window)
                end_s = start_s + window.prepared.jobs.runs_s
                kept.append(scheduled(window, start_s, end_s))
        rows = [score([one], scenario.prepared.cluster_gpus) for one in kept]
        table = np.array([[getattr(row, m) for m in METRICS] for row in rows], dtype=np.float64)
        seeds = table.reshape(len(players), -1, len(METRICS))
        values[policy] = {
            m: (seeds[:, :, at] if policy in models else seeds[0, :, at]).copy()
            for at, m in enumerate(METRICS)
        }
    beside = {
        name: {
            rule: {m: paired(values[name][m], values[rule][m], m) for m in METRICS}
            for rule in judges
        }
        for name in models
    }
    jobs = plan.window_jobs * len(chosen)
    return Evaluation(scenario.name, plan, disjoint, jobs, values, beside)


# What several places say together


def objective_over(comparisons: Sequence[Evaluation], model: str, rule: str) -> tuple[Change, int]:
    """A model against a rule by wait and slowdown together, over the windows of all places, and how
    many there were.
    """
    tables = [one.values for one in comparisons if rule in one.paired.get(model, {})]
    logs = np.concatenate([objective_logs(values[model], values[rule]) for values in tables])
    return of_logs(logs), len(logs)


def verdict_of(found: Change, windows: int) -> Verdict:
    """In the words of a card."""
    change, low, high = (
        None if x is None else round(x, DIGITS)
        for x in (found.change or 0.0, found.low, found.high)
    )
    return Verdict(
        word=found.word, change=change or 0.0, low=low, high=high, windows=windows, figure=FIGURE
    )


def verdicts(comparisons: Sequence[Evaluation]) -> Mapping[str, Verdict]:
    """Of every model, where it was played beside the rule."""
    return {
        name: verdict_of(*objective_over(comparisons, name, RULE))
        for name, rules in comparisons[0].paired.items()
        if RULE in rules
    }


def headline(comparisons: Sequence[Evaluation]) -> str:
    """Every model's verdict."""
    return "; ".join(f"{name}: {one}" for name, one in verdicts(comparisons).items())


# The page

UNITS: Final = {
    "wait_s": "mean wait, s",
    "wait_p95_s": "p95 wait, s",
    "wait_p99_s": "p99 wait, s",
    "wait_max_s": "longest wait, s",
    "jct_s": "mean JCT, s",
    "bsld": "bounded slowdown",
    "utilisation": "utilisation",
    "makespan_s": "makespan, s",
}
"""Every metric of train/evaluate, with its unit."""


def write_page(
    folder: Path,
    comparisons: Sequence[Evaluation],
    cards: Mapping[str, Mapping[str, object]],
) -> Path:
    """Write index.html, which needs nothing else; its path. Raises TraceError."""
    places = []
    for found in comparisons:
        load = "its own load" if found.plan.load is None else f"load {found.plan.load:g}"
        title = f"{found.scenario}, {load}"
        places.append({"title": title, "found": found, "means": found.means()})
    text = render(
        "evaluation.html",
        title="Evaluation",
        headline=headline(comparisons),
        places=places,
        cards=cards,
        units=UNITS,
        short_units=[unit.split(",")[0] for unit in UNITS.values()],
        larger_is_better=LARGER_IS_BETTER,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "index.html"
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from error
    return path
