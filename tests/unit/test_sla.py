"""Classes with a promise: who is of one, what a lift writes, who is late."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rltuned.backtest.play import not_played
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.explaining import sentence
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.sla import LIFT_S, SINK_S, SlaClass, class_of
from rltuned.daemon.canary.monitor import ClassCount, PromiseWatch
from rltuned.daemon.canary.outcomes import JobStart, Side
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.newcomers import formula
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SetPriority, SetSiteFactor
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.units import UnixTime
from rltuned.errors import SettingsError
from rltuned.policies.baselines import BASELINES
from rltuned.settings import load
from tests.builders import NOW, job, node, running, snapshot
from tests.loops import Bench
from tests.switchback_world import switchback_at

DAY = 86_400.0
SYSTEM = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
"""A tenth of a point for every second."""
BASE = 100_000
FAST = SlaClass("account", "fast", 900.0, lift_jobs=2)


def waiting(job_id: int, waited_s: float, more: int = 0, **rest: object) -> PendingJob:
    """more: points above those of the others, besides age."""
    points = BASE + more + int(waited_s * SYSTEM.slope)
    return job(job_id, submitted_at=NOW - waited_s, priority=points, **rest)  # type: ignore[arg-type]


def fast(job_id: int, waited_s: float, more: int = 0, **rest: object) -> PendingJob:
    return waiting(job_id, waited_s, more, account="fast", **rest)


def decided(
    *jobs: PendingJob,
    sla: tuple[SlaClass, ...] = (FAST,),
    cap: int = 99,
    system: PrioritySystem = SYSTEM,
    neutral_s: float = 0.0,
    **world: Any,
) -> Decision:
    knobs = Knobs(sla=sla, order=Order(stretch=1.0), writing=Writing(max_changes=cap))
    neutral = NeutralDelay(neutral_s, NOW, neutral_s, NOW)
    seen = snapshot(*jobs, priorities=system, neutral=neutral, **world)
    return decide(seen, BASELINES["sjf"], knobs)


def factors(decision: Decision) -> dict[int, int]:
    return {
        int(a.target.job_id): a.new for a in decision.plan.actions if isinstance(a, SetSiteFactor)
    }


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


def test_the_longest_waits_are_lifted_above_all_that_the_daemon_orders() -> None:
    ahead = waiting(1, 7_200.0, more=5_000)
    others = [fast(n, 900.0 + n) for n in (2, 3, 4)] + [fast(5, 899.0)]
    found = decided(ahead, *others, cap=9)
    assert {int(e.job.job_id) for e in found.entries if e.lifted} == {3, 4}
    top = ahead.priority + 1 + int(LIFT_S * SYSTEM.slope)
    assert {e.settled for e in found.entries if e.lifted} == {top}
    assert [int(e.job.job_id) for e in found.entries[:2]] == [4, 3]
    assert "lifted above" in sentence(found, found.matrix.jobs.index(others[1]))


def test_a_job_in_a_partition_of_other_nodes_is_not_passed() -> None:
    """Its points are those of its partition; here they stand above every --qos=high."""
    nodes = [node("a1"), node("b1", partitions=("other",)), node("c1", partitions=("gpu", "mixed"))]
    far = waiting(1, 600.0, more=900_000, partition="other")
    near = waiting(2, 600.0, more=1_000, partition="mixed")
    found = decided(far, near, fast(3, 1_000.0), nodes=nodes)
    (late,) = (e for e in found.entries if e.lifted)
    assert near.priority < late.settled < far.priority


def test_a_job_in_front_by_itself_is_not_lifted() -> None:
    found = decided(waiting(1, 60.0), fast(2, 1_000.0))
    assert not any(e.lifted for e in found.entries)
    assert 2 not in factors(found)


@pytest.mark.parametrize(
    ("over", "above"), [(frozenset[str](), False), (frozenset({"high"}), True)]
)
def test_a_higher_qos_is_passed_only_where_the_class_names_it(
    over: frozenset[str], above: bool
) -> None:
    high = waiting(1, 7_200.0, more=20_000, qos="high")
    found = decided(
        high, waiting(2, 7_200.0), fast(3, 1_000.0), sla=(replace(FAST, over_qos=over),)
    )
    (late,) = (e for e in found.entries if e.lifted)
    assert (late.settled > high.priority) is above


def test_a_lift_stays_until_it_is_too_low_or_far_above() -> None:
    ahead = waiting(1, 7_200.0, more=5_000)

    def after(priority: int) -> dict[int, int]:
        factor = priority - BASE - 100
        own = Ownership("site_factor", factor, original=0)
        late = fast(2, 1_000.0, factor, site_factor=factor, owned=own)
        assert late.priority == priority
        return {k: v + BASE + 100 for k, v in factors(decided(ahead, late)).items() if k == 2}

    top = ahead.priority
    wanted = {2: top + 1 + int(LIFT_S * SYSTEM.slope)}
    highest = top + 1 + int(SINK_S * SYSTEM.slope)
    assert [after(p) for p in (top + 1, highest)] == [{}, {}]
    assert [after(p) for p in (top, highest + 1)] == [wanted, wanted]


def test_a_lift_takes_part_in_the_cap_and_comes_first() -> None:
    ahead = [waiting(n, 7_200.0, more=5_000) for n in (1, 2)]
    found = decided(*ahead, fast(3, 1_000.0), fast(4, 1_001.0), cap=1)
    assert list(factors(found)) == [4]
    assert not decided(*ahead, fast(3, 1_000.0), cap=0).plan.actions


def test_under_basic_the_priority_itself_is_lifted() -> None:
    found = decided(
        waiting(1, DAY), fast(2, 1_000.0), system=PrioritySystem("basic"), neutral_s=3_600.0
    )
    writes = {int(a.target.job_id): a.new for a in found.plan.actions if isinstance(a, SetPriority)}
    assert writes[2] == writes[1] + 1 + int(LIFT_S / 60)


def test_no_job_is_lifted_in_an_off_block() -> None:
    """Where rltuned brings the age, jobs of an off block keep a number, and that alone."""
    system = PrioritySystem("multifactor", ages=False)
    for on in (True, False):
        rules = replace(Knobs().rules, switchback=switchback_at(NOW, on=on))
        knobs = Knobs(sla=(FAST,), rules=rules)
        seen = snapshot(waiting(1, 7_200.0, more=500), fast(2, 1_000.0), priorities=system)
        found = decide(seen, BASELINES["sjf"], knobs)
        assert any(e.lifted for e in found.entries) is on


def test_a_deadline_lifts_only_where_the_class_says_so() -> None:
    late = fast(2, 60.0, time_limit_s=3_600.0, deadline_at=UnixTime(NOW + 3_700.0))
    ahead = waiting(1, 7_200.0)
    for deadline_s, expected in ((None, False), (90.0, False), (120.0, True)):
        found = decided(ahead, late, sla=(replace(FAST, deadline_s=deadline_s),))
        assert any(e.lifted for e in found.entries) is expected


@pytest.mark.parametrize(
    ("limit_s", "slack_s", "expected"),
    [
        (3_000.0, 1_850.0, True),  # what runs may take 1,800 s more
        (3_000.0, 2_000.0, False),
        (None, 950.0, True),  # not known: max_wait_s, 900 s
        (None, 1_100.0, False),
    ],
)
def test_a_deadline_lifts_in_time_for_what_runs_to_end(
    limit_s: float | None, slack_s: float, expected: bool
) -> None:
    late = fast(2, 60.0, time_limit_s=3_600.0, deadline_at=UnixTime(NOW + 3_600.0 + slack_s))
    seen = snapshot(
        waiting(1, 7_200.0),
        late,
        nodes=[node(gpus=1, free_gpus=0)],
        runs=[running(time_limit_s=limit_s)],  # since 1,200 s
        priorities=SYSTEM,
    )
    one = replace(FAST, deadline_s=120.0)
    found = decide(seen, BASELINES["sjf"], Knobs(sla=(one,), order=Order(stretch=1.0)))
    assert any(e.lifted for e in found.entries) is expected


def test_a_job_that_another_one_holds_takes_no_lift() -> None:
    held = fast(2, 10_000.0, dependency="afterok:1(unfulfilled)")
    free = fast(3, 1_000.0)
    assert FAST.is_due(replace(held, dependency=""), NOW, lambda _: None)
    assert not FAST.is_due(held, NOW, lambda _: None)
    seen = replace(
        snapshot(waiting(1, 7_200.0, more=5_000), held, free, priorities=SYSTEM),
        critical=(held.job_id,),
    )
    one = replace(FAST, lift_jobs=1, deadline_s=1e9)
    found = decide(seen, BASELINES["sjf"], Knobs(sla=(one,), boost=0.5))
    assert [int(e.job.job_id) for e in found.entries if e.lifted] == [3]


def test_the_submit_script_leaves_classes_alone() -> None:
    sla = (FAST, SlaClass("qos", "high", 60.0), SlaClass("partition", "gpu", 60.0))
    knobs = Knobs(sla=sla, order=Order(stretch=1.0))
    seen = snapshot(waiting(1, 60.0), priorities=SYSTEM)
    stamp = formula(decide(seen, BASELINES["delay"], knobs), knobs)
    assert stamp is not None
    assert (stamp.partitions, stamp.accounts, stamp.qos) == ((), ("fast",), ("high",))


def begun(number: int, at: float, since: float) -> JobStart:
    return JobStart(
        job(number).job_id, (job(number).job_id, UnixTime(since)), "gpu", Side.ON, at, 0
    )


def test_each_job_counts_once_when_it_starts_or_passes_its_bound() -> None:
    watch = PromiseWatch()

    def at(now: float, *pending: PendingJob, started: tuple[tuple[int, float], ...] = ()) -> object:
        runs = [
            running(n, started_at=now - 10, submitted_at=UnixTime(since), account="fast")
            for n, since in started
        ]
        seen = snapshot(*pending, runs=runs, taken_at=now)
        starts = [begun(n, now - 10, since) for n, since in started]
        return watch.look((FAST,), seen, starts)[FAST]

    late = fast(1, 1_000.0)
    held = fast(2, 850.0, held_by="user")
    near, other = fast(3, 850.0), waiting(4, 850.0)
    assert at(NOW, late, held, near, other) == ClassCount()  # what was before is not known
    assert at(NOW + 60, late, held, near, other) == ClassCount(1, 1)
    assert at(NOW + 120, late, near) == ClassCount()
    # one in time, one that passed the bound since the last look, one that was counted
    starts = ((5, NOW - 600), (6, NOW - 750), (3, NOW - 850.0))
    assert at(NOW + 180, started=starts) == ClassCount(2, 1)


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
        (
            '[scope]\nsla_partitions = ["p"]\n[[sla]]\npartition = "p"\nlift_jobs = 1',
            "cannot be lifted",
        ),
    ],
)
def test_classes_that_cannot_be(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rltuned.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match=f"^{path}{says}|{says}"):
        load(path)


def test_a_class_reaches_the_code_it_steers(tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    path.write_text(
        '[[sla]]\naccount = "fast"\nmax_wait_s = 60.0\nlift_jobs = 3\n'
        'over_qos = ["high"]\nlift_deadlines = true\n[[sla]]\nqos = "slow"'
    )
    path.chmod(0o600)
    over = frozenset({"high"})
    first = SlaClass("account", "fast", 60.0, 3, over, deadline_s=2 * 60.0)
    loaded = load(path)
    assert loaded.settings.knobs().sla == (first, SlaClass("qos", "slow", 900.0))
    assert loaded.origin("sla.1.qos") == f"{path}:8"


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


def test_what_a_play_of_the_record_leaves_out_is_reported() -> None:
    assert not_played(Knobs(sla=(replace(FAST, lift_jobs=0),), sizes="shadow")) == ()
    found = not_played(Knobs(sla=(FAST,), boost=0.5, sizes="on"))
    assert [text.split(" ")[0] for text in found] == ["groups.boost", "lifts", "sizes.mode"]
