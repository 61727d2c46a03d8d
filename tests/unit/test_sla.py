"""Classes with a promise, odd ones too: who is of one, that its jobs have delay 0, who is late."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.order import SlaClass, class_of
from rltuned.daemon.canary import promises_kept
from rltuned.daemon.metrics import Metrics
from rltuned.domain.jobs import ArrayInfo, JobRun, PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import SettingsError
from rltuned.policies.baselines import BASELINES
from rltuned.settings import load
from rltuned.settings.keys import Settings
from tests.builders import NOW, job, running, snapshot
from tests.configs import settings_file
from tests.examples import examples
from tests.loops import Bench
from tests.property.tables import SYSTEM

BASE = 100_000
FAST = SlaClass("account", "fast", 900.0)


def waiting(job_id: int, waited_s: float, **rest: object) -> PendingJob:
    points = BASE + int(waited_s * SYSTEM.slope)
    return job(job_id, submitted_at=NOW - waited_s, priority=points, **rest)  # type: ignore[arg-type]


def fast(job_id: int, waited_s: float, **rest: object) -> PendingJob:
    return waiting(job_id, waited_s, account="fast", **rest)


def test_a_job_of_several_partitions_is_in_no_class_that_is_named_by_one() -> None:
    classes = (SlaClass("partition", "fast", 60.0), SlaClass("qos", "normal", 900.0))
    assert class_of(job(1, partition="fast"), classes) is classes[0]
    assert class_of(job(1, partitions=("fast", "gpu")), classes) is classes[1]
    assert class_of(job(1, partitions=("fast", "gpu"), qos="low"), classes) is None


def test_each_job_counts_once_when_it_starts_or_passes_its_bound() -> None:
    last: list[float | None] = [None]

    def at(now: float, *pending: PendingJob, started: tuple[tuple[int, float], ...] = ()) -> object:
        runs = [
            running(n, started_at=now - 10, submitted_at=UnixTime(since), account="fast")
            for n, since in started
        ]
        seen = snapshot(*pending, runs=runs, taken_at=now)
        found = promises_kept((FAST,), seen, map(JobRun, runs), last[0])[FAST]
        last[0] = now
        return found

    late = fast(1, 1_000.0)
    held = fast(2, 850.0, held_by="user")
    near, other = fast(3, 850.0), waiting(4, 850.0)
    assert at(NOW, late, held, near, other) == (0, 0)  # what was before is not known
    assert at(NOW + 50, near) == (0, 0), "a wait of just the bound"
    assert at(NOW + 60, late, held, near, other) == (1, 1)
    assert at(NOW + 120, late, near) == (0, 0)
    # one in time, one that passed the bound since the last look, one that was counted
    starts = ((5, NOW - 600), (6, NOW - 750), (3, NOW - 850.0))
    assert at(NOW + 180, started=starts) == (2, 1)


def test_an_array_that_waits_for_its_own_tasks_breaks_no_promise() -> None:
    array = fast(1, 850.0, array=ArrayInfo(JobId(1), 5, throttle=1))
    task = running(9, array_job_id=JobId(1), account="fast")
    seen = snapshot(array, runs=[task], taken_at=NOW + 60)
    assert promises_kept((FAST,), seen, (), NOW)[FAST] == (0, 0)


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
    metrics.loaded("constant", classes=[one.name])
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


NAMES = ("", "fast", "gpu", "normal", "high", "é", "a b", "x" * 300, "-1", "*", None, 3, ["fast"])
WAITS = (0.0, 1e-9, 60.0, 3e7, 1e300, float("inf"), float("nan"), -1.0, "60", True)
one_class = st.fixed_dictionaries(
    {"max_wait_s": st.sampled_from(WAITS)},
    optional=dict.fromkeys(("partition", "qos", "account"), st.sampled_from(NAMES)),
)
"""A table of `[[sla]]`, odd as often as not."""
QUEUE = snapshot(
    *(
        job(
            n,
            submitted_at=NOW - 500.0 * n,
            priority=100_000 + 977 * (n % 5),
            qos=("normal", "high")[n % 2],
            account=("lab", "fast", "x" * 300)[n % 3],
            partitions=(("gpu",), ("gpu", "fast"), ("fast",))[n % 3],
            deadline_at=UnixTime(NOW + 4_000.0) if n % 4 == 0 else None,
        )
        for n in range(1, 9)
    ),
    priorities=SYSTEM,
)


def decided(sla: tuple[SlaClass, ...] = ()) -> Decision:
    context = Context(neutral=NeutralDelay(600.0, NOW, 600.0, NOW))
    return decide(QUEUE, BASELINES["saf"], Knobs(top_k=0, sla=sla), context=context)


@examples(8_000)
@given(st.lists(one_class, min_size=1, max_size=3))
def test_odd_classes_raise_nothing_and_move_no_job_of_another_class(
    tables: list[dict[str, object]],
) -> None:
    try:
        found = Settings.model_validate({"sla": tables}).knobs().sla
    except ValidationError:
        return
    decision, plain = decided(found), decided()
    ours: set[JobId] = {j.job_id for j in QUEUE.pending if class_of(j, found)}
    others = ([a for a in d.plan.actions if a.target.job_id not in ours] for d in (decision, plain))
    assert next(others) == next(others)
    assert ours or decision.plan == plain.plan
    assert all(e.delay_s == 0 for e in decision.entries if e.job.job_id in ours)
