"""RLScheduler and SchedInspector, learned small: the same schedule wherever they are played."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.features import encode
from rltuned.errors import ModelError
from rltuned.policies.actor import load_actor
from rltuned.policies.network import InspectorActor, KernelActor
from rltuned.policies.rivals import (
    INSPECTED,
    INSPECTOR_HIDDEN,
    KERNEL,
    KERNEL_AT,
    KERNEL_HIDDEN,
    MOST_REJECTIONS,
    VISIBLE,
    inspector_pair,
)
from rltuned.sim.engine.sight import net_of
from rltuned.sim.policy import actor_of, policy_of
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol, play_direct
from rltuned.sim.run import Window as Chosen
from rltuned.sim.run import simulate
from rltuned.sim.trace import Trace, TraceJob, write_trace
from rltuned.train.batch import Contest, compete, cost_of, draw_window, join
from rltuned.train.choices import log_chances, part_of, scores_of
from rltuned.train.course import Source
from rltuned.train.critic import critic_of
from rltuned.train.episodes import Recorder, play_greedy, play_rule, play_sampled, tables
from rltuned.train.ground import Window, cut, make_ground
from rltuned.train.learner import Settings
from rltuned.train.rivals import Rival, settings_of
from rltuned.train.rollout.play import advance, choose, score_rows, see
from rltuned.train.rollout.state import QUEUED
from rltuned.train.run import Exam, Job, perform
from tests.train.worlds import random_ground, snapshot_now

GROUND = random_ground("testbed", 31, 700)
BUDGET = Settings(contest=Contest(base="saf", window_jobs=60), epochs=2, batches=4, minibatches=2)
RIVALS: tuple[Rival, ...] = ("rlscheduler", "schedinspector")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for rival in RIVALS:
        folder = tmp_path_factory.mktemp(rival)
        job = Job(
            settings=settings_of(rival, BUDGET, [GROUND]),
            sources=(Source(GROUND, "made up", "none"),),
            folder=folder / "work",
            out=folder / "model",
            command="a test",
            exam=Exam(2, 60),
        )
        assert perform(job) is not None
        found[rival] = folder / "model"
    return found


def inspector(base: str, seed: int = 1) -> InspectorActor:
    torch.manual_seed(seed)
    return InspectorActor(len(INSPECTED), INSPECTOR_HIDDEN, base)


@pytest.mark.parametrize("base", ["saf", "fcfs", "multifactor", "wfp3"])
def test_identity_law_an_inspector_that_sees_no_difference_is_its_base(base: str) -> None:
    network = inspector(base)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    for seed in range(3):
        window = cut(random_ground("two", seed), 10, 100, load=1.5)
        np.testing.assert_array_equal(play_greedy(window, net_of(network)), play_rule(window, base))


@pytest.mark.parametrize("name", ["two", "testbed"])
def test_the_compiled_inspector_schedules_as_the_plain_world(
    bundles: dict[str, Path], name: str
) -> None:
    """Whatever its weights: those of chance reject about half of the picks."""
    trained = load_actor(bundles["schedinspector"], inspectors=True)
    rejections = 0
    for seed in range(3):
        trained._network = inspector("saf", seed)
        policy = policy_of(f"model:{bundles['schedinspector']}")
        policy.inspector = trained  # type: ignore[union-attr]
        window = cut(random_ground(name, seed), 0, 100, load=1.5)
        plain = plain_starts(window, policy)
        fast = play_greedy(window, net_of(trained.network))
        np.testing.assert_array_equal(fast, plain)
        rejections += sum(policy.rejections.values())  # type: ignore[union-attr]
    assert rejections > 20


@pytest.mark.parametrize("name", ["two", "testbed"])
def test_the_compiled_kernel_schedules_as_the_plain_world(
    bundles: dict[str, Path], name: str
) -> None:
    actor = load_actor(bundles["rlscheduler"])
    for seed in range(3):
        window = cut(random_ground(name, seed), 0, 100, load=2.0)
        np.testing.assert_array_equal(
            play_greedy(window, net_of(actor.network)), plain_starts(window, actor)
        )


def plain_starts(window: Window, policy: object) -> np.ndarray:
    jobs = [
        replace(j, submit_s=float(s)) for j, s in zip(window.jobs, window.submit_s, strict=True)
    ]
    where = window.ground.cluster
    protocol = Protocol(rules=window.ground.rules, bounded=False)
    world = play_direct(where, jobs, policy, protocol).world  # type: ignore[arg-type]
    return np.array([world.finished[i + 1].started_at for i in range(len(jobs))])


def test_compiled_forward_equals_the_kernel_network() -> None:
    torch.manual_seed(3)
    network = KernelActor(len(KERNEL), KERNEL_HIDDEN)
    window = cut(random_ground("two", 5), 0, 100, load=2.0)
    setup, state, desk, sight = tables(window, 0)
    flags = np.zeros(2, dtype=np.int64)
    while count := advance(setup, state, desk):
        rows = see(setup, state, desk, sight, flags)
        scores = np.empty(rows)
        score_rows(net_of(network), desk.features.rows[:rows].copy(), flags, scores)
        seen = torch.from_numpy(desk.features.rows[:rows, KERNEL_AT])
        with torch.inference_mode():
            wanted = network(seen, torch.ones(rows, dtype=torch.bool))
        np.testing.assert_allclose(scores, wanted.numpy(), atol=1e-5)
        while count:
            count = choose(setup, state, desk, int(desk.effective[0]))


def crowd() -> Window:
    """Two hundred jobs at once on a small cluster: more than RLScheduler sees."""
    jobs = [
        TraceJob(str(i), 0.0, 100.0 + i, 1, 1_000.0 + 10 * (i % 37), user="u") for i in range(200)
    ]
    return cut(make_ground("crowd", preset("testbed"), jobs), 0, 200)


def by_limit() -> KernelActor:
    """Shortest limit first, to the last bit wherever it is computed."""
    network = KernelActor(len(KERNEL), KERNEL_HIDDEN)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.layers[0].weight[0, KERNEL.index("requested_time")] = 1.0  # type: ignore[operator]
        for at, sign in ((2, 1.0), (4, 1.0), (6, -1.0)):
            network.layers[at].weight[0, 0] = sign  # type: ignore[operator]
    return network


def test_who_is_not_visible_comes_after_those_who_are(bundles: dict[str, Path]) -> None:
    actor = load_actor(bundles["rlscheduler"])
    actor._network = by_limit()
    window = crowd()
    setup, state, desk, _ = tables(window, 0)
    advance(setup, state, desk)
    snapshot = snapshot_now(window, state, desk)
    scores = actor.score(encode(snapshot.pending, snapshot))
    assert (np.diff(scores[VISIBLE:]) < 0).all()
    assert scores[:VISIBLE].min() > scores[VISIBLE:].max()
    np.testing.assert_array_equal(
        play_greedy(window, net_of(actor.network)), plain_starts(window, actor)
    )
    _, kept = play_sampled(window, net_of(actor.network), 1, Recorder())
    first = kept.candidates[: kept.candidate_first[1]]
    assert first.max() == VISIBLE - 1
    assert int(np.diff(kept.first)[0]) == 200


def test_an_inspectors_features_by_hand() -> None:
    window = crowd()
    setup, state, desk, _ = tables(window, 0)
    advance(setup, state, desk)
    assert desk.marks[QUEUED] == 200
    snapshot = snapshot_now(window, state, desk)
    matrix = encode(snapshot.pending, snapshot)
    pair = inspector_pair(matrix.values, 3, 36)
    delay = sum(600 / max(1_000 + 10 * (i % 37), 600) for i in range(200))
    assert pair[0] == pytest.approx(
        [
            0.0,
            float(matrix.column("requested_time")[3]),
            float(matrix.column("requested_gpus")[3]),
            36 / MOST_REJECTIONS,
            np.log1p(delay) / np.log1p(256),
            1.0,
            1.0,
            1.0,
        ],
        rel=1e-4,
    )
    assert not pair[1].any()


def test_choices_of_an_inspector_are_between_a_pick_and_nobody() -> None:
    network = inspector("fcfs")
    contest = Contest(base="fcfs", form="percent", window_jobs=60)
    window = cut(GROUND, 0, 60, load=1.5)
    [episode] = compete(window, net_of(network), contest, 5, Recorder())
    change = (episode.base - episode.own) / episode.base
    assert episode.rewards.sum() == pytest.approx(max(-1.0, change))
    batch = join([episode])
    assert (np.diff(batch.first) == 2).all()
    assert (np.diff(batch.candidate_first) == 2).all()
    part = part_of(batch, np.arange(len(batch.rewards)), "inspector", "cpu")
    with torch.no_grad():
        scores = scores_of(network, part)
        chances, _ = log_chances(scores, part)
        values = critic_of("inspector", 0)(part.rows, part.moment, part.place, part.moments)
    pick, nobody = scores[0::2], scores[1::2]
    accepted = part.chosen % 2 == 0
    assert 0 < int(accepted.sum()) < len(part)
    wanted = torch.nn.functional.logsigmoid(torch.where(accepted, pick - nobody, nobody - pick))
    torch.testing.assert_close(chances, wanted)
    assert values.shape == (len(part),)


def test_the_kernel_s_critic_sees_128_jobs_and_the_reward_is_the_metric() -> None:
    torch.manual_seed(0)
    network, critic = KernelActor(len(KERNEL), KERNEL_HIDDEN), critic_of("kernel", 0)
    contest = Contest(form="metric", window_jobs=200, unit=50.0)
    [episode] = compete(crowd(), net_of(network), contest, 5, Recorder())
    assert episode.rewards.sum() == pytest.approx(-episode.own / 50.0)
    part = part_of(join([episode]), np.arange(1), "kernel", "cpu")
    assert part.features.shape == (200, len(KERNEL))
    with torch.no_grad():
        one = critic(part.rows, part.moment, part.place, 1)
        seen = part.place < VISIBLE
        two = critic(part.rows[seen], part.moment[seen], part.place[seen], 1)
    torch.testing.assert_close(one, two)


def test_the_filter_draws_windows_that_are_neither_easy_nor_hopeless() -> None:
    settings = settings_of("rlscheduler", BUDGET, [GROUND])
    assert settings.contest.sieve is not None
    low, high = settings.contest.sieve
    assert 0 < low < high == pytest.approx(2 * settings.contest.unit)
    assert settings.sieved == 50
    draw = np.random.default_rng(1)
    for _ in range(10):
        window = draw_window([GROUND], settings.contest, draw)
        assert low <= cost_of(window, "wait", "sjf") <= high


def test_cards_say_whose_design_it_is_and_damaged_ones_are_refused(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    assert load_actor(bundles["rlscheduler"]).card.architecture.hidden == KERNEL_HIDDEN
    shape = load_actor(bundles["schedinspector"], inspectors=True).card.architecture
    assert (shape.kind, shape.base) == ("inspector", "saf")
    with pytest.raises(ModelError, match="an inspector of saf's picks orders no queue"):
        load_actor(bundles["schedinspector"])
    for change, told in (
        ({"base": None}, "an inspector has one"),
        ({"base": "best"}, "an inspector has one"),
        ({"hidden": [8, 8]}, "3 hidden layers"),
        ({"features": 13}, "does not read 13 features"),
    ):
        card = json.loads((bundles["schedinspector"] / "card.json").read_text())
        card["architecture"] |= change
        (tmp_path / "card.json").write_text(json.dumps(card))
        with pytest.raises(ModelError, match=told):
            load_actor(tmp_path, inspectors=True)


@pytest.mark.parametrize("rival", RIVALS)
def test_shipped_rivals_play_without_further_options(
    rival: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # wherever one stands
    assert actor_of(rival).card.name == rival
    window = Chosen(0, GROUND.jobs[:60])
    for mode in (Protocol(), Protocol(mode="cycle", interval_s=600.0)):
        played = simulate(window, GROUND.cluster, rival, mode)
        assert (played.start_s >= played.submit_s).all()


@pytest.mark.parametrize("rival", RIVALS)
def test_the_commands_train_and_go_on(rival: str, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.csv", tmp_path / "mine"
    write_trace(Trace(GROUND.jobs), trace)
    args = ["train", rival, "--out", str(out), "--trace", str(trace), "--cluster", "testbed"]
    args += ["--batches", "3", "--window-jobs", "40", "--exam-windows", "1", "--exam-jobs", "60"]
    first = CliRunner().invoke(app, [*args, "--epochs", "1"])
    assert first.exit_code == 0, first.output
    again = CliRunner().invoke(app, [*args, "--epochs", "1"])
    assert isinstance(again.exception, ModelError)
    told = CliRunner().invoke(app, ["models", "verify", str(out)])
    assert told.exit_code == 0, told.output
    wrong = CliRunner().invoke(app, ["train", "schedinspector", "--base", "best", "--out", "x"])
    assert wrong.exit_code == 2
