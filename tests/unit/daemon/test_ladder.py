"""The trust ladder in the loop, another daemon beside it, and what a cycle takes over."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.milp import Budget, Sharing, Solver, Tuning
from rltuned.core.select import Scope
from rltuned.daemon.foreign import DIFFERENT, foreign, rival
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.wiring import Rig, build_rig
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SITE_FACTOR, Result
from rltuned.domain.priority import HIGHEST_BASIC, PrioritySystem
from rltuned.domain.units import UnixTime
from rltuned.journal.journal import Journal
from rltuned.settings import load
from rltuned.solver import Cbc
from tests.builders import NOW, job, request, snapshot, sure, words_in
from tests.configs import settings_file
from tests.fakes import NATURAL, ConstantOrder, FakeBackend, dealt
from tests.loops import Bench


@dataclass
class Climb(Bench):
    """A loop on a rung of the ladder."""

    ladder: Ladder = field(default_factory=lambda: Ladder(rung=Rung.FULL, max_errors=2))
    budget: int | None = None

    def rig(self) -> Rig:
        rules = Scope(max_writes_per_hour=self.budget)
        return replace(super().rig(), knobs=Knobs(rules, writing=self.writing), ladder=self.ladder)

    def on(self, rung: Rung) -> "Climb":
        self.ladder = replace(self.ladder, rung=rung)
        return self

    def climb(self, loop: Loop, rung: Rung) -> None:
        """Settings with another stage are loaded."""
        self.on(rung)
        loop.rig = self.rig()

    @property
    def last(self) -> CycleReport:
        return self.received.reports[-1]


@pytest.fixture
def climb(tmp_path: Path) -> Climb:
    return Climb(tmp_path)


@pytest.mark.parametrize("rung", [Rung.SHADOW, Rung.OBSERVE])
def test_a_job_that_was_requeued_after_going_down_is_given_back(climb: Climb, rung: Rung) -> None:
    loop = climb.loop()
    loop.cycle()
    ran = climb.world.job(1)
    assert ran.priority == dealt(3, 2, 1)[1]
    climb.world.drop(1)
    climb.climb(loop, rung)
    loop.cycle()
    climb.world.put(replace(ran, submitted_at=UnixTime(NOW + 1), fixed=True))
    loop.cycle()
    loop.cycle()
    assert climb.priorities()[1] == NATURAL
    loop.cycle()
    Journal(climb.folder).claim()


def test_a_paused_or_dry_daemon_does_not_even_restore(climb: Climb) -> None:
    loop = climb.loop()
    loop.cycle()
    climb.climb(loop, Rung.SHADOW)
    (climb.folder / "PAUSE").touch()
    loop.cycle()
    assert climb.last.mode is HealthState.PAUSED
    loop.rig = replace(loop.rig, dry_run=True)
    loop.cycle()
    assert len(climb.world.plans) == 1


def test_a_job_is_written_to_so_often_an_hour_and_a_restart_does_not_forget(climb: Climb) -> None:
    climb.budget = 2
    orders = (ConstantOrder((3, 2, 1)), ConstantOrder((1, 2, 3)), ConstantOrder((3, 2, 1)))
    for policy in orders:
        climb.policy = policy
        loop = climb.loop()
        loop.cycle()
        loop._journal.close()
    assert climb.last.refused() == {"job_budget": 1}
    back, kept = dealt(3, 2, 1), dealt(1, 2, 3)
    further_back = {job: min(back[job], kept[job]) for job in kept}
    assert climb.priorities() == further_back
    climb.clock.advance(3_700.0)
    climb.world.world = replace(climb.world.world, taken_at=UnixTime(climb.clock.now()))
    climb.loop().cycle()
    assert climb.priorities() == dealt(3, 2, 1)


def test_a_breaker_state_that_cannot_be_read_stops_every_write(climb: Climb) -> None:
    Journal(climb.folder).remember("breakers", [1], NOW)
    climb.loop().run(1)
    assert climb.world.plans == []
    assert climb.last.mode is HealthState.OBSERVE
    assert "circuit breakers" in climb.last.journal_error


AGED = PrioritySystem("multifactor", ages=True, age_weight=604_800)
"""One point for every second."""
ORDINARY = tuple(job(n, priority=1_000 + n) for n in range(1, 61))


def moved(jobs: tuple[PendingJob, ...], count: int, step: int = 7) -> tuple[PendingJob, ...]:
    """The first of them with another site factor each."""
    return tuple(
        replace(j, site_factor=step * (i + 1)) if i < count else j for i, j in enumerate(jobs)
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (ORDINARY, False),
        (moved(ORDINARY, DIFFERENT - 1), False),  # a few by hand
        (moved(ORDINARY, DIFFERENT), True),
        (tuple(replace(j, site_factor=500) for j in ORDINARY), False),  # a plugin's one level
        (tuple(replace(j, priority=0) for j in moved(ORDINARY, 30)), False),  # all held
        (tuple(replace(j, fixed=True) for j in ORDINARY[:DIFFERENT]), True),
        (tuple(replace(j, fixed=True) for j in ORDINARY[:9]) + ORDINARY[9:], False),
        (moved(tuple(job(n) for n in range(1, 201)), 19), False),  # less than a tenth of the queue
        (moved(tuple(job(n) for n in range(1, 201)), 20), True),
    ],
)
def test_many_numbers_that_nobody_of_ours_wrote(
    seen: tuple[PendingJob, ...], expected: bool
) -> None:
    assert bool(rival(snapshot(*seen, priorities=AGED), ())) is expected


def test_one_user_among_others_is_no_rival() -> None:
    """Users may lower numbers of their own jobs, as many as they like."""
    own = [replace(j, user="mallory") for j in moved(ORDINARY, 30)[:30]]
    others = [replace(j, user="ann") for j in moved(ORDINARY, 60)[30:]]
    untouched = [replace(j, site_factor=0) for j in others]
    assert not rival(snapshot(*own, *untouched, priorities=AGED), ())
    assert rival(snapshot(*own, others[0], *untouched[1:], priorities=AGED), ())
    assert rival(snapshot(*own, priorities=AGED), ())  # no other user waits


BASIC = tuple(job(n, priority=HIGHEST_BASIC - n) for n in range(1, 61))
"""As priority/basic deals them out."""


def above(jobs: tuple[PendingJob, ...], count: int, each: int = 1) -> tuple[PendingJob, ...]:
    """The first of them with rltuned's numbers, `each` of them with the same one."""
    return tuple(
        replace(j, priority=HIGHEST_BASIC + 40_000 - i // each) if i < count else j
        for i, j in enumerate(jobs)
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (BASIC, False),
        (above(BASIC, DIFFERENT - 1), False),  # a few by hand
        (above(BASIC, DIFFERENT), True),
        (above(BASIC, 60, each=6), True),  # jobs of the same minute
        (above(BASIC, 60, each=7), False),  # a few levels for many
        (tuple(replace(j, priority=j.priority + 99_000, nice=-99_000) for j in BASIC), False),
        (tuple(replace(j, priority=j.priority - 50_000, nice=50_000) for j in BASIC), False),
        (tuple(replace(j, priority=j.priority - 99, nice=99) for j in above(BASIC, 20)), True),
    ],
)
def test_under_basic_ours_lie_above_slurms_own(
    seen: tuple[PendingJob, ...], expected: bool
) -> None:
    basic = snapshot(*seen, priorities=PrioritySystem("basic"))
    assert bool(rival(basic, ())) is expected
    ours = tuple(
        replace(j, owned=Ownership("priority", j.priority + j.nice, original=1)) for j in seen
    )
    assert rival(replace(basic, pending=ours), ()) == ""


def test_under_basic_a_number_of_ours_that_another_one_replaced_is_foreign() -> None:
    owned = Ownership("priority", HIGHEST_BASIC + 7, original=HIGHEST_BASIC - 1)
    ours = tuple(replace(j, owned=owned) for j in above(BASIC, 60))
    assert rival(snapshot(*ours, priorities=PrioritySystem("basic")), ())


@pytest.mark.parametrize(
    ("owned", "expected"),
    [
        (Ownership("site_factor", 7, original=0), None),
        (Ownership("site_factor", 6, original=0, earlier=(7,)), None),  # backfill put it back
        (Ownership("site_factor", 6, original=0), 7),
        (Ownership("priority", 1_000, original=5), None),
    ],
)
def test_what_is_foreign(owned: Ownership, expected: int | None) -> None:
    number = foreign(job(1, priority=1_000, site_factor=7, owned=owned), "multifactor")
    assert number == (None if expected is None else (SITE_FACTOR, expected))


CLUSTER = snapshot().cluster


JOINT = replace(
    snapshot(
        job(1, priority=300, submitted_at=NOW - 900, oversubscribe="NO",
            asks=request(gpus=1, exclusive=True)),
        job(2, priority=200, submitted_at=NOW - 800, gpus=2),
        partitions=[Partition("gpu", True)],
    ),
    preemption=False,
)  # fmt: skip
TUNING = Tuning(budget=Budget(wall_s=20.0), sharing=Sharing(frozenset({"gpu"})))


def joint_loop(bench: Bench, solver: Solver) -> Loop:
    bench.world = FakeBackend(JOINT)
    made = bench.loop()
    knobs = Knobs(Scope(), writing=bench.writing, placement="milp", tuning=TUNING)
    made.rig = replace(made.rig, knobs=knobs, solver=solver)
    return made


def counted(bench: Bench) -> dict[str, float]:
    metrics = Metrics(CollectorRegistry())
    for report in bench.received.reports:
        metrics.update(report)
    found = {}
    for how in ("skipped", "solved", "fell_back"):
        value = metrics.registry.get_sample_value("rltuned_joint_placements_total", {"how": how})
        found[how] = value or 0.0
    return found


def test_a_flag_is_journalled_sent_and_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert joint_loop(bench, Cbc()).run(1) == 0
    assert bench.world.job(1).oversubscribe == "YES"
    report = bench.received.reports[0]
    assert report.applied()["oversubscribe", Result.APPLIED] == 1
    (flag,) = words_in(Journal(tmp_path))
    assert (flag.target.job_id, flag.original, flag.value) == (1, "NO", "YES")
    assert counted(bench)["solved"] == 1.0


def test_a_solver_that_fails_costs_nothing_but_its_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    gone = Cbc(Path("/nonexistent/cbc"))
    assert joint_loop(bench, gone).run(1) == 0
    assert bench.world.job(1).oversubscribe == "NO"
    assert counted(bench)["fell_back"] == 1.0
    decision = sure(bench.received.reports[0].decision)
    assert any("fell_back" in note for note in decision.notes)


@pytest.mark.parametrize(("placement", "solver"), [('placement = "pack"\n', None), ("", Cbc())])
def test_settings_bring_the_solver(tmp_path: Path, placement: str, solver: Cbc | None) -> None:
    path = settings_file(tmp_path, f'[policy]\n{placement}[oversubscribe]\nscope = ["gpu"]\n')
    path.chmod(0o644)
    rig = build_rig(load(path), FakeBackend(JOINT))
    assert rig.solver == solver
    assert rig.knobs.tuning.budget == Budget()
    assert rig.knobs.tuning.sharing == Sharing(frozenset({"gpu"}))
