"""A job that somebody holds while it bears our number: live, its nice comes back by itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.planning import undo
from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import NICE, PRIORITY, Action, Result, target_of
from rltuned.journal.journal import Journal
from tests.builders import job, snapshot
from tests.fakes import FakeBackend
from tests.loops import Bench

WORLD = snapshot(job(1, priority=300, nice=7), job(2, priority=200), job(3, priority=100))


@pytest.mark.parametrize("holder", ["user", "admin"])
def test_the_next_cycle_gives_the_nice_back_and_never_frees(tmp_path: Path, holder: str) -> None:
    bench = Bench(tmp_path, world=FakeBackend(WORLD))
    loop = bench.loop()
    loop.run(1)
    held = replace(bench.world.job(1), priority=0, held_by=holder, live=True)
    bench.world.put(held)
    report = loop.cycle()
    assert Action(NICE, target_of(held), 0, 7) in bench.world.plans[-1].actions
    assert report.applied()["release", Result.APPLIED] == 1
    assert bench.world.job(1) == replace(held, nice=7)
    assert 1 not in {key[0] for key in Journal(tmp_path).owned("test")}
    plans = len(bench.world.plans)
    loop.cycle()
    assert not any(a.target.job_id == 1 for p in bench.world.plans[plans:] for a in p.actions)
    freed = replace(bench.world.job(1), priority=290, held_by="", live=True)
    bench.world.put(freed)
    loop.cycle()
    (again,) = [a for a in bench.world.plans[-1].actions if a.target.job_id == 1]
    assert again.field is PRIORITY
    assert again.nice == 7


OURS = Ownership("priority", 900, nice=7, original=300, earlier=(300,))
NOT_A_NUMBER = replace(OURS, field="site_factor")
BARE = job(1, priority=900, nice=0, owned=OURS)


@pytest.mark.parametrize(
    "case",
    [
        {"priority": 0, "held_by": "user", "live": True, "nice": 9},
        {"priority": 0, "held_by": "user"},
        {"priority": 0, "held_by": "user", "live": True, "owned": replace(OURS, nice=0)},
        {"priority": 0, "held_by": "user", "live": True, "owned": NOT_A_NUMBER},
        {"priority": 0, "reason": "BadConstraints"},
        {"priority": 5_000, "fixed": True},
        {"priority": 5_000},
    ],
)
def test_nothing_is_done_where_the_nice_is_not_ours_to_set(case: dict[str, object]) -> None:
    assert undo(replace(BARE, **case)) is None  # type: ignore[arg-type]


def test_one_that_was_freed_meanwhile_gets_it_too() -> None:
    freed = replace(BARE, priority=5_000, live=True)
    assert undo(freed) == Action(NICE, target_of(freed), 0, 7)
