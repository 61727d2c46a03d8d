"""What every training does before and after it learns: windows that choose, a verdict, a bundle.

A training chooses by held-out windows. What it chose is judged on others before it is exported, by
the objective of lab/compare, wait and slowdown together. These windows are those of `rltuned
evaluate` on the last part of a trace at LOADS: both say the same of a model there.
"""

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import torch

from rltuned.core.features import COLUMN, COLUMNS, FIXED, MAX_QUEUE_SIZE
from rltuned.errors import ModelError, TraceError
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.evaluate import (
    DIGITS,
    Evaluation,
    EvaluationPlan,
    evaluate_on,
    objective_over,
    verdict_of,
)
from rltuned.lab.train.network import (
    PARITY_WINDOWS,
    Ranges,
    TorchActor,
    export_bundle,
    network_of,
    policy_of,
    read_by,
)
from rltuned.lab.train.rollout import Recorder, play_policy, play_sampled, windows_between
from rltuned.lab.train.settings import (
    FEWEST_JOBS,
    LEARN_UNTIL,
    LOADS,
    RULE,
    TEST_FROM,
    EvolutionSettings,
    PpoSettings,
    described,
)
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.actor import BUNDLE_NAME, INPUTS, Card, Kind, Training, Verdict
from rltuned.policies.predictor import Predictor

S = TypeVar("S", PpoSettings, EvolutionSettings)
Interval = tuple[float, float | None, float | None]
"""A mean and its 95% interval."""
_SAMPLED: Final = ("job_size", "urgency", "num_ways", "free_nodes")
"""The paper's two last slots hold two of these at a time."""
READ: Final[dict[Kind, tuple[str, ...]]] = {"queue": COLUMNS, "paper": (*FIXED, *_SAMPLED)}
"""Features by the kind of network that reads them."""
RANGE_WINDOWS: Final = 48
"""That show the ranges of features: over all sources together, one each at least."""
_MODEL: Final = "model"
WINDOWS_SAID: Final = (
    f"Windows: the first {LEARN_UNTIL:.0%} of each trace to learn from, up to {TEST_FROM:.0%} to "
    "choose the epoch by; these results are of the latter."
)
JUDGES_SAID: Final = (
    "Random worlds that were never learned from had a window each among those that chose the epoch."
)


@dataclass(frozen=True, slots=True)
class Validation:
    """Held-out windows by which epochs are compared; window_jobs and loads: of the verdict too."""

    windows_per_trace: int = 12
    window_jobs: int = 1_024
    loads: tuple[float, ...] = LOADS


@dataclass(frozen=True, slots=True)
class Run:
    """What a training is given beside its settings. start: a bundle; None = the rule `delay`.
    folder: of its records. judges: scenarios never learned from; a window of each helps to choose
    the epoch; unseen: one of each helps to find the verdict. seeds: so many are tried, from that of
    the settings on. predictor: of run times, that the verdict is played with; None = by the limits.
    command: for the card. force: a worse actor is exported too.
    """

    sources: tuple[DatasetSource, ...]
    folder: Path
    out: Path
    command: str
    validation: Validation = Validation()
    start: Path | None = None
    resume: bool = False
    seeds: int = 1
    predictor: Predictor | None = None
    judges: tuple[DatasetSource, ...] = ()
    unseen: tuple[DatasetSource, ...] = ()
    force: bool = False

    @property
    def scenarios(self) -> list[Scenario]:
        """What is learned on, each as often as its share says."""
        return [s.scenario for s in self.sources for _ in range(s.share)]

    def each(self, settings: S) -> list[tuple[S, Path]]:
        """The settings and the folder of every seed: one of its own where there are several."""
        if self.seeds == 1:
            return [(settings, self.folder)]
        seeds = range(settings.seed, settings.seed + self.seeds)
        return [(replace(settings, seed=one), self.folder / f"seed-{one}") for one in seeds]


class Found(NamedTuple):
    """What a seed came to. cost: on the held-out windows; the least is the best. validation: its
    change against the rule there, in logarithms. summary: for the card.
    """

    cost: float
    seed: int
    actor: TorchActor
    validation: Interval
    summary: str
    seconds: float


def check_name(out: Path, *, first: bool = True) -> None:
    """Raises ModelError: no bundle can have this name, or it exists already."""
    if not re.fullmatch(BUNDLE_NAME, out.name):
        raise ModelError(f"model {out}: small letters, digits, '.', '_' and '-' make its name")
    if first and out.exists():
        raise ModelError(f"model {out}: exists already; remove it or choose another name")


def fitting(validation: Validation, traces: Sequence[DatasetSource]) -> Validation:
    """The same with shorter windows, where the longest trace has no room for such ones between
    LEARN_UNTIL and TEST_FROM; as it is where none has room for FEWEST_JOBS.
    """
    longest = max(len(s.scenario) for s in traces)
    room = int(longest * TEST_FROM) - int(longest * LEARN_UNTIL)
    if room < FEWEST_JOBS:
        return validation
    return replace(validation, window_jobs=min(validation.window_jobs, room))


def held_out(
    sources: Sequence[DatasetSource], validation: Validation, judges: Sequence[DatasetSource] = ()
) -> list[Scenario]:
    """The validation: each source's later part, a window of each judge. Raises TraceError: too
    short.
    """
    part, size, loads = (LEARN_UNTIL, TEST_FROM), validation.window_jobs, validation.loads
    found = [
        window
        for source in sources
        for window in windows_between(
            source.scenario, part, count=validation.windows_per_trace, size=size, loads=loads
        )
    ]
    for number, judge in enumerate(judges):
        load = loads[number % len(loads)]
        found += windows_between(
            judge.scenario, (LEARN_UNTIL, 1.0), count=1, size=size, loads=[load]
        )
    if not found:
        longest = max(len(s.scenario) for s in sources)
        raise TraceError(
            f"no trace has {validation.window_jobs} jobs between {part[0]:.0%} and {part[1]:.0%} "
            f"of its length to be judged by; the longest has {longest} in all"
        )
    return found


def judged(
    actor: TorchActor,
    sources: Sequence[DatasetSource],
    worlds: Sequence[DatasetSource],
    validation: Validation,
    predictor: Predictor | None,
) -> tuple[Verdict, dict[str, float]]:
    """The actor against the rule on the last part of each trace and one window of each unseen
    world, and its change on each trace by name.
    """
    jobs, loads = validation.window_jobs, validation.loads
    traces = {s.description: _plain(s.scenario) for s in sources if not s.is_world}
    test = EvaluationPlan(window_jobs=jobs, part=(TEST_FROM, 1.0))
    one = EvaluationPlan(1, jobs, part=(LEARN_UNTIL, 1.0))
    plays = [(t, replace(test, load=load)) for t in traces.values() for load in loads]
    plays += [
        (_plain(world.scenario), replace(one, load=loads[number % len(loads)]))
        for number, world in enumerate(worlds)
    ]
    protocol = Protocol("cycle", predictor=predictor)
    player = partial(play_policy, policy=policy_of(actor), protocol=protocol)
    found = [
        evaluate_on(scenario, {_MODEL: [player]}, plan, rules=(RULE,), protocol=protocol)
        for scenario, plan in plays
    ]
    by_name: dict[str, list[Evaluation]] = {}
    for place in found[: len(traces) * len(loads)]:
        by_name.setdefault(place.scenario, []).append(place)
    changes = {
        name: round(objective_over(some, _MODEL, RULE)[0].change or 0.0, DIGITS)
        for name, some in by_name.items()
    }
    return verdict_of(*objective_over(found, _MODEL, RULE)), changes


def _plain(scenario: Scenario) -> Scenario:
    """Without what was predicted beforehand: the protocol's predictor learns as it goes."""
    return replace(scenario, seen=None, foreseen_s=None).for_networks()


def allow(verdict: Verdict, *, force: bool) -> None:
    """Raises ModelError: it is worse than the rule, and is not forced."""
    if verdict.word == "worse" and not force:
        raise ModelError(f"not exported: {verdict}; --force exports it all the same")


def export_best(
    run: Run,
    settings: PpoSettings | EvolutionSettings,
    found: Sequence[Found],
    windows: Sequence[Scenario],
    *,
    method: str,
    teacher: str,
    machine: str,
    size: int,
) -> Card:
    """Judge the seed that did best on the held-out windows on others, and export it. windows: the
    held-out ones, for the parity file. size: of the windows that show the ranges of its features;
    the other words: for the card. Raises ModelError: it is worse than the rule.
    """
    best = min(found, key=lambda one: one.cost)
    verdict, changes = judged(best.actor, run.sources, run.unseen, run.validation, run.predictor)
    allow(verdict, force=run.force)
    each = zip(("validation", "validation_low", "validation_high"), best.validation, strict=True)
    results = {name: value for name, value in each if value is not None}
    results |= {f"verdict_on_{name}": change for name, change in changes.items()}
    if len(found) > 1:
        results |= {f"validation_cost_seed_{one.seed}": one.cost for one in found}
    seeds = f" The best of {len(found)} seeds on held-out windows." if len(found) > 1 else ""
    begun = f", begun from {run.start.name}" if run.start else ""
    return export_bundle(
        run.out,
        best.actor,
        name=run.out.name,
        summary=best.summary + seeds,
        parity=parity_windows(windows, best.actor),
        training=Training(
            method=method + begun,
            teacher=teacher,
            command=run.command,
            seed=best.seed,
            settings=described(replace(settings, seed=best.seed)),
            data="; ".join(dict.fromkeys(s.description for s in run.sources)),
            data_licence="; ".join(sorted({s.licence for s in run.sources})),
            seconds=round(sum(one.seconds for one in found), 1),
            machine=f"{platform.machine()}, {machine}",
        ),
        results={name: round(value, DIGITS) for name, value in results.items()},
        verdict=verdict,
        caveats=[
            WINDOWS_SAID,
            *((JUDGES_SAID,) if run.judges else ()),
            "Results on traces and clusters never trained on are in docs/results.md.",
        ],
        ranges=ranges_played(best.actor, run.sources, size=size, loads=settings.loads),
    )


def parity_windows(
    windows: Sequence[Scenario], actor: TorchActor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queues of real episodes, as the network sees them: (k, 256, features) and (k, 256)."""
    net, kind = net_of(network_of(actor)), actor.kind
    values = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE, INPUTS[kind]), np.float32)
    masks = np.zeros((PARITY_WINDOWS, MAX_QUEUE_SIZE), dtype=bool)
    for k in range(PARITY_WINDOWS):
        _, kept = play_sampled(windows[k % len(windows)], net, k, Recorder())
        if not len(kept):
            masks[k, :2] = True
            continue
        longest = int(np.diff(kept.first).argmax())
        rows = kept.rows[kept.first[longest] : kept.first[longest + 1]]
        rows = rows[:MAX_QUEUE_SIZE]
        flags = np.repeat(kept.flags[longest][None], len(rows), axis=0)
        values[k, : len(rows)] = read_by(kind, rows, flags)
        masks[k, : len(rows)] = True
    return torch.from_numpy(values), torch.from_numpy(masks)


def ranges_played(
    actor: TorchActor,
    sources: Sequence[DatasetSource],
    *,
    size: int,
    loads: Sequence[float],
) -> Ranges:
    """Over every whole queue of windows, even in the first LEARN_UNTIL of each source."""
    names = READ[actor.kind]
    each = -(-RANGE_WINDOWS // len(sources))
    net, recorder = net_of(network_of(actor)), Recorder()
    low = np.full(len(COLUMNS), np.inf)
    high = np.full(len(COLUMNS), -np.inf)
    for source in sources:
        part = (0.0, LEARN_UNTIL)
        found = windows_between(source.scenario, part, count=each, size=size, loads=loads)
        for number, window in enumerate(found):
            rows = play_sampled(window, net, number, recorder)[1].rows[:, : len(COLUMNS)]
            low = np.minimum(low, rows.min(axis=0, initial=np.inf))
            high = np.maximum(high, rows.max(axis=0, initial=-np.inf))
    at = [(name, COLUMN[name]) for name in names]
    return {name: (float(low[i]), float(high[i])) for name, i in at if low[i] <= high[i]}
