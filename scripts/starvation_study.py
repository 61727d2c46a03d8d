"""What the starvation bound costs and gains: a model with and without it, beside FCFS.

    nice python -m scripts.starvation_study --model models/rltune --trace T.csv.gz --cluster NAME
        [--load 0.9] [--windows 5] [--window-jobs 1024] [--part 0.9 1.0] [--copies 1] [--seed 1]
        [--bound-s 3600 ...] [--factor 3 ...]

--model last or random plays an order that means ill: last submitted first, or drawn once per job.

Prints one line of a Markdown table for every pair of bound and factor: the mean wait against FCFS
and against the model unguarded, p99 and longest wait as multiples of FCFS's (means over windows),
the longest wait's multiple in the worst window, and the part of the jobs that wait longer than
both the bound and the factor times their own wait under FCFS.
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
from rltuned.train.course import from_files
from rltuned.train.episodes import play_order, play_rule
from rltuned.train.evaluate import Plan, windows_of
from rltuned.train.ground import Ground, Window

HOUR_S = 3_600.0
ILL: Final[dict[str, Callable[[int], FloatArray]]] = {
    "last": lambda jobs: -np.arange(jobs, dtype=np.float64),
    "random": lambda jobs: np.random.default_rng(1).random(jobs),
}
"""Keys by which jobs go, smallest first."""
HEAD = (
    "| bound | factor | wait, FCFS | wait, unguarded | p99 / FCFS | longest / FCFS | worst "
    "| beyond |"
)


def main() -> None:
    asked = _asked()
    source = from_files([asked.trace], [cluster_named(asked.cluster)])[0]
    plan = Plan(
        asked.windows,
        asked.window_jobs,
        asked.load,
        tuple(asked.part),
        copies=asked.copies,
        seed=asked.seed,
    )
    windows, _ = windows_of(source.ground, plan)
    fcfs = [play_rule(w, "fcfs") - w.submit_s for w in windows]
    tails = [f"{np.mean([_tail(w, q) for w in fcfs]) / HOUR_S:.1f}" for q in (99, 100)]
    _say(
        f"{asked.model} on {source.ground.name}, load {asked.load}, {len(windows)} x "
        f"{asked.window_jobs} jobs; FCFS waits {_mean(fcfs) / HOUR_S:.2f} h, p99 {tails[0]} h, "
        f"longest {tails[1]} h\n\n{HEAD}\n{'|---' * HEAD.count(' | ')}|---|"
    )
    free = _waits(asked.model, source.ground, windows, None)
    _say(_row(None, free, free, fcfs))
    for bound in _bounds(asked):
        kept = _waits(asked.model, source.ground, windows, bound)
        _say(_row(bound, kept, free, fcfs))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="models/rltune")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--load", type=float)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--window-jobs", type=int, default=1_024)
    parser.add_argument("--part", type=float, nargs=2, default=(0.9, 1.0))
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bound-s", type=float, nargs="+", default=[BOUND_S])
    parser.add_argument("--factor", type=float, nargs="+", default=[FACTOR])
    return parser.parse_args()


def _bounds(asked: argparse.Namespace) -> Iterator[Bound]:
    for bound_s, factor in product(asked.bound_s, asked.factor):
        yield Bound(bound_s, factor)


def _waits(
    model: str, ground: Ground, windows: list[Window], bound: Bound | None
) -> list[FloatArray]:
    if model in ILL:
        return [play_order(w, ILL[model](len(w)), bound) - w.submit_s for w in windows]
    play = plays_of(contestant_of(model), ground, bound)[0]
    return [play(w) - w.submit_s for w in windows]


def _row(
    bound: Bound | None, own: list[FloatArray], free: list[FloatArray], fcfs: list[FloatArray]
) -> str:
    ratios = [
        np.mean([_tail(w, q) for w in own]) / np.mean([_tail(w, q) for w in fcfs])
        for q in (99, 100)
    ]
    worst = max(_tail(a, 100) / max(_tail(b, 100), 1.0) for a, b in zip(own, fcfs, strict=True))
    cells = [
        *(
            ("none", "")
            if bound is None
            else (f"{bound.bound_s / HOUR_S:g} h", f"{bound.factor:g}")
        ),
        f"{_mean(own) / _mean(fcfs) - 1:+.1%}",
        f"{_mean(own) / _mean(free) - 1:+.1%}",
        *(f"{r:.2f}" for r in (*ratios, worst)),
        f"{_beyond(own, fcfs, bound or Bound()):.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def _beyond(own: list[FloatArray], fcfs: list[FloatArray], bound: Bound) -> float:
    waits, base = np.concatenate(own), np.concatenate(fcfs)
    return float((waits > np.maximum(bound.bound_s, bound.factor * base)).mean())


def _mean(waits: list[FloatArray]) -> float:
    return float(np.mean([w.mean() for w in waits]))


def _tail(wait: FloatArray, percent: float) -> float:
    return float(np.percentile(wait, percent))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
