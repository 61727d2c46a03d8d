"""Learn an order that exists: a rule's of whole queues, or the first choices of a site's Slurm.

Source of the idea: DL2 (Peng et al.), which first learns an existing scheduler's decisions. The
loss is listwise: the Plackett-Luce likelihood of the known part of the order. Of a whole order it
is that of every place; of one choice, its cross-entropy among those that were not chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from rltuned.core.features import Float32Array
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.policies.card import features_of
from rltuned.policies.network import Kind
from rltuned.train.network import ContextActor, PaperActor, build

Network = PaperActor | ContextActor


@dataclass(frozen=True, slots=True)
class Fitting:
    """How an order is learned."""

    epochs: int = 40
    batch: int = 16
    learning_rate: float = 3e-3
    hidden: tuple[int, ...] = (32, 16)
    seed: int = 1
    network: Kind = "paper"
    predict: bool = False

    def described(self) -> dict[str, int | float | str]:
        """For the card."""
        return {k: v if isinstance(v, int | float) else str(v) for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class OrderedQueues:
    """Queues as the network sees them, with their known order.

    values: (q, 256, features); masks: (q, 256); ranks: (q, 256), 0 = first, padded rows last;
    known: so many places from the first are known, the others are in any order; None = all.
    """

    values: Tensor
    masks: Tensor
    ranks: Tensor
    known: int | None = None

    def __len__(self) -> int:
        return len(self.ranks)

    @classmethod
    def of(
        cls, queues: Sequence[tuple[Float32Array, Sequence[int]]], known: int | None = None
    ) -> "OrderedQueues":
        """From (rows of a queue (n, features), n <= 256, and its rows from the first on)."""
        values = np.zeros((len(queues), MAX_QUEUE_SIZE, queues[0][0].shape[1]), dtype=np.float32)
        masks = np.zeros(values.shape[:2], dtype=bool)
        ranks = np.tile(np.arange(MAX_QUEUE_SIZE), (len(queues), 1))
        for at, (rows, order) in enumerate(queues):
            values[at, : len(rows)], masks[at, : len(rows)] = rows, True
            ranks[at, np.asarray(order)] = np.arange(len(rows))
        tensors = torch.from_numpy(values), torch.from_numpy(masks), torch.from_numpy(ranks)
        return cls(*tensors, known)

    @classmethod
    def chosen(cls, queues: Sequence[tuple[Float32Array, int]]) -> "OrderedQueues":
        """From (rows of a queue, the one that was chosen)."""
        firsts = [
            (rows, [place, *(i for i in range(len(rows)) if i != place)]) for rows, place in queues
        ]
        return cls.of(firsts, known=1)

    def split(self, part: float) -> tuple["OrderedQueues", "OrderedQueues"]:
        """Earlier queues and later ones."""
        at = int(len(self) * part)
        return (
            OrderedQueues(self.values[:at], self.masks[:at], self.ranks[:at], self.known),
            OrderedQueues(self.values[at:], self.masks[at:], self.ranks[at:], self.known),
        )


def listwise_loss(scores: Tensor, masks: Tensor, ranks: Tensor, known: int | None = None) -> Tensor:
    """Mean negative log-likelihood, per known place, of an order under Plackett-Luce."""
    order = ranks.argsort(dim=-1)
    by_rank = scores.gather(-1, order)
    real = masks.gather(-1, order)
    # the chance of each choice among all jobs that were not chosen before it
    rest = torch.logcumsumexp(by_rank.flip(-1), dim=-1).flip(-1)
    counted = real[..., :known]
    return ((rest - by_rank)[..., :known] * counted).sum() / counted.sum()


def agreement(network: Network, orders: OrderedQueues) -> tuple[float, float, float]:
    """Share of the known pairs of jobs that the network orders as they stand.

    Returns:
        Of all pairs, the mean over queues, and that of the worst queue.
    """
    with torch.inference_mode():
        scores = network(orders.values, orders.masks)
    same, pairs = [], []
    for row, mask, rank in zip(scores, orders.masks, orders.ranks, strict=True):
        s, r = row[mask], rank[mask]
        first, second = torch.triu_indices(len(s), len(s), offset=1)
        if orders.known is not None:
            known = torch.minimum(r[first], r[second]) < orders.known
            first, second = first[known], second[known]
        same.append(float(((s[first] > s[second]) == (r[first] < r[second])).sum()))
        pairs.append(len(first))
    shares = np.array(same) / pairs
    return float(np.sum(same) / np.sum(pairs)), float(shares.mean()), float(shares.min())


def fit(
    orders: OrderedQueues, fitting: Fitting, on_epoch: Callable[[float], None] | None = None
) -> tuple[Network, list[float]]:
    """An actor, and its mean loss in each epoch. Same input, same machine: same weights.

    Small batches and many passes: a month's few hundred choices are known by heart long before the
    order is that of the rule, and stopping there agrees with later choices hardly at all.

    Args:
        orders: what is learned.
        fitting: how.
        on_epoch: called with the mean loss of each epoch.

    Raises:
        FloatingPointError: the loss is no longer finite.
    """
    torch.set_num_threads(1)  # sums in one order, so the same weights every time
    torch.manual_seed(fitting.seed)
    features = features_of(fitting.network, predicted=fitting.predict)
    network = build(fitting.network, features, fitting.hidden)
    optimiser = torch.optim.Adam(network.parameters(), lr=fitting.learning_rate)
    steps = fitting.epochs * -(-len(orders) // fitting.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    for epoch in range(fitting.epochs):
        total = 0.0
        for some in torch.split(torch.randperm(len(orders)), fitting.batch):
            masks = orders.masks[some]
            scores = network(orders.values[some], masks)
            loss = listwise_loss(scores, masks, orders.ranks[some], orders.known)
            if not bool(torch.isfinite(loss)):
                raise FloatingPointError(f"epoch {epoch}: the loss is {float(loss)}")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(some)
        losses.append(total / len(orders))
        if on_epoch is not None:
            on_epoch(losses[-1])
    return network, losses
