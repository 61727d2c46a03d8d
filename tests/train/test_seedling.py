"""The order to begin from is the one that its page describes, and leaves the rest free to learn."""

import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rltuned.cli.train import app
from rltuned.core.features import COLUMN, GPUS_FULL, LIMIT_FULL_S, NUM_FEATURES, WAIT_FULL_S
from rltuned.errors import ModelError
from rltuned.train.export import LARGEST_SCORE, settle
from rltuned.train.network import ContextActor
from rltuned.train.seedling import MIDDLE, SHARPNESS, plant


def rows(count: int, features: int) -> torch.Tensor:
    torch.manual_seed(4)
    found = torch.rand(1, count, features)
    fits = COLUMN["can_schedule_now"]
    found[..., fits] = (found[..., fits] > 0.5).float()
    return found


def by_hand(row: torch.Tensor) -> float:
    limit = float(row[COLUMN["requested_time"]])
    times = [limit]
    if len(row) > NUM_FEATURES:
        times += [float(row[NUM_FEATURES + 1]), float(row[NUM_FEATURES + 2])]
    log_s = math.log1p(LIMIT_FULL_S) * sum(times) / len(times)
    log_gpus = math.log(1 + GPUS_FULL) * float(row[COLUMN["requested_gpus"]])
    if row[COLUMN["can_schedule_now"]] == 1:
        log_gpus = 0.0
    waited = math.log1p(WAIT_FULL_S) * float(row[COLUMN["submit_time"]])
    return SHARPNESS * (MIDDLE - log_s - log_gpus + 0.2 * waited)


@pytest.mark.parametrize("features", [NUM_FEATURES, NUM_FEATURES + 3])
def test_a_planted_network_orders_as_its_formula_says(features: int) -> None:
    torch.manual_seed(1)
    actor = ContextActor(features, (32, 16))
    plant(actor)
    seen = rows(40, features)
    scores = actor(seen, torch.ones(1, 40, dtype=torch.bool))[0]
    wanted = torch.tensor([by_hand(row) for row in seen[0]])
    torch.testing.assert_close(scores, wanted, atol=1e-3, rtol=1e-5)
    scores.sum().backward()
    grads = actor.head.weight.grad
    assert grads is not None
    assert float((grads > 0).float().mean()) > 0.5  # a few are switched off as they were drawn


def test_a_network_too_narrow_for_it_is_refused() -> None:
    with pytest.raises(ModelError, match="units in either layer"):
        plant(ContextActor(NUM_FEATURES, (32, 3)))


def test_settling_keeps_the_order() -> None:
    actor = ContextActor(NUM_FEATURES, (16, 8))
    plant(actor)
    seen, masks = rows(30, NUM_FEATURES), torch.ones(1, 30, dtype=torch.bool)
    with torch.no_grad():
        before = actor(seen, masks)
        settle(actor, seen, masks)
        after = actor(seen, masks)
    assert float(before.abs().max()) > LARGEST_SCORE
    assert float(after.abs().max()) == pytest.approx(LARGEST_SCORE, rel=1e-4)
    assert torch.equal(before.argsort(), after.argsort())


def test_what_cannot_work_is_said_before_any_work(tmp_path: Path) -> None:
    command = ["ppo", "--out", str(tmp_path / "new"), "--warm", "foretold"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "for the context network" in result.output
    command = ["ppo", "--out", str(tmp_path / "New"), "--epochs", "1"]
    with pytest.raises(ModelError, match="make its name"):
        CliRunner().invoke(app, command, catch_exceptions=False)
