"""The tables of scripts/studies as Markdown: rows against SAF and against each other.

A figure is the geometric mean, over the test windows and seeds, of the ratio of mean waits (or of
excess slowdowns, bounded slowdown less its least value 1), as a change in percent; behind it the
95% interval by resampling the places of the windows, and the same of every training seed alone.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rltuned import stats

FloatArray = NDArray[np.float64]
LOADS: Final = 3
RESAMPLES: Final = 10_000
DESIGNS: Final = (
    ("standard", "paper network, sampled eight, dense reward, ten rollouts compared"),
    ("naive", "eight naive features (Table 3's visible ones and the cluster's)"),
    ("seven", "seven features, no sampling"),
    ("eight", "eight features, no sampling"),
    ("nine", "nine features, no sampling"),
    ("gap", "gap reward at the end, ten rollouts compared"),
    ("gap-alone", "gap reward at the end, one rollout against FCFS: the paper's"),
    ("dense-alone", "dense reward, one rollout against FCFS"),
    ("warm", "begun from SAF's order"),
    ("context", "context network"),
)
BASES: Final = (
    ("dense-alone", "fcfs"),
    ("base-sjf", "sjf"),
    ("base-f1", "f1"),
    ("base-wfp3", "wfp3"),
)
TRACES: Final = (("standard", "philly"), ("on-helios", "helios"), ("on-testbed", "testbed"))
SMALLEST: Final = {"wait": 1.0, "bsld": 0.01}
"""Added to both sides of a ratio, for windows in which nobody waits."""

Tested = Callable[[str, str, str], list[FloatArray]]
"""(row, ground, metric) -> one (places * loads,) array per seed that there is."""


def print_tables(folder: Path, seeds: Sequence[int]) -> None:
    """All three studies, with what is there."""
    rules: dict[str, Any] = json.loads((folder / "rules.json").read_text())

    def tested(row: str, ground: str, metric: str) -> list[FloatArray]:
        paths = [folder / f"{row}-{seed}" / "found.json" for seed in seeds]
        read = [json.loads(p.read_text())["tested"] for p in paths if p.exists()]
        return [np.array(r[ground][metric]) for r in read if ground in r]

    _designs(tested, rules["philly"])
    _bases(tested, rules["philly"])
    _traces(tested, rules)


def _designs(tested: Tested, rules: dict[str, dict[str, list[float]]]) -> None:
    print(
        "\n| row | wait, SAF | each seed | slowdown, SAF | wait, standard |\n|---|---|---|---|---|"
    )
    standard = tested("standard", "philly", "wait")
    for row, told in DESIGNS:
        waits, slow = tested(row, "philly", "wait"), tested(row, "philly", "bsld")
        if not waits:
            continue
        against = [np.array(rules["saf"]["wait"])] * len(waits)
        each = ", ".join(_percent(_log(w, against[0], "wait").mean()) for w in waits)
        saf = np.array(rules["saf"]["bsld"])
        beside = _told(waits, [_middle(standard)] * len(waits), "wait") if standard else ""
        print(
            f"| {row}: {told} | {_told(waits, against, 'wait')} | {each} | "
            f"{_told(slow, [saf] * len(slow), 'bsld')} | {'' if row == 'standard' else beside} |"
        )


def _middle(seeds: Sequence[FloatArray]) -> FloatArray:
    """Geometric mean over seeds."""
    small = SMALLEST["wait"]
    mean: FloatArray = np.exp(np.mean([np.log(s + small) for s in seeds], axis=0)) - small
    return mean


def _bases(tested: Tested, rules: dict[str, dict[str, list[float]]]) -> None:
    tests = ("fcfs", "sjf", "f1", "wfp3", "saf", "multifactor")
    print(f"\n| trained against | {' | '.join(tests)} |\n|---|{'---|' * len(tests)}")
    for row, name in BASES:
        waits = tested(row, "philly", "wait")
        if waits:
            cells = [_told(waits, [np.array(rules[t]["wait"])] * len(waits), "wait") for t in tests]
            print(f"| {name} | {' | '.join(cells)} |")


def _traces(tested: Tested, rules: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    names = [name for _, name in TRACES]
    print(f"\n| trained on | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for row, name in TRACES:
        cells = []
        for ground in names:
            waits = tested(row, ground, "wait")
            saf = [np.array(rules[ground]["saf"]["wait"]) for _ in waits]
            cells.append(_told(waits, saf, "wait") if waits else "")
        print(f"| {name} | {' | '.join(cells)} |")


def _log(own: FloatArray, other: FloatArray, metric: str) -> FloatArray:
    """(places,) mean log ratio at each place, over its loads."""
    small = SMALLEST[metric]
    ratio: FloatArray = np.log((own + small) / (other + small))
    places: FloatArray = ratio.reshape(-1, LOADS).mean(axis=1)
    return places


def _told(own: Sequence[FloatArray], other: Sequence[FloatArray], metric: str) -> str:
    """Change with its interval, over the mean of the seeds."""
    places = np.mean([_log(a, b, metric) for a, b in zip(own, other, strict=True)], axis=0)
    low, high = stats.of_mean(places, stats.drawn(len(places), RESAMPLES, 1))
    return f"{_percent(places.mean())} [{_percent(low)}, {_percent(high)}]"


def _percent(log_ratio: float) -> str:
    return f"{100 * np.expm1(log_ratio):+.1f}"
