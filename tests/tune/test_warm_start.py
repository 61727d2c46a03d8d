"""The network that ships imitates the site's own Slurm, and PPO goes on from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rltuned.errors import TraceError
from rltuned.lab.backtest import fit_order
from rltuned.lab.backtest.past import Past, Span
from rltuned.lab.cli.site_files import history_file, read_record, zone_of
from rltuned.lab.train.history import choices_of
from rltuned.lab.train.imitation import agreement
from rltuned.lab.train.network import module_of
from rltuned.lab.tune.warm_start import imitated, started_by_split
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.backtest.worlds import WEIGHTED, jobs, site
from tests.histories import EPOCH

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    """A site that orders by age alone; its main scheduler starts who came first of all."""
    by_age = replace(WEIGHTED, size_weight=0, partition_weight=0)
    folder = site(tmp_path_factory.mktemp("site"), jobs(700, load=1.1), by_age)
    _, found = read_record(
        folder, history_file(folder), zone_of("UTC"), Span(EPOCH), lambda _what, _part: None
    )
    start_s = found.arrived_s + np.nan_to_num(found.wait_s)
    first = start_s >= np.maximum.accumulate(start_s)
    found = replace(found, by_main=first)
    return found.switched_on(float(np.quantile(found.arrived_s, 0.9)))


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return load_predictor(shipped_predictor())


@pytest.mark.parametrize("name", ["rltune", "warmstart-saf"])
def test_imitation_and_ppo_keep_the_make_of_the_network(
    tmp_path: Path, past: Past, predictor: Predictor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that reads predictions and the queue, as the one that ships, and the paper's."""
    before = load_actor(MODELS / name)
    words = imitated(past, MODELS / name, predictor, tmp_path / "own", seed=1)
    assert "of the pairs not learned from" in words
    own = load_actor(tmp_path / "own")
    assert own.card.architecture == before.card.architecture
    queues = choices_of(
        started_by_split(past, predictor), past.site.cluster.gpus, kind=before.network.kind
    )
    was, now = (agreement(module_of(a.network), queues)[0] for a in (before, own))
    assert now > was, "it agrees better with the site's Slurm than before"

    monkeypatch.setattr(fit_order, "EPOCHS", 1)
    monkeypatch.setattr(fit_order, "BATCHES", 5)
    bundle, text = fit_order.fit_order(
        past, tmp_path / "own", predictor, tmp_path / "trained",
        minutes=5.0, seed=1, report=lambda _part: None,
    )  # fmt: skip
    assert bundle is not None, text
    trained = load_actor(bundle)
    assert trained.card.architecture == before.card.architecture
    assert "begun from own" in trained.card.training.method
    moved = {
        k: np.abs(v - own.network.weights[k]).max() for k, v in trained.network.weights.items()
    }
    apart = {k: np.abs(v - before.network.weights[k]).max() for k, v in own.network.weights.items()}
    assert max(moved.values()) < max(apart.values()), "PPO went on from what was imitated"


def test_nothing_after_the_split_is_looked_at(past: Past, predictor: Predictor) -> None:
    later = past.arrived_s + np.nan_to_num(past.wait_s) >= past.split_s
    other = replace(
        past,
        wait_s=np.where(later, past.wait_s + 1e5, past.wait_s),
        ended_s=np.where(past.ended_s > past.split_s, past.ended_s + 1e5, past.ended_s),
        by_main=past.by_main & ~later,
    )
    assert started_by_split(past, predictor) == started_by_split(other, predictor)
    assert any(j.by_main for j in started_by_split(past, predictor))


def test_without_starts_by_the_main_scheduler_there_is_nothing_to_imitate(
    tmp_path: Path, past: Past, predictor: Predictor
) -> None:
    silent = replace(past, by_main=np.zeros_like(past.by_main))
    with pytest.raises(TraceError, match="starts by the main scheduler had rivals; 50 are needed"):
        imitated(silent, MODELS / "rltune", predictor, tmp_path / "own", seed=1)
    assert not (tmp_path / "own").exists()
