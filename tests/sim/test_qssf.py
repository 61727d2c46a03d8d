"""qssf goes by what has ended, and by nothing else."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import UNLIMITED_AS_S
from rltuned.sim.backend import snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import TraceWindow, schedule_of, simulate
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules, World
from tests.sim.reference import DECAY, History, Qssf, by_policy, plainly, play_decided
from tests.sim.worlds import cases, cluster, job, starts

KNOBS = Knobs(top_k=0)
FINE = replace(AGE_ONLY, age_weight=31_536_000 * 100, base=10_000_000 * 100)
"""A hundredth of a second a point: predictions are no whole seconds."""
calm = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_rungs_of_a_prediction() -> None:
    history = History()
    assert history.predict_s("ann", "", 1, 50.0) == 50.0
    assert history.predict_s("ann", "", 1, math.inf) == UNLIMITED_AS_S
    for ran_s in (40.0, 10.0, 90.0):
        history.ended("bob", "lab", 2, ran_s)
    weights = (DECAY**2, DECAY, 1.0)
    mean = sum(w * math.log(s) for w, s in zip(weights, (40.0, 10.0, 90.0), strict=True)) / sum(
        weights
    )
    bobs = pytest.approx(math.exp(mean))
    assert history.predict_s("bob", "", 3, None) == bobs  # 2 and 3 GPUs are much the same
    assert history.predict_s("bob", "", 8, None) == bobs  # no such size yet: all of bob's
    assert history.predict_s("ann", "lab", 2, None) == bobs  # a stranger, but of bob's account
    assert history.predict_s("bob", "", 2, 7.0) == 7.0  # nobody runs beyond the limit
    assert history.predict_s("ann", "lab", 8, 600.0) == 600.0  # the account has none of that size
    assert history.predict_s("ann", "", 2, None) == 40.0  # the median of all
    assert history.predict_s("", "", 2, None) == 40.0  # no name is no kind


def test_a_schedule_by_hand() -> None:
    """One GPU. bob's first job runs 2 s, ann's 20 s; both then ask with the same limit.

    fcfs would start a2 before b2; qssf has seen at 22 that bob's jobs are short.
    A job that ran into its limit teaches the time it ran: c1 is cut at 3, so c2 counts as 3.
    """
    jobs = [
        job("a1", 0, 20, 1, user="ann", time_limit_s=100.0),
        job("b1", 0, 2, 1, user="bob", time_limit_s=100.0),
        job("a2", 1, 20, 1, user="ann", time_limit_s=100.0),
        job("b2", 1, 50, 1, user="bob", time_limit_s=100.0),
        job("c1", 0, 9, 1, user="cas", time_limit_s=3.0),
        job("c2", 1, 1, 1, user="cas", time_limit_s=100.0),
    ]
    ordered = sorted(jobs, key=lambda j: j.submit_s)
    # 0: all known by limit only: c1 (3 s). 3: c2 (3 s, by c1). 4: c's history knows 3 and 1; nobody
    # else ended: a1, b1, a2, b2 tie at 100 -> a1. 24: ann's are 20 s, bob's 100 -> a2. 44: b1, and
    # at 46 b2
    assert starts(cluster(("n", 1)), ordered, "qssf") == {
        "c1": 0.0, "c2": 3.0, "a1": 4.0, "a2": 24.0, "b1": 44.0, "b2": 46.0
    }  # fmt: skip
    assert starts(cluster(("n", 1)), ordered, "fcfs")["a2"] > 24.0


@calm
@given(case=cases(), stop=st.integers(0, 60), stretch=st.sampled_from([0.5, 3.0]))
def test_qssf_knows_nothing_of_jobs_that_have_not_ended(
    case: tuple[Cluster, tuple[TraceJob, ...]], stop: int, stretch: float
) -> None:
    where, jobs = case
    one = Qssf()
    first = World(where, jobs, order=by_policy(one, None))
    first.advance(float(stop))
    over = {r.number for r in first.finished.values()}
    longer = [
        j if i in over else replace(j, duration_s=j.duration_s * 2 + stop * (1 + stretch))
        for i, j in enumerate(jobs, 1)
    ]
    other = Qssf()
    second = World(where, longer, order=by_policy(other, None))
    second.advance(float(stop))
    if {r.number for r in second.finished.values()} != over:
        return  # a limit that had cut a job short made its new run time visible
    one.look(first)
    other.look(second)
    assert one.history == other.history
    seen, unseen = snapshot_of(first), snapshot_of(second)
    assert decide(seen, one, KNOBS).plan == decide(unseen, other, KNOBS).plan


@calm
@given(case=cases(), backfill=st.sampled_from(["easy", "none"]))
def test_the_daemon_s_way_gives_the_same_schedule(
    case: tuple[Cluster, tuple[TraceJob, ...]], backfill: str
) -> None:
    where, jobs = case
    rules = Rules(backfill=backfill, natural=FINE)  # type: ignore[arg-type]
    protocol = Protocol(rules=rules)
    window = TraceWindow(0, jobs)
    base = simulate(window, where, "qssf", protocol)
    decided = schedule_of(play_decided(where, jobs, Qssf(), protocol), window, where, 0.0)
    assert base.start_s.tolist() == decided.start_s.tolist()


def test_every_run_begins_without_a_memory() -> None:
    jobs = tuple(job(f"j{i}", i, 5 + i % 7, 1 + i % 3, user=f"u{i % 4}") for i in range(40))
    window, where = TraceWindow(0, jobs), cluster(("n", 4))
    for play in (simulate, plainly):
        first, again = (play(window, where, "qssf", Protocol()) for _ in range(2))
        assert first.start_s.tolist() == again.start_s.tolist()
