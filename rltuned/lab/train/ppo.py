"""Proximal policy optimisation of a priority order, in reading order.

1. collect       windows, base pipeline and sampled episodes, in compiled code
2. advantages    generalised advantage estimation over the kept moments
3. update        minibatches, clipping, stop at the target KL
4. train         epochs, validation, checkpoints, curves

Settings, networks and optimiser: train/learner. A sample is one choice among two candidates or more
(see kernel/episode).
Sources: PPO, Schulman et al. 2017; GAE, the same 2016; reward, RLTune 3.3. Curves: docs/training.md
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.learning import Aim
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.batch import Batch, Episode, compete, draw_window, join
from rltuned.lab.train.choices import parts_of, read_by, weighed
from rltuned.lab.train.episodes import Recorder
from rltuned.lab.train.learner import Learner, PpoSettings
from rltuned.lab.train.network import TorchActor, network_of
from rltuned.lab.train.ranks import ALONE, Ranks

# 1. Collect


def collect(  # noqa: PLR0917 - all but the last two are the same in every epoch
    scenarios: Sequence[Scenario],
    settings: PpoSettings,
    ranks: Ranks,
    recorder: Recorder,
    learner: Learner,
    epoch: int,
) -> list[Episode]:
    """The episodes of one epoch. Windows and noise depend on seed and epoch alone."""
    net, contest = net_of(network_of(learner.actor)), settings.contest
    rounds = max(1, settings.batches // contest.rollouts)
    found = []
    for number in ranks.share(range(rounds)):
        draw = np.random.default_rng([settings.seed, epoch, number])
        window, seed = draw_window(scenarios, contest, draw), int(draw.integers(1 << 40))
        found.append(compete(window, net, contest, seed, recorder))
    return [episode for group in ranks.gather(found) for episode in group]


# 2. Advantages


def advantages(batch: Batch, values: FloatArray, gae: float) -> tuple[FloatArray, FloatArray]:
    """(Q,) advantage and return of every kept moment; the value after the last one is zero."""
    found = np.zeros(len(values))
    end = 0
    for size in batch.sizes:
        start, end = end, end + int(size)
        behind, after = 0.0, 0.0
        for at in range(end - 1, start - 1, -1):
            behind = batch.rewards[at] + after - values[at] + gae * behind
            found[at], after = behind, values[at]
    return found, found + values


# 3. Update


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did, averaged over its minibatches."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clipped: float
    explained: float
    choices: int


def update(
    learner: Learner, batch: Batch, settings: PpoSettings, *, epoch: int, ranks: Ranks
) -> Update:
    """Several passes over the batch. Raises FloatingPointError: not finite any more."""
    device, every = learner.device, np.arange(len(batch.rewards))
    draw = np.random.default_rng([settings.seed, epoch, 1 << 30])
    values, before = as_played(learner, batch, settings)
    advantage, returns = advantages(batch, values, settings.gae)
    of_choice = advantage[batch.of_pass]
    goal = (advantage - of_choice.mean()) / (of_choice.std() + 1e-8)
    wanted = torch.tensor(returns, dtype=torch.float32, device=device)
    bonus = settings.entropy * (1 - epoch / max(1, settings.epochs))
    aim = Aim(before, goal, settings.clip, bonus, 1.0, learner.actor.reach)
    explained = 1 - float((returns - values).var()) / max(float(returns.var()), 1e-12)
    seen: list[list[float]] = []
    for _ in range(settings.passes):
        for some in np.array_split(draw.permutation(len(every)), settings.minibatches):
            own = np.array(ranks.share(np.sort(some).tolist()), dtype=np.int64)
            seen.append(_step(learner, batch, own, aim, wanted, settings=settings, ranks=ranks))
        if np.mean([s[3] for s in seen[-settings.minibatches :]]) > 1.5 * settings.target_kl:
            break
    value, policy, entropy, kl, clipped = np.mean(seen, axis=0).tolist()
    return Update(policy, value, entropy, kl, clipped, explained, len(batch.choice))


def as_played(
    learner: Learner, batch: Batch, settings: PpoSettings
) -> tuple[FloatArray, FloatArray]:
    """(Q,) values of the moments and (D,) log-probabilities of the choices, before an update."""
    count, actor = len(batch.rewards), learner.actor
    values, chance = np.empty(count), np.zeros(len(batch))
    nothing = Aim(np.zeros(len(batch)), np.zeros(count), 0.0, 0.0, 1.0, actor.reach)
    with torch.no_grad():
        for part in parts_of(batch, np.arange(count), settings.network, learner.device):
            values[part.numbers] = learner.critic(part.rows, part.begins).cpu().numpy()
            logits = actor.layers(part.features)
            weighed(batch, part, logits, nothing, chance)
    return values, chance


def _step(
    learner: Learner,
    batch: Batch,
    own: IntArray,
    aim: Aim,
    wanted: Tensor,
    *,
    settings: PpoSettings,
    ranks: Ranks,
) -> list[float]:
    """One minibatch: sums over the own moments, divided by the counts of all ranks. Returns the
    critic's loss, then what kernel/learning.weigh does.
    """
    count, moments = ranks.total(int(np.diff(batch.choice_first)[own].sum())), ranks.total(len(own))
    aim, chance, actor = aim._replace(among=count), np.empty(len(batch)), learner.actor
    seen = np.zeros(5)
    learner.optimiser.zero_grad()
    for part in parts_of(batch, own, settings.network, learner.device):
        logits = actor.layers(part.features)
        sums, slope = weighed(batch, part, logits, aim, chance)
        logits.backward(slope)
        off = learner.critic(part.rows, part.begins) - wanted[part.numbers]
        value = 0.5 * (off**2).sum() / moments
        value.backward()
        seen += (value.item(), *sums)
    both = [learner.actor, learner.critic]
    ranks.add_gradients(both)
    norms = [nn.utils.clip_grad_norm_(m.parameters(), settings.gradient_norm) for m in both]
    totals = [ranks.total(x) for x in seen.tolist()]
    if not all(math.isfinite(x) for x in (*totals, *map(float, norms))):
        raise FloatingPointError("a loss or its gradient is not finite")
    learner.optimiser.step()
    return totals


# 4. Train


@dataclass(frozen=True, slots=True)
class Report:
    """One row of the curves; docs/training.md has a sentence on each."""

    epoch: int
    gap: float
    own: float
    base: float
    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clipped: float
    explained: float
    choices: int
    validation: float
    validation_low: float | None
    validation_high: float | None
    best: float
    since_best: int
    rollout_s: float
    update_s: float


Validate = Callable[[TorchActor], tuple[float, float | None, float | None]]
"""Mean log of (own / base) on held-out windows, greedy; below zero is better than the base."""


def train(
    learner: Learner,
    scenarios: Sequence[Scenario],
    settings: PpoSettings,
    validate: Validate,
    *,
    first_epoch: int = 0,
    best: float = math.inf,
    since_best: int = 0,
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Report], None] = lambda _report: None,
) -> float:
    """Learn for the rest of the epochs; the best validation reached. best, since_best: of an
    interrupted training. Raises FloatingPointError: the last good checkpoint is untouched.
    """
    torch.set_num_threads(1)
    recorder = Recorder()
    for epoch in range(first_epoch, settings.epochs):
        if settings.patience and since_best >= settings.patience:
            break
        learner.set_rate(settings.learning_rate * (1 - 0.9 * epoch / settings.epochs))
        began = time.perf_counter()
        episodes = collect(scenarios, settings, ranks, recorder, learner, epoch)
        useful = [e for e in episodes if len(e.kept)]
        played = time.perf_counter()
        if not useful:
            raise FloatingPointError("no window left anything to choose: raise the load")
        batch = join(useful)
        if epoch == 0:
            flags = batch.flags.repeat(np.diff(batch.first), axis=0)
            seen = read_by(settings.network, batch.rows, flags)
            learner.actor.spread_out(torch.from_numpy(seen).to(learner.device))
        done = update(learner, batch, settings, epoch=epoch, ranks=ranks)
        ended = time.perf_counter()
        due = (epoch + 1) % settings.eval_every == 0 or epoch + 1 == settings.epochs
        score, low, high = validate(learner.actor) if due else (math.nan, None, None)
        since_best = 0 if score < best else since_best + 1
        best = score if score < best else best
        gap, own, base = _means(episodes)
        report = Report(
            epoch=epoch, validation=score, validation_low=low, validation_high=high, best=best,
            since_best=since_best, gap=gap, own=own,
            base=base, rollout_s=played - began, update_s=ended - played, **asdict(done),
        )  # fmt: skip
        on_epoch(report)
    return best


def _means(episodes: Sequence[Episode]) -> tuple[float, float, float]:
    """The gap, the learner's cost and the base's, mean over episodes."""
    rows = [((e.base - e.own) / max(e.base, e.own, 1e-9), e.own, e.base) for e in episodes]
    gap, own, base = np.mean(rows, axis=0).tolist()
    return gap, own, base
