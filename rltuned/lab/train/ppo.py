"""Proximal policy optimisation of a priority order, in reading order.

1. Learner       actor, critic and their optimiser, and where they are kept
2. collect       windows, base pipeline and sampled episodes, in compiled code (train/rollout)
3. advantages    generalised advantage estimation over the kept moments
4. update        minibatches, clipping, stop at the target KL
5. train         epochs and validation
6. perform       a training on disk for each seed, and the best seed's best epoch as a bundle

A sample is one choice among two candidates or more (see kernel/episode). A checkpoint is written
beside its target and moved in, so an interrupted run or a full disk leaves the one before. Windows
and noise depend on the seed and the epoch alone: a resumed training goes on as if it had never
stopped.

Sources: PPO, Schulman et al. 2017; GAE, the same 2016; reward, RLTune 3.3. Curves: docs/training.md
"""

import csv
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from rltuned.core.order import Policy
from rltuned.errors import ModelError, TraceError
from rltuned.files import write_whole
from rltuned.lab.compare import mean_with_ends
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.loss import Aim, chances, losses, parts_of
from rltuned.lab.train.network import (
    TorchActor,
    critic_of,
    module_of,
    network_of,
    policy_of,
    read_by,
)
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.train.rollout import (
    CYCLES,
    Batch,
    Episode,
    Recorder,
    compete,
    draw_window,
    join,
    play_policy,
    total,
)
from rltuned.lab.train.run import Found, Interval, Run, check_name, export_best, held_out
from rltuned.lab.train.settings import LEARN_UNTIL, RULE, PpoSettings, described
from rltuned.policies.actor import Card, load_actor

LAST: Final = "last.safetensors"
BEST: Final = "best.safetensors"
STATE: Final = "state.json"
CURVES: Final = "curves.csv"
LATER: Final = ("epochs", "patience")
"""Settings that may change when a training goes on."""


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


# 1. Learner


class Learner:
    """Actor, critic and their optimiser on a device. networks: of another design than ours."""

    def __init__(
        self,
        settings: PpoSettings,
        device: str = "cpu",
        networks: tuple[TorchActor, nn.Module] | None = None,
    ) -> None:
        torch.manual_seed(settings.seed)
        self.actor, self.critic = networks or (
            TorchActor(settings.network, settings.hidden, settings.reach),
            critic_of(settings.network),
        )
        self.device = device
        self.actor.to(device)
        self.critic.to(device)
        self.optimiser = torch.optim.Adam(
            [
                {"params": self.actor.parameters(), "share": 1.0},
                {"params": self.critic.parameters(), "share": 3.0},
            ],
            lr=settings.learning_rate,
            eps=1e-5,
        )

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["share"]

    def save(self, folder: Path) -> None:
        """Keep all that `restore` needs."""
        found = {f"actor.{k}": v for k, v in self.actor.state_dict().items()}
        found |= {f"critic.{k}": v for k, v in self.critic.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            found |= {f"adam.{number}.{k}": torch.as_tensor(v) for k, v in moments.items()}
        write_whole(folder / LAST, save(_plain(found)))

    def restore(self, folder: Path) -> None:
        """Be what was saved. Raises OSError, SafetensorError, RuntimeError, ValueError: damaged."""
        whole = self.optimiser.state_dict()
        parts: dict[str, dict[str, Tensor]] = {"actor": {}, "critic": {}}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in load((folder / LAST).read_bytes()).items():
            part, _, rest = name.partition(".")
            if part == "adam":
                number, _, moment = rest.partition(".")
                state.setdefault(int(number), {})[moment] = value
            else:
                parts[part][rest] = value
        self.actor.load_state_dict(parts["actor"])
        self.critic.load_state_dict(parts["critic"])
        self.optimiser.load_state_dict(whole | {"state": state})


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}


# 2. Collect


def collect(  # noqa: PLR0917 - all but the last two are the same in every epoch
    scenarios: Sequence[Scenario],
    settings: PpoSettings,
    ranks: Ranks,
    recorder: Recorder,
    learner: Learner,
    epoch: int,
) -> list[Episode]:
    """The episodes of one epoch. Windows and noise depend on seed and epoch alone."""
    net = net_of(network_of(learner.actor))
    rounds = max(1, settings.batches // settings.rollouts)
    found = []
    for number in ranks.share(range(rounds)):
        draw = np.random.default_rng([settings.seed, epoch, number])
        window = draw_window(
            scenarios, settings.window_jobs, settings.loads, draw, part=settings.part
        )
        found.append(compete(window, net, settings, int(draw.integers(1 << 40)), recorder))
    return [episode for group in ranks.gather(found) for episode in group]


# 3. Advantages


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


# 4. Update


def update(
    learner: Learner, batch: Batch, settings: PpoSettings, *, epoch: int, ranks: Ranks
) -> dict[str, Any]:
    """Several passes over the batch; figures of a Report, averaged over the minibatches. Raises
    FloatingPointError: not finite any more.
    """
    device, every = learner.device, np.arange(len(batch.rewards))
    draw = np.random.default_rng([settings.seed, epoch, 1 << 30])
    values, before = as_played(learner, batch, settings)
    advantage, returns = advantages(batch, values, settings.gae)
    of_choice = advantage[batch.of_pass]
    goal = (advantage - of_choice.mean()) / (of_choice.std() + 1e-8)
    wanted = torch.tensor(returns, dtype=torch.float32, device=device)
    bonus = settings.entropy * (1 - epoch / max(1, settings.epochs))
    aim = Aim(before, goal, settings.clip, bonus)
    explained = 1 - float((returns - values).var()) / max(float(returns.var()), 1e-12)
    seen: list[list[float]] = []
    for _ in range(settings.passes):
        for some in np.array_split(draw.permutation(len(every)), settings.minibatches):
            own = np.array(ranks.share(np.sort(some).tolist()), dtype=np.int64)
            seen.append(_step(learner, batch, own, aim, wanted, settings=settings, ranks=ranks))
        if np.mean([s[3] for s in seen[-settings.minibatches :]]) > 1.5 * settings.target_kl:
            break
    names = ("value_loss", "policy_loss", "entropy", "kl", "clipped")
    means = dict(zip(names, np.mean(seen, axis=0).tolist(), strict=True))
    return means | {"explained": explained, "choices": len(batch.choice)}


def as_played(
    learner: Learner, batch: Batch, settings: PpoSettings
) -> tuple[FloatArray, FloatArray]:
    """(Q,) values of the moments and (D,) log-probabilities of the choices, before an update."""
    count, actor = len(batch.rewards), learner.actor
    values, chance = np.empty(count), np.zeros(len(batch))
    with torch.no_grad():
        for part in parts_of(batch, np.arange(count), settings.network, learner.device):
            values[part.numbers] = learner.critic(part.rows, part.begins).cpu().numpy()
            logits = actor.layers(part.features)
            choices, found, _ = chances(batch, part, logits, actor.reach)
            chance[choices] = found.cpu().numpy()
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
    critic's loss, then those of `losses`.
    """
    count, moments = ranks.total(int(np.diff(batch.choice_first)[own].sum())), ranks.total(len(own))
    aim, actor = replace(aim, among=count), learner.actor
    seen = np.zeros(5)
    learner.optimiser.zero_grad()
    for part in parts_of(batch, own, settings.network, learner.device):
        logits = actor.layers(part.features)
        sums = losses(batch, part, logits, aim, actor.reach)
        (sums[0] - aim.bonus * sums[1]).backward()  # type: ignore[no-untyped-call]
        off = learner.critic(part.rows, part.begins) - wanted[part.numbers]
        value = 0.5 * (off**2).sum() / moments
        value.backward()
        seen += (value.item(), *sums.tolist())
    both = [learner.actor, learner.critic]
    ranks.add_gradients(both)
    norms = [nn.utils.clip_grad_norm_(m.parameters(), settings.gradient_norm) for m in both]
    totals = [ranks.total(x) for x in seen.tolist()]
    if not all(math.isfinite(x) for x in (*totals, *map(float, norms))):
        raise FloatingPointError("a loss or its gradient is not finite")
    learner.optimiser.step()
    return totals


# 5. Train


def train(
    learner: Learner,
    scenarios: Sequence[Scenario],
    settings: PpoSettings,
    validate: Callable[[TorchActor], Interval],
    *,
    first_epoch: int = 0,
    best: float = math.inf,
    since_best: int = 0,
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Report], None] = lambda _report: None,
) -> float:
    """Learn for the rest of the epochs; the best validation reached. validate: mean log of (own /
    base) on held-out windows, greedy; below zero is better. best, since_best: of an interrupted
    training. Raises FloatingPointError: the last good checkpoint is untouched.
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
        rows = [((e.base - e.own) / max(e.base, e.own, 1e-9), e.own, e.base) for e in episodes]
        gap, own, base = np.mean(rows, axis=0).tolist()
        report = Report(
            epoch=epoch, validation=score, validation_low=low, validation_high=high, best=best,
            since_best=since_best, gap=gap, own=own,
            base=base, rollout_s=played - began, update_s=ended - played, **done,
        )  # fmt: skip
        on_epoch(report)
    return best


# 6. On disk


def perform(
    settings: PpoSettings,
    run: Run,
    *,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    on_epoch: Callable[[Report], None] = lambda _report: None,
) -> Card | None:
    """Train with each seed, keep checkpoints and curves, export the best epoch of the best seed;
    None on ranks beyond 0. Raises ModelError: says what can be resumed; TraceError: the traces are
    too short.
    """
    check_name(run.out, first=ranks.rank == 0)
    for source in run.sources:
        if len(source.scenario) * LEARN_UNTIL < settings.window_jobs:
            raise TraceError(
                f"{source.scenario.name}: {len(source.scenario)} jobs are too few: windows of "
                f"{settings.window_jobs} are cut from the first {LEARN_UNTIL:.0%}"
            )
    windows = held_out(run.sources, run.validation, run.judges)

    def totals(policy: Policy | str) -> FloatArray:
        """(k,) on the held-out windows, a network's best choice taken."""
        played = ((w, play_policy(w, policy, CYCLES)) for w in windows)
        return np.array([total(settings.objective, w, start_s) for w, start_s in played])

    rule = totals(RULE)

    def validate(actor: TorchActor) -> Interval:
        return mean_with_ends(np.log(totals(policy_of(actor)) / rule))

    found = [
        _train(one, folder, run, validate, Learner(one, device), ranks=ranks, on_epoch=on_epoch)
        for one, folder in run.each(settings)
    ]
    if ranks.rank:
        return None
    return export_best(
        run,
        settings,
        found,
        windows,
        method="PPO on whole scheduling episodes in the simulator, as corrections of the rule "
        f"`{RULE}`",
        teacher=settings.base,
        machine=f"one thread, {device}" + (f", {ranks.world} ranks" if ranks.world > 1 else ""),
        size=settings.window_jobs,
    )


def _train(
    settings: PpoSettings,
    folder: Path,
    run: Run,
    validate: Callable[[TorchActor], Interval],
    learner: Learner,
    *,
    ranks: Ranks,
    on_epoch: Callable[[Report], None],
) -> Found:
    """One seed."""
    if ranks.rank == 0:
        _check_folder(folder, resume=run.resume)
    state = restored(folder, settings, learner) if run.resume else None
    if state is None and run.start is not None:
        learner.actor.load_state_dict(module_of(load_actor(run.start).network).state_dict())
    first, best, since_best = state or (0, math.inf, 0)
    ranks.align([learner.actor, learner.critic])

    def after(report: Report) -> None:
        if ranks.rank == 0:
            keep(folder, settings, learner, report)
        on_epoch(report)

    try:
        train(
            learner,
            run.scenarios,
            settings,
            validate,
            first_epoch=first,
            best=best,
            since_best=since_best,
            ranks=ranks,
            on_epoch=after,
        )
    except FloatingPointError as error:
        raise ModelError(
            f"training stopped: {error}; the last good checkpoint is in {folder}"
        ) from error
    if ranks.rank:  # the first one exports
        return Found(0.0, settings.seed, learner.actor, (0.0, None, None), "", 0.0)
    try:
        learner.actor.load_state_dict(load((folder / BEST).read_bytes()))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ModelError(f"{folder / BEST}: {error}") from error
    actor = learner.actor.cpu()
    validation = validate(actor)
    summary = f"PPO, {settings.network} network, objective {settings.objective}."
    with (folder / CURVES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    seconds = sum(float(r["rollout_s"]) + float(r["update_s"]) for r in rows)
    return Found(validation[0], settings.seed, actor, validation, summary, seconds)


def _check_folder(folder: Path, *, resume: bool) -> None:
    """Make it. Raises ModelError: unfit, or it holds a training that is not to go on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        begun = (folder / STATE).exists()
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror}") from error
    if begun and not resume:
        raise ModelError(f"{folder}: holds a training; continue it with --resume, or remove it")


def restored(
    folder: Path, settings: PpoSettings, learner: Learner
) -> tuple[int, float, int] | None:
    """Put the learner where the last checkpoint was: the next epoch, the best validation and the
    epochs since; None = no checkpoint yet. Raises ModelError: damaged, or of other settings.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_text())
        # a setting younger than the checkpoint had its default
        theirs = described(PpoSettings()) | state["settings"]
        ours = json.loads(json.dumps(described(settings)))
        other = sorted(k for k in {*theirs, *ours} - {*LATER} if theirs.get(k) != ours.get(k))
        if other:
            raise ModelError(f"{path}: was begun with another {other[0]}")
        learner.restore(folder)
        return int(state["epoch"]), float(state["best"]), int(state["since_best"])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be resumed: {error}") from error


def keep(folder: Path, settings: PpoSettings, learner: Learner, report: Report) -> None:
    """Keep curves, the best actor, and where to go on, in this order. Raises ModelError."""
    curves = folder / CURVES
    state = {
        "epoch": report.epoch + 1,
        "best": report.best,
        "since_best": report.since_best,
        "settings": described(settings),
    }
    try:
        new = not curves.exists() or report.epoch == 0
        with curves.open("w" if new else "a", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            if new:
                out.writerow([f.name for f in fields(Report)])
            out.writerow([_short(v) for v in asdict(report).values()])
        if report.validation <= report.best:
            write_whole(folder / BEST, save(_plain(learner.actor.state_dict())))
        learner.save(folder)
        write_whole(folder / STATE, (json.dumps(state, indent=1) + "\n").encode())
    except OSError as error:
        raise ModelError(f"{folder}: checkpoint: {error.strerror}") from error


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def beginning_from(bundle: Path, settings: PpoSettings) -> PpoSettings:
    """The settings, for a network like that of a bundle. Raises ModelError."""
    form = load_actor(bundle).card.architecture
    return replace(settings, network=form.kind, hidden=form.hidden, reach=form.reach)
