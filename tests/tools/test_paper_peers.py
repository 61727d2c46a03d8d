"""The peers of the paper's Table 9: what an inspector can do, and how RLScheduler's net scores."""

import numpy as np
import pytest
import torch
from torch import nn

from rltuned.core.run_times import QUEUE_FEATURES
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.rollout import play_policy
from rltuned.sim.cluster import preset
from rltuned.sim.trace import TraceJob
from scripts.studies.paper.common import EVENTS
from scripts.studies.paper.inspector import INTERVAL_S, MOST_REJECTIONS, SchedInspector
from scripts.studies.paper.peers import episode
from scripts.studies.paper.rlscheduler import READ, KernelActor, KernelCritic, RLScheduler


def crowd(count: int = 60, apart_s: float = 40.0) -> Scenario:
    """More jobs than a testbed can take."""
    jobs = [
        TraceJob(str(i), apart_s * i, 200.0 + 90.0 * (i % 7), 1 + i % 3, 900.0 + 60.0 * (i % 5))
        for i in range(count)
    ]
    return Scenario.of(preset("testbed"), jobs).for_networks()


def zeroed(actor: TorchActor) -> TorchActor:
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.zero_()
    return actor


def rejecting() -> TorchActor:
    """Nothing is always better than the pick."""
    actor = zeroed(SchedInspector().networks()[0])
    layers = [layer for layer in actor.layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        layers[0].weight[0, 2] = 1.0  # the GPUs of the pick; a row of zeros has none
        layers[1].weight[0, 0] = 1.0
        layers[2].weight[0, 0] = -1.0
    return actor


def test_an_inspector_that_sees_no_difference_is_its_base() -> None:
    window = crowd()
    start_s, _ = SchedInspector().play(window, zeroed(SchedInspector().networks()[0]))
    np.testing.assert_array_equal(start_s, play_policy(window, "fcfs", EVENTS))


def test_a_pick_that_is_always_rejected_waits_for_twelve_hours_and_runs() -> None:
    window = crowd(2, apart_s=100.0)
    start_s, kept = SchedInspector().play(window, rejecting())
    assert (start_s >= play_policy(window, "fcfs", EVENTS)).all(), "it can only delay"
    assert start_s[0] == 100.0 + (MOST_REJECTIONS - 1) * INTERVAL_S
    assert (kept.choice % 2 == 1).sum() >= MOST_REJECTIONS


def test_an_inspector_never_changes_the_order_of_those_who_ask_for_the_same() -> None:
    jobs = [TraceJob(str(i), 10.0 * i, 300.0, 2, 600.0) for i in range(40)]
    window = Scenario.of(preset("testbed"), jobs).for_networks()
    torch.manual_seed(2)
    actor = SchedInspector().networks()[0]
    start_s, kept = SchedInspector().play(window, actor, np.random.default_rng(4))
    assert (np.diff(start_s) >= 0).all()
    assert 0 < (kept.choice % 2).sum() < len(kept), "it has rejected some, not all"
    assert start_s.mean() > play_policy(window, "fcfs", EVENTS).mean()


def test_the_same_draw_is_the_same_episode() -> None:
    torch.manual_seed(2)
    actor = SchedInspector().networks()[0]
    one, two = (
        SchedInspector().play(crowd(), actor, np.random.default_rng(4))[0] for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_scores_of_rlscheduler_go_with_their_jobs() -> None:
    torch.manual_seed(1)
    actor, rows = KernelActor(), torch.rand(9, QUEUE_FEATURES)
    order = torch.randperm(9)
    every = torch.ones(9, dtype=torch.bool)
    with torch.no_grad():
        torch.testing.assert_close(actor(rows, every)[order], actor(rows[order], every))
        other = torch.rand(9, QUEUE_FEATURES)
        other[:, READ] = rows[:, READ]
        torch.testing.assert_close(actor(other, every), actor(rows, every))


def test_what_rlscheduler_does_not_read_it_does_not_learn() -> None:
    torch.manual_seed(1)
    actor = KernelActor()
    rate = torch.optim.Adam(actor.parameters(), lr=0.1)
    for _ in range(3):
        rate.zero_grad()
        actor(torch.rand(5, QUEUE_FEATURES), torch.ones(5, dtype=torch.bool)).sum().backward()
        rate.step()
    weight = next(actor.layers.parameters()).detach()
    unread = [at for at in range(QUEUE_FEATURES) if at not in READ]
    assert not weight[:, unread].any()
    assert weight[:, READ].any()


def test_the_compiled_net_scores_as_torch_does() -> None:
    torch.manual_seed(1)
    actor, rows = KernelActor(), torch.rand(7, QUEUE_FEATURES)
    mask = np.ones(7, dtype=bool)
    with torch.no_grad():
        own = actor(rows, torch.from_numpy(mask)).numpy()
    theirs = policy_of(actor).network.forward(rows.numpy(), mask)
    np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("design", [SchedInspector(), RLScheduler(unit=50.0)])
def test_the_reward_stands_at_the_end(design: SchedInspector | RLScheduler) -> None:
    torch.manual_seed(1)
    actor, critic = design.networks()
    found = episode(design, crowd(), actor, np.random.default_rng(5))
    assert found.rewards[-1] == design.reward(found.own, found.base)
    assert not found.rewards[:-1].any()
    assert len(found.kept) > 10
    assert critic is not None


def test_rlschedulers_critic_sees_the_oldest_jobs() -> None:
    torch.manual_seed(1)
    rows = torch.rand(200, QUEUE_FEATURES)
    begins = np.array([0, 200])
    critic = KernelCritic()
    with torch.no_grad():
        value = critic(rows, begins)
        rows[128:] = 0.0
        torch.testing.assert_close(critic(rows, begins), value)
