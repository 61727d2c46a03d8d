"""Generators meet the marginals they claim; limits have the strength they claim."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rltuned.errors import TraceError
from rltuned.lab.replay.trace_file import cut, describe, jittered, offered_gpus, scale
from rltuned.sim.backend import ScaledClock, demo_backend
from rltuned.sim.limits import PARTS, Habits, draw_limits, ranks, scripts_of, spearman, users_of
from rltuned.sim.synth import SHAPES, jobs_of, synthesize
from rltuned.sim.trace import Trace
from tests.fakes import FakeClock
from tests.sim.worlds import job

# kind: median run, mean run, mean gap, share of 1-GPU jobs, mean GPUs (../shared/traces' tables)
MARGINALS = {
    "philly-like": (1_250, 25_419, 65, 0.867, 1.70),
    "helios-like": (204, 13_041, 125, 0.55, 6.07),
    "pai-like": (728, 6_600, 13, 0.957, 1.07),
}


@pytest.mark.parametrize("kind", MARGINALS)
def test_a_generator_meets_its_marginals(kind: str) -> None:
    median_s, mean_s, gap_s, ones, gpus = MARGINALS[kind]
    facts = describe(synthesize(kind, jobs=20_000, seed=11, limits="none"))
    assert facts["run_median_s"] == pytest.approx(median_s, rel=0.1)
    # heavy tails: the mean of 20 000 draws still moves by a sixth
    assert facts["run_mean_s"] == pytest.approx(mean_s, rel=0.35)
    assert facts["gap_mean_s"] == pytest.approx(gap_s, rel=0.1)
    assert facts["sizes"][1] == pytest.approx(ones, abs=0.01)
    assert facts["gpus_mean"] == pytest.approx(gpus, rel=0.1)


def test_philly_like_arrivals_are_as_bursty_as_published() -> None:
    facts = describe(synthesize("philly-like", jobs=20_000, seed=12, limits="none"))
    assert facts["gap_median_s"] == pytest.approx(8, abs=1.5)
    assert facts["gap_cv"] == pytest.approx(3.0, abs=0.4)


def test_the_testbed_mix_is_the_one_the_authors_ran() -> None:
    jobs = synthesize("testbed-1024", jobs=1_024, seed=1).jobs
    counts = {
        key: sum((j.gpu_types, j.gpus) == key for j in jobs)
        for key in {(j.gpu_types, j.gpus) for j in jobs}
    }
    assert counts == {
        (("m40",), 1): 108,
        (("p100",), 1): 124,
        (("p100",), 2): 200,
        (("p100",), 4): 232,
        (("k80",), 1): 120,
        (("k80",), 2): 240,
    }
    free = synthesize("testbed-1024", jobs=1_024, seed=1, free_share=1.0).jobs
    assert {len(j.gpu_types) for j in free} == {0, 2}


def test_the_same_seed_gives_the_same_trace_and_another_does_not() -> None:
    for kind in (*MARGINALS, "testbed-1024"):
        assert synthesize(kind, jobs=50, seed=3) == synthesize(kind, jobs=50, seed=3)
        assert synthesize(kind, jobs=50, seed=3) != synthesize(kind, jobs=50, seed=4)
    with pytest.raises(TraceError, match="no generator named"):
        synthesize("moon-like", jobs=1, seed=1)


@pytest.fixture
def runs_s() -> np.ndarray:
    found: np.ndarray = np.exp(7.13 + 2.5 * np.random.default_rng(5).standard_normal(8_000)) + 1
    return found


def test_informative_limits_follow_the_run_times(runs_s: np.ndarray) -> None:
    limits = draw_limits(runs_s, "informative", np.random.default_rng(1))
    assert (limits >= runs_s).all()
    assert np.median(runs_s / limits) == pytest.approx(0.12, abs=0.04)
    assert 0.5 < spearman(runs_s, limits) < 0.75
    assert (limits != runs_s).all()


def test_weak_limits_hardly_follow_the_run_times(runs_s: np.ndarray) -> None:
    limits = draw_limits(runs_s, "weak", np.random.default_rng(1))
    assert (limits >= runs_s).all()
    assert spearman(runs_s, limits) == pytest.approx(0.30, abs=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_real_limits_are_those_of_users_with_habits(seed: int) -> None:
    """The facts of three sites, see sim/limits."""
    jobs = jobs_of(SHAPES["helios-like"], jobs=6_000, seed=seed, limits="real")
    run_s, limit_s = (
        np.array([getattr(j, n) for j in jobs]) for n in ("duration_s", "time_limit_s")
    )
    use = run_s / limit_s
    assert (limit_s >= run_s).all()
    assert 0.001 < np.median(use) < 0.65
    assert 0.02 < (use < 0.02).mean() < 0.6
    assert -0.1 < spearman(run_s, limit_s) < 0.85
    _, counts = np.unique(limit_s, return_counts=True)
    assert np.sort(counts)[-5:].sum() > 0.45 * len(jobs)
    by_user: dict[str, list[float]] = {}
    for one in jobs:
        by_user.setdefault(one.user, []).append(one.time_limit_s)
    again = [a == b for own in by_user.values() for a, b in pairwise(own)]
    assert np.mean(again) > 0.35
    unnamed = draw_limits(run_s, "real", np.random.default_rng(seed))
    assert (unnamed >= run_s).all()


def test_no_limits_are_infinite(runs_s: np.ndarray) -> None:
    assert np.isinf(draw_limits(runs_s, "none", np.random.default_rng(1))).all()
    assert len(draw_limits(runs_s[:0], "weak", np.random.default_rng(1))) == 0


def test_ranks_share_ties() -> None:
    assert ranks(np.array([5.0, 1.0, 5.0, 9.0])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 9.0])) == pytest.approx(1.0)
    assert math.isnan(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))


def test_offered_load_counts_only_the_arrival_span() -> None:
    jobs = (job("a", 0, 50, 2), job("b", 60, 1_000, 4), job("c", 100, 5, 1))
    # a: 2 GPUs for 50 s; b: 4 for the 40 s up to the last submit; c: nothing
    assert offered_gpus(jobs) == pytest.approx((100 + 160) / 100)


def test_scaling_reaches_the_stated_load() -> None:
    trace = synthesize("philly-like", jobs=2_000, seed=2)
    for load in (0.7, 0.9, 1.1):
        scaled = scale(trace, load, 192)
        assert offered_gpus(scaled.jobs) == pytest.approx(load * 192, rel=1e-3)
        assert [j.job_id for j in scaled.jobs] == [j.job_id for j in trace.jobs]
    with pytest.raises(TraceError, match="do not offer"):
        scale(Trace((job("a", 0, 5, 1), job("b", 9, 5, 1))), 50.0, 192)
    with pytest.raises(TraceError, match="one instant"):
        scale(Trace((job("a", 0, 5, 1),)), 1.0, 1)


def test_jitter_moves_every_job_a_little_and_none_away() -> None:
    trace = synthesize("philly-like", jobs=200, seed=2)
    moved = jittered(trace, 60.0, seed=1)
    assert sorted(j.job_id for j in moved.jobs) == sorted(j.job_id for j in trace.jobs)
    assert moved == jittered(trace, 60.0, seed=1) != jittered(trace, 60.0, seed=2)
    assert moved.jobs[0].submit_s == 0.0


def test_a_window_starts_at_zero() -> None:
    trace = synthesize("philly-like", jobs=100, seed=2)
    part = cut(trace, 10, 20)
    assert part.jobs[0].submit_s == 0.0
    assert [j.job_id for j in part.jobs] == [j.job_id for j in trace.jobs[10:30]]
    with pytest.raises(TraceError, match="do not exist"):
        cut(trace, 90, 20)


def test_the_demo_shows_a_queue_and_moves_with_its_clock() -> None:
    inner = FakeClock()
    clock = ScaledClock(inner, speed=60.0)
    backend = demo_backend(3, clock)
    first = backend.observe()
    assert first.taken_at == clock.now()
    assert len(first.pending) >= 20
    assert all(first.taken_at - j.submitted_at >= 10 for j in first.pending)
    clock.wait(3_600.0)
    assert inner.waits == [60.0]
    later = backend.observe()
    assert later.taken_at - first.taken_at == pytest.approx(3_600.0)
    assert {j.job_id for j in later.pending} != {j.job_id for j in first.pending}


def test_describe_without_limits_or_gpus() -> None:
    facts = describe(Trace((job("a", 0, 5, 0), replace(job("b", 2, 5, 0), time_limit_s=math.inf))))
    assert facts["with_limit"] == 0.5
    assert facts["gpu_jobs"] == 0


def test_users_on_holiday_submit_nothing_and_come_back_to_their_scripts() -> None:
    count, users = 20_000, 40
    who = users_of(count, users, 0.5, np.random.default_rng(3))
    parts = [set(part.tolist()) for part in np.array_split(who, PARTS)]
    busiest = [sum(user in part for part in parts) for user in range(8)]
    # each of the busiest submits in every part in which it is there: half of them, by chance
    assert 3 * len(busiest) <= sum(busiest) <= 7 * len(busiest)
    script, _ = scripts_of(who, Habits(away=0.5), np.random.default_rng(4))
    halves = np.array_split(script, 2)
    assert np.isin(halves[1], halves[0]).mean() > 0.1


def test_without_holidays_every_user_may_submit_at_any_time() -> None:
    who = users_of(20_000, 40, 0.0, np.random.default_rng(3))
    assert all(set(range(8)) <= set(part.tolist()) for part in np.array_split(who, PARTS))
    everyone_away = users_of(100, 3, 1.0, np.random.default_rng(3))
    assert set(everyone_away.tolist()) <= {0, 1, 2}
