"""The compiled twin of features, networks and dispatch says the same as the originals; rewards."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from rltuned.core.features import NUM_FEATURES, encode, sample_features
from rltuned.lab.kernel.episode import QUEUED, advance, choose, score_rows, see
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train import rollout
from rltuned.lab.train.network import TorchActor, network_of, policy_of
from rltuned.lab.train.settings import Objective
from rltuned.policies.actor import Kind, seen_by
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import preset
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from tests.examples import some
from tests.sim.reference import clairvoyant, play_direct
from tests.train.worlds import play_rule, random_ground, snapshot_now

RULES = ("fcfs", "sjf", "saf", "smallest", "wfp3", "unicep", "f1", "multifactor", "clairvoyant:sjf")


def drawn(kind: Kind, hidden: tuple[int, int], reach: float) -> TorchActor:
    """An actor that is not blank."""
    torch.manual_seed(3)
    actor = TorchActor(kind, hidden, reach)
    for one in actor.layers[-1].parameters():
        torch.nn.init.normal_(one, 0.0, 0.3)
    return actor


@pytest.mark.examples
@pytest.mark.parametrize("policy", RULES)
@pytest.mark.parametrize("cluster", ["two", "testbed"])
def test_identity_law_a_rule_through_the_learned_path_gives_its_own_schedule(
    policy: str, cluster: str
) -> None:
    for seed, rules in enumerate([Rules(), Rules(backfill="none"), Rules(placement="spread")]):
        workload = random_ground(cluster, seed, rules=rules)
        for load in some((None, 0.8, 2.0), seed + RULES.index(policy)):
            window = workload.cut(10, 100, load=load)
            np.testing.assert_array_equal(play_rule(window, policy), plain(window, policy))


def plain(window: Scenario, policy: str) -> np.ndarray:
    """Start times in the world that people read."""
    scorer = clairvoyant if policy == "clairvoyant:sjf" else BASELINES[policy]
    ordered = window.ordered_by(rollout.MULTIFACTOR)
    return play_direct(ordered, scorer, Protocol(bounded=False)).start_s


@pytest.mark.parametrize("cluster", ["two", "testbed"])
def test_features_equal_the_core_s_on_random_states(cluster: str) -> None:
    states = 0
    for seed in range(4):
        window = random_ground(cluster, seed).cut(0, 100, load=1.5)
        setup, state, desk, sight = rollout.tables(window, seed)
        draw, flags = np.random.default_rng(seed), np.zeros(2, dtype=np.int64)
        while count := advance(setup, state, desk):
            rows = see(setup, state, desk, sight, flags)
            snapshot = snapshot_now(window, state, desk)
            matrix = encode(snapshot.pending, snapshot)
            found = desk.features.rows[:rows, :NUM_FEATURES]
            np.testing.assert_allclose(found, matrix.values, atol=2e-7)
            _, columns = sample_features(matrix)
            assert (columns[6] == "1-job_size", columns[7] == "num_ways") == tuple(flags > 0)
            states += 1
            while count:
                at = int(draw.choice(desk.effective[:count]))
                count = choose(setup, state, desk, at)
        assert not np.isnan(state.start_s).any()
        assert desk.marks[QUEUED] == 0
    assert states > 200


@pytest.mark.parametrize("kind", ["paper", "queue"])
def test_compiled_forward_equals_the_network(kind: Kind) -> None:
    network = drawn(kind, (32, 16), 1.0)
    window = random_ground("two", 5).cut(0, 100, load=2.0)
    setup, state, desk, sight = rollout.tables(window, 0)
    flags = np.zeros(2, dtype=np.int64)
    compared = 0
    while count := advance(setup, state, desk):
        rows = see(setup, state, desk, sight, flags)
        scores = np.empty((rows, 2))
        snapshot = snapshot_now(window, state, desk)
        matrix = encode(snapshot.pending, snapshot)
        values = seen_by(kind, matrix)
        # what a pass fills in when it ranks is not there after `see`
        shown = desk.features.rows[:rows].copy() if kind == "paper" else values.copy()
        score_rows(net_of(network_of(network)), shown, flags, scores)
        with torch.inference_mode():
            wanted = network(torch.from_numpy(values), torch.ones(rows, dtype=torch.bool))
        np.testing.assert_allclose(scores, wanted.expand(-1, 2).numpy(), atol=1e-5)
        some = np.arange(rows) % 3 != 1
        with torch.inference_mode():
            wanted = network(torch.from_numpy(values), torch.from_numpy(some))
        found = network_of(network).forward(values, some)
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)
        compared += 1
        while count:
            count = choose(setup, state, desk, int(desk.effective[0]))
    assert compared > 50


def test_a_sampled_episode_is_its_seed_s_and_keeps_legal_choices() -> None:
    torch.manual_seed(1)
    net = net_of(network_of(drawn("paper", (16, 8), 1.0)))
    window = random_ground("testbed", 2).cut(0, 120, load=1.5)
    recorder = rollout.Recorder()
    starts, kept = rollout.play_sampled(window, net, 7, recorder)
    again, same = rollout.play_sampled(window, net, 7, recorder)
    np.testing.assert_array_equal(starts, again)
    np.testing.assert_array_equal(kept.choice, same.choice)
    other, _ = rollout.play_sampled(window, net, 8, recorder)
    assert (other != starts).any()
    assert len(kept) > 20
    for d in range(len(kept)):
        among = kept.candidates[kept.candidate_first[d] : kept.candidate_first[d + 1]]
        first, last = kept.first[kept.of_pass[d] : kept.of_pass[d] + 2]
        assert len(among) >= 2
        assert kept.choice[d] in among
        assert ((among >= first) & (among < last)).all()


def test_a_tape_that_is_too_short_grows() -> None:
    net = net_of(network_of(drawn("paper", (16, 8), 1.0)))
    window = random_ground("testbed", 2).cut(0, 120, load=1.5)
    roomy = rollout.Recorder()
    small = rollout.Recorder(room=300)
    _, wanted = rollout.play_sampled(window, net, 7, roomy)
    _, kept = rollout.play_sampled(window, net, 7, small)
    np.testing.assert_array_equal(kept.rows, wanted.rows)
    np.testing.assert_array_equal(kept.candidates, wanted.candidates)


PURE = Protocol(bounded=False)
KINDS = pytest.mark.parametrize("kind", ["paper", "queue"])


def ordering(kind: Kind, scale: float = 1.0) -> TorchActor:
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
        found = rollout.play_policy(window, blank, PURE)
        np.testing.assert_array_equal(found, play_rule(window, "fcfs"))


@KINDS
def test_training_plays_the_same_order_but_for_its_noise(kind: Kind) -> None:
    loud = ordering(kind, scale=1e7)
    window = random_ground("testbed", 3).cut(0, 100, load=1.5)
    start_s, _ = rollout.play_sampled(window, net_of(network_of(loud)), 1, rollout.Recorder())
    np.testing.assert_array_equal(start_s, rollout.play_policy(window, policy_of(loud), PURE))


SUBMIT = np.array([0.0, 10.0, 20.0])
START = np.array([0.0, 100.0, 25.0])
DURATION = np.array([50.0, 200.0, 2.0])
WINDOW = Scenario.of(
    preset("testbed"),
    [
        TraceJob(str(i), submit_s, run_s, 1, 3_600.0)
        for i, (submit_s, run_s) in enumerate(zip(SUBMIT, DURATION, strict=True))
    ],
)


def at(objective: Objective, *times: float) -> list[float]:
    found: list[float] = rollout.cost_at(objective, np.array(times), START, WINDOW).tolist()
    return found


def test_costs_grow_while_somebody_waits() -> None:
    assert at("wait", 0.0, 10.0, 20.0, 25.0, 100.0) == pytest.approx(
        [0.0, 0.0, 10 / 3, 20 / 3, 95 / 3]
    )


@pytest.mark.parametrize("objective", get_args(Objective))
def test_dense_rewards_sum_to_the_metric(objective: Objective) -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, 300, 20))
    costs = np.array(at(objective, *times, np.inf))
    assert (np.diff(costs) >= -1e-12).all()
    assert costs[0] + np.diff(costs).sum() == pytest.approx(costs[-1])


@pytest.mark.parametrize("price", [np.ones(3), np.array([7.0, 1.0, 20.0])])
def test_totals_are_the_metrics_and_a_second_may_cost_more_by_job(price: np.ndarray) -> None:
    window, end = replace(WINDOW, price=price), np.array([np.inf])
    wait_s = START - SUBMIT
    slowdown = np.maximum(1.0, (wait_s + DURATION) / np.maximum(DURATION, 10.0))
    wanted = {
        "wait": price * wait_s,
        "bsld": price * (slowdown - 1.0),
        "jct": price * (wait_s + DURATION),
        "tail": price * wait_s**2,
    }
    for objective, costs in wanted.items():
        found = rollout.cost_at(objective, end, START, window)  # type: ignore[arg-type]
        assert found == pytest.approx([costs.mean()]), objective
    assert at("utilisation", np.inf) == [300.0]
