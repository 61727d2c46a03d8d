"""The per-job network over chosen columns: what it does not read can change nothing."""

import numpy as np
import torch

from rltuned.core.features import COLUMN, NUM_FEATURES
from rltuned.policies.network import ContextActor
from rltuned.sim.engine.sight import net_of
from rltuned.train.batch import Contest
from rltuned.train.episodes import play_greedy
from rltuned.train.ground import cut
from rltuned.train.learner import Settings
from rltuned.train.ppo import train
from scripts.studies.ablation import EIGHT, NAIVE, NINE, SEVEN, per_job, student
from tests.train.worlds import random_ground

GROUND = random_ground("testbed", 3, 200)


def test_the_column_sets_are_what_they_are_called() -> None:
    assert [len(set(c)) for c in (SEVEN, EIGHT, NINE, NAIVE)] == [7, 8, 9, 8]
    assert not {"dsr", "future_avail", "cff", "job_size", "urgency"} & set(NAIVE)


def test_only_the_chosen_columns_and_no_other_job_count_after_training_too() -> None:
    settings = Settings(
        contest=Contest(window_jobs=60, loads=(1.2, 1.5)),
        network="context",
        epochs=2,
        batches=4,
        minibatches=2,
    )
    learner = student(settings, SEVEN)
    actor = learner.actor
    assert isinstance(actor, ContextActor)
    before = actor.head.weight.detach().clone()
    train(learner, [GROUND], settings, lambda _actor: 0.0)
    assert not torch.equal(before, actor.head.weight)
    rows = torch.rand(30, NUM_FEATURES)
    mask = torch.ones(30, dtype=torch.bool)
    scores = actor(rows, mask)
    others = [i for name, i in COLUMN.items() if name not in SEVEN]
    changed = rows.clone()
    changed[:, others] = torch.rand(30, len(others))
    assert torch.equal(scores, actor(changed, mask))
    assert torch.allclose(scores[:10], actor(rows[:10], mask[:10]), atol=1e-6)


def test_it_plays_compiled_as_a_network_over_the_whole_table() -> None:
    torch.manual_seed(1)
    start_s = play_greedy(cut(GROUND, 0, 150, load=1.5), net_of(per_job(EIGHT, (8, 8))))
    assert np.isfinite(start_s).all()
