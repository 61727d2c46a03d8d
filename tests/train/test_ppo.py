"""Learning: the pieces by hand, a training that is interrupted, and a smoke test of the whole."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.features import encode
from rltuned.errors import ModelError, TraceError
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.loss import part_of
from rltuned.lab.train.network import LEAST_SPREAD, QueueCritic, TorchActor, network_of, policy_of
from rltuned.lab.train.ppo import (
    BEST,
    CURVES,
    Learner,
    Report,
    advantages,
    as_played,
    beginning_from,
    perform,
    restored,
    train,
    update,
)
from rltuned.lab.train.ranks import ALONE
from rltuned.lab.train.rollout import Batch, Recorder, compete, join, windows_between
from rltuned.lab.train.run import Run, Validation
from rltuned.lab.train.settings import PpoSettings
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.actor import QUEUE_FEATURES, Kind, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.sim.trace import Trace
from tests.builders import sure
from tests.train.worlds import SMALL, WORKLOAD


def batch_of(kind: Kind, form: str = "dense") -> tuple[Learner, Batch]:
    learner = Learner(replace(SMALL, network=kind))
    settings = replace(SMALL, base="fcfs", form=form, reference="base")  # type: ignore[arg-type]
    episodes = []
    for first in (0, 100):
        window = WORKLOAD.cut(first, 60, load=1.3)
        episodes += compete(window, net_of(network_of(learner.actor)), settings, 5, Recorder())
    return learner, join(episodes)


def test_advantages_by_hand() -> None:
    batch = batch_of("paper")[1]
    hand = replace(batch, sizes=np.array([2, 1]), rewards=np.array([1.0, 2.0, 5.0]))
    found, returns = advantages(hand, np.array([0.5, 1.0, 1.0]), gae=0.5)
    # last of an episode: r - v; before it: r + v' - v + 0.5 * that
    assert found.tolist() == [1.0 + 1.0 - 0.5 + 0.5 * 1.0, 1.0, 4.0]
    assert returns.tolist() == [2.5, 2.0, 5.0]


@pytest.mark.parametrize("form", ["dense", "gap"])
def test_rewards_of_an_episode_sum_to_the_papers_gap(form: str) -> None:
    settings = PpoSettings(base="fcfs", form=form, window_jobs=60)  # type: ignore[arg-type]
    net = net_of(network_of(Learner(SMALL).actor))
    for first in (0, 100, 300):
        window = WORKLOAD.cut(first, 60, load=1.5)
        [episode] = compete(window, net, settings, 3, Recorder())
        gap = (episode.base - episode.own) / max(episode.base, episode.own, 1.0)
        assert episode.rewards.sum() == pytest.approx(gap, abs=1e-6)


def test_networks_do_not_care_about_the_order_of_rows() -> None:
    torch.manual_seed(0)
    actor, critic = TorchActor("queue", (8, 8), 1.0), QueueCritic()
    next(actor.layers[-1].parameters()).data.normal_()
    rows, mask = torch.rand(9, QUEUE_FEATURES), torch.ones(9, dtype=torch.bool)
    mixed = torch.randperm(9)
    begins = np.array([0, 9])
    with torch.no_grad():
        torch.testing.assert_close(actor(rows, mask)[mixed], actor(rows[mixed], mask))
        torch.testing.assert_close(critic(rows, begins), critic(rows[mixed], begins))
        padded = torch.cat([rows, torch.rand(3, QUEUE_FEATURES)])
        longer = torch.cat([mask, torch.zeros(3, dtype=torch.bool)])
        torch.testing.assert_close(actor(padded, longer)[:9], actor(rows, mask))


def test_an_update_makes_good_choices_likelier() -> None:
    learner, batch = batch_of("paper")
    values, before = as_played(learner, batch, SMALL)
    learner.set_rate(1e-3)
    done = update(learner, batch, SMALL, epoch=0, ranks=ALONE)
    advantage, _ = advantages(batch, values, SMALL.gae)
    level = advantage[batch.of_pass] - advantage[batch.of_pass].mean()
    assert ((as_played(learner, batch, SMALL)[1] - before) * level).sum() > 0
    assert done["kl"] >= 0
    assert done["choices"] == len(batch.choice)


def set_to(**changes: object) -> PpoSettings:
    return replace(SMALL, **changes)  # type: ignore[arg-type]


def run_in(folder: Path) -> Run:
    return Run(
        sources=(DatasetSource(WORKLOAD, "made up", "none"),),
        folder=folder / "work",
        out=folder / "model",
        command="a test",
        validation=Validation(2, 60),
    )


def test_the_whole_training_lowers_the_wait_and_its_export_loads(tmp_path: Path) -> None:
    seen: list[Report] = []
    settings = set_to(epochs=8, batches=16, learning_rate=1e-2, network="queue")
    card = sure(perform(settings, run_in(tmp_path), on_epoch=seen.append))
    assert load_actor(tmp_path / "model").card.architecture.kind == "queue"
    assert np.mean([r.gap for r in seen[-3:]]) > np.mean([r.gap for r in seen[:2]])
    assert min(r.validation for r in seen) == pytest.approx(seen[-1].best)
    lines = (tmp_path / "work" / CURVES).read_text().splitlines()
    assert len(lines) == 9
    results = card.results
    assert results["validation_low"] <= results["validation"] <= results["validation_high"]
    assert results["validation"] == pytest.approx(seen[-1].best, abs=1e-4)


def test_a_resumed_training_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    whole = perform(set_to(epochs=3), run_in(tmp_path / "a"))

    class BrokenError(Exception):
        pass

    def stop(report: Report) -> None:
        if report.epoch == 1:
            raise BrokenError

    run = run_in(tmp_path / "b")
    with pytest.raises(BrokenError):
        perform(set_to(epochs=3), run, on_epoch=stop)
    with pytest.raises(ModelError, match="--resume"):
        perform(set_to(epochs=3), run)
    with pytest.raises(ModelError, match="another seed"):
        perform(set_to(epochs=3, seed=9), replace(run, resume=True))
    resumed = perform(set_to(epochs=3), replace(run, resume=True))
    assert sure(resumed).files_sha256 == sure(whole).files_sha256


def test_a_training_that_breaks_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    settings, run = set_to(epochs=5), run_in(tmp_path)

    def poison(report: Report) -> None:
        if report.epoch == 1:
            with torch.no_grad():
                next(learners[0].actor.layers.parameters())[0, 0] = float("nan")

    learners: list[Learner] = []
    made = Learner.__init__

    def remember(self: Learner, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)  # type: ignore[arg-type]
        learners.append(self)

    Learner.__init__ = remember  # type: ignore[method-assign]
    try:
        with pytest.raises(ModelError, match="last good checkpoint"):
            perform(settings, run, on_epoch=poison)
    finally:
        Learner.__init__ = made  # type: ignore[method-assign]
    learner = Learner(settings)
    epoch, _, _ = sure(restored(run.folder, settings, learner))
    assert epoch == 2
    assert all(bool(torch.isfinite(p).all()) for p in learner.actor.parameters())
    assert (run.folder / BEST).exists()
    assert not run.out.exists()


def test_a_gradient_that_is_not_finite_moves_no_weight() -> None:
    learner, batch = batch_of("paper")
    before = {k: v.clone() for k, v in learner.actor.state_dict().items()}
    next(learner.critic.parameters()).register_hook(lambda g: g * float("inf"))  # type: ignore[no-untyped-call]
    with pytest.raises(FloatingPointError, match="gradient is not finite"):
        update(learner, batch, SMALL, epoch=0, ranks=ALONE)
    for name, now in learner.actor.state_dict().items():
        assert torch.equal(now, before[name]), name
    assert all(bool(torch.isfinite(p).all()) for p in learner.critic.parameters())


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    perform(SMALL, run)
    state = run.folder / "state.json"
    state.write_text(json.dumps({"settings": json.loads(state.read_text())["settings"]}))
    with pytest.raises(ModelError, match="cannot be resumed"):
        restored(run.folder, SMALL, Learner(SMALL))


def test_too_few_jobs_for_a_window(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="too few"):
        perform(set_to(window_jobs=650), run_in(tmp_path))
    with pytest.raises(TraceError, match="to be judged by"):
        perform(SMALL, replace(run_in(tmp_path), validation=Validation(2, 300)))


def test_validation_may_come_now_and_then() -> None:
    seen: list[Report] = []
    settings = replace(SMALL, epochs=5, eval_every=2)
    marks = iter([0.3, 0.1, 0.2])
    best = train(
        Learner(settings),
        [WORKLOAD],
        settings,
        lambda _: (next(marks), None, None),
        on_epoch=seen.append,
    )
    assert [r.validation for r in seen if not np.isnan(r.validation)] == [0.3, 0.1, 0.2]
    assert [r.since_best == 0 for r in seen] == [False, True, False, True, False]
    assert best == 0.1


def test_training_stops_early_when_nothing_gets_better() -> None:
    seen: list[Report] = []
    settings = replace(SMALL, epochs=9, patience=2)
    train(
        Learner(settings), [WORKLOAD], settings, lambda _: (0.0, None, None), on_epoch=seen.append
    )
    assert len(seen) == 3


def test_a_part_that_is_too_short_has_no_windows() -> None:
    assert len(windows_between(WORKLOAD, (0.5, 1.0), count=3, size=100, loads=(1.0,))) == 3
    assert windows_between(WORKLOAD, (0.5, 0.6), count=3, size=100, loads=(1.0,)) == []


def test_a_training_goes_on_from_a_bundle_of_any_make(tmp_path: Path) -> None:
    first = sure(perform(set_to(network="queue", hidden=(8, 4), reach=2.5), run_in(tmp_path / "a")))
    begun = tmp_path / "a" / "model"
    settings = beginning_from(begun, SMALL)
    assert (settings.network, settings.hidden, settings.reach) == ("queue", (8, 4), 2.5)
    still, run = replace(settings, learning_rate=0.0), run_in(tmp_path / "b")
    card = sure(perform(still, replace(run, start=begun)))
    assert card.architecture == first.architecture
    name = "actor.safetensors"
    assert card.files_sha256[name] == first.files_sha256[name], "nothing was learned"


def test_a_training_begins_as_the_rule_that_it_corrects(tmp_path: Path) -> None:
    card = sure(perform(set_to(learning_rate=0.0), run_in(tmp_path)))
    assert card.results["validation"] == 0.0
    assert sure(card.verdict).change == 0.0
    queue = random_snapshot(np.random.default_rng(4), 40)
    matrix = encode(queue.pending, queue)
    actor = load_actor(tmp_path / "model")
    for own, rule in zip(actor.wish(matrix), BASELINES["delay"].wish(matrix), strict=True):
        np.testing.assert_array_equal(own, rule)


@pytest.mark.parametrize("kind", ["paper", "queue"])
def test_a_blank_actor_sees_features_spread_out_and_stays_blank(kind: Kind) -> None:
    learner, batch = batch_of(kind)
    part = part_of(batch, np.arange(len(batch.rewards)), kind, "cpu")
    first, *_, last = (m for m in learner.actor.modules() if isinstance(m, nn.Linear))
    as_drawn, bias = first.weight.clone(), first.bias.clone()
    learner.actor.spread_out(part.features)
    deviation = part.features.std(dim=0)
    apart = (part.features - part.features.mean(dim=0)) / deviation.clamp(min=LEAST_SPREAD)
    with torch.no_grad():
        torch.testing.assert_close(
            first(part.features), apart @ as_drawn.T + bias, atol=1e-4, rtol=1e-4
        )
        assert not learner.actor.layers(part.features).any()
        last.weight.fill_(0.1)
        learned = first.weight.clone()
        learner.actor.spread_out(part.features)
    assert torch.equal(first.weight, learned)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 4.0))
def test_no_weights_correct_the_rule_by_more_than_the_reach(seed: int, reach: float) -> None:
    torch.manual_seed(seed)
    module = TorchActor("queue", (4, 4), reach)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(0.0, 10.0 ** (seed % 5))
    queue = random_snapshot(np.random.default_rng(seed), 12)
    matrix = encode(queue.pending, queue)
    asked, found = BASELINES["delay"].wish(matrix), policy_of(module).wish(matrix)
    for own, rule in zip(found, asked, strict=True):
        assert (np.abs(np.log(own / rule)) <= reach + 1e-6).all()


def test_devices_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    trace, out = tmp_path / "t.csv", tmp_path / "mine"
    write_trace(Trace(WORKLOAD.jobs), trace)
    given = ["train", "ppo", "--trace", str(trace), "--cluster", "testbed", "--out", str(out)]
    for device, reply in (("cuda", "no CUDA device here"), ("tpu", "is not one of")):
        ran = CliRunner().invoke(app, [*given, "--device", device])
        assert ran.exit_code == 2
        assert reply in ran.output
    assert not out.exists()
