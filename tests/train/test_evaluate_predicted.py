"""Models that read predictions: trained, compared with rules, and scored alike by the daemon."""

from pathlib import Path

import numpy as np
import pytest

from rltuned.core.features import encode
from rltuned.core.run_times import FIRST_OF_QUEUE, FIRST_QUANTILE, LOG_FULL
from rltuned.domain.snapshot import Context, RunTime
from rltuned.lab.replay.protocol import Mode, Protocol
from rltuned.lab.train.evaluate import EvaluationPlan, contestant_of, evaluate_on, plays_of
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.ppo import perform
from rltuned.lab.train.predictor import foreseen
from rltuned.lab.train.run import Run, Validation
from rltuned.lab.train.settings import PpoSettings
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from tests.train.worlds import random_ground

PLAIN = random_ground("testbed", 21, 700)
PREDICTOR = load_predictor(shipped_predictor())
WORKLOAD = PLAIN.foreseeing(foreseen(PREDICTOR, PLAIN.jobs))
SETTINGS = PpoSettings(
    window_jobs=60,
    rollouts=2,
    reference="group",
    objective="mix",
    network="queue",
    epochs=1,
    batches=4,
    hidden=(8, 8),
    minibatches=2,
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predicted")
    run = Run(
        sources=(DatasetSource(WORKLOAD, "made up", "none"),),
        folder=folder / "work",
        out=folder / "model",
        command="a test",
        validation=Validation(2, 60),
    )
    assert perform(SETTINGS, run) is not None
    return folder / "model"


def test_the_daemon_s_actor_reads_what_is_predicted_of_each_job(bundle: Path) -> None:
    actor = load_actor(bundle)
    snapshot = random_snapshot(np.random.default_rng(4), 40)
    known = RunTime(900.0, 800.0, 60.0, 600.0, 3_000.0, 7)
    context = Context(run_times={j.job_id: known for j in snapshot.pending[1::2]})
    matrix = encode(snapshot.pending, snapshot, context)
    columns = np.log1p([known.low_s, known.median_s, known.high_s]) / LOG_FULL
    limits = np.clip(np.log1p(matrix.limit_s) / LOG_FULL, 0.0, 1.0)
    wanted = np.where(np.arange(len(matrix))[:, None] % 2, columns, limits[:, None])
    found = actor.seen(matrix)
    np.testing.assert_array_equal(found[:, :FIRST_QUANTILE], matrix.values)
    np.testing.assert_allclose(found[:, FIRST_QUANTILE:FIRST_OF_QUEUE], wanted, atol=1e-6)
    blind = encode(snapshot.pending, snapshot)
    assert (actor.score(blind) != actor.score(matrix)).any()


@pytest.mark.parametrize("mode", ["event", "cycle"])
def test_a_model_that_reads_predictions_is_compared_with_rules(bundle: Path, mode: Mode) -> None:
    name, protocol = load_actor(bundle).name, Protocol(mode, predictor=PREDICTOR)
    found = evaluate_on(
        PLAIN,
        {name: plays_of(contestant_of(str(bundle))[1], protocol)},
        EvaluationPlan(2, 100, 1.2, (0.0, 1.0)),
        rules=("fcfs", "saf", "qssf"),
        protocol=protocol,
    )
    assert set(found.paired[name]) == {"fcfs", "saf", "qssf"}
    assert found.means()["saf"]["wait_s"] < found.means()["fcfs"]["wait_s"]
