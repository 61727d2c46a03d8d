"""Proximal policy optimisation of a priority order.

A sample is one choice among two candidates or more (see kernel/episode). Queues stand end to end:
rows, choices and candidates are found by where each moment's begin, so no queue is padded. Windows
and noise depend on the seed and the epoch alone: a resumed training goes on as if it had never
stopped, and a full disk leaves the checkpoint before.

Sources: PPO, Schulman et al. 2017; GAE, the same 2016; reward, RLTune 3.3. Curves: docs/training.md
"""

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rltuned.core.order import Policy
from rltuned.errors import ModelError, TraceError
from rltuned.files import write_whole
from rltuned.lab.compare import mean_with_ends
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train import network, rollout
from rltuned.lab.train.export import (
    Found,
    Interval,
    TrainingRun,
    begin,
    check_name,
    export_best,
    held_out,
)
from rltuned.lab.train.progress import flat
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.train.settings import LEARN_UNTIL, RULE, PpoSettings, described
from rltuned.policies.actor import Card, Kind, load_actor

CHECKPOINT: Final = "checkpoint.pt"
CURVES: Final = "curves.csv"
LATER: Final = ("epochs", "patience")
"""Settings that may change when a training goes on."""
ROWS_AT_ONCE: Final = 8192
"""What a network makes of so many rows stays in a core's cache."""


@dataclass(frozen=True, slots=True)
class Report:
    """One row of the curves; docs/training.md has a sentence on each."""

    epoch: int
    gap: float
    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clipped: float
    explained: float
    choices: float
    validation: Interval
    best: float
    since_best: int
    rollout_s: float
    update_s: float


# Learner


class Learner:
    """Actor, critic and their optimiser. epoch: the next one; best: validation of best_actor."""

    def __init__(self, settings: PpoSettings) -> None:
        torch.manual_seed(settings.seed)
        self.settings = settings
        self.actor = network.TorchActor(settings.network, settings.hidden, settings.reach)
        self.critic = (
            network.QueueCritic() if settings.network == "queue" else network.PaperCritic()
        )
        groups = [{"params": one.parameters()} for one in (self.actor, self.critic)]
        self.optimiser = torch.optim.Adam(groups, lr=settings.learning_rate, eps=1e-5)
        self.epoch, self.since_best, self.seconds = 0, 0, 0.0
        self.best: Interval = (math.inf, None, None)
        self.best_actor = self.actor.state_dict()

    def set_rate(self, rate: float) -> None:
        for group, share in zip(self.optimiser.param_groups, (1.0, 3.0), strict=True):
            group["lr"] = rate * share

    def save(self, path: Path) -> None:
        """Keep all that `restore` needs. Raises OSError."""
        buffer = io.BytesIO()
        state = {name: getattr(self, name).state_dict() for name in self._PARTS}
        progress = {name: getattr(self, name) for name in self._PROGRESS}
        torch.save(state | progress | {"settings": described(self.settings)}, buffer)
        write_whole(path, buffer.getvalue())

    def restore(self, path: Path) -> None:
        """Be what was saved. Raises ModelError: damaged, or of other settings."""
        try:
            state = torch.load(path, weights_only=True)
            ours, theirs = described(self.settings), state["settings"]
            other = [k for k in ours if k not in LATER and ours[k] != theirs.get(k)]
            for name in self._PARTS if not other else ():
                getattr(self, name).load_state_dict(state[name])
            for name in self._PROGRESS:
                setattr(self, name, state[name])
        except _DAMAGE as error:
            raise ModelError(f"{path}: cannot be resumed: {error}") from error
        if other:
            raise ModelError(f"{path}: was begun with another {other[0]}")

    _PARTS = ("actor", "critic", "optimiser")
    _PROGRESS = ("epoch", "since_best", "seconds", "best", "best_actor")


_DAMAGE: Final = (
    ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError,
    ValueError, UnpicklingError,
)  # fmt: skip
"""What torch, and what is in it, raise of a damaged checkpoint."""


# Moments of a batch, and PPO's loss


class Part(NamedTuple):
    """Some moments of a batch. numbers: (m,) which; at: (r,) their rows in the batch, end to end;
    begins: (m+1,) where those of each begin; rows: (r, QUEUE_FEATURES); features: (r, F) what the
    actor reads.
    """

    numbers: IntArray
    at: IntArray
    begins: IntArray
    rows: Tensor
    features: Tensor


def parts_of(batch: rollout.Batch, moments: IntArray, kind: Kind) -> Iterator[Part]:
    """Some moments, in their order, about ROWS_AT_ONCE rows at a time."""
    ends = np.cumsum(np.diff(batch.first)[moments])
    for some in np.split(moments, np.flatnonzero(np.diff(ends // ROWS_AT_ONCE)) + 1):
        if len(some):
            yield part_of(batch, some, kind)


def part_of(batch: rollout.Batch, moments: IntArray, kind: Kind) -> Part:
    """Cut some moments out of a batch."""
    at, begins = network.spans(batch.first, moments)
    rows = batch.rows[at]
    seen = network.read_by(kind, rows, batch.flags[moments].repeat(np.diff(begins), axis=0))
    return Part(moments, at, begins, torch.from_numpy(rows), torch.from_numpy(seen))


def chances(
    batch: rollout.Batch, part: Part, logits: Tensor, reach: float
) -> tuple[IntArray, Tensor, Tensor]:
    """(c,) the choices of some moments, their log-probabilities, and the entropies of what each was
    chosen from. logits: (r, outputs) of the rows.
    """
    scores = network.placed_by(
        logits.double(), torch.from_numpy(batch.asked[part.at]).double(), reach
    )
    choices, its = network.spans(batch.choice_first, part.numbers)
    among, begins = network.spans(batch.candidate_first, choices)
    # a row of the batch -> a row of this part
    shift = (part.begins[:-1] - batch.first[part.numbers]).repeat(np.diff(its))
    chosen = torch.from_numpy(batch.choice[choices] + shift)
    rows = torch.from_numpy(batch.candidates[among] + shift.repeat(np.diff(begins)))
    of = torch.arange(len(choices)).repeat_interleave(torch.from_numpy(np.diff(begins)))
    offered, none = scores[rows], scores.new_zeros(len(choices))
    highest = none.scatter_reduce(0, of, offered.detach(), "amax", include_self=False)
    shares = torch.exp(offered - highest[of])
    whole = none.index_add(0, of, shares)
    log_whole = whole.log() + highest
    mean = none.index_add(0, of, shares * offered) / whole
    return choices, scores[chosen] - log_whole, log_whole - mean


def losses(  # noqa: PLR0917 - by place
    batch: rollout.Batch,
    part: Part,
    logits: Tensor,
    before: FloatArray,
    goal: FloatArray,
    settings: PpoSettings,
) -> Tensor:
    """(4,) sums over some moments' choices: PPO's loss, the entropies, KL, and who was clipped.
    before: (D,) log-probabilities as played. goal: (Q,) advantages.
    """
    choices, chance, entropy = chances(batch, part, logits, settings.reach)
    wanted = torch.from_numpy(goal[batch.of_pass[choices]])
    change = chance - torch.from_numpy(before[choices])
    ratio, clip = change.exp(), settings.clip
    gain = torch.minimum(ratio * wanted, ratio.clamp(1 - clip, 1 + clip) * wanted)
    clipped = (ratio - 1).abs() > clip
    return torch.stack((-gain.sum(), entropy.sum(), (ratio - 1 - change).sum(), clipped.sum()))


# Update


def advantages(
    batch: rollout.Batch, values: FloatArray, gae: float
) -> tuple[FloatArray, FloatArray]:
    """(Q,) advantage and return of every kept moment, by GAE; the value after the last is zero."""
    found = np.zeros(len(values))
    end = 0
    for size in batch.sizes:
        start, end = end, end + int(size)
        behind, after = 0.0, 0.0
        for at in range(end - 1, start - 1, -1):
            behind = batch.rewards[at] + after - values[at] + gae * behind
            found[at], after = behind, values[at]
    return found, found + values


def as_played(learner: Learner, batch: rollout.Batch) -> tuple[FloatArray, FloatArray]:
    """(Q,) values of the moments and (D,) log-probabilities of the choices, before an update."""
    count, actor = len(batch.rewards), learner.actor
    values, chance = np.empty(count), np.zeros(len(batch))
    with torch.no_grad():
        for part in parts_of(batch, np.arange(count), actor.kind):
            values[part.numbers] = learner.critic(part.rows, part.begins).numpy()
            choices, found, _ = chances(batch, part, actor.layers(part.features), actor.reach)
            chance[choices] = found.numpy()
    return values, chance


def update(
    learner: Learner, batch: rollout.Batch, epoch: int, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Several passes over the batch; figures of a Report, averaged over the minibatches. Raises
    FloatingPointError: not finite any more.
    """
    settings, actor, critic = learner.settings, learner.actor, learner.critic
    draw = np.random.default_rng([settings.seed, epoch, 1 << 30])
    values, before = as_played(learner, batch)
    advantage, returns = advantages(batch, values, settings.gae)
    of_choice = advantage[batch.of_pass]
    goal = (advantage - of_choice.mean()) / (of_choice.std() + 1e-8)
    wanted = torch.tensor(returns, dtype=torch.float32)
    bonus = settings.entropy * (1 - epoch / max(1, settings.epochs))
    seen: list[list[float]] = []
    for _ in range(settings.passes):
        for some in np.array_split(draw.permutation(len(values)), settings.minibatches):
            # sums over the own moments, divided by the counts of all ranks
            own = np.array(ranks.share(np.sort(some).tolist()), dtype=np.int64)
            count, moments = ranks.total([int(np.diff(batch.choice_first)[own].sum()), len(own)])
            figures = np.zeros(5)
            learner.optimiser.zero_grad()
            for part in parts_of(batch, own, actor.kind):
                logits = actor.layers(part.features)
                sums = losses(batch, part, logits, before, goal, settings) / count
                (sums[0] - bonus * sums[1]).backward()  # type: ignore[no-untyped-call]
                off = critic(part.rows, part.begins) - wanted[part.numbers]
                value = 0.5 * (off**2).sum() / moments
                value.backward()
                figures += (value.item(), *sums.tolist())
            ranks.add_gradients([actor, critic])
            most = settings.gradient_norm
            norms = [nn.utils.clip_grad_norm_(m.parameters(), most) for m in (actor, critic)]
            seen.append(ranks.total(figures.tolist()))
            if not all(math.isfinite(x) for x in (*seen[-1], *map(float, norms))):
                raise FloatingPointError("a loss or its gradient is not finite")
            learner.optimiser.step()
        if np.mean([s[3] for s in seen[-settings.minibatches :]]) > 1.5 * settings.target_kl:
            break
    names = ("value_loss", "policy_loss", "entropy", "kl", "clipped")
    explained = 1 - float((returns - values).var()) / max(float(returns.var()), 1e-12)
    means = dict(zip(names, np.mean(seen, axis=0).tolist(), strict=True))
    return means | {"explained": explained, "choices": len(batch)}


# Train


def train(
    learner: Learner,
    scenarios: Sequence[Scenario],
    validate: Callable[[network.TorchActor], Interval],
    *,
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Report], None] = lambda _report: None,
) -> None:
    """Learn for the rest of the epochs. validate: mean log of (own / base) on held-out windows,
    greedy; below zero is better. Raises FloatingPointError: the last good checkpoint is untouched.
    """
    torch.set_num_threads(1)
    settings, recorder = learner.settings, rollout.Recorder()
    for epoch in range(learner.epoch, settings.epochs):
        if settings.patience and learner.since_best >= settings.patience:
            break
        learner.set_rate(settings.learning_rate * (1 - 0.9 * epoch / settings.epochs))
        began = time.perf_counter()
        episodes = collect(learner, scenarios, epoch, ranks, recorder)
        useful = [e for e in episodes if len(e.kept)]
        played = time.perf_counter()
        if not useful:
            raise FloatingPointError(
                "no window left anything to choose: raise window_jobs or loads by --set"
            )
        batch = rollout.join(useful)
        if epoch == 0:
            flags = batch.flags.repeat(np.diff(batch.first), axis=0)
            seen = network.read_by(settings.network, batch.rows, flags)
            learner.actor.spread_out(torch.from_numpy(seen))
        figures = update(learner, batch, epoch, ranks)
        ended = time.perf_counter()
        due = (epoch + 1) % settings.eval_every == 0 or epoch + 1 == settings.epochs
        found: Interval = validate(learner.actor) if due else (math.nan, None, None)
        learner.epoch, learner.seconds = epoch + 1, learner.seconds + ended - began
        learner.since_best = 0 if found[0] < learner.best[0] else learner.since_best + 1
        if found[0] <= learner.best[0]:
            state = learner.actor.state_dict()
            learner.best, learner.best_actor = found, {k: v.clone() for k, v in state.items()}
        gaps = [(e.base - e.own) / max(e.base, e.own, 1e-9) for e in episodes]
        report = Report(
            epoch=epoch, gap=float(np.mean(gaps)), validation=found, best=learner.best[0],
            since_best=learner.since_best, rollout_s=played - began, update_s=ended - played,
            **figures,
        )  # fmt: skip
        on_epoch(report)


def collect(
    learner: Learner,
    scenarios: Sequence[Scenario],
    epoch: int,
    ranks: Ranks,
    recorder: rollout.Recorder,
) -> list[rollout.Episode]:
    """The episodes of one epoch."""
    net, settings, found = net_of(network.network_of(learner.actor)), learner.settings, []
    for number in ranks.share(range(max(1, settings.batches // settings.rollouts))):
        draw = np.random.default_rng([settings.seed, epoch, number])
        window = rollout.draw_window(
            scenarios, settings.window_jobs, settings.loads, draw, part=settings.part
        )
        found.append(rollout.compete(window, net, settings, int(draw.integers(1 << 40)), recorder))
    return [episode for group in ranks.gather(found) for episode in group]


# On disk


def perform(
    settings: PpoSettings,
    run: TrainingRun,
    *,
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Path, Report], None] = lambda _folder, _report: None,
) -> Card | None:
    """Train with each seed, keep checkpoints and curves in its folder, export the best epoch of the
    best seed; None on ranks beyond 0. Raises ModelError: says what can be resumed; TraceError: the
    traces are too short.
    """
    check_name(run.out, first=ranks.rank == 0)
    for source in run.sources:
        if len(source.scenario) * LEARN_UNTIL < settings.window_jobs:
            raise TraceError(
                f"{source.scenario.name}: {len(source.scenario)} jobs are too few: windows of "
                f"{settings.window_jobs} are cut from the first {LEARN_UNTIL:.0%}"
            )
    windows = held_out(run.sources, settings.eval_windows, settings.eval_jobs, run.judges)

    def totals(policy: Policy | str) -> FloatArray:
        """(k,) on the held-out windows, a network's best choice taken."""
        played = ((w, rollout.play_policy(w, policy, rollout.CYCLES)) for w in windows)
        return np.array([rollout.total(settings.objective, w, start_s) for w, start_s in played])

    rule, found = totals(RULE), []

    def validate(actor: network.TorchActor) -> Interval:
        return mean_with_ends(np.log(totals(network.policy_of(actor)) / rule))

    for one, folder in run.each(settings):
        learner = Learner(one)
        _learn(learner, folder, run, validate, ranks, on_epoch)
        learner.actor.load_state_dict(learner.best_actor)
        summary = f"PPO, {settings.network} network, objective {settings.objective}."
        best, seconds = learner.best, learner.seconds
        found.append(Found(best[0], one.seed, learner.actor, best, summary, seconds))
    if ranks.rank:  # the first one exports
        return None
    return export_best(
        run,
        settings,
        found,
        windows,
        method="PPO on whole scheduling episodes in the simulator, as corrections of the rule "
        f"`{RULE}`",
        teacher=settings.base,
        machine="one thread" + (f", {ranks.world} ranks" if ranks.world > 1 else ""),
        size=settings.window_jobs,
    )


def _learn(  # noqa: PLR0917 - by place
    learner: Learner,
    folder: Path,
    run: TrainingRun,
    validate: Callable[[network.TorchActor], Interval],
    ranks: Ranks,
    on_epoch: Callable[[Path, Report], None],
) -> None:
    """One seed, from its checkpoint if there is one."""
    checkpoint = folder / CHECKPOINT
    if ranks.rank == 0:
        begin(checkpoint, resume=run.resume)
    if run.resume and checkpoint.exists():
        learner.restore(checkpoint)
    elif run.start is not None:
        network.take_over(learner.actor, load_actor(run.start).network)
    ranks.align([learner.actor, learner.critic])

    def after(report: Report) -> None:
        if ranks.rank == 0:
            figures = flat(asdict(report)).items()
            row = {name: "" if value is None else f"{value:.6g}" for name, value in figures}
            lines = [] if report.epoch else [",".join(row)]
            try:
                with (folder / CURVES).open("a" if report.epoch else "w") as file:
                    file.writelines(f"{line}\n" for line in [*lines, ",".join(row.values())])
                learner.save(checkpoint)
            except OSError as error:
                raise ModelError(f"{folder}: checkpoint: {error.strerror}") from error
        on_epoch(folder, report)

    try:
        train(learner, run.scenarios, validate, ranks=ranks, on_epoch=after)
    except FloatingPointError as error:
        kept = f"; the last good checkpoint is in {folder}" if checkpoint.exists() else ""
        raise ModelError(f"training stopped: {error}{kept}") from error


def beginning_from(bundle: Path, settings: PpoSettings) -> PpoSettings:
    """The settings, for a network like that of a bundle. Raises ModelError."""
    form = load_actor(bundle).card.architecture
    hidden = (form.hidden[0], form.hidden[1])
    return replace(settings, network=form.kind, hidden=hidden, reach=form.reach)
