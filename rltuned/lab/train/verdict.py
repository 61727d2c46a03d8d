"""Is an actor better than the rule? On windows that chose nothing, before it is exported.

The figure is the objective of lab/compare, wait and slowdown together, and the windows are those of
`rltuned evaluate` on the last part of a trace at LOADS: both say the same of a model there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rltuned.errors import ModelError
from rltuned.lab.compare import Change
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.course import LEARN_UNTIL, TEST_FROM, DatasetSource
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.evaluate import Evaluation, EvaluationPlan, evaluate_on, objective_over
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.options import LOADS
from rltuned.lab.train.trial import DIGITS, RULE
from rltuned.policies.card import Verdict
from rltuned.policies.predictor import Predictor

FIGURE: Final = "wait and slowdown"
_MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Validation:
    """Held-out windows by which epochs are compared; window_jobs and loads: of the verdict too."""

    windows_per_trace: int = 12
    window_jobs: int = 1_024
    loads: tuple[float, ...] = LOADS


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


def allow(verdict: Verdict, *, force: bool) -> None:
    """Raises ModelError: it is worse than the rule, and is not forced."""
    if verdict.word == "worse" and not force:
        raise ModelError(f"not exported: {verdict}; --force exports it all the same")
