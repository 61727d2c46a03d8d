"""A network that corrects no rule: its score is the order, and a blank one is who came first."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from rltuned.core.features import encode
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.loss import part_of
from rltuned.lab.train.network import TorchActor, network_of, policy_of
from rltuned.lab.train.rollout import (
    Recorder,
    compete,
    join,
    play_policy,
    play_rule,
    play_sampled,
)
from rltuned.lab.train.settings import PpoSettings
from rltuned.policies.actor import Kind
from rltuned.sim.world import Rules
from tests.sim.reference import play_direct
from tests.train.worlds import random_ground

PURE = Protocol(bounded=False)
KINDS = pytest.mark.parametrize("kind", ["paper", "queue"])


def drawn(kind: Kind, scale: float = 1.0) -> TorchActor:
    """An order of its own; scale: of its scores."""
    torch.manual_seed(4)
    module = TorchActor(kind, (8, 8))
    last = [m for m in module.modules() if isinstance(m, torch.nn.Linear)][-1]
    torch.nn.init.normal_(last.weight, 0.0, scale)
    return module


@KINDS
@pytest.mark.parametrize("cluster", ["two", "testbed"])
def test_a_blank_one_is_first_come_first_served(kind: Kind, cluster: str) -> None:
    blank = policy_of(TorchActor(kind, (8, 8)))
    for seed, rules in enumerate([Rules(), Rules(backfill="none")]):
        window = random_ground(cluster, seed, rules=rules).cut(10, 100, load=1.5)
        found = play_policy(window, blank, PURE)
        np.testing.assert_array_equal(found, play_rule(window, "fcfs"))


@KINDS
def test_it_is_played_as_numpy_scores_it(kind: Kind) -> None:
    policy = policy_of(drawn(kind))
    window = random_ground("testbed", 2).cut(10, 100, load=1.5)
    world = play_direct(window, policy, PURE).world
    wanted = [world.finished[i + 1].started_at for i in range(len(window))]
    found = play_policy(window, policy, PURE)
    np.testing.assert_array_equal(found, wanted)
    assert (found != play_rule(window, "fcfs")).any()


@KINDS
def test_training_plays_the_same_order_but_for_its_noise(kind: Kind) -> None:
    loud = drawn(kind, scale=1e7)
    window = random_ground("testbed", 3).cut(0, 100, load=1.5)
    start_s, _ = play_sampled(window, net_of(network_of(loud)), 1, Recorder())
    np.testing.assert_array_equal(start_s, play_policy(window, policy_of(loud), PURE))


@KINDS
def test_torch_scores_what_was_chosen_by(kind: Kind) -> None:
    actor = drawn(kind)
    window = random_ground("testbed", 3).cut(0, 100, load=1.5)
    settings = PpoSettings(reference="group", rollouts=2)
    batch = join(compete(window, net_of(network_of(actor)), settings, 1, Recorder()))
    part = part_of(batch, np.arange(len(batch.rewards)), kind, "cpu")
    with torch.no_grad():
        scores = actor.layers(part.features)[:, 0].numpy()
    network = network_of(actor)
    for first, last in pairwise(part.begins):
        rows = part.features[first:last].numpy()
        wanted = network.forward(rows, np.ones(len(rows), dtype=bool))[:, 0]
        np.testing.assert_allclose(scores[first:last], wanted, atol=1e-5)


def test_it_asks_for_no_delays() -> None:
    policy = policy_of(drawn("queue"))
    queue = random_snapshot(np.random.default_rng(1), 9)
    with pytest.raises(ValueError, match="corrects no rule"):
        policy.wish(encode(queue.pending, queue))
    window = random_ground("two", 1).cut(0, 20)
    for protocol in (Protocol(), Protocol("cycle")):
        with pytest.raises(ValueError, match="corrects no rule"):
            play_policy(window, policy, protocol)
