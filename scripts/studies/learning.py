"""Does PPO find an order that is known to be the best? Four problems on a node with one GPU.

    python -m scripts.studies.learning [--seed SEED]

Jobs of one GPU arrive by a Poisson process at LOAD, and every limit is the run time. In the first
three the actor's score is the order: a blank one is first come, first served, and has no bounds.

- shortest: exponential run times, the mean wait. Shortest first is the best order.
- priced: short and long jobs, as many of either; a second that a long one waits costs PRICE times
  as much. By cost over run time the long ones are first, the opposite of shortest first.
- fcfs: equal run times, the mean square of the waits. First come, first served is the best order.
- corrected: as `priced`, but the actor corrects the rule `delay` within its bounds. The largest
  correction, by hand, for the long jobs and against the short ones stands for the best.

Training and judgement have jobs of their own. The actor of the last epoch is judged, its best
choice taken at every event; no epoch is selected. What is given is its cost over the best order's
with a 95% interval over windows. Exit code 1: one is above its target.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from rltuned.core.features import FIXED, LIMIT_FULL_S, OBSERVED, FloatArray
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.compare import mean_with_ends, paired
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.ppo import Learner, train
from rltuned.lab.train.rollout import play_policy, total
from rltuned.lab.train.settings import REACH, Objective, PpoSettings
from rltuned.policies.actor import Network, NetworkPolicy
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob

LOAD, JOBS, WINDOW_JOBS = 0.9, 20_000, 1_000
"""Jobs of every trace: one to learn from, one to be judged by, in windows that share no job."""
JUDGES = 1_000  # seed of the jobs that judge
PRICE, SHORT_S, LONG_S, EQUAL_S, MEAN_S = 20.0, 600.0, 3_600.0, 1_800.0, 3_600.0
FAR = 3.0
"""A score at which a correction is nearly the largest."""


@dataclass(frozen=True)
class Problem:
    """One whose best order is known. run_s: draws run times (n,). best: a rule, or LONGEST.
    most: the largest ratio to its cost that passes. reach: 0 = the actor is the order.
    """

    run_s: Callable[[np.random.Generator, int], FloatArray]
    objective: Objective
    best: str
    most: float
    reach: float = 0.0


def _short_and_long(draw: np.random.Generator, count: int) -> FloatArray:
    found: FloatArray = draw.choice((SHORT_S, LONG_S), count)
    return found


LONGEST = "longest"
PROBLEMS: Final[Mapping[str, Problem]] = {
    "shortest": Problem(lambda d, n: np.ceil(d.exponential(MEAN_S, n)), "wait", "sjf", 1.10),
    "priced": Problem(_short_and_long, "wait", LONGEST, 1.10),
    "fcfs": Problem(lambda _, count: np.full(count, EQUAL_S), "tail", "fcfs", 1.03),
    "corrected": Problem(_short_and_long, "wait", LONGEST, 1.05, REACH),
}
SETTINGS = PpoSettings(
    base="fcfs", loads=(LOAD, LOAD), part=1.0, network="paper", epochs=20,
)  # fmt: skip
"""As `rltuned train ppo --set network=paper`, but for base, load and epochs."""


def longest_first(reach: float) -> NetworkPolicy:
    """An actor by hand: FAR for long jobs, -FAR for short ones, by the feature of the limit."""
    low, high = (math.log1p(run_s) / math.log1p(LIMIT_FULL_S) for run_s in (SHORT_S, LONG_S))
    steep = 2 * FAR / (high - low)
    seen = np.zeros((1, OBSERVED))
    seen[0, FIXED.index("requested_time")] = 1.0
    layers = {0: (seen, [0.0]), 2: ([[1.0]], [0.0]), 4: ([[steep]], [-steep * (low + high) / 2])}
    weights = {
        f"layers.{number}.{name}": np.array(value, dtype=np.float32)
        for number, values in layers.items()
        for name, value in zip(("weight", "bias"), values, strict=True)
    }
    return NetworkPolicy(LONGEST, Network("paper", weights, reach))


def trace_of(name: str, seed: int) -> Scenario:
    """The node and its jobs."""
    kind, draw = PROBLEMS[name], np.random.default_rng([seed, list(PROBLEMS).index(name)])
    run_s = kind.run_s(draw, JOBS)
    submit_s = np.cumsum(draw.exponential(float(run_s.mean()) / LOAD, JOBS))
    pairs = zip(submit_s.tolist(), run_s.tolist(), strict=True)
    jobs = [TraceJob(str(at), submit, run, 1, run) for at, (submit, run) in enumerate(pairs)]
    node = idle_node("n1", GpuType("g"), Resources(1, 8, 64_000), ("gpu",))
    cluster = Cluster(name, (node,), (Partition("gpu", default=True),))
    price = np.where((run_s == LONG_S) & (kind.best == LONGEST), PRICE, 1.0)
    return replace(Scenario.of(cluster, jobs, name=name), price=price).for_networks()


@cache
def windows_of(name: str) -> tuple[Scenario, ...]:
    """Those that judge: they are never learned from, and the same for every training."""
    whole = trace_of(name, JUDGES)
    return tuple(whole.cut(first, WINDOW_JOBS) for first in range(0, JOBS, WINDOW_JOBS))


def costs(name: str, policy: NetworkPolicy | str) -> FloatArray:
    """(k,) of a policy at every event, of LONGEST the one by hand."""
    kind = PROBLEMS[name]
    rule = longest_first(kind.reach) if policy == LONGEST else policy
    protocol = Protocol(bounded=kind.reach > 0)  # where the actor corrects a rule
    starts = ((window, play_policy(window, rule, protocol)) for window in windows_of(name))
    return np.array([total(kind.objective, window, start_s) for window, start_s in starts])


@dataclass(frozen=True)
class Judged:
    """A training: cost of the last epoch's actor over the best order's, with its interval, and the
    same of a blank one and after each epoch.
    """

    ratio: float
    low: float
    high: float
    curve: list[float]
    cpu_s: float


def play(name: str, seed: int, settings: PpoSettings = SETTINGS) -> Judged:
    """Train, and judge."""
    began, kind = time.process_time(), PROBLEMS[name]
    best, found = costs(name, kind.best), [costs(name, "delay" if kind.reach else "fcfs")]
    settings = replace(settings, objective=kind.objective, reach=kind.reach, seed=seed)

    def validate(actor: TorchActor) -> tuple[float, float | None, float | None]:
        found.append(costs(name, policy_of(actor)))
        return mean_with_ends(np.log(found[-1] / best))

    train(Learner(settings), [trace_of(name, seed)], validate)
    change = paired(found[-1], best, "bsld")  # to which nothing is added: costs have their floor
    ratio, low, high = (round(1 + value, 4) for value in change.known)
    curve = [round(float(one.mean() / best.mean()), 4) for one in found]
    return Judged(ratio, low, high, curve, round(time.process_time() - began, 1))


def passed(name: str, judged: Judged) -> bool:
    """Whether the whole interval is within the target."""
    return judged.high <= PROBLEMS[name].most


def main() -> int:
    """Train on each problem with one seed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.studies.learning")
    parser.add_argument("--seed", type=int, default=1, help="that it trains with")
    seed, missed = parser.parse_args().seed, 0
    for name, kind in PROBLEMS.items():
        found = play(name, seed)
        missed += not passed(name, found)
        print(
            f"{name}: {found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}] of the best order's "
            f"cost, at most {kind.most}: {'holds' if passed(name, found) else 'MISSED'}; a blank "
            f"actor {found.curve[0]:.3f}; {found.cpu_s:.0f} s",
            flush=True,
        )
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
