"""Supervised warm start: teach the actor the order of an existing rule on generated queues.

Source of the idea: DL2 (Peng et al.), which first learns an existing scheduler's decisions. The
loss is listwise (Plackett-Luce likelihood of the teacher's whole order), since a queue is an
order and not a set of labels.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from rltuned.core.decide import Policy
from rltuned.core.features import FloatArray, encode
from rltuned.core.observation import sample_features, windows
from rltuned.policies.card import Kind, features_of
from rltuned.policies.network import ContextActor, PaperActor, build
from rltuned.policies.predictor import QUANTILES
from rltuned.train.queues import Shape, random_snapshot


@dataclass(frozen=True, slots=True)
class Settings:
    """queues, held_out: how many are generated for training and for the figures in the card."""

    queues: int = 1_500
    held_out: int = 200
    epochs: int = 40
    batch: int = 16
    learning_rate: float = 3e-3
    hidden: tuple[int, ...] = (32, 16)
    seed: int = 1
    max_jobs: int = 256
    network: Kind = "paper"
    predict: bool = False

    def described(self) -> dict[str, int | float | str]:
        """For the card."""
        return {k: v if isinstance(v, int | float) else str(v) for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Lesson:
    """Queues as the network sees them, with the teacher's ranks.

    values: (q, 256, features); masks: (q, 256); ranks: (q, 256), 0 = first, padded rows last.
    """

    values: Tensor
    masks: Tensor
    ranks: Tensor


@dataclass(frozen=True, slots=True)
class Taught:
    """The fitted network and what it scored on queues it had not seen."""

    network: PaperActor | ContextActor
    loss_first: float
    loss_last: float
    agreement: float
    agreement_lowest: float
    seconds: float
    held_out: Lesson


def make_lesson(teacher: Policy, count: int, settings: Settings, seed: int) -> Lesson:
    """Generate queues and let the teacher rank them; equal scores rank by submit time."""
    draw = np.random.default_rng(seed)
    values, masks, ranks = [], [], []
    for _ in range(count):
        snapshot = random_snapshot(draw, Shape(max_jobs=settings.max_jobs))
        matrix = encode(snapshot.pending, snapshot)
        seen = sample_features(matrix).values if settings.network == "paper" else matrix.values
        if settings.predict:
            # a rule knows nothing of predictions: learn its order whatever they say
            limits = matrix.column("requested_time")[:, None]
            guesses = limits * np.sort(draw.random((len(matrix), len(QUANTILES))), axis=1)
            seen = np.column_stack([seen, guesses]).astype(np.float32)
        window = windows(seen)[0]
        values.append(window.values)
        masks.append(window.mask)
        ranks.append(_ranks(teacher.score(matrix), len(window.mask)))
    return Lesson(*(torch.from_numpy(np.stack(part)) for part in (values, masks, ranks)))


def _ranks(scores: FloatArray, size: int) -> np.ndarray:
    ranks = np.arange(size)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


def listwise_loss(scores: Tensor, lesson_masks: Tensor, ranks: Tensor) -> Tensor:
    """Mean negative log-likelihood, per job, of the teacher's order under Plackett-Luce."""
    order = ranks.argsort(dim=-1)
    by_rank = scores.gather(-1, order)
    real = lesson_masks.gather(-1, order)
    # the chance of each choice among all jobs that were not chosen before it
    rest = torch.logcumsumexp(by_rank.flip(-1), dim=-1).flip(-1)
    return ((rest - by_rank) * real).sum() / real.sum()


def agreement(network: PaperActor | ContextActor, lesson: Lesson) -> tuple[float, float]:
    """Share of job pairs that the network orders as the teacher does: mean and lowest queue."""
    with torch.inference_mode():
        scores = network(lesson.values, lesson.masks)
    shares = []
    for row, mask, rank in zip(scores, lesson.masks, lesson.ranks, strict=True):
        s, r = row[mask], rank[mask]
        first, second = torch.triu_indices(len(s), len(s), offset=1)
        same = (s[first] > s[second]) == (r[first] < r[second])
        shares.append(float(same.float().mean()))
    return float(np.mean(shares)), float(np.min(shares))


def teach(
    teacher: Policy, settings: Settings, on_epoch: Callable[[int, float], None] | None = None
) -> Taught:
    """Fit an actor to a teacher's order. Same settings, same machine: same weights.

    Raises:
        FloatingPointError: the loss is no longer finite; nothing is exported.
    """
    started = time.perf_counter()
    torch.set_num_threads(1)  # sums in one order, so the same weights every time
    torch.manual_seed(settings.seed)
    lesson = make_lesson(teacher, settings.queues, settings, settings.seed)
    held_out = make_lesson(teacher, settings.held_out, settings, settings.seed + 1_000_003)
    features = features_of(settings.network, predicted=settings.predict)
    network = build(settings.network, features, settings.hidden)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    steps = settings.epochs * -(-settings.queues // settings.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    for epoch in range(settings.epochs):
        total = 0.0
        order = torch.randperm(settings.queues)
        for some in torch.split(order, settings.batch):
            scores = network(lesson.values[some], lesson.masks[some])
            loss = listwise_loss(scores, lesson.masks[some], lesson.ranks[some])
            if not bool(torch.isfinite(loss)):
                raise FloatingPointError(f"epoch {epoch}: the loss is {float(loss)}")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(some)
        losses.append(total / settings.queues)
        if on_epoch is not None:
            on_epoch(epoch, losses[-1])
    mean, lowest = agreement(network, held_out)
    elapsed_s = time.perf_counter() - started
    return Taught(network, losses[0], losses[-1], mean, lowest, elapsed_s, held_out)
