"""What a learner is set to, and what options of commands may say: without torch and numba, for
which `--help` need not wait.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from rltuned.lab.replay.protocol import BY_DEFAULT, FUTURE
from rltuned.policies.actor import MAX_REACH, Kind
from rltuned.policies.baselines import BASELINES

S = TypeVar("S")
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
SEARCH_REACH: Final = math.log(2.7)


Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Reach = Annotated[float, Field(ge=0.0, le=MAX_REACH)]
Rule = Annotated[str, Field(pattern=f"^({'|'.join(BASELINES)})$")]


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """What is learned by PPO and how.

    epochs, batches: updates, and episodes in each; rollouts: per window. reach: of a correction,
    see policies/actor; 0 = the score is the order. seed: of windows, noise and weights. hidden:
    widths of the actor's layers. learning_rate: of the actor, falling linearly to a tenth; the
    critic's is three times it. entropy: bonus at the first epoch, falling linearly to zero. clip:
    of the probability ratio. target_kl: an update stops beyond one and a half times it. passes:
    over the data of an epoch; minibatches: per pass. gae: lambda; gamma is 1: an episode ends, and
    no second of waiting counts less. patience: epochs without a better validation before stopping;
    0 = never. base: the rule of the other pipeline, without bounds where the network corrects no
    rule. form: of the reward: `gap`, the paper's at the end; `dense`, the same sum over the
    choices. reference: what each stretch of time is compared with: the base's cost, or the mean of
    the learner's own rollouts of the same jobs. window_jobs: of an episode. loads: from and to, of
    the GPUs, that windows are stretched to. part: of each scenario, from its beginning.
    eval_windows, eval_jobs: held out per trace, and jobs in each; eval_every: epochs from one
    validation to the next; the last epoch is always validated.
    """

    epochs: Count = 100
    reach: Reach = REACH
    seed: Whole = 1
    network: Kind = "queue"
    hidden: tuple[Count, Count] = (32, 16)
    batches: Count = 100
    rollouts: Count = 10
    learning_rate: Amount = 5e-3
    entropy: Amount = 0.01
    clip: Amount = 0.2
    target_kl: Amount = 0.02
    passes: Count = 4
    minibatches: Count = 8
    gae: Share = 0.97
    gradient_norm: Amount = 0.5
    patience: Whole = 0
    base: Rule = RULE
    objective: Objective = "wait"
    form: Form = "dense"
    reference: Reference = "group"
    window_jobs: Annotated[int, Field(ge=2)] = 256
    loads: tuple[Positive, Positive] = (0.7, 1.3)
    part: Share = LEARN_UNTIL
    eval_windows: Count = 12
    eval_jobs: Annotated[int, Field(ge=2)] = 1_024
    eval_every: Count = 1


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """What an evolution strategy searches and how; what PpoSettings has too, by generations.

    members: actors in each generation. parts: of traces that all of them play; part_jobs: in each;
    the first `warm_up` of them fill the cluster and count for nothing. interval_s: of the cycles
    there. Validations have the daemon's; five times as many cycles would be five times as slow and
    change delays of hours by minutes. step: the first deviation of the numbers. price: of a larger
    99% wait and longest wait, beside the mean of wait and slowdown.
    """

    generations: Count = 15
    reach: Reach = SEARCH_REACH
    seed: Whole = 1
    members: Annotated[int, Field(ge=4)] = 20
    parts: Annotated[int, Field(ge=2)] = 30
    part_jobs: Annotated[int, Field(ge=10)] = 1_500
    interval_s: Positive = 300.0
    warm_up: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    loads: tuple[Positive, Positive] = (0.7, 1.1)
    step: Positive = 0.3
    price: Amount = 1.0
    eval_windows: Count = 4
    eval_jobs: Annotated[int, Field(ge=10)] = 1_024
    eval_every: Count = 5


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


def set_by(settings: S, given: Iterable[str]) -> S:
    """The settings with some NAME=VALUE; of two numbers `0.7,1.3`. Raises ValueError: there is no
    such name, or its value is of another kind or out of range.
    """
    found = asdict(settings)  # type: ignore[call-overload]
    for text in given:
        name, _, value = text.partition("=")
        if name not in found:
            raise ValueError(f"{text}: no setting {name!r}; there are {', '.join(found)}")
        found[name] = value.split(",") if isinstance(found[name], tuple) else value
    try:
        return TypeAdapter(type(settings)).validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}={first['input']}: {first['msg']}") from None
