"""Learn an order that exists: a rule's of whole queues, or the first choices of a site's Slurm.

What is learned are corrections of the rule `delay`, within its bounds: an order that asks for more
is imitated as far as they allow.

Source of the idea: DL2 (Peng et al.), which first learns an existing scheduler's decisions. The
loss is pairwise logistic (RankNet, Burges et al. 2005): of a whole order over all pairs, of one
choice over its pairs with those that were not chosen. A listwise likelihood weighs the first
places so much that bounded delays agree with fewer pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from rltuned.core.features import Float32Array, StateMatrix
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.order import DEFAULT, Order, bounded
from rltuned.lab.train.network import TorchActor, placed_by
from rltuned.policies.baselines import BASELINES
from rltuned.policies.card import MAX_REACH
from rltuned.policies.network import Kind


@dataclass(frozen=True, slots=True)
class Fitting:
    """How an order is learned."""

    epochs: int = 40
    batch: int = 16
    learning_rate: float = 3e-3
    network: Kind = "queue"
    hidden: tuple[int, ...] = (32, 16)
    seed: int = 1
    reach: float = MAX_REACH

    def described(self) -> dict[str, int | float | str]:
        return {k: v if isinstance(v, int | float) else str(v) for k, v in asdict(self).items()}


Ordered = tuple[Float32Array, Float32Array, Sequence[int]]
"""Of a queue (n, features), (n, 4) see asked_of, and its rows from the first on."""


def asked_of(matrix: StateMatrix, order: Order = DEFAULT) -> Float32Array:
    """(n, 4) wait, the two parts of the delay and the bound of each job under the rule `delay`; see
    kernel/episode.Tape.
    """
    delays = bounded(BASELINES["delay"], matrix, order)
    unit_s = max(float(np.minimum(delays.wished_s, delays.upper_s).mean()), 1.0)
    columns = np.column_stack([matrix.wait_s, delays.own_s, delays.queue_s, delays.upper_s])
    return (columns / unit_s).astype(np.float32)


@dataclass(frozen=True, slots=True)
class OrderedQueues:
    """Queues as the network sees them, with their known order.

    values: (q, 256, features); asked: (q, 256, 4), see asked_of; masks: (q, 256); ranks: (q, 256),
    0 = first, padded rows last; known: so many places from the first are known, the others are in
    any order; None = all.
    """

    values: Tensor
    asked: Tensor
    masks: Tensor
    ranks: Tensor
    known: int | None = None

    def __len__(self) -> int:
        return len(self.ranks)

    @classmethod
    def of(cls, queues: Sequence[Ordered], known: int | None = None) -> "OrderedQueues":
        """From queues of at most 256 jobs."""
        values = np.zeros((len(queues), MAX_QUEUE_SIZE, queues[0][0].shape[1]), dtype=np.float32)
        asked = np.zeros((*values.shape[:2], 4), dtype=np.float32)
        masks = np.zeros(values.shape[:2], dtype=bool)
        ranks = np.tile(np.arange(MAX_QUEUE_SIZE), (len(queues), 1))
        for at, (rows, delays, order) in enumerate(queues):
            values[at, : len(rows)], masks[at, : len(rows)] = rows, True
            asked[at, : len(rows)] = delays
            ranks[at, np.asarray(order)] = np.arange(len(rows))
        tensors = [torch.from_numpy(array) for array in (values, asked, masks, ranks)]
        return cls(tensors[0], tensors[1], tensors[2], tensors[3], known)

    @classmethod
    def chosen(cls, queues: Sequence[tuple[Float32Array, Float32Array, int]]) -> "OrderedQueues":
        """As Ordered, with the one that was chosen in place of the order."""
        firsts = [
            (rows, delays, [place, *(i for i in range(len(rows)) if i != place)])
            for rows, delays, place in queues
        ]
        return cls.of(firsts, known=1)

    def split(self, part: float) -> tuple["OrderedQueues", "OrderedQueues"]:
        at = int(len(self) * part)
        return self.part(slice(at)), self.part(slice(at, None))

    def part(self, part: slice | Tensor) -> "OrderedQueues":
        some = [tensor[part] for tensor in (self.values, self.asked, self.masks, self.ranks)]
        return OrderedQueues(some[0], some[1], some[2], some[3], self.known)


def pairwise_loss(scores: Tensor, masks: Tensor, ranks: Tensor, known: int | None = None) -> Tensor:
    """Mean negative log-likelihood of the order of each known pair, by the difference of scores."""
    by_rank = ranks.argsort(dim=-1)
    ordered, real = scores.gather(-1, by_rank), masks.gather(-1, by_rank)
    ahead, first = ordered[..., :known], real[..., :known]  # padded rows have the last ranks
    later = torch.triu(torch.ones(first.shape[-1], real.shape[-1], dtype=torch.bool), diagonal=1)
    pairs = first.unsqueeze(-1) & real.unsqueeze(-2) & later
    apart = (ahead.unsqueeze(-1) - ordered.unsqueeze(-2))[pairs]
    return torch.nn.functional.softplus(-apart).mean()


def agreement(network: TorchActor, orders: OrderedQueues) -> tuple[float, float, float]:
    """Share of the known pairs that the network orders right: mean over queues, and the worst."""
    with torch.inference_mode():
        scores = _scores(network, orders)
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


def _scores(network: TorchActor, orders: OrderedQueues) -> Tensor:
    logits = network(orders.values, orders.masks)
    return placed_by(logits, orders.asked, network.reach)


def fit(
    orders: OrderedQueues,
    fitting: Fitting,
    on_epoch: Callable[[float], None] | None = None,
) -> tuple[TorchActor, list[float]]:
    """An actor, and its mean loss in each epoch. Same input, same machine: same weights.

    Raises FloatingPointError: the loss is no longer finite.
    """
    torch.set_num_threads(1)  # sums in one order, so the same weights every time
    torch.manual_seed(fitting.seed)
    network = TorchActor(fitting.network, fitting.hidden, fitting.reach)
    network.spread_out(orders.values[orders.masks])
    optimiser = torch.optim.Adam(network.parameters(), lr=fitting.learning_rate)
    steps = fitting.epochs * -(-len(orders) // fitting.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    for epoch in range(fitting.epochs):
        total = 0.0
        for places in torch.split(torch.randperm(len(orders)), fitting.batch):
            some = orders.part(places)
            loss = pairwise_loss(_scores(network, some), some.masks, some.ranks, some.known)
            if not bool(torch.isfinite(loss)):
                raise FloatingPointError(f"epoch {epoch}: the loss is {float(loss)}")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(places)
        losses.append(total / len(orders))
        if on_epoch is not None:
            on_epoch(losses[-1])
    return network, losses
