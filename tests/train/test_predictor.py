"""Run times foretold from the past alone."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.cli.train import app
from rltuned.errors import ModelError, TraceError
from rltuned.policies.predictor import (
    LOG_FULL,
    Predictor,
    read_predictor,
)
from rltuned.sim.trace import Trace, TraceJob, write_trace
from rltuned.train.predictor import NO_HISTORY, QuantileNet, as_known, fit, past, strangers

RLTUNE = Path(__file__).resolve().parents[2] / "models" / "rltune"


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
    columns = fitted.predictor.columns(["u0", "u4"], ["", ""], [jobs_of(1)[0].request()] * 2)
    median_s = np.expm1(columns[:, 1].astype(float) * LOG_FULL)
    assert median_s[0] == pytest.approx(30, rel=0.6)
    assert median_s[1] == pytest.approx(30 * 4**4, rel=0.6)
    assert (np.diff(columns, axis=1) >= 0).all()


def test_as_few_jobs_as_a_nightly_refit_takes_are_learned_from() -> None:
    fitted = fit(jobs_of(500), seed=1)
    assert fitted.pinball < 0.7 * fitted.plain


def test_nothing_that_has_not_ended_by_then_is_used() -> None:
    """Non-interference: run times of jobs that end later do not move what was known before."""
    jobs = jobs_of(400)
    at = 200
    now = jobs[at].submit_s
    changed = [
        replace(j, duration_s=j.duration_s * 7 + 1e6) if j.submit_s + j.duration_s > now else j
        for j in jobs
    ]
    for one, other in zip(past(jobs)[:2], past(changed)[:2], strict=True):
        np.testing.assert_array_equal(one[: at + 1], other[: at + 1])
    assert (past(jobs)[0] != past(changed)[0]).any()


def unended(jobs: list[TraceJob]) -> list[TraceJob]:
    """The same jobs, those that still ran at the last submit running much longer."""
    last_s = jobs[-1].submit_s
    assert sum(j.submit_s + j.duration_s > last_s for j in jobs) >= 3
    return [
        replace(j, duration_s=j.duration_s * 9 + 1e6) if j.submit_s + j.duration_s > last_s else j
        for j in jobs
    ]


def test_who_still_runs_when_the_trace_ends_does_not_teach() -> None:
    """Non-interference: neither in the trace itself nor in those beside it."""
    jobs, other = jobs_of(400), jobs_of(300, seed=2)
    whole = fit(jobs, beside=[other], epochs=2).predictor.to_bytes()
    assert fit(unended(jobs), beside=[other], epochs=2).predictor.to_bytes() == whole
    assert fit(jobs, beside=[unended(other)], epochs=2).predictor.to_bytes() == whole


def test_strangers_are_judged_by_their_limit_alone() -> None:
    jobs = jobs_of(1_000)
    predictor = fit(jobs, epochs=5).predictor
    unknown = strangers(predictor, jobs[:20])
    renamed = [replace(j, user=f"new{i}") for i, j in enumerate(jobs[:20])]
    requests = [j.request() for j in renamed]
    np.testing.assert_array_equal(
        unknown, predictor.columns([j.user for j in renamed], [""] * 20, requests)
    )
    known = as_known(predictor, jobs, 900)
    assert known.shape == (1_000, 3)
    shipped = predictor.columns(
        [j.user for j in jobs[900:]], [""] * 100, [j.request() for j in jobs[900:]]
    )
    np.testing.assert_allclose(known[900:], shipped, atol=1e-6)


def test_no_prediction_is_above_the_limit() -> None:
    predictor = Predictor(QuantileNet().weights(), NO_HISTORY)
    short = replace(jobs_of(1)[0], time_limit_s=60.0).request()
    found = predictor.columns([""], [""], [short])
    assert (np.expm1(found.astype(float) * LOG_FULL) <= 60.0 + 1e-3).all()
    assert predictor.columns([], [], []).shape == (0, 3)


def test_a_predictor_comes_back_from_its_file() -> None:
    jobs = jobs_of(600)
    predictor = fit(jobs, epochs=2).predictor
    data = predictor.to_bytes()
    again = read_predictor(Path("p"), data)
    requests = [j.request() for j in jobs]
    users = [j.user for j in jobs]
    np.testing.assert_array_equal(
        predictor.columns(users, [""] * 600, requests), again.columns(users, [""] * 600, requests)
    )
    assert b"u3" not in data
    with pytest.raises(ModelError, match="model p"):
        read_predictor(Path("p"), data[:100])
    name = next(iter(predictor.weights))
    predictor.weights = predictor.weights | {name: predictor.weights[name] * np.nan}  # type: ignore[operator]
    with pytest.raises(ModelError, match="not finite"):
        read_predictor(Path("p"), predictor.to_bytes())


def test_too_few_jobs() -> None:
    with pytest.raises(TraceError, match="too few"):
        fit(jobs_of(50))
    at_once = [replace(j, submit_s=0.0) for j in jobs_of(300)]
    with pytest.raises(TraceError, match=r"0 jobs that had ended .* too few"):
        fit(at_once)


def test_one_that_foretells_worse_than_no_look_at_the_job_is_said_to(tmp_path: Path) -> None:
    """Two users who exchange their habits in the last fifth, which is held out."""
    jobs = [
        replace(j, user="a" if (i % 2) == (i < 240) else "b", duration_s=6_000.0 if i % 2 else 60.0)
        for i, j in enumerate(jobs_of(300))
    ]
    trace = tmp_path / "trace.csv"
    write_trace(Trace(tuple(jobs)), trace)
    words = ["predictor", str(RLTUNE), "--trace", str(trace), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert "no better than the same answer for every job" in done.output
