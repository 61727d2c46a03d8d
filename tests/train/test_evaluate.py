"""Comparisons: definitions by hand, intervals that cover, a page that stands alone."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rltuned.core.features import encode
from rltuned.core.run_times import LOG_FULL
from rltuned.domain.snapshot import Context, RunTime
from rltuned.errors import ModelError, TraceError
from rltuned.lab.cli.evaluate import app
from rltuned.lab.compare import paired
from rltuned.lab.replay.metrics import METRICS
from rltuned.lab.replay.protocol import Mode, Protocol
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train import evaluate as evaluation
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.rollout import play_policy
from rltuned.lab.train.settings import RULES
from rltuned.policies.actor import FIRST_OF_QUEUE, FIRST_QUANTILE, load_actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.trace import Trace
from tests.packages import install
from tests.train.worlds import random_ground

WORKLOAD = random_ground("testbed", 3, 400)
PURE = Protocol(bounded=False)


def play_of(seed: int) -> evaluation.Play:
    torch.manual_seed(seed)
    policy = policy_of(TorchActor("paper", (4, 4), 1.0))
    return lambda window: play_policy(window, policy, PURE)


MODEL = Path(__file__).parents[2] / "models" / "warmstart-saf"


def test_a_difference_by_hand() -> None:
    found = paired(np.array([50.0, 90.0, 10.0]), np.array([100.0, 100.0, 10.0]), "wait_s")
    assert found.change == pytest.approx(150 / 210 - 1)
    assert found.low is not None
    assert found.high is not None
    # by hand: what is left of 50, 90, 10 less 5/7 of 100, 100, 10; Student's t of three is 4.303
    off = np.array([50 - 500 / 7, 90 - 500 / 7, 10 - 50 / 7]) / 70
    half = 4.303 * off.std(ddof=1) / np.sqrt(3)
    assert (found.low, found.high) == pytest.approx((found.change - half, found.change + half))
    assert found.geometric.change == pytest.approx((51 / 101 * 91 / 101) ** (1 / 3) - 1)


@pytest.mark.parametrize("windows", [3, 5, 8, 60])
def test_intervals_cover_a_known_change(windows: int) -> None:
    draw = np.random.default_rng(1)
    covered = of_logs = 0
    for _ in range(200):
        other = draw.lognormal(5.0, 0.5, windows)
        own = 0.8 * other * draw.lognormal(-0.02, 0.2, windows)
        found = paired(own, other, "jct_s")
        (_, low, high), (_, least, most) = found.known, found.geometric.known
        covered += low <= -0.2 <= high
        of_logs += least <= 0.8 / np.exp(0.02) - 1 <= most
    assert covered >= 178
    assert of_logs >= 178


def test_every_rule_against_itself_is_a_tie_and_the_clairvoyant_is_the_end_of_the_way() -> None:
    found = evaluation.evaluate_on(
        WORKLOAD,
        {"model:x": [play_of(1)]},
        evaluation.EvaluationPlan(3, 100, 1.2, (0.0, 1.0)),
        protocol=PURE,
    )
    assert set(found.values) == {*RULES, "model:x"}
    assert found.disjoint
    assert found.jobs == 300
    for table in found.values.values():
        assert set(table) == set(METRICS)
        # waiting and running are all there is; JCT differs from wait by the same run times
        assert np.allclose(
            table["jct_s"] - table["wait_s"],
            found.values["fcfs"]["jct_s"] - found.values["fcfs"]["wait_s"],
        )
    for means in found.means().values():
        assert means["wait_s"] >= 0
        assert means["bsld"] >= 1


@pytest.mark.parametrize("name", ["--load", "--windows"])
def test_more_than_can_be_played_is_refused(name: str) -> None:
    given = ("--model", "/no/model", "--trace", "/no/trace", "--cluster", "testbed")
    ran = CliRunner().invoke(app, [*given, name, "9" * 40])
    assert ran.exit_code == 2
    assert "less than or equal to" in ran.output


def test_training_seeds_count_by_their_mean_and_each_is_reported() -> None:
    plays = [play_of(1), play_of(2), play_of(3)]
    plan = evaluation.EvaluationPlan(3, 100, 1.2, (0.0, 1.0))
    found = evaluation.evaluate_on(
        WORKLOAD, {"x": plays, "y": plays[:1]}, plan, rules=("fcfs",), protocol=PURE
    )
    assert found.values["x"]["wait_s"].shape == (3, 3)
    pair = found.paired["x"]["fcfs"]["wait_s"]
    assert len(pair.seeds) == 3
    assert pair.change == pytest.approx(np.mean(pair.seeds))
    assert pair.seeds[0] == pytest.approx(found.paired["y"]["fcfs"]["wait_s"].change)
    assert not found.paired["y"]["fcfs"]["wait_s"].seeds


def test_windows_that_share_jobs_are_reported_to() -> None:
    assert evaluation.windows_of(WORKLOAD, evaluation.EvaluationPlan(4, 100, None, (0.0, 1.0)))[1]
    assert not evaluation.windows_of(WORKLOAD, evaluation.EvaluationPlan(5, 100, None, (0.0, 1.0)))[
        1
    ]
    short = evaluation.EvaluationPlan(window_jobs=300, part=(0.9, 1.0))
    assert [len(w) for w in evaluation.windows_of(WORKLOAD, short)[0]] == [13, 13, 13]
    assert [len(w) for w in evaluation.windows_of(WORKLOAD, replace(short, windows=1))[0]] == [40]
    with pytest.raises(TraceError, match="8 jobs between 98% and 100% are too few"):
        evaluation.windows_of(WORKLOAD, replace(short, part=(0.98, 1.0)))


def test_the_command_prints_json_and_writes_a_page_that_needs_nothing(tmp_path: Path) -> None:
    torch.manual_seed(1)
    trace = tmp_path / "t.csv"
    write_trace(Trace(WORKLOAD.jobs), trace)
    report = tmp_path / "report"
    given = ["--model", str(MODEL), "--model", f"twice={MODEL},{MODEL}", "--trace", str(trace)]
    given += ["--cluster", "testbed", "--set", "part=0,1", "--windows", "3", "--window-jobs", "80"]
    given += ["--load", "0.9", "--load", "1.2", "--mode", "event", "--bounds", "off", "--json"]
    given += ["--report", str(report)]
    result = CliRunner().invoke(app, given, catch_exceptions=False)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [c["plan"]["load"] for c in document["comparisons"]] == [0.9, 1.2]
    pair = document["comparisons"][0]["paired"]["model:warmstart-saf"]["saf"]["wait_s"]
    assert pair["low"] <= pair["change"] <= pair["high"]
    models = document["comparisons"][1]["paired"]
    assert models["twice"]["saf"]["wait_s"]["seeds"] == pytest.approx(
        [models["model:warmstart-saf"]["saf"]["wait_s"]["change"]] * 2
    )
    # without bounds the warm start is SAF but for the few pairs it has wrong; in overload those
    # move the mean of three short windows
    for comparison in document["comparisons"]:
        found = comparison["paired"]["twice"]["saf"]["wait_s"]
        assert found["low"] < 0 < found["high"]
    assert abs(document["comparisons"][0]["paired"]["twice"]["saf"]["wait_s"]["change"]) < 0.1
    assert document["bounds"] is None
    page = (report / "index.html").read_text()
    assert page.count("<svg") > 2
    assert not re.search(r"(src|href)=[\"']?(http|/)", page.replace("http://www.w3.org", ""))
    assert json.loads((report / "results.json").read_text()) == document


LINEAR = (
    "from rltuned.policies.baselines import BASELINES\n\n\n"
    "def rule(matrix):\n    wish = BASELINES['delay'].wish(matrix)\n"
    "    return wish.own_s, wish.place"
    "\n\n\ndef older(matrix):\n    return matrix.wait_s * 0.0"
)


def test_a_policy_of_another_package_is_compared_as_a_model_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "ours", monkeypatch, LINEAR, "rule", "older")
    trace = tmp_path / "t.csv"
    write_trace(Trace(WORKLOAD.jobs), trace)
    report = tmp_path / "report"
    given = [
        "--model", "plugin:rule", "--model", "both=plugin:older,plugin:rule",
        "--set", "rules=delay,saf", "--trace", str(trace), "--cluster", "testbed", "--windows", "2",
        "--window-jobs", "40", "--load", "1.2", "--set", "interval_s=900", "--set", "part=0,1",
        "--report", str(report), "--json",
    ]  # fmt: skip
    result = CliRunner().invoke(app, [*given, "--set", "predictor=none"], catch_exceptions=False)
    document = json.loads(result.stdout)
    assert document["models"]["plugin:rule"]["seeds"] == 1
    assert document["models"]["plugin:rule"]["summary"] == "a policy of another package"
    assert len(document["models"]["both"]["digests"]) == 2
    pairs = document["comparisons"][0]["paired"]
    assert pairs["plugin:rule"]["delay"]["wait_s"]["change"] == 0.0
    assert pairs["plugin:rule"]["saf"]["wait_s"]["change"] != 0.0
    assert pairs["both"]["delay"]["wait_s"]["seeds"][1] == 0.0
    same = "plugin:rule: no proven difference from the rule delay: wait and slowdown +0.0%"
    assert same in document["headline"]
    page = (report / "index.html").read_text()
    assert "plugin:rule against each rule" in page
    with pytest.raises(TraceError, match="plays with --mode cycle only"):
        CliRunner().invoke(app, [*given, "--mode", "event"], catch_exceptions=False)
    with pytest.raises(ModelError, match="not seeds of one another"):
        evaluation.contestant_of(f"x=plugin:rule,{MODEL}")


def test_unknown_rules_are_named(tmp_path: Path) -> None:
    given = ["--model", str(MODEL), "--trace", str(tmp_path), "--cluster", "testbed"]
    with pytest.raises(TraceError, match="no rule named 'best'"):
        CliRunner().invoke(app, [*given, "--set", "rules=best"], catch_exceptions=False)


PLAIN = random_ground("testbed", 21, 700)
PREDICTOR = load_predictor(shipped_predictor())
QUEUE = MODEL.with_name("rltune")


def test_the_daemon_s_actor_reads_what_is_predicted_of_each_job() -> None:
    actor = load_actor(QUEUE)
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
def test_a_model_that_reads_predictions_is_compared_with_rules(mode: Mode) -> None:
    name, protocol = load_actor(QUEUE).name, Protocol(mode, predictor=PREDICTOR)
    found = evaluation.evaluate_on(
        PLAIN,
        {name: evaluation.plays_of(evaluation.contestant_of(str(QUEUE))[1], protocol)},
        evaluation.EvaluationPlan(2, 100, 1.2, (0.0, 1.0)),
        rules=("fcfs", "saf", "qssf"),
        protocol=protocol,
    )
    assert set(found.paired[name]) == {"fcfs", "saf", "qssf"}
    assert found.means()["saf"]["wait_s"] < found.means()["fcfs"]["wait_s"]
