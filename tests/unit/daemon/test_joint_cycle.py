"""Joint placement through the loop: solver to plan to journal to world, and the counters."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs
from rltuned.core.milp import Budget, Sharing, Solver, Tuning
from rltuned.core.select import Scope
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.wiring import build_rig
from rltuned.domain.cluster import Partition
from rltuned.domain.plan import Result
from rltuned.journal.journal import Journal
from rltuned.settings import load
from rltuned.solver import Cbc
from tests.builders import NOW, job, request, snapshot, sure, words_in
from tests.configs import settings_file
from tests.fakes import FakeBackend
from tests.loops import Bench

WORLD = replace(
    snapshot(
        job(1, priority=300, submitted_at=NOW - 900, oversubscribe="NO",
            asks=request(gpus=1, exclusive=True)),
        job(2, priority=200, submitted_at=NOW - 800, gpus=2),
        partitions=[Partition("gpu", True)],
    ),
    preemption=False,
)  # fmt: skip
TUNING = Tuning(budget=Budget(wall_s=20.0), sharing=Sharing(frozenset({"gpu"})))


def loop(bench: Bench, solver: Solver) -> Loop:
    bench.world = FakeBackend(WORLD)
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
    assert loop(bench, Cbc()).run(1) == 0
    assert bench.world.job(1).oversubscribe == "YES"
    report = bench.received.reports[0]
    assert report.applied()["oversubscribe", Result.APPLIED] == 1
    (flag,) = words_in(Journal(tmp_path))
    assert (flag.target.job_id, flag.original, flag.value) == (1, "NO", "YES")
    assert counted(bench)["solved"] == 1.0


def test_a_dry_run_sets_no_flag(tmp_path: Path) -> None:
    bench = Bench(tmp_path, live=False)
    loop(bench, Cbc()).run(1)
    assert bench.world.job(1).oversubscribe == "NO"
    assert bench.received.reports[0].proposed()["oversubscribe"] == 1


def test_a_solver_that_fails_costs_nothing_but_its_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    gone = Cbc(Path("/nonexistent/cbc"))
    assert loop(bench, gone).run(1) == 0
    assert bench.world.job(1).oversubscribe == "NO"
    assert counted(bench)["fell_back"] == 1.0
    decision = sure(bench.received.reports[0].decision)
    assert any("fell_back" in note for note in decision.notes)


@pytest.mark.parametrize(("placement", "solver"), [('placement = "pack"\n', None), ("", Cbc())])
def test_settings_bring_the_solver(tmp_path: Path, placement: str, solver: Cbc | None) -> None:
    path = settings_file(
        tmp_path,
        f'[policy]\n{placement}[oversubscribe]\nscope = ["gpu"]\n',
    )
    path.chmod(0o644)
    rig = build_rig(load(path), FakeBackend(WORLD))
    assert rig.solver == solver
    assert rig.knobs.tuning.budget == Budget()
    assert rig.knobs.tuning.sharing == Sharing(frozenset({"gpu"}))
