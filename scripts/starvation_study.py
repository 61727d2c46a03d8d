"""What the starvation bound costs and gains: a model with and without it, beside FCFS.

    nice python -m scripts.starvation_study --model models/rltune
        (--trace T.csv.gz --cluster NAME | --worlds 24) [--load 0.9] [--windows 5]
        [--window-jobs 1024] [--part 0.9 1.0] [--copies 1] [--seed 1]
        [--bound-s 3600 ...] [--factor 3 ...]

--model last or random plays an order that means ill: last submitted first, or drawn once per job.
--worlds N takes N random clusters with job mixes of their own (train/worlds) in place of a trace,
--seed says which; a mean over them is geometric, since their waits differ by orders of magnitude.

Prints one line of a Markdown table for SAF, for the model without the guard, and for every pair of
bound and factor: the mean wait against FCFS's, the same and the slowdown against SAF's, p99 and
longest wait as multiples of FCFS's (means over windows), the longest wait's multiple in the worst
window, and the part of the jobs that wait longer than both the bound and the factor times their
own wait under FCFS.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.cli.simulate import cluster_named
from rltuned.core.starvation import BOUND_S, FACTOR, Bound
from rltuned.sim.engine.arrays import FloatArray
from rltuned.train.contestants import contestant_of, plays_of
from rltuned.train.course import drawn, from_files
from rltuned.train.episodes import play_order, play_rule
from rltuned.train.evaluate import Plan, Play, schedule_of, windows_of
from rltuned.train.ground import Window, cut

HOUR_S = 3_600.0
ILL: Final[dict[str, Callable[[int], FloatArray]]] = {
    "last": lambda jobs: -np.arange(jobs, dtype=np.float64),
    "random": lambda jobs: np.random.default_rng(1).random(jobs),
}
"""Keys by which jobs go, smallest first."""
HEAD = (
    "| order | bound | factor | wait, FCFS | wait, SAF | slowdown, SAF | p99 / FCFS "
    "| longest / FCFS | worst | beyond |"
)
LEAST_WAIT_S: Final = 60.0
"""A window in which nobody waits says nothing about a ratio: waits count from here on."""
Mean = Callable[[list[float], list[float], float], float]
"""Of the ratios of two lists, numbers below the third argument raised to it."""


def main() -> None:
    asked = _asked()
    windows = _windows(asked)
    rules = {r: [Waited(w, play_rule(w, r)) for w in windows] for r in ("fcfs", "saf")}
    fcfs, mean = rules["fcfs"], _geometric if asked.worlds else _ratio
    tails = [f"{np.mean([w.tail(q) for w in fcfs]) / HOUR_S:.1f}" for q in (99, 100)]
    where = f"{asked.worlds} worlds of seed {asked.seed}" if asked.worlds else asked.trace.name
    _say(
        f"{where}, load {asked.load}, {len(windows)} x {len(windows[0])} jobs; FCFS waits "
        f"{np.mean([w.mean for w in fcfs]) / HOUR_S:.2f} h, p99 {tails[0]} h, longest {tails[1]} h"
        f"\n\n{HEAD}\n{'|---' * HEAD.count(' | ')}|---|"
    )
    _say(_row("saf", None, rules["saf"], rules, mean))
    for model in asked.model:
        for bound in (None, *_bounds(asked)):
            _say(_row(model, bound, _waits(model, windows, bound), rules, mean))


class Waited:
    """What jobs waited in one window, seconds, and their bounded slowdown."""

    def __init__(self, window: Window, start_s: FloatArray) -> None:
        schedule = schedule_of(window, start_s)
        self.wait_s, self.slowdown = schedule.wait_s, float(schedule.slowdown.mean())
        self.mean = float(self.wait_s.mean())

    def tail(self, percent: float) -> float:
        """Seconds that so many percent of the jobs do not exceed."""
        return float(np.percentile(self.wait_s, percent))


def _windows(asked: argparse.Namespace) -> list[Window]:
    if asked.worlds:
        grounds = [s.ground for s in drawn(asked.seed, asked.worlds, jobs=asked.window_jobs)]
        return [cut(g, 0, len(g), load=asked.load) for g in grounds]
    source = from_files([asked.trace], [cluster_named(asked.cluster)])[0]
    plan = Plan(
        asked.windows,
        asked.window_jobs,
        asked.load,
        tuple(asked.part),
        copies=asked.copies,
        seed=asked.seed,
    )
    return windows_of(source.ground, plan)[0]


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", nargs="+", default=["models/rltune"])
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--cluster")
    parser.add_argument("--worlds", type=int, default=0)
    parser.add_argument("--load", type=float)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--window-jobs", type=int, default=1_024)
    parser.add_argument("--part", type=float, nargs=2, default=(0.9, 1.0))
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bound-s", type=float, nargs="+", default=[BOUND_S])
    parser.add_argument("--factor", type=float, nargs="+", default=[FACTOR])
    asked = parser.parse_args()
    if bool(asked.worlds) == bool(asked.trace and asked.cluster):
        parser.error("either --trace and --cluster, or --worlds")
    return asked


def _bounds(asked: argparse.Namespace) -> Iterator[Bound]:
    for bound_s, factor in product(asked.bound_s, asked.factor):
        yield Bound(bound_s, factor)


def _waits(model: str, windows: list[Window], bound: Bound | None) -> list[Waited]:
    if model in ILL:
        return [Waited(w, play_order(w, ILL[model](len(w)), bound)) for w in windows]
    plays: dict[int, Play] = {}
    found = []
    for window in windows:
        at = id(window.ground)
        if at not in plays:
            plays[at] = plays_of(contestant_of(model), window.ground, bound)[0]
        found.append(Waited(window, plays[at](window)))
    return found


def _row(
    order: str,
    bound: Bound | None,
    own: list[Waited],
    rules: dict[str, list[Waited]],
    mean: Mean,
) -> str:
    fcfs, saf = rules["fcfs"], rules["saf"]

    def against(
        others: list[Waited], measure: Callable[[Waited], float], least: float = LEAST_WAIT_S
    ) -> float:
        return mean([measure(w) for w in own], [measure(w) for w in others], least)

    longest = [
        (a.tail(100), max(b.tail(100), LEAST_WAIT_S)) for a, b in zip(own, fcfs, strict=True)
    ]
    cells = [
        order,
        *(
            ("none", "")
            if bound is None
            else (f"{bound.bound_s / HOUR_S:g} h", f"{bound.factor:g}")
        ),
        f"{against(fcfs, lambda w: w.mean) - 1:+.1%}",
        f"{against(saf, lambda w: w.mean) - 1:+.1%}",
        f"{against(saf, lambda w: w.slowdown, 1.0) - 1:+.1%}",
        f"{against(fcfs, lambda w: w.tail(99)):.2f}",
        f"{against(fcfs, lambda w: w.tail(100)):.2f}",
        f"{max(a / b for a, b in longest):.2f}",
        f"{_beyond(own, fcfs, bound or Bound()):.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(own: list[float], other: list[float], _least: float) -> float:
    return float(np.mean(own) / np.mean(other))


def _geometric(own: list[float], other: list[float], least: float) -> float:
    above = [np.log(max(a, least) / max(b, least)) for a, b in zip(own, other, strict=True)]
    return float(np.exp(np.mean(above)))


def _beyond(own: list[Waited], fcfs: list[Waited], bound: Bound) -> float:
    waits = np.concatenate([w.wait_s for w in own])
    base = np.concatenate([w.wait_s for w in fcfs])
    return float((waits > np.maximum(bound.bound_s, bound.factor * base)).mean())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
