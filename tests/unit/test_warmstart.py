"""The warm start learns the order it is shown, twice the same, and nothing of the future."""

import dataclasses

import numpy as np
import pytest
import torch

from rltuned.policies.baselines import BASELINES
from rltuned.train.queues import Shape, random_snapshot
from rltuned.train.warmstart import (
    Lesson,
    Settings,
    agreement,
    listwise_loss,
    make_lesson,
    teach,
)

QUICK = Settings(queues=200, held_out=60, epochs=15, max_jobs=64)


@pytest.mark.parametrize("teacher", ["saf", "fcfs"])
def test_a_known_rule_is_recovered(teacher: str) -> None:
    taught = teach(BASELINES[teacher], QUICK)
    assert taught.agreement >= 0.95
    assert taught.loss_last < taught.loss_first


def test_the_same_settings_give_the_same_weights() -> None:
    few = dataclasses.replace(QUICK, queues=32, epochs=2)
    first, second = (teach(BASELINES["sjf"], few).network.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_is_the_plackett_luce_likelihood() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 9.0]])
    masks = torch.tensor([[True, True, True, False]])
    ranks = torch.tensor([[1, 0, 2, 3]])
    masked = scores.masked_fill(~masks, -1e9)
    e = np.exp
    likelihood = (e(1) / (e(2) + e(1) + e(0))) * (e(2) / (e(2) + e(0)))
    assert float(listwise_loss(masked, masks, ranks)) == pytest.approx(-np.log(likelihood) / 3)


def test_agreement_counts_pairs() -> None:
    class Rows(torch.nn.Module):
        def forward(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return values[..., 0].masked_fill(~mask, -1e9)

    values = torch.zeros(1, 4, 8)
    values[0, :, 0] = torch.tensor([3.0, 1.0, 2.0, 7.0])
    lesson = Lesson(values, torch.tensor([[True, True, True, False]]), torch.tensor([[0, 1, 2, 3]]))
    # of the pairs (0,1) (0,2) (1,2) the last one is turned round
    assert agreement(Rows(), lesson) == pytest.approx((2 / 3, 2 / 3))  # type: ignore[arg-type]


def test_generated_queues_are_valid_eligible_and_varied() -> None:
    draw = np.random.default_rng(5)
    worlds = [random_snapshot(draw, Shape(max_jobs=40)) for _ in range(30)]
    assert len({len(w.pending) for w in worlds}) > 5
    assert any(w.running for w in worlds)
    assert {j.request.total.gpus for w in worlds for j in w.pending} >= {0, 1, 2, 8}
    assert all(j.eligible_at == j.submitted_at < w.taken_at for w in worlds for j in w.pending)


def test_a_lesson_ranks_equal_jobs_by_submit_time() -> None:
    lesson = make_lesson(BASELINES["smallest"], 3, QUICK, seed=1)
    for values, mask, ranks in zip(lesson.values, lesson.masks, lesson.ranks, strict=True):
        # the rule counts a job without GPUs as one GPU
        gpus = values[mask][:, 1].clamp(min=float(values[:, 1][values[:, 1] > 0].min()))
        order = ranks[mask].argsort()
        assert (gpus[order].diff() >= 0).all()
