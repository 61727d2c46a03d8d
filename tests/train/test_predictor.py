"""Run times predicted from the past alone, fitted, sealed and refused where something is wrong."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.core.run_times import HIGH, LOG_FULL, LOW, MEAN, MEDIAN, REQUEST_SIGNS, SIGNS
from rltuned.errors import ModelError, TraceError
from rltuned.lab.cli.train import app
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train.export import export_predictor
from rltuned.lab.train.predictor import examples_of, fit, foreseen
from rltuned.policies.predictor import CARD_FILE, PARITY_FILE, PREDICTOR_FILE, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.trace import Trace, TraceJob


def jobs_of(count: int, seed: int = 1, spread: float = 0.3) -> list[TraceJob]:
    """Users with habits: user k runs about 30 s times 4 to the k."""
    draw = np.random.default_rng(seed)
    found, now = [], 0.0
    for i in range(count):
        now += float(draw.exponential(300.0))
        user = int(draw.integers(5))
        run_s = 30.0 * 4**user * math.exp(spread * draw.standard_normal())
        found.append(
            TraceJob(str(i), now, run_s, int(draw.choice([1, 2])), 100_000.0, user=f"u{user}")
        )
    return found


def test_habits_are_learned_and_quantiles_cover() -> None:
    fitted = fit(jobs_of(3_000), seed=1)
    assert fitted.pinball < 0.4 * fitted.plain
    assert fitted.covered[0] < 0.25
    assert 0.35 < fitted.covered[1] < 0.65
    assert fitted.covered[2] > 0.75
    found = examples_of(jobs_of(3_000), fitted.predictor)
    median_s = np.expm1(found.summary[-200:, MEDIAN])
    run_s = np.expm1(found.x[-200:] * LOG_FULL)
    assert np.median(np.abs(np.log(median_s / run_s))) < 0.5
    assert (np.diff(found.summary[:, LOW : HIGH + 1], axis=1) >= -1e-9).all()


def test_names_tell_what_users_do_not() -> None:
    """One user, two scripts in turn: only the name tells how long a job runs."""
    draw = np.random.default_rng(3)
    jobs = [
        TraceJob(str(i), 600.0 * i, (60.0, 6_000.0)[int(draw.integers(2))], 1, 90_000.0, user="u")
        for i in range(1_500)
    ]
    named = [replace(j, name="short" if j.duration_s < 100 else "long") for j in jobs]
    without, with_names = fit(jobs, epochs=30), fit(named, epochs=30)
    assert with_names.pinball < 0.5 * without.pinball


def test_as_few_jobs_as_a_nightly_refit_takes_are_learned_from() -> None:
    fitted = fit(jobs_of(500), seed=1)
    assert fitted.pinball < 0.7 * fitted.plain
    begun = fit(jobs_of(500), begin=load_predictor(shipped_predictor()), seed=1)
    assert begun.pinball < 0.7 * begun.plain


@pytest.mark.parametrize("wait_s", [None, 40_000.0])
def test_nothing_that_has_not_ended_by_then_is_used(wait_s: float | None) -> None:
    """No leak: run times of jobs that end later do not move what was predicted before."""
    jobs, shipped = jobs_of(400), load_predictor(shipped_predictor())
    jobs = [replace(j, time_limit_s=math.inf) for j in jobs]
    at = 200
    now = jobs[at].submit_s
    start_s = None if wait_s is None else np.array([j.submit_s + wait_s for j in jobs])
    ends_s = [j.submit_s + (wait_s or 0.0) + j.duration_s for j in jobs]
    later = [i for i, end_s in enumerate(ends_s) if end_s > now]
    assert any(jobs[i].submit_s + jobs[i].duration_s < now for i in later) == (wait_s is not None)
    shuffled = np.random.default_rng(0).permutation([jobs[i].duration_s for i in later]) + 1e6
    changed = list(jobs)
    for i, run_s in zip(later, shuffled.tolist(), strict=True):
        changed[i] = replace(jobs[i], duration_s=run_s)
    one, other = (foreseen(shipped, some, start_s=start_s).quantiles for some in (jobs, changed))
    np.testing.assert_array_equal(one[: at + 1], other[: at + 1])
    assert (one != other).any()


def unended(jobs: list[TraceJob]) -> list[TraceJob]:
    """The same jobs, those that still ran at the last submit running much longer."""
    last_s = jobs[-1].submit_s
    assert sum(j.submit_s + j.duration_s > last_s for j in jobs) >= 3
    return [
        replace(j, duration_s=j.duration_s * 9 + 1e6) if j.submit_s + j.duration_s > last_s else j
        for j in jobs
    ]


def test_jobs_that_run_when_the_trace_ends_do_not_teach() -> None:
    """No leak, neither in the trace itself nor in those beside it."""
    jobs, other = jobs_of(400), jobs_of(300, seed=2)
    whole = fit(jobs, beside=[other], epochs=2).predictor.to_bytes()
    assert fit(unended(jobs), beside=[other], epochs=2).predictor.to_bytes() == whole
    assert fit(jobs, beside=[unended(other)], epochs=2).predictor.to_bytes() == whole


def test_no_run_teaches_before_it_ended() -> None:
    """Starts after the last submission: at every submission no run was known, and all teach."""
    jobs = jobs_of(400)
    late = np.full(len(jobs), jobs[-1].submit_s + 1.0)
    found, at_once = examples_of(jobs, start_s=late), examples_of(jobs)
    assert len(found) == len(jobs) > len(at_once)
    ended = slice(REQUEST_SIGNS, None, SIGNS)
    assert not found.inputs[:, ended].any()
    assert at_once.inputs[:, ended].any()
    never = np.where(np.arange(len(jobs)) < 10, np.inf, late)
    assert len(examples_of(jobs, start_s=never)) == len(jobs) - 10


def test_strangers_are_judged_by_their_request_alone() -> None:
    jobs = jobs_of(1_000)
    predictor = fit(jobs, epochs=5).predictor
    cold = foreseen(predictor, jobs, cold=True).quantiles
    assert len(np.unique(cold, axis=0)) == 2  # one or two GPUs
    assert len(np.unique(foreseen(predictor, jobs).quantiles, axis=0)) > 500


def test_no_prediction_is_above_the_limit() -> None:
    shipped = load_predictor(shipped_predictor())
    jobs = [replace(j, time_limit_s=60.0 * 10**k) for k in range(4) for j in jobs_of(50, seed=k)]
    jobs = [replace(j, submit_s=float(i)) for i, j in enumerate(jobs)]
    found = examples_of([*jobs, replace(jobs[0], submit_s=1e9)], shipped)
    limit_s = np.expm1(found.inputs[:, 0].astype(np.float64) * LOG_FULL)
    assert (np.exp(found.summary[:, MEAN]) <= limit_s * 1.0001 + 1.0).all()
    assert (np.expm1(found.summary[:, HIGH]) <= limit_s * 1.0001).all()


def test_too_few_jobs() -> None:
    with pytest.raises(TraceError, match="too few"):
        fit(jobs_of(50))
    at_once = [replace(j, submit_s=0.0) for j in jobs_of(300)]
    with pytest.raises(TraceError, match="of 300 jobs too few had ended"):
        fit(at_once)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    fitted = fit(jobs_of(400), epochs=2)
    export_predictor(made, fitted, command="a test", seed=1, data="made up", licence="none")
    return made


def test_a_predictor_comes_back_from_its_folder(folder: Path) -> None:
    fitted, again = fit(jobs_of(400), epochs=2).predictor, load_predictor(folder)
    assert again.digest
    one, other = (foreseen(p, jobs_of(50)).quantiles for p in (fitted, again))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(ModelError, match="exists already"):
        export_predictor(
            folder, fit(jobs_of(400), epochs=1), command="", seed=1, data="", licence=""
        )


@pytest.mark.parametrize("name", [PREDICTOR_FILE, PARITY_FILE])
def test_a_tampered_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match=f"{name}: SHA-256"):
        load_predictor(folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name):
        load_predictor(folder)


def test_a_card_that_says_something_else_is_refused(folder: Path) -> None:
    card = json.loads((folder / CARD_FILE).read_text())
    for change, why in (
        ({"inputs_id": "run-times-000000000000"}, "fit it again"),
        ({"format": 2}, "field format"),
        ({"surprise": 1}, "field surprise"),
    ):
        (folder / CARD_FILE).write_text(json.dumps(card | change))
        with pytest.raises(ModelError, match=why):
            load_predictor(folder)


def test_a_predictor_that_answers_otherwise_here_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    export_predictor(other, fit(jobs_of(400), epochs=1), command="", seed=1, data="", licence="")
    card = json.loads((folder / CARD_FILE).read_text())
    theirs = json.loads((other / CARD_FILE).read_text())
    (folder / PARITY_FILE).write_bytes((other / PARITY_FILE).read_bytes())
    card["files_sha256"][PARITY_FILE] = theirs["files_sha256"][PARITY_FILE]
    (folder / CARD_FILE).write_text(json.dumps(card))
    with pytest.raises(ModelError, match="answers differ by"):
        load_predictor(folder)


def test_one_that_predicts_worse_than_no_look_at_the_job_is_reported(tmp_path: Path) -> None:
    """User a was long and b short; in the last fifth, held out, each is what it just was not."""
    jobs = []
    for i, job in enumerate(jobs_of(300)):
        long = i % 2 == 0 if i < 240 else (i // 2) % 2 == 0
        jobs.append(
            replace(
                job,
                submit_s=7_000.0 * i,
                user="b" if i % 2 else "a",
                duration_s=6_000.0 if long else 60.0,
            )
        )
    trace = tmp_path / "trace.csv"
    write_trace(Trace(tuple(jobs)), trace)
    words = ["predictor", "--fresh", "--trace", str(trace), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1, done.output
    figures = json.loads(done.stdout)
    assert figures["pinball"] >= figures["plain"]
    assert "no better than the same answer for every job" in done.output
    assert load_predictor(tmp_path / "out").digest
