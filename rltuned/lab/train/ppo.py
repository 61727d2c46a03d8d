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

from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.batch import Batch, Episode, compete, draw_window, join
from rltuned.lab.train.choices import Part, choices_at, log_chances, part_of, scores_of
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
    device, kind = learner.device, settings.network
    draw = np.random.default_rng([settings.seed, epoch, 1 << 30])
    everything = [
        part_of(batch, some, kind, device)
        for some in np.array_split(np.arange(len(batch.rewards)), max(1, settings.minibatches))
        if len(some)
    ]
    with torch.no_grad():
        values = torch.cat([_value(learner, p) for p in everything]).cpu().numpy().astype(float)
        before = torch.cat([log_chances(scores_of(learner.actor, p), p)[0] for p in everything])
    advantage, returns = advantages(batch, values, settings.gae)
    weighed = advantage[batch.of_pass]
    goal = torch.tensor(
        (advantage - weighed.mean()) / (weighed.std() + 1e-8), dtype=torch.float32, device=device
    )
    wanted = torch.tensor(returns, dtype=torch.float32, device=device)
    explained = 1 - float((returns - values).var()) / max(float(returns.var()), 1e-12)
    bonus = settings.entropy * (1 - epoch / max(1, settings.epochs))
    seen: list[tuple[float, ...]] = []
    for _ in range(settings.passes):
        for some in np.array_split(draw.permutation(len(batch.rewards)), settings.minibatches):
            moments = np.sort(some)
            own = np.array(ranks.share(moments.tolist()), dtype=np.int64)
            part = part_of(batch, own, kind, device)
            old = before[choices_at(batch, own)]
            seen.append(
                _step(
                    learner,
                    part,
                    settings,
                    before=old,
                    goal=goal[own],
                    wanted=wanted[own],
                    bonus=bonus,
                    ranks=ranks,
                )
            )
        if np.mean([s[3] for s in seen[-settings.minibatches :]]) > 1.5 * settings.target_kl:
            break
    policy, value, entropy, kl, clipped = np.mean(seen, axis=0).tolist()
    return Update(policy, value, entropy, kl, clipped, explained, len(batch.choice))


def _value(learner: Learner, part: Part) -> Tensor:
    found: Tensor = learner.critic(part.rows, part.moment, part.place, part.moments)
    return found


def _step(
    learner: Learner,
    part: Part,
    settings: PpoSettings,
    *,
    before: Tensor,
    goal: Tensor,
    wanted: Tensor,
    bonus: float,
    ranks: Ranks,
) -> tuple[float, ...]:
    """One minibatch: sums over the own share, divided by the counts of all ranks."""
    count, moments = ranks.total(len(part)), ranks.total(part.moments)
    chance, entropy = log_chances(scores_of(learner.actor, part), part)
    log_ratio = chance - before
    ratio = torch.exp(log_ratio)
    advantage = goal[part.of_moment]
    limited = torch.clamp(ratio, 1 - settings.clip, 1 + settings.clip)
    policy = -torch.minimum(ratio * advantage, limited * advantage).sum() / count
    value = 0.5 * ((_value(learner, part) - wanted) ** 2).sum() / moments
    spread = entropy.sum() / count
    loss = policy - bonus * spread + value
    learner.optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    both = [learner.actor, learner.critic]
    ranks.add_gradients(both)
    norms = [nn.utils.clip_grad_norm_(m.parameters(), settings.gradient_norm) for m in both]
    with torch.no_grad():
        kl = ((ratio - 1) - log_ratio).sum() / count
        clipped = (torch.abs(ratio - 1) > settings.clip).float().sum() / count
    totals = tuple(ranks.total(float(x.detach())) for x in (policy, value, spread, kl, clipped))
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
            every = np.arange(len(batch.rewards))
            learner.actor.spread_out(
                part_of(batch, every, settings.network, learner.device).features
            )
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
