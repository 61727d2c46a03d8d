"""The simulated Slurm takes writes as the real one does."""

import subprocess
import sys
from dataclasses import replace

import pytest

from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Plan,
    Result,
    Target,
    target_of,
)
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.sim.backend import SimBackend
from rltuned.sim.world import FIRST_PRIORITY, Fault, Natural, NodeFault, Rules, World
from tests.pages import ROOT
from tests.sim.worlds import cluster, job

JOBS = [job("a", 0, 100, 4), job("b", 1, 10, 4), job("c", 2, 10, 4)]


def backend(**natural: object) -> SimBackend:
    rules = Rules(natural=Natural(**natural))  # type: ignore[arg-type]
    world = World(cluster(("n", 4)), JOBS, rules=rules)
    world.advance(5)
    return SimBackend(world)


def target(seen: Snapshot, number: int) -> Target:
    return target_of(next(j for j in seen.pending if j.job_id == number))


def priorities(sim: SimBackend) -> dict[int, int]:
    return {int(j.job_id): j.priority for j in sim.observe().pending}


def test_what_an_observer_sees() -> None:
    seen = backend().observe()
    assert [j.job_id for j in seen.pending] == [2, 3]
    assert [j.reason for j in seen.pending] == ["Resources", "Priority"]
    (running,) = seen.running
    assert (running.job_id, running.started_at, running.latest_end()) == (1, 0.0, 100.0)
    (node,) = seen.nodes
    assert (node.free.gpus, node.state, node.schedulable) == (0, "MIXED", True)
    assert seen.taken_at == 5.0


def test_multifactor_grows_with_age_and_stays_frozen_once_written() -> None:
    sim = backend(kind="multifactor", max_age_s=100.0)
    seen, before = sim.observe(), priorities(sim)
    outcome = sim.apply(Plan((Action(PRIORITY, target(seen, 3), before[3], 77, 0),)))
    assert [o.result for o in outcome] == [Result.APPLIED]
    sim.advance(50)
    after = priorities(sim)
    assert after[2] > before[2]
    assert after[3] == 77


def test_a_priority_destroys_the_nice_and_a_release_gives_it_back() -> None:
    sim = backend()
    sim.world.pending[3].nice = 5
    seen = sim.observe()
    natural = FIRST_PRIORITY - 2 - 5
    assert priorities(sim)[3] == natural
    sim.apply(Plan((Action(PRIORITY, target(seen, 3), natural, 9, 5),)))
    frozen = next(j for j in sim.observe().pending if j.job_id == 3)
    assert (frozen.priority, frozen.nice, frozen.site_factor) == (9, 0, None)
    sim.apply(Plan((Action(RELEASE, target(seen, 3), 9, None, 5),)))
    assert priorities(sim)[3] == natural


def test_a_site_factor_adds_up_and_never_reaches_zero() -> None:
    sim = backend(kind="multifactor")
    seen, before = sim.observe(), priorities(sim)
    sim.apply(Plan((Action(SITE_FACTOR, target(seen, 2), 0, 40),)))
    assert priorities(sim)[2] == before[2] + 40
    sim.apply(Plan((Action(SITE_FACTOR, target(seen, 2), 40, -1_000_000),)))
    assert priorities(sim)[2] == 1
    sim.apply(Plan((Action(SITE_FACTOR, target(seen, 2), -1_000_000, 0),)))
    assert priorities(sim) == before


def test_a_written_priority_changes_who_starts_next() -> None:
    sim = backend()
    seen = sim.observe()
    sim.apply(Plan((Action(PRIORITY, target(seen, 3), 1, FIRST_PRIORITY, 0),)))
    sim.advance(100)
    assert [r.job_id for r in sim.observe().running] == [3]


def test_a_job_that_left_the_queue_or_took_its_number_is_gone() -> None:
    sim = backend()
    seen = sim.observe()
    running = Target(JobId(1), seen.running[0].started_at, "1")
    other = replace(target(seen, 2), submitted_at=UnixTime(99.0))
    plan = Plan((Action(PRIORITY, running, 1, 2, 0), Action(PRIORITY, other, 1, 2, 0)))
    assert [o.result for o in sim.apply(plan)] == [Result.GONE, Result.GONE]
    assert priorities(sim) == priorities(backend())


def test_an_exclusive_job_that_is_reported_to_share_starts_beside_others() -> None:
    jobs = [job("a", 0, 100, 1), job("x", 1, 10, 1, exclusive=True)]
    world = World(cluster(("n", 4)), jobs)
    world.advance(5)
    sim = SimBackend(world)
    seen = sim.observe()
    assert [j.oversubscribe for j in seen.pending] == ["NO"]
    sim.apply(Plan((Action(OVERSUBSCRIBE, target(seen, 2), "NO", "YES"),)))
    assert [j.oversubscribe for j in sim.observe().pending] == ["YES"]
    world.schedule()
    assert [r.job_id for r in sim.observe().running] == [1, 2]


def test_a_backend_with_a_clock_catches_up_and_schedules_after_a_write() -> None:
    now = [5.0]
    world = World(cluster(("n", 4)), JOBS)
    sim = SimBackend(world, lambda: now[0])
    assert sim.observe().taken_at == 5.0
    now[0] = 105.0
    assert [r.job_id for r in sim.observe().running] == [2]


def test_nodes_that_are_down_or_drained_are_not_schedulable() -> None:
    faults = [Fault(1.0, "n1", NodeFault.FAIL), Fault(1.0, "n2", NodeFault.DRAIN)]
    world = World(cluster(("n1", 1), ("n2", 1)), [job("a", 0, 50, 1)], faults=faults)
    world.advance(2)
    nodes = SimBackend(world).observe().nodes
    assert [(n.state, n.schedulable) for n in nodes] == [("DOWN", False), ("IDLE+DRAIN", False)]


@pytest.mark.parametrize("module", ["rltuned.sim.backend", "scripts.tools.demo"])
def test_the_demo_never_waits_for_numba_or_torch(module: str) -> None:
    """`make demo` installs neither."""
    code = (
        f"import sys, {module}; "
        "sys.exit(any(m in sys.modules for m in ('numba', 'torch', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
