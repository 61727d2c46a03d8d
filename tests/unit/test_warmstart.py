"""The warm start learns the order it is shown, twice the same, and nothing of the future."""

import dataclasses

import numpy as np
import pytest
import torch

from rltuned.policies.baselines import BASELINES
from rltuned.train.imitation import Fitting, OrderedQueues, agreement, fit, listwise_loss
from rltuned.train.queues import QueueBounds, random_snapshot, rule_orders

QUICK, SMALL = Fitting(epochs=15), QueueBounds(max_jobs=64)


@pytest.mark.parametrize("teacher", ["saf", "fcfs"])
def test_a_known_rule_is_recovered(teacher: str) -> None:
    rule = BASELINES[teacher]
    network, losses = fit(rule_orders(rule, 200, QUICK, 1, SMALL), QUICK)
    _, mean, lowest = agreement(network, rule_orders(rule, 60, QUICK, 2, SMALL))
    assert mean >= 0.95
    assert lowest <= mean
    assert losses[-1] < losses[0]


def test_the_same_settings_give_the_same_weights() -> None:
    few = dataclasses.replace(QUICK, epochs=2)
    orders = rule_orders(BASELINES["sjf"], 32, few, 1, SMALL)
    first, second = (fit(orders, few)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_the_plackett_luce_likelihood() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 9.0]])
    masks = torch.tensor([[True, True, True, False]])
    ranks = torch.tensor([[1, 0, 2, 3]])
    masked = scores.masked_fill(~masks, -1e9)
    e = np.exp
    likelihood = (e(1) / (e(2) + e(1) + e(0))) * (e(2) / (e(2) + e(0)))
    assert float(listwise_loss(masked, masks, ranks)) == pytest.approx(-np.log(likelihood) / 3)


def test_the_loss_of_one_choice_is_its_cross_entropy() -> None:
    rows = np.zeros((3, 8), np.float32)
    orders = OrderedQueues.chosen([(rows, 1), (rows[:2], 0)])
    scores = torch.zeros(2, 256)
    scores[0, :3], scores[1, :2] = torch.tensor([0.5, 2.0, 1.0]), torch.tensor([1.5, 0.0])
    masked = scores.masked_fill(~orders.masks, -1e9)
    wanted = torch.nn.functional.cross_entropy(masked, torch.tensor([1, 0]))
    found = listwise_loss(masked, orders.masks, orders.ranks, orders.known)
    torch.testing.assert_close(found, wanted)


def test_agreement_counts_pairs() -> None:
    class Rows(torch.nn.Module):
        def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return values[..., 0].masked_fill(~mask, -1e9)

    values = torch.zeros(1, 4, 8)
    values[0, :, 0] = torch.tensor([3.0, 1.0, 2.0, 7.0])
    orders = OrderedQueues(
        values, torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 2, 3]])
    )
    # of the pairs (0,1) (0,2) (1,2) the last one is turned round
    assert agreement(Rows(), orders) == pytest.approx((2 / 3, 2 / 3, 2 / 3))  # type: ignore[arg-type]
    # of a choice only the pairs of the chosen one count
    first = dataclasses.replace(orders, known=1)
    assert agreement(Rows(), first)[0] == 1.0  # type: ignore[arg-type]


def test_generated_queues_are_valid_eligible_and_varied() -> None:
    draw = np.random.default_rng(5)
    worlds = [random_snapshot(draw, QueueBounds(max_jobs=40)) for _ in range(30)]
    assert len({len(w.pending) for w in worlds}) > 5
    assert any(w.running for w in worlds)
    assert {j.request.total.gpus for w in worlds for j in w.pending} >= {0, 1, 2, 8}
    assert all(j.eligible_at == j.submitted_at < w.taken_at for w in worlds for j in w.pending)


def test_a_lesson_ranks_equal_jobs_by_submit_time() -> None:
    lesson = rule_orders(BASELINES["smallest"], 3, QUICK, 1, SMALL)
    for values, mask, ranks in zip(lesson.values, lesson.masks, lesson.ranks, strict=True):
        # the rule counts a job without GPUs as one GPU
        gpus = values[mask][:, 1].clamp(min=float(values[:, 1][values[:, 1] > 0].min()))
        order = ranks[mask].argsort()
        assert (gpus[order].diff() >= 0).all()
