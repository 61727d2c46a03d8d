"""The simulated Slurm takes writes as the real one does."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Field,
    Plan,
    Result,
    Target,
    target_of,
)
from rltuned.domain.units import JobId, UnixTime
from rltuned.sim.backend import SimBackend
from rltuned.sim.world import FIRST_PRIORITY, Fault, Natural, NodeFault, Rules, World
from tests.pages import ROOT
from tests.sim.worlds import cluster, job

JOBS = [job("a", 0, 100, 4), job("b", 1, 10, 4), job("c", 2, 10, 4)]


def backend(**natural: Any) -> SimBackend:
    """At second 5 the first job runs, and two wait."""
    sim = SimBackend(World(cluster(("n", 4)), JOBS, rules=Rules(natural=Natural(**natural))))
    sim.advance(5)
    return sim


def seen(sim: SimBackend, number: int) -> PendingJob:
    return next(j for j in sim.observe().pending if j.job_id == number)


def write(sim: SimBackend, number: int, field: Field, new: Any, nice: int | None = None) -> None:
    waits = seen(sim, number)
    action = Action(field, target_of(waits), waits.priority, new, nice)
    assert [o.result for o in sim.apply(Plan((action,)))] == [Result.APPLIED]


def priorities(sim: SimBackend) -> dict[int, int]:
    return {int(j.job_id): j.priority for j in sim.observe().pending}


def test_what_an_observer_sees() -> None:
    shown = backend().observe()
    assert [(j.job_id, j.reason) for j in shown.pending] == [(2, "Resources"), (3, "Priority")]
    (running,), (node,) = shown.running, shown.nodes
    assert (running.job_id, running.started_at, running.latest_end()) == (1, 0.0, 100.0)
    assert (node.free.gpus, node.state, node.schedulable) == (0, "MIXED", True)
    assert shown.taken_at == 5.0


def test_multifactor_grows_with_age_and_stays_frozen_once_written() -> None:
    sim = backend(kind="multifactor", max_age_s=100.0)
    before = priorities(sim)
    write(sim, 3, PRIORITY, 77, 0)
    sim.advance(50)
    after = priorities(sim)
    assert after[2] > before[2]
    assert after[3] == 77


def test_a_priority_destroys_the_nice_and_a_release_gives_it_back() -> None:
    sim = backend()
    sim.world.pending[3].nice = 5
    natural = FIRST_PRIORITY - 2 - 5
    assert priorities(sim)[3] == natural
    write(sim, 3, PRIORITY, 9, 5)
    frozen = seen(sim, 3)
    assert (frozen.priority, frozen.nice, frozen.site_factor) == (9, 0, None)
    write(sim, 3, RELEASE, None, 5)
    assert priorities(sim)[3] == natural


def test_a_site_factor_adds_up_and_never_reaches_zero() -> None:
    sim = backend(kind="multifactor")
    before = priorities(sim)
    for factor, found in ((40, before[2] + 40), (-1_000_000, 1), (0, before[2])):
        write(sim, 2, SITE_FACTOR, factor)
        assert priorities(sim) == before | {2: found}


def test_a_written_priority_changes_who_starts_next() -> None:
    sim = backend()
    write(sim, 3, PRIORITY, FIRST_PRIORITY, 0)
    sim.advance(100)
    assert [r.job_id for r in sim.observe().running] == [3]


def test_a_job_that_left_the_queue_or_took_its_number_is_gone() -> None:
    sim = backend()
    running = Target(JobId(1), sim.observe().running[0].started_at, "1")
    other = replace(target_of(seen(sim, 2)), submitted_at=UnixTime(99.0))
    plan = Plan((Action(PRIORITY, running, 1, 2, 0), Action(PRIORITY, other, 1, 2, 0)))
    assert [o.result for o in sim.apply(plan)] == [Result.GONE, Result.GONE]
    assert priorities(sim) == priorities(backend())


def test_an_exclusive_job_that_is_reported_to_share_starts_beside_others() -> None:
    jobs = [job("a", 0, 100, 1), job("x", 1, 10, 1, exclusive=True)]
    sim = SimBackend(World(cluster(("n", 4)), jobs))
    sim.advance(5)
    assert seen(sim, 2).oversubscribe == "NO"
    write(sim, 2, OVERSUBSCRIBE, "YES")
    assert seen(sim, 2).oversubscribe == "YES"
    sim.world.schedule()
    assert [r.job_id for r in sim.observe().running] == [1, 2]


def test_a_backend_with_a_clock_catches_up() -> None:
    now = [5.0]
    sim = SimBackend(World(cluster(("n", 4)), JOBS), lambda: now[0])
    assert sim.observe().taken_at == 5.0
    now[0] = 105.0
    assert [r.job_id for r in sim.observe().running] == [2]


def test_nodes_that_are_down_or_drained_are_not_schedulable() -> None:
    faults = [Fault(1.0, "n1", NodeFault.FAIL), Fault(1.0, "n2", NodeFault.DRAIN)]
    sim = SimBackend(World(cluster(("n1", 1), ("n2", 1)), [job("a", 0, 50, 1)], faults=faults))
    sim.advance(2)
    nodes = [(n.state, n.schedulable) for n in sim.observe().nodes]
    assert nodes == [("DOWN", False), ("IDLE+DRAIN", False)]


@pytest.mark.parametrize("module", ["rltuned.sim.backend", "scripts.tools.demo"])
def test_the_demo_never_waits_for_numba_or_torch(module: str) -> None:
    """`make demo` installs neither."""
    code = f"import sys, {module}; sys.exit(bool({{'numba', 'torch'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
