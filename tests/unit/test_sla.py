"""Classes with a promise: who is of one, that its jobs have delay 0, who is late."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.order import Order, SlaClass, class_of
from rltuned.daemon.canary import ClassCount, PromiseWatch
from rltuned.daemon.metrics import Metrics
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob
from rltuned.domain.plan import SITE_FACTOR
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import SettingsError
from rltuned.policies.baselines import BASELINES
from rltuned.settings import load
from tests.builders import NOW, job, running, snapshot
from tests.configs import settings_file
from tests.loops import Bench

SYSTEM = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * 86_400.0)
"""A tenth of a point for every second."""
BASE = 100_000
FAST = SlaClass("account", "fast", 900.0)


def waiting(job_id: int, waited_s: float, **rest: object) -> PendingJob:
    points = BASE + int(waited_s * SYSTEM.slope)
    return job(job_id, submitted_at=NOW - waited_s, priority=points, **rest)  # type: ignore[arg-type]


def fast(job_id: int, waited_s: float, **rest: object) -> PendingJob:
    return waiting(job_id, waited_s, account="fast", **rest)


def decided(*jobs: PendingJob, neutral_s: float) -> Decision:
    knobs = Knobs(sla=(FAST,), order=Order(own=1.0, share=0.0))
    neutral = NeutralDelay(neutral_s, NOW, neutral_s, NOW)
    seen, context = snapshot(*jobs, priorities=SYSTEM), Context(neutral=neutral)
    return decide(seen, BASELINES["sjf"], knobs, context=context)


def factors(decision: Decision) -> dict[int, int]:
    return {int(a.target.job_id): a.new for a in decision.plan.actions if a.field is SITE_FACTOR}


def test_a_job_of_several_partitions_is_in_no_class_that_is_named_by_one() -> None:
    classes = (SlaClass("partition", "fast", 60.0), SlaClass("qos", "normal", 900.0))
    assert class_of(job(1, partition="fast"), classes) is classes[0]
    assert class_of(job(1, partitions=("fast", "gpu")), classes) is classes[1]
    assert class_of(job(1, partitions=("fast", "gpu"), qos="low"), classes) is None


def test_a_job_of_a_class_never_steps_back() -> None:
    found = decided(waiting(1, 600.0), fast(2, 60.0), neutral_s=1_000.0)
    delays = {int(e.job.job_id): (e.delay_s, e.upper_s) for e in found.entries}
    assert delays == {1: (3_600.0, 3_600.0), 2: (0.0, 0.0)}
    assert factors(found) == {1: 100 - 360, 2: 100}


def test_each_job_counts_once_when_it_starts_or_passes_its_bound() -> None:
    watch = PromiseWatch()

    def at(now: float, *pending: PendingJob, started: tuple[tuple[int, float], ...] = ()) -> object:
        runs = [
            running(n, started_at=now - 10, submitted_at=UnixTime(since), account="fast")
            for n, since in started
        ]
        seen = snapshot(*pending, runs=runs, taken_at=now)
        return watch.look((FAST,), seen, map(JobRun, runs))[FAST]

    late = fast(1, 1_000.0)
    held = fast(2, 850.0, held_by="user")
    near, other = fast(3, 850.0), waiting(4, 850.0)
    assert at(NOW, late, held, near, other) == ClassCount()  # what was before is not known
    assert at(NOW + 60, late, held, near, other) == ClassCount(1, 1)
    assert at(NOW + 120, late, near) == ClassCount()
    # one in time, one that passed the bound since the last look, one that was counted
    starts = ((5, NOW - 600), (6, NOW - 750), (3, NOW - 850.0))
    assert at(NOW + 180, started=starts) == ClassCount(2, 1)


def test_an_array_that_waits_for_its_own_tasks_breaks_no_promise() -> None:
    watch = PromiseWatch()
    array = fast(1, 850.0, array=ArrayInfo(JobId(1), 5, throttle=1))
    task = running(9, array_job_id=JobId(1), account="fast")

    def at(now: float) -> ClassCount:
        return watch.look((FAST,), snapshot(array, runs=[task], taken_at=now), ())[FAST]

    assert [at(NOW), at(NOW + 60)] == [ClassCount(), ClassCount()]


def test_a_wait_of_just_the_bound_keeps_the_promise() -> None:
    watch = PromiseWatch()
    one = fast(1, 850.0)
    counts = [
        watch.look((FAST,), snapshot(one, taken_at=NOW + later_s), ())[FAST]
        for later_s in (0.0, 50.0, 51.0)
    ]
    assert counts == [ClassCount(), ClassCount(), ClassCount(1, 1)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[sla]]\nmax_wait_s = 5.0", r":1: sla: must name one of"),
        ('[[sla]]\nqos = "a"\naccount = "b"', r":1: sla: must name one of"),
        ('[[sla]]\nqos = "a"\n[[sla]]\nqos = "b"\nmax_wait_s = 0.0', r":5: sla.max_wait_s: "),
        ('[[sla]]\nqos = "a"\n[[sla]]\nqos = "a"', "two classes have qos = a"),
        ('[[sla]]\nqos = "a,b"', r":2: sla.qos: must be one name"),
        ('[[sla]]\nuser = "a"', r":2: sla.user: unknown key; .*known here: account"),
        ('[sla]\nqos = "a"', r":1: sla: "),
    ],
)
def test_classes_that_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(SettingsError, match=f"^{path}{says}|{says}"):
        load(path)


def test_a_class_reaches_the_code_it_steers(tmp_path: Path) -> None:
    path = settings_file(
        tmp_path,
        '[[sla]]\naccount = "fast"\nmax_wait_s = 60.0\n'
        '[[sla]]\npartition = "gpu"\n[[sla]]\nqos = "slow"',
    )
    first, second = SlaClass("account", "fast", 60.0), SlaClass("partition", "gpu", 900.0)
    loaded = load(path)
    assert loaded.settings.knobs().sla == (first, second, SlaClass("qos", "slow", 900.0))
    assert loaded.origin("sla.2.qos") == f"{path}:7"


def test_a_cycle_leaves_breaches_in_the_metrics(tmp_path: Path) -> None:
    bench, metrics = Bench(tmp_path), Metrics(CollectorRegistry())
    bench.world.clock = bench.clock
    loop = bench.loop()
    one = SlaClass("partition", "gpu", 610.0)
    loop.rig = replace(loop.rig, knobs=replace(loop.rig.knobs, sla=(one,)))
    metrics.loaded("constant", at=NOW, classes=[one.name])
    found = []
    for _ in range(3):
        metrics.update(loop.cycle())
        found.append(
            metrics.registry.get_sample_value(
                "rltuned_sla_breaches_total", {"class": "partition=gpu"}
            )
        )
        bench.clock.advance(60.0)
    assert found == [0.0, 3.0, 3.0]
