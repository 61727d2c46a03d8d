"""Lower bounds hold for every order, and are met where the best order is known."""

import itertools
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from rltuned.kernel.compiler import FloatArray
from rltuned.sim.orders import at_events
from rltuned.sim.play import run
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol
from rltuned.sim.trace import Trace, TraceJob, write_trace
from rltuned.train.course import from_files
from rltuned.train.episodes import play_rule
from rltuned.train.evaluate import EvaluationPlan, compare, schedule_of
from rltuned.train.ground import Ground, cut, make_ground
from scripts.studies.__main__ import main
from scripts.studies.bound import least_bsld, least_wait
from tests.train.worlds import random_ground


def window_of(*jobs: tuple[float, float, int]) -> Ground:
    """Jobs of (submit, run time, GPUs) on the testbed: 8, 4 and 1 GPUs of three types."""
    made = tuple(
        TraceJob(str(i), submit, run, gpus, run, ("p100",))
        for i, (submit, run, gpus) in enumerate(jobs)
    )
    return cut(make_ground("x", preset("testbed"), made), 0, len(made))


def play_order(window: Ground, keys: FloatArray) -> FloatArray:
    """Start times when the job with the smallest key goes first."""
    ranking, _ = at_events("fcfs", window.stage(), None)
    return run(window.prepared, ranking._replace(key=keys), window.rules).start_s


def test_two_jobs_that_each_want_all_gpus_of_a_type() -> None:
    window = window_of((0.0, 1000.0, 8), (0.0, 3000.0, 8))
    best_s = play_rule(window, "sjf")
    assert (best_s - window.submit_s).mean() == 500.0
    assert 440.0 < least_wait(window, best_s) <= 500.0


def test_nobody_waits_where_there_is_room_for_all() -> None:
    window = window_of((0.0, 1000.0, 4), (0.0, 3000.0, 4))
    start_s = play_rule(window, "fcfs")
    assert least_wait(window, start_s) == 0.0
    assert least_bsld(window, start_s) == 1.0


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_six_jobs_goes_below(seed: int) -> None:
    draw = np.random.default_rng(seed)
    window = window_of(
        *(
            (float(at), float(draw.integers(5, 4000)), int(draw.choice([1, 2, 4, 8])))
            for at in np.sort(draw.uniform(0, 500, 6))
        )
    )
    reached = play_rule(window, "sjf")
    wait, bsld = least_wait(window, reached), least_bsld(window, reached)
    for order in itertools.permutations(range(6)):
        schedule = schedule_of(window, play_order(window, np.array(order, dtype=float)))
        assert schedule.wait_s.mean() >= wait - 1e-6
        assert schedule.slowdown.mean() >= bsld - 1e-9


@pytest.mark.parametrize("world", ["two", "testbed"])
def test_no_rule_goes_below_whatever_schedule_the_search_was_shown(world: str) -> None:
    window = cut(random_ground(world, 5, 200), 0, 200, load=1.3)
    for shown in ("fcfs", "clairvoyant:sjf"):
        reached = play_rule(window, shown)
        wait, bsld = least_wait(window, reached), least_bsld(window, reached)
        assert wait > 0
        for rule in ("fcfs", "saf", "clairvoyant:sjf", "wfp3"):
            schedule = schedule_of(window, play_rule(window, rule))
            assert schedule.wait_s.mean() >= wait
            assert schedule.slowdown.mean() >= bsld


def test_the_command_adds_bounds_to_an_evaluation(tmp_path: Path) -> None:
    ground = random_ground("testbed", 5, 200)
    trace, results = tmp_path / "t.csv", tmp_path / "results.json"
    write_trace(Trace(ground.jobs), trace)
    where = ["--trace", str(trace), "--cluster", "testbed"]
    [source] = from_files([trace], [preset("testbed")])
    plan = EvaluationPlan(2, 90, 1.2, (0.0, 1.0))
    found = compare(source.ground, {}, plan, rules=("fcfs", "sjf"), protocol=Protocol())
    means = found.means()
    one = {"ground": found.ground, "plan": asdict(found.plan), "policies": means, "paired": ["sjf"]}
    results.write_text(json.dumps({"comparisons": [one]}))
    main(["bound", str(results), *where, "--windows", "2"])
    [after] = json.loads(results.read_text())["comparisons"]
    assert 0 < after["bound"]["wait_s"] < min(m["wait_s"] for m in means.values())
    way = means["fcfs"]["wait_s"] - after["bound"]["wait_s"]
    closed = (means["fcfs"]["wait_s"] - means["sjf"]["wait_s"]) / way
    assert after["closed_of_fcfs_to_bound"]["sjf"]["wait_s"] == pytest.approx(closed)
