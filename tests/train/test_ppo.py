"""PPO: its pieces by hand, a training that is interrupted, and a smoke test of the whole."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from rltuned.core.features import encode
from rltuned.errors import ModelError, TraceError
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train import network, ppo
from rltuned.lab.train.export import TrainingRun
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.rollout import Batch, Recorder, compete, join
from rltuned.lab.train.settings import PpoSettings
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.actor import QUEUE_FEATURES, Kind, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.sim.trace import Trace
from tests import two_ranks
from tests.builders import sure
from tests.train.worlds import SMALL, WORKLOAD
from tests.unit.cli.runner import run as command

WEIGHTS = "actor.safetensors"


def set_to(**changes: Any) -> PpoSettings:
    return replace(SMALL, **changes)


def run_in(folder: Path, **changes: Any) -> TrainingRun:
    source = DatasetSource(WORKLOAD, "made up", "none")
    found = TrainingRun((source,), folder / "work", folder / "model", "a test")
    return replace(found, **changes)


def batch_of(kind: Kind, reach: float = 2.0, deviation: float = 0.0) -> tuple[ppo.Learner, Batch]:
    """Episodes of a learner. deviation: of its last layer; 0 = blank."""
    settings = set_to(network=kind, reach=reach, reference="base")
    learner = ppo.Learner(settings)
    with torch.no_grad():
        for weight in learner.actor.layers[-1].parameters():
            weight.normal_(0.0, deviation)
    net, recorder = net_of(network.network_of(learner.actor)), Recorder()
    windows = [WORKLOAD.cut(first, 60, load=1.3) for first in (0, 100)]
    return learner, join([e for w in windows for e in compete(w, net, settings, 5, recorder)])


# The pieces


def test_advantages_by_hand() -> None:
    batch = batch_of("paper")[1]
    hand = replace(batch, sizes=np.array([2, 1]), rewards=np.array([1.0, 2.0, 5.0]))
    found, returns = ppo.advantages(hand, np.array([0.5, 1.0, 1.0]), gae=0.5)
    # last of an episode: r - v; before it: r + v' - v + 0.5 * that
    assert found.tolist() == [1.0 + 1.0 - 0.5 + 0.5 * 1.0, 1.0, 4.0]
    assert returns.tolist() == [2.5, 2.0, 5.0]


@pytest.mark.parametrize("form", ["dense", "gap"])
def test_rewards_of_an_episode_sum_to_the_papers_gap(form: str) -> None:
    settings = set_to(form=form, reference="base", rollouts=1)
    net = net_of(network.network_of(ppo.Learner(SMALL).actor))
    for first in (0, 100, 300):
        window = WORKLOAD.cut(first, 60, load=1.5)
        [episode] = compete(window, net, settings, 3, Recorder())
        gap = (episode.base - episode.own) / max(episode.base, episode.own, 1.0)
        assert episode.rewards.sum() == pytest.approx(gap, abs=1e-6)


def test_networks_do_not_care_about_the_order_of_rows() -> None:
    torch.manual_seed(0)
    actor, critic = network.TorchActor("queue", (8, 8), 1.0), network.QueueCritic()
    next(actor.layers[-1].parameters()).data.normal_()
    rows, mask = torch.rand(9, QUEUE_FEATURES), torch.ones(9, dtype=torch.bool)
    mixed, begins = torch.randperm(9), np.array([0, 9])
    with torch.no_grad():
        torch.testing.assert_close(actor(rows, mask)[mixed], actor(rows[mixed], mask))
        torch.testing.assert_close(critic(rows, begins), critic(rows[mixed], begins))
        padded = torch.cat([rows, torch.rand(3, QUEUE_FEATURES)])
        longer = torch.cat([mask, torch.zeros(3, dtype=torch.bool)])
        torch.testing.assert_close(actor(padded, longer)[:9], actor(rows, mask))


def test_each_queue_is_judged_by_itself_and_the_papers_in_its_place() -> None:
    torch.manual_seed(2)
    codes = torch.randn(9, 5).relu()
    each = [codes[:3], codes[3:4], codes[4:]]
    wanted = torch.stack([torch.cat([code.mean(dim=0), code.amax(dim=0)]) for code in each])
    torch.testing.assert_close(network.pooled(codes, np.array([0, 3, 4, 9])), wanted)
    critic, rows = network.PaperCritic((4, 3)), torch.rand(300, 30)
    both = critic(rows, np.array([0, 290, 300]))
    torch.testing.assert_close(both[0], critic(rows[:256], np.array([0, 256]))[0])
    torch.testing.assert_close(both[1], critic(rows[290:], np.array([0, 10]))[0])


def loss_of(  # noqa: PLR0917 - by place
    batch: Batch, part: ppo.Part, logits: Tensor, before: Any, goal: Any, settings: PpoSettings
) -> tuple[Tensor, ...]:
    """PPO's loss, the entropies, KL and who was clipped: choice by choice."""
    found, clip = [], settings.clip
    for at, moment in enumerate(part.numbers):
        rows = slice(batch.first[moment], batch.first[moment + 1])
        asked = torch.from_numpy(batch.asked[rows])
        scores = network.placed_by(
            logits[part.begins[at] : part.begins[at + 1]], asked, settings.reach
        )
        for choice in np.flatnonzero(batch.of_pass == moment):
            among = slice(batch.candidate_first[choice], batch.candidate_first[choice + 1])
            open_rows = batch.candidates[among].tolist()
            logs = torch.log_softmax(scores[[row - rows.start for row in open_rows]], dim=0)
            change = logs[open_rows.index(batch.choice[choice])] - before[choice]
            ratio = change.exp()
            limited = ratio.clamp(1 - clip, 1 + clip)
            gain = torch.minimum(ratio * goal[moment], limited * goal[moment])
            clipped = (abs(ratio - 1) > clip).double()
            found.append((-gain, -(logs.exp() * logs).sum(), ratio - 1 - change, clipped))
    return tuple(torch.stack(column).sum() for column in zip(*found, strict=True))


@pytest.mark.parametrize(("kind", "reach"), [("queue", 2.0), ("queue", 0.0), ("paper", 1.0)])
def test_the_loss_and_its_slope_are_those_of_each_choice_alone(kind: Kind, reach: float) -> None:
    learner, batch = batch_of(kind, reach, 0.5)
    part, draw = (
        ppo.part_of(batch, np.arange(len(batch.rewards))[::3], kind),
        np.random.default_rng(3),
    )
    before = ppo.as_played(learner, batch)[1] + draw.normal(0.0, 0.2, len(batch))
    goal = draw.normal(size=len(batch.rewards))
    values = learner.actor.layers(part.features).detach()
    logits, alone = values.clone().requires_grad_(), values.clone().requires_grad_()
    wanted = loss_of(batch, part, alone, before, goal, learner.settings)
    (wanted[0] - 0.3 * wanted[1]).backward()  # type: ignore[no-untyped-call]
    sums = ppo.losses(batch, part, logits, before, goal, learner.settings)
    (sums[0] - 0.3 * sums[1]).backward()  # type: ignore[no-untyped-call]
    assert 0.0 < sums[3] < len(batch)
    np.testing.assert_allclose(sums.tolist(), [x.item() for x in wanted], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits.grad, alone.grad, rtol=1e-4, atol=1e-6)


def test_an_update_makes_good_choices_likelier() -> None:
    learner, batch = batch_of("paper")
    values, before = ppo.as_played(learner, batch)
    learner.set_rate(1e-3)
    assert ppo.update(learner, batch, 0)["kl"] >= 0
    advantage, _ = ppo.advantages(batch, values, SMALL.gae)
    level = advantage[batch.of_pass] - advantage[batch.of_pass].mean()
    assert ((ppo.as_played(learner, batch)[1] - before) * level).sum() > 0


@pytest.mark.parametrize("rows", [1, 50, 100_000])
def test_an_update_does_not_depend_on_how_many_rows_go_at_once(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learned() -> tuple[ppo.Learner, float]:
        learner, batch = batch_of("queue", 2.0, 0.5)
        learner.set_rate(1e-3)
        return learner, ppo.update(learner, batch, 0)["policy_loss"]

    wanted, loss = learned()
    monkeypatch.setattr("rltuned.lab.train.ppo.ROWS_AT_ONCE", rows)
    found, same = learned()
    assert same == pytest.approx(loss, abs=1e-6)
    for own, other in zip(found.actor.parameters(), wanted.actor.parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=2e-5, rtol=1e-4)
    _, batch = batch_of("queue")
    moments = np.arange(len(batch.rewards))[1::2]
    parts = [part.numbers for part in ppo.parts_of(batch, moments, "queue")]
    np.testing.assert_array_equal(np.concatenate(parts), moments)


def test_a_gradient_that_is_not_finite_moves_no_weight() -> None:
    learner, batch = batch_of("paper")
    before = {k: v.clone() for k, v in learner.actor.state_dict().items()}
    next(learner.critic.parameters()).register_hook(lambda g: g * float("inf"))  # type: ignore[no-untyped-call]
    with pytest.raises(FloatingPointError, match="gradient is not finite"):
        ppo.update(learner, batch, 0)
    for name, now in learner.actor.state_dict().items():
        assert torch.equal(now, before[name]), name
    assert all(bool(torch.isfinite(p).all()) for p in learner.critic.parameters())


@pytest.mark.parametrize("kind", ["paper", "queue"])
def test_a_blank_actor_sees_features_spread_out_and_stays_blank(kind: Kind) -> None:
    learner, batch = batch_of(kind)
    part = ppo.part_of(batch, np.arange(len(batch.rewards)), kind)
    first, *_, last = (m for m in learner.actor.modules() if isinstance(m, nn.Linear))
    as_drawn, bias = first.weight.clone(), first.bias.clone()
    learner.actor.spread_out(part.features)
    deviation = part.features.std(dim=0)
    apart = (part.features - part.features.mean(dim=0)) / deviation.clamp(min=network.LEAST_SPREAD)
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
    module = network.TorchActor("queue", (4, 4), reach)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(0.0, 10.0 ** (seed % 5))
    queue = random_snapshot(np.random.default_rng(seed), 12)
    matrix = encode(queue.pending, queue)
    asked, found = BASELINES["delay"].wish(matrix), network.policy_of(module).wish(matrix)
    for own, rule in zip(found, asked, strict=True):
        assert (np.abs(np.log(own / rule)) <= reach + 1e-6).all()


# A training


def reports_of(settings: PpoSettings, *marks: float) -> list[ppo.Report]:
    """Of a training whose validations give these."""
    seen: list[ppo.Report] = []
    left = iter(marks)
    ppo.train(
        ppo.Learner(settings), [WORKLOAD], lambda _: (next(left), None, None), on_epoch=seen.append
    )
    return seen


def test_validation_may_come_now_and_then_and_patience_ends() -> None:
    seen = reports_of(set_to(epochs=5, eval_every=2), 0.3, 0.1, 0.2)
    assert [r.validation[0] for r in seen if not np.isnan(r.validation[0])] == [0.3, 0.1, 0.2]
    assert [r.since_best == 0 for r in seen] == [False, True, False, True, False]
    assert seen[-1].best == 0.1
    assert len(reports_of(set_to(epochs=9, patience=2), *[0.0] * 9)) == 3


def test_the_whole_training_lowers_the_wait_and_its_export_loads(tmp_path: Path) -> None:
    seen: list[ppo.Report] = []
    settings = set_to(epochs=8, batches=16, learning_rate=1e-2, network="queue")
    card = sure(ppo.perform(settings, run_in(tmp_path), on_epoch=lambda _, one: seen.append(one)))
    assert load_actor(tmp_path / "model").card.architecture.kind == "queue"
    assert np.mean([r.gap for r in seen[-3:]]) > np.mean([r.gap for r in seen[:2]])
    assert min(r.validation[0] for r in seen) == pytest.approx(seen[-1].best)
    assert len((tmp_path / "work" / ppo.CURVES).read_text().splitlines()) == 9
    results = card.results
    assert results["validation_low"] <= results["validation"] <= results["validation_high"]
    assert results["validation"] == pytest.approx(seen[-1].best, abs=1e-4)


class BrokenError(Exception):
    pass


def test_a_resumed_training_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    whole = ppo.perform(set_to(epochs=3), run_in(tmp_path / "a"))

    def stop(_folder: Path, report: ppo.Report) -> None:
        if report.epoch == 1:
            raise BrokenError

    run = run_in(tmp_path / "b")
    with pytest.raises(BrokenError):
        ppo.perform(set_to(epochs=3), run, on_epoch=stop)
    with pytest.raises(ModelError, match="--resume"):
        ppo.perform(set_to(epochs=3), run)
    with pytest.raises(ModelError, match="another seed"):
        ppo.perform(set_to(epochs=3, seed=9), replace(run, resume=True))
    resumed = ppo.perform(set_to(epochs=3), replace(run, resume=True))
    assert sure(resumed).files_sha256 == sure(whole).files_sha256
    (run.folder / ppo.CHECKPOINT).write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot be resumed"):
        ppo.perform(set_to(epochs=3), run_in(tmp_path / "b", out=tmp_path / "other", resume=True))


def test_a_training_that_breaks_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(learner: ppo.Learner, batch: Batch, epoch: int, *rest: Any) -> dict[str, float]:
        if epoch == 2:
            with torch.no_grad():
                next(learner.actor.layers.parameters())[0, 0] = float("nan")
        return update(learner, batch, epoch, *rest)

    update = ppo.update
    monkeypatch.setattr("rltuned.lab.train.ppo.update", poisoned)
    settings, run = set_to(epochs=5), run_in(tmp_path)
    with pytest.raises(ModelError, match="last good checkpoint"):
        ppo.perform(settings, run)
    learner = ppo.Learner(settings)
    learner.restore(run.folder / ppo.CHECKPOINT)
    assert learner.epoch == 2
    assert all(bool(torch.isfinite(p).all()) for p in learner.actor.parameters())
    assert not run.out.exists()


def test_too_few_jobs_for_a_window(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="too few"):
        ppo.perform(set_to(window_jobs=650), run_in(tmp_path))
    with pytest.raises(TraceError, match="to be judged by"):
        ppo.perform(set_to(eval_jobs=300), run_in(tmp_path))


def test_a_training_goes_on_from_a_bundle_of_any_make(tmp_path: Path) -> None:
    first = sure(
        ppo.perform(set_to(network="queue", hidden=(8, 4), reach=2.5), run_in(tmp_path / "a"))
    )
    begun = tmp_path / "a" / "model"
    settings = ppo.beginning_from(begun, SMALL)
    assert (settings.network, settings.hidden, settings.reach) == ("queue", (8, 4), 2.5)
    still = replace(settings, learning_rate=0.0)
    card = sure(ppo.perform(still, run_in(tmp_path / "b", start=begun)))
    assert card.architecture == first.architecture
    assert card.files_sha256[WEIGHTS] == first.files_sha256[WEIGHTS], "nothing was learned"


def test_a_training_begins_as_the_rule_that_it_corrects(tmp_path: Path) -> None:
    card = sure(ppo.perform(set_to(learning_rate=0.0), run_in(tmp_path)))
    assert card.results["validation"] == 0.0
    assert sure(card.verdict).change == 0.0
    queue = random_snapshot(np.random.default_rng(4), 40)
    matrix = encode(queue.pending, queue)
    actor = load_actor(tmp_path / "model")
    for own, rule in zip(actor.wish(matrix), BASELINES["delay"].wish(matrix), strict=True):
        np.testing.assert_array_equal(own, rule)


# The command, and its progress


def words(folder: Path, *more: str) -> list[str]:
    """A small training of the command."""
    trace = folder / "t.csv"
    write_trace(Trace(WORKLOAD.jobs), trace)
    small = ("network=paper", "window_jobs=60", "batches=4", "rollouts=2", "eval_jobs=60")
    found = ["train", "ppo", "--trace", str(trace), "--cluster", "testbed", "--force", *more]
    return found + [word for one in small for word in ("--set", one)]


def board(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard reads: name -> step -> value."""
    events = EventAccumulator(str(folder))
    events.Reload()
    found = {name: events.Scalars(name) for name in events.Tags()["scalars"]}
    assert all(len({e.step for e in those}) == len(those) for those in found.values())
    return {name: {e.step: e.value for e in those} for name, those in found.items()}


def test_a_resumed_command_goes_on_at_its_step(tmp_path: Path) -> None:
    given = words(tmp_path, "--out", str(tmp_path / "a"), "--set", "eval_every=2")
    work = tmp_path / "a.training"
    for epochs, more in (("2", ()), ("4", ("--resume",))):
        for file in (tmp_path / "a").glob("*"):
            file.unlink()
        (tmp_path / "a").rmdir() if more else None
        ran = command(*given, "--epochs", epochs, *more)
        assert ran.exit_code == 0, ran.output
    rows = list(csv.DictReader((work / ppo.CURVES).read_text().splitlines()))
    assert len(rows) == 4
    shown = board(work)
    assert shown.keys() == rows[0].keys()
    for name, values in shown.items():
        logged = {int(r["epoch"]) + 1: float(r[name] or "nan") for r in rows}
        finite = {step: value for step, value in logged.items() if math.isfinite(value)}
        assert values == pytest.approx(finite, rel=1e-4)
    assert sorted(shown["validation"]) == [2, 4]
    log = (work / "training.log").read_text().splitlines()
    assert ["epoch 1/2: gap" in log[0], "epoch 4/4: gap" in log[3]] == [True, True]


def test_the_first_rank_alone_writes(tmp_path: Path) -> None:
    given = words(tmp_path, "--out", str(tmp_path / "a"), "--epochs", "1", "--distributed")
    for process in two_ranks.start(tmp_path, two_ranks.command, *given):
        shown, _ = process.communicate(timeout=600)
        assert process.returncode == 0, shown
    assert sorted(board(tmp_path / "a.training")["gap"]) == [1]


@pytest.mark.parametrize(
    ("wrong", "reply"),
    [
        ("epochs=0", "epochs=0: Input should be greater than or equal to 1"),
        ("base=best", "base=best: String should match"),
        ("loads=1", "loads"),
        ("speed=3", "speed=3: no setting 'speed'; there are epochs, reach"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(wrong: str, reply: str, tmp_path: Path) -> None:
    ran = command("train", "ppo", "--out", str(tmp_path / "a"), "--set", wrong)
    assert ran.exit_code == 2
    assert f"--set {reply}" in " ".join(ran.output.replace("│", " ").split())
