"""What a training is set to, and what options of commands may say: without torch and numba, for
which `--help` need not wait.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from rltuned.lab.replay.protocol import BY_DEFAULT, FUTURE
from rltuned.policies.actor import MAX_REACH, Kind
from rltuned.policies.baselines import BASELINES

Objective = Literal["wait", "bsld", "jct", "utilisation", "tail", "mix"]
"""What an episode costs, see train/rollout.cost_at."""
Form = Literal["dense", "gap"]
Reference = Literal["base", "group"]
"""Of a reward, see PpoSettings."""
"""What a backtest learns from the earlier part."""
RULE: Final = "delay"
"""What a network corrects, and is measured against."""
RULES: Final = (*BASELINES, *FUTURE)
NAMES: Final = (BY_DEFAULT, *RULES)
"""Of an evaluation: every one of RULES is played unless others are asked for."""
MOST_WINDOWS: Final = 60
"""Of a trace at a load, unless another number is asked for; LEAST_WINDOWS: shorter ones then."""
LEAST_WINDOWS: Final = 3
LOADS: Final = (0.7, 0.9, 1.1)
"""Of the GPUs, that windows which judge are stretched to."""
FEWEST_JOBS: Final = 10
"""Of what a model is judged on."""
LEARN_UNTIL, TEST_FROM = 0.8, 0.9
"""Of every trace: windows to learn from end at the first part, windows to choose by at the second,
and what follows is for the evaluation alone."""
REACH: Final = math.log(8)
"""A network's delays are at least an eighth of the rule's, and at most eight times as long."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """What is learned and how; the defaults are the paper's budget.

    Attributes:
        network: which one.
        reach: of a correction, see policies/actor; 0 = the score is the order.
        hidden: widths of the actor's hidden layers.
        epochs, batches: updates, and episodes in each.
        learning_rate: of the actor, falling linearly to a tenth; the critic's is three times it.
        entropy: bonus at the first epoch, falling linearly to zero.
        clip: of the probability ratio. target_kl: an update stops beyond one and a half times it.
        passes: over the data of an epoch. minibatches: per pass. gradient_norm: the largest.
        gae: lambda. gamma is 1: an episode ends, and no second of waiting counts less.
        patience: epochs without a better validation before stopping; 0 = never.
        eval_every: epochs from one validation to the next; the last epoch is always validated.
        seed: of windows, noise and weights.
        base: the rule of the other pipeline, without bounds where the network corrects no rule.
        form: of the reward: `gap`, the paper's at the end; `dense`, the same sum over the choices.
        reference: what each stretch of time is compared with: the base's cost, or the mean of the
            learner's own rollouts of the same jobs.
        window_jobs: of an episode. rollouts: per window.
        loads: bounds of the GPU demand that windows are stretched to.
        part: share of each scenario, from its beginning, for windows.
    """

    network: Kind = "queue"
    reach: float = REACH
    hidden: tuple[int, ...] = (32, 16)
    epochs: int = 100
    batches: int = 100
    learning_rate: float = 1e-3
    entropy: float = 0.01
    clip: float = 0.2
    target_kl: float = 0.02
    passes: int = 4
    minibatches: int = 8
    gae: float = 0.97
    gradient_norm: float = 0.5
    patience: int = 0
    eval_every: int = 1
    seed: int = 1
    base: str = "fcfs"
    objective: Objective = "wait"
    form: Form = "dense"
    reference: Reference = "base"
    window_jobs: int = 256
    rollouts: int = 1
    loads: tuple[float, float] = (0.7, 1.3)
    part: float = LEARN_UNTIL


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """What an evolution strategy searches and how.

    Attributes:
        generations: of the search. members: actors in each. parts: of traces that all of them play.
        part_jobs: in each part; the first `warm_up` of them fill the cluster and count for nothing.
        interval_s: of the cycles there. Validations have the daemon's; five times as many cycles
            would be five times as slow and change delays of hours by minutes.
        loads: bounds of the GPU demand that parts are stretched to.
        step: the first deviation of the numbers.
        price: of a larger 99% wait and longest wait, beside the mean of wait and slowdown.
        reach: of a correction: its logarithm at most.
        eval_every: generations from one validation to the next; the last one is always validated.
        seed: of parts and actors.
    """

    generations: int = 15
    members: int = 20
    parts: int = 30
    part_jobs: int = 1_500
    interval_s: float = 300.0
    warm_up: float = 0.2
    loads: tuple[float, float] = (0.7, 1.1)
    step: float = 0.3
    price: float = 1.0
    reach: float = 1.0
    eval_every: int = 5
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Fitting:
    """How an order is imitated."""

    epochs: int = 40
    batch: int = 16
    learning_rate: float = 3e-3
    network: Kind = "queue"
    hidden: tuple[int, ...] = (32, 16)
    seed: int = 1
    reach: float = MAX_REACH


def described(settings: Any) -> dict[str, int | float | str]:
    """A learner's settings, for its card and its record."""
    return {k: v if isinstance(v, int | float) else str(v) for k, v in asdict(settings).items()}
