"""The warm start learns the order it is shown, twice the same, and nothing of the future."""

import dataclasses

import numpy as np
import pytest
import torch

from rltuned.lab.train.imitation import (
    OrderedQueues,
    agreement,
    fit,
    pairwise_loss,
    random_snapshot,
    rule_orders,
)
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.settings import Fitting
from rltuned.policies.baselines import BASELINES

QUICK, SMALL = Fitting(epochs=15), 64


@pytest.mark.parametrize(("name", "least"), [("saf", 0.93), ("sjf", 0.93), ("fcfs", 0.92)])
def test_a_known_rule_is_recovered_as_far_as_the_bounds_allow(name: str, least: float) -> None:
    rule = BASELINES[name]
    network, losses = fit(rule_orders(rule, 200, 1, SMALL), QUICK)
    unseen = rule_orders(rule, 60, 2, SMALL)
    _, mean, lowest = agreement(network, unseen)
    assert mean >= least
    by_rule = agreement(TorchActor("queue", (4, 4), QUICK.reach), unseen)[1]
    assert mean > by_rule or by_rule > 0.95, "the rule itself orders by area"
    assert lowest <= mean
    assert losses[-1] < losses[0]


def test_the_same_settings_give_the_same_weights() -> None:
    few = dataclasses.replace(QUICK, epochs=2)
    orders = rule_orders(BASELINES["sjf"], 32, 1, SMALL)
    first, second = (fit(orders, few)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_the_mean_over_the_known_pairs() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 9.0]])
    masks = torch.tensor([[True, True, True, False]])
    ranks = torch.tensor([[1, 0, 2, 3]])
    wanted = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0, 2.0 - 0.0)])
    assert float(pairwise_loss(scores, masks, ranks)) == pytest.approx(wanted)
    # of a choice only the pairs of the chosen one count
    first = np.mean([np.log1p(np.exp(-d)) for d in (1.0 - 2.0, 1.0 - 0.0)])
    assert float(pairwise_loss(scores, masks, ranks, known=1)) == pytest.approx(first)


def test_queues_keep_their_order_and_their_padding() -> None:
    rows, asked = np.ones((3, 8), np.float32), np.ones((3, 4), np.float32)
    orders = OrderedQueues.chosen([(rows, asked, 1), (rows[:2], asked[:2], 0)])
    assert orders.masks.sum(dim=1).tolist() == [3, 2]
    assert orders.ranks[0, :3].tolist() == [1, 0, 2]
    assert orders.known == 1
    earlier, later = orders.split(0.5)
    assert (len(earlier), len(later)) == (1, 1)
    assert later.masks.sum() == 2


def test_agreement_counts_pairs() -> None:
    class Rows(torch.nn.Module):
        reach = 1.0

        def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return values[..., :1].masked_fill(~mask[..., None], -1e9)

    asked = torch.zeros(1, 4, 4)
    asked[0, :, 0] = torch.tensor([3.0, 1.0, 2.0, 7.0])  # they waited so long
    mask, ranks = torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 2, 3]])
    orders = OrderedQueues(torch.zeros(1, 4, 8), asked, mask, ranks)
    # of the pairs (0,1) (0,2) (1,2) the last one is turned round
    assert agreement(Rows(), orders) == pytest.approx((2 / 3, 2 / 3, 2 / 3))  # type: ignore[arg-type]
    # of a choice only the pairs of the chosen one count
    first = dataclasses.replace(orders, known=1)
    assert agreement(Rows(), first)[0] == 1.0  # type: ignore[arg-type]


def test_generated_queues_are_valid_eligible_and_varied() -> None:
    draw = np.random.default_rng(5)
    worlds = [random_snapshot(draw, 40) for _ in range(30)]
    assert len({len(w.pending) for w in worlds}) > 5
    assert any(w.running for w in worlds)
    assert {j.request.total.gpus for w in worlds for j in w.pending} >= {0, 1, 2, 8}
    assert all(j.eligible_at == j.submitted_at < w.taken_at for w in worlds for j in w.pending)


def test_a_queue_of_a_rule_without_delays_is_the_order_of_submission() -> None:
    queues = rule_orders(BASELINES["fcfs"], 3, 1, SMALL)
    for asked, mask, ranks in zip(queues.asked, queues.masks, queues.ranks, strict=True):
        waits = asked[mask][:, 0]
        assert (waits[ranks[mask].argsort()].diff() <= 0).all()
