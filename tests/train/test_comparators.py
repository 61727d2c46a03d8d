"""RLScheduler and SchedInspector of scripts/studies: what they see and that they learn."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rltuned.core.features import encode
from rltuned.sim.presets import preset
from rltuned.sim.trace import Trace, TraceJob, write_trace
from rltuned.train.batch import Contest, draw_window, join
from rltuned.train.choices import log_chances, part_of, scores_of
from rltuned.train.episodes import play_rule
from rltuned.train.ground import Ground, cut, make_ground
from rltuned.train.network import PaperActor
from scripts.studies import comparators
from scripts.studies.__main__ import episode, main
from scripts.studies.comparators import (
    DESIGNS,
    MOST_REJECTIONS,
    READ,
    VISIBLE,
    InspectorCritic,
    KernelCritic,
    RLScheduler,
    SchedInspector,
    Step,
    inspector_pair,
    read,
)
from tests.train.worlds import random_ground, snapshot_now

GROUND = random_ground("testbed", 31, 700)


def zeroed(actor: PaperActor) -> PaperActor:
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.zero_()
    return actor


def actor_of(design: RLScheduler | SchedInspector, seed: int = 1) -> PaperActor:
    torch.manual_seed(seed)
    return design.networks()[0]


@pytest.mark.parametrize("base", comparators.BASES)
def test_identity_law_an_inspector_that_sees_no_difference_is_its_base(base: str) -> None:
    design = SchedInspector(base=base)
    actor = zeroed(actor_of(design))
    for seed in range(3):
        window = cut(random_ground("two", seed), 10, 100, load=1.5)
        np.testing.assert_array_equal(design.play(window, actor)[0], play_rule(window, base))


def rejecting() -> PaperActor:
    """Nothing is always better than the pick."""
    actor = zeroed(actor_of(SchedInspector()))
    layers = [layer for layer in actor.layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        layers[0].weight[0, 2] = 1.0  # the GPUs of the pick; a row of zeros has none
        layers[1].weight[0, 0] = layers[2].weight[0, 0] = 1.0
        layers[3].weight[0, 0] = -1.0
    return actor


def test_a_pick_that_is_always_rejected_waits_for_twelve_hours_and_runs() -> None:
    jobs = [TraceJob(str(i), 100.0 * i, 60.0, 1, 600.0, user="u") for i in range(2)]
    window = cut(make_ground("two jobs", preset("testbed"), jobs), 0, 2)
    start_s, kept = SchedInspector().play(window, rejecting())
    assert start_s[0] == 100.0 + (MOST_REJECTIONS - 1) * comparators.INTERVAL_S
    assert (kept.choice % 2 == 1).sum() >= MOST_REJECTIONS
    assert np.isfinite(start_s).all()


def crowd() -> Ground:
    """Two hundred jobs at once on a small cluster: more than RLScheduler sees."""
    jobs = [
        TraceJob(str(i), 0.0, 100.0 + i, 1, 1_000.0 + 10 * (i % 37), user="u") for i in range(200)
    ]
    return cut(make_ground("crowd", preset("testbed"), jobs), 0, 200)


def by_limit() -> PaperActor:
    """Shortest limit first, to the last bit."""
    actor = zeroed(actor_of(RLScheduler()))
    layers = [layer for layer in actor.layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        layers[0].weight[0, 1] = 1.0
        for layer, sign in zip(layers[1:], (1.0, 1.0, -1.0), strict=True):
            layer.weight[0, 0] = sign
    return actor


def test_rlscheduler_by_limit_is_sjf_where_it_sees_all() -> None:
    for name in ("two", "testbed"):
        window = cut(random_ground(name, 2), 0, 100, load=1.2)
        start_s, _ = RLScheduler().play(window, by_limit())
        np.testing.assert_array_equal(start_s, play_rule(window, "sjf"))


def test_who_is_not_visible_comes_after_those_who_are() -> None:
    window = crowd()
    start_s, kept = RLScheduler().play(window, by_limit())
    at_once = np.flatnonzero(start_s == 0.0)
    assert at_once.max() < VISIBLE
    assert kept.first[1] == VISIBLE
    assert kept.candidates[: kept.candidate_first[1]].max() == VISIBLE - 1
    again, _ = RLScheduler().play(window, by_limit())
    np.testing.assert_array_equal(start_s, again)


def test_an_inspectors_features_by_hand() -> None:
    step = Step(crowd())
    assert step.next_pass()
    rows = step.rows()
    snapshot = snapshot_now(step.window, step.state, step.desk)
    matrix = encode(snapshot.pending, snapshot)
    np.testing.assert_allclose(rows, matrix.values, atol=1e-6)
    pair = inspector_pair(rows, 3, 36)
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


def test_choices_of_an_inspector_are_between_a_pick_and_nothing() -> None:
    design = SchedInspector(base="fcfs")
    actor, critic = actor_of(design), InspectorCritic()
    window = cut(GROUND, 0, 60, load=1.5)
    found = episode(design, window, actor, np.random.default_rng(5))
    change = (found.base - found.own) / found.base
    assert found.rewards.sum() == pytest.approx(max(-1.0, change))
    batch = join([found])
    assert (np.diff(batch.first) == 2).all()
    assert (np.diff(batch.candidate_first) == 2).all()
    part = part_of(batch, np.arange(len(batch.rewards)), "context", "cpu")
    with torch.no_grad():
        scores = scores_of(actor, part)
        chances, _ = log_chances(scores, part)
        values = critic(part.rows, part.moment, part.place, part.moments)
    pick, nothing = scores[0::2], scores[1::2]
    accepted = part.chosen % 2 == 0
    assert 0 < int(accepted.sum()) < len(part)
    wanted = nn.functional.logsigmoid(torch.where(accepted, pick - nothing, nothing - pick))
    torch.testing.assert_close(chances, wanted)
    assert values.shape == (len(part),)


def test_rlschedulers_reward_is_the_metric_and_its_critic_takes_its_rows() -> None:
    design = RLScheduler(unit=50.0)
    found = episode(design, crowd(), actor_of(design), np.random.default_rng(5))
    assert found.rewards.sum() == pytest.approx(-found.own / 50.0)
    part = part_of(join([found]), np.arange(len(found.rewards)), "context", "cpu")
    assert part.features.shape[1] == len(READ)
    values = KernelCritic()(part.rows, part.moment, part.place, part.moments)
    assert values.shape == (part.moments,)


def test_the_filter_draws_windows_that_are_neither_easy_nor_hopeless() -> None:
    design, contest = RLScheduler(), Contest(window_jobs=60)
    design.survey(lambda draw: draw_window([GROUND], contest, draw), 1)
    low, high = design.sieve
    assert 0 < low < high == pytest.approx(2 * design.unit)
    draw = np.random.default_rng(1)
    windows = [draw_window([GROUND], contest, draw) for _ in range(20)]
    early = [design.admits(w, 0) for w in windows]
    assert 0 < sum(early) < 20
    assert all(design.admits(w, comparators.SIEVED) for w in windows)


@pytest.mark.parametrize("name", list(DESIGNS))
def test_the_trained_ones_of_the_results_play(name: str) -> None:
    design, actor = read(name)
    assert design.name == name
    window = cut(GROUND, 0, 60, load=1.1)
    start_s, _ = design.play(window, actor)
    assert (start_s >= window.submit_s).all()


@pytest.mark.parametrize("name", list(DESIGNS))
def test_the_commands_train_go_on_and_play(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparators, "SURVEYED", 5)
    trace, out = tmp_path / "t.csv", tmp_path / "mine"
    write_trace(Trace(GROUND.jobs), trace)
    where = ["--trace", str(trace), "--cluster", "testbed", "--window-jobs", "40"]
    args = ["train", name, "--out", str(out), *where, "--batches", "3", "--exam-windows", "1"]
    main([*args, "--exam-jobs", "60", "--epochs", "2"])
    assert "epoch 1: held out" in capsys.readouterr().out
    card = json.loads((out / "card.json").read_text())
    assert card["architecture"]["base"] == ("saf" if name == "schedinspector" else None)
    main(["play", str(out), *where, "--windows", "1"])
    rows = [line for line in capsys.readouterr().out.splitlines() if str(out) in line]
    assert len(rows) == 1
