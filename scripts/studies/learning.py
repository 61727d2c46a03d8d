"""Does PPO find an order that is known to be the best? Four problems on a node with one GPU.

    python -m scripts.studies.learning judge [--train-seed SEED]
    python -m scripts.studies.learning run [--minutes M]
    python -m scripts.studies.learning table
    python -m scripts.studies.learning draw

Jobs of one GPU arrive by a Poisson process at LOAD, and every limit is the run time. In the first
three the actor's score is the order: a blank one is first come, first served, and has no bounds.

- shortest: exponential run times, the mean wait. Shortest first is the best order.
- priced: short and long jobs, as many of either; a second that a long one waits costs PRICE times
  as much. By cost over run time the long ones are first, the opposite of shortest first.
- fcfs: equal run times, the mean square of the waits. First come, first served is the best order.
- corrected: the jobs and prices of `priced`, but the actor corrects the rule `delay` within its
  bounds, as shipped ones do. A correction by hand, the most that an actor may take from the delays
  of the long jobs and add to those of the short ones, stands for the best.

Training and judgement have jobs of their own. The actor of the last epoch is judged, its best
choice taken at every event; no epoch is selected. What is given is its cost over the best order's
with a 95% interval over windows.
"""

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np

from rltuned.core.features import FIXED, LIMIT_FULL_S, OBSERVED, FloatArray
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.compare import geometric, mean_with_ends, paired
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.ppo import Learner, Report, train
from rltuned.lab.train.rollout import play_policy, total
from rltuned.lab.train.settings import REACH, Objective, PpoSettings
from rltuned.policies.actor import Network, NetworkPolicy
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import TraceJob
from scripts.studies import plays
from scripts.studies.plays import Row, known

RESULTS = Path("docs/data/learning.jsonl")
LOAD, JOBS = 0.9, 20_000
"""Of every trace: one to learn from, one to be judged by."""
WINDOW_JOBS = 1_000
"""Of a window that judges; they share no job."""
JUDGES = 1_000
"""Seed of the jobs that judge."""
PRICE, SHORT_S, LONG_S, EQUAL_S, MEAN_S = 20.0, 600.0, 3_600.0, 1_800.0, 3_600.0
FAR = 3.0
"""A score at which a correction is nearly the largest."""
SEEDS = range(1, 6)


@dataclass(frozen=True)
class Known:
    """A problem whose best order is known. run_s: draws run times (n,). best: a rule, or LONGEST.
    most: the largest ratio to its cost that passes. reach: 0 = the actor is the order.
    """

    run_s: Callable[[np.random.Generator, int], FloatArray]
    objective: Objective
    best: str
    most: float
    reach: float = 0.0

    @property
    def blank(self) -> str:
        """The rule that an actor begins as."""
        return "delay" if self.reach else "fcfs"

    @property
    def protocol(self) -> Protocol:
        """At every event; within the bounds where the actor corrects a rule."""
        return Protocol(bounded=self.reach > 0)


def _exponential(draw: np.random.Generator, count: int) -> FloatArray:
    found: FloatArray = np.ceil(draw.exponential(MEAN_S, count))
    return found


def _short_and_long(draw: np.random.Generator, count: int) -> FloatArray:
    found: FloatArray = draw.choice((SHORT_S, LONG_S), count)
    return found


def _equal(_: np.random.Generator, count: int) -> FloatArray:
    return np.full(count, EQUAL_S)


LONGEST = "longest"
GROUNDS: Final[Mapping[str, Known]] = {
    "shortest": Known(_exponential, "wait", "sjf", 1.10),
    "priced": Known(_short_and_long, "wait", LONGEST, 1.10),
    "fcfs": Known(_equal, "tail", "fcfs", 1.03),
    "corrected": Known(_short_and_long, "wait", LONGEST, 1.05, REACH),
}
DEFAULT = PpoSettings(
    reference="group",
    rollouts=10,
    loads=(LOAD, LOAD),
    part=1.0,
    network="paper",
    learning_rate=5e-3,
    epochs=20,
)
"""As `rltuned train ppo --network paper`, but for the load and fewer epochs."""
PAPERS = replace(DEFAULT, reference="base", form="gap", rollouts=1)
RECIPES: Final[Mapping[str, tuple[PpoSettings, tuple[str, ...]]]] = {
    "default": (DEFAULT, tuple(GROUNDS)),
    "paper's reward": (PAPERS, ("shortest",)),
}
"""Settings, and where they are tried."""


def longest_first(reach: float) -> NetworkPolicy:
    """An actor by hand: FAR for long jobs, -FAR for short ones, by the feature of the limit."""
    low, high = (math.log1p(run_s) / math.log1p(LIMIT_FULL_S) for run_s in (SHORT_S, LONG_S))
    steep = 2 * FAR / (high - low)
    seen = np.zeros((1, OBSERVED))
    seen[0, FIXED.index("requested_time")] = 1.0
    numbers = {
        "layers.0.weight": seen,
        "layers.0.bias": [0.0],
        "layers.2.weight": [[1.0]],
        "layers.2.bias": [0.0],
        "layers.4.weight": [[steep]],
        "layers.4.bias": [-steep * (low + high) / 2],
    }
    weights = {name: np.array(value, dtype=np.float32) for name, value in numbers.items()}
    return NetworkPolicy(LONGEST, Network("paper", weights, reach))


@dataclass(frozen=True)
class Run:
    """One training."""

    ground: str
    recipe: str
    seed: int


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed, so that an interrupted study is even."""
    for recipe, seed in product(RECIPES, SEEDS):
        for ground in RECIPES[recipe][1]:
            yield Run(ground, recipe, seed)


def ground_of(name: str, seed: int) -> Scenario:
    """The node and its jobs."""
    kind, draw = GROUNDS[name], np.random.default_rng([seed, list(GROUNDS).index(name)])
    run_s = kind.run_s(draw, JOBS)
    submit_s = np.cumsum(draw.exponential(float(run_s.mean()) / LOAD, JOBS))
    jobs = [
        TraceJob(str(at), submit, run, 1, run)
        for at, (submit, run) in enumerate(zip(submit_s.tolist(), run_s.tolist(), strict=True))
    ]
    node = idle_node("n1", GpuType("g"), Resources(1, 8, 64_000), ("gpu",))
    cluster = Cluster(name, (node,), (Partition("gpu", default=True),))
    price = np.where((run_s == LONG_S) & (kind.best == LONGEST), PRICE, 1.0)
    return replace(Scenario.of(cluster, jobs, name=name), price=price).for_networks()


@dataclass(frozen=True)
class HeldOut:
    """Windows that are never learned from."""

    kind: Known
    windows: tuple[Scenario, ...]

    def costs(self, policy: NetworkPolicy | str) -> FloatArray:
        """(k,) of a policy at every event, of LONGEST the one by hand."""
        if policy == LONGEST:
            policy = longest_first(self.kind.reach)
        found = []
        for window in self.windows:
            start_s = play_policy(window, policy, self.kind.protocol)
            found.append(total(self.kind.objective, window, start_s))
        return np.array(found)


@cache
def held_out_of(name: str) -> HeldOut:
    """Of a problem; the same for every training."""
    ground = ground_of(name, JUDGES)
    firsts = range(0, JOBS, WINDOW_JOBS)
    return HeldOut(GROUNDS[name], tuple(ground.cut(first, WINDOW_JOBS) for first in firsts))


def play(run: Run, on_epoch: Callable[[Report], None] = lambda _report: None) -> Row:
    """Train, and judge the actor of the last epoch: its cost over the best order's, as in `curve`
    of a blank one and after each epoch.
    """
    began = time.process_time()
    held_out, kind = held_out_of(run.ground), GROUNDS[run.ground]
    best, blank = (held_out.costs(name) for name in (kind.best, kind.blank))
    recipe = RECIPES[run.recipe][0]
    settings = replace(recipe, objective=kind.objective, reach=kind.reach, seed=run.seed)
    costs = [blank]

    def validate(actor: TorchActor) -> tuple[float, float | None, float | None]:
        costs.append(held_out.costs(policy_of(actor)))
        return mean_with_ends(np.log(costs[-1] / best))

    ground = ground_of(run.ground, run.seed)
    train(Learner(settings), [ground], settings, validate, on_epoch=on_epoch)
    found = paired(costs[-1], best, "bsld")  # to which nothing is added: costs have their floor
    figures = zip(("ratio", "low", "high"), found.known, strict=True)
    return asdict(run) | {
        **{name: round(1 + value, 4) for name, value in figures},
        "curve": [round(float(one.mean() / best.mean()), 4) for one in costs],
        "cpu_s": round(time.process_time() - began, 1),
    }


def passed(row: Row) -> bool:
    """Whether the whole interval is within the target."""
    return row["high"] <= GROUNDS[str(row["ground"])].most


def judge(asked: argparse.Namespace) -> None:
    """Train on each problem with one seed, and exit with 1 if a target is missed."""
    missed = 0
    for name, kind in GROUNDS.items():
        row = play(Run(name, "default", asked.train_seed), _told(name))
        missed += not passed(row)
        print(
            f"\r{name}: {_shown(row)} of the best order's cost, at most {kind.most}: "
            f"{'holds' if passed(row) else 'MISSED'}; a blank actor {_curve(row)[0]:.3f}; "
            f"{row['cpu_s']:.0f} s",
            flush=True,
        )
    sys.exit(bool(missed))


def _shown(row: Row) -> str:
    """A ratio with its interval over windows."""
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _curve(row: Row) -> list[float]:
    curve: Any = row["curve"]
    return list(curve)


def _told(name: str) -> Callable[[Report], None]:
    """Says on a terminal where a training is."""

    def say(report: Report) -> None:
        ratio = math.exp(report.validation)
        text = f"\r{name}: epoch {report.epoch + 1} of {DEFAULT.epochs}, {ratio:.3f}"
        print(f"{text:70}", end="", flush=True)

    return say if sys.stdout.isatty() else lambda _report: None


def table(_: argparse.Namespace) -> None:
    """Cost over the best order's: geometric mean over seeds with Student's interval, and the worst
    seed with its interval over windows.
    """
    plays.head("problem", "recipe", "blank", "learned", "worst seed", "in the target", "CPU, s")
    for (ground, recipe), rows in _cells().items():
        found = geometric([row["ratio"] for row in rows], [1.0] * len(rows))
        mean = f"{found.own:.3f}"
        if found.low is not None and found.high is not None:
            mean += f" [{1 + found.low:.3f}, {1 + found.high:.3f}]"
        worst = max(rows, key=lambda row: row["ratio"])
        held = f"{sum(map(passed, rows))} of {len(rows)}"
        took, blank = f"{plays.mean(rows, 'cpu_s'):.0f}", f"{_curve(rows[0])[0]:.3f}"
        print(plays.row_of([ground, recipe, blank, mean, _shown(worst), held, took]))


def _cells() -> dict[tuple[str, str], list[Row]]:
    """The trainings of each problem and recipe, by seed."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for run, row in known(RESULTS, Run).items():
        found[run.ground, run.recipe].append(row)
    return found


def draw(_: argparse.Namespace) -> None:
    """docs/img/learning.svg: cost over the best order's after every epoch, a line per seed."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "learning"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend

    figure, panels = plt.subplots(1, len(GROUNDS), figsize=(10, 3))
    for panel, (name, kind) in zip(panels, GROUNDS.items(), strict=True):
        for number, recipe in enumerate(RECIPES):
            rows = _cells()[name, recipe]
            for at, row in enumerate(rows):
                label = recipe if at == 0 else None
                panel.plot(_curve(row), color=f"C{number}", lw=1, alpha=0.7, label=label)
        panel.axhline(1.0, color="grey", lw=0.8)
        panel.axhline(kind.most, color="black", lw=0.8, ls=":")
        panel.set(title=name, xlabel="epoch")
        panel.legend(fontsize=7)
    panels[0].set_ylabel("cost / best order's")
    figure.tight_layout()
    figure.savefig("docs/img/learning.svg", metadata={"Date": None})


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--train-seed", type=int, default=1, help="that `judge` trains with")


def main() -> None:
    plays.main(
        __doc__,
        RESULTS,
        runs,
        play,
        views={"judge": judge, "table": table, "draw": draw},
        options=_options,
    )


if __name__ == "__main__":
    main()
