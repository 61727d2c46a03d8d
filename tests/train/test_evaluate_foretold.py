"""Models that read predictions: evaluated, refitted to a site, and scored alike by the daemon."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rltuned.errors import ModelError
from rltuned.policies.actor import load_actor
from rltuned.policies.predictor import (
    PREDICTOR_PARITY_FILE,
    Predictor,
    self_test,
)
from rltuned.sim.eyes import net_of
from rltuned.sim.protocol import Mode, Protocol
from rltuned.train.batch import Contest
from rltuned.train.course import DatasetSource
from rltuned.train.episodes import play_greedy
from rltuned.train.evaluate import EvaluationPlan, compare, contestant_of, plays_of
from rltuned.train.ground import cut, make_ground
from rltuned.train.learner import PpoSettings
from rltuned.train.predictor import NO_HISTORY, QuantileNet, as_known, fit
from rltuned.train.run import Exam, Job, perform, refit
from tests.sim.reference import play_direct
from tests.train.worlds import random_ground

PLAIN = random_ground("testbed", 21, 700)
PREDICTOR = fit(PLAIN.jobs[:560], epochs=2).predictor
GROUND = make_ground("seen", PLAIN.cluster, PLAIN.jobs, None, as_known(PREDICTOR, PLAIN.jobs, 560))
SETTINGS = PpoSettings(
    contest=Contest(window_jobs=60, rollouts=2, reference="group", objective="mix"),
    network="context",
    predict=True,
    epochs=1,
    batches=4,
    hidden=(8, 8),
    minibatches=2,
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foretold")
    job = Job(
        settings=SETTINGS,
        sources=(DatasetSource(GROUND, "made up", "none"),),
        folder=folder / "work",
        out=folder / "model",
        command="a test",
        exam=Exam(2, 60),
        predictor=PREDICTOR,
        warm="saf",
    )
    assert perform(job) is not None
    return folder / "model"


def test_the_daemon_s_actor_and_the_compiled_one_schedule_alike(bundle: Path) -> None:
    actor = load_actor(bundle)
    assert actor.predictor is not None
    jobs = GROUND.jobs
    columns = actor.predictor.columns(
        [j.user for j in jobs], [j.account for j in jobs], GROUND.prepared.requests
    )
    ground = make_ground("w", GROUND.cluster, jobs, GROUND.rules, columns)
    window = cut(ground, 100, 120, load=1.5)
    timed = [
        replace(j, submit_s=float(s)) for j, s in zip(window.jobs, window.submit_s, strict=True)
    ]
    world = play_direct(GROUND.cluster, timed, actor, Protocol(bounded=False)).world
    plain = np.array([world.finished[i + 1].started_at for i in range(len(timed))])
    fast = play_greedy(window, net_of(actor.network))
    np.testing.assert_allclose(fast, plain)


@pytest.mark.parametrize("mode", ["event", "cycle"])
def test_a_model_with_a_predictor_is_compared_with_rules(bundle: Path, mode: Mode) -> None:
    name, protocol = load_actor(bundle).name, Protocol(mode)
    found = compare(
        PLAIN,
        {name: plays_of(contestant_of(str(bundle)), protocol)},
        EvaluationPlan(2, 100, 1.2, (0.0, 1.0)),
        rules=("fcfs", "saf", "qssf"),
        protocol=protocol,
    )
    assert set(found.paired[name]) == {"fcfs", "saf", "qssf"}
    assert found.means()["saf"]["wait_s"] < found.means()["fcfs"]["wait_s"]


def test_a_site_fits_the_predictor_to_its_own_jobs(bundle: Path, tmp_path: Path) -> None:
    fitted = refit(bundle, tmp_path / "ours", PLAIN.jobs[:400], "ours.csv", 1)
    old, new = load_actor(bundle), load_actor(tmp_path / "ours")
    last_s = PLAIN.jobs[399].submit_s
    ended = [
        j for j in PLAIN.jobs[:400] if j.submit_s + min(j.duration_s, j.time_limit_s) <= last_s
    ]
    assert fitted.examples == len(ended) < 400
    assert new.card.files_sha256["actor.safetensors"] == old.card.files_sha256["actor.safetensors"]
    name = "predictor.safetensors"
    assert new.card.files_sha256[name] != old.card.files_sha256[name]
    saf = Path(__file__).parents[2] / "models" / "warmstart-saf"
    with pytest.raises(ModelError, match="reads no predictions"):
        refit(saf, tmp_path / "x", PLAIN.jobs, "x", 1)


def test_a_predictor_that_says_something_else_here_is_refused(bundle: Path) -> None:
    actor = load_actor(bundle)
    path = bundle / PREDICTOR_PARITY_FILE
    assert actor.predictor is not None
    self_test(actor.predictor, path, path.read_bytes())
    other = Predictor(QuantileNet().weights(), NO_HISTORY)
    with pytest.raises(ModelError, match="predictions differ by"):
        self_test(other, path, path.read_bytes())
    short = io.BytesIO()
    np.savez_compressed(short, inputs=np.zeros((2, 3)), told=np.zeros((2, 3)))
    for damaged in (b"nothing", short.getvalue()):
        with pytest.raises(ModelError, match="predictor-parity"):
            self_test(other, path, damaged)


@pytest.mark.parametrize("name", ["predictor.safetensors", PREDICTOR_PARITY_FILE])
def test_a_tampered_predictor_is_refused(bundle: Path, name: str) -> None:
    path = bundle / name
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-1] + b"x")
        with pytest.raises(ModelError, match="SHA-256"):
            load_actor(bundle)
    finally:
        path.write_bytes(data)
