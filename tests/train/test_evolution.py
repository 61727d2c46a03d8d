"""The evolution strategy: what it plays and keeps, and that it ends the same however it ran."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.features import encode
from rltuned.errors import ModelError
from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train import evolution
from rltuned.lab.train.export import TrainingRun, fitting, git_commit, held_out, judged
from rltuned.lab.train.imitation import random_snapshot
from rltuned.lab.train.network import policy_of
from rltuned.lab.train.predictor import foreseen
from rltuned.lab.train.settings import LOADS, EvolutionSettings
from rltuned.lab.train.sources import DatasetSource, learned_on, nothing
from rltuned.policies.actor import FIRST_OF_QUEUE, QUEUE_COLUMNS, NetworkPolicy, Verdict, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.trace import Trace
from tests.builders import sure
from tests.train.worlds import random_ground

ROOT = Path(__file__).parents[2]
PLAIN = random_ground("testbed", 21, 400)
WORKLOAD = PLAIN.foreseeing(foreseen(load_predictor(shipped_predictor()), PLAIN.jobs))
SETTINGS = EvolutionSettings(
    generations=3,
    members=4,
    parts=3,
    part_jobs=80,
    loads=(1.1, 1.3),
    eval_every=2,
    step=0.6,
    reach=1.0,
    eval_windows=2,
    eval_jobs=40,
)
SOURCE = DatasetSource(WORKLOAD, "made up", "none")


def search_in(folder: Path, **changes: object) -> TrainingRun:
    found = TrainingRun(
        sources=(SOURCE,),
        folder=folder / "work",
        out=folder / "model",
        command="a test",
        force=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def weights(folder: Path) -> bytes:
    return (folder / "actor.safetensors").read_bytes()


def test_an_actor_is_linear_in_the_columns_of_the_queue() -> None:
    numbers = np.random.default_rng(1).normal(0.0, 0.5, evolution.NUMBERS)
    queue = random_snapshot(np.random.default_rng(2), 40)
    matrix = encode(queue.pending, queue)
    policy = policy_of(evolution.actor_of(numbers, 2.0))
    columns = policy.seen(matrix)[:, FIRST_OF_QUEUE:]
    assert columns.shape == (len(matrix), len(QUEUE_COLUMNS))
    table = numbers.reshape(2, evolution.WIDTH + 1)
    scores = columns @ table[:, : evolution.WIDTH].T + table[:, evolution.WIDTH]
    rule, found = BASELINES["delay"].wish(matrix), policy.wish(matrix)
    factors = np.exp(-2.0 * np.tanh(scores))
    np.testing.assert_allclose(found.own_s, rule.own_s * factors[:, 0], rtol=1e-4)
    np.testing.assert_allclose(found.place, rule.place * factors[:, 1], rtol=1e-4)


def test_no_numbers_are_the_rule() -> None:
    window = WORKLOAD.cut(0, 80, load=1.3)
    part = evolution.part_of(window, 0.2)
    nothing = policy_of(evolution.actor_of(np.zeros(evolution.NUMBERS), 2.0))
    np.testing.assert_array_equal(
        evolution.played([nothing], [part], warm_up=0.2), np.zeros((1, 1, 4))
    )


def test_what_is_measured_by_hand() -> None:
    window = WORKLOAD.cut(0, 5)
    start_s = window.submit_s + np.array([9e9, 0.0, 60.0, 120.0, 600.0])
    found = evolution.measured(window, start_s, 0.2)  # the first one fills the cluster
    run_s = window.duration_s[1:]
    slowdown = 1 + np.array([0.0, 60.0, 120.0, 600.0]) / np.maximum(run_s, 10.0)
    wanted = [
        195.0 + evolution.ADDED_S,
        slowdown.mean(),
        585.6 + evolution.ADDED_S,
        600.0 + evolution.ADDED_S,
    ]
    np.testing.assert_allclose(found, wanted)


def test_a_longer_tail_costs_and_a_shorter_one_pays_nothing() -> None:
    def of(*logs: tuple[float, float, float, float]) -> float:
        return evolution.cost(np.array(logs), 0.25)

    assert of((0.0, 0.0, 0.0, 0.0)) == 0.0
    assert of((-0.4, -0.2, 0.0, 0.0)) == pytest.approx(-0.3)
    assert of((0.0, 0.0, 0.0, 0.8)) == pytest.approx(0.2)
    assert of((0.0, 0.0, -0.8, -0.8)) == 0.0
    # chance on single parts is no price: the mean counts
    assert of((0.0, 0.0, 0.5, 0.9), (0.0, 0.0, -0.5, -0.9)) == 0.0


def bowl(policies: Sequence[NetworkPolicy], parts: Sequence[evolution.Part]) -> FloatArray:
    """Costs that are known: the distance from a place, the same on every part."""
    rows = []
    for policy in policies:
        head = policy.network.weights["layers.4.weight"]
        log = float(((head - 0.4) ** 2).sum()) - 0.1
        rows.append([[log, log, 0.0, 0.0]] * len(parts))
    return np.array(rows)


def test_it_finds_what_costs_least() -> None:
    settings = replace(SETTINGS, generations=60, members=12, parts=2, part_jobs=20, eval_every=20)
    validation = [evolution.part_of(WORKLOAD.cut(300, 20), 0.2)] * 2
    seen: list[evolution.SearchGeneration] = []
    actor, number, _ = evolution.evolve(
        [WORKLOAD], validation, settings, bowl, on_generation=seen.append
    )
    np.testing.assert_allclose(actor.layers[-1].state_dict()["weight"].numpy(), 0.4, atol=0.05)
    validations = [one.validation_cost for one in seen if one.validation_cost is not None]
    assert len(validations) == 3
    assert number == 19 + 20 * int(np.argmin(validations))


def test_what_is_never_better_than_the_rule_when_validated_is_the_rule() -> None:
    def worse(policies: Sequence[NetworkPolicy], parts: Sequence[evolution.Part]) -> FloatArray:
        return bowl(policies, parts) + 9.0

    validation = [evolution.part_of(WORKLOAD.cut(300, 20), 0.2)] * 2
    actor, number, _ = evolution.evolve([WORKLOAD], validation, SETTINGS, worse)
    assert number == -1
    assert not any(one.any() for one in actor.layers[-1].parameters())


def test_a_cost_that_is_no_number_ends_the_search() -> None:
    def broken(policies: Sequence[NetworkPolicy], parts: Sequence[evolution.Part]) -> FloatArray:
        return bowl(policies, parts) * np.nan

    with pytest.raises(FloatingPointError, match="generation 0"):
        evolution.evolve(
            [WORKLOAD], [evolution.part_of(WORKLOAD.cut(300, 20), 0.2)], SETTINGS, broken
        )


def test_threads_and_an_interruption_change_nothing(tmp_path: Path) -> None:
    whole = sure(evolution.perform(SETTINGS, search_in(tmp_path / "a")))
    seen: list[int] = []

    def stop(_folder: Path, found: evolution.SearchGeneration) -> None:
        seen.append(found.number)
        if found.number == 1:
            raise KeyboardInterrupt

    part = search_in(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        evolution.perform(SETTINGS, part, workers=2, on_generation=stop)
    again = replace(part, resume=True)
    later = evolution.perform(
        SETTINGS, again, on_generation=lambda _, found: seen.append(found.number)
    )
    assert seen == [0, 1, 2]
    assert sure(later).verdict == sure(whole.verdict)
    assert weights(tmp_path / "a" / "model") == weights(tmp_path / "b" / "model")


@pytest.mark.parametrize(
    ("damage", "reply"),
    [
        (lambda text: text[:-20], "cannot be resumed"),
        (lambda text: text[:0], "cannot be resumed"),
        (lambda text: text.replace('"seed": 1', '"seed": 2'), "another seed"),
        (lambda text: text.replace('"number": 0', '"number": 1'), "generations are missing"),
    ],
)
def test_a_record_that_cannot_be_gone_on_from_is_named(
    tmp_path: Path, damage: Callable[[str], str], reply: str
) -> None:
    evolution.perform(SETTINGS, search_in(tmp_path))
    record = tmp_path / "work" / evolution.GENERATIONS
    assert len(record.read_text().splitlines()) == 1 + SETTINGS.generations
    record.write_text(damage(record.read_text()))
    again = search_in(tmp_path, out=tmp_path / "other", resume=True)
    with pytest.raises(ModelError, match=reply):
        evolution.perform(SETTINGS, again)
    with pytest.raises(ModelError, match="continue it with --resume"):
        evolution.perform(SETTINGS, replace(again, resume=False))


def test_a_verdict_says_what_the_interval_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltuned.lab.train.export.LOADS", (1.2, 1.6, 2.0))
    predictor = load_predictor(shipped_predictor())
    worlds = [DatasetSource(PLAIN, "made up", "none", is_world=True)] * 2

    def judge(numbers: FloatArray) -> tuple[Verdict, dict[str, float]]:
        ground = DatasetSource(random_ground("testbed", 22, 8_000), "made up", "none")
        actor = evolution.actor_of(numbers, 4.0)
        return judged(actor, [ground], worlds, 200, predictor)

    nothing, changes = judge(np.zeros(evolution.NUMBERS))
    assert (nothing.word, nothing.change, changes) == ("no proven difference", 0.0, {"testbed": 0})
    assert nothing.windows == 3 * 4 + 2, "four of the trace at each load, one of each world"
    numbers = np.zeros((2, evolution.WIDTH + 1))
    numbers[:, 1], numbers[:, evolution.WIDTH] = 6.0, -3.0  # large work first
    bad, changes = judge(numbers.ravel())
    assert bad.word == "worse"
    assert str(bad).startswith("worse than the rule delay: wait and slowdown +")
    assert changes["testbed"] > 0


def test_what_is_worse_is_exported_by_force_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse = Verdict(word="worse", change=0.1, low=0.05, high=0.2, windows=9, figure="wait")
    monkeypatch.setattr("rltuned.lab.train.export.judged", lambda *_: (worse, {}))
    run = search_in(tmp_path, force=False)
    reply = r"not exported: worse than the rule delay: wait \+10.0% \[.*\] on 9 windows; --force"
    with pytest.raises(ModelError, match=reply):
        evolution.perform(SETTINGS, run)
    assert not run.out.exists()
    assert evolution.perform(SETTINGS, replace(run, force=True, resume=True)).verdict == worse


def test_training_the_card_and_evaluate_say_the_same_of_a_model(tmp_path: Path) -> None:
    trace, out = tmp_path / "t.csv", tmp_path / "mine"
    write_trace(Trace(random_ground("testbed", 23, 1_200).jobs), trace)
    where = ["--trace", str(trace), "--cluster", "testbed"]
    words = ["train", "evolve", *where, "--out", str(out), "--force", "--reach", "4"]
    small = ("members=6", "parts=2", "part_jobs=200", "eval_every=1", "loads=1.1,1.3")
    words += ["--generations", "2", *(word for one in small for word in ("--set", one))]
    trained = CliRunner().invoke(app, words)
    assert trained.exit_code == 0, trained.output
    # a short trace has no room for windows of 1,024
    assert "held-out windows have 120 jobs, not 1024" in " ".join(trained.stderr.split())
    evaluated = CliRunner().invoke(app, ["evaluate", "--model", str(out), *where, "--json"])
    verdict = sure(load_actor(out).card.verdict)
    assert verdict.change != 0.0
    found = json.loads(evaluated.stdout)
    assert found["verdicts"] == {"model:mine": verdict.model_dump()}
    assert found["headline"] == f"model:mine: {verdict}"
    assert f"{out}: {verdict};" in trained.stdout
    shown = CliRunner().invoke(app, ["models", "verify", str(out)])
    assert str(verdict) in " ".join(shown.stdout.split())
    assert load_actor(out).card.results["verdict_on_t.csv@testbed"] == verdict.change
    assert load_actor(out).card.git_commit == git_commit(ROOT)
    log = (tmp_path / "mine.training" / "training.log").read_text().splitlines()
    assert ["generation 1/2: " in log[0], "generation 2/2: " in log[1]] == [True, True]
    assert "against delay" in log[0]
    assert log[1].split(" ", 2)[2] in trained.output
    again = CliRunner().invoke(app, words)
    assert "exists already" in str(again.exception)


def test_the_seed_that_does_best_on_held_out_windows_is_exported(tmp_path: Path) -> None:
    whole = sure(evolution.perform(SETTINGS, search_in(tmp_path / "a", seeds=2)))
    costs = {seed: whole.results[f"validation_cost_seed_{seed}"] for seed in (1, 2)}
    assert whole.training.seed == min(costs, key=lambda seed: costs[seed])
    for seed in (1, 2):
        record = tmp_path / "a" / "work" / f"seed-{seed}" / evolution.GENERATIONS
        assert len(record.read_text().splitlines()) == 1 + SETTINGS.generations
    evolution.perform(replace(SETTINGS, seed=whole.training.seed), search_in(tmp_path / "b"))
    assert weights(tmp_path / "a" / "model") == weights(tmp_path / "b" / "model")


def test_a_search_begins_where_a_bundle_of_its_kind_ended(tmp_path: Path) -> None:
    evolution.perform(replace(SETTINGS, reach=0.5), search_in(tmp_path / "a"))
    begun = tmp_path / "a" / "model"
    numbers, reach = evolution.numbers_of(begun)
    np.testing.assert_allclose(numbers, numbers.astype(np.float32))
    assert reach == 0.5
    still = replace(SETTINGS, step=1e-9, generations=1)
    card = sure(evolution.perform(still, search_in(tmp_path / "b", start=begun)))
    assert card.architecture.reach == 0.5
    assert "begun from model" in card.training.method
    if numbers.any():
        assert weights(tmp_path / "b" / "model") == weights(begun)
    other = ROOT / "models" / "warmstart-saf"
    with pytest.raises(ModelError, match="no network of `rltuned train evolve`"):
        evolution.numbers_of(other)


@pytest.mark.parametrize(
    ("given", "reply"),
    [
        (["--trace", "a", "--cluster", "testbed", "--cluster", "philly-192"], "2 clusters for 1"),
        (["--trace", "a"] * 3 + ["--cluster", "testbed"] * 2, "2 clusters for 3 traces"),
        (["--cluster", "testbed"], "--cluster: needs --trace"),
    ],
)
@pytest.mark.parametrize("kind", ["evolve", "ppo"])
def test_traces_and_clusters_go_in_pairs(
    kind: str, given: list[str], reply: str, tmp_path: Path
) -> None:
    ran = CliRunner().invoke(app, ["train", kind, "--out", str(tmp_path / "m"), *given])
    assert ran.exit_code == 2
    assert reply in " ".join(ran.output.replace("│", " ").split())


def test_each_trace_is_learned_on_its_own_cluster(tmp_path: Path) -> None:
    traces = [tmp_path / name for name in ("one.csv", "two.csv")]
    for trace in traces:
        write_trace(Trace(random_ground("testbed", 3, 60).jobs), trace)
    found = learned_on(traces, ["testbed", "philly-192"], 0, 1, nothing)
    assert [s.scenario.name for s in found] == ["one.csv@testbed", "two.csv@philly-192"]
    found = learned_on(traces, ["testbed"], 0, 1, nothing)
    assert [s.scenario.name for s in found] == ["one.csv@testbed", "two.csv@testbed"]


def test_no_window_is_held_out_twice() -> None:
    windows = held_out([SOURCE], 12, fitting(1_024, [SOURCE]))
    assert {len(w) for w in windows} == {40}
    assert len(windows) == len(LOADS)
    assert fitting(30, [SOURCE]) == 30
