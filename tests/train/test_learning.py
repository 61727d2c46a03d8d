"""The loss and pooling of a training, beside the same choice by choice and queue by queue."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from rltuned.lab.replay.prepared import net_of
from rltuned.lab.train.loss import Aim, Part, losses, part_of, parts_of
from rltuned.lab.train.network import PaperCritic, network_of, placed_by, pooled
from rltuned.lab.train.ppo import Learner, as_played, update
from rltuned.lab.train.ranks import ALONE
from rltuned.lab.train.rollout import Batch, Recorder, compete, join
from rltuned.lab.train.settings import PpoSettings
from rltuned.policies.actor import Kind
from tests.train.worlds import SMALL, WORKLOAD

CASES = pytest.mark.parametrize(("kind", "reach"), [("queue", 2.0), ("queue", 0.0), ("paper", 1.0)])
"""Networks that correct a rule, and one that orders alone."""


def batch_of(kind: Kind, reach: float) -> tuple[Learner, Batch]:
    learner = Learner(replace(SMALL, network=kind, reach=reach))
    with torch.no_grad():
        for weight in learner.actor.layers[-1].parameters():
            weight.normal_(0.0, 0.5)
    settings, net = PpoSettings(base="fcfs", rollouts=2), net_of(network_of(learner.actor))
    window = WORKLOAD.cut(0, 60, load=1.3)
    return learner, join(compete(window, net, settings, 5, Recorder()))


def loss_of(batch: Batch, part: Part, logits: Tensor, aim: Aim, reach: float) -> tuple[Tensor, ...]:
    """PPO's loss, the entropies, KL and the share clipped: choice by choice."""
    found = []
    for at, moment in enumerate(part.numbers):
        rows = slice(batch.first[moment], batch.first[moment + 1])
        asked = torch.from_numpy(batch.asked[rows])
        scores = placed_by(logits[part.begins[at] : part.begins[at + 1]], asked, reach)
        for choice in np.flatnonzero(batch.of_pass == moment):
            among = slice(batch.candidate_first[choice], batch.candidate_first[choice + 1])
            open_rows = batch.candidates[among].tolist()
            logs = torch.log_softmax(scores[[row - rows.start for row in open_rows]], dim=0)
            change = logs[open_rows.index(batch.choice[choice])] - aim.before[choice]
            ratio = change.exp()
            limited = ratio.clamp(1 - aim.clip, 1 + aim.clip)
            gain = torch.minimum(ratio * aim.goal[moment], limited * aim.goal[moment])
            clipped = (abs(ratio - 1) > aim.clip).double()
            found.append((-gain, -(logs.exp() * logs).sum(), ratio - 1 - change, clipped))
    return tuple(torch.stack(column).sum() / aim.among for column in zip(*found, strict=True))


@CASES
def test_the_loss_and_its_slope_are_those_of_each_choice_alone(kind: Kind, reach: float) -> None:
    learner, batch = batch_of(kind, reach)
    part = part_of(batch, np.arange(len(batch.rewards))[::3], kind, "cpu")
    draw = np.random.default_rng(3)
    _, chance = as_played(learner, batch, replace(SMALL, network=kind))
    before = chance + draw.normal(0.0, 0.2, len(batch))
    aim = Aim(before, draw.normal(size=len(batch.rewards)), 0.2, 0.3, float(len(batch)))
    values = learner.actor.layers(part.features).detach()
    logits, alone = values.clone().requires_grad_(), values.clone().requires_grad_()
    wanted = loss_of(batch, part, alone, aim, reach)
    (wanted[0] - aim.bonus * wanted[1]).backward()  # type: ignore[no-untyped-call]
    sums = losses(batch, part, logits, aim, reach)
    (sums[0] - aim.bonus * sums[1]).backward()  # type: ignore[no-untyped-call]
    assert 0.0 < sums[3] < 1.0
    np.testing.assert_allclose(sums.tolist(), [x.item() for x in wanted], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits.grad, alone.grad, rtol=1e-4, atol=1e-7)


def test_each_queue_is_pooled_by_itself() -> None:
    torch.manual_seed(2)
    begins, codes = np.array([0, 3, 4, 9]), torch.randn(9, 5).relu()
    each = [codes[a:b] for a, b in pairwise(begins.tolist())]
    wanted = torch.stack([torch.cat([code.mean(dim=0), code.amax(dim=0)]) for code in each])
    torch.testing.assert_close(pooled(codes, begins), wanted)


def test_the_papers_critic_sees_each_queue_in_its_place() -> None:
    critic, rows = PaperCritic((4, 3)), torch.rand(300, 30)
    both = critic(rows, np.array([0, 290, 300]))
    torch.testing.assert_close(both[0], critic(rows[:256], np.array([0, 256]))[0])
    torch.testing.assert_close(both[1], critic(rows[290:], np.array([0, 10]))[0])


@pytest.mark.parametrize("rows", [1, 50, 100_000])
def test_an_update_does_not_depend_on_how_many_rows_go_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learned() -> tuple[Learner, float]:
        learner, batch = batch_of("queue", 2.0)
        learner.set_rate(1e-3)
        done = update(learner, batch, replace(SMALL, network="queue"), epoch=0, ranks=ALONE)
        return learner, float(done["policy_loss"])

    wanted, loss = learned()
    monkeypatch.setattr("rltuned.lab.train.loss.ROWS_AT_ONCE", rows)
    found, same = learned()
    assert same == pytest.approx(loss, abs=1e-6)
    for own, other in zip(found.actor.parameters(), wanted.actor.parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=2e-5, rtol=1e-4)


def test_parts_hold_every_moment_once() -> None:
    _, batch = batch_of("queue", 2.0)
    moments = np.arange(len(batch.rewards))[1::2]
    found = np.concatenate([part.numbers for part in parts_of(batch, moments, "queue", "cpu")])
    np.testing.assert_array_equal(found, moments)
